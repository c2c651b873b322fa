"""The proof of a stream: step by step against the original, whose caches grow."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from graphfix.errors import FeedError, UsageError
from graphfix.proof.compare import compare
from graphfix.runtime.compared_session import open_given, open_session
from graphfix.runtime.isolated_call import call
from graphfix.runtime.provider import LABELS
from graphfix.runtime.run_errors import RunError
from graphfix.runtime.time_limits import run_seconds
from graphfix.ship.dim_expression import names_in, size_of
from graphfix.ship.end_to_end import SessionProof
from graphfix.ship.manifest import Manifest
from graphfix.ship.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from graphfix.proof.compare import OutputDiff, Tolerance
    from graphfix.runtime.port import Array
    from graphfix.runtime.provider import Ep
    from graphfix.ship.manifest import Container, InputPort
    from graphfix.ship.stream_plan import StreamPlan

    Feeds = Mapping[str, Array]
    Run = Callable[[Feeds], Mapping[str, Array]]

_APART = "graphfix.ship.isolated_session"
_SECONDS = 600.0
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
        self._free = [x for x in plan.inputs if x.name not in self._links]
        self._sizes = dict(plan.containers[-1])
        self._held_feeds: Feeds = {}
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
                states = self._random_states(length)
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
            return _within(counts, full, length) if grows else [*counts]

        counts = self._long(levels, full, rolls) if joins else [sizes[-1]] + [sizes[0]] * SINGLE
        first = self._sequence("to the end of the caches", held(counts))
        taken = sum(held(counts))
        step = 1 if joins else sizes[0]
        beyond = self._fed(taken, step) if grows and taken + step > full else {}
        yield replace(first, beyond=beyond)
        if not joins:
            yield self._sequence("each size", held([*sizes, *reversed(sizes)]))
            return
        for count in sorted({1, sizes[-1] + 3, 2 * sizes[-1] - 1}):
            if count <= full or rolls:
                yield self._sequence(f"a prompt of {count}", [count])
                more = held([count, 1, 1])
                yield self._sequence(f"steps behind a prompt of {count}", more)
        few = max(1, min(7, full - 4))
        if self._plan.caches:
            states = self._states_after(few)
            counts = held([1, 1, 1], few)
            yield self._sequence(f"going on behind {few}", counts, states, few)
        if self._masks() and full > 6:
            yield self._sequence("prompts filled up on the left", [4, 1, 1], skipped=2)
        if any(x.name in self._shorter() for x in self._free):
            counts = held([2, 1])
            yield self._sequence("shorter caches of the encoder", counts, shorter=True)

    def try_steps(self) -> None:
        """Run a few steps.

        Raises:
            FeedError: The first does not run.
            UsageError: Another does not run.
        """
        size = min(x[self._plan.new] for x in self._plan.containers)
        self._sequence("a try", [size, size])

    def _levels(self) -> list[int]:
        grows = self._plan.caches
        found = {min(x[d] for d in grows) for x in self._plan.containers if grows}
        return sorted(found) or [0]

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

    def _sequence(
        self,
        name: str,
        counts: Sequence[int],
        states: Feeds | None = None,
        length: int = 0,
        *,
        skipped: int = 0,
        shorter: bool = False,
    ) -> Steps:
        state = dict(states or self._empty())
        feeds, outputs = [], []
        for place, count in enumerate(counts):
            fed = self._fed(length, count, skipped, shorter=shorter, last=place == len(counts) - 1)
            if place:
                fed |= self._held_feeds
            try:
                made = self._run({**fed, **state})
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
                self._held_feeds = {k: x for k, x in fed.items() if self._is_steady(k)}
            state = {x.input: made[x.output] for x in self._plan.states}
            length = self._length(state, length + count)
            feeds.append(fed)
            outputs.append({k: made[k] for k in self._seen_outputs})
        return Steps(name, states or {}, tuple(feeds), tuple(outputs), skipped)

    def _is_steady(self, name: str) -> bool:
        port = next(x for x in self._free if x.name == name)
        used = {n for d in port.dims for n in names_in(d)}
        return bool(used & {*self._plan.held}) and not used & {self._plan.new, *self._plan.caches}

    def _length(self, state: Feeds, else_: int) -> int:
        for link in self._plan.states:
            if link.axis is not None:
                return int(state[link.input].shape[link.axis])
        return else_

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
        item = self._plan.signature.item(port.name).at(sizes)
        role, dtype = item.role, np.dtype(item.dtype)
        shape = tuple(size_of(x, sizes) for x in port.dims)
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
        return any(
            x.kind == "mask" and {*self._plan.caches} & names_in(x.dims[-1])
            for x in self._free
            if x.dims
        )

    def _shorter(self) -> set[str]:
        told = {*self._plan.held}
        return {x.name for x in self._free if any(names_in(d) & told for d in x.dims)}

    # States

    def _empty(self) -> dict[str, Array]:
        sizes = {**self._sizes, **dict.fromkeys(self._plan.caches, 0)}
        return {k: np.zeros(self._shape(k, sizes), self._dtype(k)) for k in self._links}

    def _states_after(self, count: int) -> dict[str, Array]:
        made = self._run({**self._fed(0, count), **self._empty()})
        return {x.input: made[x.output] for x in self._plan.states}

    def _random_states(self, length: int) -> dict[str, Array]:
        sizes = {**self._sizes, **dict.fromkeys(self._plan.caches, length)}
        return {
            k: self._random.standard_normal(self._shape(k, sizes)).astype(self._dtype(k))
            for k in self._links
        }

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
            yield array if axis is None else array[(slice(None),) * axis + (slice(-size, None),)]

    def _shape(self, name: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
        port = next(x for x in self._plan.inputs if x.name == name)
        return tuple(size_of(x, sizes) for x in port.dims)

    def _dtype(self, name: str) -> np.dtype[np.generic]:
        return np.dtype(self._plan.signature.item(name).dtype)


def _within(counts: Sequence[int], full: int, length: int) -> list[int]:
    """The steps that caches hold, up to the first that they do not, behind so many entries."""
    found = []
    for count in counts:
        length += count
        if length > full:
            break
        found.append(count)
    return found


def runs(plan: StreamPlan, source: str, constants: Feeds) -> bool:
    """Whether the original takes the inputs that a plan makes."""
    with open_given(source) as session:
        made = Sequences(plan, lambda feeds: session.run({**feeds, **constants}))
        try:
            made.try_steps()
        except (FeedError, UsageError):
            return False
    return True


def sequences(
    plan: StreamPlan, source: str, constants: Feeds, *, joins: bool = True, seed: int = 0
) -> tuple[tuple[Steps, ...], bool]:
    """Sequences of the original, and whether its full caches may roll.

    Args:
        plan: What is known of the model.
        source: Its file.
        constants: What the file is fed besides.
        joins: Whether many new entries are run in parts.
        seed: The same seed makes the same inputs.

    Raises:
        FeedError: It does not run.
        UsageError: It does not run with as many entries as the caches are to hold.
    """
    with open_given(source) as session:
        made = Sequences(plan, lambda feeds: session.run({**feeds, **constants}), seed)
        rolls = bool(plan.caches) and made.rolls()
        return tuple(made.made(rolls=rolls, joins=joins)), rolls


def prove(folder: Path, steps: Sequence[Steps], tolerance: Tolerance) -> SessionProof:
    """Run the sequences through a stream of a session on the CPU, and compare what comes out."""
    here = str(folder.resolve())
    seconds = _SECONDS + run_seconds()

    def play(one: Steps) -> Mapping[str, Array]:
        arrays = {f"states/{k}": x for k, x in one.states.items()}
        arrays |= {f"beyond/{k}": x for k, x in one.beyond.items()}
        for place, feeds in enumerate(one.feeds):
            arrays |= {f"{place}/{k}": x for k, x in feeds.items()}
        return call(f"{_APART}:play", here, arrays, seconds, f"running {one.name}")

    try:
        return _compared(steps, play, tolerance)
    finally:
        with suppress(RunError):
            call(f"{_APART}:close", here, {}, seconds, "closing")


def prove_on(folder: Path, steps: Sequence[Steps], tolerance: Tolerance, ep: Ep) -> SessionProof:
    """The same on another provider."""
    runner = _OnDevice(folder, ep)

    def play(one: Steps) -> Mapping[str, Array]:
        return {**Stream(runner, one.states or None).play(one.feeds), "refused": np.array(True)}

    try:
        found = _compared(steps, play, tolerance)
    finally:
        runner.close()
    return replace(found, reason=found.reason and f"on {LABELS[ep]}, {found.reason}")


def _compared(
    steps: Sequence[Steps],
    play: Callable[[Steps], Mapping[str, Array]],
    tolerance: Tolerance,
) -> SessionProof:
    diffs: list[OutputDiff] = []
    for one in steps:
        try:
            made = play(one)
        except (RunError, FeedError) as error:
            return SessionProof(False, tuple(diffs), f"{one.name}: {error}", "step")
        for place, outputs in enumerate(one.outputs):
            case = f"step {place + 1} of {one.name}"
            for name, array in outputs.items():
                pair = array, made[f"{place}/{name}"]
                if one.skipped and not place and array.ndim > 1:
                    pair = pair[0][:, one.skipped :], pair[1][:, one.skipped :]
                diffs.append(compare(name, case, *pair, tolerance))
        if not made["refused"]:
            told = "a step behind full caches is run, and what falls out of them is seen"
            return SessionProof(False, tuple(diffs), told, "step")
    return SessionProof(bool(diffs) and all(d.ok for d in diffs), tuple(diffs), of="step")


class _OnDevice:
    """Runs containers on another provider, in its process: arrays go there and back."""

    def __init__(self, folder: Path, ep: Ep) -> None:
        self.folder, self.manifest, self._ep = folder, Manifest.read(folder), ep
        self._made: dict[str, Any] = {}

    def hold(self, array: Array) -> _OnHost:
        return _OnHost(array)

    def step(
        self,
        container: Container,
        fed: Mapping[str, Any],
        wanted: Sequence[str],
        kept: Sequence[str],
        run_options: object = None,
    ) -> tuple[list[Array], list[Any]]:
        if container.file not in self._made:
            self._made[container.file] = open_session(self.folder / container.file, self._ep)
        made = self._made[container.file].run({k: x.numpy() for k, x in fed.items()})
        return [made[x] for x in wanted], [_OnHost(made[x]) for x in kept]

    def close(self) -> None:
        for session in self._made.values():
            session.close()


class _OnHost:
    """An array on the host."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def numpy(self) -> Array:
        return self._array
