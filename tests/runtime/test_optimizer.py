"""ONNX Runtime's optimizer may die of a model, or never end: that is a result."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import onnx_ir as ir
import pytest

from graphfix.errors import ModelError
from graphfix.files import io
from graphfix.runtime import optimizer, process, python
from graphfix.runtime.optimizer import Optimizer
from graphfix.runtime.run_errors import LoadDiedError

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


def optimized(model: ir.Model, level: Literal["basic", "extended"]) -> ir.Model:
    with Optimizer(model) as optimizer:
        return optimizer.optimize(level)


def workers() -> list[process.Worker]:
    return process.workers_of(python.runner_for("cpu"))


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
        while not (found := workers()) or not found[0].is_alive:
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
    assert not any(x.is_alive for x in workers())


def test_what_it_rejects_it_says_why() -> None:
    text = f"{HEAD} m (float[T, 4] x) => (float[T, 4] y) {{ y = NoSuchThing (x) }}"
    with pytest.raises(ModelError, match="NoSuchThing"):
        optimized(ir.from_onnx_text(text), "basic")


HEAVY = f"""{HEAD} m (float[T, 4] x) => (float[T, 5000] y)
    <float[5000] b = {{{", ".join(["0.5"] * 5000)}}}, int64[2] four = {{4, 1}},
     float[1, 4] row = {{1.0, 2.0, 3.0, 4.0}}> {{
    c = Reshape (row, four)  p = MatMul (x, c)  s = Add (p, b)  y = Relu (s) }}"""


# The optimizer takes both Transposes away, and gives Relu a tensor of its own.
MOVED = HEAVY.replace(
    "p = MatMul (x, c)",
    """m = MatMul (x, c)  n = Unsqueeze (m, axes)  t = Transpose <perm = [0, 2, 1]> (n)
    r = Relu (t)  u = Transpose <perm = [0, 2, 1]> (r)  e = Exp (u)  p = Squeeze (e, axes)""",
).replace("int64[2] four", "int64[1] axes = {1}, int64[2] four")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What the process is asked, and how large the models are."""
    found: list[tuple[str, int]] = []
    ask = optimizer._ask_optimizer

    def counted(request: dict[str, object], seconds: float) -> dict[str, object]:
        found.append((str(request["verb"]), Path(str(request["model"])).stat().st_size))
        return ask(request, seconds)

    monkeypatch.setattr(optimizer, "_ask_optimizer", counted)
    return found


