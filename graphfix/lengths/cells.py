"""Relative positions: proof by trial that a shift puts each of them in its place.

A table of relative positions is cut around its middle, ``table[c - T + 1 : c + T]``, so none of its
entries stays where it was when T grows; products with it are padded, reshaped and cut ("rel_shift")
until entry (i, j) holds what belongs to j - i, and all is well again. No rule of one operator sees
that. So such a tensor is followed element by element at a few small sizes: each element has a cell,
a number that says what it is made of, and at the end the cells of a padded run are held against
those of the clip alone. Runs with two and three rows show that each row is made of its own alone.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import numpy as np
import sympy

from graphfix.lengths.axes import RefusedError
from graphfix.lengths.domain import ANY, FINITE, Cells, Rows, Sizes, State, carries_time
from graphfix.lengths.moves import MOVES
from graphfix.lengths.numbers import UNARY
from graphfix.lengths.settled import settled
from graphfix.lengths.site import Site
from graphfix.lengths.trial import LARGEST, Trial

if TYPE_CHECKING:
    import numpy.typing as npt

    from graphfix.lengths.domain import Ids

_LONGEST = 4096
_FARTHEST = 64


def follow(site: Site) -> State:
    """The state of a node's output, element by element.

    Raises:
        RefusedError: There is no way to follow this operator, or what it makes is not known.
    """
    op = MOVES.get(site.node.op_type) or (MOVES["Identity"] if site.node.op_type in UNARY else None)
    states = [x for x in site.states if x is not None]
    if op is None:
        raise RefusedError("it computes with positions that move when the clip is padded")
    finite = all(x.is_finite and (x.cells is None or x.cells.finite) for x in states)
    _check_cut(site)
    found = {x.cells.trials for x in states if x.cells is not None}
    if site.node.op_type == "GatherElements" and (own := site.state().cells) is not None:
        found = {own.trials}  # the numbers of its index are known at any size
    if len(found) > 1:
        raise RefusedError("what it computes with was tried at different sizes")
    trials = next(iter(found)) if found else _trials(site)
    _check_turns(site, trials)
    made: list[tuple[Ids, Ids]] = []
    for place, size in enumerate(trials):
        try:
            alone = op(Trial(site, size, alone=True), place)
            padded = op(Trial(site, size, alone=False), place)
        except (ValueError, IndexError) as error:  # numpy's, as a run would end there
            raise RefusedError(f"it does not run at every size: {error}") from error
        if max(alone.size, padded.size) > LARGEST:
            raise RefusedError("there is too much of it to follow")
        made.append((alone, padded))
    cells = Cells(trials, tuple(made), finite)
    kept = settled(site, cells)
    axes = kept or site.axes_of()
    tail = FINITE if finite else ANY
    state = State(axes, tuple(tail if carries_time(x) else None for x in axes))
    return state if kept is not None else dataclasses.replace(state, cells=cells)


def _check_cut(site: Site) -> None:
    """Refuse a Slice of the batch: what it keeps is another row in each batch."""
    if site.node.op_type != "Slice" or site.source.batch is None:
        return
    state, axes = site.state(), site.contents(3) if site.has(3) else [sympy.Integer(0)]
    at = range(state.rank) if axes is None else [int(x) % state.rank for x in axes]
    if any(isinstance(y, Rows) for i in at for y in state.at(i)):
        raise RefusedError("it cuts the batch")


def _trials(site: Site) -> tuple[Sizes, ...]:
    """Sizes at which the node's output is small, and another one each time; some with a batch."""
    symbols = {x for size in site.out_dims() for x in size.free_symbols}
    symbol = next((x for x in symbols if x.name == site.source.symbol), None)
    if symbol is None:
        raise RefusedError("how it depends on the padded length is not known")
    size = next(x for x in site.out_dims() if x.has(symbol))
    first: dict[int, int] = {}
    for length, value in enumerate(_at_lengths(site, size).tolist(), 1):
        if value > 1 and int(value) not in first:
            first[int(value)] = length
            if len(first) == 6:
                break
    lengths = list(first.values())
    if len(lengths) < 4:
        raise RefusedError("it is not as long as a multiple of the clip")
    pairs = {(lengths[1], lengths[3]), (lengths[2], lengths[-1]), (lengths[1], lengths[2])}
    # The shortest clip: two frames that are read of copies side by side are of two copies there.
    pairs.add((lengths[0], lengths[2]))
    for size in _sizes(site):
        pairs |= set(_changes(site, size, lengths[1])) | set(_changes(site, size, lengths[2]))
        if (several := _several(site, size)) is not None:
            pairs |= set(_changes(site, size, max(several, lengths[1])))
    for turn in _turns(site):
        if turn <= _FARTHEST:
            pairs |= {(turn - 2, turn - 1), (turn - 1, turn + 2), (turn - 2, turn + 1)}
            pairs |= {(turn, turn + 3), (turn + 1, turn + 3)}
    small = sorted(x for x in pairs if x[0] >= lengths[0])
    batches = [] if site.source.batch is None else [(2, 0), (2, 1), (3, 1)]
    longer = [x for x in small if x[0] > lengths[0]]
    more = [Sizes(*pair, *rows) for rows, pair in zip(batches, longer[:2] * 2, strict=False)]
    return (*(Sizes(*pair) for pair in small), *more)


