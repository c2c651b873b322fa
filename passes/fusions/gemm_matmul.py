"""gemm-matmul: the manual is the docstring of the class."""

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.directml.kernel_table import MATRIX_DIMS
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import same_dim, same_dims
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int, input_at, is_op, producer_of

from ..common.fusible import only_user
from ..common.reshape_targets import constant_target, may_copy_at_zero

_VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


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
    sizes: ir.Value | tuple[int, ...] | None = None


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

    Safety:
        Exact, except rounding: the same products and sums. That the first Reshape only flattens,
        and the second only undoes that, is proved from symbolic shapes. Refused, with the reason: a
        Gemm that turns a factor or has numbers to multiply with; one whose C is no bias of the last
        axis. A Gemm whose result something else reads is none.
    """

    sentence = "a Gemm between two Reshapes, each a kernel of its own"
    anchors = _VIEWS

    def match(self, node: ir.Node, view: View) -> FlatSite | Skip | None:
        """Return the site if the view behind a Gemm restores the dims before it."""
        product = node.inputs[0]
        gemm = producer_of(product)
        if not is_op(gemm, "Gemm") or only_user(gemm) is not node:
            return None
        rows, weight = gemm.inputs[0], gemm.inputs[1]
        first = producer_of(rows)
        if not is_op(first, *_VIEWS) or first.inputs[0] is None or weight is None:
            return None
        data = first.inputs[0]
        data_dims, out_dims = view.shapes.dims(data), view.shapes.dims(node.outputs[0])
        row_dims, product_dims = view.shapes.dims(rows), view.shapes.dims(product)
        if data_dims is None or out_dims is None or row_dims is None or product_dims is None:
            return None
        if not 3 <= len(out_dims) <= MATRIX_DIMS or not same_dim(out_dims[-1], product_dims[-1]):
            return None
        sizes: ir.Value | tuple[int, ...] | str | None = None
        if not same_dims(data_dims, (*out_dims[:-1], row_dims[-1])):
            # As the heads of torch's MultiheadAttention, [T, B * H, D], are flattened.
            target_values = (
                view.shapes.known_elements(node.inputs[1]) if is_op(node, "Reshape") else None
            )
            sizes = constant_target(data_dims, out_dims, target_values, view.shapes)
            copies = (
                not target_values
                or 0 in target_values
                or may_copy_at_zero(data_dims, out_dims, target_values, view.shapes)
            )
            if isinstance(sizes, str) and not copies:
                sizes = node.inputs[1]
            if not same_dim(row_dims[-1], product_dims[-1]):
                return None
        if isinstance(sizes, str):
            return None
        transposes_weight = bool(attr_int(gemm, "transB", 0))
        reason = _reason_against_matmul(gemm, product_dims[-1], view)
        if transposes_weight and weight not in view.constant_values:
            reason = "it turns a factor, which a MatMul does not"
        if reason:
            return Skip(node, reason)
        return FlatSite(node, data, weight, input_at(gemm, 2), transposes_weight, sizes)

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


def _reason_against_matmul(gemm: ir.Node, width: object, view: View) -> str | None:
    """Return why a Gemm between Reshapes is kept, or None."""
    if any(x.is_ref() for x in gemm.attributes.values()):
        return "its attributes are parameters of the local function it is in"
    if attr_int(gemm, "transA", 0):
        return "it turns a factor, which a MatMul does not"
    for name in ("alpha", "beta"):
        attribute = gemm.attributes.get(name)
        if attribute is not None and not math.isclose(attribute.as_float(), 1, rel_tol=0):
            return f"it multiplies with a number ({name})"
    bias = input_at(gemm, 2)
    if bias is None:
        return None
    dims = view.shapes.dims(bias)
    if dims is None or len(dims) > 1 or not all(x in (1, width) for x in dims):
        return f"its C, {bias.name!r}, is no bias of the last axis"
    return None
