"""``graphfix.fix``: repairs a model and proves it."""

from collections.abc import Sequence
from typing import Any, Protocol, Unpack, overload

import onnx
import onnx_ir as ir

from graphfix.core import Check
from graphfix.engine.report import Report
from graphfix.errors import UsageError, VerificationError
from graphfix.files import io
from graphfix.files import model_input as given
from graphfix.job.one_file import repair_file
from graphfix.job.task import Options
from graphfix.paths import StrPath
from graphfix.runtime.own_errors import raises_own_errors
from graphfix.runtime.scratch import ScratchFolder


class HasModelProto(Protocol):
    """An exported program that holds an ``onnx.ModelProto``, such as torch's ONNXProgram."""

    @property
    def model_proto(self) -> onnx.ModelProto:
        """Return the model."""
        ...


Profile = str | Check | Sequence[str | Check]


@overload
def fix(
    model: StrPath,
    profile: Profile = "directml",
    output: StrPath | None = None,
    **options: Unpack[Options],
) -> Report: ...


@overload
def fix(
    model: ir.Model,
    profile: Profile = "directml",
    output: None = None,
    **options: Unpack[Options],
) -> ir.Model: ...


@overload
def fix(
    model: onnx.ModelProto | HasModelProto,
    profile: Profile = "directml",
    output: None = None,
    **options: Unpack[Options],
) -> onnx.ModelProto: ...


@overload
def fix(
    model: bytes,
    profile: Profile = "directml",
    output: None = None,
    **options: Unpack[Options],
) -> bytes: ...


@raises_own_errors
def fix(
    model: given.ModelLike,
    profile: Profile = "directml",
    output: StrPath | None = None,
    **options: Unpack[Options],
) -> Any:
    """Repair a model, and prove that it still computes the same.

    Args:
        model: A path, an ``onnx.ModelProto``, its bytes, an ONNXProgram of torch or an
            ``onnx_ir.Model``. It is not changed.
        profile: Profiles and passes, as ``-p`` takes them, or a list of names and passes.
        output: Where the repaired model goes, if ``model`` is a path: by default
            ``model.fixed.onnx`` beside it.
        options: See :class:`graphfix.job.task.Options`. ``dry_run`` is for a path.

    Returns:
        For a path, the :class:`graphfix.Report`; for an ``onnx_ir.Model``, the repaired model as
        one; for a ModelProto or an ONNXProgram, as a ModelProto; for bytes, as bytes.

    Raises:
        VerificationError: The repaired model computes something else; nothing is written.
        ModelError: The model cannot be read or written, or ONNX Runtime rejects it as given.
        UsageError: A pass or an option does not fit.
        FeedError: Verification has no inputs that the model accepts.
        PassError: A pass raises, and the result would be another one than was asked for.
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
        if not report.changed:
            return _copy_of(model)
        fixed = io.load(target)
        ir.external_data.load_to_model(fixed)  # the folder goes
    if isinstance(model, ir.Model):
        return fixed
    proto = ir.to_proto(fixed)
    return proto.SerializeToString() if isinstance(model, bytes) else proto


def _copy_of(model: given.ModelLike) -> ir.Model | onnx.ModelProto | bytes:
    """Return a copy of a model in memory in the form it was given in, to the byte."""
    if isinstance(model, ir.Model):
        return model.clone()
    if isinstance(model, bytes):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model if isinstance(model, onnx.ModelProto) else model.model_proto)
    return copy
