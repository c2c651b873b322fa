"""What ``graphfix ship`` has made, or why it made nothing."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graphfix.job import planning

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from graphfix.engine.report import Left, Report
    from graphfix.ship.container_repair import ContainerProof
    from graphfix.ship.end_to_end import SessionProof
    from graphfix.ship.manifest import Manifest
    from graphfix.ship.remaining_findings import Checked


@dataclass(frozen=True)
class Shipped:
    """What was shipped, or why nothing was.

    Attributes:
        folder: The folder; None if a proof failed, and nothing was written.
        manifest: What a host has to know.
        reports: What was done to the model, for each container.
        checked: What ``graphfix check`` finds in the original, and in the containers.
        padding: The proof of each container on each provider.
        whole: The same through :class:`graphfix.Session`, cut to what is valid.
        sizes: The bytes of each file.
        left: Bad places: repairs that spoiled a container, and what was done about each.
        searched: What came of the search for them, in a sentence; "" if there was none.
        unrounded: Why a pass that rounds left a container as it is, if it did, each once.
    """

    folder: Path | None
    manifest: Manifest
    reports: tuple[Report, ...]
    checked: Checked
    padding: tuple[ContainerProof, ...]
    whole: SessionProof | None
    sizes: Mapping[str, int] = field(default_factory=dict)
    left: tuple[Left, ...] = ()
    searched: str = ""
    unrounded: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything was proved."""
        return all(x.verdict.ok for x in self.padding) and (self.whole is None or self.whole.ok)

    @property
    def faults(self) -> tuple[Left, ...]:
        """Passes that raised and were put back, each once."""
        return tuple(dict.fromkeys(x for done in self.reports for x in done.left))

    def to_json(self) -> dict[str, object]:
        """As plain data."""
        return {
            "schema": 1,
            "ok": self.ok,
            "folder": None if self.folder is None else str(self.folder),
            "manifest": dataclasses.asdict(self.manifest),
            "check": self.checked.to_json(),
            "padding": [{"file": x.file, "ep": x.ep, **x.verdict.to_json()} for x in self.padding],
            "whole": None if self.whole is None else self.whole.to_json(),
            "sizes": dict(self.sizes),
            "left": [dataclasses.asdict(x) for x in (*self.faults, *self.left)],
            "searched": self.searched,
            "unrounded": list(self.unrounded),
        }


def kernels(path: Path) -> dict[str, int] | None:
    """What a run of a model on DirectML launches, as foreseen; None if it does not load here."""
    glance: Any = planning.glance(path, None)["before"]
    return None if glance is None else dict(glance["run"])


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verdict_of(result: Shipped) -> dict[str, object]:
    """What the proof found, for the manifest."""
    return {
        "ok": result.ok,
        "check": str(result.checked),
        "padding": [str(x) for x in result.padding],
        "session": str(result.whole),
    }
