"""A float16 model as a device computes it: each operator in float32, its results rounded.

ONNX Runtime's CPU has few float16 kernels. It puts Casts around the other operators and removes
Casts that meet, so a chain of operators stays in float32, and the precision that a device loses
between two operators is kept. The emulated model is float32, with a Cast to float16 and one back
behind every operator whose result is float16; ONNX Runtime does not remove these.
"""

import onnx_ir as ir

from graphfix.files.stand_in import WIDER_HALF, widened_copy
from graphfix.graph.nodes import is_op
from graphfix.graph.walks import graphs_of, nodes_of


def emulate_float16(model: ir.Model) -> ir.Model:
    """Return a float32 copy that computes what ``model`` does if each result is rounded to float16.

    Args:
        model: A model in which every float16 value has its dtype. Neither the model nor its weights
            are changed: those of the copy are float32.
    """
    nodes = (x for x in nodes_of(model.graph) if not is_op(x, "Constant"))
    values = (value for node in nodes for value in node.outputs)
    halves = {x.name for x in values if x.dtype == ir.DataType.FLOAT16}
    copy = drop_inner_shapes(widened_copy(model, WIDER_HALF))
    for graph in graphs_of(copy.graph):
        for node in list(graph):
            for value in node.outputs:
                if value.name in halves and (value.uses() or value.is_graph_output()):
                    _round_value(graph, node, value)
    return copy


def drop_inner_shapes(model: ir.Model) -> ir.Model:
    """Drop the shapes of inner values: ONNX Runtime rejects a wrong one when it is an output."""
    for node in nodes_of(model.graph):
        for value in node.outputs:
            if not value.is_graph_output():
                value.shape = None
    return model


def _round_value(graph: ir.Graph, node: ir.Node, value: ir.Value) -> None:
    """Round ``value`` for all its readers; the rounded value takes over its name."""
    name, result = value.name, ir.Value(type=value.type, shape=value.shape)
    value.replace_all_uses_with(result, replace_graph_outputs=True)
    half = ir.node("Cast", [value], {"to": int(ir.DataType.FLOAT16)})
    back = ir.node("Cast", [half.outputs[0]], {"to": int(ir.DataType.FLOAT)}, outputs=[result])
    # Exporters name tensors "input", "input.4": a number alone as a suffix could collide.
    value.name, result.name = f"graphfix.float16_search.{name}.raw", name
    half.name = half.outputs[0].name = f"graphfix.float16_search.{name}.half"
    back.name = f"graphfix.float16_search.{name}.back"
    graph.insert_after(node, [half, back])
