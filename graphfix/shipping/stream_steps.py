"""Sequences of steps of a model that continues its states, run on the original."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import onnx_ir as ir

from graphfix.caches.growth import unify
from graphfix.errors import FeedError, UsageError
from graphfix.feeds.dim_groups import Tie
from graphfix.feeds.states import State
from graphfix.files import io
from graphfix.runtime.compared_session import open_given
from graphfix.runtime.port import Array, Feeds
from graphfix.runtime.run_errors import RunError
from graphfix.shipped.container_fit import DTYPES
from graphfix.shipped.dim_expression import names_in
from graphfix.shipped.in_front import last
from graphfix.shipped.manifest import InputPort
from graphfix.shipping.chosen_inputs import constants_of
from graphfix.shipping.container_spec import ContainerSpec
from graphfix.shipping.first_call import FirstCall, first_call
from graphfix.shipping.stream_plan import StreamPlan, plan

Run = Callable[[Feeds], Mapping[str, Array]]

# A mask is as long as past and new entries together, or as the new ones.
_TIES: tuple[Tie, ...] = ("past", "graph")
# Single steps of the longest sequence, at least.
SINGLE = 40


@dataclass(frozen=True)
class Steps:
    """One sequence of steps of the original.

    Attributes:
        name: What is special about it.
        states: What the states are at first; {} for empty caches.
        feeds: What each step is fed, states aside.
        outputs: What the original makes of each, states aside.
        skipped: How many of the first new entries of the first step are padding.
        beyond: What one step more is fed, which full caches refuse; {} if they roll.
    """

    name: str
    states: Feeds
    feeds: tuple[Feeds, ...]
    outputs: tuple[Feeds, ...]
    skipped: int = 0
    beyond: Feeds = field(default_factory=dict)


# Sequences of the original, and whether its full caches may roll.
Played = tuple[tuple[Steps, ...], bool]


class Sequences:
    """Sequences of steps, run on the original once.

    Args:
        plan: What is known of the model.
        run: Runs the original.
        seed: The same seed makes the same inputs.
    """

    def __init__(self, plan: StreamPlan, run: Run, seed: int = 0) -> None:
        self._plan = plan
        self._run = run
        self._random = np.random.default_rng(seed)
        self._links = {x.input: x for x in plan.states}
        self._kept = [x for x in plan.inputs if x.name in self._links]
        self._free = [x for x in plan.inputs if x.name not in self._links]
        self._sizes = dict(plan.containers[-1])
        given = {x.output for x in plan.states}
        self._seen_outputs = [x.name for x in plan.outputs if x.name not in given]

    def rolls(self) -> bool:
        """Whether nothing of the original reads what falls out of full caches."""
        if set(self._plan.caches) <= self._plan.windows.keys():
            return True
        size = max(self._sizes[x] for x in self._plan.caches)
        length = size + 5
        try:
            for new in sorted({1, self._plan.containers[-1][self._plan.new]}):
                feeds = self._fed(length, new)
                states = self._filled(length, self._random.standard_normal)
                other = {k: self._forgotten(k, x, size) for k, x in states.items()}
                one, two = (self._run({**feeds, **x}) for x in (states, other))
                if not all(map(np.array_equal, self._seen(one, size), self._seen(two, size))):
                    return False
        except (RunError, ValueError):
            return False
        return True

    def made(self, *, rolls: bool, joins: bool) -> Iterator[Steps]:
        """Each sequence in turn; where parts do not join, each step as a container has a size."""
        sizes = sorted({x[self._plan.new] for x in self._plan.containers})
        levels = self._levels()
        grows = bool(self._plan.caches) and not rolls
        full = levels[-1] if grows else 4 * SINGLE

        def held(counts: Sequence[int], length: int = 0) -> list[int]:
            """The steps that caches hold, up to the first that they do not, behind so many."""
            ends = zip(counts, accumulate(counts), strict=True)
            return [n for n, end in ends if not grows or length + end <= full]

        counts = self._long(levels, full, rolls) if joins else [sizes[-1]] + [sizes[0]] * SINGLE
        first = self.sequence("to the end of the caches", held(counts))
        taken = sum(held(counts))
        step = 1 if joins else sizes[0]
        beyond = self._given(self._fed(taken, step)) if grows and taken + step > full else {}
        yield replace(first, beyond=beyond)
        if not joins:
            yield self.sequence("each size", held([*sizes, *reversed(sizes)]))
            return
        for count in sorted({1, sizes[-1] + 3, 2 * sizes[-1] - 1}):
            if count <= full or rolls:
                yield self.sequence(f"a prompt of {count}", [count])
                yield self.sequence(f"steps behind a prompt of {count}", held([count, 1, 1]))
        few = max(1, min(7, full - 4))
        if self._plan.caches:
            made = self._run({**self._fed(0, few), **self.empty()})
            states = {x.input: made[x.output] for x in self._plan.states}
            yield self.sequence(f"going on behind {few}", held([1, 1, 1], few), states, few)
        if self._masks() and full > 6:
            yield self.sequence("prompts filled up on the left", [4, 1, 1], skipped=2)
        if any(names_in(d) & {*self._plan.held} for x in self._free for d in x.dims):
            yield self.sequence("shorter caches of the encoder", held([2, 1]), shorter=True)

    def _levels(self) -> list[int]:
        grows = self._plan.caches
        return sorted({min(x[d] for d in grows) for x in self._plan.containers if grows}) or [0]

    def _long(self, levels: Sequence[int], full: int, rolls: bool) -> list[int]:
        first = max(1, min(37, levels[0] // 3 or 1))
        steps, length = [first], first
        single = min(SINGLE, max(0, full - length)) if not rolls else SINGLE
        for level in levels:
            ahead = level - 3 - length - (single if level == full else 0)
            if ahead > 1:
                steps.append(ahead)
                length += ahead
            for _ in range(6 if level != full else single):
                if length < full or rolls:
                    steps.append(1)
                    length += 1
        if not rolls:
            steps += [1] * max(0, full - length)
        return steps

    # One sequence

    def sequence(
        self,
        name: str,
        counts: Sequence[int],
        states: Feeds | None = None,
        length: int = 0,
        *,
        skipped: int = 0,
        shorter: bool = False,
    ) -> Steps:
        """One sequence of steps that add so many entries each.

        Args:
            name: What is special about it.
            counts: How many new entries each step adds.
            states: What the states are at first; empty caches and zeros by default.
            length: How many entries they hold.
            skipped: How many of the first new entries are padding, in all rows but the first.
            shorter: Whether caches that do not grow are shorter than containers hold.

        Raises:
            FeedError: The original does not run the first step.
            UsageError: It does not run another.
        """
        state = dict(states or self.empty())
        feeds, outputs = [], []
        first = self._plan.first
        kept: dict[str, Array] = {}
        for place, count in enumerate(counts):
            last = place == len(counts) - 1
            fed = self._fed(length, count, skipped, shorter=shorter, last=last) | kept
            called: Feeds = {}
            try:
                if first is not None and not place:
                    kept |= self._encoded(first, fed, shorter=shorter)
                    called = {} if states else first.feeds()
                made = self._run({**fed, **kept, **state, **called})
            except RunError as error:
                if not place:
                    raise FeedError(
                        f"the original does not run {count} new entries behind {length}: {error}"
                    ) from error
                most = ", ".join(f"{x}={self._sizes[x]}" for x in self._plan.caches)
                raise UsageError(
                    f"the original does not run behind {length} entries, so caches of {most} "
                    f"cannot be proved; say --cache {length} ({error})"
                ) from error
            if not place:
                kept = {k: x for k, x in fed.items() if self._is_steady(k)} | kept
            state = {x.input: made[x.output] for x in self._plan.states}
            grown = (state[x.input].shape[x.axis] for x in self._plan.states if x.axis is not None)
            length = next(grown, length + count)
            feeds.append(self._given(fed))
            outputs.append({k: made[k] for k in self._seen_outputs})
        return Steps(name, states or {}, tuple(feeds), tuple(outputs), skipped)

    def _encoded(self, first: FirstCall, fed: Feeds, *, shorter: bool) -> dict[str, Array]:
        """What the first call makes of the encoder's output."""
        fed = self._fed(0, 1, shorter=shorter) | {x.name: fed[x.name] for x in first.inputs}
        made = self._run({**fed, **self.empty(), **first.feeds()})
        return {into: made[name] for into, name in first.gives.items()}

    def _given(self, fed: Feeds) -> Feeds:
        """What a stream is fed: it makes itself what the first call gives."""
        made = self._plan.first.gives if self._plan.first else {}
        return {k: x for k, x in fed.items() if k not in made}

    def _is_steady(self, name: str) -> bool:
        used = {n for d in next(x for x in self._free if x.name == name).dims for n in names_in(d)}
        return bool(used & {*self._plan.held}) and not used & {self._plan.new, *self._plan.caches}

    def _fed(
        self, length: int, new: int, skipped: int = 0, *, shorter: bool = False, last: bool = False
    ) -> dict[str, Array]:
        sizes = {**self._sizes, **dict.fromkeys(self._plan.caches, length), self._plan.new: new}
        if shorter:
            sizes |= {x: max(1, sizes[x] - 2) for x in self._plan.held}
        return {x.name: self._array(x, sizes, length, skipped, last=last) for x in self._free}

    def _array(
        self, port: InputPort, sizes: Mapping[str, int], length: int, skipped: int, *, last: bool
    ) -> Array:
        shape = port.shape(sizes)
        if self._plan.first and port in self._plan.first.ports():
            return self._random.standard_normal(shape).astype(DTYPES[port.type])
        item = self._plan.signature.item(port.name).at(sizes)
        role, dtype = item.role, np.dtype(item.dtype)
        steps = shape[-1] if shape and self._plan.new in names_in(port.dims[-1]) else 0
        if role.kind == "tokens":
            return self._random.integers(role.low, role.high, shape).astype(dtype)
        if role.kind == "positions" and steps:
            places = np.arange(length, length + steps) - self._pads(shape, skipped)
            return np.broadcast_to(np.maximum(places, 0), shape).astype(dtype)
        if role.kind == "mask":
            mask = np.full(shape, role.valid, dtype)
            if any({*self._plan.caches} & names_in(x) for x in port.dims[-1:]):
                for row in range(len(mask)):
                    mask[row, ..., : int(self._pads(shape, skipped)[row, 0])] = role.padded
            return mask
        if role.kind in ("choice", "int", "lengths"):
            choices = [*role.choices] or [0, 1] if role.kind == "choice" else [role.low]
            return np.full(shape, choices[-1 if last else 0], dtype)
        if dtype.kind == "b":
            return np.full(shape, last, dtype)
        if dtype.kind == "f":
            return self._random.standard_normal(shape).astype(dtype)
        return self._random.integers(role.low, max(role.low + 1, min(role.high, 2)), shape, dtype)

    def _pads(self, shape: Sequence[int], skipped: int) -> Array:
        """How much of each row is padding: all of it in the last row, none in the first of many."""
        rows = shape[0] if len(shape) > 1 else 1
        pads = np.full((rows, 1), skipped)
        if rows > 1:
            pads[0] = 0
        return pads

    def _masks(self) -> bool:
        masks = (x for x in self._free if x.kind == "mask" and x.dims)
        return any({*self._plan.caches} & names_in(x.dims[-1]) for x in masks)

    # States

    def empty(self) -> dict[str, Array]:
        """Empty caches, and zeros for every other state."""
        return self._filled(0, np.zeros)

    def before(self) -> dict[str, Array]:
        """What the first step of the original is fed besides: no caches of an encoder either."""
        first = self._plan.first
        if first is None:
            return self.empty()
        unread = {k: x for k, x in self._fed(0, 1).items() if k in first.gives}
        return {**self.empty(), **unread, **first.feeds()}

    def _filled(self, length: int, make: Callable[[tuple[int, ...]], Array]) -> dict[str, Array]:
        """States behind so many entries, of the numbers that ``make`` gives."""
        sizes = {**self._sizes, **dict.fromkeys(self._plan.caches, length)}
        item = self._plan.signature.item
        return {x.name: make(x.shape(sizes)).astype(item(x.name).dtype) for x in self._kept}

    def _forgotten(self, name: str, array: Array, size: int) -> Array:
        axis = self._links[name].axis
        if axis is None:
            return array
        other = array.copy()
        other[(slice(None),) * axis + (slice(0, -size),)] *= -50
        return other

    def _seen(self, made: Mapping[str, Array], size: int) -> Iterator[Array]:
        axes = {x.output: x.axis for x in self._plan.states}
        for name, array in made.items():
            axis = axes.get(name)
            yield array if axis is None else last(array, axis, size)


