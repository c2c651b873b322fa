"""Functions by which a kernel of DirectML refuses a node, as ONNX Runtime registers them.

Each takes the node and answers with the reason, or None (directml.md, section 1, rule 2; the
column ``restriction`` of ``ops.csv`` has the words of the source). What a function asks for that
the graph does not tell counts as granted.
"""

from collections.abc import Callable

import onnx_ir as ir

from graphfix.facts.shapes import Shapes
from graphfix.graph.nodes import attr_int, attr_ints, attr_text, input_at
from graphfix.ops.einsums import equation_of
from graphfix.ops.products import read_matmul_nbits
from graphfix.providers.directml.kernel_table import Kernel


def refusal_reason(node: ir.Node, kernel: Kernel, shapes: Shapes) -> str | None:
    """Return why ``kernel`` refuses ``node``, or None."""
    query = _QUERIES.get(kernel.query)
    return None if query is None else query(node, shapes)


def _recurrent_refusal(node: ir.Node, _: Shapes) -> str | None:
    return "layout=1 (batch first)" if attr_int(node, "layout", 0) else None


def _slice_refusal(node: ir.Node, _: Shapes) -> str | None:
    return f"{len(node.inputs)} inputs, more than 5" if len(node.inputs) > 5 else None


def _pad_refusal(node: ir.Node, _: Shapes) -> str | None:
    return "negative pads" if min(attr_ints(node, "pads") or (0,)) < 0 else None


def _resize_refusal(node: ir.Node, _: Shapes) -> str | None:
    if attr_text(node, "mode", "nearest") == "cubic":
        return "mode=cubic"
    if attr_int(node, "exclude_outside", 0):
        return "exclude_outside=1"
    value = node.attributes.get("extrapolation_value")
    if value is not None and not value.is_ref() and value.as_float():
        return "an extrapolation_value other than 0"
    return None


def _scatter_refusal(node: ir.Node, _: Shapes) -> str | None:
    reduction = attr_text(node, "reduction", "none")
    return None if reduction == "none" else f"reduction={reduction}"


def _extra_output_refusal(node: ir.Node, _: Shapes) -> str | None:
    used = [x for x in node.outputs[1:3] if x.name]
    return "outputs for the mean or the deviation" if used else None


def _batch_norm_refusal(node: ir.Node, shapes: Shapes) -> str | None:
    if attr_int(node, "training_mode", 0):
        return "training_mode=1"
    types = {shapes.dtype(x) for x in node.inputs} - {None}
    return "inputs of different types" if len(types) > 1 else None


def _flag_refusal(node: ir.Node, *flags: str) -> str | None:
    return next((f"{x}=1" for x in flags if attr_int(node, x, 0)), None)


def _attention_refusal(node: ir.Node, _: Shapes) -> str | None:
    if any(input_at(node, i) is not None for i in (4, 6)):
        return "a past"
    if len(node.outputs) > 1 and node.outputs[1].name:
        return "an output for the present"
    return _flag_refusal(node, "unidirectional", "do_rotary", "past_present_share_buffer")


def _q_attention_refusal(node: ir.Node, _: Shapes) -> str | None:
    if attr_int(node, "unidirectional", 0) and input_at(node, 5) is not None:
        return "unidirectional=1 with a mask"
    return _flag_refusal(node, "do_rotary", "past_present_share_buffer")


def _n_bits_refusal(node: ir.Node, _: Shapes) -> str | None:
    product = read_matmul_nbits(node)
    if product.bits not in (4, 8):
        return f"bits={product.bits}"
    block = product.block_size
    return (
        f"K={product.k}, no multiple of block_size={block}" if block and product.k % block else None
    )


def _q_sigmoid_refusal(node: ir.Node, _: Shapes) -> str | None:
    has_all = all(input_at(node, i) is not None for i in range(5))
    return None if has_all else "a zero point that is not given"


def _einsum_refusal(node: ir.Node, _: Shapes) -> str | None:
    """Refuse all but a contraction of two operands, or a sum or permutation of one."""
    equation = equation_of(node)
    if equation is None or (len(equation.terms) <= 2 and not equation.has_ellipsis):
        return None
    return f"the equation {equation.text!r}"


_QUERIES: dict[str, Callable[[ir.Node, Shapes], str | None]] = {
    "QueryRecurrentNeuralNetwork": _recurrent_refusal,
    "QuerySlice": _slice_refusal,
    "QueryPad": _pad_refusal,
    "QueryResize": _resize_refusal,
    "QueryScatter": _scatter_refusal,
    "QueryLayerNormalization": _extra_output_refusal,
    "QuerySkipLayerNormalization": _extra_output_refusal,
    "QueryBatchNormalization": _batch_norm_refusal,
    "QueryMaxPool": lambda node, _: _flag_refusal(node, "storage_order"),
    "QueryAttention": _attention_refusal,
    "QueryQAttention": _q_attention_refusal,
    "QueryMatMulNBits": _n_bits_refusal,
    "QueryQLinearSigmoid": _q_sigmoid_refusal,
    "QueryEinSum": _einsum_refusal,
}
