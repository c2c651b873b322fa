"""``graphfix.Session``: a shipped model, run like the original, with clips of any length.

Importing it needs onnxruntime and numpy only.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from onnxruntime import InferenceSession, OrtValue, RunOptions, SessionOptions

from graphfix.errors import FeedError, ModelError
from graphfix.paths import StrPath, file_of
from graphfix.runtime.port import Array, Feeds
from graphfix.shipped import container_fit
from graphfix.shipped.container_fit import DTYPES, ClipFit
from graphfix.shipped.manifest import NAME, Container, Manifest, Port
from graphfix.shipped.sessions import Sessions
from graphfix.shipped.stream import Stream
from graphfix.wording import grouped

Given = Mapping[str, Array | Sequence[Array]]

_REMEMBERED = 1024  # lengths; what is kept of each is some kilobytes


@dataclass(frozen=True)
class NodeArg:
    """An input or output of the original model, as :class:`onnxruntime.NodeArg` has it.

    Attributes:
        name: Its name.
        type: Its type, such as ``tensor(float)``.
        shape: Sizes, and expressions in the names of symbolic dims.
    """

    name: str
    type: str
    shape: list[int | str]


class Session:
    """A drop-in :class:`onnxruntime.InferenceSession` of a folder that ``graphfix ship`` made.

    Inputs and outputs are those of the original model, unpadded. The smallest container that holds
    the clip is taken; the clip is padded, masks and lengths are filled, the container is run, and
    every output is cut to its valid length. It is safe to use from several threads.

    Args:
        folder: The folder.
        providers: As for onnxruntime; by default DirectML where there is one, then the CPU.
        sess_options: Options for every session that is made; DirectML's own are set besides.
        share: Whether the sessions share the memory of their weights: a second container then costs
            no second copy. ONNX Runtime maps the one file of weights, and by default each session
            packs the weights of its MatMuls and Convs into memory of its own besides; with
            ``share`` it does not, and such a kernel on the CPU takes longer (MatMul up to 1.5
            times). On a device every session has its own copy in any case.
        warm: Whether to make the session of every container now, and run it once. Otherwise each
            is made when it is first needed.
        fallback: A model for clips that are longer than every container: a path. Without it they
            are an error.

    Raises:
        ModelError: The folder has no manifest, or ONNX Runtime rejects a model of it.
    """

    def __init__(
        self,
        folder: StrPath,
        providers: Sequence[Any] | None = None,
        *,
        sess_options: SessionOptions | None = None,
        share: bool = False,
        warm: bool = False,
        fallback: StrPath | None = None,
    ) -> None:
        self.folder = file_of(folder)
        self.manifest = about = Manifest.read(self.folder)
        self._opened = Sessions(providers, sess_options, share=share)
        self._device = "dml" if self._opened.on_directml else "cpu"
        self._fallback = None if fallback is None else file_of(fallback)
        self._outputs = {x.name: x for x in about.outputs}
        self._known: dict[str, set[str]] = {}
        self._fit = lru_cache(_REMEMBERED)(lambda x, n: ClipFit(about, about.containers[x], n))
        if warm:
            self._warm()

    def get_inputs(self) -> list[NodeArg]:
        """The inputs of the original model."""
        return [NodeArg(x.name, x.type, list(x.dims)) for x in self.manifest.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs of the original model."""
        return [NodeArg(x.name, x.type, list(x.dims)) for x in self.manifest.outputs]

    def get_providers(self) -> list[str]:
        """The execution providers that the containers run on."""
        made = next(iter(self._opened.made.values()), None)
        made = made or self._session(self.manifest.containers[0])
        return cast("list[str]", made.get_providers())

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Given,
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Run a clip, a batch of clips, or a list of clips of different lengths.

        Args:
            output_names: The outputs wanted; None, or none, for all.
            input_feed: An array for each input of the original model. Where an input has a list of
                arrays, each is a clip, as it would be fed alone, and the others have lists as long,
                or one array for all.
            run_options: As for onnxruntime.

        Returns:
            The outputs in the order asked for; a list of arrays for each, clip by clip, where
            clips were given as lists.

        Raises:
            FeedError: An input is missing or does not fit, or a clip is longer than every
                container, or too short for the model to make anything of it.
        """
        if self.manifest.stream is not None:
            return self._run_step(output_names, input_feed, run_options)
        wanted = self._wanted(output_names)
        if not isinstance(input_feed, Mapping):
            raise FeedError(f"inputs are a dict of arrays by name, not {type(input_feed).__name__}")
        if lists := {k: v for k, v in input_feed.items() if isinstance(v, (list, tuple))}:
            found = self._run_clips(wanted, self._clips(input_feed, lists), run_options)
            return [[one[i] for one in found] for i in range(len(wanted))]
        feeds = {name: np.asarray(array) for name, array in input_feed.items()}
        container_fit.require_inputs(self.manifest, feeds)
        found = self._run_clips(wanted, container_fit.split(self.manifest, feeds), run_options)
        if len(found) == 1:
            return found[0]
        return [_whole(self._outputs[x], [one[i] for one in found]) for i, x in enumerate(wanted)]

    def stream(self, states: Feeds | None = None) -> Stream:
        """The states of one sequence, from where ``run`` of the stream goes on step by step.

        Args:
            states: What they are at first, in the original's shapes; empty caches and zeros by
                default.

        Raises:
            FeedError: A state does not fit.
            UsageError: The folder's model takes clips, and continues no states.
        """
        return Stream(self, states)

    def _run_step(
        self, output_names: Sequence[str] | None, feed: Given, options: RunOptions | None
    ) -> list[Any]:
        """One step of a model with states that the host keeps."""
        wanted = self._wanted(output_names)
        assert self.manifest.stream is not None
        links = self.manifest.stream.states
        feeds = {name: np.asarray(array) for name, array in feed.items()}
        if missing := [x.input for x in links if x.input not in feeds]:
            raise FeedError(
                f"the state {missing[0]!r} is missing; stream() keeps states, and run takes all"
            )
        stream = Stream(self, {x.input: feeds.pop(x.input) for x in links})
        given = {x.output for x in links}
        free = [x for x in wanted if x not in given]
        # Without names it gives all, of which nothing is wanted.
        found = dict(zip(free, stream.run(free, feeds, options), strict=bool(free)))
        found |= stream.states() if given & {*wanted} else {}
        return [found[x] for x in wanted]

    def hold(self, array: Array) -> OrtValue:
        """An array on the device that containers run on."""
        return OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), self._device)

    def step(
        self,
        container: Container,
        fed: Mapping[str, OrtValue],
        wanted: Sequence[str],
        kept: Sequence[str],
        run_options: RunOptions | None = None,
    ) -> tuple[list[Array], list[OrtValue]]:
        """Run a container on what is held: outputs for the host, and those that stay."""
        session = self._session(container)
        binding = session.io_binding()
        if (known := self._known.get(container.file)) is None:
            known = self._known[container.file] = {x.name for x in session.get_inputs()}
        for name, value in fed.items():
            if name in known:
                binding.bind_ortvalue_input(name, value)
        for name in wanted:
            binding.bind_output(name, "cpu")
        for name in kept:
            binding.bind_output(name, self._device)
        with self._opened.running:
            session.run_with_iobinding(binding, run_options)
        made = binding.get_outputs()
        return [x.numpy() for x in made[: len(wanted)]], list(made[len(wanted) :])

    def close(self) -> None:
        """Let go of every session that was made; the next run makes its own again."""
        self._opened.clear()

    def _clips(self, feed: Given, lists: Mapping[str, Sequence[Array]]) -> list[Feeds]:
        """The clips that are given as lists, each as it would be fed alone."""
        counts = {name: len(clips) for name, clips in lists.items()}
        if len(set(counts.values())) != 1:
            raise FeedError(f"the lists of clips have different lengths: {counts}")
        clips: list[Feeds] = [
            {name: np.asarray(v[i] if name in lists else v) for name, v in feed.items()}
            for i in range(next(iter(counts.values())))
        ]
        for clip in clips:
            container_fit.require_inputs(self.manifest, clip)
            if len(container_fit.split(self.manifest, clip)) != 1:
                raise FeedError("each clip of a list has one row; give a batch as one array")
        return clips

    def _run_clips(
        self, wanted: Sequence[str], clips: Sequence[Feeds], run_options: RunOptions | None
    ) -> list[list[Array]]:
        """The outputs of each clip; clips of one container share its rows."""
        lengths = [container_fit.length_of(self.manifest, clip) for clip in clips]
        groups = grouped((self._smallest(length), i) for i, length in enumerate(lengths))
        found: list[list[Array]] = [[] for _ in clips]
        for place, members in groups.items():
            if place is None:
                for i in members:
                    found[i] = self._run_fallback(wanted, clips[i], lengths[i], run_options)
                continue
            container = self.manifest.containers[place]
            rows = container_fit.rows_in(self.manifest, container)
            for start in range(0, len(members), rows):
                part = members[start : start + rows]
                fits = [self._fit(place, lengths[i]) for i in part]
                fed = container_fit.together(self.manifest, rows, [clips[i] for i in part], fits)
                arrays = self._opened.run(self._session(container), wanted, fed, run_options)
                for row, (i, fit) in enumerate(zip(part, fits, strict=True)):
                    pairs = zip(wanted, arrays, strict=True)
                    found[i] = [fit.cut(self._outputs[name], x, row) for name, x in pairs]
        return found

    def _wanted(self, output_names: Sequence[str] | None) -> Sequence[str]:
        names = output_names or [*self._outputs]  # as ONNX Runtime, which takes none for all
        for name in names:
            if name not in self._outputs:
                known = ", ".join(self._outputs)
                raise FeedError(f"there is no output {name!r}; there are {known}")
        return names

    def _smallest(self, length: int) -> int | None:
        """Which container holds a clip; None where the fallback has to."""
        dim, shortest = self.manifest.axis.dim, self.manifest.axis.shortest
        if length < shortest:
            raise FeedError(
                f"a clip of {dim}={length} is shorter than {shortest}, from where on the original "
                "runs and every window of it has something to work on"
            )
        for i, container in enumerate(self.manifest.containers):
            if container.sizes[dim] >= length:
                return i
        if self._fallback is not None:
            return None
        longest = self.manifest.containers[-1].sizes[dim]
        raise FeedError(
            f"a clip of {dim}={length} is longer than the longest container, {longest}; ship a "
            "longer one, or name a model for such clips with fallback="
        )

    def _run_fallback(
        self, wanted: Sequence[str], clip: Feeds, length: int, run_options: RunOptions | None
    ) -> list[Array]:
        assert self._fallback is not None
        session = self._opened.get(self._fallback)
        known = {x.name for x in session.get_inputs()}
        fed = {name: array for name, array in clip.items() if name in known}
        lengths = self.manifest.lengths
        if lengths is not None and lengths in known and lengths not in fed:
            fed[lengths] = np.asarray([length], np.int64)
        return self._opened.run(session, wanted, fed, run_options)

    def _session(self, container: Container) -> InferenceSession:
        path = self.folder / container.file
        if (made := self._opened.made.get(path)) is not None:
            return made
        try:
            made = self._opened.get(path)
            opening, outputs = self.manifest.opening, [*self._outputs]
            if opening is not None and opening.container == container:
                outputs = [*opening.gives.values()]
            self._require_ports(path, made, outputs)
            return made
        finally:  # the folder may be another now, and its containers not those of the manifest
            if Manifest.read(self.folder) != self.manifest:
                self._opened.made.pop(path, None)
                raise ModelError(
                    f"{self.folder}: was shipped again since this session was made; make another"
                )

    def _require_ports(self, path: Path, made: InferenceSession, outputs: Iterable[str]) -> None:
        """Raise ModelError where a container is not what the manifest says."""
        stream = self.manifest.stream
        told = [] if stream is None else [x.told for x in stream.caches]
        known = {*told, self.manifest.lengths, *(x.name for x in self.manifest.inputs)}
        unfed = {x.name for x in made.get_inputs()} - known
        if missing := unfed | ({*outputs} - {x.name for x in made.get_outputs()}):
            raise ModelError(
                f"{path}: {min(missing)!r:.80} is in one of it and {NAME}, and not in the other; "
                "ship the model again"
            )

    def _warm(self) -> None:
        first = [self.manifest.opening.container] if self.manifest.opening else []
        for container in (*first, *self.manifest.containers):
            session = self._session(container)
            ports = [x for x in session.get_inputs() if x.type in DTYPES]
            zeros = {x.name: np.zeros(x.shape, DTYPES[x.type]) for x in ports}
            if self.manifest.stream is None and self.manifest.lengths in zeros:
                # A clip that fills it.
                zeros[self.manifest.lengths or ""][:] = container.sizes[self.manifest.axis.dim]
            self._opened.run(session, [x.name for x in session.get_outputs()], zeros)


def _whole(port: Port, parts: Sequence[Array]) -> Array:
    return parts[0] if port.rows is None else np.concatenate(parts, port.rows)
