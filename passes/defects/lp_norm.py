"""lp-norm: the manual is the docstring of the class."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import attr_int
from graphfix.ops.axes import axis_of
from graphfix.providers.directml.placement import PlacementRules

from ..common.reductions import build_reduction

_COMPARES_FLOATS = 11


@dataclass(frozen=True)
class NormSite(Match):
    """A LpNormalization.

    Attributes:
        data: What is normalized.
        axis: The axis, counted from the front.
        power: Which power of its elements is summed, 1 or 2.
        dtype: Its element type.
    """

    data: ir.Value
    axis: int
    power: int
    dtype: ir.DataType


@dataclass(frozen=True)
class LpNorm(NodePass[NormSite]):
    """Divides by the length of a vector instead of LpNormalization.

    Why:
        Run on onnxruntime-directml 1.24.4: DirectML adds about 1e-5 to the sum of squares, so a
        vector of numbers around 1e-4 comes out 0.02 long instead of 1, in silence, and one around
        1e-3 is off by 0.4. In float16 the squares pass 65504 from 256 on: off by 5. A ReduceL2 of
        the same numbers is right in both types, and so is p=1. Embeddings of speakers and of faces
        end in it.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        unit (float16[B, 8] x) => (float16[B, 8] y)
        {
            y = LpNormalization <axis = 1, p = 2> (x)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        unit (float16[B, 8] x) => (float16[B, 8] y)
        <float16 zero = {0}, float16 one = {15360}>
        {
            length = ReduceL2 <axes = [1], keepdims = 1> (x)
            nothing = Equal (length, zero)
            divisor = Where (nothing, one, length)
            y = Div (x, divisor)
        }

    Left alone:
        A tensor of unknown rank, "its axis":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        unit (float[B] x, int64[N] shape) => (float[B] y)
        {
            rows = Reshape (x, shape)
            y = LpNormalization (rows)
        }

    Safety:
        Exact, up to rounding: a vector of zeros stays one, as on the CPU. Refused: an axis that is
        not known, and opsets before 11, in which Equal takes no floats.
    """

    sentence = "LpNormalization: DirectML adds 1e-5 to the length, and in float16 it overflows"
    anchors = ("LpNormalization",)

    def match(self, node: ir.Node, view: View) -> NormSite | Skip | None:
        """Return the site if DirectML has a kernel for it."""
        data, dtype = node.inputs[0], view.shapes.dtype(node.inputs[0])
        if data is None or dtype is None or const_of(data) is not None:
            return None
        if PlacementRules(view.model.graph.opset_imports, view.shapes).kernel_of(node) is None:
            return None
        if (opset := view.opset_of_node(node)) < _COMPARES_FLOATS:
            return Skip(node, "before opset 11 Equal takes no floats", severity="warning")
        rank = view.shapes.rank(data)
        axis = None if rank is None else axis_of(node, rank, opset)
        if axis is None:
            return Skip(node, "its axis is not known", severity="warning")
        power = attr_int(node, "p", 2)
        return NormSite(node, data, axis, power, dtype) if power in (1, 2) else None

    def rewrite(self, match: NormSite, op: Builder) -> ir.Value:
        """Build ``x / (length or 1)``."""
        zero, one = (np.array(x, match.dtype.numpy()) for x in (0, 1))
        length = build_reduction(f"ReduceL{match.power}", match.data, [match.axis], op)
        return op.Div(match.data, op.Where(op.Equal(length, zero), one, length))
