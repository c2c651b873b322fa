"""What was shipped, as one self-contained page."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from graphfix.runtime.provider import LABELS
from graphfix.show import html

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphfix.ship.end_to_end import Whole
    from graphfix.ship.manifest import Container, Manifest
    from graphfix.ship.repairing import Padding

_UNKNOWN = dict.fromkeys(("dispatches", "cpu", "remade", "graphs"), "-")


def page(manifest: Manifest, padding: Sequence[Padding], whole: Whole) -> str:
    """The page as HTML.

    Args:
        manifest: What was shipped.
        padding: The proof of each container on each provider.
        whole: The proof of what a session gives.
    """
    names = manifest.provenance["names"]
    first = manifest.containers[0]
    containers = {x.file: x for x in manifest.containers}
    return html.render(
        "ship.html",
        title=manifest.provenance["source"],
        manifest=manifest,
        session=str(whole)[:1].upper() + str(whole)[1:],
        dims=[names[group][0] for group in first.sizes],
        before=first.kernels["before"] or _UNKNOWN,
        rows=[_row(containers[proof.file], proof) for proof in padding],
        embedded=html.embedded(dataclasses.asdict(manifest)),
    )


def _row(container: Container, proof: Padding) -> dict[str, object]:
    worst = proof.verdict.worst
    return {
        "file": container.file,
        "where": LABELS[proof.ep],
        "sizes": list(container.sizes.values()),
        "after": container.kernels["after"] or _UNKNOWN,
        "checks": len(proof.verdict.checks),
        "worst": 0.0 if worst is None else worst.diff.max_abs,
    }
