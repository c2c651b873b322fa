"""``graphfix ship``: one folder from an export, proved before it gets its name."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from graphfix import pipeline, planning, registry
from graphfix.errors import PaddingError, UsageError
from graphfix.job import MARGINS, Settling, gate
from graphfix.lengths.given import LengthInput
from graphfix.model import io
from graphfix.model.dims import name_dims
from graphfix.model.fixed_inputs import arrays_since, texts_of
from graphfix.proof.compare import Tolerance, computes_in_half
from graphfix.runtime.provider import LABELS
from graphfix.runtime.python import require
from graphfix.ship.checked import Checked, checked
from graphfix.ship.contained import Padding, prove
from graphfix.ship.end_to_end import Whole, end_to_end
from graphfix.ship.manifest import NAME, Container, Manifest
from graphfix.ship.page import page
from graphfix.ship.place import REPORT, put, refuse
from graphfix.ship.reading import Reading, read
from graphfix.version import __version__

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from graphfix.core import Check
    from graphfix.report import Report
    from graphfix.runtime.port import Array
    from graphfix.runtime.provider import Ep
    from graphfix.ship.wanted import Wanted

    Progress = pipeline.Progress

_MASK, _DIMS, _INPUT = "ilens-mask", "fix-dims", "fix-input"


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
        notes: What a reader should know.
    """

    folder: Path | None
    manifest: Manifest
    reports: tuple[Report, ...]
    checked: Checked
    padding: tuple[Padding, ...]
    whole: Whole | None
    sizes: Mapping[str, int]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything was proved."""
        return all(x.verdict.ok for x in self.padding) and (self.whole is None or self.whole.ok)

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
            "notes": list(self.notes),
        }


def ship_file(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    containers: Wanted,
    *,
    passes: str = "",
    axis: str = "",
    float16: bool = False,
    ep: Ep = "cpu",
    tolerance: Tolerance | None = None,
    progress: Progress | None = None,
) -> Shipped:
    """Make of a model a folder with one model of fixed sizes for each container, and prove it.

    Clips of several lengths are run alone on the original, and in their container on what is
    shipped, with garbage in the padding; then through the session that users have.

    Args:
        source: The model, ``.onnx``.
        folder: Where it goes; a folder that an earlier call made is replaced.
        containers: The sizes.
        passes: Text as ``-p`` takes it; by default :func:`default_passes`. Where it names no
            ``ilens-mask`` or ``fix-dims``, they run behind its first item.
        axis: The dim that is padded, if several could be.
        float16: Whether weights and arithmetic become float16.
        ep: Where the containers are proved besides the CPU.
        tolerance: What may differ.
        progress: Called with a short text at each step.

    Raises:
        UsageError: Sizes, passes or the folder do not fit.
        ModelError: The model cannot be read or written, or ONNX Runtime rejects it.
        FeedError: It runs at none of the lengths.
        PaddingError: Padding reaches a node that cannot be seen through.
    """
    source, folder = Path(source), Path(folder)
    tell = progress or (lambda _: None)
    require(ep)
    refuse(source, folder)
    tell("reading the model")
    model = io.load(source)
    name_dims(model)
    spec = passes or default_passes(float16=float16)
    reading = read(_fixed(model, spec), str(source), containers, axis, _constants(source, model))
    if tolerance is None:
        half = Tolerance().for_half() if computes_in_half(model) else Tolerance()
        tolerance = gate(list(_chosen(spec, reading, reading.containers[0]))) or half
    made, reports, told = _repaired(source, reading, spec, tolerance, tell)
    tell("checking what is left")
    hazards = checked(model, made)
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".part"))
    try:
        paths = [scratch / f"{source.stem}.{label}.onnx" for label in _labels(reading)]
        pairs = list(zip(made, paths, strict=True))
        with io.drafting_together(pairs, source.stem, external_data="auto") as drafts:
            for draft in drafts:
                draft.keep()
        manifest = _manifest(source, reading, told, spec, paths, tell)
        (scratch / NAME).write_text(manifest.to_text(), encoding="utf-8", newline="\n")
        padding, whole = [], None
        eps = dict.fromkeys(("cpu", ep))
        for path, container in zip(paths, manifest.containers, strict=True):
            for where in eps:
                tell(f"proving {path.name} on {LABELS[where]}")
                padding.append(prove(source, path, reading, container, tolerance, where, tell))
            if not all(x.verdict.ok for x in padding):
                break
        else:
            tell("proving what a session gives")
            whole = end_to_end(scratch, reading.clips, tolerance)
        result = Shipped(None, manifest, tuple(reports), hazards, tuple(padding), whole, {})
        if not result.ok:
            return result
        assert whole is not None
        manifest = dataclasses.replace(manifest, verdict=_verdict(result))
        (scratch / NAME).write_text(manifest.to_text(), encoding="utf-8", newline="\n")
        text = page(manifest, padding, whole)
        (scratch / REPORT).write_text(text, encoding="utf-8", newline="\n")
        put(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    sizes = {x.name: x.stat().st_size for x in sorted(folder.iterdir())}
    return dataclasses.replace(result, folder=folder, manifest=manifest, sizes=sizes)


def _fixed(model: ir.Model, spec: str) -> ir.Model:
    """The model without the inputs that ``spec`` makes constants: those who use it feed none."""
    for item in pipeline.split(spec):
        if item[0] == _INPUT:
            pipeline.run(model, ":".join(item))
    return model


def _constants(source: Path, model: ir.Model) -> Mapping[str, Array]:
    """What the file is fed where ``model`` has constants."""
    return arrays_since(io.load(source), model) if texts_of(model) else {}


def default_passes(*, float16: bool = False) -> str:
    """``directml``, what makes it safe to pad, fixed sizes, then what makes it fast."""
    fast = ["fast"] if "fast" in registry.PROFILES else []
    return ",".join(
        ["directml", "mask-length", _MASK, _DIMS, *fast, *(["float16"] if float16 else [])]
    )


def _repaired(
    source: Path, reading: Reading, spec: str, tolerance: Tolerance, tell: Progress
) -> tuple[list[ir.Model], list[Report], LengthInput | None]:
    """A model for each container, with what was done, and how it is told the lengths."""
    made, reports = [], []
    told: LengthInput | None = None
    for container in reading.containers:
        size = container[reading.axis.dim]
        tell(f"repairing for {size}")
        model = io.load(source)
        name_dims(model)
        chosen = list(_chosen(spec, reading, container))
        sizes = {n: (container[g],) for g, names in reading.names.items() for n in names}
        settle = Settling(chosen, sizes, None, tolerance, tell, MARGINS[0])
        try:
            report = pipeline.run(model, chosen, settle=settle)
        except PaddingError as error:
            fixed = ":".join(f"{n}={container[g]}" for g, x in reading.names.items() for n in x)
            raise PaddingError(
                f"{error}. What can be had is fixed sizes without padding: "
                f"graphfix run {source} -p directml,fix-dims:{fixed}"
            ) from error
        for done in report.passes:
            if done.name == _DIMS and done.skips and not done.changes:
                raise UsageError(f"there can be no container of {size}: {done.skips[0][1]}")
        told = LengthInput.of(model)
        made.append(model)
        reports.append(dataclasses.replace(report, source=str(source)))
    return made, reports, told


def _chosen(spec: str, reading: Reading, container: Mapping[str, int]) -> Iterator[Check]:
    """The passes of ``spec`` with the sizes of a container."""
    items = pipeline.split(spec)
    names = [item[0] for item in items]
    if _MASK not in names:
        first = next((i for i, x in enumerate(names) if x != _INPUT), len(items) - 1) + 1
        items.insert(names.index(_DIMS) if _DIMS in names else first, [_MASK])
    names = [item[0] for item in items]
    if _DIMS not in names:
        items.insert(names.index(_MASK) + 1, [_DIMS])
    for name, *given in items:
        if name == _MASK and not given:
            place = f"{reading.axis.input}.{reading.axis.axis}"
            yield registry.get_pass(_MASK, axis=place, from_=reading.tells)
        elif name == _DIMS:
            if given:
                raise UsageError(f"{_DIMS} gets its sizes from --container")
            sizes = tuple((n, container[g]) for g, known in reading.names.items() for n in known)
            yield registry.get_pass(_DIMS, dims=sizes)
        else:
            yield from pipeline.parse(":".join([name, *given]))


def _labels(reading: Reading) -> list[int]:
    return [container[reading.axis.dim] for container in reading.containers]


def _manifest(
    source: Path,
    reading: Reading,
    told: LengthInput | None,
    spec: str,
    paths: Sequence[Path],
    tell: Progress,
) -> Manifest:
    own = {x.name for x in reading.inputs}
    containers = []
    before: object = None
    for path, sizes in zip(paths, reading.containers, strict=True):
        tell(f"planning {path.name} for DirectML")
        if before is None:
            before = _kernels(planning.glance(source, None)["before"])
        after = _kernels(planning.glance(path, None)["before"])
        containers.append(Container(path.name, dict(sizes), {"before": before, "after": after}))
    return Manifest(
        axis=reading.axis,
        batch=reading.batch,
        lengths=None if told is None or told.input in own else told.input,
        inputs=reading.inputs,
        outputs=reading.outputs,
        containers=tuple(containers),
        weights=tuple(sorted(x.name for x in paths[0].parent.iterdir() if x not in paths)),
        provenance={
            "source": source.name,
            "sha256": _digest(source),
            "passes": spec,
            "graphfix": __version__,
            "names": {group: list(names) for group, names in reading.names.items()},
        },
    )


def _kernels(glance: Any) -> dict[str, int] | None:  # noqa: ANN401  (JSON)
    return None if glance is None else dict(glance["run"])


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _verdict(result: Shipped) -> dict[str, object]:
    return {
        "ok": result.ok,
        "check": str(result.checked),
        "padding": [str(x) for x in result.padding],
        "session": str(result.whole),
    }
