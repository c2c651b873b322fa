"""Another Python runs the models: here this one, on the CPU, with the same worker."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from graphfix.errors import ModelError, UsageError
from graphfix.probing.padded import padded
from graphfix.proof.verify import verify
from graphfix.providers.table import PROVIDERS, Ep, variable_of
from graphfix.runtime import process, python
from graphfix.runtime.local_session import Session
from graphfix.runtime.process import Runner
from graphfix.runtime.profiling import read_placement
from graphfix.runtime.remote import RemoteSession
from graphfix.runtime.run_errors import RunError, reason_of

HERE = Runner((sys.executable,), provider="CPUExecutionProvider")
MODEL = """<ir_version: 8, opset_import: ["": 18]>
g (float[T, 4] x) => (float[T, 4] y) { y = Relu (x) }"""
X = {"x": np.array([[-1, 2, -3, 4]], np.float32)}


@pytest.fixture(autouse=True)
def _end() -> object:
    yield
    process.stop_all()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "a model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    return path


def open_worker() -> process.Worker:
    return process.workers_of(HERE)[-1]


def test_it_runs_a_model(model: Path) -> None:
    session = RemoteSession(model, HERE)
    assert session.inputs[0].shape == ("T", 4)
    np.testing.assert_array_equal(session.run(X)["y"], [[0, 2, 0, 4]])
    assert session.run_seconds > 0
    session.close()


def test_how_the_user_s_streams_are_encoded_does_not_matter(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not be spoken to, and was waited for."""
    monkeypatch.setenv("PYTHONIOENCODING", "utf-16")
    process.stop_all()  # one that is there has begun with others
    RemoteSession(model, HERE).close()


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
    assert not worker.is_alive
    session.close()


def test_a_process_is_fresh_after_five_sessions(model: Path) -> None:
    seen = []
    for _ in range(6):
        session = RemoteSession(model, HERE)
        seen.append(open_worker())
        session.close()
    assert len({id(x) for x in seen[:5]}) == 1
    assert seen[5] is not seen[0]
    seen[0]._process.wait(60)  # it ends beside the work of the fresh one
    assert not seen[0].is_alive


def test_where_each_node_ran(model: Path) -> None:
    session = RemoteSession(model, HERE, profile=True)
    session.run(X)
    assert read_placement(session.end_profile()).provider_counts == {"CPUExecutionProvider": 1}
    session.close()


