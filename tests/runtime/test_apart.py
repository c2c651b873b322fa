"""Every model runs in a process of its own, and what that dies of, or never ends, is a result."""

from __future__ import annotations

import io
import multiprocessing
import os
import re
import sys
import threading
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.errors import ModelError
from graphfix.proof.verify import verify
from graphfix.runtime import _wire, process, python, time_limits
from graphfix.runtime.isolated_call import call_in_worker
from graphfix.runtime.local_session import Session
from graphfix.runtime.run_errors import RunDiedError, RunError, StoppedError

HEAD = '<ir_version: 9, opset_import: ["" : 17]> m (float[T, 4] x) => (float[T, 4] y)'
PLAIN = f"{HEAD} {{ y = Relu (x) }}"
# INT64_MIN / -1 where T is 1: x86 traps, as it does of a division by zero.
DEADLY = f"""{HEAD} <int64[1] zero = {{0}}> {{
    s = Shape <start = 0, end = 1> (x) n = Neg (s)
    least = Constant <value_ints = [-9223372036854775808]> ()
    [fatal] d = Div (least, n) i = Mul (d, zero) f = Cast <to = 1> (i)
    m = ReduceSum <keepdims = 0> (f) y = Add (x, m) }}"""
# What the system calls it: a signal, or an exception of Windows.
DIVISION = r"(SIGFPE|exit code 0xC000009[45]), a division of integers by zero"
LONG = "int64 m = {4611686018427387904}, bool c = {1}"
ENDLESS = f"""{HEAD} <{LONG}> {{ y = Loop (m, c, x) <body = b
    (int64 i, bool go, float[T, 4] a) => (bool again, float[T, 4] out)
    {{ again = Identity (go) out = Relu (a) }}> }}"""
# At each step one more row is kept.
GREEDY = f"""{HEAD} <{LONG}, int64[1] big = {{50000000}}> {{
    y, all = Loop (m, c, x) <body = b
    (int64 i, bool go, float[T, 4] a) => (bool again, float[T, 4] out, float[N] kept)
    {{ again = Identity (go) out = Relu (a) kept = ConstantOfShape (big) }}> }}"""
HUGE = f"""{HEAD} <int64[1] five = {{5}}, int64[1] big = {{1099511627776}}, int64[1] one = {{1}}> {{
    s = Shape <start = 0, end = 1> (x) g = Greater (s, five) n = Where (g, big, one)
    k = ConstantOfShape (n) m = ReduceSum <keepdims = 0> (k) y = Add (x, m) }}"""


def feeds(rows: int) -> dict[str, np.ndarray]:
    return {"x": np.full((rows, 4), -1, np.float32)}


@pytest.fixture(autouse=True)
def _end() -> object:
    yield
    process.stop_all()


def workers() -> list[process.Worker]:
    return process.workers_of(python.runner_for("cpu"))


def test_a_size_that_kills_is_a_result_and_the_next_one_runs() -> None:
    with Session(ir.from_onnx_text(DEADLY), optimize=False) as session:
        np.testing.assert_array_equal(session.run(feeds(2))["y"], feeds(2)["x"])
        with pytest.raises(RunDiedError, match=rf"died while running the model \({DIVISION}"):
            session.run(feeds(1))
        np.testing.assert_array_equal(session.run(feeds(3))["y"], feeds(3)["x"])


def test_the_other_sizes_are_compared() -> None:
    before, after = ir.from_onnx_text(DEADLY), ir.from_onnx_text(DEADLY)
    verdict = verify(before, after)
    assert verdict.ok
    (one,) = [x for x in verdict.dropped if "T=1" in x.name]
    assert re.search(DIVISION, one.reason)
    assert len(verdict.cases) > 2


def test_a_repair_that_kills_is_told_with_its_node() -> None:
    verdict = verify(
        ir.from_onnx_text(PLAIN), ir.from_onnx_text(DEADLY.replace("Add (x", "Relu (x) q = Add (x"))
    )
    assert not verdict.ok
    assert re.search(DIVISION, verdict.reason)
    assert verdict.reason.endswith("it dies at node 'fatal' (Div)")


