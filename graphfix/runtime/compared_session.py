"""Sessions for a comparison, in which only the models may differ.

On the CPU without ONNX Runtime's graph optimizations; elsewhere with all of them, as the model will
be used.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import onnx_ir as ir

from graphfix.editing.builder import subject_of
from graphfix.editing.loadable import loadable_copy, without_inner_shapes
from graphfix.errors import ModelError
from graphfix.files.model_input import PathOrModel, as_model
from graphfix.providers.table import Ep
from graphfix.runtime.cpu_stand_in import stand_in_copy
from graphfix.runtime.load_check import lacks_kernel
from graphfix.runtime.local_session import Session
from graphfix.runtime.random_nodes import RepeatableSession, first_random_node

Opened = Session | RepeatableSession
# How ONNX Runtime words it where a converter has left one of them where it needs the other.
_CLASH = ("tensor(float16)", "tensor(float)")
_CONVERTED = (
    "; that is a conversion to float16 gone wrong: convert the float32 model that it was made "
    "from, graphfix run FLOAT32.onnx -p directml,float16"
)


def open_session(
    model: PathOrModel,
    ep: Ep = "cpu",
    extra_outputs: Sequence[str] = (),
    *,
    repeatable: bool = True,
) -> Opened:
    """Open a session of a model; for what the CPU has no kernel for there is a stand-in.

    Args:
        model: The model.
        ep: The execution provider.
        extra_outputs: Names of inner tensors to return besides the outputs.
        repeatable: Whether random numbers, if the model draws any, repeat in each run. Such a
            session has no extra outputs.
    """

    def open_as_given(model: PathOrModel) -> Opened:
        if repeatable and isinstance(model, ir.Model) and first_random_node(model) is not None:
            return RepeatableSession(model, ep)
        return Session(model, ep=ep, optimize=ep != "cpu", extra_outputs=extra_outputs)

    return _open_or_stand_in(open_as_given, model) if ep == "cpu" else open_as_given(model)


def open_default_session(model: PathOrModel, without: Sequence[str] = ()) -> Opened:
    """Open a session on the CPU as users do, with all optimizations but those in ``without``."""
    return _open_or_stand_in(lambda x: Session(x, without=without), model)


def _open_or_stand_in(opener: Callable[[PathOrModel], Opened], model: PathOrModel) -> Opened:
    try:
        return opener(model)
    except ModelError as error:
        stand_in = stand_in_copy(as_model(model)) if lacks_kernel(str(error)) else None
        if stand_in is None:
            raise
    session = opener(stand_in[0])
    session.notes = stand_in[1]
    return session


def open_original(model: PathOrModel, extra_outputs: Sequence[str] = ()) -> Opened:
    """Open a session of the user's model; a ModelError says that the model as given fails.

    What ONNX Runtime refuses and what changes no number, the passes ``loadable`` and
    ``fresh-shapes`` repair; here it is repaired in a copy.
    """
    if isinstance(model, ir.Model) and not model.graph.outputs:
        raise ModelError(f"{subject_of(model)} has no outputs, so there is nothing to compare")
    try:
        return open_session(model, extra_outputs=extra_outputs)
    except ModelError as error:
        if not _is_there(model):
            raise
        refusal = error
    for copy, note in _loadable_copies(as_model(model)):
        with contextlib.suppress(ModelError):
            session = open_session(copy, extra_outputs=extra_outputs)
            session.notes = (*session.notes, f"ONNX Runtime does not load the original: {note}")
            return session
    reason = str(refusal).rstrip(".")
    advice = _CONVERTED if all(x in reason for x in _CLASH) else ""
    subject = subject_of(model) if isinstance(model, ir.Model) else "the model as given"
    message = f"{subject} does not load in ONNX Runtime: {reason}{advice}"
    raise ModelError(message) from refusal


def _loadable_copies(model: ir.Model) -> Iterator[tuple[ir.Model, str]]:
    """Yield copies that compute the same and may load, each with what they are."""
    if (copy := loadable_copy(model)) is not None:
        yield copy, "a copy was run with distinct names of nodes and with its sizes inside"
    with without_inner_shapes(copy or model):
        try:
            bare = (copy or model).clone()
        except ValueError:  # a body that returns a value of outside
            return
    yield bare, "a copy was run without the shapes that the file declares for inner tensors"


def _is_there(model: PathOrModel) -> bool:
    return isinstance(model, ir.Model) or Path(model).is_file()
