"""On the real DirectML: what crashes as exported, and runs and agrees after a repair."""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import graphfix
from graphfix import job
from graphfix.benchmark.bench import bench
from graphfix.benchmark.bench_result import AS_IT_IS, FIXED
from graphfix.errors import ModelError
from graphfix.job import checking
from graphfix.proof.verify import verify
from graphfix.providers.table import PROVIDERS
from graphfix.rules import rules
from graphfix.runtime import process, python, remote
from graphfix.runtime.local_session import Session
from graphfix.runtime.run_errors import RunError
from graphfix.spec.manual import rule_manual_of

MODELS = Path(__file__).parents[2] / "models"
HEAD = '<ir_version: 8, opset_import: ["": 18]>\n'
RESHAPE = (
    HEAD
    + """g (float[T, 8] x) => (float[N, 4] y) <int64[2] s = {-1, 4}> {
    a = Relu (x)  b = Reshape <allowzero = 1> (a, s)  y = Relu (b) }"""
)

RELU = HEAD + "g (float[T, 4] x) => (float[T, 4] y) { y = Relu (x) }"


def saved(folder: Path, text: str) -> Path:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def test_it_computes_what_numpy_does(tmp_path: Path) -> None:
    path = saved(tmp_path, HEAD + "g (float[T, 8] x) => (float[T, T] y) "
                 "{ t = Transpose (x) y = MatMul (x, t) }")  # fmt: skip
    x = np.random.default_rng(0).standard_normal((5, 8), np.float32)
    with Session(path, ep="dml") as session:
        np.testing.assert_allclose(session.run({"x": x})["y"], x @ x.T, rtol=1e-5, atol=1e-5)


def test_allowzero_crashes_and_runs_after_the_repair(tmp_path: Path) -> None:
    path = saved(tmp_path, RESHAPE)
    with Session(path, ep="dml") as session, pytest.raises(RunError, match="8007"):
        session.run({"x": np.ones((5, 8), np.float32)})
    report = job.repair_file(path, tmp_path / "fixed.onnx", "reshape-allowzero", ep="dml")
    assert report.ok, report.verdict
    assert report.output


@pytest.mark.parametrize("name", ["bert", "sensevoice"])
def test_a_model_runs_there_once_repaired(name: str, tmp_path: Path) -> None:
    report = job.repair_file(MODELS / name / "model.onnx", tmp_path / "fixed.onnx", ep="dml")
    assert report.ok, report.verdict


def test_a_model_that_crashes_is_a_failed_verdict() -> None:
    bert = MODELS / "bert/model.onnx"
    verdict = verify(bert, bert, ep="dml")
    assert not verdict.ok
    assert "does not run on DirectML" in verdict.reason


def test_two_processes_at_once(tmp_path: Path) -> None:
    path, x = saved(tmp_path, RELU), np.ones((2, 4), np.float32)
    with Session(path, ep="dml") as one:
        other = remote.RemoteSession(path, replace(python.runner_for("dml"), sessions=1))
        np.testing.assert_array_equal(one.run({"x": x})["y"], other.run({"x": x})["y"])
        other.close()


@pytest.mark.skipif(sys.platform != "linux", reason="no X server, or one without such sockets")
def test_the_displays_of_others_are_left_to_them(tmp_path: Path) -> None:
    """Another root beside this one, or the user's own X server, has the displays below :4."""
    process.stop_all()  # with the last one, the root's display goes
    path, x = saved(tmp_path, RELU), np.ones((2, 4), np.float32)
    with ExitStack() as taken:
        for display in (*range(4), 78):
            name = taken.enter_context(socket.socket(socket.AF_UNIX))
            with suppress(OSError):  # somebody else does have it
                name.bind(f"\0/tmp/.X11-unix/X{display}")
                name.listen()
        with Session(path, ep="dml") as session:
            np.testing.assert_array_equal(session.run({"x": x})["y"], x)


def test_the_first_tensor_that_parts_is_named(tmp_path: Path) -> None:
    # On DirectML a Cast from float to bool truncates: 0.5 is False there, and True elsewhere.
    path = saved(
        tmp_path,
        HEAD
        + """g (float[T, 8] x) => (float[T, 8] y) { t = Sigmoid (x)
        [cast] b = Cast <to = 9> (t)  f = Cast <to = 1> (b)  m = Mul (x, f)  y = Relu (m) }""",
    )
    verdict = verify(path, path, ep="dml")
    assert not verdict.ok
    assert verdict.first_divergence is not None
    assert verdict.first_divergence.node == "cast"


# A size divided by zero, on the CPU, where sizes are computed: ONNX Runtime 1.24 does not look.
DIVIDES_BY_ZERO = (
    HEAD
    + """g (float[T, 4] x) => (float[T, 4] y) { r = Relu (x)  s = Shape (r)  z = Sub (s, s)
    [fatal] d = Div (s, z)  i = Mul (d, z)  f = CastLike (i, r)
    m = ReduceSum <keepdims = 0> (f)  y = Add (r, m) }"""
)


def test_a_graph_that_kills_the_process_is_a_result(tmp_path: Path) -> None:
    good = saved(tmp_path, RELU)
    (tmp_path / "bad").mkdir()
    bad = saved(tmp_path / "bad", DIVIDES_BY_ZERO)
    done = bench([good, bad], ep="dml", processes=1, seconds=0.1, fixed=False)
    assert done.models[0].ok
    assert len(done.models[0].phases["steady"].seconds) == 1
    error = done.models[1].error
    if "the process died" not in error:
        pytest.skip(f"this ONNX Runtime survives it: {error}")
    assert error.endswith("it dies at node 'fatal' (Div)")


