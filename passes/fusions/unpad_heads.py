"""unpad-heads: the manual is the docstring of the class."""

from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.pads import pad_mode, pads_of
from graphfix.facts.shapes import same_dim
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import attr_float, attr_ints, input_at, is_op

from ..common.fusible import only_user
from .attention.operand_path import scaling_of
from .attention.rotary_halves import last_axis_cut

Steps = tuple[tuple[ir.Node, int], ...]


@dataclass(frozen=True)
class PaddedSite(Match):
    """A product of padded heads, or a cut of one.

    Attributes:
        product: The MatMul.
        operands: By its place, an operand without padding, and the nodes in between, the nearest to
            the product first, each with the input that comes from it.
        steps: The Transposes behind the product, the nearest to the site first.
    """

    product: ir.Node
    operands: dict[int, tuple[ir.Value, Steps]]
    steps: Steps = ()


@dataclass(frozen=True)
class UnpadHeads(NodePass[PaddedSite]):
    """Removes the zeros that pad the features of heads, which no product needs.

    Moonshine pads its heads to a multiple of 8 features before attention (36 become 40), and cuts
    the result. The zeros of queries and keys add nothing to their products, and those of the values
    are what is cut off.

    Why:
        Three Pads and a Slice for each attention, each a kernel of its own, and what is between
        keeps fuse-attention away: of a Moonshine decoder of two layers 124 of 214 kernels were left
        on the device with the padding.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        padded (float[B, S, 3] q, float[B, T, 3] k, float[B, T, 3] v) => (float[B, S, 3] y)
        <int64[6] pads = {0, 0, 0, 0, 0, 1}, int64[1] nought = {0}, int64[1] end = {-1},
         int64[1] last = {2}>
        {
            wide_q = Pad (q, pads)
            wide_k = Pad (k, pads)
            wide_v = Pad (v, pads)
            turned = Transpose <perm = [0, 2, 1]> (wide_k)
            scores = MatMul (wide_q, turned)
            weights = Softmax <axis = -1> (scores)
            context = MatMul (weights, wide_v)
            y = Slice (context, nought, end, last)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        padded (float[B, S, 3] q, float[B, T, 3] k, float[B, T, 3] v) => (float[B, S, 3] y)
        {
            narrow = Transpose <perm = [0, 2, 1]> (k)
            scores = MatMul (q, narrow)
            weights = Softmax <axis = -1> (scores)
            y = MatMul (weights, v)
        }

    Safety:
        Exact, except rounding. Both operands of a product must be padded, with zeros, by as much;
        a result must be cut by as much as its values were padded. What somebody else reads stays.
    """

    sentence = "heads are padded with zeros, which no product needs"
    anchors = ("MatMul", "Slice")

    def match(self, node: ir.Node, view: View) -> PaddedSite | None:
        """Return the site of a product of padded operands, or of a cut of one."""
        if is_op(node, "Slice"):
            return _match_cut(node, view)
        lhs, rhs = (_operand_before_padding(node, i, axis, view) for i, axis in ((0, -1), (1, -2)))
        if lhs is None or rhs is None:
            return None
        dims = [view.shapes.dims(x) for x, _ in (lhs, rhs)]
        if not dims[0] or not dims[1] or not same_dim(dims[0][-1], dims[1][-1]):
            return None
        return PaddedSite(node, node, {0: lhs, 1: rhs})

    def rewrite(self, match: PaddedSite, op: Builder) -> ir.Value:
        """Build the product of the operands before padding."""
        inputs = list(match.product.inputs)
        for place, (value, steps) in match.operands.items():
            inputs[place] = _repeat_steps(value, steps, op)
        return _repeat_steps(op.clone_node(match.product, *inputs), match.steps, op)


def _repeat_steps(value: ir.Value, steps: Steps, op: Builder) -> ir.Value:
    """Build these nodes on another value, the last of them first."""
    for node, place in reversed(steps):
        inputs = list(node.inputs)
        inputs[place] = value
        value = op.clone_node(node, *inputs)
    return value


def _operand_before_padding(
    product: ir.Node, place: int, axis: int, view: View
) -> tuple[ir.Value, Steps] | None:
    """Return an operand without zeros along axis -1 or -2, and the nodes in between."""
    value, user, steps = product.inputs[place], product, list[tuple[ir.Node, int]]()
    while value is not None and (node := value.producer()) is not None:
        if only_user(node) is not user:
            return None
        source = node.inputs[0]
        if is_op(node, "Pad"):
            padded = axis == -1 and _pads_last_axis(node, view)
            return (source, tuple(steps)) if padded and source is not None else None
        scaled = scaling_of(node, view)
        perm = attr_ints(node, "perm") if is_op(node, "Transpose") else None
        if scaled is not None:
            inner = list(node.inputs).index(scaled[0])
        elif perm and perm[-2:] == (len(perm) - 1, len(perm) - 2):
            inner, axis = 0, -3 - axis
        else:
            return None
        steps.append((node, inner))
        value, user = node.inputs[inner], node
    return None


def _match_cut(node: ir.Node, view: View) -> PaddedSite | None:
    """Return the site of a Slice that cuts off the zeros of padded values, or None."""
    part, dims = last_axis_cut(node.outputs[0], view), view.shapes.dims(node.outputs[0])
    if part is None or not dims or part[1:] != (0, 1):
        return None
    value, user, steps = part[0], node, list[tuple[ir.Node, int]]()
    while is_op(maker := value.producer(), "Transpose") and maker.inputs[0] is not None:
        perm = attr_ints(maker, "perm")
        if only_user(maker) is not user or not perm or perm[-1] != len(perm) - 1:
            return None
        steps.append((maker, 0))
        value, user = maker.inputs[0], maker
    if not is_op(maker, "MatMul") or only_user(maker) is not user or maker.inputs[1] is None:
        return None
    pad = maker.inputs[1].producer()
    if not is_op(pad, "Pad") or not _pads_last_axis(pad, view) or pad.inputs[0] is None:
        return None
    narrow = view.shapes.dims(pad.inputs[0])
    if not narrow or not same_dim(narrow[-1], dims[-1]) or len(narrow) < 2:
        return None
    return PaddedSite(node, maker, {1: (pad.inputs[0], ())}, tuple(steps))


def _pads_last_axis(node: ir.Node, view: View) -> bool:
    """Return whether a Pad puts zeros behind the last axis, and nothing elsewhere."""
    pads, fill = pads_of(node, view), const_of(input_at(node, 2))
    if not pads or pad_mode(node) != "constant" or any(x != 0 for x in pads[:-1]):
        return False
    if input_at(node, 3) is not None or not isinstance(pads[-1], int) or pads[-1] <= 0:
        return False
    zeros = attr_float(node, "value", 0.0) == 0 if fill is None else not fill.any()
    return zeros and (fill is not None or input_at(node, 2) is None)
