"""nbits-inputs: the manual is the docstring of the class."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder, Operand
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.graph.text import size_text
from graphfix.ops.products import MatMulNBits, read_matmul_nbits
from graphfix.providers.directml.placement import PlacementRules
from graphfix.providers.directml.support_queries import refusal_reason

from ..common.blocks import BlockOrder, pack_bits, unpack_bits

Ints = npt.NDArray[np.int64]

_CPU_IGNORES = "beside a g_idx the CPU takes no packed zero points, so nothing says what is meant"


@dataclass(frozen=True)
class NBitsSite(Match):
    """A MatMulNBits with inputs that DirectML refuses or misreads.

    Attributes:
        product: How it multiplies.
        reorders: Whether its columns belong to blocks in another order than they lie.
        moves_zero_points: Whether DirectML misreads its zero points.
        problem: What DirectML does with it.
    """

    product: MatMulNBits
    reorders: bool
    moves_zero_points: bool
    problem: str


@dataclass(frozen=True)
class NbitsInputs(NodePass[NBitsSite]):
    """Moves inputs out of a MatMulNBits that DirectML refuses or misreads.

    A bias becomes an Add. The columns of an act-order weight (g_idx) are sorted by block. Zero
    points that are not of whole numbers become a product of the sums of each block.

    Why:
        Run on onnxruntime-directml 1.24.4, 4 and 8 bits, float32 and float16: with a bias or with
        g_idx the run ends in 80070057, though the kernel is chosen. Zero points in the type of the
        data are read as packed integers, in silence: off by 7.8, where uint8 is right. So are
        uint8 zero points of 8 bits where the number of blocks in a row is odd: off by 28 to 103.
        GPTQ writes g_idx, HQQ writes float zero points.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17, "com.microsoft" : 1]
        >
        project (float[B, T, 16] x) => (float[B, T, 1] y)
        <
            uint8[1, 1, 8] w = {1, 35, 69, 103, 137, 171, 205, 239}, float[1] scale = {0.5},
            float[1] bias = {1}
        >
        {
            y = com.microsoft.MatMulNBits <K = 16, N = 1, bits = 4, block_size = 16>
                (x, w, scale, , , bias)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17, "com.microsoft" : 1]
        >
        project (float[B, T, 16] x) => (float[B, T, 1] y)
        <
            uint8[1, 1, 8] w = {1, 35, 69, 103, 137, 171, 205, 239}, float[1] scale = {0.5},
            float[1] bias = {1}
        >
        {
            product = com.microsoft.MatMulNBits <K = 16, N = 1, bits = 4, block_size = 16>
                (x, w, scale)
            y = Add (product, bias)
        }

    Left alone:
        A group index that is computed in a run, "its g_idx is known only in a run":
        <
            ir_version: 8,
            opset_import: ["" : 17, "com.microsoft" : 1]
        >
        project (float[B, T, 16] x, int32[16] g) => (float[B, T, 1] y)
        <
            uint8[1, 1, 8] w = {1, 35, 69, 103, 137, 171, 205, 239}, float[1] scale = {0.5}
        >
        {
            y = com.microsoft.MatMulNBits <K = 16, N = 1, bits = 4, block_size = 16>
                (x, w, scale, , g)
        }

    Safety:
        Exact, up to rounding: the same weights times the same data. A weight whose columns are
        sorted is written again, as large as it was; a group that is no multiple of the block is
        filled up with columns of weight 0. Zero points of float cost two small products each.
        Refused, with the reason: weights, scales, zero points or g_idx that are known only in a
        run, where their values are needed; and uint8 zero points beside a g_idx, which ONNX
        Runtime's CPU does not read (run: it takes the middle of the range).
    """

    anchors = ("com.microsoft.MatMulNBits",)

    def match(self, node: ir.Node, view: View) -> NBitsSite | Skip | None:
        """Return the site if DirectML has a kernel and an input makes it fail or be wrong."""
        rules = PlacementRules(view.model.graph.opset_imports, view.shapes)
        kernel = rules.kernel_of(node)
        if kernel is None or refusal_reason(node, kernel, view.shapes) is not None:
            return None
        product = read_matmul_nbits(node)
        if product.data is None or product.weight is None or product.scales is None:
            return None
        moves_zero_points = _misreads_zero_points(product, view)
        problem = _problem_of(product, moves_zero_points=moves_zero_points)
        if problem is None:
            return None
        reorders = False
        if product.group_index is not None:
            if product.zero_points is not None and not moves_zero_points:
                return Skip(node, f"{_CPU_IGNORES}: {problem}", severity="error")
            groups = const_of(product.group_index, sys.maxsize)
            if groups is None:
                return Skip(node, f"its g_idx is known only in a run: {problem}", severity="error")
            in_order = np.arange(product.k) // product.block_size
            reorders = not np.array_equal(groups.reshape(-1), in_order)
        site = NBitsSite(node, product, reorders, moves_zero_points, problem)
        for value in _values_to_rewrite(site):
            if not _is_stored(value):
                reason = f"{value.name!r} is known only in a run: {problem}"
                return Skip(node, reason, severity="error")
        return site

    def message(self, site: Match) -> str:
        """Describe what DirectML gets wrong."""
        return site.problem if isinstance(site, NBitsSite) else super().message(site)

    def rewrite(self, match: NBitsSite, op: Builder) -> ir.Value:
        """Build the product without these inputs, and what they add."""
        product = match.product
        data: Operand = product.data
        weight: Operand = product.weight
        scales: Operand = product.scales
        zero_points: Operand = None if match.moves_zero_points else product.zero_points
        order = BlockOrder.as_stored(product.k, product.block_size)
        if match.reorders:
            order = BlockOrder.of_groups(_array_of(product.group_index), product.block_size)
            data = op.Gather(data, order.columns, axis=-1)
            weight = _sorted_weight(product, order)
            scales = _by_block(product.scales, product)[:, order.groups].reshape(-1)
        result = op.clone_node(
            match.node, data, weight, scales, *([] if zero_points is None else [zero_points]),
            K=len(order.columns),
        )  # fmt: skip
        if match.moves_zero_points:
            sums = op.MatMul(data, order.indicator().astype(_array_of(product.scales).dtype))
            result = op.Add(result, op.MatMul(sums, _offsets(product, order)))
        return result if product.bias is None else op.Add(result, product.bias)


def _misreads_zero_points(product: MatMulNBits, view: View) -> bool:
    """Return whether DirectML reads other zero points than are meant."""
    if product.zero_points is None:
        return False
    if view.shapes.dtype(product.zero_points) != ir.DataType.UINT8:
        return True
    return product.bits == 8 and bool(product.k // product.block_size % 2)


def _problem_of(product: MatMulNBits, *, moves_zero_points: bool) -> str | None:
    """Return what DirectML does with the inputs, the worst last, or None if it is right."""
    if product.bias is not None or product.group_index is not None:
        which = "a bias" if product.bias is not None else "a g_idx"
        return f"MatMulNBits with {which}: DirectML ends in 80070057"
    if moves_zero_points:
        dims = size_text(product.k // product.block_size)
        return (
            f"MatMulNBits of {product.bits} bits in {dims} blocks: DirectML misreads its zero "
            "points, in silence"
        )
    return None


def _values_to_rewrite(site: NBitsSite) -> list[ir.Value]:
    """Return the inputs that are replaced, so that their numbers are needed."""
    product = site.product
    values = [product.weight] if site.reorders else []
    if site.reorders or site.moves_zero_points:
        values = [product.scales, product.zero_points, *values]
    return [x for x in values if x is not None]


def _is_stored(value: ir.Value) -> bool:
    return const_of(value, sys.maxsize) is not None


def _array_of(value: ir.Value | None) -> npt.NDArray[np.generic]:
    """Return the contents of a stored tensor."""
    array = const_of(value, sys.maxsize)
    if array is None:
        raise ValueError(f"{value and value.name!r} is not stored")
    return array


def _by_block(value: ir.Value | None, product: MatMulNBits) -> npt.NDArray[np.generic]:
    """Return numbers of blocks as ``[N, blocks]``."""
    return _array_of(value).reshape(product.n, -1)


def _packed_zero_points(product: MatMulNBits) -> Ints:
    """Return zero points that are stored in bits, as ``[N, blocks]``."""
    blocks = product.k // product.block_size
    return unpack_bits(_by_block(product.zero_points, product), product.bits)[:, :blocks]


def _zero_points(product: MatMulNBits) -> npt.NDArray[np.float64]:
    """Return the zero points of each row and block, ``[N, blocks]``."""
    stored = _by_block(product.zero_points, product)
    if stored.dtype == np.uint8:
        return _packed_zero_points(product).astype(np.float64)
    return stored.astype(np.float64)


def _sorted_weight(product: MatMulNBits, order: BlockOrder) -> npt.NDArray[np.uint8]:
    """Return the packed weight with its columns by block; filler columns stand for 0."""
    rows = _array_of(product.weight).reshape(product.n, -1)
    columns = unpack_bits(rows, product.bits)[:, order.columns]
    columns[:, order.is_filler] = 1 << (product.bits - 1)
    return pack_bits(columns, product.bits).reshape(product.n, len(order.groups), -1)


def _offsets(product: MatMulNBits, order: BlockOrder) -> npt.NDArray[np.generic]:
    """Return what the sum of each block is multiplied with: ``(middle - zero) * scale``."""
    scales = _by_block(product.scales, product)
    middle = 1 << (product.bits - 1)
    offsets = (middle - _zero_points(product)) * scales.astype(np.float64)
    return np.ascontiguousarray(offsets[:, order.groups].T.astype(scales.dtype))
