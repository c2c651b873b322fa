"""Ctrl-C, SIGTERM and SIGKILL end everything that was begun, and leave nothing, whatever runs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

Begin = Callable[..., tuple[Any, str]]

HEAD = '<ir_version: 9, opset_import: ["" : 17]>'
# What is constant is computed by ONNX Runtime's optimizer.
PRODUCTS = " ".join(f"p{i + 1} = MatMul (p{i}, p0)" for i in range(200))
CONSTANT = f"""{HEAD} m (float[1, T, 4] x) => (float[1, T, 4] y)
    <float one = {{1.0}}, int64[2] size = {{3000, 3000}}>
    {{ p0 = Expand (one, size) {PRODUCTS} s = ReduceMax <keepdims = 0> (p200) y = Mul (x, s) }}"""
# One node that takes an hour: ONNX Runtime cannot be inferred to stop in it.
LONE = f"""{HEAD} m (float[1, T, 4] x) => (float[1, T, 4] y)
    <int64 one = {{1}}, int64[2] size = {{4000, 4000}}>
    {{ a = Expand (one, size) p = MatMul (a, a) s = ReduceMax <keepdims = 0> (p)
       f = Cast <to = 1> (s) y = Mul (x, f) }}"""
VERBS = {
    "run": ["run", "model.onnx"],
    "verify": ["verify", "model.onnx", "model.onnx"],
    "one node": ["run", "lone.onnx"],
    "padded": ["padded", "model.onnx"],
    "zoo": ["zoo"],
    "bench": ["bench", "model.onnx", "model.onnx", "--ep", "cpu"],
    "ship": ["ship", "constant.onnx", "-o", "folder", "--container", "T=8,16"],
    "plan": ["plan", "constant.onnx"],
}


def soon() -> float:
    """A second, and more where the machine is busy: Python's start, 20 times.

    With six processes for each processor it took 1 s, where Python took 0.1 s to start.
    """
    start = time.monotonic()
    subprocess.run([sys.executable, "-c", ""], check=True)
    return 1.0 + 20 * (time.monotonic() - start)


# Not by what is there: Wine shows its host's /proc.
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="signals of POSIX, and Linux's /proc to see processes in"
)


@pytest.fixture
def folder(endless: Path) -> Path:
    """Models that take days."""
    home = endless.parent
    onnx.save(onnx.parser.parse_model(CONSTANT), home / "constant.onnx")
    onnx.save(onnx.parser.parse_model(LONE), home / "lone.onnx")
    (home / "models" / "a").mkdir(parents=True)
    (home / "models" / "a" / "model.toml").touch()
    shutil.copy(endless, home / "models" / "a")
    return home


def hears() -> None:
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Starts graphfix with a mark by which its processes are found; none outlives a test."""
    marks: list[str] = []

    def started(words: list[str], folder: Path, **more: str) -> tuple[Any, str]:
        marks.append(f"GRAPHFIX_TEST_{uuid.uuid4().hex}")
        process = subprocess.Popen(
            [sys.executable, "-m", "graphfix", *words],
            cwd=folder,
            env={**os.environ, marks[-1]: "1", **more},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # What a shell runs behind it does not hear SIGINT, what nohup runs no SIGHUP, and this
            # may be run so.
            preexec_fn=hears,
        )
        return process, marks[-1]

    yield started
    for pid in (x for mark in marks for x in family(mark)):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def family(mark: str) -> list[int]:
    """The processes that were started with ``mark`` in their environment, and live."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            ours = mark.encode() in (entry / "environ").read_bytes()
            dead = " Z " in (entry / "stat").read_text()
        except OSError:
            continue
        if ours and not dead:
            found.append(int(entry.name))
    return found


def busy(pids: list[int], main: int) -> bool:
    """Whether a model is being computed: in another process, or another thread than the main."""
    ticks = 0
    for pid in pids:
        for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
            try:
                if pid != main or stat.parent.name != str(pid):
                    ticks += int(stat.read_text().rpartition(")")[2].split()[11])
            except OSError:
                continue
    return ticks > 150


@pytest.mark.parametrize(
    ("verb", "number"),
    [
        *((verb, "SIGTERM") for verb in VERBS),
        *(
            (verb, "SIGINT")
            for verb in ("run", "one node", "padded", "zoo", "plan", "bench", "ship")
        ),
        ("run", "SIGHUP"),
        *(("plan", "SIGKILL"), ("bench", "SIGKILL"), ("ship", "SIGKILL")),
    ],
)
def test_nothing_is_left(folder: Path, begin: Begin, verb: str, number: str) -> None:
    scratch = folder / "scratch"
    scratch.mkdir()
    before = sorted(x.name for x in folder.iterdir())
    process, mark = begin(VERBS[verb], folder, TMPDIR=str(scratch))
    while process.poll() is None and not busy(family(mark), process.pid):
        time.sleep(0.1)
    assert process.poll() is None, process.communicate()[1]
    sent = time.monotonic()
    process.send_signal(signal.Signals[number])
    _, told = process.communicate(timeout=60)
    while family(mark) and time.monotonic() < sent + 60:
        time.sleep(0.02)
    took = time.monotonic() - sent
    assert not family(mark)
    assert took < soon(), took
    if number != "SIGKILL":
        assert process.returncode == 130
        says = "0 results in" if verb == "zoo" else "nothing was written"
        assert f"interrupted; {says}" in told
        assert sorted(x.name for x in folder.iterdir()) == before
        assert not list(scratch.glob("graphfix-*"))  # ONNX Runtime leaves a file of its own


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_write_is_ended(tmp_path: Path, begin: Begin, number: str) -> None:
    """In the middle of two gigabytes of weights, of which no model speaks yet."""
    with (tmp_path / "weights").open("wb") as file:
        file.truncate(2_000_000_000)
    proto = onnx.parser.parse_model(
        f"{HEAD} m (float[N, 4] x) => (float[N, 2] y) <int64[2] s = {{-1, 2}}> "
        "{ a = ReduceMax <keepdims = 0> (w) b = Add (x, a) y = Reshape <allowzero = 1> (b, s) }"
    )
    weight = onnx.TensorProto(name="w", data_type=1, dims=[500_000_000])
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="weights")
    proto.graph.initializer.append(weight)
    onnx.save(proto, tmp_path / "model.onnx")
    words = ["run", "model.onnx", "-o", "o.onnx", "-p", "reshape-allowzero", "--no-verify"]
    words += ["--external-data", "separate"]
    before = sorted(x.name for x in tmp_path.iterdir())
    process, mark = begin(words, tmp_path)
    while process.poll() is None and not any(
        x.stat().st_size > 1 << 24 for x in tmp_path.glob("o.onnx.*.data")
    ):
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()[1]
    sent = time.monotonic()
    process.send_signal(signal.Signals[number])
    _, told = process.communicate(timeout=60)
    took = time.monotonic() - sent
    assert took < soon()
    assert process.returncode == 130
    assert "interrupted; nothing was written" in told
    assert sorted(x.name for x in tmp_path.iterdir()) == before
    assert not family(mark)
