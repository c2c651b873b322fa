"""logsumexp-shift: the manual is the docstring of the class."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.ops.axes import keeps_dims, reduced_axes
from graphfix.providers.directml.placement import PlacementRules

from ..common.reductions import build_reduction
from ..common.reshape_targets import with_axes

_LIMITS_AS_INPUTS_OPSET = 11


@dataclass(frozen=True)
class ExponentSite(Match):
    """A ReduceLogSumExp.

    Attributes:
        data: What is reduced.
        axes: The axes, counted from the front.
        dtype: Its element type.
    """

    data: ir.Value
    axes: tuple[int, ...]
    dtype: ir.DataType


@dataclass(frozen=True)
class LogsumexpShift(NodePass[ExponentSite]):
    """Subtracts the maximum before the exponentials of a ReduceLogSumExp.

    Why:
        DirectML adds the exponentials up as they are. Run on onnxruntime-directml 1.24.4, float32
        and float16: from 88.8 on the result is infinite, below -104 it is minus infinity, in
        silence. The CPU subtracts the maximum first, and so do torch and ONNX's own tests. Logits
        of a decoder pass 100 with ease.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        normalizer (float[B, T, 20] logits) => (float[B, T, 1] y)
        <int64[1] axes = {2}>
        {
            y = ReduceLogSumExp (logits, axes)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        normalizer (float[B, T, 20] logits) => (float[B, T, 1] y)
        <
            int64[1] axes = {2}, float least = {-3.4028234663852886e+38},
            float most = {3.4028234663852886e+38}
        >
        {
            top = ReduceMax <keepdims = 1> (logits, axes)
            finite = Clip (top, least, most)
            below = Sub (logits, finite)
            shares = Exp (below)
            total = ReduceSum <keepdims = 1> (shares, axes)
            log = Log (total)
            y = Add (log, finite)
        }

    Left alone:
        Axes that are computed in a run, "its axes are known only in a run":
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        normalizer (float[B, T, 20] logits, int64[N] axes) => (float[B, T, 1] y)
        {
            y = ReduceLogSumExp (logits, axes)
        }

    Safety:
        Exact, up to rounding: it is what the CPU computes. Where the maximum is infinite, the Clip
        makes it the largest number of its type, so that no infinity is subtracted from another.
        Refused: axes that are computed in a run, and tensors of unknown rank.
    """

    sentence = "ReduceLogSumExp: DirectML overflows from 88.8 on, and below -104 it finds nothing"
    anchors = ("ReduceLogSumExp",)

    def match(self, node: ir.Node, view: View) -> ExponentSite | Skip | None:
        """Return the site if DirectML runs the reduction."""
        data = node.inputs[0]
        if data is None or const_of(data) is not None:
            return None
        opset, rank = view.opset_of_node(node), view.shapes.rank(data)
        dtype = view.shapes.dtype(data)
        if PlacementRules(view.model.graph.opset_imports, view.shapes).kernel_of(node) is None:
            return None
        if rank is None or dtype is None:
            return Skip(node, "the rank of its input is not known", severity="error")
        axes = reduced_axes(node, rank, opset)
        if axes is None:
            return Skip(node, "its axes are known only in a run", severity="error")
        return ExponentSite(node, data, axes, dtype) if axes else None

    def rewrite(self, match: ExponentSite, op: Builder) -> ir.Value:
        """Build ``log(sum(exp(x - m))) + m`` with the maximum m."""
        top = _clip_to_finite(build_reduction("ReduceMax", match.data, match.axes, op), match, op)
        shares = op.Exp(op.Sub(match.data, top))
        total = build_reduction("ReduceSum", shares, match.axes, op)
        result = op.Add(op.Log(total), top)
        return result if keeps_dims(match.node) else with_axes("Squeeze", result, match.axes, op)


def _clip_to_finite(value: ir.Value, match: ExponentSite, op: Builder) -> ir.Value:
    """Build a Clip that only takes infinities away."""
    most = np.finfo(match.dtype.numpy()).max
    if op.view.opset_of_node(op.site) < _LIMITS_AS_INPUTS_OPSET:
        return op.Clip(value, min=float(-most), max=float(most))
    return op.Clip(value, np.array(-most), np.array(most))
