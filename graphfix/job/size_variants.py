"""``fix-dims:T=500,3000`` is a model for each size: one such text to one text for each model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphfix.engine import pipeline
from graphfix.errors import UsageError
from graphfix.spec.quoting import halves, quoted, unquoted

if TYPE_CHECKING:
    from collections.abc import Sequence

_PASS, _ANY, _RATE = "fix-dims", "buckets", "rate"
_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<seconds>s?)")


@dataclass(frozen=True)
class Bucket:
    """One of several models of other sizes.

    Attributes:
        label: The size as it was given, ``500`` or ``5s``: part of the name of the file.
        spec: The pipeline that makes it.
    """

    label: str
    spec: str


def are_in(spec: str) -> bool:
    """Whether a pipeline names several sizes, or some that are in seconds."""
    for name, *given in pipeline.split(spec):
        if name == _PASS and any(
            key in (_ANY, _RATE) or "+" in text for key, text in map(_pair, given)
        ):
            return True
    return False


def expand(spec: str, dims: Sequence[str]) -> list[Bucket]:
    """The pipeline of each bucket, in the order of their sizes.

    Args:
        spec: A pipeline in which one dim of ``fix-dims`` has several sizes, ``T=500,3000``, or
            ``T=5s,30s:rate=100`` with so many frames a second. ``buckets=`` stands for the one
            symbolic dim that has no size of its own.
        dims: The names of the symbolic dims of the model's inputs.

    Raises:
        UsageError: Several dims have several sizes, a size is none, or it is not clear of what.
    """
    items = pipeline.split(spec)
    places = [i for i, (name, *_) in enumerate(items) if name == _PASS]
    if len(places) != 1:
        raise UsageError(f"{spec}: name {_PASS} once, with all its sizes")
    name, *given = items[places[0]]
    options = dict(map(_pair, given))
    rate = _rate(options.pop(_RATE, None))
    if _ANY in options:
        wanted = options.pop(_ANY)
        options[_only(dims, options, wanted)] = wanted
    many = [dim for dim, text in options.items() if "+" in text]
    if len(many) > 1:
        raise UsageError(f"{_PASS}: {' and '.join(many)} have several sizes; only one dim may")
    # Without several: the one in seconds, or the last.
    dim = next(iter(many), next((d for d, x in options.items() if x.endswith("s")), [*options][-1]))
    made: dict[int, Bucket] = {}
    for label in options[dim].split("+"):
        sizes = {d: _size(d, label if d == dim else x, rate) for d, x in options.items()}
        text = ":".join([name, *(f"{quoted(d)}={size}" for d, size in sizes.items())])
        others = [":".join(item) for item in items]
        others[places[0]] = text
        made[sizes[dim]] = Bucket(label, ",".join(others))
    return [made[size] for size in sorted(made)]


def _pair(text: str) -> tuple[str, str]:
    key, _, value = halves(text, "=")
    return unquoted(key), value


def _only(dims: Sequence[str], options: dict[str, str], wanted: str) -> str:
    free = [x for x in dims if x not in options]
    if len(free) == 1:
        return free[0]
    if not free:
        raise UsageError(f"{_PASS}: {_ANY}= has no symbolic dim left to set")
    example = f"{quoted(free[-1])}={wanted.replace('+', ',')}"
    raise UsageError(
        f"{_PASS}: {_ANY}= could be of {', '.join(map(quoted, free))}; write {example} instead, "
        "or give the others a size"
    )


def _rate(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1e9:
        raise UsageError(f"{_PASS}: {_RATE}={text} is no number of frames a second")
    return rate


def _size(dim: str, text: str, rate: float | None) -> int:
    found = _SIZE.fullmatch(text)
    if found is None:
        raise UsageError(f"{_PASS}: {dim}={text} is no size; write {dim}=500 or {dim}=500,3000")
    if not found["seconds"]:
        if "." in found["number"]:
            raise UsageError(f"{_PASS}: {dim}={text} is not a whole number")
        return int(found["number"])
    if rate is None:
        raise UsageError(
            f"{_PASS}: {dim}={text} is in seconds; say how many frames a second has: {_RATE}=100"
        )
    return round(float(found["number"]) * rate)