def test_bench_says_what_ran_where(tmp_path: Path) -> None:
    path = saved(tmp_path, HEAD + "g (float[T, 4] x) => (float[T, 4] y) "
                 "{ a = Neg (x) b = Exp (a) y = Relu (b) }")  # fmt: skip
    done = bench([path], ep="dml", processes=1, seconds=0.1)
    assert done.ok, done.models[0].error
    assert done.ep == "dml"
    loose, fixed = (done.models[0].results[x].seen.placed for x in (AS_IT_IS, FIXED))
    assert (loose.provider_counts, loose.fused_count) == ({PROVIDERS["dml"].ort_name: 3}, 0)
    assert (fixed.provider_counts, fixed.fused_count) == ({PROVIDERS["dml"].ort_name: 1}, 1)
    assert {"adapter", "DirectML.dll", "clock", "onnxruntime"} <= done.about.keys()
    assert done.models[0].results[AS_IT_IS].peak_memory


def test_a_model_and_its_half_side_by_side(tmp_path: Path) -> None:
    whole = saved(tmp_path, RELU)
    (tmp_path / "half").mkdir()
    half = saved(tmp_path / "half", RELU.replace("float[", "float16["))
    assert bench([whole, half], ep="dml", processes=1, seconds=0.1, fixed=False).ok


def test_check_says_of_a_run_what_crashed_and_where(tmp_path: Path) -> None:
    path = saved(tmp_path, RESHAPE)
    (told,) = [x for x in checking.check(graphfix.load(path)) if x.severity == "error"]
    assert (told.rule, told.at) == ("reshape-allowzero", "Reshape of b")
    crash = graphfix.verify(path, path, ep="dml")
    assert not crash.ok
    assert "8007023E" in str(crash) or "80070057" in str(crash)
    fixed = tmp_path / "fixed.onnx"
    job.repair_file(path, fixed)
    assert graphfix.verify(fixed, fixed, ep="dml").ok


def test_the_silent_differences_are_still_there(tmp_path: Path) -> None:
    """The rules of graphfix/rules/edge_values.py; if one fails, DirectML was repaired."""
    for name in ("negative-pads", "wide-comparison"):
        text = rule_manual_of(rules()[name]).flagged
        path = saved(tmp_path, text)
        with Session(path) as session:
            (port,) = session.inputs
        x = np.array([[5, 1, 2**31 + 7, 3, 9, -(2**31) - 1, 8, 2]], np.int64)
        feeds = {port.name: x[0] if name == "wide-comparison" else x.astype(np.float32)}
        with Session(path) as cpu, Session(path, ep="dml") as dml:
            (want,), (got,) = cpu.run(feeds).values(), dml.run(feeds).values()
        assert not np.array_equal(want, got), name


@pytest.mark.parametrize("rows", [1, 3])
def test_a_skip_is_not_repeated_for_each_row(tmp_path: Path, rows: int) -> None:
    """The rule skip-broadcast."""
    path = saved(tmp_path, rule_manual_of(rules()["skip-broadcast"]).flagged)
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.standard_normal((rows, 5, 4)).astype(np.float32),
        "places": rng.standard_normal((1, 5, 4)).astype(np.float32),
    }
    with Session(path) as cpu, Session(path, ep="dml") as dml:
        (want,), (got,) = cpu.run(feeds).values(), dml.run(feeds).values()
    assert np.allclose(want, got, atol=1e-4) == (rows == 1)


# How dynamo writes x[:-2], with the axis.
CUT = (
    HEAD
    + """g (float[%s] x) => (float[N] y)
    <int64[1] s = {-9223372036854775808}, int64[1] e = {-2}, int64[1] a = {0}>
    { y = Slice (x, s, e, a) }"""
)


def test_a_slice_from_the_lowest_integer_on_fails_or_is_empty(tmp_path: Path) -> None:
    x = np.arange(5, dtype=np.float32)
    with pytest.raises(ModelError, match="80070057"):
        Session(saved(tmp_path, CUT % 5), ep="dml")
    path = saved(tmp_path, CUT % "T")
    with Session(path, ep="dml") as session:
        assert session.run({"x": x})["y"].size == 0
    model = graphfix.load(path)
    graphfix.run(model, "slice-start")
    graphfix.save(model, tmp_path / "fixed.onnx")
    with Session(tmp_path / "fixed.onnx", ep="dml") as session:
        np.testing.assert_array_equal(session.run({"x": x})["y"], x[:-2])


def test_the_silent_difference_at_infinity_is_still_there(tmp_path: Path) -> None:
    """The rules of graphfix/rules/infinity.py."""
    large = {"x": np.full((1, 4), 6e4, np.float16), "w": np.ones((4, 4), np.float16)}
    cases = {"lost-infinity": large}
    for name, feeds in cases.items():
        path = saved(tmp_path, rule_manual_of(rules()[name]).flagged)
        with Session(path) as cpu, Session(path, ep="dml") as dml:
            assert not np.array_equal(cpu.run(feeds)["y"], dml.run(feeds)["y"]), name
