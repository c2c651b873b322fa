"""Sessions for a comparison, in which only the models may differ.

On the CPU without ONNX Runtime's graph optimizations; elsewhere with all of them, as the model will
be used.
"""

from collections.abc import Sequence
from pathlib import Path

import onnx_ir as ir

from graphfix.editing.builder import subject_of
from graphfix.errors import ModelError
from graphfix.files.model_input import PathOrModel
from graphfix.runtime.local_session import Session
from graphfix.runtime.provider import Ep
from graphfix.runtime.random_nodes import RepeatableSession, first_random_node

Opened = Session | RepeatableSession
# How ONNX Runtime words it where a converter has left one of them where it needs the other.
_CLASH = ("tensor(float16)", "tensor(float)")
_CONVERTED = (
    "; that is a conversion to float16 gone wrong: convert the float32 model that it was made "
    "from, graphfix run FLOAT32.onnx -p directml,float16"
)


def open_session(model: PathOrModel, ep: Ep = "cpu", extra_outputs: Sequence[str] = ()) -> Opened:
    """Open a session of a model; random numbers, if it draws any, repeat in each run.

    Such a model has no extra outputs.
    """
    if isinstance(model, ir.Model) and first_random_node(model) is not None:
        return RepeatableSession(model, ep)
    return Session(model, ep=ep, optimize=ep != "cpu", extra_outputs=extra_outputs)


def open_original(model: PathOrModel, extra_outputs: Sequence[str] = ()) -> Opened:
    """Open a session of the model before a repair; a ModelError says that it fails already."""
    try:
        return open_session(model, extra_outputs=extra_outputs)
    except ModelError as error:
        if isinstance(model, ir.Model) or Path(model).is_file():
            reason = str(error).rstrip(".")
            advice = _CONVERTED if all(x in reason for x in _CLASH) else ""
            subject = subject_of(model) if isinstance(model, ir.Model) else "the model as given"
            raise ModelError(
                f"{subject} does not load in ONNX Runtime: {reason}{advice}"
            ) from error
        raise