def _check_turns(site: Site, trials: tuple[Sizes, ...]) -> None:
    """Refuse what goes another way at a length that no trial passes."""
    for turn in _turns(site):
        passed = any(x.clip < turn <= x.container for x in trials)
        if not (passed and any(x.clip >= turn for x in trials)):
            raise RefusedError(
                f"how it is shaped goes another way from a clip of {turn} on, which is not tried"
            )
    first = min(x.clip for x in trials)
    for size in _sizes(site):
        tried = {_way(site, size, x.clip, x.container) for x in trials}
        for clip, container in _changes(site, size, first):
            if _way(site, size, clip, container) not in tried:
                raise RefusedError(f"a size of it, {size}, is the same wherever it is tried")
        several = _several(site, size)
        if several is not None and all(_at_lengths(site, size)[x.clip - 1] < 2 for x in trials):
            raise RefusedError(f"a size of it, {size}, is at most 1 wherever it is tried")


def _sizes(site: Site) -> set[sympy.Expr]:
    """Every size that shapes a node, and the quotients, remainders and extrema in these."""
    sizes = [y for x in site.node.inputs if x is not None for y in site.dims(x) or ()]
    sizes += [y for i in range(len(site.states)) for y in site.contents(i) or ()]
    for i in range(len(site.node.outputs)):
        sizes += site.dims(site.node.outputs[i]) or ()
    parts = {y for x in sizes for y in x.atoms(sympy.floor, sympy.Mod, sympy.Max, sympy.Min)}
    known = {*sizes, *parts}
    return {x for x in known if all(y.name in site.source.symbols for y in x.free_symbols)}


def _changes(site: Site, size: sympy.Expr, clip: int) -> list[tuple[int, int]]:
    """A clip, and the next lengths at which a size is more than it is there, and less.

    What rises and falls, as the rest of a division does, is alike at every second or tenth length.
    """
    if not site.grows(size):
        return []
    values = _at_lengths(site, size)
    own, later = values[clip - 1], values[clip:_LONGEST]
    ways = (np.flatnonzero(later > own), np.flatnonzero(later < own))
    return [(clip, clip + 1 + int(x[0])) for x in ways if x.size]


def _several(site: Site, size: sympy.Expr) -> int | None:
    """The shortest clip at which a size is above 1: what is there once repeats nothing."""
    above = np.flatnonzero(_at_lengths(site, size)[:_LONGEST] > 1)
    return int(above[0]) + 1 if site.grows(size) and above.size else None


def _way(site: Site, size: sympy.Expr, clip: int, container: int) -> int:
    """Whether a size is more in a container than in its clip, 1, or less, -1."""
    values = _at_lengths(site, size)
    return int(np.sign(values[container - 1] - values[clip - 1]))


def _turns(site: Site) -> set[int]:
    """The lengths of the padded dim from which on another one of several sizes is the least."""
    found: set[int] = set()
    for atom in _sizes(site):
        if isinstance(atom, sympy.Max | sympy.Min):
            found |= _turns_of(site, atom)
    return found


def _turns_of(site: Site, atom: sympy.Expr) -> set[int]:
    """Where another argument of a Max or Min is the one."""
    values = np.stack([_at_lengths(site, x) for x in atom.args])
    best = values.max(axis=0) if isinstance(atom, sympy.Max) else values.min(axis=0)
    ways = values == best
    # What is the one at a length and is no longer at the next, or the other way round.
    return {int(x) + 2 for x in np.flatnonzero((ways[:, 1:] != ways[:, :-1]).any(axis=0))}


def _at_lengths(site: Site, size: sympy.Expr) -> npt.NDArray[np.int64]:
    """A size at each length of the padded dim; what else varies is 1."""
    return _evaluated(size, site.source.symbol)


@functools.lru_cache(maxsize=128)
def _evaluated(size: sympy.Expr, name: str) -> npt.NDArray[np.int64]:
    symbol = sympy.Symbol(name)
    own = {x: symbol if x.name == name else 1 for x in size.free_symbols}
    at = np.arange(1, _LONGEST * 8)
    made = sympy.lambdify(symbol, size.subs(own), "numpy")(at)
    return np.broadcast_to(np.asarray(made, np.int64), at.shape)


STARTS = frozenset({"Add", "Pad", "Range", "Reshape", "Slice", "Sub", "Tile"})
"""Operators that may move positions, where their own rules see no way."""