def test_weights_are_written_once_for_all_levels(
    tmp_path: Path, asked: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[ir.Model] = []
    with_weights = optimizer._load_weights
    monkeypatch.setattr(optimizer, "_load_weights", lambda x: copied.append(x) or with_weights(x))
    ir.save(ir.from_onnx_text(HEAVY), tmp_path / "m.onnx", external_data="m.data")
    for model, copies in ((io.load(tmp_path / "m.onnx"), 1), (ir.from_onnx_text(HEAVY), 0)):
        asked.clear()
        copied.clear()
        with Optimizer(model) as one:
            basic, extended = one.optimize("basic"), one.optimize("extended")
        assert len(copied) == copies  # what has its weights at hand needs no copy that has them
        assert [verb for verb, _ in asked] == ["optimize"] * 2
        assert all(size > 4 * 5000 for _, size in asked)
        for made in (basic, extended):  # in their order, with their numbers
            assert not {x.name for x in made.graph.inputs} - {"x"}
            assert made.graph.initializers["b"].const_value.numpy().sum() == 2500
            assert str(made.graph[-1].outputs[0].shape) == "[T,5000]"
            assert str(made.graph[0].outputs[0].shape) == "[T,1]"


def test_only_what_the_optimizer_has_made_is_asked_for(
    asked: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not with its weights: gigabytes of them say nothing of shapes."""
    names: list[str] = []
    with_outputs = optimizer.add_outputs
    monkeypatch.setattr(
        optimizer, "add_outputs", lambda x, extra: names.extend(extra) or with_outputs(x, extra)
    )
    made = optimized(ir.from_onnx_text(MOVED), "basic")
    assert [verb for verb, _ in asked] == ["optimize", "outputs"]
    assert asked[0][1] > 4 * 5000 > asked[1][1]
    assert "Transpose" not in [x.op_type for x in made.graph]
    (relu,) = [x for x in made.graph if x.op_type == "Relu" and not x.outputs[0].is_graph_output()]
    assert [relu.outputs[0].name] == names
    assert names not in (["r"], ["u"])
    shapes = {x.op_type: str(x.outputs[0].shape) for x in made.graph}
    assert str(relu.outputs[0].shape) == shapes["Exp"] == "[T,1,1]"
    assert made.graph.initializers["b"].const_value.numpy().sum() == 2500


def test_what_two_levels_leave_alike_is_asked_for_once(asked: list[tuple[str, int]]) -> None:
    """ONNX Runtime writes a graph in which it has changed nothing as it was given."""
    text = f"{HEAD} m (float[T, 4] x) => (float[T, 4] y) {{ h = Erf (x) y = Exp (h) }}"
    with Optimizer(ir.from_onnx_text(text)) as one:
        made = [one.optimize("basic"), one.optimize("extended")]
    assert [str(x.graph[0].outputs[0].shape) for x in made] == ["[T,4]"] * 2
    assert [verb for verb, _ in asked] == ["optimize", "outputs", "optimize"]


def test_a_constant_keeps_its_shape_where_nothing_else_changes() -> None:
    text = f"""{HEAD} m (float[T, 2] x) => (float[T, 2] y) {{
        c = Constant <value = float[2] {{1, 2}}> ()  y = Mul (x, c) }}"""
    made = optimized(ir.from_onnx_text(text), "basic")
    assert str(made.graph.initializers["c"].shape) == "[2]"


def test_a_type_alone_is_no_answer(asked: list[tuple[str, int]]) -> None:
    """As a pass declares it of an operator of com.microsoft: not even the rank would be known."""
    text = f"{HEAD} m (float[T, 4] x) => (float[T, 4] y) {{ h = Erf (x) y = Exp (h) }}"
    model = ir.from_onnx_text(text)
    model.graph[0].outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    made = optimized(model, "basic")
    assert str(made.graph[0].outputs[0].shape) == "[T,4]"
    assert [verb for verb, _ in asked] == ["optimize", "outputs"]


def test_what_is_not_said_is_not_made_up(asked: list[tuple[str, int]]) -> None:
    """A scalar has no dims; of what has no known rank nothing is said, nor asked for again."""
    text = f"""{HEAD} m (float[T] x, int64[N] shape) => (float[] s, y) {{
        i = Identity (x)  s = ReduceMax <keepdims = 0> (i)  h = Reshape (x, shape)  y = Relu (h)
        e = Exp (s)  s2 = Add (e, e) }}"""
    made = optimized(ir.from_onnx_text(text), "basic")
    shapes = {x.op_type: x.outputs[0].shape for x in made.graph}
    assert str(shapes["ReduceMax"]) == "[]"
    assert shapes["Reshape"] is None
    assert [verb for verb, _ in asked] == ["optimize"]


def test_what_wants_its_weights_constant_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel may refuse a weight that is an input; then the whole model is shown."""
    ask = optimizer._ask_optimizer

    def refuses(request: dict[str, object], seconds: float) -> dict[str, object]:
        model = Path(str(request["model"])).read_bytes()
        if request["verb"] == "outputs" and len(model) < 4 * 5000:
            raise ModelError("B must be a constant")
        return ask(request, seconds)

    monkeypatch.setattr(optimizer, "_ask_optimizer", refuses)
    made = optimized(ir.from_onnx_text(MOVED), "basic")
    assert {str(x.outputs[0].shape) for x in made.graph if x.op_type == "Exp"} == {"[T,1,1]"}
