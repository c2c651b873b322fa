"""Sizes at which a model runs, told from what its graph needs, so that few are tried in vain."""

from __future__ import annotations

from functools import cached_property, reduce
from typing import TYPE_CHECKING

import numpy as np

from graphfix.feeds.input import plain, symbols
from graphfix.feeds.needs import WINDOWS, Need, needs_of
from graphfix.model.symbolic import evaluator
from graphfix.model.values import is_op

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    import onnx_ir as ir

    from graphfix.feeds.signature import Signature
    from graphfix.model.symbolic import Dim

    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

# Every size up to this; beyond, what frames and samples come in.
_ALL, _STEPS, _LARGEST = 4096, (160, 1000), 480_000
_ROWS = (1, 2, 3)
# A size so far from another is as good.
_NEAR = 8
_POOLS = ("AveragePool", "LpPool", "MaxPool")
# More are the sizes of a model of very many parts, and the first say enough.
_MOST_NEEDS = 400
REFLECTS = "a Pad reflects more than there is"
POOLS = "a pool has less than its window, of which ONNX Runtime may make a frame"


class Fit:
    """Which sizes the graph takes, group by group.

    Args:
        signature: The inputs; symbolic shapes are inferred when sizes are first asked for.
        wanted: Groups whose sizes are not free to choose.
    """

    def __init__(self, signature: Signature, wanted: Mapping[str, Sequence[int]]) -> None:
        self._signature, self._wanted = signature, wanted
        self._free = [x for x in signature.times if x not in wanted]

    def snapped(self, groups: Mapping[str, int]) -> dict[str, int]:
        """The nearest sizes that the graph takes: not smaller, but where none is larger.

        Args:
            groups: The size of each group.
        """
        found = dict(groups)
        for group in self._free:
            if group in found:
                found[group] = _next(self._alone[group], found[group])
        if self.takes(found):
            return found
        return self._one_other(found) or self._all_alike(found) or found

    def takes(self, groups: Mapping[str, int]) -> bool:
        """Whether nothing in the graph is known to fail at these sizes."""
        sizes = {k: np.array([n]) for k, n in groups.items()}
        return all(bool(self._holds(need, sizes).all()) for need in self._needs)

    def reflects(self, groups: Mapping[str, int]) -> bool:
        """Whether each Pad has as much as it reflects: else what is computed is not defined."""
        sizes = {k: np.array([n]) for k, n in groups.items()}
        return all(bool(self._holds(need, sizes).all()) for need in self._reflected)

    def emptied(self, groups: Mapping[str, int]) -> ir.Node | None:
        """The first convolution or pooling that has nothing to work on, and makes nothing.

        ONNX Runtime runs that where nothing is to be computed, and a maximum of nothing is -inf.
        Of 3 samples, by a window of 4 and a stride of 2, its pools (1.32.0) make a frame where the
        standard has none: it rounds (3 - 4) / 2 to 0.
        """
        return self._first_empty(groups, self._windows)

    def undefined(self, groups: Mapping[str, int]) -> str:
        """Why what is computed at these sizes is not defined; "" if it is, as far as is known."""
        if not self.reflects(groups):
            return REFLECTS
        pools = [x for x in self._windows if is_op(x[0], *_POOLS)] if self._pools else []
        return POOLS if self._first_empty(groups, pools) is not None else ""

    def _first_empty(
        self, groups: Mapping[str, int], windows: Sequence[tuple[ir.Node, Sequence[Dim]]]
    ) -> ir.Node | None:
        sizes = self._signature.sizes(groups) if windows else {}
        for node, dims in windows:
            for dim in dims:
                size = dim if isinstance(dim, int) else dim.evaluate(sizes)
                if isinstance(size, int) and size < 1:
                    return node
        return None

    @property
    def ties(self) -> bool:
        """Whether two groups must be equal."""
        return any(
            need.kind == "equal" and plain(need.a) and plain(need.b) and len(self._groups(need)) > 1
            for need in self._needs
        )

    def others(self, group: str, sizes: Mapping[str, int]) -> list[int]:
        """Other sizes that a group could have by itself, as far as is known."""
        old = sizes[group]
        ideas = (old + 2, 2 * old, 2 * old + 1)
        found = (self.snapped({**sizes, group: size})[group] for size in ideas)
        return list(dict.fromkeys(x for x in (*ideas[:2], *found) if x != old))

    @cached_property
    def _needs(self) -> list[Need]:
        """The needs that are about the sizes of groups, and about nothing else."""
        signature = self._signature
        known = {s for s in signature.symbols() if s not in signature.derived}
        found = needs_of(signature.model, signature.shapes)
        named = (x for x in found if symbols(x.a) | symbols(x.b) <= known)
        return [x for x in named if self._groups(x)][:_MOST_NEEDS]

    @cached_property
    def _reflected(self) -> list[Need]:
        """What its Pads reflect; shapes are not inferred for a model that has none."""
        pads = (
            x for x in self._signature.model.graph if is_op(x, "Pad") and "mode" in x.attributes
        )
        if not any(x.attributes["mode"].value == "reflect" for x in pads):
            return []
        return [need for need in self._needs if need.kind == "reflects"]

    @cached_property
    def _pools(self) -> bool:
        """Whether it has any; shapes are not inferred for a model that has none."""
        return any(is_op(x, *_POOLS) for x in self._signature.model.graph)

    @cached_property
    def _windows(self) -> list[tuple[ir.Node, Sequence[Dim]]]:
        """What slides over something, with the dims of what it makes where it slid."""
        nodes = [x for x in self._signature.model.graph if is_op(x, *WINDOWS)]
        made = [(x, self._signature.shapes.dims(x.outputs[0]) or ()) for x in nodes]
        return [(x, dims[1 if is_op(x, "STFT") else 2 :]) for x, dims in made]

    @cached_property
    def _alone(self) -> dict[str, Ints]:
        """The sizes of each group that the needs allow that are about no other, but the batch."""
        found: dict[str, Ints] = {}
        batch = self._signature.batch
        for group in self._free:
            tried = _tried(0 if group in self._signature.past else 1)
            mine = [x for x in self._needs if group in self._groups(x) <= {group, batch}]
            allowed = [self._allowed(mine, tried, {group: tried, batch or "": n}) for n in _ROWS]
            every = np.logical_and.reduce(allowed)
            found[group] = tried[every if every.any() else allowed[0]]
            if not found[group].size:
                found[group] = tried
        return found

    def _allowed(
        self, needs: Sequence[Need], tried: Ints, groups: Mapping[str, Ints | int]
    ) -> Bools:
        """For each of the sizes that were tried whether all needs hold."""
        allowed = np.ones(tried.shape, np.bool_)
        for need in needs:
            allowed &= self._holds(need, groups)
        return allowed

    def _one_other(self, groups: Mapping[str, int]) -> dict[str, int] | None:
        """Another size of one group that goes with what the others have."""
        for group in self._free:
            tried = self._alone[group]
            varied: dict[str, Ints | int] = {**groups, group: tried}
            sizes = tried[self._allowed(self._needs, tried, varied)]
            if sizes.size:
                return {**groups, group: _next(sizes, groups[group])}
        return None

    def _all_alike(self, groups: Mapping[str, int]) -> dict[str, int] | None:
        """One size for all that depend on each other, such as the sides of an image."""
        shared = [x for x in self._needs if len(self._groups(x) & {*self._free}) > 1]
        sides = {g for need in shared for g in self._groups(need) if g in self._free}
        if not sides:
            return None
        tried = reduce(np.intersect1d, (self._alone[g] for g in sides))
        alike: dict[str, Ints | int] = {**groups, **dict.fromkeys(sides, tried)}
        sizes = tried[self._allowed(self._needs, tried, alike)]
        if not sizes.size:
            return None
        size = _next(sizes, groups[min(sides)])
        return {**groups, **dict.fromkeys(sides, size)}

    def _groups(self, need: Need) -> set[str]:
        return {self._signature.group(s) for s in symbols(need.a) | symbols(need.b)}

    def _holds(self, need: Need, groups: Mapping[str, Ints | int]) -> Bools:
        sizes = {
            s: np.asarray(groups[self._signature.group(s)], np.int64)
            for s in symbols(need.a) | symbols(need.b)
        }
        a, b = evaluator(need.a)(sizes), evaluator(need.b)(sizes)
        if need.kind == "equal":
            return np.asarray(a == b)
        if need.kind == "broadcast":
            return np.asarray((a == b) | (a == 1) | (b == 1))
        if need.kind == "divides":
            return np.asarray((b > 0) & (a % np.maximum(b, 1) == 0))
        return np.asarray(a >= b)


def _tried(least: int) -> Ints:
    far = (np.arange(step, min(_LARGEST, 400 * step) + 1, step) for step in _STEPS)
    return np.unique(np.concatenate([np.arange(least, _ALL + 1), *far])).astype(np.int64)


def _next(sizes: Ints, least: int) -> int:
    """The first of these that is no smaller, or else the largest.

    Where few fit, as of a side that is halved five times, 32 and not 31: what people use.
    """
    place = int(np.searchsorted(sizes, least))
    first, *more = (int(x) for x in sizes[min(place, sizes.size - 1) :][:_NEAR])
    if not more or more[-1] < first + _NEAR:
        return first
    return next((x for x in (first, *more) if x % _NEAR == 0 and x < first + _NEAR), first)
