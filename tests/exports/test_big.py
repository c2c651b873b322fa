"""Gigabytes: a graph is repaired in the memory of a graph, and its weights stay where they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import graphfix

ZOO = Path(os.environ.get("GRAPHFIX_ZOO", Path(__file__).parents[3] / "shared" / "zoo"))
SYNTH = ZOO / "big_synth.py"
pytestmark = [
    pytest.mark.skipif(not SYNTH.is_file(), reason=f"no {SYNTH}; set GRAPHFIX_ZOO"),
    pytest.mark.skipif(sys.platform != "linux", reason="memory is read from Linux's /proc"),
]

MEASURE = """
import json, sys
from pathlib import Path
import graphfix
report = graphfix.repair_file(sys.argv[1], check=False)
# Not ru_maxrss: that starts with the peak of the process that this one was forked from.
status = dict(line.split(":", 1) for line in Path("/proc/self/status").open())
peak = int(status["VmHWM"].split()[0]) // 1024
print(json.dumps({"peak": peak, "repairs": sum(len(p.changes) for p in report.passes)}))
"""


def synthesize(folder: Path, template: str, layers: int) -> Path:
    """A model of that many layers, whose weight file is all holes."""
    path = folder / "big.onnx"
    command = [sys.executable, SYNTH, "--template", template, "--layers", str(layers)]
    subprocess.run([*command, "--no-weights", "--out", path], check=True, stdout=subprocess.DEVNULL)
    end = 0
    for tensor in onnx.load(path, load_external_data=False).graph.initializer:
        entries = {e.key: e.value for e in tensor.external_data}
        end = max(end, int(entries.get("offset", 0)) + int(entries.get("length", 0)))
    with Path(f"{path}.data").open("wb") as file:
        file.truncate(end)
    return path


@pytest.mark.parametrize("template", ["sv_1088_ts14", "wh_1088_dy18"])
def test_four_gigabytes(tmp_path: Path, template: str) -> None:
    path = synthesize(tmp_path, template, 70)
    weights = Path(f"{path}.data")
    assert weights.stat().st_size > 2**31
    node = weights.stat().st_ino
    ran = subprocess.run(
        [sys.executable, "-c", MEASURE, path], check=True, capture_output=True, text=True
    )
    measured = json.loads(ran.stdout)
    assert measured["repairs"] > 200
    assert measured["peak"] < 400  # MB; the weights are ten times that
    assert sorted(f.name for f in tmp_path.iterdir()) == [
        "big.fixed.onnx",
        "big.onnx",
        "big.onnx.data",
    ]
    assert weights.stat().st_ino == node
    fixed = onnx.load(tmp_path / "big.fixed.onnx", load_external_data=False)
    old = onnx.load(path, load_external_data=False)
    where = {t.name: list(t.external_data) for t in old.graph.initializer if t.external_data}
    kept = {t.name: list(t.external_data) for t in fixed.graph.initializer if t.external_data}
    assert kept == where


def test_a_model_with_external_weights_is_verified(tmp_path: Path) -> None:
    path = synthesize(tmp_path, "sv_512_ts14", 6)
    report = graphfix.repair_file(path)
    assert report.ok
    assert report.changed
