"""Read Gemm, FusedMatMul and MatMulNBits, and how products multiply and sum."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from graphfix.graph.nodes import attr_float, attr_int, input_at
from graphfix.ops.op_set import OpSet, qualified_name
from graphfix.ops.traits import PRODUCTS, ROUNDS_DATA

_NAMES_ITS_AXES = OpSet(["Einsum", "com.microsoft.MatMulNBits"])
# Behind x stand its scale and its zero point, and only then the other factor.
_FACTOR_AT_3 = OpSet(["QLinearMatMul", "com.microsoft.QGemm"])


@dataclass(frozen=True)
class Gemm:
    """``alpha * A' @ B' + beta * C``, where ``'`` may transpose.

    Attributes:
        alpha: The factor of the product.
        beta: The factor of C.
        trans_a: Whether A is transposed.
        trans_b: Whether B is transposed.
        bias: C, if it is given.
    """

    alpha: float
    beta: float
    trans_a: bool
    trans_b: bool
    bias: ir.Value | None


def read_gemm(node: ir.Node) -> Gemm:
    """Return the attributes and the bias of a Gemm."""
    return Gemm(
        alpha=attr_float(node, "alpha", 1.0),
        beta=attr_float(node, "beta", 1.0),
        trans_a=bool(attr_int(node, "transA", 0)),
        trans_b=bool(attr_int(node, "transB", 0)),
        bias=input_at(node, 2),
    )


@dataclass(frozen=True)
class FusedMatMul:
    """com.microsoft's ``alpha * A' @ B'``; ``trans_batch`` rotates the batch axes first."""

    alpha: float
    trans_a: bool
    trans_b: bool
    trans_batch_a: bool
    trans_batch_b: bool


def read_fused_matmul(node: ir.Node) -> FusedMatMul:
    """Return the attributes of a FusedMatMul; of a MatMul, their defaults."""
    return FusedMatMul(
        alpha=attr_float(node, "alpha", 1.0),
        trans_a=bool(attr_int(node, "transA", 0)),
        trans_b=bool(attr_int(node, "transB", 0)),
        trans_batch_a=bool(attr_int(node, "transBatchA", 0)),
        trans_batch_b=bool(attr_int(node, "transBatchB", 0)),
    )


@dataclass(frozen=True)
class MatMulNBits:
    """com.microsoft's ``A @ B.T + bias`` with B in blocks of few bits.

    Attributes:
        k: How many columns A and B have.
        n: How many rows B has.
        bits: Of each element of B.
        block_size: How many elements of a row share a scale.
        data: A.
        weight: B, packed in bytes.
        scales: One for each block.
        zero_points: One for each block, packed or not; None is the middle of the range.
        group_index: The block of each column; None counts them off.
        bias: What is added, if anything.
    """

    k: int
    n: int
    bits: int
    block_size: int
    data: ir.Value | None
    weight: ir.Value | None
    scales: ir.Value | None
    zero_points: ir.Value | None
    group_index: ir.Value | None
    bias: ir.Value | None


def read_matmul_nbits(node: ir.Node) -> MatMulNBits:
    """Return the attributes and inputs of a MatMulNBits."""
    data, weight, scales, zero_points, group_index, bias = (input_at(node, i) for i in range(6))
    return MatMulNBits(
        k=attr_int(node, "K", 0),
        n=attr_int(node, "N", 0),
        bits=attr_int(node, "bits", 4),
        block_size=attr_int(node, "block_size", 0),
        data=data,
        weight=weight,
        scales=scales,
        zero_points=zero_points,
        group_index=group_index,
        bias=bias,
    )


def second_factor(node: ir.Node) -> ir.Value | None:
    """Return what a product multiplies its first input with."""
    return input_at(node, 3 if node in _FACTOR_AT_3 else 1)


def summed_axes(node: ir.Node, rank_a: int, rank_b: int) -> tuple[int, int] | None:
    """Return the axis of each factor that a product of two tensors sums over.

    Args:
        node: A MatMul, Gemm or one of their relatives.
        rank_a: The rank of the first factor.
        rank_b: The rank of the second.

    Returns:
        None for an Einsum, which names its axes, a MatMulNBits, whose weight is packed, and a
        factor without axes.
    """
    if node not in PRODUCTS or node in _NAMES_ITS_AXES or not (rank_a and rank_b):
        return None
    trans_a, trans_b = attr_int(node, "transA", 0), attr_int(node, "transB", 0)
    axis_a, axis_b = rank_a - 1, max(rank_b - 2, 0)
    if trans_a and rank_a > 1:
        axis_a = 0 if attr_int(node, "transBatchA", 0) else rank_a - 2
    if trans_b and rank_b > 1:
        axis_b = rank_b - 1
    elif attr_int(node, "transBatchB", 0) and rank_b > 2:
        axis_b = 0
    return axis_a, axis_b


_INT8 = 4
"""The accuracy level of a MatMulNBits at which its data is rounded to 8 bits."""


def rounds_data(node: ir.Node) -> bool:
    """Return whether an operator rounds the real numbers that it multiplies to integers."""
    if qualified_name(node) == "com.microsoft.MatMulNBits":
        return attr_int(node, "accuracy_level", 0) == _INT8
    return node in ROUNDS_DATA
