"""graphfix bench: what it runs and says; never how long it took."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import onnx
import pytest

from graphfix.cli import main
from graphfix.measure import runner
from graphfix.measure.bench import bench

HEAD = '<ir_version: 8, opset_import: ["": 18]>\n'
RELU = HEAD + "g (float[T, 4] x) => (float[T, 4] y) { y = Relu (x) }"
WRONG = HEAD + "g (float[T, 4] x) => (float[T, 4] y) { y = Neg (x) }"
HALF = HEAD + "g (float16[T, 4] x) => (float16[T, 4] y) { y = Relu (x) }"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"a": RELU, "b": RELU, "wrong": WRONG, "half": HALF}.items():
        onnx.save(onnx.parser.parse_model(text), tmp_path / f"{name}.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.delenv(runner.COMMAND, raising=False)
    monkeypatch.setenv(runner.HOME, str(tmp_path))
    monkeypatch.setattr(runner, "native", lambda: False)


def test_two_that_are_the_same() -> None:
    done = bench(["a.onnx", "b.onnx"], ep="cpu", dims={"T": 8}, other={"T": 6}, runs=4)
    assert done.ok
    assert done.ep == "cpu"
    assert (done.dims, done.other) == ({"T": 8}, {"T": 6})
    for one in done.models:
        counts = {name: len(timing.seconds) for name, timing in one.phases.items()}
        assert counts == {"session": 1, "first run": 1, "steady": 4, "other shape": 2, "back": 2}
    ratio, (low, high) = done.models[1].ratio, done.models[1].interval
    assert low <= ratio <= high
    assert done.models[0].ratio is None
    json.dumps(done.to_json())


def test_a_wrong_graph_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "a.onnx", "wrong.onnx", "--ep", "cpu", "--runs", "1"]) == 1
    assert "wrong.onnx: output 'y' differs" in " ".join(capsys.readouterr().err.split())


def test_half_models_get_half_feeds() -> None:
    assert bench(["half.onnx"], ep="cpu", runs=1).ok


def test_a_cpu_run_is_not_called_a_directml_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "a.onnx", "--ep", "dml"]) == 2
    assert "make dml" in capsys.readouterr().err
    assert main(["bench", "a.onnx", "--runs", "1"]) == 0
    told = capsys.readouterr()
    assert "on the CPU, not on DirectML" in told.err
    timed = [line for line in told.out.splitlines() if " ms" in line]
    assert len(timed) == 5
    assert all("CPU" in line for line in timed)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "a.onnx", "--ep", "cpu", "--runs", "2", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["models"][0]["phases"]["steady"]["runs"] == 2


@pytest.mark.parametrize("wrong", [["--runs", "0"], ["--dims", "T=1,2"], ["--dims", "nope=3"]])
def test_wrong_usage(wrong: list[str]) -> None:
    assert main(["bench", "a.onnx", "--ep", "cpu", *wrong]) == 2
