"""The bodies of local functions in the place of their calls."""

from collections.abc import Iterator
from contextlib import contextmanager

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass, inliner

from graphfix.errors import ModelError
from graphfix.facts import shapes
from graphfix.files.function_calls import Name, _innermost_first
from graphfix.graph.walks import nodes_of


def inline(model: ir.Model) -> None:
    """Put the body of each local function in the place of its calls.

    Raises:
        ModelError: One is written for another opset than the model, which is then half changed.
    """
    try:
        with _counted_names():
            InlinePass()(model)
    except ValueError as error:
        raise ModelError(f"its local functions cannot be put in place: {error}") from error


def inlined(model: ir.Model) -> ir.Model:
    """A copy of a model without its local functions; weights are shared, not copied.

    Raises:
        ModelError: As :func:`inline`.
    """
    copy = model.clone()
    shapes.forget(copy)
    if copy.functions:
        inline(copy)
    return copy


@contextmanager
def _counted_names() -> Iterator[None]:
    """Let onnx-ir find the next free name at once; the names are the same.

    It tries ``name_2``, ``name_3``, ... from the start for each call: 15 s for 2,000 calls of one
    function, and four times that for twice as many (seen in onnx-ir 1.1.0).
    """
    theirs = getattr(inliner, "_make_unique_name", None)
    tried: dict[tuple[int, str], int] = {}

    def unique(name: str, _calls: object, used: set[str]) -> str:
        number = tried.get((id(used), name), 1)
        candidate = name if number == 1 else f"{name}_{number}"
        while candidate in used:
            number += 1
            candidate = f"{name}_{number}"
        tried[id(used), name] = number
        used.add(candidate)
        return candidate

    if theirs is None:  # another version, which may do it in another way
        yield
        return
    inliner._make_unique_name = unique  # type: ignore[assignment]
    try:
        yield
    finally:
        inliner._make_unique_name = theirs


def count(model: ir.Model) -> int:
    """How many nodes there are once all functions are written out, those in bodies among them."""
    made = {key: _operators(function.graph) for key, function in model.functions.items()}
    counts: dict[Name, int] = {}
    for key in _innermost_first(made):
        counts[key] = sum(1 + counts.get(x, 0) for x in made[key])
    return sum(1 + counts.get(x, 0) for x in _operators(model.graph))


def _operators(graph: ir.Graph) -> list[Name]:
    return [node.op_identifier() for node in nodes_of(graph)]
