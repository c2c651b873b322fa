"""DirectML where this Python has none: another Python runs the models, and may die of them.

DirectML exists for Windows only. On Linux a Windows Python under Wine has it (``make dml`` sets one
up); it is started with :mod:`graphfix.measure._worker`, and spoken to in lines of JSON. A graph
that kills the process is a result like any other; the next run gets a fresh process.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphfix.errors import ModelError, UsageError
from graphfix.measure._worker import MARK
from graphfix.measure.runtime import Port, RunError, reason_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    Array = npt.NDArray[Any]

COMMAND = "GRAPHFIX_DML_PYTHON"
"""The environment variable with the command line of a Python that has onnxruntime-directml."""
PATHS = "GRAPHFIX_DML_PATHS"
r"""What comes before a path of this machine there, such as ``Z:``; ``Z:\host`` for ``make dml``."""
HOME = "GRAPHFIX_DML_HOME"
"""The folder that ``make dml`` has filled, if it is not ``build/dml``."""

DML = "DmlExecutionProvider"
# Memory grows by half a gigabyte with each session under Wine.
_SESSIONS = 5
_START_SECONDS = 180.0
_OPEN_SECONDS = 600.0
_RUN_SECONDS = 600.0
_ROOT = Path(__file__).parents[2]


def native() -> bool:
    """Whether this Python itself has DirectML."""
    import onnxruntime

    return DML in onnxruntime.get_available_providers()


@dataclass(frozen=True)
class Runner:
    """Another Python.

    Attributes:
        command: How to start it; the worker's script follows.
        prefix: What comes before a path of this machine there; empty if paths are the same.
        provider: The execution provider that its sessions must have.
    """

    command: tuple[str, ...]
    prefix: str = ""
    provider: str = DML

    def path(self, path: str | os.PathLike[str]) -> str:
        r"""A path of this machine as the other Python writes it: ``Z:\host\a\b`` for ``/a/b``."""
        here = str(Path(path).resolve())
        return self.prefix + here.replace("/", "\\") if self.prefix else here


def find() -> Runner:
    """The Python that has DirectML, by the environment or where ``make dml`` puts it.

    Raises:
        UsageError: There is none, or the environment names one that cannot be started.
    """
    if given := os.environ.get(COMMAND, "").strip():
        command = tuple(shlex.split(given, posix=os.name != "nt"))
        if shutil.which(command[0]) is None:
            raise UsageError(f"{COMMAND}={given}: there is no program {command[0]!r}")
        ours = Path(command[0]).name == "dml-python"
        wine = any("wine" in Path(word).name for word in command)
        return Runner(command, os.environ.get(PATHS, "Z:\\host" if ours else "Z:" if wine else ""))
    home = Path(os.environ.get(HOME) or _ROOT / "build" / "dml")
    if os.access(home / "dml-python", os.X_OK):
        return Runner((str(home / "dml-python"),), os.environ.get(PATHS, "Z:\\host"))
    raise UsageError(
        "DirectML is not to be had here: this ONNX Runtime does not have it, and no other Python "
        f"is known. On Debian, run 'make dml' (as root); else set {COMMAND} to the command line "
        "of a Python with onnxruntime-directml, or use --ep cpu"
    )


class RemoteSession:
    """A model loaded by another Python; like :class:`graphfix.measure.Session`.

    Args:
        model: A path.
        runner: The other Python.
        optimize: Whether ONNX Runtime may rewrite the graph before it runs it.
        free_dims: Sizes for symbolic dims, as ONNX Runtime's free-dimension overrides.
        profile: Whether to record which provider ran each node, for :meth:`placement`.

    Attributes:
        inputs: The model's inputs.
        outputs: Its outputs.
        open_seconds: How long the session took to make, in the other process.
        run_seconds: How long the last run took there.

    Raises:
        ModelError: ONNX Runtime rejects the model, or the process died of it.
        UsageError: The other Python does not start, or lacks the provider.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        runner: Runner,
        *,
        optimize: bool = True,
        free_dims: Mapping[str, int] | None = None,
        profile: bool = False,
    ) -> None:
        self._model, self._runner = Path(model), runner
        self._scratch = tempfile.TemporaryDirectory(prefix="graphfix-dml-")
        self._folder = Path(self._scratch.name)
        self._profile = profile
        self._request = {
            "verb": "open",
            "model": runner.path(self._model),
            "provider": runner.provider,
            "optimize": optimize,
            "free_dims": dict(free_dims or {}),
            "profile": runner.path(self._folder / "profile") if profile else "",
        }
        self._worker: _Worker | None = None
        self.run_seconds = 0.0
        try:
            self._open()
        except BaseException:
            self._scratch.cleanup()
            raise

    @property
    def about(self) -> dict[str, Any]:
        """What the other Python says of itself: versions and system."""
        return self._worker.about if self._worker is not None else {}

    def _open(self) -> None:
        self._worker = worker = _worker_for(self._runner)
        self._id = worker.take()
        try:
            answer = worker.ask(
                {**self._request, "id": self._id}, _OPEN_SECONDS, "making the session"
            )
        except (RunError, ModelError) as error:
            worker.give_back()
            self._worker = None
            raise ModelError(str(error)) from error
        self.inputs = tuple(Port(n, t, tuple(s)) for n, t, s in answer["inputs"])
        self.outputs = tuple(Port(n, t, tuple(s)) for n, t, s in answer["outputs"])
        self.open_seconds = float(answer["seconds"])
        self.provider = str(answer["provider"])

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run the model once, as :meth:`graphfix.measure.Session.run` does.

        Raises:
            RunError: An input does not fit, an operator failed, or the process died.
        """
        if self._worker is None or not self._worker.alive:
            self.close_worker()
            try:
                self._open()  # a graph that killed the last one is tried afresh
            except ModelError as error:
                raise RunError(str(error)) from error
        assert self._worker is not None
        files = {}
        for i, port in enumerate(self.inputs):
            if port.name in feeds:
                path = self._folder / f"in{i}.npy"
                np.save(path, np.asarray(feeds[port.name]), allow_pickle=False)
                files[port.name] = self._runner.path(path)
        request = {
            "verb": "run",
            "id": self._id,
            "feeds": files,
            "folder": self._runner.path(self._folder),
        }
        answer = self._worker.ask(request, _RUN_SECONDS, "running the model")
        self.run_seconds = float(answer["seconds"])
        names = {self._runner.path(x): x for x in self._folder.glob("out*.npy")}
        found = {}
        for name, path in answer["outputs"].items():
            file = names.get(path) or self._folder / Path(path.replace("\\", "/")).name
            found[name] = np.load(file, allow_pickle=False)
        return found

    def profile(self) -> list[dict[str, Any]]:
        """What ONNX Runtime's profiler recorded of all runs, as it writes it; ends the session."""
        if self._worker is None or not self._worker.alive:
            return []
        with contextlib.suppress(RunError):
            self._worker.ask(
                {"verb": "close", "id": self._id, "profile": True}, _RUN_SECONDS, "closing"
            )
        self.close_worker()
        files = sorted(self._folder.glob("profile*.json"))
        return [x for file in files for x in json.loads(file.read_text(encoding="utf-8"))]

    def placement(self) -> dict[str, int]:
        """How many nodes each provider ran, from the profile; it ends the session.

        A group of nodes that DirectML has fused into one counts as one.
        """
        seen: dict[str, set[str]] = {}
        for event in self.profile():
            provider = event.get("args", {}).get("provider")
            if provider and event["name"].endswith("_kernel_time"):
                seen.setdefault(provider, set()).add(event["name"])
        return {provider: len(nodes) for provider, nodes in sorted(seen.items())}

    def close_worker(self) -> None:
        """Let the model go; the process stays for the next one."""
        if self._worker is not None:
            worker, self._worker = self._worker, None
            if worker.alive:
                with contextlib.suppress(RunError):
                    worker.ask({"verb": "close", "id": self._id}, _RUN_SECONDS, "closing")
            worker.give_back()

    def close(self) -> None:
        """Let go of the model and of the files that carried its arrays."""
        self.close_worker()
        self._scratch.cleanup()


