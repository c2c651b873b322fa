"""What was shipped, as one self-contained page."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from graphfix.show import html

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphfix.probing.padded import PaddedVerdict
    from graphfix.ship.end_to_end import Whole
    from graphfix.ship.manifest import Container, Manifest

_UNKNOWN = dict.fromkeys(("dispatches", "cpu", "remade", "graphs"), "-")


def page(manifest: Manifest, padding: Sequence[PaddedVerdict], whole: Whole) -> str:
    """The page as HTML.

    Args:
        manifest: What was shipped.
        padding: The proof of each container.
        whole: The proof of what a session gives.
    """
    names = manifest.provenance["names"]
    first = manifest.containers[0]
    return html.render(
        "ship.html",
        title=manifest.provenance["source"],
        manifest=manifest,
        session=str(whole)[:1].upper() + str(whole)[1:],
        dims=[names[group][0] for group in first.sizes],
        before=first.kernels["before"] or _UNKNOWN,
        rows=[_row(*pair) for pair in zip(manifest.containers, padding, strict=True)],
        embedded=html.embedded(dataclasses.asdict(manifest)),
    )


def _row(container: Container, verdict: PaddedVerdict) -> dict[str, object]:
    return {
        "file": container.file,
        "sizes": list(container.sizes.values()),
        "after": container.kernels["after"] or _UNKNOWN,
        "checks": len(verdict.checks),
        "worst": 0.0 if verdict.worst is None else verdict.worst.diff.max_abs,
    }
