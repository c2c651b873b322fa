"""Rules for products that sum over an axis: MatMul, Gemm, Einsum, and their quantized kin."""

import dataclasses
from collections.abc import Sequence

import sympy

from graphfix.lengths.joint_axes import RefusedError, check_rows_unmixed, join_axes
from graphfix.lengths.rule_site import PaddingRule, RuleSite
from graphfix.lengths.rules.quantize import subtract_zero_point
from graphfix.lengths.tail_state import (
    ANY,
    FINITE,
    ZERO,
    Axis,
    Tail,
    TensorState,
    carries_time,
    fixed_axis,
)
from graphfix.ops.einsums import equation_of
from graphfix.ops.products import read_fused_matmul, read_gemm, read_matmul_nbits


def infer_matmul(site: RuleSite, transposed: Sequence[int] = ()) -> TensorState:
    """Infer ``[..., M, K] @ [..., K, N]``; the last two axes of some operands are swapped first."""
    lhs, rhs = site.input_state(0), site.input_state(1)
    if lhs.axes is None or rhs.axes is None:
        raise RefusedError("the rank of one of its inputs is not known")
    ranks = lhs.rank, rhs.rank
    rank = max(*ranks, 2)
    # Letters as in Einsum: k is summed, m and n are the last two, the others count from the end.
    batch = [chr(ord("A") + i) for i in range(rank - 2)]
    terms = [
        [*batch[rank - ranks[0] :], "m", "k"] if ranks[0] > 1 else ["k"],
        [*batch[rank - ranks[1] :], "k", "n"] if ranks[1] > 1 else ["k"],
    ]
    for i in transposed:
        terms[i][-2:] = terms[i][:-3:-1]
    out = [*batch, *(["m"] if ranks[0] > 1 else []), *(["n"] if ranks[1] > 1 else [])]
    return infer_contraction(site, terms, out)


def infer_gemm(site: RuleSite) -> TensorState:
    """Infer ``A' @ B' + C``, where ``'`` may transpose."""
    gemm = read_gemm(site.node)
    lhs = ["k", "m"] if gemm.trans_a else ["m", "k"]
    rhs = ["n", "k"] if gemm.trans_b else ["k", "n"]
    return _add_bias(site, infer_contraction(site, [lhs, rhs], ["m", "n"]), 2)


def _add_bias(site: RuleSite, product: TensorState, index: int) -> TensorState:
    """Return the state of a product to which an input is added, if it is there."""
    if not site.has_input(index):
        return product
    if site.input_state(index).time_axes:
        raise RefusedError("what it adds carries time")
    return dataclasses.replace(product, tails=product.tails_after_arithmetic())


def infer_einsum(site: RuleSite) -> TensorState:
    """Infer an Einsum of distinct letters."""
    equation = equation_of(site.node)
    if equation is None or equation.has_ellipsis or not equation.has_distinct_labels:
        shown = "it has" if equation is None else repr(equation.text)
        raise RefusedError(f"there is no rule for the equation {shown}")
    return infer_contraction(site, equation.terms, equation.result)


def infer_contraction(
    site: RuleSite, terms: Sequence[Sequence[str]], out: Sequence[str]
) -> TensorState:
    """Infer a sum of products over the letters that the result does not have.

    Args:
        site: The node; its first inputs are the factors.
        terms: A letter for each axis of each factor.
        out: The letters of the result.
    """
    for i, term in enumerate(terms):
        if site.input_state(i).rank != len(term):
            raise RefusedError("the rank of one of its inputs is not what it multiplies")
    for letter in {x for term in terms for x in term} - set(out):
        _require_zero_addends(site, terms, letter)
    states = [site.input_state(i) for i in range(len(terms))]
    axes, tails = list[Axis](), list[Tail | None]()
    for letter in out:
        at = [(s, t.index(letter)) for s, t in zip(states, terms, strict=True) if letter in t]
        axis = join_axes([s.factors_of(i) for s, i in at])
        axes.append(axis)
        tails.append(_product_tail(at, states) if carries_time(axis) else None)
    return TensorState(tuple(axes), tuple(tails), sign=min(min(x.sign for x in states), 1))


