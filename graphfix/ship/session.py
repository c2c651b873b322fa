"""``graphfix.Session``: a shipped model, run like the original, with clips of any length.

Importing it needs onnxruntime and numpy only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnxruntime

from graphfix.errors import FeedError, ModelError
from graphfix.ship.fit import fit
from graphfix.ship.manifest import NAME, Manifest
from graphfix.ship.opened import Opened
from graphfix.ship.padding import (
    DTYPES,
    length_of,
    require_inputs,
    rows_in,
    rows_of,
    split,
    together,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from graphfix.ship.fit import Fit
    from graphfix.ship.manifest import Container, Port

    Array = npt.NDArray[Any]
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
    """A folder that ``graphfix ship`` made, to its users an :class:`onnxruntime.InferenceSession`.

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
        progress: Called with the number of sessions made, how many there are, and the file, while
            they are made with ``warm``.

    Raises:
        ModelError: The folder has no manifest, or ONNX Runtime rejects a model of it.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        providers: Sequence[Any] | None = None,
        *,
        sess_options: onnxruntime.SessionOptions | None = None,
        share: bool = False,
        warm: bool = False,
        fallback: str | os.PathLike[str] | None = None,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.manifest = Manifest.read(self.folder)
        self._opened = Opened(providers, sess_options, share=share)
        self._fallback = None if fallback is None else Path(fallback)
        self._paths = {x.file: self.folder / x.file for x in self.manifest.containers}
        self._outputs = {x.name: x for x in self.manifest.outputs}
        self._all = list(self._outputs)
        self._fits: dict[tuple[object, ...] | None, tuple[Container, Fit]] = {}
        if warm:
            self._warm(progress or (lambda done, total, file: None))

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
        run_options: onnxruntime.RunOptions | None = None,
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
        wanted = self._wanted(output_names)
        key = _key(input_feed)
        known = self._fits.get(key)
        if known is not None:  # shapes that fitted once fit again: the way that costs least
            container, one = known
            fed = one.again(cast("Mapping[str, Array]", input_feed))
            arrays = self._opened.run(self._session(container), wanted, fed, run_options)
            return [one.outputs[name](array, 0) for name, array in zip(wanted, arrays, strict=True)]
        lists = {k: v for k, v in input_feed.items() if isinstance(v, (list, tuple))}
        if lists:
            return self._run_lists(wanted, input_feed, lists, run_options)
        feeds = {name: np.asarray(array) for name, array in input_feed.items()}
        require_inputs(self.manifest, feeds)
        clips = split(self.manifest, feeds)
        found = self._run_clips(wanted, clips, run_options)
        if len(clips) == 1:
            if key is not None:
                self._remember(key, length_of(self.manifest, feeds))
            return found[0]
        return [
            _whole(self._outputs[name], [one[i] for one in found]) for i, name in enumerate(wanted)
        ]

    def close(self) -> None:
        """Let go of every session that was made; the next run makes its own again."""
        self._opened.clear()

    def _run_lists(
        self,
        wanted: Sequence[str],
        feed: Given,
        lists: Mapping[str, Sequence[Array]],
        run_options: onnxruntime.RunOptions | None,
    ) -> list[list[Array]]:
        counts = {name: len(clips) for name, clips in lists.items()}
        if len(set(counts.values())) != 1:
            raise FeedError(f"the lists of clips have different lengths: {counts}")
        clips = [
            {name: np.asarray(v[i] if name in lists else v) for name, v in feed.items()}
            for i in range(next(iter(counts.values())))
        ]
        for clip in clips:
            require_inputs(self.manifest, clip)
        if any(rows_of(self.manifest, clip) != 1 for clip in clips):
            raise FeedError("each clip of a list has one row; give a batch as one array")
        found = self._run_clips(wanted, clips, run_options)
        return [[one[i] for one in found] for i in range(len(wanted))]

    def _run_clips(
        self,
        wanted: Sequence[str],
        clips: Sequence[Mapping[str, Array]],
        run_options: onnxruntime.RunOptions | None,
    ) -> list[list[Array]]:
        """The outputs of each clip; clips of one container share its rows."""
        lengths = [length_of(self.manifest, clip) for clip in clips]
        groups: dict[int | None, list[int]] = {}
        for i, length in enumerate(lengths):
            groups.setdefault(self._smallest(length), []).append(i)
        found: list[list[Array]] = [[] for _ in clips]
        for place, members in groups.items():
            rows = 1 if place is None else rows_in(self.manifest, self.manifest.containers[place])
            for start in range(0, len(members), rows):
                part = members[start : start + rows]
                outputs = self._run_part(
                    wanted, place, [clips[i] for i in part], [lengths[i] for i in part], run_options
                )
                for i, one in zip(part, outputs, strict=True):
                    found[i] = one
        return found

    def _run_part(
        self,
        wanted: Sequence[str],
        place: int | None,
        clips: Sequence[Mapping[str, Array]],
        lengths: Sequence[int],
        run_options: onnxruntime.RunOptions | None,
    ) -> list[list[Array]]:
        """One run: the outputs of the clips that one container holds, or of one in the fallback."""
        if place is None:
            return [self._run_fallback(wanted, clips[0], lengths[0], run_options)]
        container = self.manifest.containers[place]
        fits = [fit(self.manifest, container, length) for length in lengths]
        fed = together(self.manifest, container, clips, fits)
        arrays = self._opened.run(self._session(container), wanted, fed, run_options)
        return [
            [one.outputs[name](array, row) for name, array in zip(wanted, arrays, strict=True)]
            for row, one in enumerate(fits)
        ]

    def _remember(self, key: tuple[object, ...], length: int) -> None:
        place = self._smallest(length)
        if place is None or rows_in(self.manifest, self.manifest.containers[place]) != 1:
            return
        if len(self._fits) >= _REMEMBERED:
            self._fits.clear()
        container = self.manifest.containers[place]
        self._fits[key] = container, fit(self.manifest, container, length)

    def _wanted(self, output_names: Sequence[str] | None) -> Sequence[str]:
        if not output_names:  # as ONNX Runtime, which takes no names for all of them
            return self._all
        for name in output_names:
            if name not in self._outputs:
                raise FeedError(f"there is no output {name!r}; there are {', '.join(self._all)}")
        return output_names

    def _smallest(self, length: int) -> int | None:
        """Which container holds a clip; None where the fallback has to."""
        dim, shortest = self.manifest.axis.dim, self.manifest.axis.shortest
        if length < shortest:
            raise FeedError(
                f"a clip of {dim}={length} is shorter than {shortest}, from where on every window "
                "of the model has something to work on"
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
        self,
        wanted: Sequence[str],
        clip: Mapping[str, Array],
        length: int,
        run_options: onnxruntime.RunOptions | None,
    ) -> list[Array]:
        assert self._fallback is not None
        session = self._opened.get(self._fallback)
        known = {x.name for x in session.get_inputs()}
        fed = {name: array for name, array in clip.items() if name in known}
        lengths = self.manifest.lengths
        if lengths is not None and lengths in known and lengths not in fed:
            fed[lengths] = np.asarray([length], np.int64)
        return self._opened.run(session, wanted, fed, run_options)

    def _session(self, container: Container) -> onnxruntime.InferenceSession:
        path = self._paths[container.file]
        if (made := self._opened.made.get(path)) is not None:
            return made
        try:
            made = self._opened.get(path)
            self._require_ports(path, made)
            return made
        finally:  # the folder may be another now, and its containers not those of the manifest
            if Manifest.read(self.folder) != self.manifest:
                self._opened.made.pop(path, None)
                raise ModelError(
                    f"{self.folder}: was shipped again since this session was made; make another"
                )

    def _require_ports(self, path: Path, made: onnxruntime.InferenceSession) -> None:
        """Raise ModelError where a container is not what the manifest says."""
        known = {x.name for x in self.manifest.inputs} | {self.manifest.lengths}
        unfed = {x.name for x in made.get_inputs()} - known
        if missing := unfed | ({*self._all} - {x.name for x in made.get_outputs()}):
            raise ModelError(
                f"{path}: {min(missing)!r:.80} is in one of it and {NAME}, and not in the other; "
                "ship the model again"
            )

    def _warm(self, progress: Callable[[int, int, str], None]) -> None:
        total = len(self.manifest.containers)
        for done, container in enumerate(self.manifest.containers):
            progress(done, total, container.file)
            session = self._session(container)
            zeros = {
                x.name: np.zeros(x.shape, DTYPES[x.type])
                for x in session.get_inputs()
                if x.type in DTYPES
            }
            if self.manifest.lengths in zeros:  # a clip that fills it
                zeros[self.manifest.lengths or ""][:] = container.sizes[self.manifest.axis.dim]
            self._opened.run(session, [x.name for x in session.get_outputs()], zeros)
        progress(total, total, "")


def _key(feed: Given) -> tuple[object, ...] | None:
    """What decides how a clip fits; None where an input is something else than an array."""
    if not isinstance(feed, Mapping):
        raise FeedError(f"inputs are a dict of arrays by name, not {type(feed).__name__}")
    key: list[object] = []
    for name, array in feed.items():
        if type(array) is not np.ndarray:
            return None
        key += (name, array.shape, array.dtype)
    return tuple(key)


def _whole(port: Port, parts: Sequence[Array]) -> Array:
    if port.rows is None:
        return parts[0]
    return np.concatenate(parts, port.rows)
