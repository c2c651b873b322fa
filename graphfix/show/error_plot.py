"""The course of an error through a model, drawn: for the pages of a probe, a run and the zoo.

The pages are made from JSON that they carry, so their numbers are those of the JSON; what is drawn
is drawn by one template, ``course.svg``.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Data = Mapping[str, Any]  # of graphfix.probing.probe_result.Probe.to_json

# Room around the drawing, in its own units; it is scaled to the page.
_LEFT, _RIGHT, _TOP, _BOTTOM, _INDENT = 46, 8, 16, 40, 8
# The axis is logarithmic from 1e-9 to 1; nothing has a line of its own, so far below it.
_LEAST, _GAP = -9, 20
_LABELLED = 3
# So many modules are named below the axis at most, each by so wide letters.
_MODULES, _LETTER = 16, 6.3
_KEPT = ("tensor", "op", "module", "max_abs", "scale", "relative", "leads_out")


def points(data: Data, most: int) -> dict[str, Any]:
    """What is drawn of a probe: the worst of so many bins of neighbouring tensors.

    Args:
        data: The probe's JSON.
        most: How many bins at most, and how many sites: the first ones.

    Returns:
        ``count``, the number of tensors that were compared; ``points``, each with what the JSON
        says of its tensor and ``at``, its place among them; and ``sites``, where the runs part.
    """
    tensors = [x for x in data["tensors"] if x["state"] != "skipped"]
    order = {x["tensor"]: i for i, x in enumerate(tensors)}
    edges = [i * len(tensors) // most for i in range(most + 1)]
    bins = (tensors[i:j] for i, j in itertools.pairwise(edges) if i < j)
    worst = [max(found, key=relative) for found in bins]
    return {
        "count": len(tensors),
        "points": [{"at": order[x["tensor"]], **{key: x[key] for key in _KEPT}} for x in worst],
        "sites": [
            {"at": order[site["tensor"]], **site}
            for site in data["sites"][:most]
            if site["tensor"] in order
        ],
    }


def draw(drawn: Data, width: int, height: int) -> dict[str, Any]:
    """Where everything in the drawing goes, for the template ``course.svg``.

    Args:
        drawn: What :func:`points` gives.
        width: Of the drawing, in its own units.
        height: Likewise.
    """
    last: int = max(drawn["count"] - 1, 1)
    floor = height - _BOTTOM

    def x(at: int) -> float:
        left, right = _LEFT + _INDENT, width - _RIGHT - _INDENT
        return round(left + (right - left) * at / last, 1)

    def y(share: float) -> float:
        """Nothing lies on the floor, everything at the top."""
        if share == 0:
            return floor
        power = min(max(math.log10(share), _LEAST), 0.0) if math.isfinite(share) else 0.0
        return _TOP + round((floor - _GAP - _TOP) * power / _LEAST, 1)

    found = [
        {"x": x(one["at"]), "y": y(relative(one)), "tensor": one, "bad": one["leads_out"]}
        for one in drawn["points"]
    ]
    return {
        "width": width,
        "height": height,
        "left": _LEFT,
        "right": width - _RIGHT,
        "top": _TOP,
        "bottom": floor,
        "decades": [
            {"y": y(10.0**power), "label": _decade(power) if power % _LABELLED == 0 else ""}
            for power in range(_LEAST, 1)
        ],
        "line": " ".join(f"{one['x']:g},{one['y']:g}" for one in found),
        "points": found,
        "sites": [
            {"x": x(site["at"]), "site": site, "number": number}
            for number, site in enumerate(drawn["sites"], 1)
        ],
        "modules": [
            {"x": x(start), "name": name, "label": _fitting(name, x(end) - x(start))}
            for name, start, end in _modules(drawn["points"], drawn["count"])
        ],
        "count": drawn["count"],
        "drawn": len(found),
    }


def _modules(drawn: Sequence[Data], count: int) -> Iterator[tuple[str, int, int]]:
    """Modules in order with the places where they begin and end, as deep as there is room for."""
    paths = [(one["at"], str(one["module"]).split("/")) for one in drawn if one["module"]]
    chosen: list[tuple[str, int]] = []
    for depth in range(1, max((len(path) for _, path in paths), default=0) + 1):
        named = (("/".join(path[:depth]), at) for at, path in paths)
        runs = [next(run) for _, run in itertools.groupby(named, key=lambda pair: pair[0])]
        if len(runs) > _MODULES:
            break
        chosen = runs
    if len(chosen) > 1:
        ends = [at for _, at in chosen[1:]] + [count - 1]
        yield from ((name, at, end) for (name, at), end in zip(chosen, ends, strict=True))


def _fitting(name: str, room: float) -> str:
    """The module's path, or the end of it, or nothing."""
    parts = name.split("/")
    ends = ("/".join(parts[i:]) for i in range(len(parts)))
    return next((end for end in ends if len(end) * _LETTER <= room - 4), "")


def _decade(power: int) -> str:
    return "1" if power == 0 else f"1e{power}"


def relative(tensor: Data) -> float:
    """The difference of a tensor as a share of its scale, above 0 if there is one at all.

    What is no number is everything; where the scale itself is 0, no share is known.
    """
    value = tensor["relative"]
    if isinstance(value, str):
        return 1.0
    return float(value) or (10.0**_LEAST if tensor["max_abs"] else 0.0)
