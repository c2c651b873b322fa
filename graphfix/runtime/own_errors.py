"""The errors of the public verbs: whatever goes wrong inside one becomes a GraphfixError.

A model may be wrong in ways that neither the gate nor a pass looks for, and then an error comes
from numpy, onnx-ir or a rule. Whether the model is to blame, ONNX Runtime says.
"""

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ParamSpec, TypeVar

import onnx
import onnx_ir as ir

from graphfix.errors import FaultError, GraphfixError, ModelError, PassError
from graphfix.files.io import source_path
from graphfix.runtime.local_session import Session

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")

_LIBRARIES = frozenset(
    {"builtins", "google", "graphfix", "numpy", "onnx", "onnx_graphsurgeon", "onnx_ir"}
    | {"onnx_shape_inference", "onnxruntime", "onnxscript", "sympy"}
)
# The arguments of verbs that are models, or sequences of them.
_MODEL_ARGUMENTS = ("model", "models", "before", "after", "source", "original")


def raises_own_errors(verb: Callable[Parameters, Answer]) -> Callable[Parameters, Answer]:
    """Let a public verb raise a GraphfixError where something goes wrong in it.

    An error of the system, such as a full disk, and one of a class of the caller's own, raised in
    a callback, pass unchanged; so does the TypeError of a call with wrong arguments.
    """
    signature = inspect.signature(verb)

    @functools.wraps(verb)
    def call(*args: Parameters.args, **options: Parameters.kwargs) -> Answer:
        bound = signature.bind(*args, **options).arguments
        models = [y for x in _MODEL_ARGUMENTS for y in _as_sequence(bound.get(x))]
        with own_errors(models, verb.__name__):
            return verb(*args, **options)

    return call


@contextlib.contextmanager
def own_errors(models: Iterable[object], doing: str) -> Iterator[None]:
    """Turn what is raised in the block into a GraphfixError.

    Args:
        models: The models that may be to blame: paths, or models in memory.
        doing: The verb, for the sentence of a fault.

    Raises:
        ModelError: ONNX Runtime refuses one of the models; with its reason.
        FaultError: The fault is in graphfix.
    """
    try:
        yield
    except Exception as error:
        is_expected = isinstance(error, GraphfixError | OSError | MemoryError)
        if (is_expected or not _is_of_a_library(error)) and not isinstance(error, PassError):
            raise
        for model in models:
            if (reason := _rejection_reason(model)) is not None:
                raise ModelError(reason) from error
        if is_expected:
            raise
        problem = " ".join(f"unexpected {type(error).__name__}: {error}".split())
        raise FaultError(f"{problem}; this is a fault of {doing}, please report it") from error


def _as_sequence(argument: object) -> Sequence[object]:
    return argument if isinstance(argument, list | tuple) else [argument]


def _is_of_a_library(error: Exception) -> bool:
    """Return whether an error is of Python, or of a package that graphfix uses."""
    return type(error).__module__.partition(".")[0] in _LIBRARIES


def _rejection_reason(model: object) -> str | None:
    """Return why ONNX Runtime rejects a model, as a sentence, or None."""
    if isinstance(model, onnx.ModelProto):
        model = model.SerializeToString()
    if not isinstance(model, (str, bytes, os.PathLike, ir.Model)):
        return None
    path = source_path(model) if isinstance(model, ir.Model) else model
    name = "the model" if path is None or isinstance(path, bytes) else os.fspath(path)
    try:
        Session(model, optimize=False).close()
    except ModelError as error:
        return f"{name}: does not load in ONNX Runtime: {error}"
    except GraphfixError:
        return None
    return None
