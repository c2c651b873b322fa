"""How often each output of a model was rounded to float16 or bfloat16 on the way to it."""

from collections.abc import Callable, Iterator

import onnx_ir as ir

from graphfix import ops
from graphfix.facts.shapes import Shapes, shapes_of
from graphfix.graph.nodes import attr_int
from graphfix.graph.walks import (
    all_nodes,
    graphs_of,
    nodes_of,
    reachable_from,
    values_of,
    values_read_in_bodies,
)

_HALF = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
# A function that computes in half precision counts as so many nodes: it is not looked into.
_MOST = 1000


def computes_in_half(model: ir.Model) -> bool:
    """Return whether the model computes in float16 or bfloat16 anywhere."""
    if any(x.dtype in _HALF for x in values_of(graphs_of(model.graph))):
        return True
    return any(map(_casts_to_half, all_nodes(model)))


def count_half_roundings(model: ir.Model) -> dict[str, int]:
    """Return how many nodes round to half precision on the way to each output that has any.

    The way ends at integers and booleans: a rounding there moves none of them by a little. What is
    float16 without being computed, an input, a weight or what only moves elements, rounds nothing.
    """
    if not computes_in_half(model):
        return {}
    shapes = shapes_of(model)
    rounds = _half_rounder(model, shapes)
    counts = {
        x.name or "": sum(map(rounds, _nodes_on_the_way(x, shapes))) for x in model.graph.outputs
    }
    return {name: count for name, count in counts.items() if count}


def values_behind_half(model: ir.Model) -> frozenset[str]:
    """Return the names of the main graph's values that were rounded to half precision on the way.

    It is :func:`count_half_roundings` for every value, without the count.
    """
    if not computes_in_half(model):
        return frozenset()
    shapes = shapes_of(model)
    rounds = _half_rounder(model, shapes)
    behind: set[ir.Value] = set()
    for node in model.graph:
        read = (*node.inputs, *values_read_in_bodies(node))
        if rounds(node) or any(x in behind and _may_be_float(x, shapes) for x in read if x):
            behind.update(node.outputs)
    return frozenset(x.name for x in behind if x.name)


def _half_rounder(model: ir.Model, shapes: Shapes) -> Callable[[ir.Node], int]:
    """Return what counts how often a node rounds to half precision."""
    functions = {
        key: any(map(_casts_to_half, nodes_of(x.graph))) for key, x in model.functions.items()
    }

    def count_roundings(node: ir.Node) -> int:
        values = [x for x in (*node.inputs, *node.outputs) if x is not None]
        if (casts := functions.get(node.op_identifier())) is not None:
            return _MOST if casts or any(shapes.dtype(x) in _HALF for x in values) else 0
        computes = node not in ops.MOVES_ELEMENTS and node.op_type != "Constant"
        return int(computes and any(shapes.dtype(x) in _HALF for x in node.outputs))

    return count_roundings


def _may_be_float(value: ir.Value, shapes: Shapes) -> bool:
    dtype = shapes.dtype(value)
    return dtype is None or dtype.is_floating_point()


def _nodes_on_the_way(output: ir.Value, shapes: Shapes) -> Iterator[ir.Node]:
    """Yield the nodes from which floats lead to an output, those in bodies too, each once."""

    def sources(value: ir.Value) -> list[ir.Value]:
        node = value.producer()
        if node is None:
            return []
        read = (*node.inputs, *values_read_in_bodies(node))
        return [x for x in read if x is not None and _may_be_float(x, shapes)]

    passed: set[ir.Node] = set()
    for value in reachable_from([output], sources):
        if (node := value.producer()) is not None and node not in passed:
            passed.add(node)
            yield node


def _casts_to_half(node: ir.Node) -> bool:
    return node.op_type == "Cast" and attr_int(node, "to", 0) in _HALF
