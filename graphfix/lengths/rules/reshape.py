"""Reshape and Flatten: the factors of the axes are dealt out again, in order."""

import dataclasses
from collections.abc import Sequence

import sympy

from graphfix.facts.symbolic.floats import is_whole
from graphfix.graph.text import size_told
from graphfix.lengths import tail_state as facts
from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.rule_site import Rule, Site, Takes
from graphfix.spec.quoting import quoted

Piece = tuple[facts.Atom, int]
"""A factor, and the axis that it was a factor of."""


def reshape(site: Site) -> facts.State:
    """Each new axis takes as many factors as make up its size."""
    state = site.state()
    if state.physical:
        return dataclasses.replace(site.of_its_shape(), physical=True, sign=state.sign)
    if state.axes is None:
        return site.without_time()
    out = _known(site, state)
    dealt = deal([(x, i) for i, axis in enumerate(state.axes) for x in axis], out)
    axes = [merged([x for x, _ in pieces]) for pieces in dealt]
    tails = [_tail(state, pieces, axis) for pieces, axis in zip(dealt, axes, strict=True)]
    keeps = [x for x in axes if x] == [x for x in state.axes if x]
    return dataclasses.replace(
        state, axes=tuple(axes), tails=tuple(tails), steps=state.steps if keeps else None
    )


def _known(site: Site, state: facts.State) -> list[sympy.Expr]:
    """The sizes of the result; one that is not known is what the others leave."""
    out = site.out_dims()
    unknown = [i for i, x in enumerate(out) if not site.is_known(x)]
    if len(unknown) == 1:
        total = sympy.Mul(*(facts.size_of(x) for x in state.axes or ()))
        others = sympy.Mul(*(x for i, x in enumerate(out) if i != unknown[0]))
        out[unknown[0]] = sympy.cancel(total / others)
    return out


def _tail(state: facts.State, pieces: Sequence[Piece], axis: facts.Axis) -> facts.Tail | None:
    """The tail of a new axis: that of the axis that its time was part of."""
    old = {i for x, i in pieces if isinstance(x, facts.Time)}
    if not old:
        return None
    tails = {state.tail(i) for i in old}
    if len(tails) > 1 or len(old) > 1:
        return facts.FINITE if all(x.is_finite for x in tails) else facts.ANY
    tail = tails.pop()
    moved = state.at(old.pop()) != axis
    return facts.FINITE if tail.kind == "last" and moved else tail


def deal(atoms: Sequence[Piece], out: Sequence[sympy.Expr]) -> list[list[Piece]]:
    """The factors that make up axes of the given sizes, in order, each with where it came from.

    Raises:
        RefusedError: They cannot be told apart: time would not stay in one piece.
    """
    left = list(atoms)
    axes: list[list[Piece]] = []
    for place, size in enumerate(out):
        axis: list[Piece] = []
        rest = size
        while rest != 1:
            if not left:
                raise RefusedError("how it deals out the axes cannot be inferred")
            atom, origin = left.pop(0)
            ratio = sympy.cancel(rest / atom.size)
            same = facts.same_size(rest, atom.size)
            if same or is_whole(ratio):
                axis.append((atom, origin))
                rest = sympy.Integer(1) if same else ratio
            else:
                part, remainder = _split(atom, rest, out[place + 1 :])
                axis.append((part, origin))
                left[:0] = [(x, origin) for x in remainder]
                rest = sympy.Integer(1)
        axes.append(axis)
    if any(x.size != 1 for x, _ in left):
        raise RefusedError("how it deals out the axes cannot be inferred")
    return axes


def _split(
    atom: facts.Atom, size: sympy.Expr, following: Sequence[sympy.Expr]
) -> tuple[facts.Atom, list[facts.Atom]]:
    """The first ``size`` of a factor, and what is left of it."""
    ratio = sympy.cancel(atom.size / size)
    if isinstance(atom, facts.Other) and is_whole(ratio):
        return facts.Other(size), [facts.Other(ratio)]
    if isinstance(atom, facts.Time) and not atom.turned and ratio.is_Integer:
        return facts.Time(size), [facts.Other(ratio)]
    if isinstance(atom, facts.Time) and not atom.turned:
        inner = next((x for x in following if x != 1), None)
        if inner is not None and inner.is_Integer and size.free_symbols:
            # [T] as [T / w, w]: it runs only if w divides T, so whole rows are valid.
            rows = sympy.floor(atom.size / inner)
            if facts.same_size(size * inner, atom.size) or facts.same_size(size, rows):
                return facts.Time(size), [facts.Other(inner)]
    parts = f"{size_told(atom.size)} into {size_told(size)}"
    raise RefusedError(f"it splits an axis of size {parts} and the rest{_counted(atom, size)}")


def _counted(atom: facts.Atom, size: sympy.Expr) -> str:
    """What can be done where a trace may have counted a length."""
    clip = facts.length_of(atom.size, size) if isinstance(atom, facts.Time) and size != 1 else None
    if clip is None:
        return ""
    name = quoted(next(iter(atom.size.free_symbols)).name)
    return (
        f"; if a trace has counted {size} there, no other clip runs: export the model with the "
        f"size of the tensor (x.shape), or fix it (-p fix-dims:{name}={clip})"
    )


def merged(axis: Sequence[facts.Atom]) -> facts.Axis:
    """Factors side by side as one, where that is as good."""
    found: list[facts.Atom] = []
    for atom in axis:
        last = found[-1] if found else None
        if isinstance(atom, facts.Other) and isinstance(last, facts.Other):
            found[-1] = facts.Other(last.size * atom.size)
        elif isinstance(atom, facts.Other) and isinstance(last, facts.Time) and not last.turned:
            found[-1] = facts.Time(sympy.expand(last.size * atom.size))
        else:
            found.append(atom)
    return tuple(found)


RULES = dict.fromkeys(("Flatten", "Reshape"), Rule(reshape, Takes.SIZES))
