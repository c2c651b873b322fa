"""The page of a probe: the course of an error through a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from graphfix.model import atomic_file
from graphfix.show import html
from graphfix.show.error_plot import draw, points
from graphfix.version import __version__

if TYPE_CHECKING:
    from graphfix.probing.probe import Probe

POINTS = 600
"""So many points are drawn on a page of one probe."""


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
    atomic_file.put_text(Path(path), text)


def page(probe: Probe, title: str) -> str:
    """The page of a probe as HTML."""
    data = probe.to_json()
    return html.render(
        "probe.html",
        data=data,
        title=title,
        course=draw(points(data, POINTS), 960, 300),
        version=__version__,
        embedded=html.embedded(data),
    )
