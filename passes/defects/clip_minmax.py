"""clip-minmax: the manual is the docstring of the class."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import const_of, scalar_of

_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
_INTEGER_OPSET = 12
_INPUT_LIMITS_OPSET = 11
_INT32_LIMIT = 2**31


@dataclass(frozen=True)
class LimitSite(Match):
    """A Clip whose limits are in the wrong order.

    Attributes:
        data: The tensor that is clipped.
        least: The min of the Clip.
        most: Its max, which is below the min.
        dtype: The type of all three.
    """

    data: ir.Value
    least: float
    most: float
    dtype: ir.DataType


@dataclass(frozen=True)
class ClipMinmax(NodePass[LimitSite]):
    """Replaces a Clip whose min is above its max with a Max and a Min.

    Why:
        ONNX says that every number is then the max, Min(Max(x, min), max). Run on
        onnxruntime-directml 1.24.4, in float32, float16 and int64: DirectML gives the min, in
        silence; Max and Min are right there. torch.clamp promises the same as ONNX.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        clamp (float[N] x) => (float[N] y)
        <float least = {3.0}, float most = {-2.0}>
        {
            y = Clip (x, least, most)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        clamp (float[N] x) => (float[N] y)
        <float least = {3.0}, float most = {-2.0}>
        {
            above = Max (x, least)
            y = Min (above, most)
        }

    Left alone:
        A min that is the max:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        clip (float[N] x) => (float[N] y)
        <float least = {1}, float most = {1}>
        {
            y = Clip (x, least, most)
        }

    Safety:
        Exact; a NaN stays NaN. Limits that are computed in a run are skipped: they are seldom
        in the wrong order, and a Clip is one node. So is a Clip before opset 11, which ONNX Runtime
        refuses with such limits. Refused: limits of int64 beyond 32 bits, of which neither provider
        finds the Max rightly.
    """

    sentence = "Clip has a min above its max: DirectML returns the min, ONNX says the max"
    anchors = ("Clip",)

    def match(self, node: ir.Node, view: View) -> LimitSite | Skip | None:
        """Return the site if the constant min of a Clip is above its max."""
        data, opset = node.inputs[0], view.opset_of_node(node)
        if data is None or const_of(data) is not None or opset < _INPUT_LIMITS_OPSET:
            return None
        least, most = (scalar_of(x) for x in (*node.inputs[1:3], None, None)[:2])
        dtype = view.shapes.dtype(data)
        if least is None or most is None or not least > most or dtype is None:
            return None
        if dtype in _FLOATS:
            return LimitSite(node, data, least, most, dtype)
        if not dtype.is_integer() or opset < _INTEGER_OPSET:
            return None
        if not -_INT32_LIMIT <= most < least < _INT32_LIMIT:
            return Skip(node, "its limits are beyond 32 bits; write the constant that is meant")
        return LimitSite(node, data, least, most, dtype)

    def rewrite(self, match: LimitSite, op: Builder) -> ir.Value:
        """Build ``Min(Max(x, min), max)``."""
        least, most = (np.array(x, match.dtype.numpy()) for x in (match.least, match.most))
        return op.Min(op.Max(match.data, least), most)
