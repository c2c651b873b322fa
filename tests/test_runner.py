"""Another Python runs the models: here this one, on the CPU, with the same worker."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from graphfix.errors import ModelError, UsageError
from graphfix.measure import runner
from graphfix.measure.runner import RemoteSession, Runner
from graphfix.measure.runtime import RunError, Session, reason_of

HERE = Runner((sys.executable,), provider="CPUExecutionProvider")
MODEL = """<ir_version: 8, opset_import: ["": 18]>
g (float[T, 4] x) => (float[T, 4] y) { y = Relu (x) }"""
X = {"x": np.array([[-1, 2, -3, 4]], np.float32)}


@pytest.fixture(autouse=True)
def _end() -> object:
    yield
    runner.stop_all()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "a model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    return path


def open_worker() -> runner._Worker:
    return runner._current[HERE]


def test_it_runs_a_model(model: Path) -> None:
    session = RemoteSession(model, HERE)
    assert session.inputs[0].shape == ("T", 4)
    np.testing.assert_array_equal(session.run(X)["y"], [[0, 2, 0, 4]])
    assert session.run_seconds > 0
    session.close()


def test_a_reason_is_handed_on(model: Path, tmp_path: Path) -> None:
    session = RemoteSession(model, HERE)
    with pytest.raises(RunError, match="x"):
        session.run({"x": np.zeros((1, 5), np.float32)})
    np.testing.assert_array_equal(session.run(X)["y"], [[0, 2, 0, 4]])
    session.close()
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    with pytest.raises(ModelError):
        RemoteSession(tmp_path / "bad.onnx", HERE)


def test_the_death_of_the_process_is_a_result_and_the_next_run_gets_a_fresh_one(
    model: Path,
) -> None:
    session = RemoteSession(model, HERE)
    worker = open_worker()
    worker._process.kill()
    worker._process.wait()
    with pytest.raises(RunError, match="the process died while running the model"):
        worker.ask({"verb": "hello"}, 5, "running the model")
    np.testing.assert_array_equal(session.run(X)["y"], [[0, 2, 0, 4]])
    assert open_worker() is not worker
    session.close()


def test_a_process_that_does_not_answer_is_ended(model: Path) -> None:
    session = RemoteSession(model, HERE)
    worker = open_worker()
    with pytest.raises(RunError, match="no answer"):
        worker.ask({"verb": "hello"}, 0.0, "waiting")
    assert not worker.alive
    session.close()


def test_a_process_is_fresh_after_five_sessions(model: Path) -> None:
    seen = []
    for _ in range(6):
        session = RemoteSession(model, HERE)
        seen.append(open_worker())
        session.close()
    assert len({id(x) for x in seen[:5]}) == 1
    assert seen[5] is not seen[0]
    assert not seen[0].alive


def test_where_each_node_ran(model: Path) -> None:
    session = RemoteSession(model, HERE, profile=True)
    session.run(X)
    assert session.placement() == {"CPUExecutionProvider": 1}
    session.close()


def test_a_python_without_directml_is_refused(model: Path) -> None:
    if runner.native():
        pytest.skip("this Python has DirectML")
    with pytest.raises(UsageError, match="has no DmlExecutionProvider"):
        RemoteSession(model, Runner((sys.executable,)))


@pytest.fixture
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(runner.COMMAND, raising=False)
    monkeypatch.setenv(runner.HOME, str(tmp_path))
    monkeypatch.setattr(runner, "native", lambda: False)


@pytest.mark.usefixtures("_nowhere")
class TestFind:
    def test_none_says_how_to_get_one(self, model: Path) -> None:
        with pytest.raises(UsageError, match="make dml"):
            Session(model, ep="dml")

    def test_the_environment_names_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(runner.COMMAND, f"'{sys.executable}' -B")
        assert runner.find() == Runner((sys.executable, "-B"))
        monkeypatch.setenv(runner.PATHS, "Z:")
        assert runner.find().path("/a/b") == "Z:\\a\\b"
        monkeypatch.setenv(runner.COMMAND, "no-such-program")
        with pytest.raises(UsageError, match="no-such-program"):
            runner.find()

    def test_the_folder_of_make_dml_is_found(self, tmp_path: Path) -> None:
        (tmp_path / "dml-python").write_text("")
        (tmp_path / "dml-python").chmod(0o755)
        assert runner.find().path("/a/b") == "Z:\\host\\a\\b"


def test_the_reason_of_directml_is_short() -> None:
    said = r"E:\_work\1\s\onnxruntime\core\x.cpp(2853)\y.pyd!00: (caller: 0F) Exception(1) tid(24) "
    assert reason_of(RuntimeError(f"node: {said}80070057 Bad")) == "node: 80070057 Bad"
