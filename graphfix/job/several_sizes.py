"""One model in, one model out for each of several sizes; they share one file of weights."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from graphfix.editing.exclusions import NOTHING
from graphfix.engine import pipeline
from graphfix.errors import UsageError
from graphfix.job import size_variants
from graphfix.job.fault_search import bad_places, ways
from graphfix.job.kernel_counts import counted
from graphfix.job.prove import prove, why_not
from graphfix.job.repair import make
from graphfix.job.task import Options, StrPath, Task
from graphfix.model import byte_ranges, io
from graphfix.model.dims import dim_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import onnx_ir as ir

    from graphfix.editing.exclusions import Leaving
    from graphfix.engine.report import Report
    from graphfix.job.culprits import BadPlaces
    from graphfix.job.fault_search import Way
    from graphfix.model.weights import Placement
    from graphfix.runtime.memory_need import Need


def repair_buckets(
    source: StrPath,
    target: StrPath | None = None,
    passes: str = pipeline.DEFAULT,
    **options: Unpack[Options],
) -> list[Report]:
    """Repair a model file once for each of several sizes; the models share one file of weights.

    ``fix-dims:T=500,3000`` makes ``model.500.onnx`` and ``model.3000.onnx``. Weights that lie
    beside the model stay there; others go into ``model.buckets.data``, once.

    Args:
        source: The model, ``.onnx``.
        target: What the new names are made from; the source by default.
        passes: Text as ``-p`` takes it, see :func:`graphfix.job.size_variants.expand`.
        options: See :class:`graphfix.job.task.Options`. There is a page for each size, see
            :func:`page_of`; ``external_data="inline"`` is refused.

    Returns:
        A report for each size, in their order. Unless all verdicts are ok, nothing was written.

    Raises:
        ModelError: The model cannot be read or written, or ONNX Runtime rejects it as given.
        UsageError: The sizes do not fit, or the model cannot run at one of them; or as above.
        FeedError: Verification has no inputs that the model accepts.
        PassError: A pass raises, and the result would be another one than was asked for.
    """
    asked = Task.asked(source, options)
    base = Path(target) if target is not None else asked.source
    asked.tell("loading")
    model = io.load(asked.source)
    page = options.get("page")
    need = asked.expect(model)
    made: list[_Made] = []
    about: list[Path] = []
    for i, bucket in enumerate(size_variants.expand(passes, _symbols(model))):
        path = base.with_name(f"{base.stem}.{bucket.label}{base.suffix or '.onnx'}")
        if page is not None:
            about.append(page_of(Path(page), i))
        for one in (path, *about):
            byte_ranges.refuse_overwrite(io.inputs_of(model), one, [asked.feeds])
        named = dataclasses.replace(asked, tell=functools.partial(_at, asked.tell, bucket.label))
        task = named.of(pipeline.resolve(bucket.spec), model)
        made.append(_made(task, path, bucket, need))
    if options.get("dry_run"):
        return [one.report for one in made]
    external_data = options.get("external_data", "auto")
    while not _written(made, f"{base.stem}.buckets.data", external_data, about):
        bad = next(i for i, one in enumerate(made) if not one.report.ok)
        if asked.strict or (other := _otherwise(made[bad], need)) is None:
            return [one.report for one in made]
        made[bad] = other
    return [
        counted(one.task, dataclasses.replace(one.report, output=str(one.path)), one.model, model)
        for one in made
    ]


def page_of(page: Path, place: int) -> Path:
    """The page about the model in ``place``: ``page.1.html`` is of the first."""
    return page.with_name(f"{page.stem}.{place + 1}{page.suffix}")


@dataclass
class _Made:
    """One of the models: what was asked, where it goes, what came of it.

    Attributes:
        task: What is asked.
        path: Where it goes.
        bucket: Its size.
        model: What the passes made.
        report: What they did, and what its proof found.
        found: The bad places, if they were searched for.
        rest: What may be made instead and is left to try.
    """

    task: Task
    path: Path
    bucket: size_variants.Bucket
    model: ir.Model
    report: Report
    found: BadPlaces | None = None
    rest: Iterator[Way] = field(default_factory=lambda: iter(()))


def _made(
    task: Task,
    path: Path,
    bucket: size_variants.Bucket,
    need: Need | None,
    leave: Leaving = NOTHING,
) -> _Made:
    model, report = make(task, leave)
    _require_fixed(report, bucket)
    return _Made(task, path, bucket, model, task.about(report, need))


def _written(
    made: Sequence[_Made], name: str, external_data: Placement, about: Sequence[Path]
) -> bool:
    """Prove them and write them, all or none; whether they are written."""
    pairs = [(one.model, one.path) for one in made]
    with io.drafting_together(pairs, name, external_data=external_data, about=about) as drafts:
        for draft, one in zip(drafts, made, strict=True):
            if one.task.check:
                one.report = prove(one.task, draft.path, one.model, one.report)
            if not one.report.ok:
                return False
        for draft in drafts:
            draft.keep()
    return True


def _otherwise(made: _Made, need: Need | None) -> _Made | None:
    """What failed, made in another way; None if there is none, which its report then says."""
    if made.found is None:
        made.found = bad_places(made.task, made.report)
        made.rest = ways(made.task.chosen, why_not(made.report), made.found)
    way = next(made.rest, None)
    if way is None:
        made.report = dataclasses.replace(made.report, searched=made.found.searched)
        return None
    other = _made(way.of(made.task), made.path, made.bucket, need, way.leave)
    other.report = way.found.told(other.report)
    other.found, other.rest = made.found, made.rest
    return other


def _require_fixed(report: Report, bucket: size_variants.Bucket) -> None:
    """Raise UsageError if the sizes of ``bucket`` were refused: its name would be a lie."""
    for done in report.passes:
        if done.name == "fix-dims" and done.skips and not done.changes:
            raise UsageError(f"there can be no model for {bucket.label}: {done.skips[0][1]}")


def _symbols(model: ir.Model) -> list[str]:
    """What the plain symbolic dims of the inputs are called, in their order."""
    return [x for x in dict.fromkeys(dim_names(model).values()) if x.isidentifier()]


def _at(tell: pipeline.Progress, label: str, what: str) -> None:
    tell(f"{label}: {what}")
