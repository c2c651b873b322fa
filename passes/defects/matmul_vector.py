"""matmul-vector: the manual is the docstring of the class."""

from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.providers.directml.placement import PlacementRules

from ..common.reshape_targets import with_axes


@dataclass(frozen=True)
class VectorSite(Match):
    """A MatMul with a vector.

    Attributes:
        vector: The second factor.
        place: Which input it is.
        rank: How many dims the first has.
    """

    vector: ir.Value
    place: int
    rank: int


@dataclass(frozen=True)
class MatmulVector(NodePass[VectorSite]):
    """Replaces a vector operand of MatMul with a matrix of one column.

    Why:
        The DirectML kernel puts the 1 that a vector lacks behind it, and then repeats it as if it
        stood before it: of [K], the first number is taken K times (DmlOperatorMatMul.cpp). Run on
        onnxruntime-directml 1.24.4: the result is the sum of the other factor times that number,
        without an error, whatever the sizes; a vector as the first factor is multiplied rightly.
        So it is with MatMulInteger and QLinearMatMul, and not with FusedMatMul. ONNX Runtime has
        switched ONNX's own tests of it off for DirectML (PR #27021). Attention pooling has such a
        product: scores of frames out of one learnt vector.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        scores (float[B, T, 4] h, float[4] u) => (float[B, T] y)
        {
            y = MatMul (h, u)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        scores (float[B, T, 4] h, float[4] u) => (float[B, T] y)
        <int64[1] one = {1}, int64[1] two = {2}>
        {
            column = Unsqueeze (u, one)
            made = MatMul (h, column)
            y = Squeeze (made, two)
        }

    Left alone:
        A vector in front:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        row (float[K] x, float[K, C] w) => (float[C] y)
        {
            y = MatMul (x, w)
        }

    Safety:
        Exact: the same products and sums.
    """

    anchors = ("MatMul", "MatMulInteger", "QLinearMatMul")

    def match(self, node: ir.Node, view: View) -> VectorSite | None:
        """Return the site if DirectML multiplies with a vector of several numbers."""
        place = 3 if node.op_type == "QLinearMatMul" else 1
        data, vector = node.inputs[0], node.inputs[place]
        rank, dims = view.shapes.rank(data), view.shapes.dims(vector)
        if vector is None or not rank or dims is None or len(dims) != 1 or dims[0] == 1:
            return None
        if PlacementRules(view.model.graph.opset_imports, view.shapes).kernel_of(node) is None:
            return None  # it runs on the CPU
        return VectorSite(node, vector, place, rank)

    def message(self, site: Match) -> str:
        """Describe what DirectML gets wrong."""
        return (
            f"a {site.node.op_type} with a vector: DirectML takes its first number for all of them"
        )

    def rewrite(self, match: VectorSite, op: Builder) -> ir.Value:
        """Build the product with a column, and squeeze the result."""
        vector = match.vector
        key = ("column", vector)
        column = op.build_once(key, lambda: with_axes("Unsqueeze", vector, (1,), op), vector)
        inputs = [column if i == match.place else x for i, x in enumerate(match.node.inputs)]
        return with_axes("Squeeze", op.make(match.node.op_type, *inputs), [match.rank - 1], op)
