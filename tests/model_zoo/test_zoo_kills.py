"""`graphfix zoo` ended at moments that nobody has chosen, while it works over some models.

GRAPHFIX_KILLS says how often; GRAPHFIX_KILL_SEED draws the same moments again.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import pytest

from graphfix.model_zoo import cache
from graphfix.model_zoo.recipe import find_recipes
from tests.systems import wine

if TYPE_CHECKING:
    from collections.abc import Iterator

psutil = pytest.importorskip("psutil", reason="psutil is not installed; it comes with distributed")

KILLS = int(os.environ.get("GRAPHFIX_KILLS", "1"))
SEED = int(os.environ.get("GRAPHFIX_KILL_SEED", time.time_ns()))
NAMES = "abc"
RELU = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[T, 4] x) => (float[T, 4] y) { y = Relu (x) }"""

# Starts the zoo in a console of its own, and presses Ctrl-C or Ctrl-Break there when it is told to.
CONSOLE = """
import ctypes, os, signal, subprocess, sys
kernel = ctypes.WinDLL("kernel32")
kernel.SetConsoleCtrlHandler(None, False)  # what a shell runs behind it hears none
zoo = subprocess.Popen([sys.executable, "-m", "graphfix", *sys.argv[2:]])
sys.stdin.readline()
for number in (signal.SIGINT, signal.SIGBREAK):
    signal.signal(number, signal.SIG_IGN)
kernel.GenerateConsoleCtrlEvent(int(sys.argv[1]), 0)
sys.exit(zoo.wait())
"""


class Zoo:
    """Three models, their results, and all the processes of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        self.results = folder / "build" / "zoo"
        self.versions: dict[str, set[str]] = {name: set() for name in NAMES}
        self.begun: list[Any] = []

    def change(self, version: int, processes: int = 1) -> None:
        """Other models, of other keys: the results that are there are of the ones before.

        ``processes`` is in how many, one after the other, the one that is a model is timed.
        """
        for name in NAMES:
            path = self.folder / "models" / name / "model.onnx"
            path.parent.mkdir(parents=True, exist_ok=True)
            proto = onnx.parser.parse_model(RELU)
            proto.doc_string = str(version)
            if name != "a":  # these end soon
                path.write_bytes(b"no model " + str(version).encode())
            else:
                onnx.save(proto, path)
            recipe = f"[bench]\nprocesses = {processes}\nruns = 1\n"
            (path.parent / "model.toml").write_text(recipe, encoding="utf-8")
        for found in find_recipes(self.folder / "models"):
            self.versions[found.id].add(cache.key_of(found, "cpu"))

    def begin(self, key: int | None = None) -> subprocess.Popen[bytes]:
        """Start it; on Windows in a console, where that key can be pressed."""
        start = ["-m", "graphfix"] if key is None else ["-c", CONSOLE, str(key)]
        flag = "CREATE_NO_WINDOW" if key is None else "CREATE_NEW_CONSOLE"
        names = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(self.scratch))
        return subprocess.Popen(
            [sys.executable, *start, "zoo", "-j", "2"],
            cwd=self.folder,
            env={**os.environ, **names},
            stdin=subprocess.DEVNULL if key is None else subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            creationflags=getattr(subprocess, flag, 0),
            start_new_session=True,
        )

    def until(self, process: subprocess.Popen[bytes], seconds: float) -> bool:
        """Let it work, and see whom it begins; whether it still does."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and process.poll() is None:
            with contextlib.suppress(psutil.Error):
                found = [psutil.Process(process.pid)]
                found += found[0].children(recursive=True)
                self.begun += [x for x in found if x not in self.begun]
            time.sleep(0.05)
        return process.poll() is None

    def alive(self, seconds: float) -> list[Any]:
        """Those of its processes that live after so many seconds."""
        end = time.monotonic() + seconds
        while (left := list(filter(_lives, self.begun))) and time.monotonic() < end:
            time.sleep(0.1)
        return left

    def rows(self) -> dict[str, str]:
        """The key of each result, each a whole one of a version that there was."""
        found = {}
        for path in self.results.glob("*.json"):
            row = json.loads(path.read_text(encoding="utf-8"))
            assert row["id"] == path.stem
            assert row["key"] in self.versions[path.stem], row["reason"]
            assert row["ok"] == (path.stem == "a")
            found[path.stem] = row["key"]
        page = self.results / "index.html"
        assert not page.exists() or page.read_text(encoding="utf-8").rstrip().endswith("</html>")
        return found

    def left(self) -> set[str]:
        """What lies about beside the results."""
        about = self.folder / "build"
        there = {x.name for x in about.rglob("*") if x.is_file()} if about.exists() else set()
        wanted = {f"{name}.json" for name in NAMES} | {"index.html"}
        return (there - wanted) | {x.name for x in self.scratch.glob("graphfix-*")}

    def to_the_end(self) -> None:
        """A run that nobody ends, after which all is there, and nothing else."""
        then = time.time() - 1000
        for held in self.scratch.glob("*/.held"):  # else they might be a process's that begins
            os.utime(held, (then, then))
        process = self.begin()
        self.until(process, 900)
        assert process.wait() == 1  # b and c are no models
        now = {x.id: cache.key_of(x, "cpu") for x in find_recipes(self.folder / "models")}
        assert self.rows() == now
        assert not self.left()
        assert not self.alive(30)


def _lives(process: Any) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


@pytest.fixture
def zoo(tmp_path: Path) -> Iterator[Zoo]:
    made = Zoo(tmp_path)
    made.change(0)
    yield made
    for process in made.alive(0):
        with contextlib.suppress(psutil.Error):
            process.kill()


def test_killed_at_any_moment(zoo: Zoo) -> None:
    drawn = random.Random(SEED)
    print(f"GRAPHFIX_KILL_SEED={SEED}")
    start = time.monotonic()
    zoo.to_the_end()
    whole = time.monotonic() - start
    kept = littered = 0
    for kill in range(KILLS):
        before = zoo.rows()
        zoo.change(kill + 1)
        process = zoo.begin()
        zoo.until(process, drawn.uniform(0, whole))
        process.kill()
        process.wait()
        assert not zoo.alive(30), f"after kill {kill}"
        now = zoo.rows()
        assert now.keys() >= before.keys(), f"after kill {kill}"
        kept += sum(now[name] != key for name, key in before.items())
        littered += bool(zoo.left())
    zoo.to_the_end()
    print(f"{KILLS} kills: {kept} results were new by then, {littered} left something")


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "CTRL_BREAK_EVENT", "CTRL_C_EVENT"])
def test_interrupted(zoo: Zoo, how: str) -> None:
    """It ends all that it has begun, and leaves nothing."""
    number = getattr(signal, how, None)
    on_windows = how.startswith("CTRL")
    if number is None or on_windows != (sys.platform == "win32"):
        pytest.skip("another system's way to interrupt")
    if how == "CTRL_BREAK_EVENT" and wine():
        pytest.skip("Ctrl-Break ends what it reaches in Wine, and no handler is called")
    zoo.change(1, processes=1000)  # it does not end by itself, however fast the machine
    process = zoo.begin(number if on_windows else None)
    # graphfix, a row's process and its own one for models; and who presses the key
    while len(zoo.begun) < 3 + on_windows:
        assert zoo.until(process, 0.2)
    zoo.until(process, random.Random(SEED).uniform(0, 5))
    if process.stdin is not None:
        process.stdin.write(b"\n")
        process.stdin.close()
    else:
        process.send_signal(number)
    assert process.wait(60) == 130
    assert not zoo.alive(10)
    zoo.rows()
    assert not zoo.left()
