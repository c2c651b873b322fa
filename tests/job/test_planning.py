"""What DirectML does with a model, predicted through ONNX Runtime's own optimizer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.errors import ModelError, UsageError
from graphfix.files import io
from graphfix.job import planning

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
PLAIN = "m (float[B, T, 4] x) => (float[B, T, 4] y) { a = Relu (x)  y = Neg (a) }"
# A determinant is computed on the CPU, between two nodes on the device.
BOTH = """m (float[B, 4, 4] x) => (float[B] y) { a = Relu (x)  d = Det (a)  y = Neg (d) }"""
BROKEN = "m (float[B, T] x) => (float[B, T] y) { y = Gather <axis = 7> (x, x) }"


def model(text: str) -> ir.Model:
    return ir.from_onnx_text(HEAD + text)


def test_a_plan_says_where_each_node_runs() -> None:
    steps: list[str] = []
    prediction = planning.plan(model(PLAIN), progress=steps.append)
    assert steps == ["loading", "planning"]
    assert [x.where for x in prediction.places] == ["dml", "dml"]
    assert list(prediction.notes) == []
    assert prediction.forced == {}


def test_a_plan_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    io.save(model(BOTH), path)
    assert sum(count for _, count in planning.placement_strip(path)) == 3
    assert {where for where, _ in planning.placement_strip(path)} == {"cpu", "dml"}
    assert planning.placement_strip(path)[0] == ("dml", 1)
    summary = planning.plan_summary(path)
    assert summary is not None
    assert summary.keys() == {"nodes", "run", "open", "dynamic", "notes"}


def test_a_strip_counts_nodes_in_a_row(tmp_path: Path) -> None:
    io.save(model(PLAIN), tmp_path / "m.onnx")
    assert planning.placement_strip(tmp_path / "m.onnx") == [("dml", 2)]


def test_what_onnx_runtime_rejects_has_no_plan(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="ONNX Runtime does not load the model: "):
        planning.plan(model(BROKEN))
    io.save(model(BROKEN), tmp_path / "m.onnx")
    assert planning.placement_strip(tmp_path / "m.onnx") == []
    assert planning.plan_summary(tmp_path / "m.onnx") is None
    assert planning.kernels_per_run(model(BROKEN)) is None


def test_what_the_cpu_has_no_kernel_for_is_planned_without_the_optimizer() -> None:
    text = f"{HEAD} m (bfloat16[B, T, 4] x) => (bfloat16[B, T, 4] y) {{ a = Relu (x) y = Neg (a) }}"
    prediction = planning.plan(ir.from_onnx_text(text), dims={"T": 7})
    (note,) = (x for x in prediction.notes if "cannot show here what its optimizer does" in x)
    assert note.endswith("so what it folds and fuses is not predicted, nor are --dims sizes")
    assert len(prediction.places) == 2
    plain = planning.plan(ir.from_onnx_text(text)).notes
    assert any(x.endswith("so what it folds and fuses is not predicted") for x in plain)


def test_a_copy_without_optimizer_has_the_inferred_shapes() -> None:
    original = model(PLAIN.replace("{ a", "<float[4] c = {1, 2, 3, 4}> { a"))
    copy = planning._unoptimized_copy(original)
    (inner,) = (x.outputs[0] for x in copy.graph if x.op_type == "Relu")
    assert str(inner.shape) == "[B,T,4]"
    assert inner.dtype == ir.DataType.FLOAT
    # A type that is there stays.
    (outer,) = copy.graph.outputs
    assert outer.dtype == ir.DataType.FLOAT
    assert next(x for x in original.graph if x.op_type == "Relu").outputs[0].shape is None


def test_kernels_before_and_after() -> None:
    before, after = model(BOTH), model(PLAIN)
    counts = planning.count_kernels(before, after)
    assert counts is not None
    first, second = counts["before"], counts["after"]
    assert first is not None
    assert second is not None
    assert (first["cpu"], second["cpu"]) == (1, 0)
    assert second["all"] == second["directml"] == 2
    assert first["all"] == first["directml"] + first["cpu"]
    same = planning.count_kernels(before, before)
    assert same is not None
    assert same["after"] is same["before"]
    broken = planning.count_kernels(before, model(BROKEN))
    assert broken is not None
    assert broken["after"] is None


@pytest.mark.parametrize(("most", "counted"), [(1, False), (2, True)])
def test_kernels_of_a_huge_model_are_counted_on_request(
    most: int, counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "_TOO_MANY", most)
    made = model(PLAIN)
    assert (planning.count_kernels(made, made) is not None) == counted
    assert planning.count_kernels(made, made, always=True) is not None


def test_sizes_by_the_names_of_dims() -> None:
    made = model(PLAIN.replace("B,", "batch,").replace("T,", "frames,"))
    assert planning._sizes_by_own_names(made, {}) == {}
    assert planning._sizes_by_own_names(made, {"frames": 7}) == {"frames": 7}
    assert planning._sizes_by_own_names(made, {"T": 7, "B": 1}) == {"frames": 7, "batch": 1}
    with pytest.raises(UsageError, match="no input has a dim 'F'; there are: batch, frames"):
        planning.plan(made, dims={"F": 7})
    with pytest.raises(UsageError, match="there are: none at all"):
        planning.plan(model("m (float[2] x) => (float[2] y) { y = Neg (x) }"), dims={"F": 7})


def test_sizes_that_the_graph_dictates() -> None:
    forced = model(
        "m (float[B, T] x) => (float[B, T] y) <float[3] w = {1, 2, 3}> { y = Add (x, w) }"
    )
    assert planning._sizes_by_own_names(forced, {"B": 2}) == {"T": 3, "B": 2}
    assert planning.plan(forced).forced.get("T") in (None, 3)


def test_dims_of_one_size_are_fixed_together() -> None:
    two = model(
        "m (float[B, T] x, float[C, T] z) => (float[B, T] y, float[C, T] w)"
        " { y = Neg (x)  w = Neg (z) }"
    )
    assert planning._sizes_by_own_names(two, {"B": 2}) == {"B": 2, "C": 2}


def test_float16_is_planned_on_a_cpu_that_computes_it_wider() -> None:
    half = "m (float16[B, 4] x, float16[4, 4] w) => (float16[B, 4] y) { y = MatMul (x, w) }"
    prediction = planning.plan(model(half))
    assert [x.where for x in prediction.places] == ["dml"]
    assert list(prediction.notes) == []


def test_heavy_weights_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    made = model("m (float[B, 4] x, float[4, 4] w) => (float[B, 4] y) { y = MatMul (x, w) }")
    value = made.graph.inputs[1]
    made.graph.inputs.remove(value)
    value.const_value = ir.tensor(np.ones((4, 4), np.float32), name="w")
    made.graph.register_initializer(value)
    assert list(planning.plan(made).notes) == []
    monkeypatch.setattr(planning.stand_in, "has_heavy_weights", lambda _: True)
    (note,) = planning.plan(made).notes
    assert note.startswith("the weights were not read")
