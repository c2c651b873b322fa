"""``Session.stream()``: a shipped decoder, step by step, with states that stay where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from onnxruntime import RunOptions

from graphfix.errors import FeedError, UsageError
from graphfix.runtime.port import Array, Feeds
from graphfix.shipped.chunks import Chunk, chunks
from graphfix.shipped.container_fit import DTYPES, require_inputs
from graphfix.shipped.dim_expression import names_in, size_of
from graphfix.shipped.in_front import fitted
from graphfix.shipped.manifest import Container, InputPort, Manifest, Port
from graphfix.wording import plural

Sizes = Mapping[str, int]


class Held(Protocol):
    """An array where containers run."""

    def numpy(self) -> Array:
        """A copy on the host."""


class Runs(Protocol):
    """What runs the containers of a folder.

    Attributes:
        folder: The folder.
        manifest: What is in it.
    """

    folder: Any
    manifest: Manifest

    def hold(self, array: Array) -> Held:
        """An array, to be an input of several runs."""

    def step(
        self,
        container: Container,
        fed: Mapping[str, Held],
        wanted: Sequence[str],
        kept: Sequence[str],
        run_options: RunOptions | None,
    ) -> tuple[list[Array], list[Held]]:
        """The outputs of a run that are wanted on the host, and those that stay."""


class Stream:
    """The states of one sequence, or of a batch of sequences, and the steps that continue them.

    A step takes what the original takes, less its states: the new tokens, and a mask as long as
    past and new ones together. Many tokens are run in parts, as the containers have sizes. States
    are bound to where they were computed, and never copied between steps. If a step fails, the
    stream is as it was before.

    Args:
        session: The session of the folder.
        states: What the states are at first, in the original's shapes; empty caches and zeros by
            default.

    Raises:
        FeedError: A state does not fit.
        UsageError: The folder is none of a model that continues states.
    """

    def __init__(self, session: Runs, states: Feeds | None = None) -> None:
        found = session.manifest.stream
        if found is None:
            raise UsageError(
                f"{session.folder} holds a model that takes clips and continues no states: "
                "call run of the session"
            )
        self._session, self._manifest, self._about = session, session.manifest, found
        self._inputs = {x.name: x for x in self._manifest.inputs}
        self._outputs = {x.name: x for x in self._manifest.outputs}
        self._state_names = {x.input for x in found.states}
        self._given = {x.output for x in found.states}
        opening = found.opening
        self._opens = frozenset(opening.inputs if opening else ())
        self._opened = frozenset(opening.gives if opening else ())
        self._dim = self._manifest.axis.dim
        self._grows = {x.dim for x in found.caches if x.grows}
        self._begin(states or {})

    def _begin(self, states: Feeds) -> None:
        self._length: int = 0
        self._fresh = not states
        self._states: dict[str, Held] = {}
        self._held: dict[str, tuple[Array, Held]] = {}
        require_inputs(self._manifest, states)
        for link in self._about.states:
            array = states.get(link.input)
            if array is not None and link.axis is not None:
                self._length = array.shape[link.axis]
        self._sizes = self._level(self._length)
        sizes = self._at(self._sizes)[0].sizes
        here = {**sizes, **self._lengths(self._length, sizes)}
        for link in self._about.states:
            port = self._inputs[link.input]
            array = states.get(link.input)
            if array is None:
                array = np.zeros(port.shape(sizes), DTYPES[port.type])
            elif array.shape != (wanted := port.shape(here)):
                raise FeedError(
                    f"the state {link.input!r} has shape {[*array.shape]}, not {[*wanted]}"
                )
            self._states[link.input] = self._session.hold(fitted(array, port.shape(sizes)))

    @property
    def outputs(self) -> list[str]:
        """The outputs that are no states."""
        return [x for x in self._outputs if x not in self._given]

    @property
    def length(self) -> int:
        """How many entries the original's caches would have."""
        return self._length

    def reset(self) -> None:
        """Empty the caches, let every other state be zeros, and forget what was given once."""
        self._begin({})

    def fork(self) -> Stream:
        """A stream that goes on from here by itself; the states are shared until then."""
        other = Stream.__new__(Stream)
        other.__dict__.update(self.__dict__)
        other._states, other._held = dict(self._states), dict(self._held)
        return other

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Feeds,
        run_options: RunOptions | None = None,
    ) -> list[Array]:
        """Continue with new tokens.

        Args:
            output_names: The outputs wanted, none of them a state; None, or none, for all others.
            input_feed: An array for each input that is no state, in the original's shape. What
                does not change from step to step, such as an encoder's outputs, may be left out
                after the first.
            run_options: As for onnxruntime.

        Returns:
            The outputs in the order asked for, in the original's shapes.

        Raises:
            FeedError: An input does not fit, or the caches are full.
        """
        wanted = self._wanted(output_names)
        given = self._arrays(input_feed)
        again = given.keys() & self._opens  # then what was made of another encoding is void
        held = {k: x for k, (x, _) in self._held.items() if not again or k not in self._opened}
        feeds = {**held, **given}
        sizes = self._logical(feeds)
        new = sizes[self._dim]
        level = self._level(self._length + new)
        if again and not self._opened <= given.keys():
            feeds |= self._first_call(feeds, sizes, run_options)
        there = sorted(x.sizes[self._dim] for x in self._at(level))
        partial = self._about.partial and self._fresh
        plan = chunks(new, there, partial=partial, joins=self._about.joins)
        states = self._states if level == self._sizes else self._moved(level)
        length, parts = self._length, []
        for chunk in plan:
            outputs, states, length = self._step(
                chunk, level, length, sizes, feeds, states, wanted, run_options
            )
            parts.append(outputs)
        self._states, self._length, self._sizes, self._fresh = states, length, level, False
        return [self._joined(self._outputs[x], [p[x] for p in parts]) for x in wanted]

    def states(self) -> dict[str, Array]:
        """The states in the original's shapes, by the names of the outputs: copies."""
        sizes = {**self._at(self._sizes)[0].sizes, **dict.fromkeys(self._grows, self._length)}
        found = {}
        for link in self._about.states:
            shape = self._inputs[link.input].shape(sizes)
            found[link.output] = fitted(self._states[link.input].numpy(), shape)
        return found

    def play(self, steps: Sequence[Feeds]) -> dict[str, Array]:
        """All outputs of these steps: ``0/NAME`` for the first of them, and so on.

        Raises:
            FeedError: A step does not run; with which.
        """
        found: dict[str, Array] = {}
        for place, feeds in enumerate(steps):
            try:
                made = self.run(None, feeds)
            except Exception as error:  # onnxruntime raises a dozen unrelated types
                raise FeedError(f"step {place + 1} does not run: {error}") from error
            found |= {f"{place}/{k}": x for k, x in zip(self.outputs, made, strict=True)}
        return found

    # One step

    def _first_call(self, feeds: Feeds, sizes: Sizes, run_options: RunOptions | None) -> Feeds:
        """Stand-ins, of the right shapes, for what is made of an encoding and stays where it is."""
        opening = self._about.opening
        assert opening is not None
        if all(x in self._held and self._held[x][0] is feeds[x] for x in opening.inputs):
            return {x: self._held[x][0] for x in opening.gives}
        fed = {}
        for name in opening.inputs:
            port = self._inputs[name]
            shape = port.shape(opening.container.sizes)
            fed[name] = self._session.hold(fitted(feeds[name], shape, port.pad))
        gives = [*opening.gives.values()]
        _, kept = self._session.step(opening.container, fed, [], gives, run_options)
        self._held |= {x: (feeds[x], value) for x, value in fed.items()}
        for name, value in zip(opening.gives, kept, strict=True):
            port = self._inputs[name]
            nothing: Array = np.zeros((), DTYPES[port.type])
            self._held[name] = np.broadcast_to(nothing, port.shape(sizes)), value
        return {x: self._held[x][0] for x in opening.gives}

    def _step(
        self,
        chunk: Chunk,
        level: Sizes,
        length: int,
        sizes: Sizes,
        feeds: Feeds,
        states: Mapping[str, Held],
        wanted: Sequence[str],
        run_options: RunOptions | None,
    ) -> tuple[dict[str, Array], dict[str, Held], int]:
        """Outputs, states and the length of the caches after a chunk."""
        container = next(x for x in self._at(level) if x.sizes[self._dim] == chunk.size)
        here = {**sizes, **self._lengths(length, sizes), self._dim: chunk.valid}
        fed = dict(states)
        for port in self._manifest.inputs:
            if port.name not in states and port.name not in self._opens:
                fed[port.name] = self._input(port, feeds[port.name], chunk, here, container)
        for cache in self._about.caches:
            if cache.told:
                valid = here[cache.dim] - (chunk.size - chunk.valid) * cache.grows
                fed[cache.told] = self._session.hold(np.array([valid], np.int64))
        links = self._about.states
        fed_back = [x.output for x in links]
        made, kept = self._session.step(container, fed, wanted, fed_back, run_options)
        outputs = {}
        for name, array in zip(wanted, made, strict=True):
            result = self._outputs[name]
            array = array if result.dims else array.reshape(())
            outputs[name] = fitted(array, result.shape(here))
        after = {x.input: value for x, value in zip(links, kept, strict=True)}
        return outputs, after, self._longer(here, length)

    def _input(
        self, port: InputPort, array: Array, chunk: Chunk, here: Sizes, container: Container
    ) -> Held:
        """An input of a chunk: its own part, filled up in front to the size of the container."""
        steady = not {x for d in port.dims for x in names_in(d)} & {self._dim, *self._grows}
        held = self._held.get(port.name)
        if steady and held is not None and held[0] is array:
            return held[1]
        part = array
        for axis, size in enumerate(port.dims):
            own = names_in(size)
            if own & self._grows:
                entries = slice(0, size_of(size, here))
            elif self._dim in own:
                entries = slice(chunk.start, chunk.start + chunk.valid)
            else:
                continue
            part = part[(slice(None),) * axis + (entries,)]
        value = self._session.hold(fitted(part, port.shape(container.sizes), port.pad))
        if steady:
            self._held[port.name] = (array, value)
        return value

    def _joined(self, port: Port, parts: Sequence[Array]) -> Array:
        axis = next((i for i, x in enumerate(port.dims) if self._dim in names_in(x)), None)
        return parts[-1] if axis is None or len(parts) == 1 else np.concatenate(parts, axis)

    # Lengths

    def _lengths(self, length: int, sizes: Sizes) -> dict[str, int]:
        return {x.dim: length if x.grows else sizes.get(x.dim, 0) for x in self._about.caches}

    def _longer(self, here: Sizes, length: int) -> int:
        """The length of the original's caches after a step."""
        for link in self._about.states:
            if link.axis is not None:
                return size_of(self._outputs[link.output].dims[link.axis], here)
        return length + here[self._dim]

    def _logical(self, feeds: Feeds) -> dict[str, int]:
        """The sizes that the inputs have, held to what the original takes.

        Raises:
            FeedError: They do not fit each other, the containers or the length of the caches.
        """
        sizes: dict[str, int] = dict(self._lengths(self._length, {}))
        free = {x.dim for x in self._about.caches if not x.grows} | {self._dim}
        for name, array in feeds.items():
            for dim, size in zip(self._inputs[name].dims, array.shape, strict=True):
                if dim in free:
                    sizes[str(dim)] = size
                    free.discard(str(dim))
        first = self._manifest.containers[0].sizes
        sizes = {**first, **sizes}
        for name, array in feeds.items():
            wanted = self._inputs[name].shape(sizes)
            if array.shape != wanted:
                raise FeedError(
                    f"the input {name!r} has shape {[*array.shape]}, and {[*wanted]} is expected "
                    f"([{', '.join(map(str, self._inputs[name].dims))}], behind "
                    f"{plural(self._length, 'entry', 'entries')})"
                )
        for cache in self._about.caches:
            if not cache.grows and sizes[cache.dim] > first[cache.dim]:
                raise FeedError(
                    f"{cache.dim} is {sizes[cache.dim]}, and the containers hold "
                    f"{first[cache.dim]}; ship with a larger --container {cache.dim}=SIZE"
                )
        if not sizes[self._dim]:
            raise FeedError("there is nothing new in the inputs: a step takes at least one entry")
        return sizes

    def _level(self, length: int) -> dict[str, int]:
        """The sizes of the smallest caches that hold so many entries.

        Raises:
            FeedError: None does.
        """
        levels = [{d: x.sizes[d] for d in self._grows} for x in self._manifest.containers]
        for level in levels:
            if all(n >= length for n in level.values()):
                return level
        if self._about.rolls:
            return levels[-1]
        most = min(levels[-1].values())
        raise FeedError(
            f"the caches hold {most} entries, {self._length} are taken: of the new ones "
            f"{length - most} do not fit; nothing was run. reset() empties them; or "
            f"ship with larger ones, --cache {most},{4 * most}"
        )

    def _at(self, level: Sizes) -> list[Container]:
        return [x for x in self._manifest.containers if level.items() <= x.sizes.items()]

    # States

    def _moved(self, level: Sizes) -> dict[str, Held]:
        """The states in caches of another size."""
        sizes = self._at(level)[0].sizes
        moved = dict(self._states)
        for link in self._about.states:
            if link.axis is not None:
                shape = self._inputs[link.input].shape(sizes)
                moved[link.input] = self._session.hold(fitted(moved[link.input].numpy(), shape))
        return moved

    # What is asked

    def _wanted(self, output_names: Sequence[str] | None) -> list[str]:
        names = list(output_names or self.outputs)
        for name in names:
            if name in self._given:
                raise FeedError(f"{name!r} is a state, which the stream keeps; states() copies it")
            if name not in self._outputs:
                raise FeedError(f"there is no output {name!r}; there are {', '.join(self.outputs)}")
        return names

    def _arrays(self, input_feed: Feeds) -> dict[str, Array]:
        feeds = {name: np.asarray(array) for name, array in input_feed.items()}
        for name in feeds:
            if name in self._state_names:
                raise FeedError(f"{name!r} is a state, which the stream keeps: feed the others")
        require_inputs(self._manifest, feeds)
        there = {*feeds, *self._held, *self._state_names}
        for one, other in ((self._opens, self._opened), (self._opened, self._opens)):
            there |= other if one <= there else set()
        for name in (*self._opens, *self._inputs):
            if name not in there:
                raise FeedError(f"the input {name!r} is missing")
        return feeds