def plan_that_runs(
    source: Path,
    model: ir.Model,
    containers: ContainerSpec,
    cache: Sequence[int],
    states: Iterable[State],
) -> tuple[StreamPlan, Feeds, Tie]:
    """What is known of a model, what its file is fed besides, and how long its masks are.

    Args:
        source: The file.
        model: The model, without inputs that are constants; what only the first call of the file
            reads is removed from it.
        containers: The sizes of its dims but those of caches.
        cache: The sizes of caches.
        states: States that the user names.

    Raises:
        UsageError: A size is missing, or the model continues no states.
    """
    constants = constants_of(source, model)
    states = tuple(states)
    first = first_call(io.load(source), model)
    for tie in _TIES:
        copy = model.clone()
        signature = unify(copy, tie)
        names = {x: signature.group(x) for x in signature.symbols()}
        found = plan(copy, containers.renamed(names), cache, states)
        if first is not None:
            known = first.renamed(names)
            found = replace(found, first=known, inputs=(*found.inputs, *known.ports()))
        if _runs(found, str(source), constants):
            break
    return found, constants, tie


def _runs(plan: StreamPlan, source: str, constants: Feeds) -> bool:
    """Whether the original takes the inputs that a plan makes."""
    size = min(x[plan.new] for x in plan.containers)
    with open_given(source) as session:
        made = Sequences(plan, lambda feeds: session.run({**constants, **feeds}))
        try:
            made.sequence("a try", [size, size])
        except (FeedError, UsageError):
            return False
    return True


def sequences(
    plan: StreamPlan, source: str, constants: Feeds, *, joins: bool = True, may_roll: bool = True
) -> Played:
    """Sequences of the original, and whether its full caches may roll.

    Args:
        plan: What is known of the model.
        source: Its file.
        constants: What the file is fed besides.
        joins: Whether many new entries are run in parts.
        may_roll: Whether full caches roll if nothing of the original reads what falls out.

    Raises:
        FeedError: It does not run.
        UsageError: It does not run with as many entries as the caches are to hold.
    """
    with open_given(source) as session:
        made = Sequences(plan, lambda feeds: session.run({**constants, **feeds}))
        rolls = may_roll and bool(plan.caches) and made.rolls()
        return tuple(made.made(rolls=rolls, joins=joins)), rolls
