"""A model loaded by another process, which may die of it.

That process runs :mod:`graphfix.runtime._worker`: this Python once more, or one that has DirectML.
A graph that kills it is a result like any other; the next run gets a fresh process.
"""

import contextlib
import json
import math
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphfix.errors import ModelError
from graphfix.runtime import memory_need, run_errors
from graphfix.runtime.model_source import Source, prepare_source
from graphfix.runtime.port import Array, Feeds, Port
from graphfix.runtime.process import Runner, Worker, worker_for
from graphfix.runtime.run_errors import NoAnswerError, RunError, StoppedError
from graphfix.runtime.scratch import Closable, ScratchFolder, scratch_errors
from graphfix.runtime.time_limits import SECONDS, run_seconds

_OPEN_SECONDS = 600.0
_RUN_SECONDS = 600.0
_MOST_RUNS = 10_000
# So long is true what a process may still take; to ask takes as long as a small model runs.
_MEMORY_SECONDS = 0.2


class RemoteSession(Closable):
    """A model loaded by another Python.

    Args:
        model: A path, the bytes of a self-contained ``.onnx`` file, or a model in memory.
        runner: The other Python.
        optimize: Whether ONNX Runtime may rewrite the graph before it runs it.
        free_dims: Sizes for symbolic dims, as ONNX Runtime's free-dimension overrides.
        profile: Whether to record what each node does, for :meth:`end_profile`.
        extra_outputs: Names of inner tensors of the main graph to return besides the outputs.
        threads: How many threads one operator may use; 0 for the default of ONNX Runtime.
        bounded: Whether asking for more memory than there is fails, and a run ends that takes
            longer than :func:`graphfix.runtime.time_limits.run_seconds`.

    Attributes:
        inputs: The model's inputs.
        outputs: Its outputs.
        open_seconds: How long the session took to make, in the other process.
        notes: What was run instead of the model, in sentences for the reader of a verdict.
        run_seconds: How long the last run took there.

    Raises:
        ModelError: ONNX Runtime rejects the model, or the process died of it.
        UsageError: The other Python does not start, or lacks the provider.
    """

    def __init__(
        self,
        model: Source,
        runner: Runner,
        *,
        optimize: bool = True,
        free_dims: Mapping[str, int] | None = None,
        profile: bool = False,
        without: Sequence[str] = (),
        extra_outputs: Sequence[str] = (),
        threads: int = 0,
        bounded: bool = False,
    ) -> None:
        self._runner = runner
        self._bounded = bounded
        self._memory, self._memory_asked = 0, -math.inf
        self._scratch: ScratchFolder | None = None
        self._worker: Worker | None = None
        self._unless_closed: weakref.finalize[[int], RemoteSession] | None = None
        self.run_seconds = 0.0
        self.notes: tuple[str, ...] = ()
        try:
            path, weights = self._write_model(model, extra_outputs)
            self._request = {
                "verb": "open",
                "model": runner.map_path(path),
                "provider": runner.provider,
                "optimize": optimize,
                "free_dims": dict(free_dims or {}),
                "profile": runner.map_path(self._own_folder() / "profile") if profile else "",
                "without": list(without),
                "weights": "" if weights is None else runner.map_path(weights),
                "threads": threads,
            }
            self._open_session()
        except BaseException:
            self.close()
            raise

    def _own_folder(self) -> Path:
        """Return a folder that is removed with the session."""
        if self._scratch is None:
            self._scratch = ScratchFolder()
        return self._scratch.path

    def _write_model(self, model: Source, extra: Sequence[str]) -> tuple[Path, Path | None]:
        """Return the path of the model, saved if it is only in memory, and its weights' folder."""
        source, weights = prepare_source(model, extra, self._own_folder)
        if isinstance(source, str):
            return Path(source), weights
        path = self._own_folder() / "given.onnx"
        with scratch_errors():
            path.write_bytes(source)
        return path, weights

    @property
    def python_facts(self) -> dict[str, Any]:
        """Return the versions and the system that the other Python reports."""
        return self._worker.about if self._worker is not None else {}

    def _open_session(self) -> None:
        self._worker = worker = worker_for(self._runner)
        self._memory_asked = -math.inf
        self._id = worker.reserve_session()
        request = {**self._request, **self._memory_limit(), "id": self._id}
        try:
            answer = worker.ask(request, _OPEN_SECONDS, "making the session")
        except RunError as error:
            worker.release_session()
            self._worker = None
            raise run_errors.as_load_error(error) from error
        self._memory_asked = -math.inf  # its weights have taken some
        self._unless_closed = weakref.finalize(self, worker.forget_session, self._id)
        self._unless_closed.atexit = False
        self.inputs = tuple(Port(n, t, tuple(s)) for n, t, s in answer["inputs"])
        self.outputs = tuple(Port(n, t, tuple(s)) for n, t, s in answer["outputs"])
        self._defaults = tuple(answer["defaults"])
        self.open_seconds = float(answer["seconds"])
        self.provider = str(answer["provider"])

    def _memory_limit(self) -> dict[str, int | None]:
        if not self._bounded:
            return {"memory": None}
        now = time.monotonic()
        if now - self._memory_asked > _MEMORY_SECONDS:
            self._memory_asked, self._memory = now, memory_need.available_memory()
        return {"memory": self._memory}

    def machine_facts(self) -> dict[str, str]:
        """Return facts about the machine: adapter, driver, processors, clock."""
        return {
            k: str(v) for k, v in self._ask_worker({"verb": "machine"}, "looking around").items()
        }

    def peak_memory(self) -> int | None:
        """Return the peak memory of the process in bytes, or None where it is unavailable."""
        peak: int | None = self._ask_worker({"verb": "memory"}, "counting memory")["peak"]
        return peak

    def _ask_worker(self, request: Mapping[str, object], doing: str) -> dict[str, Any]:
        if self._worker is None:
            raise RunError("the session is closed")
        return self._worker.ask({**request, "provider": self._runner.provider}, _RUN_SECONDS, doing)

    def run(
        self, feeds: Feeds, outputs: Sequence[str] | None = None, *, bind: bool = False
    ) -> dict[str, Array]:
        """Run the model once.

        Args:
            feeds: An array for each input, by name. Arrays that the model has no input for are
                ignored.
            outputs: Names of the outputs wanted; by default all.
            bind: Whether inputs are put on the device before the clock starts, and outputs
                fetched after it has stopped, through ONNX Runtime's I/O binding.

        Returns:
            An array for each output, by name. A sequence ``y`` comes as ``y.length``, ``y[0]``,
            ``y[1]``, ...; a map as ``y.keys`` and ``y['key']``; an absent optional as
            ``y.present``, false.

        Raises:
            RunError: An input does not fit, or an operator failed.
            RunDiedError: The process died of it.
            StoppedError: It took too long.
        """
        if self._worker is None or not self._worker.is_alive:
            self.close_worker()
            try:
                self._open_session()  # a graph that killed the last one is tried afresh
            except ModelError as error:
                raise run_errors.as_run_error(error) from error
        assert self._worker is not None
        request = {
            "verb": "run",
            "id": self._id,
            "outputs": [x.name for x in self.outputs] if outputs is None else list(outputs),
            "bind": bind,
            **self._memory_limit(),
        }
        seconds = run_seconds() if self._bounded else _RUN_SECONDS
        try:
            answer = self._worker.ask(
                request, seconds, "running the model", self._select_feeds(feeds)
            )
        except NoAnswerError as error:
            if not self._bounded:
                raise
            raise StoppedError(
                f"the model ran for {seconds:g} s without an end, so it was stopped; if it needs "
                f"longer, set {SECONDS}"
            ) from error
        self.run_seconds = float(answer["seconds"])
        arrays: dict[str, Array] = answer["arrays"]
        return arrays

    def time_runs(self, feeds: Feeds, runs: int, *, seconds: float = 0.0) -> tuple[float, ...]:
        """Run the model again and again in the other process, one run after the other.

        Args:
            feeds: An array for each input, by name.
            runs: How many runs at least.
            seconds: And until so much time has passed; but never more than 10,000 times.

        Returns:
            How long each run took, in seconds.

        Raises:
            RunError: An input does not fit, or an operator failed.
            RunDiedError: The process died of it.
        """
        timed = {"runs": runs, "seconds": seconds, "most": _MOST_RUNS}
        request = {"verb": "time", "id": self._id, **timed}
        if self._worker is None:
            raise RunError("the session is closed")
        limit = seconds + _RUN_SECONDS * runs
        answer = self._worker.ask(request, limit, "running the model", self._select_feeds(feeds))
        return tuple(float(x) for x in answer["seconds"])

    def _select_feeds(self, feeds: Feeds) -> dict[str, Array]:
        """Return the feeds that the model has an input for."""
        names = (*(x.name for x in self.inputs), *self._defaults)
        return {name: feeds[name] for name in names if name in feeds}

    def end_profile(self) -> list[dict[str, Any]]:
        """Return the events that ONNX Runtime's profiler recorded; this ends the session.

        Returns:
            Its events as it writes them. Those of nodes have ``args.provider``, ``args.op_name``
            and a ``name`` such as ``/layer/MatMul_kernel_time``. Empty without ``profile=True``,
            and of a process that died.
        """
        if self._worker is None or not self._worker.is_alive:
            return []
        with contextlib.suppress(RunError):
            request = {"verb": "close", "id": self._id, "profile": True}
            self._worker.ask(request, _RUN_SECONDS, "closing")
        self.close_worker()
        files = sorted(self._own_folder().glob("profile*.json"))
        return [x for file in files for x in json.loads(file.read_text(encoding="utf-8"))]

    def close_worker(self) -> None:
        """Let the model go; the process stays for the next one."""
        if self._worker is not None:
            worker, self._worker = self._worker, None
            if self._unless_closed is not None:
                self._unless_closed.detach()
            if worker.is_alive:
                with contextlib.suppress(RunError):
                    worker.ask({"verb": "close", "id": self._id}, _RUN_SECONDS, "closing")
            worker.release_session()

    def close(self) -> None:
        """Release the model and its files."""
        self.close_worker()
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None
