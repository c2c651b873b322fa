"""fuse-spectrum: the manual is the docstring of the class."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op

from ..common.cuts import HalfCut, build_slice, half_cut_of
from ..common.fold_view import exclusive_producer
from ..common.fusible import FLOATS, only_user
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

    Left alone:
        Parts that overlap:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        power (float[B, 6, T] x) => (float[B, 3, T] y)
        <int64[1] start = {0}, int64[1] half = {3}, int64[1] two = {2}, int64[1] five = {5},
         int64[1] axis = {1}>
        {
            real = Slice (x, start, half, axis)
            imaginary = Slice (x, two, five, axis)
            a = Mul (real, real)
            b = Mul (imaginary, imaginary)
            y = Add (a, b)
        }

    Safety:
        Exact, except rounding: the same squares and their sum. Only of both halves of one tensor,
        along an axis of known size.
    """

    sentence = "two halves are squared and summed one by one; one norm makes it of both"
    anchors = ("Add", "Sqrt")

    def match(self, node: ir.Node, view: View) -> SpectrumSite | Skip | None:
        """Return the site of a sum of two squared halves: at its root, or at the sum itself."""
        total = exclusive_producer(node.inputs[0], "Add") if is_op(node, "Sqrt") else node
        if not is_op(total, "Add") or (total is node and is_op(only_user(node), "Sqrt")):
            return None
        half = _squared_halves(total, view)
        dims = None if half is None else view.shapes.dims(half.source)
        if half is None or not dims or view.shapes.dtype(half.source) not in FLOATS:
            return None
        size = dims[half.axis]
        count = size // 2 if isinstance(size, int) else 0
        split_dims = (*dims[: half.axis], 2, count, *dims[half.axis + 1 :])
        target = reshape_target_of(dims, split_dims, view.shapes)
        return Skip(node, target) if isinstance(target, str) else SpectrumSite(node, half, target)

    def rewrite(self, match: SpectrumSite, op: Builder) -> ir.Value:
        """Build one norm over the two halves, along an axis of their own."""
        kind = "ReduceL2" if is_op(match.node, "Sqrt") else "ReduceSumSquare"
        half, opset = match.half, op.view.opset_of_node(match.node)
        both, axis = match.target.build(half.source, op), [half.axis]
        if opset < 18:
            norm = op.make(kind, both, axes=axis, keepdims=0)
        else:
            norm = op.make(kind, both, np.array(axis, np.int64), keepdims=0)
        return build_slice(norm, dict(half.other_cuts), op) if half.other_cuts else norm


def _squared_halves(total: ir.Node, view: View) -> HalfCut | None:
    """Return how a tensor is cut if a sum adds the squares of its two halves, and nothing else."""
    squares = [x for x in map(square_of, total.inputs) if x is not None]
    cuts = [cut for value, _ in squares if (cut := half_cut_of(value, view)) is not None]
    if len(cuts) != 2 or {only_user(square) for _, square in squares} != {total}:
        return None
    (half, place), (other_half, other_place) = cuts
    return half if other_half == half and {place, other_place} == {0, 1} else None
