"""What must stay in float32 for a model to pass its gate: tried, not guessed.

The pass says what stays by the graph alone. Here the model that it makes is run beside the one in
float32: what overflows stays, what a device would overflow inside a kernel stays, and while the
gate is missed, so does what the course of the error through the layers points at. If that does not
help, the nodes are bisected. What turns out not to be needed is given back.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from graphfix.errors import ModelError
from graphfix.feeds.case import Case
from graphfix.feeds.full_lengths import full_lengths
from graphfix.feeds.search import make_cases
from graphfix.half import ranges
from graphfix.half.emulate import rounded
from graphfix.half.ranges import Gap
from graphfix.model import shapes
from graphfix.model.narrow import KEPT
from graphfix.model.values import nodes_of
from graphfix.proof.stream import Run, Stream
from graphfix.proof.verify import Tolerance, Verdict, verify
from graphfix.runtime.session import Session

if TYPE_CHECKING:
    from graphfix.core import Feeds, Pass, Safety

    Progress = Callable[[str], None]

# How often the course of the error is followed, and how deep before a node that parts.
_ROUNDS = 5
# An error grows at a node if it is so many times what comes in, and a share of what is allowed.
_GROWS, _SHARE = 2.0, 0.2
_ROUNDING = 2.0**-11
# With less of the gate than this the usual inputs were not enough.
_USUAL = 0.5
_ERROR = "the error grows"
# How many groups of nodes are tried without.
_GIVEN_BACK = 6


@dataclass
class Found:
    """What was found.

    Attributes:
        reasons: Why a node stays, by the name of its first tensor.
        verdict: How far the model that results is from float32, or None if it could not be run.
        trials: How many candidates were run.
    """

    reasons: dict[str, str] = field(default_factory=dict)
    verdict: Verdict | None = None
    trials: int = 0


def settle(
    model: ir.Model,
    chosen: Pass,
    *,
    tolerance: Tolerance,
    margin: float = 0.5,
    dims: Mapping[str, Sequence[int]] | None = None,
    feeds: Feeds | None = None,
    safety: Safety = "conditional",
    progress: Progress | None = None,
) -> tuple[Pass, Found]:
    """The pass with what must stay in float32 among its ``keep``, and why.

    Args:
        model: The model as it is before the pass; it is not changed.
        chosen: The pass: it has an option ``keep``, names joined by ``+``.
        tolerance: The gate.
        margin: Which share of it may be used: other inputs than those that are tried do worse.
        dims: Sizes to try, by the name of the symbolic dim; names that it lacks are ignored.
        feeds: Inputs of the user's, for ``model``; by default they are made.
        safety: What the passes before it keep, see :func:`graphfix.proof.verify.verify`.
        progress: Called with a short text at each step.
    """
    strict = dataclasses.replace(tolerance, max_abs=margin * tolerance.max_abs)
    search = _Search(model, chosen, strict, safety, progress or (lambda _: None))
    search.find_cases(dims or {}, feeds, all_of_them=margin < _USUAL)
    search.run()
    return search.made(search.found.reasons), search.found


class _Search:
    def __init__(
        self,
        model: ir.Model,
        chosen: Pass,
        tolerance: Tolerance,
        safety: Safety,
        progress: Progress,
    ) -> None:
        self._before = _copy(model)
        self._chosen, self._tolerance = chosen, tolerance
        self._safety, self._tell = safety, progress
        self._cases: list[Case] = []
        self._tried: list[Case] | None = None
        self._loaded: ir.Model | None = None
        self.found = Found()

    def find_cases(
        self, dims: Mapping[str, Sequence[int]], feeds: Feeds | None, *, all_of_them: bool
    ) -> None:
        """The inputs to try."""
        if feeds is not None:
            self._cases = [Case("feeds", {}, dict(full_lengths(self._before, feeds)))]
            self._tried = self._cases
            return
        names = {str(d) for x in self._before.graph.inputs for d in x.shape or ()}
        known = {name: sizes for name, sizes in dims.items() if name in names}
        self._cases = list(make_cases(self._before, dims=known or None))
        # Verification makes more, garbage in the padding among them, and takes longer.
        self._tried = None if all_of_them else self._cases

    def run(self) -> None:
        """Keep what must be kept."""
        if not self._load():
            return
        self._ranges()
        if self._passes(self.found.reasons):
            return
        for depth in range(_ROUNDS):
            if not (new := self._course(depth)):
                break
            self.found.reasons |= new
            if self._passes(self.found.reasons):
                self._give_back()
                return
        self._bisect()

    # Candidates

    def made(self, reasons: Mapping[str, str]) -> Pass:
        """The pass that keeps these as well."""
        given = getattr(self._chosen, "keep", "")
        names = [x for x in given.split("+") if x] + [_pattern(x) for x in reasons]
        keep = "+".join(dict.fromkeys(names))
        return dataclasses.replace(self._chosen, keep=keep)  # type: ignore[type-var]

    def _candidate(self, reasons: Mapping[str, str]) -> ir.Model:
        self.found.trials += 1
        copy = _copy(self._before)
        self.made(reasons)(copy)
        return copy

    def _passes(self, reasons: Mapping[str, str]) -> bool:
        self._tell(f"float16: trying with {len(reasons)} kept")
        self.found.verdict = self._verdict(reasons)
        return self.found.verdict.ok

    def _verdict(self, reasons: Mapping[str, str]) -> Verdict:
        candidate = self._candidate(reasons)
        verdict = verify(
            self._before,
            rounded(candidate),
            cases=self._tried,
            tolerance=self._tolerance,
            safety=self._safety,
            locate=False,
        )
        if not verdict.ok:
            return verdict
        return verify(
            self._before,
            candidate,
            cases=self._tried,
            tolerance=self._tolerance,
            safety=self._safety,
            map_feeds=self._chosen.feeds,
            may_change=("inputs", "outputs"),
            locate=False,
        )

    def _load(self) -> bool:
        """Whether the model loads; a node that ONNX Runtime has no kernel for stays."""
        for _ in range(_ROUNDS):
            candidate = self._candidate(self.found.reasons)
            try:
                Session(candidate, optimize=False).close()
            except ModelError as error:
                named = [x for x in self._nodes if x.name and x.name in str(error)]
                new = {_name(x): "ONNX Runtime does not load it in float16" for x in named}
                if not named or set(new) <= set(self.found.reasons):
                    return False
                self.found.reasons |= new
            else:
                self._loaded = candidate
                return True
        return False

    # What overflows

    def _ranges(self) -> None:
        self._tell("float16: ranges")
        for case in self._extremes():
            candidate = self._loaded or self._candidate(self.found.reasons)
            half = _halves(candidate)
            stream = self._stream(candidate, case)
            for name, ours, theirs in stream.pairs(self._shared(candidate)):
                gap = ranges.gap_of(name, ours, theirs)
                if gap is None:
                    continue
                if gap.lost or (name in half and ranges.is_near(ours)):
                    why = f"{name!r} reaches {gap.largest:.3g}"
                    if gap.lost:
                        why = f"{name!r} is beyond float16 at {gap.lost:,} places"
                    self._around(name, why)
                for node in self._takers.get(name, ()):
                    for why in ranges.inside(node, ours) if ranges.looks_inside(node) else ():
                        self.found.reasons.setdefault(_name(node), why)

    def _around(self, name: str, why: str) -> None:
        """What makes a tensor and what takes it."""
        maker = self._makers.get(name)
        for node in (*([maker] if maker is not None else ()), *self._takers.get(name, ())):
            if any(x.dtype == ir.DataType.FLOAT or x.dtype is None for x in node.outputs):
                self.found.reasons.setdefault(_name(node), why)

    def _extremes(self) -> list[Case]:
        """The largest case, and the shortest: padding is most of a row there."""
        clean = [x for x in self._cases if not x.poison] or self._cases
        by_size = sorted(clean, key=lambda case: sum(x.size for x in case.feeds.values()))
        return [by_size[-1]] if len(by_size) == 1 else [by_size[-1], by_size[0]]

    # The course of the error

    def _course(self, depth: int) -> dict[str, str]:
        """The nodes at which the error grows, with ``depth`` before them."""
        self._tell("float16: where the error grows")
        candidate = self._candidate(self.found.reasons)
        gaps: dict[str, Gap] = {}
        case = self._worst_case()
        for name, ours, theirs in self._stream(candidate, case).pairs(self._shared(candidate)):
            if (gap := ranges.gap_of(name, ours, theirs)) is not None:
                gaps[name] = gap
        grown = []
        for node in self._nodes:
            here = [gaps[x.name] for x in node.outputs if x.name in gaps]
            before = [gaps[x.name].error for x in node.inputs if x is not None and x.name in gaps]
            error = max((x.error for x in here), default=0.0)
            times = error / max([_ROUNDING, *before])
            if error > _SHARE * self._tolerance.max_abs and times > _GROWS:
                grown.append((times, node, error))
        grown.sort(key=lambda x: -x[0])
        found: dict[str, str] = {}
        for times, node, error in grown[: 4 << depth]:
            why = f"{_ERROR} {times:.2g} times, to {error:.2g} of the largest"
            for one in self._before_it(node, depth):
                found.setdefault(_name(one), why)
        return {name: why for name, why in found.items() if name not in self.found.reasons}

    def _before_it(self, node: ir.Node, depth: int) -> list[ir.Node]:
        found, edge = [node], [node]
        for _ in range(depth + 1):
            makers = (self._makers.get(x.name or "") for one in edge for x in one.inputs if x)
            edge = [x for x in makers if x is not None and x not in found]
            found += dict.fromkeys(edge)
        return found

    def _worst_case(self) -> Case:
        verdict = self.found.verdict
        worst = verdict.worst if verdict is not None else None
        named = [x for x in self._cases if worst is not None and x.name == worst.case]
        return (named or self._extremes())[0]

    # What helps for certain

    def _bisect(self) -> None:
        """The shortest beginning or end of the graph that must stay."""
        names = [_name(x) for x in self._nodes]
        self.found.reasons = {
            x: why for x, why in self.found.reasons.items() if not why.startswith(_ERROR)
        }
        best: list[str] | None = None
        for ordered, where in ((names, "before"), (names[::-1], "behind")):
            low, high = 0, len(ordered)
            if best is not None:
                high = len(best) - 1
                if not self._passes(self._with(ordered[:high])):
                    continue
            while low < high:
                middle = (low + high) // 2
                if self._passes(self._with(ordered[:middle])):
                    high = middle
                else:
                    low = middle + 1
            best, side = ordered[:high], where
        if best is not None:
            why = f"the gate is missed otherwise: all {side} {best[-1] if best else ''!r} stays"
            self.found.reasons = {**dict.fromkeys(best, why), **self.found.reasons}
            self._passes(self.found.reasons)

    def _with(self, names: Sequence[str]) -> dict[str, str]:
        return {**self.found.reasons, **dict.fromkeys(names, "")}

    def _give_back(self) -> None:
        """Let go of what is kept for the error's sake and does not help."""
        groups: dict[str, list[str]] = {}
        for name, why in self.found.reasons.items():
            if why.startswith(_ERROR):
                groups.setdefault(why, []).append(name)
        for names in [*groups.values()][:_GIVEN_BACK] if len(groups) > 1 else ():
            fewer = {x: why for x, why in self.found.reasons.items() if x not in names}
            verdict = self._verdict(fewer)
            if verdict.ok:
                self.found.reasons, self.found.verdict = fewer, verdict

    # The model

    @cached_property
    def _nodes(self) -> list[ir.Node]:
        return [
            x
            for x in nodes_of(self._before.graph)
            if x.op_type not in ("Constant", "Shape", "Size") and self._touches(x)
        ]

    def _touches(self, node: ir.Node) -> bool:
        known = shapes.shapes_of(self._before)
        values = (*node.inputs, *node.outputs)
        return any(known.dtype(x) in (ir.DataType.FLOAT, None) for x in values if x is not None)

    @cached_property
    def _makers(self) -> dict[str, ir.Node]:
        return {x.name: node for node in self._nodes for x in node.outputs if x.name}

    @cached_property
    def _takers(self) -> dict[str, list[ir.Node]]:
        found: dict[str, list[ir.Node]] = {}
        for node in self._nodes:
            for value in node.inputs:
                if value is not None and value.name:
                    found.setdefault(value.name, []).append(node)
        return found

    def _shared(self, candidate: ir.Model) -> list[str]:
        """Inner tensors that a candidate has as well: a needless Cast is gone."""
        theirs = {x.name for node in candidate.graph for x in node.outputs}
        return [x for x in self._tensors if x in theirs]

    @cached_property
    def _tensors(self) -> list[str]:
        """Inner tensors of the main graph that may hold floats."""
        known = shapes.shapes_of(self._before)
        return [
            value.name
            for node in self._before.graph
            for value in node.outputs
            if value.name
            and known.dtype(value) in (ir.DataType.FLOAT, None)
            and node.op_type != "Constant"
        ]

    def _stream(self, candidate: ir.Model, case: Case) -> Stream:
        before = Run(self._before, self._before, case.feeds)
        after = rounded(candidate)
        sizes = shapes.shapes_of(self._before)
        by_name = {x.name: x for node in self._before.graph for x in node.outputs}

        def size(name: str) -> int | None:
            dims = sizes.dims(by_name.get(name))
            if dims is None:
                return None
            count = 6
            for dim in dims:
                number = dim if isinstance(dim, int) else case.dims.get(str(dim.value))
                if number is None:
                    return None
                count *= number
            return count

        return Stream(before, Run(after, after, full_lengths(after, case.feeds)), size)


def _copy(model: ir.Model) -> ir.Model:
    copy = model.clone()
    shapes.forget(copy)
    if copy.functions:
        InlinePass()(copy)
    return copy


def _halves(model: ir.Model) -> set[str]:
    return {
        x.name
        for node in nodes_of(model.graph)
        for x in node.outputs
        if x.name and x.dtype == ir.DataType.FLOAT16
    }


def mark(model: ir.Model, reasons: Mapping[str, str]) -> None:
    """Write into the nodes why they stay."""
    for node in nodes_of(model.graph):
        if (why := reasons.get(_name(node))) is not None:
            node.metadata_props[KEPT] = why


def _name(node: ir.Node) -> str:
    return next((x.name for x in node.outputs if x.name), node.name or "")


def _pattern(name: str) -> str:
    """A name as ``keep`` takes it: what means something there becomes ``?``."""
    return re.sub(r"[,:+=\[\]*\s]", "?", name)
