"""What was shipped, as one self-contained page."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from graphfix.runtime.provider import LABELS
from graphfix.show import html

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphfix.ship.container_repair import ContainerProof
    from graphfix.ship.end_to_end import SessionProof
    from graphfix.ship.manifest import Manifest


def page(manifest: Manifest, padding: Sequence[ContainerProof], whole: SessionProof) -> str:
    """The page as HTML.

    Args:
        manifest: What was shipped.
        padding: The proof of each container on each provider.
        whole: The proof of what a session gives.
    """
    return html.render(
        "ship.html",
        title=manifest.provenance["source"],
        manifest=manifest,
        session=str(whole)[:1].upper() + str(whole)[1:],
        containers={x.file: x for x in manifest.containers},
        padding=padding,
        labels=LABELS,
        embedded=html.embedded(dataclasses.asdict(manifest)),
    )
