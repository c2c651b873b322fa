"""What a dim of an input is called, and what is no name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import graphfix
from graphfix.engine import pipeline
from graphfix.errors import FeedError, UsageError
from graphfix.facts.shapes import shapes_of
from graphfix.feeds.case_search import make_cases
from graphfix.files import io
from graphfix.graph.dims import dim_names, is_nameless


def split(tmp_path: Path, *dims: str | int | None) -> Path:
    """[a, b, 4] to [a, b, 2, 2] by a target made of the input's own sizes."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [*dims, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [*dims, 2, 2])
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Slice", ["s", "zero", "two"], ["t"]),
        helper.make_node("Concat", ["t", "head"], ["c"], axis=0),
        helper.make_node("Reshape", ["x", "c"], ["y"]),
    ]
    constants = [
        helper.make_tensor("zero", TensorProto.INT64, [1], [0]),
        helper.make_tensor("two", TensorProto.INT64, [1], [2]),
        helper.make_tensor("head", TensorProto.INT64, [2], [2, 2]),
    ]
    graph = helper.make_graph(nodes, "split", [x], [y], constants)
    path = tmp_path / "split.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path


NO_NAMES = ["?", "", None, -1, "-1", "N/A", "*", "3", "None", "unknown"]


@pytest.mark.parametrize("dim", NO_NAMES)
def test_two_dims_with_what_is_no_name_are_two_sizes(tmp_path: Path, dim: str | int | None):
    model = io.load(split(tmp_path, dim, dim))
    assert list(dim_names(model).values()) == ["x_0", "x_1"]
    assert any(case.dims["x_0"] != case.dims["x_1"] for case in make_cases(model))


@pytest.mark.parametrize("dim", NO_NAMES)
def test_what_is_no_name_reaches_no_shape_inference(
    tmp_path: Path, dim: str | int | None, caplog: pytest.LogCaptureFixture
):
    model = ir.load(split(tmp_path, dim, dim))  # not by our own door
    dims = shapes_of(model).dims(model.graph.outputs[0])
    assert dims is not None
    assert (len(dims), dims[2:]) == (4, (2, 2))
    assert not caplog.records


@pytest.mark.parametrize("dim", NO_NAMES)
def test_a_model_that_nothing_changes_stays_as_it_is(tmp_path: Path, dim: str | int | None):
    path, other = split(tmp_path, dim, dim), tmp_path / "same.onnx"
    io.save(io.load(path), other)
    assert onnx.load(other) == onnx.load(path)


@pytest.mark.parametrize("dim", NO_NAMES)
@pytest.mark.parametrize("given", ["x.0=3", "x_0=3"])
def test_a_dim_without_a_name_is_fixed_by_its_place(
    tmp_path: Path, dim: str | int | None, given: str
):
    path = split(tmp_path, dim, dim)
    report = graphfix.repair_file(path, tmp_path / "o.onnx", f"fix-dims:{given}")
    assert report.output is not None
    after = io.load(tmp_path / "o.onnx")
    assert [x if isinstance(x, int) else None for x in after.graph.inputs[0].shape] == [3, None, 4]
    again = pipeline.run(after, f"fix-dims:{given}")
    assert not again.changed


def test_names_are_names():
    names = ("T", "batch-size", "seq len", "_", "日本", "unk__12", "floor(T/2)")
    assert not any(is_nameless(ir.SymbolicDim(x)) for x in names)
    assert not is_nameless(0)


def test_a_place_stands_for_the_dim_that_is_there(tmp_path: Path):
    path = split(tmp_path, "B", "T")
    report = graphfix.repair_file(path, tmp_path / "o.onnx", "fix-dims:x.1=6", dims={"x.0": [2]})
    assert report.verdict is not None
    assert all(x == {"B": 2, "T": 6} for x in report.verdict.dims.values())


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("x.2=5", "axis 2 of 'x' is 4 already"),
        ("x.3=5", "no input has a dim named 'x.3'"),
        ("z.0=5", "no input has a dim named 'z.0'"),
        ("B=2:x.0=3", "B is given two sizes, 2 and 3"),
    ],
)
def test_a_place_that_is_none_is_refused(tmp_path: Path, given: str, reason: str):
    with pytest.raises(UsageError, match=reason):
        pipeline.run(io.load(split(tmp_path, "B", "T")), f"fix-dims:{given}")


def test_an_input_may_have_dots_and_another_may_have_the_name():
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (float[] a, float[] b) => (float[] y) { y = Add (a, b) }"""
    model = ir.from_onnx_text(text)
    first, second = model.graph.inputs
    first.name, second.name = "x.1", "x"
    first.shape, second.shape = ir.Shape([None]), ir.Shape([None, "x_1_0"])
    assert dim_names(model) == {("x.1", 0): "x_1_0_", ("x", 0): "x_0", ("x", 1): "x_1_0"}
    pipeline.run(model, "fix-dims:x.1.0=3:x.1=4")
    assert list(first.shape) == [3]
    assert second.shape[1] == 4
    assert second.shape[0] != 4


def test_a_size_of_a_dim_without_a_name(tmp_path: Path):
    path = split(tmp_path, None, None)
    assert graphfix.repair_file(path, passes="fix-dims:x_1=3").ok


def test_onnx_runtime_is_not_blamed_for_inputs_that_could_not_be_made(tmp_path: Path):
    path = split(tmp_path, "B", "B - 9000")
    with pytest.raises(FeedError) as caught:
        make_cases(path)
    assert "has no size" in str(caught.value)
    assert "ONNX Runtime" not in str(caught.value)


def test_zero_is_a_size(tmp_path: Path):
    x = np.zeros((0, 2, 4), np.float32)
    model = io.load(split(tmp_path, 0, "T"))
    assert not any(is_nameless(d) for d in model.graph.inputs[0].shape)
    assert x.size == 0
