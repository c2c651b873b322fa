"""A model in float16 as a device computes it: each operator in float32, what it makes rounded.

ONNX Runtime's CPU has few kernels of float16. It puts Casts around the others and takes out those
that meet, so that a chain of them keeps float32 throughout: what is lost between two operators
shows on a device only. Here it shows: the model is float32, and behind every operator whose result
is float16 its numbers are cut to 11 bits, by T. J. Dekker's splitting (1971),
``x * (2**13 + 1) - (x * (2**13 + 1) - x)``, and are infinite from 65520 on. Below 2**-14 they are
multiples of 2**-24: what is subtracted and added again is 3/4 at least, and has that for its steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from graphfix.model.standin import HALF, widened
from graphfix.model.values import graphs_of, nodes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

# They make no numbers that they were not given.
LAYOUT = frozenset(
    {"Identity", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten", "Expand", "Tile"}
    | {"Slice", "Split", "Gather", "GatherND", "GatherElements", "Concat", "Where", "Relu", "Max"}
    | {"Constant", "ConstantOfShape", "Shape", "Size", "Trilu", "Min", "Neg", "Abs", "Pad"}
    | {"If", "Loop", "Scan", "ReduceMax", "ReduceMin", "MaxPool"}
)
_CONSTANTS = {"split": 2.0**13 + 1, "least": 0.75, "end": 65520.0, "huge": 1e38}


def rounded(model: ir.Model) -> ir.Model:
    """A copy in float32 that makes what ``model`` does where each result is rounded to float16.

    Args:
        model: A model of which every value that is float16 says so. It is not changed, and neither
            are its weights: those of the copy are float32.
    """
    copy = without_shapes(widened(model, HALF))
    held = {name: _constant(copy, name, number) for name, number in _CONSTANTS.items()}
    for graph, node, value in _results(copy, _made_in_half(model)):
        _round(graph, node, value, held)
    return copy


def without_shapes(model: ir.Model) -> ir.Model:
    """A model that says no shapes inside: a wrong one costs a session for each tensor there."""
    for node in nodes_of(model.graph):
        for value in node.outputs:
            if not value.is_graph_output():
                value.shape = None
    return model


def _made_in_half(model: ir.Model) -> set[str]:
    """Names of what is computed in float16, and not only laid out anew."""
    return {
        value.name
        for graph in graphs_of(model.graph)
        for node in graph
        for value in node.outputs
        if value.name
        and value.dtype == ir.DataType.FLOAT16
        and node.op_type not in LAYOUT
        and not _is_constant(node.inputs[0] if node.op_type == "Cast" else None)
    }


def _results(model: ir.Model, names: set[str]) -> list[tuple[ir.Graph, ir.Node, ir.Value]]:
    return [
        (graph, node, value)
        for graph in graphs_of(model.graph)
        for node in graph
        for value in node.outputs
        if value.name in names and (value.uses() or value.is_graph_output())
    ]


def _is_constant(value: ir.Value | None) -> bool:
    return value is not None and value.const_value is not None


def _constant(model: ir.Model, name: str, number: float) -> ir.Value:
    name = f"graphfix.half.{name}"
    value = ir.Value(name=name, shape=ir.Shape([]), type=ir.TensorType(ir.DataType.FLOAT))
    value.const_value = ir.tensor(np.array(number, np.float32), name=name)
    model.graph.register_initializer(value)
    return value


def _round(
    graph: ir.Graph,
    node: ir.Node,
    value: ir.Value,
    held: Mapping[str, ir.Value],
) -> None:
    """Let whoever takes ``value`` take it rounded, under its name."""
    name = value.name
    made: list[ir.Node] = []

    def make(op: str, *inputs: ir.Value) -> ir.Value:
        new = ir.node(op, list(inputs))
        # Exporters name tensors "input", "input.4": no number alone behind a name.
        new.outputs[0].name = new.name = f"graphfix.half.{name}.{len(made)}"
        made.append(new)
        return new.outputs[0]

    uses = list(value.uses())
    size = make("Abs", value)
    scaled = make("Max", make("Mul", size, held["split"]), held["least"])
    cut = make("Mul", make("Sub", scaled, make("Sub", scaled, size)), make("Sign", value))
    fits = make("Less", size, held["end"])
    result = make("Where", fits, cut, make("Mul", value, held["huge"]))
    for use in uses:
        use.node.replace_input_with(use.idx, result)
    for i, output in enumerate(graph.outputs):
        if output is value:
            graph.outputs[i] = result
    value.name, result.name = f"graphfix.half.{name}.raw", name
    result.type, result.shape = value.type, value.shape
    graph.insert_after(node, made)
