"""``graphfix.Session``: a shipped model, run like the original, with clips of any length.

Importing it needs onnxruntime and numpy only.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast

import numpy as np
from onnxruntime import InferenceSession, ModelMetadata, OrtValue, RunOptions, SessionOptions

from graphfix.errors import FeedError, ModelError, UsageError
from graphfix.paths import StrPath, require_path
from graphfix.runtime.port import Array, Feeds
from graphfix.shipped import container_fit, remembered_choice
from graphfix.shipped.container_fit import ClipFit
from graphfix.shipped.container_ports import require_described
from graphfix.shipped.folder_files import open_folder
from graphfix.shipped.manifest import Container, Port
from graphfix.shipped.manifest_file import read_manifest
from graphfix.shipped.ort_values import as_array
from graphfix.shipped.provider_choice import ProviderChoice, measure_providers
from graphfix.shipped.references import require_own_references
from graphfix.shipped.sessions import (
    SessionPool,
    default_providers,
    join_provider_options,
    known_providers,
    names_of,
    providers_with_cpu,
)
from graphfix.shipped.stand_in_feeds import stand_in_feeds
from graphfix.shipped.stream import Stream
from graphfix.shipped.valid_inputs import require_countable
from graphfix.wording import group_pairs

ClipFeeds = Mapping[str, Array | OrtValue | Sequence[Array]]

log = logging.getLogger(__name__)

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
        sess_options: Options for every session that is made; DirectML's own are set besides. A list
            is taken for ``providers``.
        providers: As for onnxruntime; by default DirectML where there is one, then the CPU.
            ``"auto"`` takes the provider that is fastest here: of those that this ONNX Runtime has,
            each runs the largest container, and after two seconds no further one is tried. The
            result is kept in the user's cache folder, for this folder's content, this version of
            ONNX Runtime and these devices, and :attr:`provider_choice` says it. With nothing but
            the CPU, nothing is measured.
        provider_options: As for onnxruntime.
        share: Whether the sessions share the memory of their weights: a second container then costs
            no second copy. ONNX Runtime maps the one file of weights, and by default each session
            packs the weights of its MatMuls and Convs into memory of its own besides; with
            ``share`` it does not, and such a kernel on the CPU takes longer (MatMul up to 1.5
            times). On a device every session has its own copy in any case.
        warm: Whether to make the session of every container now, and run it once. Otherwise each
            is made when it is first needed.
        fallback: A model for clips that are longer than every container: a path. Without it they
            are an error.
        check_files: Whether to read each file of the folder once, and to compare its SHA-256 with
            that of the manifest: about a second a gigabyte. Without it only sizes are compared.

    Attributes:
        folder: The folder.
        manifest: Its manifest.
        provider_choice: What ``"auto"`` has chosen, and why; None if the providers were named.

    Raises:
        ModelError: The folder has no manifest, a file is none of it, or ONNX Runtime rejects a
            model of it.
        UsageError: An argument is none that onnxruntime takes there.
    """

    def __init__(
        self,
        folder: StrPath,
        sess_options: SessionOptions | Sequence[Any] | None = None,
        providers: Sequence[Any] | Literal["auto"] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        share: bool = False,
        warm: bool = False,
        fallback: StrPath | None = None,
        check_files: bool = True,
    ) -> None:
        if isinstance(sess_options, list | tuple) and providers is None:
            sess_options, providers = None, sess_options  # as graphfix 0.2 had them
        if not isinstance(sess_options, SessionOptions | None):
            raise UsageError(
                f"sess_options is {type(sess_options).__name__}, and not onnxruntime's "
                "SessionOptions; say providers=[...] by name"
            )
        self.folder = require_path(folder)
        self.manifest = manifest = open_folder(self.folder, check_hashes=check_files)
        self._options, self._share = sess_options, share
        self.provider_choice: ProviderChoice | None
        self.set_providers(providers, provider_options)
        self._fallback = None if fallback is None else require_path(fallback)
        self._outputs = {x.name: x for x in manifest.outputs}
        self._input_names: dict[str, set[str]] = {}
        self._fit = lru_cache(_REMEMBERED)(
            lambda x, n: ClipFit(manifest, manifest.containers[x], n)
        )
        if warm:
            self._warm_up()

    def __repr__(self) -> str:
        """Return the folder, what it takes, and where it runs."""
        dim, providers = self.manifest.axis.dim, map(str, self._sessions.provider_names)
        sizes = sorted({x.sizes[dim] for x in self.manifest.containers})
        auto = "" if self.provider_choice is None else f"; auto: {self.provider_choice}"
        return (
            f"<graphfix.Session of {str(self.folder)!r}: {dim} of {', '.join(map(str, sizes))} "
            f"on {', '.join(providers)}{auto}>"
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Say of what only a single session has that this is none."""
            if not name.startswith("_") and hasattr(InferenceSession, name):
                raise AttributeError(
                    f"{name}: a graphfix.Session has a session for each container; open the file "
                    "of a container with onnxruntime for what only one has"
                )
            raise AttributeError(f"'Session' object has no attribute {name!r}")

    def set_providers(
        self,
        providers: Sequence[Any] | Literal["auto"] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Run on other execution providers from now on; sessions are made again.

        Args:
            providers: As for onnxruntime; by default DirectML where there is one, then the CPU;
                ``"auto"`` for the one that is fastest here.
            provider_options: As for onnxruntime.

        Raises:
            UsageError: There are not as many options as providers, or they are a text that is not
                ``"auto"``.
        """
        if isinstance(providers, str) and providers != "auto":
            raise UsageError(f'providers={providers!r}: give a list of names, or "auto"')
        if providers == "auto" and provider_options is None:
            self._sessions, self.provider_choice = self._find_fastest()
        else:
            named = None if isinstance(providers, str) else providers
            pairs = join_provider_options(named, provider_options)
            self._sessions = SessionPool(pairs, self._options, share=self._share)
            self.provider_choice = None
        self._device = "dml" if self._sessions.on_directml else "cpu"

    def _find_fastest(self) -> tuple[SessionPool, ProviderChoice]:
        """Return the sessions on the provider that is fastest here, measured or remembered."""
        names, usual = known_providers(), default_providers()
        if len(names) < 2:
            pool = SessionPool(usual, self._options, share=self._share)
            return pool, ProviderChoice(pool.provider_names[0])
        key = remembered_choice.key_of(self.manifest, names, self._options, share=self._share)
        if (choice := remembered_choice.load_choice(key)) is not None:
            chosen = providers_with_cpu(choice.provider)
            return SessionPool(chosen, self._options, share=self._share), choice
        pools = {
            name: SessionPool(
                providers_with_cpu(name), self._options, share=self._share, may_fall_back=False
            )
            for name in names
        }
        container = self._most_telling_container()
        openers = {x: partial(self._open_run, container, pool) for x, pool in pools.items()}
        choice = measure_providers(openers, names_of(usual), container=container.file)
        remembered_choice.save_choice(key, choice)
        log.info("%s: runs on %s", self.folder, choice)
        return pools[choice.provider], choice

    def _most_telling_container(self) -> Container:
        """Return the container in which a wrong choice costs most.

        That is the largest for clips; for steps, the smallest step behind the largest caches, of
        which there are most.
        """
        dim = self.manifest.axis.dim
        if self.manifest.stream is None:
            return self.manifest.containers[-1]
        caches = [x.dim for x in self.manifest.stream.caches]
        return min(
            self.manifest.containers,
            key=lambda x: (x.sizes[dim], -sum(x.sizes.get(cache, 0) for cache in caches)),
        )

    def _open_run(self, container: Container, pool: SessionPool) -> Callable[[], list[Array]]:
        """Open a container in a pool of sessions, and return what runs it once."""
        session = self._session_of(container, pool)
        feeds = stand_in_feeds(self.manifest, container, session.get_inputs())
        names = [x.name for x in session.get_outputs()]
        return lambda: pool.run(session, names, feeds)

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs of the original model."""
        return [NodeArg(x.name, x.type, list(x.dims)) for x in self.manifest.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs of the original model."""
        return [NodeArg(x.name, x.type, list(x.dims)) for x in self.manifest.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return no initializers: the containers have theirs inside."""
        return []

    def get_providers(self) -> list[str]:
        """Return the execution providers that the containers run on."""
        return cast("list[str]", self._any_session().get_providers())

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return the options of each execution provider."""
        return cast("dict[str, dict[str, str]]", self._any_session().get_provider_options())

    def get_session_options(self) -> SessionOptions:
        """Return the options of the containers' sessions."""
        return self._any_session().get_session_options()

    def get_modelmeta(self) -> ModelMetadata:
        """Return the metadata of a container: those of the original, and how it was repaired."""
        return self._any_session().get_modelmeta()

    def _any_session(self) -> InferenceSession:
        session = next(iter(self._sessions.open_sessions.values()), None)
        return session or self._session_of(self.manifest.containers[0])

    def io_binding(self) -> NoReturn:
        """Raise UsageError: a container has buffers of its own sizes.

        Raises:
            UsageError: Always; it says what to call.
        """
        raise UsageError(
            "a binding has buffers of one size, and a clip is copied into a container of another: "
            "call run(names, feeds), or stream(), whose states stay on the device; or bind the "
            "containers themselves, as graphfix.json describes them"
        )

    def run_with_iobinding(self, iobinding: object, run_options: object = None) -> NoReturn:
        """Raise UsageError, as :meth:`io_binding` does.

        Raises:
            UsageError: Always; it says what to call.
        """
        self.io_binding()

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Run a clip or a batch of clips; return OrtValues on the host.

        Raises:
            FeedError: As :meth:`run`.
        """
        arrays = self.run(output_names, input_dict_ort_values, run_options)
        return [OrtValue.ortvalue_from_numpy(np.ascontiguousarray(x)) for x in arrays]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: ClipFeeds,
        callback: Callable[[list[Any], Any, str], object],
        user_data: object,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run in a thread of its own, and call back.

        Args:
            output_names: As for :meth:`run`.
            input_feed: As for :meth:`run`.
            callback: Called in that thread with the outputs, ``user_data``, and an error in words,
                "" if there is none; without outputs if there is one.
            user_data: What the callback is given.
            run_options: As for onnxruntime.
        """

        def run_and_call_back() -> None:
            try:
                outputs, problem = self.run(output_names, input_feed, run_options), ""
            except Exception as error:  # the callback has to be told of each
                outputs, problem = [], str(error) or type(error).__name__
            callback(outputs, user_data, problem)

        threading.Thread(target=run_and_call_back, daemon=True).start()

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: ClipFeeds,
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
        if not isinstance(input_feed, Mapping):
            raise FeedError(f"inputs are a dict of arrays by name, not {type(input_feed).__name__}")
        if self.manifest.stream is not None:
            return self._run_single_step(output_names, input_feed, run_options)
        names = self._resolve_output_names(output_names)
        if lists := {k: v for k, v in input_feed.items() if isinstance(v, (list, tuple))}:
            results = self._run_clips(names, self._split_lists(input_feed, lists), run_options)
            return [[clip_outputs[i] for clip_outputs in results] for i in range(len(names))]
        feeds = {name: as_array(name, x) for name, x in input_feed.items()}
        results = self._run_clips(names, self._split_batch(feeds), run_options)
        if len(results) == 1:
            return results[0]
        return [
            _join_rows(self._outputs[x], [clip_outputs[i] for clip_outputs in results])
            for i, x in enumerate(names)
        ]

    def stream(self, states: Feeds | None = None) -> Stream:
        """Return a stream that continues the states of one sequence step by step.

        Args:
            states: What they are at first, in the original's shapes; empty caches and zeros by
                default.

        Raises:
            FeedError: A state does not fit.
            UsageError: The folder's model takes clips, and continues no states.
        """
        return Stream(self, states)

    def _run_single_step(
        self, output_names: Sequence[str] | None, feed: ClipFeeds, options: RunOptions | None
    ) -> list[Any]:
        """Run one step of a model whose states the host keeps."""
        names = self._resolve_output_names(output_names)
        assert self.manifest.stream is not None
        links = self.manifest.stream.states
        feeds = {name: as_array(name, x) for name, x in feed.items()}
        if missing := [x.input for x in links if x.input not in feeds]:
            raise FeedError(
                f"the state {missing[0]!r} is missing; stream() keeps states, and run takes all"
            )
        stream = Stream(self, {x.input: feeds.pop(x.input) for x in links})
        state_outputs = {x.output for x in links}
        free = [x for x in names if x not in state_outputs]
        # Without names it gives all, of which nothing is wanted.
        outputs = dict(zip(free, stream.run(free, feeds, options), strict=bool(free)))
        outputs |= stream.states() if state_outputs & {*names} else {}
        return [outputs[x] for x in names]

    def open_container(self, container: Container) -> None:
        """Make the session of a container, unless there is one.

        Raises:
            ModelError: ONNX Runtime rejects it, or it is not what the manifest says.
        """
        self._session_of(container)

    def hold(self, array: Array) -> OrtValue:
        """Copy an array to the device that containers run on."""
        return OrtValue.ortvalue_from_numpy(np.asarray(array, order="C"), self._device)

    def step(
        self,
        container: Container,
        fed: Mapping[str, OrtValue],
        output_names: Sequence[str],
        state_names: Sequence[str],
        run_options: RunOptions | None = None,
    ) -> tuple[list[Array], list[OrtValue]]:
        """Run a container on held arrays; return the outputs, and the states on the device."""
        session = self._session_of(container)
        binding = session.io_binding()
        if (input_names := self._input_names.get(container.file)) is None:
            input_names = self._input_names[container.file] = {x.name for x in session.get_inputs()}
        for name, value in fed.items():
            if name in input_names:
                binding.bind_ortvalue_input(name, value)
        for name in output_names:
            binding.bind_output(name, "cpu")
        for name in state_names:
            binding.bind_output(name, self._device)
        with self._sessions.run_lock:
            session.run_with_iobinding(binding, run_options)
        arrays = binding.get_outputs()
        return [x.numpy() for x in arrays[: len(output_names)]], list(arrays[len(output_names) :])

    def close(self) -> None:
        """Drop every session; the next run creates its own again."""
        self._sessions.drop_sessions()

    def _split_lists(
        self, feed: Mapping[str, Any], lists: Mapping[str, Sequence[Array]]
    ) -> list[Feeds]:
        """Return the clips of an input of lists, each as it would be fed alone."""
        counts = {name: len(clips) for name, clips in lists.items()}
        if len(set(counts.values())) != 1:
            raise FeedError(f"the lists of clips have different lengths: {counts}")
        clips: list[Feeds] = [
            {k: as_array(k, v[i] if k in lists else v) for k, v in feed.items()}
            for i in range(next(iter(counts.values())))
        ]
        for clip in clips:
            if len(self._split_batch(clip)) != 1:
                raise FeedError("each clip of a list has one row; give a batch as one array")
        return clips

    def _split_batch(self, feeds: Feeds) -> list[Feeds]:
        """Return the clips of a batch, which has to fit the manifest."""
        container_fit.require_inputs(self.manifest, feeds)
        require_countable(self.manifest, feeds, container_fit.length_of(self.manifest, feeds))
        return container_fit.split_batch(self.manifest, feeds)

    def _run_clips(
        self, names: Sequence[str], clips: Sequence[Feeds], run_options: RunOptions | None
    ) -> list[list[Array]]:
        """Return the outputs of each clip; clips of one container share its rows."""
        lengths = [container_fit.length_of(self.manifest, clip) for clip in clips]
        groups = group_pairs(
            (self._smallest_container(length), i) for i, length in enumerate(lengths)
        )
        results: list[list[Array]] = [[] for _ in clips]
        for index, members in groups.items():
            if index is None:
                for i in members:
                    results[i] = self._run_fallback(names, clips[i], lengths[i], run_options)
                continue
            container = self.manifest.containers[index]
            session = self._session_of(container)  # it has the sizes that are allocated below
            rows = container_fit.rows_in(self.manifest, container)
            for start in range(0, len(members), rows):
                part = members[start : start + rows]
                fits = [self._fit(index, lengths[i]) for i in part]
                fed = container_fit.join_clips(self.manifest, rows, [clips[i] for i in part], fits)
                arrays = self._sessions.run(session, names, fed, run_options)
                for row, (i, fit) in enumerate(zip(part, fits, strict=True)):
                    pairs = zip(names, arrays, strict=True)
                    results[i] = [fit.cut_output(self._outputs[name], x, row) for name, x in pairs]
        return results

    def _resolve_output_names(self, output_names: Sequence[str] | None) -> Sequence[str]:
        names = output_names or [*self._outputs]  # as ONNX Runtime, which takes none for all
        for name in names:
            if name not in self._outputs:
                available = ", ".join(self._outputs)
                raise FeedError(f"there is no output {name!r}; there are {available}")
        return names

    def _smallest_container(self, length: int) -> int | None:
        """Return the index of the smallest container that holds a clip; None for the fallback."""
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
        self, names: Sequence[str], clip: Feeds, length: int, run_options: RunOptions | None
    ) -> list[Array]:
        assert self._fallback is not None
        session = self._sessions.session_of(self._fallback)
        input_names = {x.name for x in session.get_inputs()}
        fed = {name: array for name, array in clip.items() if name in input_names}
        lengths = self.manifest.lengths
        if lengths is not None and lengths in input_names and lengths not in fed:
            fed[lengths] = np.asarray([length], np.int64)
        return self._sessions.run(session, names, fed, run_options)

    def _session_of(
        self, container: Container, pool: SessionPool | None = None
    ) -> InferenceSession:
        pool = pool or self._sessions
        path = self.folder / container.file
        if (session := pool.open_sessions.get(path)) is not None:
            return session
        try:
            require_own_references(self.folder, container.file, self.manifest)
            session = pool.session_of(path)
            require_described(self.manifest, container, path, session)
            return session
        finally:  # the folder may be another now, and its containers not those of the manifest
            if read_manifest(self.folder) != self.manifest:
                pool.open_sessions.pop(path, None)
                raise ModelError(
                    f"{self.folder}: was shipped again since this session was made; make another"
                )

    def _warm_up(self) -> None:
        first = [self.manifest.opening.container] if self.manifest.opening else []
        for container in (*first, *self.manifest.containers):
            self._open_run(container, self._sessions)()


def _join_rows(port: Port, parts: Sequence[Array]) -> Array:
    return parts[0] if port.rows is None else np.concatenate(parts, port.rows)
