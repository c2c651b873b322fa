"""Rules for Reshape and Flatten: the factors of the axes are dealt out again, in order."""

import dataclasses
from collections.abc import Sequence

import sympy

from graphfix.facts.symbolic.floats import is_whole_size
from graphfix.graph.text import size_text
from graphfix.lengths import tail_state as facts
from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.rule_site import AcceptedInputs, PaddingRule, RuleSite
from graphfix.spec.quoting import quote_name

Piece = tuple[facts.Factor, int]
"""A factor, and the axis that it was a factor of."""


def infer_reshape(site: RuleSite) -> facts.TensorState:
    """Give each new axis as many factors as make up its size."""
    state = site.input_state()
    if state.counts_padding:
        return dataclasses.replace(site.output_of_shape(), counts_padding=True, sign=state.sign)
    if state.axes is None:
        return site.output_without_time()
    out = _result_sizes(site, state)
    dealt = deal_factors([(x, i) for i, axis in enumerate(state.axes) for x in axis], out)
    axes = [merge_factors([x for x, _ in pieces]) for pieces in dealt]
    tails = [_tail_of_pieces(state, pieces, axis) for pieces, axis in zip(dealt, axes, strict=True)]
    keeps = [x for x in axes if x] == [x for x in state.axes if x]
    return dataclasses.replace(
        state, axes=tuple(axes), tails=tuple(tails), steps=state.steps if keeps else None
    )


def _result_sizes(site: RuleSite, state: facts.TensorState) -> list[sympy.Expr]:
    """Return the sizes of the result; one that is not known is what the others leave."""
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
    """Return the tail of a new axis: that of the axis that its time was part of."""
    old = {i for x, i in pieces if isinstance(x, facts.TimeFactor)}
    if not old:
        return None
    tails = {state.tail_along(i) for i in old}
    if len(tails) > 1 or len(old) > 1:
        return facts.FINITE if all(x.is_finite for x in tails) else facts.ANY
    tail = tails.pop()
    is_changed = state.factors_of(old.pop()) != axis
    return facts.FINITE if tail.kind == "last" and is_changed else tail


def deal_factors(atoms: Sequence[Piece], out: Sequence[sympy.Expr]) -> list[list[Piece]]:
    """Deal out the factors that make up axes of the given sizes, each with its old axis.

    Raises:
        RefusedError: They cannot be told apart: time would not stay in one piece.
    """
    pending = list(atoms)
    axes: list[list[Piece]] = []
    for place, size in enumerate(out):
        axis: list[Piece] = []
        missing = size
        while missing != 1:
            if not pending:
                raise RefusedError("how it deals out the axes cannot be inferred")
            atom, origin = pending.pop(0)
            ratio = sympy.cancel(missing / atom.size)
            same = facts.same_size(missing, atom.size)
            if same or is_whole_size(ratio):
                axis.append((atom, origin))
                missing = sympy.Integer(1) if same else ratio
            else:
                part, remainder = _split_factor(atom, missing, out[place + 1 :])
                axis.append((part, origin))
                pending[:0] = [(x, origin) for x in remainder]
                missing = sympy.Integer(1)
        axes.append(axis)
    if any(x.size != 1 for x, _ in pending):
        raise RefusedError("how it deals out the axes cannot be inferred")
    return axes


def _split_factor(
    atom: facts.Factor, size: sympy.Expr, following: Sequence[sympy.Expr]
) -> tuple[facts.Factor, list[facts.Factor]]:
    """Split a factor into its first ``size`` and what remains of it."""
    ratio = sympy.cancel(atom.size / size)
    if isinstance(atom, facts.OtherFactor) and is_whole_size(ratio):
        return facts.OtherFactor(size), [facts.OtherFactor(ratio)]
    if isinstance(atom, facts.TimeFactor) and not atom.turned and ratio.is_Integer:
        return facts.TimeFactor(size), [facts.OtherFactor(ratio)]
    if isinstance(atom, facts.TimeFactor) and not atom.turned:
        inner = next((x for x in following if x != 1), None)
        if inner is not None and inner.is_Integer and size.free_symbols:
            # [T] as [T / w, w]: it runs only if w divides T, so whole rows are valid.
            rows = sympy.floor(atom.size / inner)
            if facts.same_size(size * inner, atom.size) or facts.same_size(size, rows):
                return facts.TimeFactor(size), [facts.OtherFactor(inner)]
    parts = f"{size_text(atom.size)} into {size_text(size)}"
    raise RefusedError(
        f"it splits an axis of size {parts} and the rest{_traced_length_hint(atom, size)}"
    )


def _traced_length_hint(atom: facts.Factor, size: sympy.Expr) -> str:
    """Say what can be done where a trace may have counted a length."""
    clip = (
        facts.longest_clip_of_size(atom.size, size)
        if isinstance(atom, facts.TimeFactor) and size != 1
        else None
    )
    if clip is None:
        return ""
    name = quote_name(next(iter(atom.size.free_symbols)).name)
    return (
        f"; if a trace has counted {size} there, no other clip runs: export the model with the "
        f"size of the tensor (x.shape), or fix it (-p fix-dims:{name}={clip})"
    )


def merge_factors(axis: Sequence[facts.Factor]) -> facts.Axis:
    """Merge factors side by side into one, where that is as good."""
    factors: list[facts.Factor] = []
    for atom in axis:
        last = factors[-1] if factors else None
        if isinstance(atom, facts.OtherFactor) and isinstance(last, facts.OtherFactor):
            factors[-1] = facts.OtherFactor(last.size * atom.size)
        elif (
            isinstance(atom, facts.OtherFactor)
            and isinstance(last, facts.TimeFactor)
            and not last.turned
        ):
            factors[-1] = facts.TimeFactor(sympy.expand(last.size * atom.size))
        else:
            factors.append(atom)
    return tuple(factors)


RULES = dict.fromkeys(("Flatten", "Reshape"), PaddingRule(infer_reshape, AcceptedInputs.SIZES))
