"""One process of another Python, which runs models and may die of them.

It is started with :mod:`graphfix.runtime._worker`, and spoken to in lines of JSON; arrays go
through a file that both have open, see :mod:`graphfix.runtime._wire`. Each thread that asks has a
process of its own, so that a model in one is neither held up by one in another, nor ended with it.
"""

import atexit
import contextlib
import io
import json
import os
import queue
import re
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphfix.errors import UsageError
from graphfix.providers.table import PROVIDERS, ep_called, variable_of
from graphfix.providers.versions import distribution_of, is_meant
from graphfix.runtime import _wire
from graphfix.runtime.port import Feeds
from graphfix.runtime.process_group import ProcessGroup
from graphfix.runtime.run_errors import NoAnswerError, RunDiedError, RunError, reason_of
from graphfix.runtime.scratch import ScratchFolder, scratch_errors

# Memory grows by half a gigabyte with each session under Wine.
SESSIONS = 5
_START_SECONDS = 180.0
# Short, as Windows hears no signal while it waits.
_POLL_SECONDS = 0.1
# Comes before each answer: ONNX Runtime and drivers print what they like.
_MARK = "@graphfix:"
_CHATTER = re.compile(r"cpu_?info|:fixme:|cpuid_info")
# What an end means that says nothing else: of signals, and of the exceptions of Windows.
_DIVISION = "a division of integers by zero or beyond their range"
_MEMORY = "memory that is not there was read or written"
_MEANING = {
    "SIGFPE": _DIVISION,
    "SIGSEGV": _MEMORY,
    "SIGBUS": _MEMORY,
    "SIGKILL": "somebody ended it, such as the system for want of memory",
    "exit code 0xC0000094": _DIVISION,
    "exit code 0xC0000095": _DIVISION,
    "exit code 0xC0000005": _MEMORY,
    "exit code 0xC00000FD": "the stack was full",
}


@dataclass(frozen=True)
class Runner:
    """Another Python.

    Attributes:
        command: How to start it; the worker's script follows.
        prefix: What comes before a path of this machine there; empty if paths are the same.
        provider: The execution provider that its sessions must have.
        sessions: How many sessions one process makes before a fresh one takes over.
        version: Which version of ONNX Runtime it must have, as ``--ep dml@1.24.4`` names it.
    """

    command: tuple[str, ...]
    prefix: str = ""
    provider: str = PROVIDERS["dml"].ort_name
    sessions: int = SESSIONS
    version: str = ""

    def map_path(self, path: str | os.PathLike[str]) -> str:
        r"""Return a path of this machine as the other Python writes it: ``Z:\host\a``."""
        local_path = str(Path(path).resolve())
        return self.prefix + local_path.replace("/", "\\") if self.prefix else local_path


