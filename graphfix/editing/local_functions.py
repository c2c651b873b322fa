"""The bodies of local functions in the place of their calls."""

from collections.abc import Iterator
from contextlib import contextmanager

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass, inliner

from graphfix.errors import ModelError
from graphfix.facts import shapes
from graphfix.files.function_calls import Name, _callees_first
from graphfix.graph.walks import nodes_of


def inline_functions(model: ir.Model) -> None:
    """Replace each call of a local function by the body of the function.

    Raises:
        ModelError: One is written for another opset than the model, which is then half changed.
    """
    try:
        with _fast_unique_names():
            InlinePass()(model)
    except ValueError as error:
        raise ModelError(f"its local functions cannot be put in place: {error}") from error


def inlined_copy(model: ir.Model) -> ir.Model:
    """Return a copy of a model with its local functions inlined; weights are shared.

    Raises:
        ModelError: As :func:`inline_functions`.
    """
    copy = model.clone()
    shapes.drop_shapes(copy)
    if copy.functions:
        inline_functions(copy)
    return copy


@contextmanager
def _fast_unique_names() -> Iterator[None]:
    """Let onnx-ir find the next free name at once; the names are the same.

    It tries ``name_2``, ``name_3``, ... from the start for each call: 15 s for 2,000 calls of one
    function, and four times that for twice as many (seen in onnx-ir 1.1.0).
    """
    original = getattr(inliner, "_make_unique_name", None)
    tried: dict[tuple[int, str], int] = {}

    def make_unique(name: str, _calls: object, used: set[str]) -> str:
        number = tried.get((id(used), name), 1)
        candidate = name if number == 1 else f"{name}_{number}"
        while candidate in used:
            number += 1
            candidate = f"{name}_{number}"
        tried[id(used), name] = number
        used.add(candidate)
        return candidate

    if original is None:  # another version, which may do it in another way
        yield
        return
    inliner._make_unique_name = make_unique  # type: ignore[assignment]
    try:
        yield
    finally:
        inliner._make_unique_name = original


def count_inlined_nodes(model: ir.Model) -> int:
    """Count the nodes of a model once all functions are inlined, those in bodies included."""
    operators_by_function = {
        key: _operator_ids(function.graph) for key, function in model.functions.items()
    }
    counts: dict[Name, int] = {}
    for key in _callees_first(operators_by_function):
        counts[key] = sum(1 + counts.get(x, 0) for x in operators_by_function[key])
    return sum(1 + counts.get(x, 0) for x in _operator_ids(model.graph))


def _operator_ids(graph: ir.Graph) -> list[Name]:
    return [node.op_identifier() for node in nodes_of(graph)]
