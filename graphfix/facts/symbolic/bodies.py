"""Shape rules of operators with bodies: If, Loop, Scan."""

import onnx_ir as ir
from onnx_shape_inference import SYM_DATA_KEY
from onnx_shape_inference import ShapeInferenceContext as Context

from graphfix.facts.symbolic.expressions import Dim, dim_of
from graphfix.facts.symbolic.inferred import Facts
from graphfix.facts.symbolic.layout import set_shape
from graphfix.graph.nodes import attr_int
from graphfix.graph.walks import graphs_of


def infer_if(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Forget the shape that only one branch of an If has; the library takes the other's."""
    bodies = [x.as_graph() for x in node.attributes.values()]
    for i, out in enumerate(node.outputs):
        if any(body.outputs[i].shape is None for body in bodies):
            set_shape(out, None)


def infer_loop_without_condition(ctx: Context, node: ir.Node) -> None:
    """Infer a Loop that its trip count alone ends, which the library takes for malformed."""
    inner_values = node.attributes["body"].as_graph().outputs[1:]
    carried_count = len(node.inputs) - 2
    for i, (out, inner) in enumerate(zip(node.outputs, inner_values, strict=False)):
        if inner.type is not None and not isinstance(inner.type, ir.TensorType):
            ctx.set_type(out, inner.type)
            continue
        shape = inner.shape
        if i >= carried_count and shape is not None:
            shape = ir.Shape([ctx.new_symbolic_dim(), *shape])
        ctx.set_shape_and_dtype(out, shape, inner.dtype)


def infer_loop(facts: Facts, ctx: Context, node: ir.Node) -> None:
    """Infer that carried values keep their shape, unless the body changes it."""
    body = node.attributes["body"].as_graph()
    if node.op_type == "Loop":
        before, after = body.inputs[2:], body.outputs[1:]
    else:
        count = len(node.inputs) - attr_int(node, "num_scan_inputs", 0)
        before, after = body.inputs[:count], body.outputs[:count]
    if all(_keeps_shape(a, b) for a, b in zip(before, after, strict=False)):
        if node.op_type == "Loop":  # it may end before its trip count is reached
            for out in node.outputs[len(before) :]:
                if out.shape is not None:
                    set_shape(out, [dim_of(facts.new_unknown(ctx)), *list(out.shape)[1:]])
        return
    facts.carried[node] = [x for pair in zip(before, after, strict=False) for x in _changes(*pair)]
    for graph in graphs_of(body):
        for value in (*graph.inputs, *(x for inner in graph for x in inner.outputs)):
            set_shape(value, None)
            facts.contents.pop(value, None)
            value.metadata_props.pop(SYM_DATA_KEY, None)
    for out in node.outputs:
        set_shape(out, None)


def _keeps_shape(before: ir.Value, after: ir.Value) -> bool:
    """Return whether nothing computed of a carried value has another shape in a later round.

    A sequence that the body only appends to is not read there.
    """
    uses = before.uses()
    if uses and all(x.node.op_type == "SequenceInsert" and not x.idx for x in uses):
        return after.producer() in [x.node for x in uses]
    return before.shape is not None and before.shape == after.shape


def _changes(before: ir.Value, after: ir.Value) -> list[tuple[Dim, Dim]]:
    """Return the dims of a carried value that change, before and behind a round."""
    if before.shape is None or after.shape is None or len(before.shape) != len(after.shape):
        return []
    return [(a, b) for a, b in zip(before.shape, after.shape, strict=True) if a != b]
