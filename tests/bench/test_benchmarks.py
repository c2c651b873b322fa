"""make bench: the generator's models are real ones, and a run is measured as it was."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import onnx
import pytest

import graphfix
from tests.loading import module_at

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.parametrize("inline", [False, True])
def test_a_made_model_is_repaired_and_verified(tmp_path: Path, inline: bool) -> None:
    path = tmp_path / "m.onnx"
    module_at(BENCH / "synth.py").write(path, 2, 32, inline=inline)
    assert path.with_name("m.onnx.data").exists() is not inline
    onnx.checker.check_model(str(path), full_check=True)
    report = graphfix.repair_file(path)
    assert report.ok
    assert {x.name: len(x.changes) for x in report.passes if x.changes} == {
        "additive-mask": 4,
        "cumsum-index": 1,
        "unflatten-heads": 8,
        "fold": 2,
    }


def test_every_layer_adds_as_many_nodes(tmp_path: Path) -> None:
    synth = module_at(BENCH / "synth.py")
    counts = [len(synth.build(n, 32)[0].graph.node) for n in (1, 2, 3)]
    assert counts[1] - counts[0] == counts[2] - counts[1] > 100


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="processes are measured by wait4")
class TestMeasuring:
    def test_time_and_memory(self, tmp_path: Path) -> None:
        compare = module_at(BENCH / "compare.py")
        runs = compare.Runs()
        command = [sys.executable, "-c", "x = bytearray(10**8); print(len(x))"]
        compare.measure(command, runs, tmp_path / "log", 10**10, 60)
        assert not runs.failed
        assert runs.wall[0] > 0
        assert runs.cpu[0] > 0
        assert 100 < runs.peak[0] < 400

    @pytest.mark.parametrize(
        ("code", "says"),
        [
            ("raise ValueError('no such thing')", "ValueError: no such thing"),
            ("bytearray(10**10)", "asked for over 1 GB of memory"),
            ("while True: pass", "stopped after 1 s of processor time"),
        ],
    )
    def test_why_there_is_no_result(self, tmp_path: Path, code: str, says: str) -> None:
        compare = module_at(BENCH / "compare.py")
        runs = compare.Runs()
        compare.measure([sys.executable, "-c", code], runs, tmp_path / "log", 10**9, 1)
        assert runs.failed == says
        assert runs.wanted == 0
