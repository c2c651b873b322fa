"""gemm-matmul: the manual is the docstring of the class."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim, same_dim, same_dims
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op, producer_of
from graphfix.ops.products import read_gemm
from graphfix.providers.directml.operator_facts import MATRIX_DIMS

from ..common.fusible import only_user
from ..common.guards import first_reason
from ..common.reshape_targets import constant_target, may_copy_at_zero

# A target of a Reshape; None if none is needed.
ReshapeSizes = ir.Value | tuple[int, ...] | None


@dataclass(frozen=True)
class FlatSite(Match):
    """A Gemm between two Reshapes, at the second.

    Attributes:
        data: The input of the first Reshape.
        weight: The second factor.
        bias: The bias that is added, or None.
        transposes_weight: Whether the Gemm transposes the second factor.
        sizes: The target that reshapes ``data`` to the dims of the result; None if it has them.
    """

    data: ir.Value
    weight: ir.Value
    bias: ir.Value | None
    transposes_weight: bool = False
    sizes: ReshapeSizes = None


@dataclass(frozen=True)
class GemmMatmul(NodePass[FlatSite]):
    """Replaces a Gemm between two Reshapes with a MatMul and an Add.

    onnxsim writes the product of [B, T, D] with a weight, and the bias after it, as a Reshape to
    [B * T, D], a Gemm, and a Reshape to sizes that it asks the model for. Of a batch of 1 the last
    may be an Unsqueeze.

    Why:
        Three kernels on DirectML become two, or one where what comes next takes the bias: an
        attention, a residual sum or a Gelu. And a size of B * T hides from fuse-attention and
        fuse-projections that a tensor is [B, T, D]. Counted on the zoo: 67 in the 5 exports that
        went through onnxsim and have dynamic dims.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        linear (float[B, T, 4] x, float[4, 2] w, float[2] b) => (float[B, T, 2] y)
        <int64[2] flat = {-1, 4}, int64[1] wide = {2}, int64[1] zero = {0}, int64[1] two = {2}>
        {
            rows = Reshape (x, flat)
            h = Gemm (rows, w, b)
            shape = Shape (x)
            front = Slice (shape, zero, two)
            back = Concat <axis = 0> (front, wide)
            y = Reshape (h, back)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        linear (float[B, T, 4] x, float[4, 2] w, float[2] b) => (float[B, T, 2] y)
        {
            product = MatMul (x, w)
            y = Add (product, b)
        }

    Left alone:
        A C that is no bias of the last axis, "its C, 'rows', is no bias of the last axis":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        linear (float[B, T, 4] x, float[4, 3] w, float[K] rows) => (float[B, T, 3] y)
        <int64[2] flat_sizes = {-1, 4}, int64[1] wide = {3}, int64[1] zero = {0}, int64[1] two =
         {2}>
        {
            flat = Reshape (x, flat_sizes)
            h = Gemm (flat, w, rows)
            shape = Shape (x)
            front = Slice (shape, zero, two)
            sizes = Concat <axis = 0> (front, wide)
            y = Reshape (h, sizes)
        }

    Safety:
        Exact, except rounding: the same products and sums. That the first Reshape only flattens,
        and the second only undoes that, is proved from symbolic shapes. Refused, with the reason: a
        Gemm that turns a factor or has numbers to multiply with; one whose C is no bias of the last
        axis. A Gemm whose result something else reads is none.
    """

    sentence = "a Gemm between two Reshapes, each a kernel of its own"
    anchors = tuple(sorted(ops.RESHAPES))

    def match(self, node: ir.Node, view: View) -> FlatSite | Skip | None:
        """Return the site if the view behind a Gemm restores the dims before it."""
        gemm = producer_of(node.inputs[0])
        if not is_op(gemm, "Gemm") or only_user(gemm) is not node:
            return None
        rows, weight = gemm.inputs[0], gemm.inputs[1]
        flattening = producer_of(rows)
        if not ops.RESHAPES.has(flattening) or weight is None:
            return None
        data, row_dims = flattening.inputs[0], view.shapes.dims(rows)
        out_dims = _dims_around_width(node, gemm, view)
        if data is None or not row_dims or out_dims is None:
            return None
        sizes: ReshapeSizes = None
        if not same_dims(view.shapes.dims(data), (*out_dims[:-1], row_dims[-1])):
            # As the heads of torch's MultiheadAttention, [T, B * H, D], are flattened.
            sizes = _restored_sizes(node, data, out_dims, view)
            if sizes is None or not same_dim(row_dims[-1], out_dims[-1]):
                return None
        if (reason := first_reason(_GUARDS, gemm, view)) is not None:
            return Skip(node, reason)
        product = read_gemm(gemm)
        return FlatSite(node, data, weight, product.bias, product.trans_b, sizes)

    def rewrite(self, match: FlatSite, op: Builder) -> ir.Value:
        """Build a MatMul and an Add."""
        data, weight = match.data, match.weight
        if match.sizes is not None:
            sizes = match.sizes
            data = op.Reshape(data, np.array(sizes) if isinstance(sizes, tuple) else sizes)
        if match.transposes_weight:
            weight = op.build_once(
                ("turned", weight), lambda: op.Transpose(match.weight, perm=[1, 0]), weight
            )
        product = op.MatMul(data, weight)
        return product if match.bias is None else op.Add(product, match.bias)


def _dims_around_width(node: ir.Node, gemm: ir.Node, view: View) -> Sequence[Dim] | None:
    """Return the dims that a view gives a Gemm if it keeps the last one and a MatMul can have them.

    None if it does not, or they are unknown.
    """
    product_dims, dims = (view.shapes.dims(x.outputs[0]) for x in (gemm, node))
    if not product_dims or not dims or not 3 <= len(dims) <= MATRIX_DIMS:
        return None
    return dims if same_dim(dims[-1], product_dims[-1]) else None


def _restored_sizes(
    node: ir.Node, data: ir.Value, out_dims: Sequence[Dim], view: View
) -> ReshapeSizes:
    """Return the target that gives ``data`` the dims of what ``node`` makes; None if unknown."""
    dims = view.shapes.dims(data)
    if dims is None:
        return None
    target = view.shapes.known_elements(node.inputs[1]) if is_op(node, "Reshape") else None
    sizes = constant_target(dims, out_dims, target, view.shapes)
    if not isinstance(sizes, str):
        return sizes
    # Its own target, if no 0 in it copies a size of what it reshapes.
    if not target or 0 in target or may_copy_at_zero(dims, out_dims, target, view.shapes):
        return None
    return node.inputs[1]


def _why_parameters(gemm: ir.Node, _view: View) -> str | None:
    if any(x.is_ref() for x in gemm.attributes.values()):
        return "its attributes are parameters of the local function it is in"
    return None


def _why_transposed(gemm: ir.Node, view: View) -> str | None:
    """Return that a factor is transposed, or None: a constant weight is transposed at load time."""
    product = read_gemm(gemm)
    if product.trans_a or (product.trans_b and gemm.inputs[1] not in view.constant_values):
        return "it turns a factor, which a MatMul does not"
    return None


def _why_scaled(gemm: ir.Node, _view: View) -> str | None:
    product = read_gemm(gemm)
    for name, factor in (("alpha", product.alpha), ("beta", product.beta)):
        if not math.isclose(factor, 1, rel_tol=0):
            return f"it multiplies with a number ({name})"
    return None


def _why_no_bias(gemm: ir.Node, view: View) -> str | None:
    """Return that C is no vector along the last axis, or None."""
    bias = read_gemm(gemm).bias
    width = (view.shapes.dims(gemm.outputs[0]) or (None,))[-1]
    dims = view.shapes.dims(bias)
    if bias is None or (dims is not None and len(dims) <= 1 and {*dims} <= {1, width}):
        return None
    return f"its C, {bias.name!r}, is no bias of the last axis"


_GUARDS = (_why_parameters, _why_transposed, _why_scaled, _why_no_bias)
