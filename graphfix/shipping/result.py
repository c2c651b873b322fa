"""What ``graphfix ship`` has made, or why it made nothing."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from graphfix.core import Check, rounding
from graphfix.engine.report import Left, Report
from graphfix.files import atomic_file, atomic_folder, io
from graphfix.job import planning
from graphfix.job.remaining_findings import Checked
from graphfix.shipped.manifest import NAME, Container, Manifest
from graphfix.shipping.container_repair import ContainerProof
from graphfix.shipping.end_to_end import SessionProof
from graphfix.version import __version__
from graphfix.wording import Proof, Tell


@dataclass(frozen=True, repr=False)
class Shipped(Proof):
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
        """Passes that raised and were rolled back, each once."""
        return tuple(dict.fromkeys(x for done in self.reports for x in done.left))

    def __str__(self) -> str:
        found = [*map(str, self.padding), *([] if self.whole is None else [str(self.whole)])]
        return f"{self.folder or 'nothing was written'}; {'; '.join(found)}"

    def to_json(self) -> dict[str, object]:
        """As plain data."""
        return {
            "schema": 1,
            "ok": self.ok,
            "folder": None if self.folder is None else str(self.folder),
            "manifest": asdict(self.manifest),
            "check": self.checked.to_json(),
            "padding": [{"file": x.file, "ep": x.ep, **x.verdict.to_json()} for x in self.padding],
            "whole": None if self.whole is None else self.whole.to_json(),
            "sizes": dict(self.sizes),
            "left": [asdict(x) for x in (*self.faults, *self.left)],
            "searched": self.searched,
            "unrounded": list(self.unrounded),
        }


def put_models(models: Sequence[ir.Model], paths: Sequence[Path], name: str) -> None:
    """Write models beside each other, with one file of weights, which gets this name.

    Raises:
        ModelError: Something cannot be written.
    """
    pairs = list(zip(models, paths, strict=True))
    with io.drafting_together(pairs, name, external_data="auto") as several:
        for one in several:
            one.keep()


def into(folder: Path, make: Callable[[Path], Shipped]) -> Shipped:
    """What ``make`` has put into a folder; it gets its name, and a verdict, if all is proved.

    Args:
        folder: Where it goes.
        make: Fills the folder that it is given, and proves what is in it.
    """
    with atomic_folder.replacing(folder) as draft:
        result = make(draft.path)
        if result.whole is None or not result.ok:
            return result
        verdict = {
            "ok": result.ok,
            "check": str(result.checked),
            "padding": [str(x) for x in result.padding],
            "session": str(result.whole),
        }
        manifest = replace(result.manifest, verdict=verdict)
        atomic_file.put_text(draft.path / NAME, manifest.to_text())
        draft.keep()
    files = {x.name: x.stat().st_size for x in sorted(folder.iterdir())}
    return replace(result, manifest=manifest, folder=folder, sizes=files)


def planned(
    source: Path, paths: Sequence[Path], sizes: Sequence[Mapping[str, int]], tell: Tell
) -> tuple[Container, ...]:
    """The containers as a manifest has them, with the kernels of the original and of each."""
    before, found = _kernels(source), []
    for path, size in zip(paths, sizes, strict=True):
        tell(f"planning {path.name} for DirectML")
        found.append(Container(path.name, dict(size), {"before": before, "after": _kernels(path)}))
    return tuple(found)


def weights_beside(paths: Sequence[Path]) -> tuple[str, ...]:
    """The files that the models of a folder share."""
    return tuple(sorted(x.name for x in paths[0].parent.iterdir() if x not in paths))


def provenance(
    source: Path, spec: str, names: Mapping[str, Sequence[str]], left: Sequence[Left] = ()
) -> dict[str, Any]:
    """Where a folder comes from, for its manifest."""
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        "source": source.name,
        "sha256": digest,
        "passes": spec,
        "graphfix": __version__,
        "names": {group: list(own) for group, own in names.items()},
        "left": [asdict(x) for x in left],
    }


def unrounded_by(passes: Iterable[Check], reports: Sequence[Report]) -> tuple[str, ...]:
    """Why those of these passes that round did nothing, where they were not left out."""
    names = {x.name for x in rounding(passes)}
    idle = [x for done in reports for x in done.passes if x.name in names and not x.changes]
    return tuple(dict.fromkeys(why for one in idle for _, why in one.skips))


def _kernels(path: Path) -> dict[str, int] | None:
    glance: Any = planning.glance(path)
    return None if glance is None else dict(glance["run"])
