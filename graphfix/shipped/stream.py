"""``Session.stream()``: a shipped decoder, step by step, with states that stay on the device."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from onnxruntime import RunOptions

from graphfix.errors import FeedError, UsageError
from graphfix.runtime.port import Array, Feeds
from graphfix.shipped.chunks import Chunk, split_into_chunks
from graphfix.shipped.container_fit import DTYPES, require_inputs
from graphfix.shipped.in_front import fit_in_front
from graphfix.shipped.manifest import Container, InputPort, Manifest, Port
from graphfix.shipped.ort_values import as_array
from graphfix.wording import plural

Sizes = Mapping[str, int]


class DeviceArray(Protocol):
    """An array on the device that containers run on."""

    def numpy(self) -> Array:
        """Copy the array to the host."""


class ContainerRunner(Protocol):
    """Runs the containers of a folder.

    Attributes:
        folder: The folder.
        manifest: Its manifest.
    """

    folder: Any
    manifest: Manifest

    def open_container(self, container: Container) -> None:
        """Open a container that has not been opened yet."""

    def hold(self, array: Array) -> DeviceArray:
        """Return an array as an input of several runs."""

    def step(
        self,
        container: Container,
        fed: Mapping[str, DeviceArray],
        output_names: Sequence[str],
        state_names: Sequence[str],
        run_options: RunOptions | None,
    ) -> tuple[list[Array], list[DeviceArray]]:
        """Run a container; return requested outputs on the host, and states on the device."""


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

    def __init__(self, session: ContainerRunner, states: Feeds | None = None) -> None:
        streaming = session.manifest.stream
        if streaming is None:
            raise UsageError(
                f"{session.folder} holds a model that takes clips and continues no states: "
                "call run of the session"
            )
        self._session, self._manifest, self._streaming = session, session.manifest, streaming
        self._inputs = {x.name: x for x in self._manifest.inputs}
        self._outputs = {x.name: x for x in self._manifest.outputs}
        self._state_names = {x.input for x in streaming.states}
        self._state_outputs = {x.output for x in streaming.states}
        opening = streaming.opening
        self._encoder_inputs = frozenset(opening.inputs if opening else ())
        self._encoder_caches = frozenset(opening.gives if opening else ())
        self._new_dim = self._manifest.axis.dim
        self._growing_dims = {x.dim for x in streaming.caches if x.grows}
        self._reset_states(states or {})

    def _reset_states(self, states: Feeds) -> None:
        self._length: int = 0
        self._fresh = not states
        self._states: dict[str, DeviceArray] = {}
        self._held_inputs: dict[str, tuple[Array, DeviceArray]] = {}
        require_inputs(self._manifest, states)
        for link in self._streaming.states:
            array = states.get(link.input)
            if array is not None and link.axis is not None:
                self._length = array.shape[link.axis]
        self._cache_sizes = self._cache_sizes_for(self._length)
        container = self._containers_with(self._cache_sizes)[0]
        self._session.open_container(container)  # it has the sizes that are allocated below
        container_sizes = container.sizes
        sizes = self._with_derived(container_sizes)
        original_sizes = self._with_derived(
            {**container_sizes, **self._cache_lengths(self._length, container_sizes)}
        )
        for link in self._streaming.states:
            port = self._inputs[link.input]
            array = states.get(link.input)
            if array is None:
                array = np.zeros(self._shape_of(port, sizes), DTYPES[port.type])
            elif array.shape != (expected := self._shape_of(port, original_sizes)):
                raise FeedError(
                    f"the state {link.input!r} has shape {[*array.shape]}, not {[*expected]}"
                )
            self._states[link.input] = self._session.hold(
                fit_in_front(array, self._shape_of(port, sizes))
            )

    def __repr__(self) -> str:
        """Return the folder, and how far the stream has come."""
        return f"<graphfix Stream of {str(self._session.folder)!r} behind {self._length}>"

    @property
    def outputs(self) -> list[str]:
        """Return the names of the outputs that are not states."""
        return [x for x in self._outputs if x not in self._state_outputs]

    @property
    def length(self) -> int:
        """Return how many entries the original's caches would have."""
        return self._length

    def reset(self) -> None:
        """Empty the caches, set every other state to zeros, and forget the held inputs."""
        self._reset_states({})

    def fork(self) -> Stream:
        """Return a stream that continues from here on its own; states are shared until then."""
        copy = Stream.__new__(Stream)
        copy.__dict__.update(self.__dict__)
        copy._states, copy._held_inputs = dict(self._states), dict(self._held_inputs)
        return copy

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
        names = self._resolve_output_names(output_names)
        new_feeds = self._check_feeds(input_feed)
        # Caches that were computed from another encoding are not used.
        is_new_encoding = new_feeds.keys() & self._encoder_inputs
        held_feeds = {
            k: x
            for k, (x, _) in self._held_inputs.items()
            if not is_new_encoding or k not in self._encoder_caches
        }
        feeds = {**held_feeds, **new_feeds}
        sizes = self._infer_sizes(feeds)
        new = sizes[self._new_dim]
        level = self._cache_sizes_for(self._length_after(sizes, self._length))
        if is_new_encoding and not self._encoder_caches <= new_feeds.keys():
            feeds |= self._run_opening(feeds, sizes, run_options)
        chunk_sizes = sorted(x.sizes[self._new_dim] for x in self._containers_with(level))
        partial = self._streaming.partial and self._fresh
        plan = split_into_chunks(new, chunk_sizes, partial=partial, joins=self._streaming.joins)
        states = self._states if level == self._cache_sizes else self._resize_states(level)
        length, parts = self._length, []
        for chunk in plan:
            outputs, states, length = self._run_chunk(
                chunk, level, length, sizes, feeds, states, names, run_options
            )
            parts.append(outputs)
        self._states, self._length, self._cache_sizes, self._fresh = states, length, level, False
        return [self._join_chunks(self._outputs[x], [p[x] for p in parts]) for x in names]

    def states(self) -> dict[str, Array]:
        """Copy the states in the original's shapes, by the names of the outputs."""
        container_sizes = self._containers_with(self._cache_sizes)[0].sizes
        sizes = self._with_derived(
            {**container_sizes, **dict.fromkeys(self._growing_dims, self._length)}
        )
        arrays = {}
        for link in self._streaming.states:
            shape = self._shape_of(self._inputs[link.input], sizes)
            arrays[link.output] = fit_in_front(self._states[link.input].numpy(), shape)
        return arrays

    def play(self, steps: Sequence[Feeds]) -> dict[str, Array]:
        """Run these steps; return all outputs, ``0/NAME`` for those of the first, and so on.

        Raises:
            FeedError: A step does not run; with which.
        """
        outputs: dict[str, Array] = {}
        for index, feeds in enumerate(steps):
            try:
                arrays = self.run(None, feeds)
            except Exception as error:  # onnxruntime raises a dozen unrelated types
                raise FeedError(f"step {index + 1} does not run: {error}") from error
            outputs |= {f"{index}/{k}": x for k, x in zip(self.outputs, arrays, strict=True)}
        return outputs

    # One step

    def _run_opening(self, feeds: Feeds, sizes: Sizes, run_options: RunOptions | None) -> Feeds:
        """Compute the encoder's caches, and return stand-ins of their shapes."""
        opening = self._streaming.opening
        assert opening is not None
        if all(
            x in self._held_inputs and self._held_inputs[x][0] is feeds[x] for x in opening.inputs
        ):
            return {x: self._held_inputs[x][0] for x in opening.gives}
        self._session.open_container(opening.container)
        fed = {}
        container_sizes = self._with_derived(
            {**self._manifest.containers[0].sizes, **opening.container.sizes}
        )
        for name in opening.inputs:
            port = self._inputs[name]
            shape = self._shape_of(port, container_sizes)
            fed[name] = self._session.hold(fit_in_front(feeds[name], shape, port.pad))
        cache_outputs = [*opening.gives.values()]
        _, caches = self._session.step(opening.container, fed, [], cache_outputs, run_options)
        self._held_inputs |= {x: (feeds[x], value) for x, value in fed.items()}
        for name, value in zip(opening.gives, caches, strict=True):
            port = self._inputs[name]
            nothing: Array = np.zeros((), DTYPES[port.type])
            self._held_inputs[name] = np.broadcast_to(nothing, self._shape_of(port, sizes)), value
        return {x: self._held_inputs[x][0] for x in opening.gives}

    def _run_chunk(
        self,
        chunk: Chunk,
        level: Sizes,
        length: int,
        sizes: Sizes,
        feeds: Feeds,
        states: Mapping[str, DeviceArray],
        names: Sequence[str],
        run_options: RunOptions | None,
    ) -> tuple[dict[str, Array], dict[str, DeviceArray], int]:
        """Run a chunk; return its outputs, the new states and the length of the caches."""
        container = next(
            x for x in self._containers_with(level) if x.sizes[self._new_dim] == chunk.size
        )
        self._session.open_container(container)
        chunk_sizes = self._with_derived(
            {**sizes, **self._cache_lengths(length, sizes), self._new_dim: chunk.valid}
        )
        container_sizes = self._with_derived(container.sizes)
        fed = dict(states)
        for port in self._manifest.inputs:
            if port.name not in states and port.name not in self._encoder_inputs:
                fed[port.name] = self._hold_input(
                    port, feeds[port.name], chunk, chunk_sizes, container_sizes
                )
        for cache in self._streaming.caches:
            if cache.told:
                valid = chunk_sizes[cache.dim] - (chunk.size - chunk.valid) * cache.grows
                fed[cache.told] = self._session.hold(np.array([valid], np.int64))
        links = self._streaming.states
        fed_back = [x.output for x in links]
        arrays, new_states = self._session.step(container, fed, names, fed_back, run_options)
        outputs = {}
        for name, array in zip(names, arrays, strict=True):
            result = self._outputs[name]
            array = array.reshape(()) if array.size == 1 and not result.dims else array
            part = self._shape_of(result, chunk_sizes)
            if len(part) != array.ndim or any(map(operator.gt, part, array.shape)):
                raise FeedError(
                    f"the output {name!r} has shape {[*array.shape]} in {container.file}, and "
                    f"{[*part]} of it should be valid; ship the model again"
                )
            outputs[name] = fit_in_front(array, part)
        after = {x.input: value for x, value in zip(links, new_states, strict=True)}
        return outputs, after, self._length_after(chunk_sizes, length)

    def _hold_input(
        self,
        port: InputPort,
        array: Array,
        chunk: Chunk,
        chunk_sizes: Sizes,
        container_sizes: Sizes,
    ) -> DeviceArray:
        """Hold the chunk's part of an input, padded in front to the size of the container."""
        behind = frozenset().union(*map(self._manifest.dims_behind, port.dims))
        steady = not behind & {self._new_dim, *self._growing_dims}
        reusable = self._held_inputs.get(port.name)
        if steady and reusable is not None and reusable[0] is array:
            return reusable[1]
        part, shape = array, self._shape_of(port, chunk_sizes)
        for axis, dim in enumerate(port.dims):
            own = self._manifest.dims_behind(dim)
            if own & self._growing_dims:
                start = 0
            elif self._new_dim in own:
                start = self._start_along(str(dim), chunk.start, chunk_sizes)
            else:
                continue
            part = part[(slice(None),) * axis + (slice(start, start + shape[axis]),)]
        value = self._session.hold(
            fit_in_front(part, self._shape_of(port, container_sizes), port.pad)
        )
        if steady:
            self._held_inputs[port.name] = (array, value)
        return value

    def _start_along(self, dim: str, start: int, sizes: Sizes) -> int:
        """Return where a chunk begins along an axis: of ``2*S`` at twice its start."""
        if not start or dim == self._new_dim:
            return start
        at_start, at_none = (
            self._with_derived({**sizes, self._new_dim: n})[dim] for n in (start, 0)
        )
        return at_start - at_none

    def _join_chunks(self, port: Port, parts: Sequence[Array]) -> Array:
        behind = self._manifest.dims_behind
        axis = next((i for i, x in enumerate(port.dims) if self._new_dim in behind(x)), None)
        return parts[-1] if axis is None or len(parts) == 1 else np.concatenate(parts, axis)

    # Lengths

    def _shape_of(self, port: Port, sizes: Sizes) -> tuple[int, ...]:
        """Return the shape of an input or output at these sizes, derived ones among them.

        Raises:
            FeedError: The original has none there.
        """
        try:
            return port.shape_at(sizes)
        except ValueError as error:
            raise FeedError(f"the model does not run there: {error}") from error

    def _with_derived(self, sizes: Sizes) -> dict[str, int]:
        """Return these sizes of dims, and those that follow from them.

        Raises:
            FeedError: The original has none there.
        """
        dims = {x: sizes[x] for x in self._manifest.containers[0].sizes}
        try:
            return self._manifest.with_derived(dims)
        except ValueError as error:
            raise FeedError(f"the model does not run there: {error}") from error

    def _cache_lengths(self, length: int, sizes: Sizes) -> dict[str, int]:
        return {x.dim: length if x.grows else sizes.get(x.dim, 0) for x in self._streaming.caches}

    def _length_after(self, chunk_sizes: Sizes, length: int) -> int:
        """Return the length of the original's caches after a step."""
        for link in self._streaming.states:
            if link.axis is not None:
                return self._shape_of(self._outputs[link.output], chunk_sizes)[link.axis]
        return length + chunk_sizes[self._new_dim]

    def _infer_sizes(self, feeds: Feeds) -> dict[str, int]:
        """Infer the sizes of the inputs, and check that the original takes them.

        Raises:
            FeedError: They do not fit each other, the containers or the length of the caches.
        """
        sizes: dict[str, int] = dict(self._cache_lengths(self._length, {}))
        free = {x.dim for x in self._streaming.caches if not x.grows} | {self._new_dim}
        for name, array in feeds.items():
            for dim, size in zip(self._inputs[name].dims, array.shape, strict=True):
                if dim in free:
                    sizes[str(dim)] = size
                    free.discard(str(dim))
        first = self._manifest.containers[0].sizes
        sizes = self._with_derived({**first, **sizes})
        for name, array in feeds.items():
            expected = self._shape_of(self._inputs[name], sizes)
            if array.shape != expected:
                raise FeedError(
                    f"the input {name!r} has shape {[*array.shape]}, and {[*expected]} is expected "
                    f"([{', '.join(map(str, self._inputs[name].dims))}], behind "
                    f"{plural(self._length, 'entry', 'entries')})"
                )
        for cache in self._streaming.caches:
            if not cache.grows and sizes[cache.dim] > first[cache.dim]:
                raise FeedError(
                    f"{cache.dim} is {sizes[cache.dim]}, and the containers hold "
                    f"{first[cache.dim]}; ship with a larger --container {cache.dim}=SIZE"
                )
        if not sizes[self._new_dim]:
            raise FeedError("there is nothing new in the inputs: a step takes at least one entry")
        return sizes

    def _cache_sizes_for(self, length: int) -> dict[str, int]:
        """Return the sizes of the smallest caches that hold so many entries.

        Raises:
            FeedError: None does.
        """
        levels = [{d: x.sizes[d] for d in self._growing_dims} for x in self._manifest.containers]
        for level in levels:
            if all(n >= length for n in level.values()):
                return level
        if self._streaming.rolls:
            return levels[-1]
        most = min(levels[-1].values())
        raise FeedError(
            f"the caches hold {most} entries, {self._length} are taken: of the new ones "
            f"{length - most} do not fit; nothing was run. reset() empties them; or "
            f"ship with larger ones, --cache {most},{4 * most}"
        )

    def _containers_with(self, level: Sizes) -> list[Container]:
        return [x for x in self._manifest.containers if level.items() <= x.sizes.items()]

    # States

    def _resize_states(self, level: Sizes) -> dict[str, DeviceArray]:
        """Return the states in caches of another size."""
        sizes = self._with_derived(self._containers_with(level)[0].sizes)
        resized = dict(self._states)
        for link in self._streaming.states:
            if link.axis is not None:
                shape = self._shape_of(self._inputs[link.input], sizes)
                resized[link.input] = self._session.hold(
                    fit_in_front(resized[link.input].numpy(), shape)
                )
        return resized

    # What is asked

    def _resolve_output_names(self, output_names: Sequence[str] | None) -> list[str]:
        names = list(output_names or self.outputs)
        for name in names:
            if name in self._state_outputs:
                raise FeedError(f"{name!r} is a state, which the stream keeps; states() copies it")
            if name not in self._outputs:
                raise FeedError(f"there is no output {name!r}; there are {', '.join(self.outputs)}")
        return names

    def _check_feeds(self, input_feed: Feeds) -> dict[str, Array]:
        feeds = {name: as_array(name, x) for name, x in input_feed.items()}
        for name in feeds:
            if name in self._state_names:
                raise FeedError(f"{name!r} is a state, which the stream keeps: feed the others")
        require_inputs(self._manifest, feeds)
        available = {*feeds, *self._held_inputs, *self._state_names}
        for condition, implied in (
            (self._encoder_inputs, self._encoder_caches),
            (self._encoder_caches, self._encoder_inputs),
        ):
            available |= implied if condition <= available else set()
        for name in (*self._encoder_inputs, *self._inputs):
            if name not in available:
                raise FeedError(f"the input {name!r} is missing")
        return feeds
