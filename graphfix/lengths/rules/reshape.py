"""Rules for Reshape and Flatten, which distribute the factors of axes to others, in order."""

import dataclasses
from collections.abc import Sequence

import sympy

from graphfix.facts.axis_factors import Part, deal_factors
from graphfix.facts.symbolic.floats import is_whole_size
from graphfix.graph.text import size_text
from graphfix.lengths import tail_state as facts
from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.rule_site import AcceptedInputs, PaddingRule, RuleSite
from graphfix.spec.quoting import quote_name

Piece = tuple[facts.Factor, int]
"""A factor, and the axis that it was a factor of."""


def infer_reshape(site: RuleSite) -> facts.TensorState:
    """Infer a Reshape: each new axis gets as many factors as make up its size."""
    state = site.input_state()
    if state.counts_padding:
        return dataclasses.replace(site.output_of_shape(), counts_padding=True, sign=state.sign)
    if state.axes is None:
        return site.output_without_time()
    out = _result_sizes(site, state)
    pieces_by_axis = distribute_factors(
        [(x, i) for i, axis in enumerate(state.axes) for x in axis], out
    )
    axes = [merge_factors([x for x, _ in pieces]) for pieces in pieces_by_axis]
    tails = [
        _tail_of_pieces(state, pieces, axis)
        for pieces, axis in zip(pieces_by_axis, axes, strict=True)
    ]
    keeps = [x for x in axes if x] == [x for x in state.axes if x]
    return dataclasses.replace(
        state, axes=tuple(axes), tails=tuple(tails), steps=state.steps if keeps else None
    )


def _result_sizes(site: RuleSite, state: facts.TensorState) -> list[sympy.Expr]:
    """Return the sizes of the result; one unknown size follows from the others."""
    out = site.output_dims()
    unknown = [i for i, x in enumerate(out) if not site.is_size_of_inputs(x)]
    if len(unknown) == 1:
        total = sympy.Mul(*(facts.size_of(x) for x in state.axes or ()))
        known_size = sympy.Mul(*(x for i, x in enumerate(out) if i != unknown[0]))
        out[unknown[0]] = sympy.cancel(total / known_size)
    return out


def _tail_of_pieces(
    state: facts.TensorState, pieces: Sequence[Piece], axis: facts.Axis
) -> facts.Tail | None:
    """Return the tail of a new axis, which is that of the axis that its time comes from."""
    old = {i for x, i in pieces if isinstance(x, facts.TimeFactor)}
    if not old:
        return None
    tails = {state.tail_along(i) for i in old}
    if len(tails) > 1 or len(old) > 1:
        return facts.FINITE if all(x.is_finite for x in tails) else facts.ANY
    tail = tails.pop()
    is_changed = state.factors_of(old.pop()) != axis
    return facts.FINITE if tail.kind == "last" and is_changed else tail


def distribute_factors(factors: Sequence[Piece], out: Sequence[sympy.Expr]) -> list[list[Piece]]:
    """Distribute factors, each with its old axis, to axes of the given sizes.

    Raises:
        RefusedError: The sizes do not tell which factors make up which axis, or split time.
    """
    # What is split is dealt out part by part; time stays with the first.
    remaining = [x for x, _ in factors]

    def split(
        part: Part[sympy.Expr], size: sympy.Expr, following: Sequence[sympy.Expr]
    ) -> sympy.Expr:
        remainder = _remainder_of_split(remaining[part.factor], size, following)
        remaining[part.factor] = facts.OtherFactor(remainder)
        return remainder

    dealt = deal_factors([x.size for x in remaining], out, _divide_sizes, split)
    if dealt is None:
        raise RefusedError("how it deals out the axes cannot be inferred")
    axes: list[list[Piece]] = []
    pending = dict(enumerate(factors))
    for axis in dealt:
        pieces: list[Piece] = []
        for index, size in axis:
            factor, origin = pending[index]
            pieces.append((_part_of_factor(factor, size), origin))
            pending[index] = facts.OtherFactor(size), origin
        axes.append(pieces)
    return axes


def _divide_sizes(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    if facts.same_size(a, b):
        return sympy.Integer(1)
    ratio = sympy.cancel(a / b)
    return ratio if is_whole_size(ratio) else None


def _part_of_factor(factor: facts.Factor, size: sympy.Expr) -> facts.Factor:
    return factor if factor.size == size else dataclasses.replace(factor, size=size)


def _remainder_of_split(
    factor: facts.Factor, size: sympy.Expr, following: Sequence[sympy.Expr]
) -> sympy.Expr:
    """Return what remains of a factor behind a part of this size, which keeps its kind.

    Raises:
        RefusedError: The factor cannot be split so.
    """
    ratio = sympy.cancel(factor.size / size)
    if isinstance(factor, facts.OtherFactor) and is_whole_size(ratio):
        return ratio
    if isinstance(factor, facts.TimeFactor) and not factor.reversed:
        if ratio.is_Integer:
            return ratio
        inner = next((x for x in following if x != 1), None)
        if inner is not None and inner.is_Integer and size.free_symbols:
            # [T] as [T / w, w]: it runs only if w divides T, so whole rows are valid.
            rows = sympy.floor(factor.size / inner)
            if facts.same_size(size * inner, factor.size) or facts.same_size(size, rows):
                return inner
    parts = f"{size_text(factor.size)} into {size_text(size)}"
    raise RefusedError(
        f"it splits an axis of size {parts} and the rest{_traced_length_hint(factor, size)}"
    )


def _traced_length_hint(factor: facts.Factor, size: sympy.Expr) -> str:
    """Return what a user can do if tracing has fixed a length there; or ""."""
    if factor.size.is_Integer and size.free_symbols:
        return (
            f"; {factor.size} is the same for every clip, so few lengths run: graphfix run MODEL "
            "-p thaw frees it or says why not"
        )
    clip = (
        facts.longest_clip_of_size(factor.size, size)
        if isinstance(factor, facts.TimeFactor) and size != 1
        else None
    )
    if clip is None:
        return ""
    name = quote_name(next(iter(factor.size.free_symbols)).name)
    return (
        f"; if a trace has counted {size} there, no other clip runs: export the model with the "
        f"size of the tensor (x.shape), or fix it (-p fix-dims:{name}={clip})"
    )


def merge_factors(axis: Sequence[facts.Factor]) -> facts.Axis:
    """Merge neighbouring factors where time and valid lengths stay the same."""
    factors: list[facts.Factor] = []
    for factor in axis:
        last = factors[-1] if factors else None
        if isinstance(factor, facts.OtherFactor) and isinstance(last, facts.OtherFactor):
            factors[-1] = facts.OtherFactor(last.size * factor.size)
        elif (
            isinstance(factor, facts.OtherFactor)
            and isinstance(last, facts.TimeFactor)
            and not last.reversed
        ):
            factors[-1] = facts.TimeFactor(sympy.expand(last.size * factor.size))
        else:
            factors.append(factor)
    return tuple(factors)


RULES = dict.fromkeys(("Flatten", "Reshape"), PaddingRule(infer_reshape, AcceptedInputs.SIZES))
