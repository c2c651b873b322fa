"""A bug report of a small model: versions, the model as text, its feeds, what was expected."""

import math
from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir

from graphfix.engine.pipeline import DEFAULT
from graphfix.engine.pipeline import run as run_passes
from graphfix.errors import GraphfixError
from graphfix.providers.table import PROVIDERS
from graphfix.reducing.candidate import Candidate, drop_notes, part_between
from graphfix.reducing.failure import Failure, Trial
from graphfix.runtime.port import Array
from graphfix.runtime.process import worker_for
from graphfix.runtime.python import runner_for

_WORDS = {
    "dies": "the process dies",
    "fails": "an error",
    "differs": "wrong numbers",
    "slow": "slow",
}
# Arrays of so many elements are written out.
_MOST_SHOWN = 32


def repairing_passes(candidate: Candidate, trial: Trial) -> tuple[str, ...]:
    """Return the passes of the profile ``directml`` that repair a model; none if they do not."""
    repaired = candidate.copy()
    try:
        report = run_passes(repaired.model, DEFAULT)
    except GraphfixError:
        return ()
    changing = tuple(dict.fromkeys(x.spec for x in report.passes if x.changes))
    return changing if changing and trial.observe(repaired) is None else ()


def original_part(candidate: Candidate, trial: Trial) -> ir.Model | None:
    """Return what the original computes the outputs of a model by; None if there is none."""
    if trial.original is None:
        return None
    names = [x.name or "" for x in candidate.model.graph.outputs]
    part = part_between(trial.original, candidate.feeds, names)
    drop_notes(part)
    return part


def render_report(
    candidate: Candidate,
    failure: Failure,
    trial: Trial,
    passes: tuple[str, ...],
    original: ir.Model | None = None,
) -> str:
    """Return a bug report as Markdown.

    Args:
        candidate: The model and its feeds.
        failure: How it fails.
        trial: How it was tried.
        passes: The passes of graphfix that repair it.
        original: What it was before a repair.
    """
    operators = ", ".join(dict.fromkeys(x.op_type for x in candidate.model.graph))
    parts = [
        f"# {operators}: {_WORDS[failure.kind]} {trial.where}",
        failure.text,
        f"Run on {_versions(trial)}. The reference is {PROVIDERS[trial.against].label}.",
        "## The model",
        f"```\n{_model_text(candidate.model)}\n```",
        *(["## The original", f"```\n{_model_text(original)}\n```"] if original else []),
        "## Its inputs",
        _arrays_text(candidate.feeds) or "None.",
    ]
    if large := _large_constants(candidate.model):
        parts += ["## Its large constants", _arrays_text(large)]
    if failure.expected is not None and failure.got is not None:
        parts += ["## Expected", _array_text(failure.expected), "## Got", _array_text(failure.got)]
        parts += _worst_element(failure.expected, failure.got)
    if passes:
        parts += ["## A way around it", f"`graphfix run model.onnx -p {','.join(passes)}`"]
    return "\n\n".join(parts) + "\n"


def _versions(trial: Trial) -> str:
    about = worker_for(runner_for(trial.ep)).about
    return f"ONNX Runtime {about.get('onnxruntime', '?')}, {PROVIDERS[trial.ep].label}"


def _model_text(model: ir.Model) -> str:
    """Return a model as ONNX text, without its large constants."""
    proto = ir.to_proto(model)
    constants = {x.name for x in proto.graph.initializer}
    for field, is_left in (
        (proto.graph.initializer, lambda x: math.prod(x.dims) <= _MOST_SHOWN),
        (proto.graph.value_info, lambda x: x.name not in constants),
    ):
        left = [x for x in field if is_left(x)]
        del field[:]
        field.extend(left)
    return str(onnx.printer.to_text(proto)).strip()


def _large_constants(model: ir.Model) -> dict[str, Array]:
    tensors = {x.name or "": x.const_value for x in model.graph.initializers.values()}
    return {
        name: tensor.numpy()
        for name, tensor in tensors.items()
        if tensor is not None and tensor.size > _MOST_SHOWN
    }


def _arrays_text(arrays: Mapping[str, Array]) -> str:
    return "\n".join(f"- `{name}`: {_array_text(x)}" for name, x in arrays.items())


def _array_text(array: Array) -> str:
    """Return the type, the shape and the numbers of an array, or their range."""
    kind = f"{array.dtype}{list(array.shape)}"
    if array.size <= _MOST_SHOWN:
        return f"{kind} = {np.array2string(array, separator=', ', threshold=_MOST_SHOWN)}"
    if array.dtype.kind not in "fiu":
        return kind
    low, high = array.min(), array.max()
    return f"{kind}, all {low}" if low == high else f"{kind}, {low} to {high}"


def _worst_element(expected: Array, got: Array) -> list[str]:
    """Return where two arrays that are not written out differ most, as a sentence, if they do."""
    if expected.shape != got.shape or expected.size <= _MOST_SHOWN or expected.dtype.kind != "f":
        return []
    gap = np.abs(expected.astype(np.float64) - got)
    if not np.isfinite(gap).all():
        return []
    place = np.unravel_index(np.argmax(gap), gap.shape)
    index = [int(x) for x in place]
    return [f"The largest difference is at {index}: expected {expected[place]}, got {got[place]}."]
