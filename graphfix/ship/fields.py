"""What each field of ``graphfix.json`` may hold: said once, before a session relies on it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphfix.ship.expression import names_in, size_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MOST = 2**62


def require(data: Mapping[str, Any]) -> None:
    """Raise ValueError, in words, where a field of a manifest holds what it cannot."""
    sizes = _containers(data["containers"])
    for group in ("inputs", "outputs"):
        _list(data[group], group)
        for port in data[group]:
            _port(port, group, sizes)
        names = [port["name"] for port in data[group]]
        if not names:
            raise ValueError(f"there are no {group}")
        if len({*names}) < len(names):
            raise ValueError(f"two {group} have the same name")
    inputs = {port["name"]: port for port in data["inputs"]}
    for name in ("batch", "lengths"):
        if data[name] is not None and not isinstance(data[name], str):
            raise ValueError(f"{name} is {data[name]!r:.80}, which is no name")
    if data["batch"] is not None and data["batch"] not in sizes:
        raise ValueError(f"batch is {data['batch']!r:.80}, which has no size")
    axis = data["axis"]
    if axis["dim"] not in sizes or axis["input"] not in inputs:
        raise ValueError("axis names a dim without a size, or an input that there is not")
    _place(axis["axis"], inputs[axis["input"]]["dims"], "axis")
    rate = axis.get("rate")
    if rate is not None and not (_number(rate) and rate > 0):
        raise ValueError(f"rate is {rate!r:.80}, which is no number above 0")
    shortest = axis.get("shortest", 1)
    if not _whole(shortest) or not 1 <= shortest <= sizes[axis["dim"]]:
        raise ValueError(f"shortest is {shortest!r:.80}, which is no length of a clip that fits")
    _list(data["weights"], "weights")
    for file in data["weights"]:
        _beside(file)


def _containers(containers: Any) -> Mapping[str, int]:  # noqa: ANN401 - anything at all
    """The sizes of the first."""
    _list(containers, "containers")
    if not containers:
        raise ValueError("there are no containers")
    for one in containers:
        _beside(one["file"])
        sizes = one["sizes"]
        if not isinstance(sizes, dict) or sizes.keys() != containers[0]["sizes"].keys():
            raise ValueError("containers have sizes of different dims")
        for name, size in sizes.items():
            if not _whole(size) or not 0 <= size < _MOST:
                raise ValueError(f"the size of {name!r:.80} is {size!r:.80}, which is no size")
    first: Mapping[str, int] = containers[0]["sizes"]
    return first


def _port(port: Mapping[str, Any], group: str, sizes: Mapping[str, int]) -> None:
    name, dims = port["name"], port["dims"]
    if not isinstance(name, str) or not isinstance(port["type"], str):
        raise ValueError(f"one of the {group} has a name or a type that is no text")
    _list(dims, f"the dims of {name!r:.80}")
    for dim in dims:
        if not _whole(dim) and not isinstance(dim, str):
            raise ValueError(f"{name!r:.80} has a dim {dim!r:.80}")
        if missing := names_in(dim) - sizes.keys():
            told = f"{sorted(missing)}"
            raise ValueError(f"{name!r:.80} has a dim of {told:.80}, which have no size")
        if not 0 <= size_of(dim, sizes) < _MOST:
            raise ValueError(f"{name!r:.80} has a dim {dim!r:.80}, which is no size")
    if port["rows"] is not None:
        _place(port["rows"], dims, f"rows of {name!r:.80}")
    if not _number(port.get("pad", 0)):
        raise ValueError(f"pad of {name!r:.80} is {port['pad']!r:.80}, which is no number")


def _place(axis: Any, dims: Sequence[object], what: str) -> None:  # noqa: ANN401
    if not _whole(axis) or not 0 <= axis < len(dims):
        raise ValueError(f"{what} is {axis!r:.80}, and there are {len(dims)} dims")


def _beside(file: object) -> None:
    if not isinstance(file, str) or file in ("", ".", "..") or not {*file}.isdisjoint("/\\\0"):
        raise ValueError(f"{file!r:.80} is no file beside it")
    if Path(file).drive:  # on Windows C:x is in some other folder
        raise ValueError(f"{file!r:.80} is no file beside it")


def _list(given: object, what: str) -> None:
    if not isinstance(given, list):
        raise ValueError(f"{what} is no list")


def _whole(given: Any) -> bool:  # noqa: ANN401
    return isinstance(given, int) and not isinstance(given, bool)


def _number(given: Any) -> bool:  # noqa: ANN401
    return _whole(given) or (isinstance(given, float) and math.isfinite(given))
