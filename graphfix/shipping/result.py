"""The result of ``graphfix ship``, and the files of the folder."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from graphfix.core import Check, calibrated_passes
from graphfix.engine.report import FailedRepair, Report
from graphfix.files import atomic_file, atomic_folder, io
from graphfix.job import planning
from graphfix.job.remaining_findings import HazardComparison
from graphfix.shipped.folder_files import record_of
from graphfix.shipped.manifest import NAME, Container, FileRecord, Manifest
from graphfix.shipping.container_repair import ContainerProof
from graphfix.shipping.end_to_end import SessionProof
from graphfix.shipping.new_outputs import ShipSource
from graphfix.version import __version__
from graphfix.wording import Proof, Tell


@dataclass(frozen=True, repr=False)
class Shipped(Proof):
    """The result of shipping a model; true if every proof passed.

    Attributes:
        folder: The folder; None if a proof failed, and nothing was written.
        manifest: What a host has to know.
        reports: What was done to the model, for each container.
        checked: What ``graphfix check`` finds in the original, and in the containers.
        padding: The proof of each container on each provider.
        whole: The same through :class:`graphfix.Session`, cut to what is valid.
        sizes: The bytes of each file.
        left: Bad places: repairs that spoiled a container, and what was done about each.
        searched: The result of the search for them, in a sentence; "" if there was none.
        unrounded: Why passes that round did not change a container; each reason once.
        remarks: Which states were inferred from shape alone, and what looks like one and is none.
    """

    folder: Path | None
    manifest: Manifest
    reports: tuple[Report, ...]
    checked: HazardComparison
    padding: tuple[ContainerProof, ...]
    whole: SessionProof | None
    sizes: Mapping[str, int] = field(default_factory=dict)
    left: tuple[FailedRepair, ...] = ()
    searched: str = ""
    unrounded: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether everything was proved."""
        return all(x.verdict.ok for x in self.padding) and (self.whole is None or self.whole.ok)

    @property
    def faults(self) -> tuple[FailedRepair, ...]:
        """Return the passes that raised and were rolled back, each once."""
        return tuple(dict.fromkeys(x for report in self.reports for x in report.left))

    def __str__(self) -> str:
        proofs = [*map(str, self.padding), *([] if self.whole is None else [str(self.whole)])]
        return f"{self.folder or 'nothing was written'}; {'; '.join(proofs)}"

    def to_json(self) -> dict[str, object]:
        """Return the result as plain data for JSON."""
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
            "remarks": list(self.remarks),
        }


def write_models(models: Sequence[ir.Model], paths: Sequence[Path], name: str) -> None:
    """Write models beside each other, with one shared file of weights of this name.

    Raises:
        ModelError: Something cannot be written.
    """
    pairs = list(zip(models, paths, strict=True))
    with io.draft_models(pairs, name, external_data="auto") as drafts:
        for draft in drafts:
            draft.keep()


def write_folder(folder: Path, make: Callable[[Path], Shipped]) -> Shipped:
    """Fill a draft folder; give it its name, and a verdict, if everything is proved.

    Args:
        folder: Where it goes.
        make: Fills the folder that it is given, and proves what is in it.
    """
    with atomic_folder.draft_folder(folder) as draft:
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
        atomic_file.write_text(draft.path / NAME, manifest.to_text())
        draft.keep()
    files = {x.name: x.stat().st_size for x in sorted(folder.iterdir())}
    return replace(result, manifest=manifest, folder=folder, sizes=files)


def containers_with_kernels(
    source: Path, paths: Sequence[Path], sizes: Sequence[Mapping[str, int]], tell: Tell
) -> tuple[Container, ...]:
    """Return the manifest's containers, with the kernels of the original and of each."""
    original_kernels, containers = _kernels_per_run(source), []
    for path, size in zip(paths, sizes, strict=True):
        tell(f"planning {path.name} for DirectML")
        containers.append(
            Container(
                path.name, dict(size), {"before": original_kernels, "after": _kernels_per_run(path)}
            )
        )
    return tuple(containers)


def records_of(folder: Path) -> tuple[FileRecord, ...]:
    """Return the size and the hash of each model and file of weights in a folder."""
    return tuple(record_of(x) for x in sorted(folder.iterdir()) if x.name != NAME)


def provenance_of(
    source: ShipSource,
    spec: str,
    names: Mapping[str, Sequence[str]],
    exclusions: Sequence[FailedRepair] = (),
) -> dict[str, Any]:
    """Return where a folder comes from, for its manifest."""
    return {
        "source": source.origin.name,
        "sha256": record_of(source.origin).sha256,
        "passes": source.with_passes(spec),
        "graphfix": __version__,
        "names": {group: list(own) for group, own in names.items()},
        "left": [asdict(x) for x in exclusions],
    }


def reasons_not_rounded(passes: Iterable[Check], reports: Sequence[Report]) -> tuple[str, ...]:
    """Return why passes that round changed nothing, each reason once."""
    names = {x.name for x in calibrated_passes(passes)}
    idle = [x for report in reports for x in report.passes if x.name in names and not x.changes]
    return tuple(dict.fromkeys(reason for pass_report in idle for _, reason in pass_report.skips))


def _kernels_per_run(path: Path) -> dict[str, int] | None:
    glance: Any = planning.plan_summary(path)
    return None if glance is None else dict(glance["run"])
