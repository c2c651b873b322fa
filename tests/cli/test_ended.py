"""Ctrl-C, SIGTERM and SIGKILL end everything that was begun, and leave nothing, whatever runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import numpy as np
import onnx
import pytest

HEAD = '<ir_version: 9, opset_import: ["" : 17]>'
LOOP = f"""{HEAD} m (float[1, T, 4] x) => (float[1, T, 4] y) {{ y = Loop (m, c, x) <body = b
    (int64 i, bool go, float[1, T, 4] a) => (bool again, float[1, T, 4] out)
    {{ again = Identity (go) out = Relu (a) }}> }}"""
# What is constant is computed by ONNX Runtime's optimizer.
PRODUCTS = " ".join(f"p{i + 1} = MatMul (p{i}, p0)" for i in range(200))
CONSTANT = f"""{HEAD} m (float[1, T, 4] x) => (float[1, T, 4] y)
    <float one = {{1.0}}, int64[2] size = {{3000, 3000}}>
    {{ p0 = Expand (one, size) {PRODUCTS} s = ReduceMax <keepdims = 0> (p200) y = Mul (x, s) }}"""
VERBS = {
    "run": ["run", "model.onnx"],
    "padded": ["padded", "model.onnx"],
    "bench": ["bench", "model.onnx", "model.onnx", "--ep", "cpu"],
    "ship": ["ship", "constant.onnx", "-o", "folder", "--container", "T=8,16"],
    "plan": ["plan", "constant.onnx"],
}

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="there is no /proc to see processes in"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Models that take days."""
    proto = onnx.parser.parse_model(LOOP)
    for name, value in (("m", 2**35), ("c", True)):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(value), name))
    onnx.save(proto, tmp_path / "model.onnx")
    onnx.save(onnx.parser.parse_model(CONSTANT), tmp_path / "constant.onnx")
    return tmp_path


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
        *(("plan", "SIGINT"), ("bench", "SIGINT")),
        *(("plan", "SIGKILL"), ("bench", "SIGKILL"), ("ship", "SIGKILL")),
    ],
)
def test_nothing_is_left(folder: Path, verb: str, number: str) -> None:
    mark = f"GRAPHFIX_TEST_{uuid.uuid4().hex}"
    scratch = folder / "scratch"
    scratch.mkdir()
    before = sorted(x.name for x in folder.iterdir())
    process = subprocess.Popen(
        [sys.executable, "-m", "graphfix", *VERBS[verb]],
        cwd=folder,
        env={**os.environ, mark: "1", "TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not busy(family(mark), process.pid):
        time.sleep(0.1)
    assert process.poll() is None, process.communicate()[1]
    process.send_signal(signal.Signals[number])
    _, told = process.communicate(timeout=60)
    for _ in range(600):
        if not family(mark):
            break
        time.sleep(0.1)
    assert not family(mark)
    if number != "SIGKILL":
        assert process.returncode == 130
        assert "interrupted; nothing was written" in told
        assert sorted(x.name for x in folder.iterdir()) == before
        assert not list(scratch.glob("graphfix-*"))  # ONNX Runtime leaves a file of its own
