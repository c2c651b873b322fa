"""fuse-spectrum: the manual is the docstring of the class."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op

from ..common.cuts import HalfCut, build_slice, half_cut_of
from ..common.fusible import FLOATS, only_user
from ..common.lookup import exclusive_producer
from ..common.norm_site import square_of
from ..common.reshape_targets import ReshapeTarget, reshape_target_of


@dataclass(frozen=True)
class SpectrumSite(Match):
    """The sum of the squares of two halves of a tensor, or its root.

    Attributes:
        half: Where the halves lie.
        target: What puts them along an axis of their own.
    """

    half: HalfCut
    target: ReshapeTarget


@dataclass(frozen=True)
class FuseSpectrum(NodePass[SpectrumSite]):
    """Fuses the power or magnitude of a spectrum whose parts are halves of a tensor into one norm.

    A short-time Fourier transform leaves PyTorch as a Conv that gives real parts and, behind them,
    imaginary ones. Each half is cut out and squared, and both are summed: with an axis for the two,
    that is ReduceSumSquare, and ReduceL2 with a root behind it.

    Why:
        Two or three kernels on DirectML for five, or six with the root. Trained models have one:
        silero's VADs (20 -> 17 kernels in that of faster-whisper), and a SenseVoice with its front
        end, 83 -> 80. Run on onnxruntime-directml 1.24.4, three of silero's and the SenseVoice
        agree with the CPU.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        power (float[B, 6, T] x) => (float[B, 3, T] y)
        <int64[1] start = {0}, int64[1] half = {3}, int64[1] end = {6}, int64[1] axis = {1}>
        {
            real = Slice (x, start, half, axis)
            imaginary = Slice (x, half, end, axis)
            a = Mul (real, real)
            b = Mul (imaginary, imaginary)
            sum = Add (a, b)
            y = Sqrt (sum)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        power (float[B, 6, T] x) => (float[B, 3, T] y)
        <int64[1] front = {1}, int64[4] apart = {0, 2, 3, 0}>
        {
            whole = Unsqueeze (x, front)
            both = Reshape (whole, apart)
            y = ReduceL2 <axes = [1], keepdims = 0> (both)
        }

    Safety:
        Exact, except rounding: the same squares and their sum. Only of both halves of one tensor,
        along an axis of known size.
    """

    sentence = "two halves are squared and summed one by one; one norm makes it of both"
    anchors = ("Add", "Sqrt")

    def match(self, node: ir.Node, view: View) -> SpectrumSite | Skip | None:
        """The root of a sum of squares, or that sum where there is no root."""
        total = exclusive_producer(node.inputs[0], "Add") if is_op(node, "Sqrt") else node
        if not is_op(total, "Add") or (total is node and is_op(only_user(node), "Sqrt")):
            return None
        squares = [x for x in map(square_of, total.inputs) if x is not None]
        halves = [x for value, _ in squares if (x := half_cut_of(value, view)) is not None]
        if len(halves) != 2 or {only_user(x) for _, x in squares} != {total}:
            return None
        half, dims = halves[0][0], view.shapes.dims(halves[0][0].source)
        both = halves[1][0] == half and {halves[0][1], halves[1][1]} == {0, 1}
        if not both or not dims or view.shapes.dtype(half.source) not in FLOATS:
            return None
        size = dims[half.axis]
        count = size // 2 if isinstance(size, int) else 0
        apart = (*dims[: half.axis], 2, count, *dims[half.axis + 1 :])
        target = reshape_target_of(dims, apart, view.shapes)
        return Skip(node, target) if isinstance(target, str) else SpectrumSite(node, half, target)

    def rewrite(self, match: SpectrumSite, op: Builder) -> ir.Value:
        """The norm along an axis of the two."""
        kind = "ReduceL2" if is_op(match.node, "Sqrt") else "ReduceSumSquare"
        half, opset = match.half, op.view.opset_of_node(match.node)
        both, axis = match.target.build(half.source, op), [half.axis]
        if opset < 18:
            made = op.make(kind, both, axes=axis, keepdims=0)
        else:
            made = op.make(kind, both, np.array(axis, np.int64), keepdims=0)
        return build_slice(made, dict(half.other_cuts), op) if half.other_cuts else made
