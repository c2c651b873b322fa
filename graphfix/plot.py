"""What a probe has found as one self-contained page: the course of the error, drawn.

The page is made from the probe's JSON, which it carries, so its numbers are those of the JSON.
"""

from __future__ import annotations

import math
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphfix.html import embedded
from graphfix.measure.course import magnitude
from graphfix.model import files
from graphfix.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from graphfix.measure.probe import Probe

    Data = Mapping[str, Any]  # of graphfix.measure.Probe.to_json

# The plot's own units; it is scaled to the page.
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 960, 300, 56, 16, 34
# So many points are drawn; of more tensors, the worst of each bin.
_POINTS = 600
_DECADES = range(-7, 1)


def write(probe: Probe, title: str, path: str | Path) -> None:
    """Write the page of a probe, all at once or not at all.

    Args:
        probe: What was found.
        title: What was probed.
        path: Where; an existing file is replaced.

    Raises:
        ModelError: The folder or the disk does not allow it.
    """
    text = page(probe, title)
    with files.replacing(Path(path)) as draft:
        draft.path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
        draft.keep()


def page(probe: Probe, title: str) -> str:
    """The page of a probe as HTML."""
    import jinja2  # not wanted by those who ask for no page

    data = probe.to_json()
    source = resources.files("graphfix").joinpath("templates", "probe.html").read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["number"] = _number
    environment.filters["share"] = _share
    return environment.from_string(source).render(
        data=data, title=title, plot=_plot(data), version=__version__, embedded=embedded(data)
    )


def _plot(data: Data) -> dict[str, object]:
    """Where everything in the drawing goes: a point a tensor, in the order of the graph."""
    tensors = [x for x in data["tensors"] if x["state"] != "skipped"]
    last = max(len(tensors) - 1, 1)
    order = {x["tensor"]: i for i, x in enumerate(tensors)}
    points = [
        {"x": _x(i, last), "y": _y(_relative(x)), "tensor": x, "bad": x["leads_out"]}
        for i, x in _thinned(tensors)
    ]
    sites = [
        {"x": _x(order[site["tensor"]], last), "site": site, "number": number}
        for number, site in enumerate(data["sites"], 1)
        if site["tensor"] in order
    ]
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "left": _LEFT,
        "right": _WIDTH - 8,
        "top": _TOP,
        "bottom": _HEIGHT - _BOTTOM,
        "decades": [{"y": _y(10.0**power), "power": power} for power in _DECADES],
        "line": " ".join(f"{p['x']:g},{p['y']:g}" for p in points),
        "points": points,
        "sites": sites,
        "count": len(tensors),
    }


def _thinned(tensors: Sequence[Data]) -> list[tuple[int, Data]]:
    """At most so many tensors as there is room for, the worst of each bin."""
    size = max(1, math.ceil(len(tensors) / _POINTS))
    numbered = list(enumerate(tensors))
    bins = (numbered[i : i + size] for i in range(0, len(numbered), size))
    return [max(found, key=lambda pair: _relative(pair[1])) for found in bins]


def _relative(tensor: Data) -> float:
    value = tensor["relative"]
    return 1.0 if isinstance(value, str) else float(value)


def _x(index: int, last: int) -> float:
    return round(_LEFT + 8 + (_WIDTH - _LEFT - 24) * index / last, 1)


def _y(relative: float) -> float:
    return round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * magnitude(relative), 1)


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"


def _share(value: float | str) -> str:
    """A share of the scale as the width of a bar, in percent."""
    return f"{100 * (1.0 if isinstance(value, str) else magnitude(value)):.1f}"
