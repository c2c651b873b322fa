"""Sequences of steps of a model that continues its states, run on the original."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import onnx_ir as ir

from graphfix.cache_axes.growth import unify_dims
from graphfix.errors import FeedError, UsageError
from graphfix.facts.symbolic.expressions import Dim, replace_symbols
from graphfix.feeds.dim_groups import Tie
from graphfix.feeds.graph_uses import is_only_counted
from graphfix.feeds.input import Input
from graphfix.feeds.states import StatePair
from graphfix.files import io
from graphfix.files.model_input import PathOrModel
from graphfix.runtime.compared_session import open_original
from graphfix.runtime.port import Array, Feeds
from graphfix.runtime.run_errors import RunError
from graphfix.shipped.chunks import largest_takeable
from graphfix.shipped.container_fit import DTYPES
from graphfix.shipped.in_front import last_entries
from graphfix.shipped.manifest import InputPort
from graphfix.shipping.chosen_inputs import constants_of
from graphfix.shipping.container_spec import ContainerSpec
from graphfix.shipping.dim_expression import names_in, shape_of
from graphfix.shipping.first_call import FirstCall, find_first_call
from graphfix.shipping.stream_plan import StreamPlan, plan_stream

Run = Callable[[Feeds], Mapping[str, Array]]

# A mask is as long as past and new entries together, or as the new ones.
_TIES: tuple[Tie, ...] = ("past", "graph")
# Single steps of the longest sequence, at least.
SINGLE = 40
# An input that says how much came before.
_COUNTS_EARLIER = re.compile("offset|past|prev|start|pos|cache|seen|processed|history|step", re.I)


@dataclass(frozen=True)
class StepSequence:
    """A sequence of steps of the original, with its outputs.

    Attributes:
        name: What the sequence tests.
        states: The initial states; {} for empty caches.
        feeds: The feeds of each step, without states.
        outputs: The original's outputs of each step, without states.
        padded_entries: How many of the first new entries of the first step are padding.
        overflow_feeds: The feeds of one more step, which full caches refuse; {} if they roll.
        shorter: Whether caches that do not grow are shorter than containers hold.
    """

    name: str
    states: Feeds
    feeds: tuple[Feeds, ...]
    outputs: tuple[Feeds, ...]
    padded_entries: int = 0
    overflow_feeds: Feeds = field(default_factory=dict)
    shorter: bool = False


# Sequences of the original, and whether its full caches may roll.
PlayedSequences = tuple[tuple[StepSequence, ...], bool]


@dataclass(frozen=True)
class _CacheLimit:
    """How many entries the steps of a sequence may add.

    Attributes:
        entries: How many entries the caches hold; a usual number if they are not bounded.
        bounded: Whether full caches refuse a step: they grow, and do not roll.
    """

    entries: int
    bounded: bool

    def fitting_counts(self, counts: Sequence[int], length: int = 0) -> list[int]:
        """Return the leading counts that still fit into caches that hold ``length`` entries."""
        ends = zip(counts, accumulate(counts), strict=True)
        return [n for n, end in ends if not self.bounded or length + end <= self.entries]


class SequenceRunner:
    """Makes sequences of steps, and runs each on the original once.

    Args:
        plan: The plan of the model.
        run: Runs the original.
        seed: The same seed makes the same inputs.
    """

    def __init__(self, plan: StreamPlan, run: Run, seed: int = 0) -> None:
        self._plan = plan
        self._run = run
        self._random = np.random.default_rng(seed)
        self._state_links = {x.input: x for x in plan.states}
        self._state_ports = [x for x in plan.inputs if x.name in self._state_links]
        self._free_ports = [x for x in plan.inputs if x.name not in self._state_links]
        self._sizes = dict(plan.containers[-1])
        state_outputs = {x.output for x in plan.states}
        self._free_outputs = [x.name for x in plan.outputs if x.name not in state_outputs]

    def can_roll(self) -> bool:
        """Return whether the original ignores what falls out of full caches."""
        if set(self._plan.caches) <= self._plan.windows.keys():
            return True
        size = max(self._sizes[x] for x in self._plan.caches)
        length = size + 5
        try:
            for new in sorted({1, self._plan.containers[-1][self._plan.new]}):
                feeds = self._make_feeds(length, new)
                states = self._make_states(length, self._random.standard_normal)
                scrambled = {k: self._scramble_oldest(k, x, size) for k, x in states.items()}
                expected, actual = (self._run({**feeds, **x}) for x in (states, scrambled))
                if not all(
                    map(
                        np.array_equal,
                        self._newest_entries(expected, size),
                        self._newest_entries(actual, size),
                    )
                ):
                    return False
        except (RunError, ValueError):
            return False
        return True

    def iter_sequences(self, *, rolls: bool, joins: bool) -> Iterator[StepSequence]:
        """Yield each sequence; if steps cannot be split, every step has a container's size."""
        # In new entries: a subsampling encoder adds one of a cache for several of its frames.
        levels = [n * self._new_per_entry() for n in self._cache_levels()]
        bounded = bool(self._plan.caches) and not rolls
        limit = _CacheLimit(levels[-1] if bounded else 4 * SINGLE, bounded)
        sizes = sorted({x[self._plan.new] for x in self._plan.containers})

        def takeable(*counts: int) -> list[int]:
            return [largest_takeable(x, sizes, joins=joins) for x in counts]

        capacity = levels[-1] if self._plan.caches else limit.entries
        counts = self._counts_up_to_capacity(levels, capacity, rolls)
        if not joins:
            counts = [sizes[-1]] + [sizes[0]] * SINGLE
        longest = self._fill_caches(takeable(*counts), sizes[0], limit)
        yield longest
        if len(longest.feeds) < len(takeable(*counts)) and not bounded:
            # The original itself refuses more, as where it writes into caches of one size.
            limit = _CacheLimit(sum(takeable(*counts)[: len(longest.feeds)]), bounded=True)
        if not joins:
            yield self.run_sequence("each size", limit.fitting_counts([*sizes, *reversed(sizes)]))
        for count in sorted({*takeable(1, sizes[-1] + 3, 2 * sizes[-1] - 1)}):
            if count <= limit.entries or not limit.bounded:
                yield self.run_sequence(f"a prompt of {count}", [count])
                steps = limit.fitting_counts(takeable(count, 1, 1))
                yield self.run_sequence(f"steps behind a prompt of {count}", steps)
        if {*self._plan.caches} - {*self._plan.counted}:
            length = max(1, min(7, limit.entries - 4))
            prompt_parts = [sizes[0]] if self._plan.step_is_fixed else [length]
            counts = limit.fitting_counts(takeable(1, 1, 1), sum(prompt_parts))
            yield self._continue_prompt(prompt_parts, counts)
        prompt = 4 if joins and sizes[0] <= 4 else sizes[-1]
        if self._has_cache_mask() and prompt > 2 and limit.entries > prompt + 2:
            counts = limit.fitting_counts(takeable(prompt, 1, 1))
            yield self.run_sequence("prompts filled up on the left", counts, padded_entries=2)
        if any(names_in(d) & {*self._plan.fixed_caches} for x in self._free_ports for d in x.dims):
            counts = limit.fitting_counts(takeable(2, 1))
            yield self.run_sequence("shorter caches of the encoder", counts, shorter=True)

    def _fill_caches(self, counts: Sequence[int], step: int, limit: _CacheLimit) -> StepSequence:
        """Return the sequence that fills the caches, and one more step that they must refuse."""
        counts = limit.fitting_counts(counts)
        sequence = self.run_sequence("to the end of the caches", counts)
        if not limit.bounded or sum(counts) + step <= limit.entries:
            return sequence
        overflow_feeds = self._drop_first_call_outputs(self._make_feeds(sum(counts), step))
        return replace(sequence, overflow_feeds=overflow_feeds)

    def _continue_prompt(self, parts: Sequence[int], counts: Sequence[int]) -> StepSequence:
        """Return steps behind the states that a prompt, in these parts, gives on the original."""
        states, length = self.empty_states(), 0
        for count in parts:
            outputs = self._run({**self._make_feeds(length, count), **states})
            states = {x.input: outputs[x.output] for x in self._plan.states}
            length = self._length_of(states, length + count)
        return self.run_sequence(f"going on behind {length}", counts, states, length)

    def _new_per_entry(self) -> int:
        """Return how many new entries the model takes for each that it adds to a cache."""
        step = min(x[self._plan.new] for x in self._plan.containers)
        sizes = {**self._sizes, **dict.fromkeys(self._plan.caches, 0), self._plan.new: step}
        outputs = {x.name: x for x in self._plan.outputs}
        added = (
            shape_of(outputs[x.output], sizes)[x.axis]
            for x in self._plan.states
            if x.axis is not None
        )
        return step // next((n for n in added if n), step)

    def _cache_levels(self) -> list[int]:
        grows = self._plan.caches
        return sorted({min(x[d] for d in grows) for x in self._plan.containers if grows}) or [0]

    def _counts_up_to_capacity(
        self, levels: Sequence[int], capacity: int, rolls: bool
    ) -> list[int]:
        first = max(1, min(37, levels[0] // 3 or 1))
        steps, length = [first], first
        single = min(SINGLE, max(0, capacity - length)) if not rolls else SINGLE
        for level in levels:
            ahead = level - 3 - length - (single if level == capacity else 0)
            if ahead > 1:
                steps.append(ahead)
                length += ahead
            for _ in range(6 if level != capacity else single):
                if length < capacity or rolls:
                    steps.append(1)
                    length += 1
        if not rolls:
            steps += [1] * max(0, capacity - length)
        return steps

    # One sequence

    def run_sequence(
        self,
        name: str,
        counts: Sequence[int],
        states: Feeds | None = None,
        length: int = 0,
        *,
        padded_entries: int = 0,
        shorter: bool = False,
    ) -> StepSequence:
        """Run the original on steps that each add a number of entries.

        Args:
            name: What the sequence tests.
            counts: How many new entries each step adds.
            states: The initial states; empty caches and zeros by default.
            length: How many entries they hold.
            padded_entries: How many of the first new entries are padding, except in the first row.
            shorter: Whether caches that do not grow are shorter than containers hold.

        Raises:
            FeedError: The original does not run the first step.
            UsageError: It does not run another, although caches are to hold as many.
        """
        state = dict(states or self.empty_states())
        feeds, outputs = [], []
        first = self._plan.first
        steady_feeds: dict[str, Array] = {}
        for index, count in enumerate(counts):
            last = index == len(counts) - 1
            step_feeds = (
                self._make_feeds(length, count, padded_entries, shorter=shorter, last=last)
                | steady_feeds
            )
            first_call_feeds: Feeds = {}
            try:
                if first is not None and not index:
                    steady_feeds |= self._run_first_call(first, step_feeds, shorter=shorter)
                    first_call_feeds = {} if states else first.branch_feeds()
                results = self._run({**step_feeds, **steady_feeds, **state, **first_call_feeds})
            except RunError as error:
                if index and not self._plan.caches:
                    break
                raise self._step_error(error, length, count, first=not index) from error
            if not index:
                steady_feeds = {
                    k: x for k, x in step_feeds.items() if self._is_steady(k)
                } | steady_feeds
            state = {x.input: results[x.output] for x in self._plan.states}
            length = self._length_of(state, length + count)
            feeds.append(self._drop_first_call_outputs(step_feeds))
            outputs.append({k: results[k] for k in self._free_outputs})
        return StepSequence(
            name, states or {}, tuple(feeds), tuple(outputs), padded_entries, shorter=shorter
        )

    def _length_of(self, states: Feeds, counted: int) -> int:
        """Return how many entries the caches hold; ``counted`` where no state says it."""
        lengths = (states[x.input].shape[x.axis] for x in self._plan.states if x.axis is not None)
        return next(lengths, counted)

    def _step_error(
        self, error: RunError, length: int, count: int, *, first: bool
    ) -> FeedError | UsageError:
        """Return the error of a step of ``count`` entries behind ``length`` that does not run."""
        if first:
            return FeedError(
                f"the original does not run {count} new entries behind {length}: {error}"
            )
        most = ", ".join(f"{x}={self._sizes[x]}" for x in self._plan.caches)
        return UsageError(
            f"the original does not run behind {length} entries, so caches of {most} "
            f"cannot be proved; say --cache {length} ({error})"
        )

    def _run_first_call(self, first: FirstCall, feeds: Feeds, *, shorter: bool) -> dict[str, Array]:
        """Return the caches that the first call computes from the encoder's output."""
        feeds = self._make_feeds(0, 1, shorter=shorter) | {
            x.name: feeds[x.name] for x in first.inputs
        }
        outputs = self._run({**feeds, **self.empty_states(), **first.branch_feeds()})
        return {into: outputs[name] for into, name in first.gives.items()}

    def _drop_first_call_outputs(self, feeds: Feeds) -> Feeds:
        """Return the feeds of a stream: without what the first call computes."""
        first_call_outputs = self._plan.first.gives if self._plan.first else {}
        return {k: x for k, x in feeds.items() if k not in first_call_outputs}

    def _is_steady(self, name: str) -> bool:
        dims = {
            n for d in next(x for x in self._free_ports if x.name == name).dims for n in names_in(d)
        }
        return bool(dims & {*self._plan.fixed_caches}) and not dims & {
            self._plan.new,
            *self._plan.caches,
        }

    def _make_feeds(
        self,
        length: int,
        new: int,
        padded_entries: int = 0,
        *,
        shorter: bool = False,
        last: bool = False,
    ) -> dict[str, Array]:
        sizes = {**self._sizes, **dict.fromkeys(self._plan.caches, length), self._plan.new: new}
        if shorter:
            sizes |= {x: max(1, sizes[x] - 2) for x in self._plan.fixed_caches}
        return {
            x.name: self._make_array(x, sizes, length, padded_entries, last=last)
            for x in self._free_ports
        }

    def _make_array(
        self,
        port: InputPort,
        sizes: Mapping[str, int],
        length: int,
        padded_entries: int,
        *,
        last: bool,
    ) -> Array:
        shape = shape_of(port, sizes)
        if self._plan.first and port in self._plan.first.input_ports():
            return self._random.standard_normal(shape).astype(DTYPES[port.type])
        item = self._plan.signature.input_named(port.name).bounded_by_sizes(sizes)
        role, dtype = item.role, np.dtype(item.dtype)
        if role.kind == "tokens" and self._counts_earlier(item):
            return np.full(shape, length, dtype)
        if role.kind == "tokens":
            return self._random.integers(role.low, role.high, shape).astype(dtype)
        if role.kind == "positions":
            steps = np.arange(shape[-1]) if self._has_each_entry(port) else np.int64(0)
            # One position for all rows counts every entry.
            padding = padded_entries if len(shape) > 1 else 0
            positions = length + steps - self._padding_per_row(port, shape, padding)
            return np.broadcast_to(np.maximum(positions, 0), shape).astype(dtype)
        if role.kind == "mask":
            mask = np.full(shape, role.valid, dtype)
            return self._mask_padding(mask, port, padded_entries, role.padded)
        if role.kind == "relative-lengths":
            return np.ones(shape, dtype)
        if role.kind in ("choice", "int", "lengths"):
            choices = [*role.choices] or [0, 1] if role.kind == "choice" else [role.low]
            number = choices[-1 if last else 0]
            if role.kind != "choice":
                number = self._number_for(item, sizes, length, number)
            return np.full(shape, number, dtype)
        if dtype.kind == "b":
            return np.full(shape, last, dtype)
        if dtype.kind == "f":
            return self._random.standard_normal(shape).astype(dtype)
        return self._random.integers(role.low, max(role.low + 1, min(role.high, 2)), shape, dtype)

    def _has_each_entry(self, port: InputPort) -> bool:
        """Return whether the last axis of an input has the new entries."""
        if not port.dims or len(port.dims) - 1 == port.rows:
            return False
        return self._plan.step_is_fixed or self._plan.new in names_in(port.dims[-1])

    def _counts_earlier(self, item: Input) -> bool:
        """Return whether an input is a number that says how much came before, as an offset."""
        is_number = not any(x != 1 for x in item.dims) or item.role.kind != "tokens"
        return is_number and self._plan.counts_entries and bool(_COUNTS_EARLIER.search(item.name))

    def _number_for(self, item: Input, sizes: Mapping[str, int], length: int, usual: int) -> int:
        """Return what an input is fed that is one number, or one for each row.

        The length of what it is beside, such as an encoder's output; where its name says that it
        counts what came before, the number of earlier entries.
        """
        if self._counts_earlier(item):
            return length
        group = self._plan.signature.time_of(item) if item.role.kind == "lengths" else None
        return sizes.get(group or "", usual)

    def _mask_padding(
        self, mask: Array, port: InputPort, padded_entries: int, padded: float
    ) -> Array:
        """Set the padding in front to ``padded`` in a mask that is as long as the caches."""
        if self._covers_caches(port) and padded_entries:
            places = np.arange(mask.shape[-1])
            is_padding = places < self._padding_per_row(port, mask.shape, padded_entries)
            mask[np.broadcast_to(is_padding, mask.shape)] = padded
        return mask

    def _padding_per_row(self, port: InputPort, shape: Sequence[int], padded_entries: int) -> Array:
        """Return the padding of each row: none in the first of several, all of it in the others.

        Its shape is 1, except along the axis of the rows.
        """
        axes = [1] * len(shape)
        rows = port.rows if port.rows is not None else 0
        if len(shape) > 1:
            axes[rows] = shape[rows]
        pads = np.full(axes, padded_entries)
        if pads.size > 1:
            pads.reshape(-1)[0] = 0
        return pads

    def _has_cache_mask(self) -> bool:
        """Return whether a mask that is as long as the caches may hide their first entries."""
        values = {x.name: x for x in self._plan.signature.model.graph.inputs}
        masks = [x for x in self._free_ports if x.kind == "mask" and self._covers_caches(x)]
        return any(not is_only_counted(values[x.name]) for x in masks)

    def _covers_caches(self, port: InputPort) -> bool:
        """Return whether the last axis of an input is as long as a growing cache."""
        return any({*self._plan.caches} & names_in(x) for x in port.dims[-1:])

    # States

    def empty_states(self) -> dict[str, Array]:
        """Return empty caches, and zeros for every other state."""
        return self._make_states(0, np.zeros)

    def initial_feeds(self) -> dict[str, Array]:
        """Return the states and caches that the original is fed in its first step."""
        first = self._plan.first
        if first is None:
            return self.empty_states()
        unread = {k: x for k, x in self._make_feeds(0, 1).items() if k in first.gives}
        return {**self.empty_states(), **unread, **first.branch_feeds()}

    def _make_states(
        self, length: int, make: Callable[[tuple[int, ...]], Array]
    ) -> dict[str, Array]:
        """Return states of ``length`` entries, whose numbers ``make`` makes."""
        sizes = {**self._sizes, **dict.fromkeys(self._plan.caches, length)}
        item = self._plan.signature.input_named
        return {
            x.name: make(shape_of(x, sizes)).astype(item(x.name).dtype) for x in self._state_ports
        }

    def _scramble_oldest(self, name: str, array: Array, size: int) -> Array:
        axis = self._state_links[name].axis
        if axis is None:
            return array
        scrambled = array.copy()
        scrambled[(slice(None),) * axis + (slice(0, -size),)] *= -50
        return scrambled

    def _newest_entries(self, outputs: Mapping[str, Array], size: int) -> Iterator[Array]:
        axes = {x.output: x.axis for x in self._plan.states}
        for name, array in outputs.items():
            axis = axes.get(name)
            yield array if axis is None else last_entries(array, axis, size)


def choose_running_plan(
    source: Path,
    model: ir.Model,
    containers: ContainerSpec,
    cache: Sequence[int],
    states: Iterable[StatePair],
    axis: str = "",
) -> tuple[StreamPlan, Feeds, Tie]:
    """Return the plan whose inputs the model accepts, its constant feeds and its mask length.

    Args:
        source: The file.
        model: The model, without inputs that are constants; what only the first call of the file
            reads is removed from it.
        containers: The sizes of its dims but those of caches.
        cache: The sizes of caches.
        states: States that the user names.
        axis: The dim of the entries that each step adds, if several could be.

    Raises:
        UsageError: A size is missing, or the model continues no states.
    """
    constants = constants_of(source, model)
    states = tuple(states)
    first = find_first_call(io.load(source), model)
    for tie in _TIES:
        copy = model.clone()
        signature = unify_dims(copy, tie)
        names = {x: signature.group_of(x) for x in signature.symbols()}
        own_names: dict[str, Dim] = {
            signature.user_name(x): ir.SymbolicDim(group)
            for x, group in names.items()
            if x not in signature.derived
        }
        declared = {
            x.name or "": tuple(replace_symbols(dim, own_names) for dim in x.shape)
            for x in model.graph.outputs
            if x.shape is not None
        }
        chosen = plan_stream(
            copy, containers.rename_dims(names), cache, states, names.get(axis, axis), declared
        )
        if first is not None:
            renamed_first = first.rename_dims(names)
            chosen = replace(
                chosen, first=renamed_first, inputs=(*chosen.inputs, *renamed_first.input_ports())
            )
        for plan in (chosen, replace(chosen, counts_entries=False)):
            if _accepts_inputs(plan, str(source), constants):
                return plan, constants, tie
    return chosen, constants, tie


def _accepts_inputs(plan: StreamPlan, source: str, constants: Feeds) -> bool:
    """Return whether the original accepts the inputs that a plan makes."""
    size = min(x[plan.new] for x in plan.containers)
    with open_original(source) as session:
        runner = SequenceRunner(plan, lambda feeds: session.run({**constants, **feeds}))
        try:
            runner.run_sequence("a try", [size, size])
        except (FeedError, UsageError):
            return False
    return True


def run_sequences(
    plan: StreamPlan,
    source: PathOrModel,
    constants: Feeds,
    *,
    joins: bool = True,
    may_roll: bool = True,
) -> PlayedSequences:
    """Run all sequences on the original; return them, and whether full caches may roll.

    Args:
        plan: What is known of the model.
        source: Its file, or a copy that takes the same.
        constants: What the file is fed besides.
        joins: Whether many new entries are run in parts.
        may_roll: Whether full caches roll if nothing of the original reads what falls out.

    Raises:
        FeedError: It does not run.
        UsageError: It does not run with as many entries as the caches are to hold.
    """
    with open_original(source) as session:
        runner = SequenceRunner(plan, lambda feeds: session.run({**constants, **feeds}))
        # Where a mask alone counts entries, it would count on.
        rolls = may_roll and bool(plan.caches) and not plan.counted and runner.can_roll()
        return tuple(runner.iter_sequences(rolls=rolls, joins=joins)), rolls
