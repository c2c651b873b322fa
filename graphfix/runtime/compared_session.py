"""A session of a model as it is compared with another: its numbers must be its own.

On the CPU without ONNX Runtime's graph optimizations, so that what differs is the models; elsewhere
with all of them, as it will be used.
"""

from collections.abc import Sequence
from pathlib import Path

import onnx_ir as ir

from graphfix.errors import ModelError
from graphfix.files.given import PathOrModel
from graphfix.runtime.local_session import Session
from graphfix.runtime.provider import Ep
from graphfix.runtime.random_nodes import Repeatable, draws

Opened = Session | Repeatable
# How ONNX Runtime words it where a converter has left one of them where it needs the other.
_CLASH = ("tensor(float16)", "tensor(float)")
_CONVERTED = (
    "; that is a conversion to float16 gone wrong: convert the float32 model that it was made "
    "from, graphfix run FLOAT32.onnx -p directml,float16"
)


def open_session(model: PathOrModel, ep: Ep = "cpu", extra_outputs: Sequence[str] = ()) -> Opened:
    """A session of a model, which draws the same random numbers in each run if it draws any.

    Such a model has no extra outputs.
    """
    if isinstance(model, ir.Model) and draws(model) is not None:
        return Repeatable(model, ep)
    return Session(model, ep=ep, optimize=ep != "cpu", extra_outputs=extra_outputs)


def open_given(model: PathOrModel, extra_outputs: Sequence[str] = ()) -> Opened:
    """A session of the model that a user gives; a ModelError says that it is as given."""
    try:
        return open_session(model, extra_outputs=extra_outputs)
    except ModelError as error:
        if isinstance(model, ir.Model) or Path(model).is_file():
            told = str(error).rstrip(".")
            advice = _CONVERTED if all(x in told for x in _CLASH) else ""
            raise ModelError(
                f"the model as given does not load in ONNX Runtime: {told}{advice}"
            ) from error
        raise