def _product_tail(at: Sequence[tuple[TensorState, int]], states: Sequence[TensorState]) -> Tail:
    tails = [s.tail_along(i) for s, i in at if s.tails[i] is not None]
    others_finite = all(x.is_finite for x in states)
    if any(x.is_zero for x in tails) and others_finite:
        return ZERO
    return FINITE if all(x.is_finite for x in tails) and others_finite else ANY


def _require_zero_addends(site: RuleSite, terms: Sequence[Sequence[str]], letter: str) -> None:
    """Require zeros behind one factor's valid length, and finite numbers in the others."""
    places = [(i, t.index(letter)) for i, t in enumerate(terms) if letter in t]
    axes = [site.input_state(i).factors_of(axis) for i, axis in places]
    for i, axis in places:
        check_rows_unmixed(site.input_state(i), (axis,))
    if not any(carries_time(x) for x in axes):
        return
    join_axes(axes)
    timed = [(i, axis) for i, axis in places if carries_time(site.input_state(i).factors_of(axis))]
    if not any(site.input_state(i).tail_along(axis).is_zero for i, axis in timed):
        # The last factor is the values of an attention: the smaller one.
        i, axis = timed[-1]
        site.require_zero_tail(i, axis, "sum pollution")
    for i, _ in timed:
        site.require_finite_tails(i, "sum pollution")


def infer_matmul_integer(site: RuleSite, points: Sequence[int] = (2, 3)) -> TensorState:
    """Infer a MatMul of quantized numbers, whose zeros are zero points.

    Args:
        site: The node.
        points: Which inputs are the zero points of the factors.
    """
    for i, at in enumerate(points):
        _check_without_time(site, at, "zero point")
        subtract_zero_point(site, i, at)
    return infer_matmul(site)


def infer_matmul_integer_to_float(site: RuleSite) -> TensorState:
    """Infer a MatMul of quantized numbers, times a scale of each factor, plus a bias."""
    for i in (2, 3):
        _check_without_time(site, i, "scale")
    return _add_bias(site, infer_matmul_integer(site, (4, 5)), 6)


def infer_dynamic_quantize_matmul(site: RuleSite) -> TensorState:
    """Require zeros in the tail of the data: the range taken from it holds 0 in any case."""
    _check_without_time(site, 2, "scale")
    _check_without_time(site, 3, "zero point")
    for axis in site.input_state().time_axes:
        site.require_zero_tail(0, axis, "maximum pollution")
    subtract_zero_point(site, 1, 3)
    return _add_bias(site, infer_matmul(site), 4)


def _check_without_time(site: RuleSite, index: int, role: str) -> None:
    if site.has_input(index) and site.input_state(index).time_axes:
        raise RefusedError(f"its {role} carries time")


def infer_matmul_nbits(site: RuleSite) -> TensorState:
    """Infer a MatMul with a constant of few bits: it takes the data row by row, rounded or not."""
    site.check_parameters("its weights carry time")
    state = site.input_state()
    if state.axes is None:
        raise RefusedError("the rank of one of its inputs is not known")
    if carries_time(state.factors_of(state.rank - 1)):
        raise RefusedError("time is its feature axis")
    product = read_matmul_nbits(site.node)
    axes = (*state.axes[:-1], fixed_axis(sympy.Integer(product.n)))
    zeros = product.bias is None
    return TensorState(axes, state.tails_after_arithmetic(zeros=zeros))


def infer_fused_matmul(site: RuleSite) -> TensorState:
    """Infer com.microsoft's MatMul, which may swap the last two axes of either operand first."""
    product = read_fused_matmul(site.node)
    if product.trans_batch_a or product.trans_batch_b:
        raise RefusedError("there is no rule for its turned batches")
    sides = (product.trans_a, product.trans_b)
    return infer_matmul(site, [i for i, is_transposed in enumerate(sides) if is_transposed])


RULES = {
    "com.microsoft.DynamicQuantizeMatMul": PaddingRule(infer_dynamic_quantize_matmul),
    "Einsum": PaddingRule(infer_einsum),
    "com.microsoft.FusedMatMul": PaddingRule(infer_fused_matmul),
    "Gemm": PaddingRule(infer_gemm),
    "com.microsoft.MatMulNBits": PaddingRule(infer_matmul_nbits),
    "MatMul": PaddingRule(infer_matmul),
    "MatMulInteger": PaddingRule(infer_matmul_integer),
    "com.microsoft.MatMulIntegerToFloat": PaddingRule(infer_matmul_integer_to_float),
}