class Worker:
    """One process of the other Python."""

    def __init__(self, runner: Runner) -> None:
        with scratch_errors():
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the process)
            try:
                self._arrays = _ArrayFile(runner)
            except BaseException:
                self._errors.close()  # on Windows it has a name until then
                raise
        script = runner.map_path(Path(__file__).with_name("_worker.py"))
        self._owner = os.getpid()
        self._ask_lock = threading.Lock()
        self._forgotten: list[int] = []
        try:
            self._process = subprocess.Popen(
                [*runner.command, script, _MARK, self._arrays.name],
                pass_fds=self._arrays.inherited,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,  # Ctrl-C is ours to handle, and all of it ends together
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # so on Windows
            )
        except OSError as error:
            self._arrays.close()
            raise UsageError(f"{shlex.join(runner.command)}: {error.strerror}") from error
        self._process_group = ProcessGroup(self._process)
        self._error_output = b""
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read_answers, daemon=True)
        self._reader.start()
        self._sessions = runner.sessions
        self.opened = self.open_sessions = 0
        try:
            self.about = self.ask({"verb": "hello"}, _START_SECONDS, "starting")
            if lack := _lack_of(runner, self.about):
                own = f"its onnxruntime {self.about['onnxruntime']}"
                raise UsageError(f"{shlex.join(runner.command)}: {own} {lack}")
        except RunError as error:
            raise UsageError(f"{shlex.join(runner.command)} does not answer: {error}") from error
        except UsageError:
            self.stop()
            raise

    @property
    def is_alive(self) -> bool:
        """Return whether the process runs and was started by this process, not before a fork."""
        return self._owner == os.getpid() and self._process.poll() is None

    @property
    def is_spent(self) -> bool:
        """Return whether the next session needs a fresh process."""
        return self.opened >= self._sessions or not self.is_alive

    def reserve_session(self) -> int:
        """Return a number for one more session, which :meth:`release_session` ends."""
        self.opened += 1
        self.open_sessions += 1
        return self.opened

    def release_session(self) -> None:
        """Count one session less; after the last, a process that was replaced ends."""
        self.open_sessions -= 1
        if self.open_sessions == 0 and self not in _current.values():
            self.stop()

    def forget_session(self, number: int) -> None:
        """Let a session go with the next request, as its owner is gone; safe at any moment."""
        self._forgotten.append(number)

    def ask(
        self, request: Mapping[str, object], seconds: float, doing: str, feeds: Feeds | None = None
    ) -> dict[str, Any]:
        """Send a request, with arrays if it takes any, and wait for its answer.

        Returns:
            The answer; its ``arrays`` are arrays, by name.

        Raises:
            RunError: The process says why it could not.
            NoAnswerError: It took too long, and was ended.
            RunDiedError: It died instead of answering.
        """
        with self._ask_lock:
            forgotten = [self._forgotten.pop() for _ in range(len(self._forgotten))]
            self.open_sessions -= len(forgotten)
            sent = {**request, "forget": forgotten}
            if feeds is not None:
                sent["feeds"] = _wire.put(self._arrays.file, feeds)
            answer = self._await_answer(sent, seconds, doing)
            if "arrays" in answer:
                answer["arrays"] = _wire.take(self._arrays.file, answer["arrays"])
        if "error" in answer:
            raise RunError(reason_of(RuntimeError(answer["error"])))
        return answer

    def _await_answer(
        self, request: Mapping[str, object], seconds: float, doing: str
    ) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            line = self._next_line(seconds)
        except (OSError, ValueError):  # the process has closed its input, or was stopped
            line = None
        except queue.Empty:
            self.stop(kill=True)
            message = f"no answer after {seconds:.0f} s of {doing}; it was ended"
            raise NoAnswerError(message) from None
        except BaseException:  # Ctrl-C: an answer that comes now would be taken for the next one's
            self.stop(kill=True)
            raise
        if line is None:
            self.stop(kill=True)
            raise RunDiedError(f"the process died while {doing}{self._failure_text()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _next_line(self, seconds: float) -> str | None:
        """Return the next answer, or None if the process ended; signals are heard meanwhile.

        Raises:
            queue.Empty: It took longer than that.
        """
        end = time.monotonic() + seconds
        while True:
            remaining = end - time.monotonic()
            with contextlib.suppress(queue.Empty):
                return self._lines.get(timeout=max(0.0, min(_POLL_SECONDS, remaining)))
            if remaining <= 0:
                raise queue.Empty

    def stop(self, *, kill: bool = False) -> None:
        """End the process: by itself when its input ends, or by force."""
        if self._owner != os.getpid():
            return
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        for step in ((10.0, signal.SIGTERM), (5.0, getattr(signal, "SIGKILL", signal.SIGTERM))):
            if self._ends_within(0.0 if kill and step[1] == signal.SIGTERM else step[0]):
                self._collect_errors()
                return
            self._process_group.end_all(step[1])
        self._process.wait()
        self._collect_errors()

    def _ends_within(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while True:
            remaining = end - time.monotonic()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(max(min(_POLL_SECONDS, remaining), 0.0))
                return True
            if remaining <= _POLL_SECONDS:
                return False

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for raw in lines:
                text = raw.decode("utf-8", "replace").rstrip("\r\n")
                if text.startswith(_MARK):
                    self._lines.put(text.removeprefix(_MARK))
        self._lines.put(None)

    def _collect_errors(self) -> None:
        self._reader.join(5.0)
        if not self._errors.closed:
            self._errors.seek(0)
            self._error_output = self._errors.read().replace(b"\0", b"")  # Windows writes UTF-16
            self._errors.close()
        self._arrays.close()

    def _failure_text(self) -> str:
        lines = self._error_output.decode("utf-8", "replace").splitlines()
        # Wine's Windows has no processor topology to read; cpuinfo complains and all goes well.
        messages = [x.strip() for x in lines if x.strip() and not _CHATTER.search(x)]
        return f" ({_exit_cause(self._process.returncode)})" + (
            f": {messages[-1]}" if messages else ""
        )


def _lack_of(runner: Runner, about: Mapping[str, Any]) -> str:
    """Return what another Python lacks of what is asked of it, and what to do; "" if nothing."""
    ep = ep_called(runner.provider)
    if runner.provider not in about["providers"]:
        package = PROVIDERS[ep].distributions[0].package
        found = ", ".join(about["providers"])
        return f"has no {runner.provider}, only {found}; pip install {package} there"
    if is_meant(ep, about["onnxruntime"], runner.version):
        return ""
    package = distribution_of(ep, runner.version).package
    return (
        f"is not {runner.version}, which --ep or {variable_of(ep, 'VERSION')} names; name a Python "
        f"with {package} in {variable_of(ep)}"
    )


class _ArrayFile:
    """The file that arrays go through.

    Attributes:
        file: It, open.
        name: What the worker opens: a number if it inherits the file, which then has no name.
        inherited: The number, if so.
    """

    def __init__(self, runner: Runner) -> None:
        self._folder: ScratchFolder | None = None
        self._path: Path | None = None
        if os.name == "nt" or runner.prefix:  # nothing is inherited there, or not by Wine
            self._folder = ScratchFolder()
            self._path = self._folder.path / "arrays"
            number = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
        elif hasattr(os, "memfd_create"):
            number = os.memfd_create("graphfix")
        else:
            with tempfile.TemporaryFile() as file:
                number = os.dup(file.fileno())
        self.file = io.FileIO(number, "r+")
        self.name = str(number) if self._path is None else runner.map_path(self._path)
        self.inherited = (number,) if self._path is None else ()

    def close(self) -> None:
        """Close the file, and remove its name."""
        self.file.close()
        if self._folder is not None:
            self._folder.close()


def _exit_cause(code: int) -> str:
    """Return why a process ended: a signal, a Windows exception, or its own exit code."""
    name = f"exit code 0x{code:08X}" if code > 0xFFFF else f"exit code {code}"
    if code < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
    return f"{name}, {_MEANING[name]}" if name in _MEANING else name


_current: dict[tuple[Runner, int], Worker] = {}


def worker_for(runner: Runner) -> Worker:
    """Return this thread's process of a runner that still takes sessions, or a fresh one.

    The fresh one is started before the spent one ends: Wine and its display take seconds to come up
    and to go, and stay for a process that is there.
    """
    key = (runner, threading.get_ident())
    worker = _current.get(key)
    if worker is not None and not worker.is_spent:
        return worker
    fresh = _current[key] = Worker(runner)
    if worker is not None and worker.open_sessions == 0:
        threading.Thread(target=worker.stop).start()
    return fresh


def workers_of(runner: Runner) -> list[Worker]:
    """Return the processes of a runner that take sessions."""
    return [worker for (owner, _), worker in list(_current.items()) if owner == runner]


def stop_all() -> None:
    """End the processes that wait for the next model."""
    while _current:
        _current.popitem()[1].stop()


atexit.register(stop_all)
if hasattr(os, "register_at_fork"):  # the processes belong to the parent
    os.register_at_fork(after_in_child=_current.clear)
