"""``graphfix.fix``: repairs a model and proves it."""

from collections.abc import Sequence
from typing import Any, Unpack

import onnx_ir as ir

from graphfix.core import Check
from graphfix.errors import UsageError, VerificationError
from graphfix.files import given, io
from graphfix.job.one_file import repair_file
from graphfix.job.task import Options
from graphfix.paths import StrPath
from graphfix.runtime.scratch import ScratchFolder


def fix(
    model: given.ModelLike,
    profile: str | Check | Sequence[str | Check] = "directml",
    output: StrPath | None = None,
    **options: Unpack[Options],
) -> Any:  # noqa: ANN401  (as the model is given)
    """Repair a model, and prove that it still computes the same.

    Args:
        model: A path, an ``onnx.ModelProto``, an ONNXProgram of torch or an ``onnx_ir.Model``. It
            is not changed.
        profile: Profiles and passes, as ``-p`` takes them, or a list of names and passes.
        output: Of a path, where the repaired model goes: ``model.fixed.onnx`` beside it by default.
        options: See :class:`graphfix.job.task.Options`.

    Returns:
        Of a path, the :class:`graphfix.Report`. Else the repaired model as the model was given, or
        as a ModelProto if that was an ONNXProgram.

    Raises:
        VerificationError: The repaired model computes something else; nothing is written.
        ModelError: The model cannot be read or written, or ONNX Runtime rejects it as given.
        UsageError: A pass or an option does not fit.
    """
    path_or_model = given.as_path_or_model(model)
    if not isinstance(path_or_model, ir.Model):
        report = repair_file(path_or_model, output, profile, **options)
        if not report.ok:
            raise VerificationError(report)
        return report
    if output is not None or options.get("dry_run"):
        raise UsageError("output= and dry_run= are for a path; save what graphfix.fix returns")
    with ScratchFolder() as scratch:
        source, target = scratch.path / "model.onnx", scratch.path / "fixed.onnx"
        io.save(path_or_model, source)
        report = repair_file(source, target, profile, **options)
        if not report.ok:
            raise VerificationError(report)
        fixed = io.load(target)
        ir.external_data.load_to_model(fixed)  # the folder goes
    return fixed if isinstance(model, ir.Model) else ir.to_proto(fixed)
