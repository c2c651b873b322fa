"""Products that sum over an axis: MatMul, Gemm, Einsum, and their quantized kin."""

import dataclasses
from collections.abc import Sequence

from graphfix.graph.nodes import attr_int
from graphfix.lengths.joint_axes import RefusedError, check_apart, join
from graphfix.lengths.rule_site import Rule, Site
from graphfix.lengths.rules.quantize import unbiased
from graphfix.lengths.tail_state import ANY, FINITE, ZERO, Axis, State, Tail, carries_time


def matmul(site: Site, turned: Sequence[int] = ()) -> State:
    """``[..., M, K] @ [..., K, N]``, with the last two axes of the operands ``turned`` swapped."""
    left, right = site.state(0), site.state(1)
    if left.axes is None or right.axes is None:
        raise RefusedError("the rank of one of its inputs is not known")
    ranks = left.rank, right.rank
    rank = max(*ranks, 2)
    # Letters as in Einsum: k is summed, m and n are the last two, the others count from the end.
    batch = [chr(ord("A") + i) for i in range(rank - 2)]
    terms = [
        [*batch[rank - ranks[0] :], "m", "k"] if ranks[0] > 1 else ["k"],
        [*batch[rank - ranks[1] :], "k", "n"] if ranks[1] > 1 else ["k"],
    ]
    for i in turned:
        terms[i][-2:] = terms[i][:-3:-1]
    out = [*batch, *(["m"] if ranks[0] > 1 else []), *(["n"] if ranks[1] > 1 else [])]
    return contract(site, terms, out)


def gemm(site: Site) -> State:
    """``A @ B + C``, either turned."""
    left = ["k", "m"] if attr_int(site.node, "transA", 0) else ["m", "k"]
    right = ["n", "k"] if attr_int(site.node, "transB", 0) else ["k", "n"]
    state = contract(site, [left, right], ["m", "n"])
    if not site.has(2):
        return state
    if site.state(2).timed:
        raise RefusedError("what it adds carries time")
    return dataclasses.replace(state, tails=state.recomputed())


def einsum(site: Site) -> State:
    """Any of these, by its equation."""
    equation = site.node.attributes["equation"].as_string().replace(" ", "")
    given, arrow, out = equation.partition("->")
    terms = [list(x) for x in given.split(",")]
    if not arrow or "." in equation or any(len(set(x)) < len(x) for x in terms):
        raise RefusedError(f"there is no rule for the equation {equation!r}")
    return contract(site, terms, list(out))


def contract(site: Site, terms: Sequence[Sequence[str]], out: Sequence[str]) -> State:
    """A sum of products over the letters that the result does not have.

    Args:
        site: The node; its first inputs are the factors.
        terms: A letter for each axis of each factor.
        out: The letters of the result.
    """
    for i, term in enumerate(terms):
        if site.state(i).rank != len(term):
            raise RefusedError("the rank of one of its inputs is not what it multiplies")
    for letter in {x for term in terms for x in term} - set(out):
        _sum_over(site, terms, letter)
    states = [site.state(i) for i in range(len(terms))]
    axes, tails = list[Axis](), list[Tail | None]()
    for letter in out:
        at = [(s, t.index(letter)) for s, t in zip(states, terms, strict=True) if letter in t]
        axis = join([s.at(i) for s, i in at])
        axes.append(axis)
        tails.append(_tail(at, states) if carries_time(axis) else None)
    return State(tuple(axes), tuple(tails), sign=min(min(x.sign for x in states), 1))


def _tail(at: Sequence[tuple[State, int]], states: Sequence[State]) -> Tail:
    here = [s.tail(i) for s, i in at if s.tails[i] is not None]
    others_finite = all(x.is_finite for x in states)
    if any(x.is_zero for x in here) and others_finite:
        return ZERO
    return FINITE if all(x.is_finite for x in here) and others_finite else ANY


def _sum_over(site: Site, terms: Sequence[Sequence[str]], letter: str) -> None:
    """Something must be zero behind the valid length, and what it is multiplied with finite."""
    places = [(i, t.index(letter)) for i, t in enumerate(terms) if letter in t]
    axes = [site.state(i).at(axis) for i, axis in places]
    for i, axis in places:
        check_apart(site.state(i), (axis,))
    if not any(carries_time(x) for x in axes):
        return
    join(axes)
    timed = [(i, axis) for i, axis in places if carries_time(site.state(i).at(axis))]
    if not any(site.state(i).tail(axis).is_zero for i, axis in timed):
        # The last factor is the values of an attention: the smaller one.
        i, axis = timed[-1]
        site.need_zero(i, axis, "sum pollution")
    for i, _ in timed:
        site.need_finite(i, "sum pollution")


def matmul_integer(site: Site) -> State:
    """A MatMul of quantized numbers, where a tail of zeros means one of zero points."""
    for i in (0, 1):
        if site.has(2 + i) and site.state(2 + i).timed:
            raise RefusedError("its zero point carries time")
        unbiased(site, i, 2 + i)
    return matmul(site)


def fused_matmul(site: Site) -> State:
    """com.microsoft's MatMul, which may swap the last two axes of either operand first."""
    if any(attr_int(site.node, name, 0) for name in ("transBatchA", "transBatchB")):
        raise RefusedError("there is no rule for its turned batches")
    return matmul(site, [i for i, x in enumerate("AB") if attr_int(site.node, f"trans{x}", 0)])


RULES = {
    "Einsum": Rule(einsum),
    "FusedMatMul": Rule(fused_matmul),
    "Gemm": Rule(gemm),
    "MatMul": Rule(matmul),
    "MatMulInteger": Rule(matmul_integer),
}
