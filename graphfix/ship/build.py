"""``graphfix ship``: one folder from an export, proved before it gets its name."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphfix import pipeline, planning
from graphfix.errors import ModelError, UsageError
from graphfix.job.settling import gate
from graphfix.model import files, io
from graphfix.proof.compare import Tolerance, computes_in_half
from graphfix.runtime.python import require
from graphfix.ship.end_to_end import Whole, end_to_end
from graphfix.ship.manifest import NAME, Container, Manifest
from graphfix.ship.page import page
from graphfix.ship.reading import Reading, name_dims, read
from graphfix.ship.repairing import Order, default_passes
from graphfix.version import __version__

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from graphfix.lengths.given import LengthInput
    from graphfix.probing.padded import PaddedVerdict
    from graphfix.report import Left, Report
    from graphfix.runtime.provider import Ep
    from graphfix.ship.wanted import Wanted

    Progress = pipeline.Progress

_REPORT = "report.html"


@dataclass(frozen=True)
class Shipped:
    """What was shipped, or why nothing was.

    Attributes:
        folder: The folder; None if a proof failed, and nothing was written.
        manifest: What a host has to know.
        reports: What was done to the model, for each container.
        padding: Clips alone against the same clips in each container, with garbage behind them.
        whole: The same through :class:`graphfix.Session`, cut to what is valid.
        sizes: The bytes of each file.
        left: Bad places: repairs that spoiled a container, and what was done about each.
        searched: What came of the search for them, in a sentence; "" if there was none.
    """

    folder: Path | None
    manifest: Manifest
    reports: tuple[Report, ...]
    padding: tuple[PaddedVerdict, ...]
    whole: Whole | None
    sizes: Mapping[str, int]
    left: tuple[Left, ...] = ()
    searched: str = ""

    @property
    def ok(self) -> bool:
        """Whether everything was proved."""
        return all(x.ok for x in self.padding) and (self.whole is None or self.whole.ok)

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
            "padding": [x.to_json() for x in self.padding],
            "whole": None if self.whole is None else self.whole.to_json(),
            "sizes": dict(self.sizes),
            "left": [dataclasses.asdict(x) for x in (*self.faults, *self.left)],
            "searched": self.searched,
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
    strict: bool = False,
    progress: Progress | None = None,
) -> Shipped:
    """Make of a model a folder with one model of fixed sizes for each container, and prove it.

    Clips of several lengths are run alone on the original, and in their container on what is
    shipped, with garbage in the padding; then through the session that users have. If a container
    fails, the repairs that are to blame are found by trying, and left out or done in another way.

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
        strict: Whether a container that fails is the end, and no bad place is searched for.
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
    _refuse(source, folder)
    tell("reading the model")
    model = io.load(source)
    name_dims(model)
    reading = read(model, str(source), containers, axis)
    spec = passes or default_passes(float16=float16)
    if tolerance is None:
        half = Tolerance().for_half() if computes_in_half(model) else Tolerance()
        first = reading.containers[0]
        tolerance = gate(Order(source, reading, spec, half, ep, tell).passes(first)) or half
    order = Order(source, reading, spec, tolerance, ep, tell)
    shipped = _ship(order, folder)
    failed = next((i for i, x in enumerate(shipped.padding) if not x.ok), None)
    if failed is None or strict:
        return shipped
    container, done = reading.containers[failed], shipped.reports[failed]
    found = order.bad_places(container, done, str(shipped.padding[failed]))
    for leave in found.ways:
        again = _ship(dataclasses.replace(order, found=found, leave=leave), folder)
        if again.ok:
            return dataclasses.replace(again, left=found.left, searched=found.searched)
    return dataclasses.replace(shipped, searched=found.searched)


def _ship(order: Order, folder: Path) -> Shipped:
    """Repair, prove, and give the folder its name."""
    source, reading, tell = order.source, order.reading, order.tell
    made, reports, told = order.repaired()
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".part"))
    try:
        paths = [scratch / f"{source.stem}.{label}.onnx" for label in _labels(reading)]
        pairs = list(zip(made, paths, strict=True))
        with io.drafting_together(pairs, f"{source.stem}.data", external_data="auto") as drafts:
            for draft in drafts:
                draft.keep()
        manifest = _manifest(order, told, paths)
        (scratch / NAME).write_text(manifest.to_text(), encoding="utf-8", newline="\n")
        padding, whole = [], None
        for path, container in zip(paths, reading.containers, strict=True):
            tell(f"proving {path.name}")
            padding.append(order.prove(path, container, path.name))
            if not padding[-1].ok:
                break
        else:
            tell("proving what a session gives")
            whole = end_to_end(scratch, reading.clips, order.tolerance)
        result = Shipped(None, manifest, tuple(reports), tuple(padding), whole, {})
        if not result.ok:
            return result
        assert whole is not None
        manifest = dataclasses.replace(manifest, verdict=_verdict(result))
        (scratch / NAME).write_text(manifest.to_text(), encoding="utf-8", newline="\n")
        text = page(manifest, padding, whole)
        (scratch / _REPORT).write_text(text, encoding="utf-8", newline="\n")
        _put(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    sizes = {x.name: x.stat().st_size for x in sorted(folder.iterdir())}
    return dataclasses.replace(result, folder=folder, manifest=manifest, sizes=sizes)


def _labels(reading: Reading) -> list[int]:
    return [container[reading.axis.dim] for container in reading.containers]


def _manifest(order: Order, told: LengthInput | None, paths: Sequence[Path]) -> Manifest:
    source, reading = order.source, order.reading
    own = {x.name for x in reading.inputs}
    containers = []
    before: object = None
    for path, sizes in zip(paths, reading.containers, strict=True):
        order.tell(f"planning {path.name} for DirectML")
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
            "passes": order.spec,
            "graphfix": __version__,
            "names": {group: list(names) for group, names in reading.names.items()},
            "left": [dataclasses.asdict(x) for x in order.found.left],
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
        "padding": [str(x) for x in result.padding],
        "session": str(result.whole),
    }


def _refuse(source: Path, folder: Path) -> None:
    """Refuse a folder that is not ours to replace.

    Raises:
        UsageError: It holds something that ``graphfix ship`` did not make, or is no folder.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"-o {folder}: is a file; name a folder")
    there = {x.name for x in folder.iterdir()}
    if not there:
        return
    try:
        manifest = Manifest.read(folder)
    except ModelError:
        raise UsageError(
            f"-o {folder}: is not empty, and 'graphfix ship' did not make it; name another folder"
        ) from None
    ours = {NAME, _REPORT, *manifest.weights, *(x.file for x in manifest.containers)}
    if strange := sorted(there - ours):
        raise UsageError(
            f"-o {folder}: holds {', '.join(strange[:3])}, which 'graphfix ship' did not make; "
            "move it away, or name another folder"
        )
    if source.resolve().parent == folder.resolve():
        raise UsageError(f"-o {folder}: holds the model itself; name another folder")


def _put(made: Path, folder: Path) -> None:
    """Give the finished folder its name; what had it goes, or comes back if that fails."""
    made.chmod(0o777 & ~files.umask())
    earlier = made.with_suffix(".earlier")
    try:
        if folder.exists():
            folder.rename(earlier)
        try:
            made.rename(folder)
        except OSError:
            if earlier.exists():
                earlier.rename(folder)
            raise
    except OSError as error:
        raise ModelError(
            f"{folder}: cannot be replaced: {error.strerror or error}; close what uses it"
        ) from error
    shutil.rmtree(earlier, ignore_errors=True)