class _Worker:
    """One process of the other Python."""

    def __init__(self, runner: Runner) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the process)
        script = runner.path(Path(__file__).with_name("_worker.py"))
        try:
            self._process = subprocess.Popen(
                [*runner.command, script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,  # Ctrl-C is ours to handle, and all of it ends together
            )
        except OSError as error:
            raise UsageError(f"{shlex.join(runner.command)}: {error.strerror}") from error
        self._said = b""
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.opened = self.held = 0
        try:
            self.about = self.ask({"verb": "hello"}, _START_SECONDS, "starting")
            if runner.provider not in self.about["providers"]:
                raise UsageError(
                    f"{shlex.join(runner.command)}: its onnxruntime {self.about['onnxruntime']} "
                    f"has no {runner.provider}, only {', '.join(self.about['providers'])}; "
                    "pip install onnxruntime-directml there"
                )
        except RunError as error:
            raise UsageError(f"{shlex.join(runner.command)} does not answer: {error}") from error
        except UsageError:
            self.stop()
            raise

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def spent(self) -> bool:
        return self.opened >= _SESSIONS or not self.alive

    def take(self) -> int:
        self.opened += 1
        self.held += 1
        return self.opened

    def give_back(self) -> None:
        self.held -= 1
        if self.held == 0 and self.spent:
            self.stop()

    def ask(self, request: Mapping[str, object], seconds: float, doing: str) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            line = self._lines.get(timeout=seconds)
        except OSError:
            line = None
        except queue.Empty:
            self.stop(kill=True)
            raise RunError(f"no answer after {seconds:.0f} s of {doing}; it was ended") from None
        except BaseException:  # Ctrl-C: an answer that comes now would be taken for the next one's
            self.stop(kill=True)
            raise
        if line is None:
            self.stop(kill=True)
            raise RunError(f"the process died while {doing}{self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RunError(reason_of(RuntimeError(answer["error"])))
        return answer

    def stop(self, *, kill: bool = False) -> None:
        """End the process: by itself when its input ends, or by force."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        for step in ((10.0, signal.SIGTERM), (5.0, getattr(signal, "SIGKILL", signal.SIGTERM))):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.0 if kill and step[1] == signal.SIGTERM else step[0])
                self._hear()
                return
            with contextlib.suppress(OSError):
                if os.name == "nt":
                    self._process.kill()
                else:
                    os.killpg(self._process.pid, step[1])
        self._process.wait()
        self._hear()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for raw in lines:
                text = raw.decode("utf-8", "replace").rstrip("\r\n")
                if text.startswith(MARK):
                    self._lines.put(text.removeprefix(MARK))
        self._lines.put(None)

    def _hear(self) -> None:
        self._reader.join(5.0)
        if not self._errors.closed:
            self._errors.seek(0)
            self._said = self._errors.read().replace(b"\0", b"")  # Windows writes UTF-16
            self._errors.close()

    def _last_words(self) -> str:
        lines = self._said.decode("utf-8", "replace").splitlines()
        # Wine's Windows has no processor topology to read; cpuinfo complains and all goes well.
        said = [x.strip() for x in lines if x.strip() and "cpuinfo" not in x]
        code = self._process.returncode
        return f" (exit code {code})" + (f": {said[-1]}" if said else "")


_current: dict[Runner, _Worker] = {}


def _worker_for(runner: Runner) -> _Worker:
    worker = _current.get(runner)
    if worker is None or worker.spent:
        if worker is not None and worker.held == 0:
            worker.stop()
        worker = _current[runner] = _Worker(runner)
    return worker


def stop_all() -> None:
    """End the processes that wait for the next model."""
    while _current:
        _current.popitem()[1].stop()


atexit.register(stop_all)
