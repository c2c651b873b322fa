"""ONNX Runtime's optimizer may die of a model, or never end: that is a result."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import onnx_ir as ir
import pytest

from graphfix.errors import ModelError
from graphfix.runtime import optimizer, process, python
from graphfix.runtime.errors import LoadDiedError
from graphfix.runtime.optimizer import optimized

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = '<ir_version: 9, opset_import: ["" : 17]>'
# What is constant is computed: some minutes of it.
ENDLESS = f"""{HEAD} m (float[T] x) => (float[T] y)
    <float one = {{1.0}}, int64[2] size = {{3000, 3000}}, float[2] zero = {{0.0, 0.0}}> {{
    a = Expand (one, size) {{}} s = ReduceMax <keepdims = 0> (z) y = Mul (x, s) }}"""
PRODUCTS = " ".join(
    f"{'z' if i == 199 else f'p{i}'} = MatMul ({f'p{i - 1}' if i else 'a'}, a)" for i in range(200)
)
SMALL = f"{HEAD} m (float[T, 4] x) => (float[T, 4] y) {{ h = Relu (x) y = Relu (h) }}"


def endless() -> ir.Model:
    return ir.from_onnx_text(ENDLESS.replace("{}", PRODUCTS))


def workers() -> list[process.Worker]:
    return process.of(python.here("cpu"))


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    process.stop_all()
    yield
    process.stop_all()


def test_the_process_is_kept_for_the_next_model() -> None:
    model = ir.from_onnx_text(SMALL)
    first = optimized(model, "basic")
    (worker,) = workers()
    again = optimized(model, "extended")
    assert workers() == [worker]
    assert [x.op_type for x in first.graph] == [x.op_type for x in again.graph] == ["Relu", "Relu"]
    assert str(first.graph[0].outputs[0].shape) == "[T,4]"


def test_what_the_process_dies_of_is_a_result() -> None:
    def kill() -> None:
        while not (found := workers()) or not found[0].alive:
            time.sleep(0.05)
        time.sleep(0.3)
        found[0]._process.kill()

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(LoadDiedError, match="the process died while optimizing in ONNX Runtime"):
        optimized(endless(), "basic")
    thread.join()
    assert optimized(ir.from_onnx_text(SMALL), "basic").graph


def test_what_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer, "run_seconds", lambda: 1.0)
    monkeypatch.setattr(optimizer, "_SECONDS_A_NODE", 0.0)
    with pytest.raises(ModelError, match="no answer after 1 s of optimizing"):
        optimized(endless(), "basic")
    assert not any(x.alive for x in workers())


def test_what_it_rejects_it_says_why() -> None:
    text = f"{HEAD} m (float[T, 4] x) => (float[T, 4] y) {{ y = NoSuchThing (x) }}"
    with pytest.raises(ModelError, match="NoSuchThing"):
        optimized(ir.from_onnx_text(text), "basic")