def test_an_inner_tensor_and_fixed_dims(model: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 18]>
    g (float[T, 4] x) => (float[T, 4] y) { a = Neg (x) y = Relu (a) }"""
    given = onnx.parser.parse_model(text).SerializeToString()
    session = RemoteSession(given, HERE, extra_outputs=["a"], free_dims={"T": 1})
    assert session.inputs[0].shape == (1, 4)
    assert list(session.run(X, ["a"])) == ["a"]
    assert list(session.run(X)) == ["y", "a"]
    session.close()


def test_what_the_process_says_of_machine_and_memory(model: Path) -> None:
    session = RemoteSession(model, HERE)
    assert set(session.machine_facts()) >= {"processor", "clock"}
    assert (session.peak_memory() or 0) > 1 << 20
    session.close()


def test_what_ran_where_also_in_this_process(model: Path) -> None:
    with Session(model, profile=True) as session:
        session.run(X)
        here = read_placement(session.end_profile())
    assert [(node.op, node.provider) for node in here.nodes] == [("Relu", "CPUExecutionProvider")]


def test_copies_and_fused_graphs_are_told_from_nodes() -> None:
    def event(name: str, op: str, provider: str) -> dict[str, object]:
        return {"name": f"{name}_kernel_time", "args": {"op_name": op, "provider": provider}}

    dml, cpu = "DmlExecutionProvider", "CPUExecutionProvider"
    found = read_placement(
        [
            {"name": "model_run", "args": {}},
            event("Memcpy", "MemcpyFromHost", dml),
            event("DmlFusedNode_0_0", "DmlFusedNode_0_0", dml),
            event("Shape_3", "Shape", cpu),
            event("Shape_3", "Shape", cpu),
            event("Memcpy_token_1", "MemcpyToHost", dml),
        ]
    )
    assert found.provider_counts == {cpu: 1, dml: 1}
    assert (found.fused_count, found.copy_count, len(found.nodes)) == (1, 2, 4)


def _nowhere_else(_: Ep) -> Runner:
    raise AssertionError("this Python has the provider itself")


@pytest.fixture(params=["dml in another Python", "dml in this one", "cuda"])
def ep(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Ep:
    """A provider that is the CPU, in a process of its own wherever it is found."""
    if request.param == "dml in another Python":
        monkeypatch.setattr(python, "has_provider", lambda ep: ep == "cpu")
        monkeypatch.setattr(python, "find_python", lambda _: HERE)
        return "dml"
    name: Ep = "cuda" if request.param == "cuda" else "dml"
    monkeypatch.setattr(python, "has_provider", lambda _: True)
    monkeypatch.setattr(python, "find_python", _nowhere_else)
    monkeypatch.setitem(PROVIDERS, name, replace(PROVIDERS[name], ort_name="CPUExecutionProvider"))
    return name


class TestOwnProcess:
    """What may kill a process runs in one of its own; here by a division that the CPU dies of."""

    HEAD = '<ir_version: 8, opset_import: ["": 18]>\ng (float[T, 4] x) => (float[T, 4] y) {'
    DEADLY = """r = Relu (x)  s = Shape (r)  z = Sub (s, s)  h = Neg (s)  one = Div (h, s)
        least = Constant <value_ints = [-9223372036854775808]> ()
        [fatal] d = Div (least, one)  i = Mul (d, z)  f = CastLike (i, r)
        m = ReduceSum <keepdims = 0> (f)  y = Add (r, m)"""

    def pair(self, folder: Path, before: str, after: str) -> tuple[Path, Path]:
        for name, text in {"before": before, "after": after}.items():
            onnx.save(onnx.parser.parse_model(self.HEAD + text + "}"), folder / f"{name}.onnx")
        return folder / "before.onnx", folder / "after.onnx"

    def test_the_first_tensor_that_parts_is_named(self, tmp_path: Path, ep: Ep) -> None:
        files = self.pair(
            tmp_path,
            "a = Relu (x) [mid] b = Exp (a) c = Neg (b) y = Abs (c)",
            "a = Relu (x) [mid] b = Sqrt (a) c = Neg (b) y = Abs (c)",
        )
        verdict = verify(*files, ep=ep)
        assert not verdict.ok
        assert verdict.first_divergence is not None
        assert verdict.first_divergence.tensor == "b"
        assert "The first tensor to differ is 'b' (Exp 'mid')" in str(verdict)

    def test_the_node_that_kills_the_process_is_named(self, tmp_path: Path, ep: Ep) -> None:
        verdict = verify(*self.pair(tmp_path, "y = Relu (x)", self.DEADLY), ep=ep)
        assert "the process died while running the model" in verdict.reason
        assert verdict.reason.endswith("it dies at node 'fatal' (Div)")

    def test_a_container_that_kills_it_is_a_verdict(self, tmp_path: Path, ep: Ep) -> None:
        before, after = self.pair(tmp_path, "y = Relu (x)", self.DEADLY)
        found = padded(after, original=before, dims={"T": [2]}, ep=ep)
        assert not found.ok
        assert "the process died while running the model" in found.reason

    def test_text_goes_there_and_back(self, ep: Ep) -> None:
        text = """<ir_version: 8, opset_import: ["": 18]>
        g (string[N] x) => (string[N] y) { y = Identity (x) }"""
        given = np.array(["a", "quite long", ""], dtype=object)
        with Session(onnx.parser.parse_model(text).SerializeToString(), ep=ep) as session:
            found = session.run({"x": given})["y"]
        assert found.dtype == object
        np.testing.assert_array_equal(found, given)

    def test_nothing_runs_in_this_process(self, model: Path, ep: Ep) -> None:
        with Session(model, ep=ep) as session:
            open_worker()._process.kill()
            open_worker()._process.wait()
            np.testing.assert_array_equal(session.run(X)["y"], [[0, 2, 0, 4]])


def test_a_python_without_directml_is_refused(model: Path) -> None:
    if python.has_provider("dml"):
        pytest.skip("this Python has DirectML")
    with pytest.raises(UsageError, match="has no DmlExecutionProvider"):
        RemoteSession(model, Runner((sys.executable,)))


@pytest.fixture
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(variable_of("dml"), raising=False)
    monkeypatch.setenv(variable_of("dml", "HOME"), str(tmp_path))
    monkeypatch.setattr(python, "has_provider", lambda ep: ep == "cpu")


@pytest.mark.usefixtures("_nowhere")
class TestFind:
    def test_none_says_how_to_get_one(self, model: Path) -> None:
        with pytest.raises(UsageError, match="make dml"):
            Session(model, ep="dml")

    def test_the_environment_names_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(variable_of("dml"), f"'{sys.executable}' -B")
        assert python.find_python("dml") == Runner((sys.executable, "-B"))
        monkeypatch.setenv(variable_of("dml", "PATHS"), "Z:")
        assert python.find_python("dml").prefix == "Z:"
        monkeypatch.setenv(variable_of("dml"), "no-such-program")
        with pytest.raises(UsageError, match="no-such-program"):
            python.find_python("dml")

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows needs no Wine, nor its paths")
    def test_the_folder_of_make_dml_is_found(self, tmp_path: Path) -> None:
        (tmp_path / "dml-python").write_text("")
        (tmp_path / "dml-python").chmod(0o755)
        assert python.find_python("dml").map_path("/a/b") == "Z:\\host\\a\\b"


def test_the_reason_of_directml_is_short() -> None:
    said = r"E:\_work\1\s\onnxruntime\core\x.cpp(2853)\y.pyd!00: (caller: 0F) Exception(1) tid(24) "
    assert reason_of(RuntimeError(f"node: {said}80070057 Bad")) == "node: 80070057 Bad"


@pytest.mark.parametrize("optimize", [False, True])
def test_threads_that_wait_do_not_spin_unless_a_model_runs_as_users_have_it(
    model: Path, optimize: bool
) -> None:
    from graphfix.runtime import _worker

    request = {"provider": "CPUExecutionProvider", "free_dims": {}, "profile": "", "weights": ""}
    _worker._open({**request, "id": 1, "model": str(model), "optimize": optimize})
    entries = _worker._sessions.pop(1).get_session_options()
    spins = "session.intra_op.allow_spinning"
    try:
        assert entries.get_session_config_entry(spins) == "0"
        assert not optimize
    except RuntimeError:  # there is none
        assert optimize