def test_what_has_no_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(time_limits.SECONDS, "1")
    with Session(ir.from_onnx_text(ENDLESS), optimize=False) as session:
        with pytest.raises(StoppedError, match="ran for 1 s without an end"):
            session.run(feeds(2))
        assert not any(x.is_alive for x in workers())


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded by the system elsewhere")
@pytest.mark.parametrize("text", [GREEDY, HUGE])
def test_memory_that_is_not_there_is_an_error(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphfix.runtime import memory_need

    monkeypatch.setattr(memory_need, "available_memory", lambda: 1 << 30)
    with (
        Session(ir.from_onnx_text(text), optimize=False) as session,
        pytest.raises(RunError, match=r"alloc|memory"),
    ):
        session.run(feeds(7))


def test_a_session_that_nobody_closed_is_let_go() -> None:
    session = Session(ir.from_onnx_text(PLAIN))
    (worker,) = workers()
    assert worker.open_sessions == 1
    del session
    with Session(ir.from_onnx_text(PLAIN)):
        assert worker.open_sessions == 1
    assert worker.open_sessions == 0


def test_threads_do_not_meet() -> None:
    """The death of one thread's model ends no other's."""
    wrong: list[object] = []

    def work(text: str, rows: int) -> None:
        try:
            with Session(ir.from_onnx_text(text), optimize=False) as session:
                for _ in range(3):
                    try:
                        found = session.run(feeds(rows))["y"]
                        assert found.shape == (rows, 4)
                        assert text == PLAIN
                    except RunDiedError:
                        assert text == DEADLY
        except BaseException as error:
            wrong.append(error)

    made = [(DEADLY, 1), *((PLAIN, rows) for rows in (2, 3, 5))]
    threads = [threading.Thread(target=work, args=x) for x in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def _in_fork(session: Session) -> None:
    assert session.run(feeds(3))["y"].shape == (3, 4)
    with Session(ir.from_onnx_text(PLAIN)) as own:
        assert own.run(feeds(4))["y"].shape == (4, 4)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_who_is_forked_has_a_process_of_his_own() -> None:
    with Session(ir.from_onnx_text(PLAIN)) as session:
        session.run(feeds(2))
        (worker,) = workers()
        child = multiprocessing.get_context("fork").Process(target=_in_fork, args=(session,))
        child.start()
        child.join(60)
        assert child.exitcode == 0
        assert worker.is_alive
        assert session.run(feeds(2))["y"].shape == (2, 4)


def test_a_function_is_called_there() -> None:
    found = call_in_worker(
        "graphfix.runtime._results:flatten_output", "y", {"x": np.ones(3)}, 60, "looking"
    )
    np.testing.assert_array_equal(found["y['x']"], np.ones(3))
    with pytest.raises(RunError, match="no_such"):
        call_in_worker("graphfix.runtime.no_such:f", "", {}, 60, "looking")


def test_what_does_not_load_is_an_error_and_the_process_stays() -> None:
    with Session(ir.from_onnx_text(PLAIN)):
        (worker,) = workers()
        with pytest.raises(ModelError, match="NoSuch"):
            Session(ir.from_onnx_text(PLAIN.replace("Relu", "NoSuch")))
        assert worker.is_alive


@pytest.mark.parametrize(
    "array",
    [
        np.array(2.5),
        np.zeros((0, 3), np.int8),
        np.arange(24, dtype=np.float16).reshape(2, 3, 4).transpose(2, 0, 1),
        np.array([True, False]),
        np.array([1 + 2j], np.complex64),
        np.array(["", "é\0x", "a"], object),
        np.array("one", object),
        np.zeros((0,), object),
    ],
    ids=str,
)
def test_arrays_travel(array: np.ndarray, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with io.FileIO(tmp_path / "file", "r+") as file:
        table = _wire.put(file, {"a": array, "b": np.ones(2)})
        found = _wire.take(file, table)
    assert found["a"].dtype == array.dtype
    np.testing.assert_array_equal(found["a"], array)
    np.testing.assert_array_equal(found["b"], np.ones(2))


def test_large_arrays_leave_no_memory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with io.FileIO(tmp_path / "file", "r+") as file:
        assert len(_wire.take(file, _wire.put(file, {"a": np.ones(1 << 22)}))["a"]) == 1 << 22
        assert not os.fstat(file.fileno()).st_size


def test_what_does_not_come_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with io.FileIO(tmp_path / "file", "r+") as file:
        table = _wire.put(file, {"a": np.ones(9)})
        file.truncate(8)
        with pytest.raises(EOFError, match="64 bytes"):
            _wire.take(file, table)
