"""unpad-heads: the manual is the docstring of the class."""

from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import same_dim
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op, producer_of
from graphfix.ops.axes import permutation_of
from graphfix.ops.pads import pad_fill, pad_mode, pads_by_axis

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

    Left alone:
        Padding with another number than 0:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        score (float[B, 2, S, 6] q, float[B, 2, T, 6] k) => (float[B, 2, S, T] y)
        <int64[8] pads = {0, 0, 0, 0, 0, 0, 0, 2}, float one = {1}>
        {
            wq = Pad (q, pads, one)
            wk = Pad (k, pads, one)
            turned = Transpose <perm = [0, 1, 3, 2]> (wk)
            y = MatMul (wq, turned)
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
        if is_op(node, "Pad"):
            source = _source_of_padding(value, view) if axis == -1 else None
            return None if source is None else (source, tuple(steps))
        scaled = scaling_of(node, view)
        if scaled is not None:
            inner = list(node.inputs).index(scaled[0])
        elif is_op(node, "Transpose") and _swaps_last_axes(node, view):
            inner, axis = 0, -3 - axis
        else:
            return None
        steps.append((node, inner))
        value, user = node.inputs[inner], node
    return None


def _swaps_last_axes(transpose: ir.Node, view: View) -> bool:
    """Return whether a Transpose puts the last two axes in each other's place."""
    rank = view.shapes.rank(transpose.inputs[0]) or 0
    return permutation_of(transpose, rank)[-2:] == (rank - 1, rank - 2)


def _match_cut(node: ir.Node, view: View) -> PaddedSite | None:
    """Return the site of a Slice that cuts off the zeros of padded values, or None."""
    part, dims = last_axis_cut(node.outputs[0], view), view.shapes.dims(node.outputs[0])
    if part is None or not dims or part[1:] != (0, 1):
        return None
    behind = _product_before_transposes(part[0], node, view)
    if behind is None:
        return None
    product, steps = behind
    values = _source_of_padding(product.inputs[1], view)
    narrow = view.shapes.dims(values)
    if values is None or not narrow or len(narrow) < 2 or not same_dim(narrow[-1], dims[-1]):
        return None
    return PaddedSite(node, product, {1: (values, ())}, steps)


def _product_before_transposes(
    value: ir.Value, user: ir.Node, view: View
) -> tuple[ir.Node, Steps] | None:
    """Return the MatMul behind Transposes that keep the last axis, and these; or None."""
    steps = list[tuple[ir.Node, int]]()
    while (node := value.producer()) is not None and only_user(node) is user:
        if is_op(node, "MatMul"):
            return node, tuple(steps)
        source = node.inputs[0] if is_op(node, "Transpose") else None
        rank = view.shapes.rank(source)
        if source is None or rank is None or permutation_of(node, rank)[-1:] != (rank - 1,):
            return None
        steps.append((node, 0))
        value, user = source, node
    return None


def _source_of_padding(value: ir.Value | None, view: View) -> ir.Value | None:
    """Return the tensor before a Pad that only adds zeros behind the last axis, or None."""
    node = producer_of(value)
    rank = view.shapes.rank(node.inputs[0]) if is_op(node, "Pad") else None
    if node is None or rank is None or pad_mode(node) != "constant" or pad_fill(node) != 0:
        return None
    pads = pads_by_axis(node, rank, view.shapes.known_elements) or {}
    padded = {axis: pad for axis, pad in pads.items() if pad != (0, 0)}
    if padded.keys() != {rank - 1}:
        return None
    before, after = padded[rank - 1]
    return node.inputs[0] if before == 0 and isinstance(after, int) and after > 0 else None
