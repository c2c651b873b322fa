"""The whole job on files: load, repair, verify, and only then write."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from graphfix import pipeline
from graphfix.core import Pass
from graphfix.measure import memory
from graphfix.measure.verify import Tolerance, verify
from graphfix.model import files, io

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from graphfix.core import Check, Feeds
    from graphfix.measure.runtime import Ep
    from graphfix.model.weights import Placement
    from graphfix.report import Report

    StrPath = str | os.PathLike[str]

log = logging.getLogger(__name__)


def repair_file(
    source: StrPath,
    target: StrPath | None = None,
    passes: str | Check | Sequence[Check] = pipeline.DEFAULT,
    *,
    check: bool = True,
    dry_run: bool = False,
    dims: Mapping[str, Sequence[int]] | None = None,
    feeds: StrPath | None = None,
    tolerance: Tolerance | None = None,
    external_data: Placement = "auto",
    ep: Ep = "cpu",
    progress: pipeline.Progress | None = None,
) -> Report:
    """Repair a model file, prove that it still computes the same, and write the result.

    Args:
        source: The model, ``.onnx``.
        target: Where the repaired model goes; ``model.fixed.onnx`` beside the source by default.
        passes: Text as ``-p`` takes it, a pass, or several.
        check: Whether to verify; without it, nothing is run.
        dry_run: Say what would be done and write nothing.
        dims: Sizes to verify at, by the name of the symbolic dim.
        feeds: An ``.npz`` with an array for each input, to verify with.
        tolerance: What may differ; :class:`graphfix.measure.Tolerance` has the default.
        external_data: Where the weights go, see :data:`graphfix.model.weights.Placement`.
        ep: Where the repaired model is verified; on DirectML it is held to the original on the CPU.
        progress: Called with a short text at each step.

    Returns:
        The report. If its verdict is not ok, nothing was written and ``output`` is None.

    Raises:
        ModelError: The model cannot be read or written, or ONNX Runtime rejects it as given.
        UsageError: A pass, an option or the target does not fit; or verification would need more
            memory than there is.
        FeedError: Verification has no inputs that the model accepts.
    """
    source = Path(source)
    target = Path(target) if target is not None else default_target(source)
    chosen = pipeline.resolve(passes)
    files.refuse_overwrite(source if source.exists() else None, target)
    tell = progress or (lambda _: None)
    tell("loading")
    model = io.load(source)
    need = _expect(model) if check and not dry_run else None
    sizes = _only_sizes(chosen, model) if check and not dry_run else {}
    report = pipeline.run(model, chosen, progress=progress)
    report = dataclasses.replace(report, source=str(source))
    if dry_run:
        return report
    with io.drafting(model, target, changed=report.changed, external_data=external_data) as draft:
        if check:
            verdict = verify(
                source,
                draft.path,
                dims={**(dims or {}), **sizes},
                feeds=feeds,
                tolerance=tolerance or Tolerance(),
                safety=report.safety,
                map_feeds=lambda old: _new_feeds(chosen, old),
                ep=ep,
                progress=lambda done, total, what: tell(f"verifying {done}/{total}: {what}"),
            )
            expected = None if need is None else need.to_json()
            report = dataclasses.replace(report, verdict=verdict.to_json(), memory=expected)
            if not verdict.ok:
                return report
        draft.keep()
    return dataclasses.replace(report, output=str(target))


def _expect(model: ir.Model) -> memory.Need:
    """Say what verifying a big model will take, before any work is done; refuse if it is too much.

    Raises:
        UsageError: The machine has not so much memory left.
    """
    need = memory.need_of(model)
    if need.weights > memory.WORTH_TELLING:
        need.require()
        log.warning("%s", need)
    return need


def default_target(source: Path) -> Path:
    """``model.fixed.onnx`` beside ``model.onnx``."""
    return source.with_name(f"{source.stem}.fixed{source.suffix or '.onnx'}")


def _only_sizes(passes: Sequence[Check], model: ir.Model) -> dict[str, Sequence[int]]:
    each = [one.runs_at(model) for one in passes if isinstance(one, Pass)]
    return {name: sizes for found in each for name, sizes in found.items()}


def _new_feeds(passes: Sequence[Check], old: Feeds) -> Feeds:
    for one in passes:
        if isinstance(one, Pass):
            old = one.feeds(old)
    return old
