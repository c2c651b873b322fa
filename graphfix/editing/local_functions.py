"""Inlining of local functions."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass, inliner

from graphfix.errors import ModelError
from graphfix.facts import shapes
from graphfix.files.function_calls import Name, callees_first
from graphfix.graph.walks import all_graphs, all_nodes, graphs_of, nodes_of, values_of

Named = TypeVar("Named", ir.Value, ir.Node)

_PLACEHOLDER = "graphfix.placeholder."


def inline_functions(model: ir.Model) -> None:
    """Replace each call of a local function by the body of the function.

    What the graph has already keeps its names, in bodies too; of what comes from a function, that
    gets another name which would hide something or be hidden.

    Raises:
        ModelError: One is written for another opset than the model, which is then half changed.
    """
    values, nodes = {*values_of(graphs_of(model.graph))}, {*nodes_of(model.graph)}
    names = _set_placeholders(model)
    try:
        with _fast_unique_names():
            InlinePass()(model)
    except ValueError as error:
        raise ModelError(f"its local functions cannot be put in place: {error}") from error
    finally:
        values |= _restore_names(model, names)
        _rename_taken(values_of(graphs_of(model.graph)), values)
        _rename_taken(nodes_of(model.graph), nodes)


def _set_placeholders(model: ir.Model) -> dict[str, str]:
    """Rename the outputs of calls and omitted outputs; return their names by the new ones.

    What replaces an output takes its name: also that of an omitted one, which is none, although the
    function may read it. onnx-ir names what a function omits.
    """
    calls = {x for x in nodes_of(model.graph) if x.op_identifier() in model.functions}
    names: dict[str, str] = {}
    for node in all_nodes(model):
        for value in node.outputs:
            if not value.name or node in calls:
                placeholder = f"{_PLACEHOLDER}{len(names)}"
                value.name, names[placeholder] = placeholder, value.name or ""
    return names


def _restore_names(model: ir.Model, names: Mapping[str, str]) -> set[ir.Value]:
    """Give values the names back that placeholders stand for; return those that had a name.

    What comes of a function twice has its placeholder with a number behind.
    """
    named = set[ir.Value]()
    for value in values_of(all_graphs(model)):
        if value.name is not None and value.name.startswith(_PLACEHOLDER):
            value.name = names.get(value.name, "")
            if value.name:
                named.add(value)
            elif value.uses() or value.is_graph_output():
                value.name = "val"
    return named


def _rename_taken(items: Iterable[Named], keep: Collection[Named]) -> None:
    """Rename each item that has the name of another one and is none of ``keep``.

    onnx-ir looks for names in each graph as it comes to it, so what it puts before an If may hide
    names in the branches; and it leaves the inputs of a body their names, wherever that is put.
    """
    distinct = dict.fromkeys(items)  # an input with a default is an initializer as well
    taken, counts = {x.name for x in distinct if x in keep}, Counter[str]()
    for item in distinct:
        if not item.name or item in keep:
            continue
        unique = name = item.name
        while unique in taken:
            counts[name] += 1
            unique = f"{name}_{counts[name] + 1}"
        taken.add(unique)
        if unique != name:
            item.name = unique


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

    if original is None:  # another version of onnx-ir, which may not need it
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
    for key in callees_first(operators_by_function):
        counts[key] = sum(1 + counts.get(x, 0) for x in operators_by_function[key])
    return sum(1 + counts.get(x, 0) for x in _operator_ids(model.graph))


def _operator_ids(graph: ir.Graph) -> list[Name]:
    return [node.op_identifier() for node in nodes_of(graph)]
