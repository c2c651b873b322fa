"""What was begun ends with who began it, also where that one is ended by force at its work."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from graphfix.model_zoo import model_process
from graphfix.model_zoo.recipe import Recipe
from graphfix.runtime.process import Runner, stop_all
from graphfix.runtime.remote import RemoteSession
from graphfix.runtime.run_errors import RunError, StoppedError
from graphfix.runtime.time_limits import SECONDS

killed = pytest.mark.skipif(
    sys.platform == "win32", reason="who is ended by force there leaves what is at work to its end"
)
X = {"x": np.zeros((1, 2, 4), np.float32)}
# A process that asks another one to run a model.
ASKER = """
import sys
import numpy as np
from graphfix.runtime.process import Runner
from graphfix.runtime.remote import RemoteSession
session = RemoteSession(sys.argv[1], Runner((sys.executable,), provider="CPUExecutionProvider"))
print("loaded", flush=True)
session.run({"x": np.zeros((1, 2, 4), np.float32)})
"""


def begun(pid: int, least: int) -> list[Any]:
    """The process and what it has begun, once there are so many and one is busy."""
    for _ in range(1200):
        found = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        if len(found) >= least and _busy(found[-1]):
            return found
        time.sleep(0.1)
    pytest.fail("nothing was begun")


def _busy(process: Any) -> bool:
    """Whether it computes, if slowly; what waits does nothing at all."""
    try:
        before = process.cpu_times().user
        time.sleep(1.0)
        # Wine counts nothing of another process.
        return sys.platform == "win32" or bool(process.cpu_times().user > before)
    except psutil.Error:
        return False


def lives(process: Any) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def end(processes: list[Any]) -> list[Any]:
    """Those that still live after some seconds; they are ended for good."""
    for _ in range(200):
        if not (left := [x for x in processes if lives(x)]):
            return []
        time.sleep(0.1)
    for one in left:
        one.kill()
    return left


@killed
def test_a_model_goes_with_who_asked_for_it(endless: Path) -> None:
    command = [sys.executable, "-c", ASKER, str(endless)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asker:
        assert asker.stdout is not None
        assert asker.stdout.readline() == "loaded\n"
        found = begun(asker.pid, 2)
        asker.kill()
    assert not end(found)


def test_a_model_goes_with_the_row_of_the_zoo_that_it_is_for(endless: Path) -> None:
    rows: list[dict[str, Any]] = []
    request = model_process.Request(Recipe("a", endless), "cpu", "k")
    thread = threading.Thread(target=lambda: rows.append(model_process.run_in_process(request)))
    thread.start()
    while not model_process._running:
        time.sleep(0.01)
    (process,) = model_process._running
    found = begun(process.pid, 2)  # the process of the row, and its own one for models
    model_process.end_processes()
    thread.join()
    assert not end(found)
    assert "its process died" in rows[0]["reason"]


@killed
def test_rows_go_with_the_zoo_that_is_killed(endless: Path) -> None:
    command = [sys.executable, "-m", "graphfix", "zoo", "--models", "."]
    with subprocess.Popen(command, cwd=endless.parent, stdout=subprocess.DEVNULL) as zoo:
        found = begun(zoo.pid, 3)  # the row's process, and its own one for models
        zoo.kill()
    assert not end(found)


@pytest.mark.skipif(sys.platform == "win32", reason="a key is pressed in test_zoo_kills.py there")
def test_a_key_is_for_the_zoo_and_not_for_its_rows(endless: Path) -> None:
    """A terminal tells them all; who died of it would be a row of a model that fails."""
    request = model_process.Request(Recipe("a", endless), "cpu", "k")
    thread = threading.Thread(target=model_process.run_in_process, args=[request])
    thread.start()
    while not model_process._running:
        time.sleep(0.01)
    (process,) = model_process._running
    found = begun(process.pid, 2)
    process.send_signal(signal.SIGINT)
    time.sleep(1.0)
    assert lives(found[0])
    model_process.end_processes()
    thread.join()
    assert not end(found)


def test_a_run_on_the_cpu_has_the_same_bound_there(
    endless: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECONDS, "0.5")
    runner = Runner((sys.executable,), provider="CPUExecutionProvider")
    session = RemoteSession(endless, runner, bounded=True)
    with pytest.raises(StoppedError, match=r"ran for 0\.5 s without an end, so it was stopped"):
        session.run(X)
    session.close()
    stop_all()


def test_no_size_does_better_where_a_model_has_no_end() -> None:
    """Who tries sizes goes on after a RunError, and a StoppedError is none."""
    assert not issubclass(StoppedError, RunError)
