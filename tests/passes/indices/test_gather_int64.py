from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import execute, ops

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


def model_of(text: str) -> ir.Model:
    return ir.from_onnx_text(f"{HEAD} m {text}")


def converted(text: str, feeds: dict[str, np.ndarray] | None = None) -> ir.Model:
    model = model_of(text)
    result = graphfix.get_pass("gather-int64", convert=True)(model)
    assert result.modified
    assert not graphfix.get_pass("gather-int64", convert=True)(model).modified
    assert not list(graphfix.get_pass("gather-int64").sites(model))
    if feeds is not None:
        for a, b in zip(execute(model_of(text), feeds), execute(model, feeds), strict=True):
            np.testing.assert_array_equal(a, b)
    return model


X = np.arange(24, dtype=np.float32).reshape(4, 6)
IDS = np.array([[3, -1], [0, 2]], np.int32)

ALLOWED = {
    "Gather": (
        "(float[4, 6] x, int32[2, 2] i) => (float[A, B, C] y) { y = Gather <axis = 1> (x, i) }"
    ),
    "GatherElements": (
        "(float[4, 6] x, int32[2, 2] i) => (float[2, 2] y) { y = GatherElements <axis = 1> (x, i) }"
    ),
    "ScatterElements": """(float[4, 6] x, int32[2, 2] i) => (float[4, 6] y)
        <float[2, 2] u = {1, 2, 3, 4}>
        { y = ScatterElements <axis = 1, reduction = "add"> (x, i, u) }""",
}


@pytest.mark.parametrize("op", ALLOWED)
def test_int32_is_listed_and_left_alone(op: str) -> None:
    model = model_of(ALLOWED[op])
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    result = graphfix.get_pass("gather-int64")(model)
    assert not result.modified
    assert len(result.skips) == 1
    assert "a habit, not a fault" in result.skips[0][1]
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before
    (finding,) = graphfix.check(model, "gather-int64")
    assert (finding.severity, finding.fix) == ("note", "gather-int64:convert=yes")


@pytest.mark.parametrize("op", ALLOWED)
def test_int32_becomes_int64_on_request(op: str) -> None:
    model = converted(ALLOWED[op], {"x": X, "i": IDS})
    assert ops(model) == ["Cast", op]
    assert model.graph.inputs[1].dtype == ir.DataType.INT32
    assert [x.name for x in model.graph.outputs] == ["y"]
    before = model_of(ALLOWED[op]).graph[0].attributes
    assert dict(model.graph[1].attributes) == dict(before)


FORBIDDEN = {
    "GatherND": (
        "(float[4, 6] x, int32[1, 2] i) => (float[1] y) { y = GatherND <batch_dims = 0> (x, i) }"
    ),
    "ScatterND": """(float[4, 6] x, int32[1, 2] i, float[1] u) => (float[4, 6] y)
        { y = ScatterND (x, i, u) }""",
}


@pytest.mark.parametrize("op", FORBIDDEN)
def test_what_onnx_forbids_is_an_error(op: str) -> None:
    model = model_of(FORBIDDEN[op])
    (finding,) = graphfix.check(model, "gather-int64")
    assert finding.severity == "error"
    assert f"ONNX allows only int64 for {op}" in finding.message
    with pytest.raises(Exception, match="tensor\\(int32\\)"):
        execute(model, {})


@pytest.mark.parametrize("op", FORBIDDEN)
def test_it_loads_once_it_is_int64(op: str) -> None:
    model = converted(FORBIDDEN[op])
    feeds = {"x": X, "i": np.array([[1, 2]], np.int32)}
    if op == "ScatterND":
        feeds["u"] = np.array([9], np.float32)
    (found,) = execute(model, feeds)
    assert (found[0] if op == "GatherND" else found[1, 2]) == (8 if op == "GatherND" else 9)


def test_int16_is_an_error_that_can_be_repaired() -> None:
    model = model_of("(float[4, 6] x, int16[2] i) => (float[2, 6] y) { y = Gather (x, i) }")
    (finding,) = graphfix.check(model, "gather-int64")
    assert finding.severity == "error"
    assert "only int32 or int64" in finding.message
    graphfix.run(model, "gather-int64:convert=yes")
    execute(model, {"x": X, "i": np.array([1, 2], np.int16)})


def test_a_float_index_is_an_error_that_cannot() -> None:
    model = model_of("(float[4, 6] x, float[2] i) => (float[2, 6] y) { y = Gather (x, i) }")
    (finding,) = graphfix.check(model, "gather-int64")
    assert (finding.severity, finding.fix) == ("error", None)
    assert not graphfix.run(model, "gather-int64:convert=yes").changed


def test_a_constant_is_written_as_int64() -> None:
    model = converted(
        "(float[4, 6] x) => (float[2, 6] y) <int32[2] i = {3, -1}> { y = Gather (x, i) }", {"x": X}
    )
    assert ops(model) == ["Gather"]
    (table,) = model.graph.initializers.values()
    assert table.dtype == ir.DataType.INT64


def test_a_constant_that_is_also_data_stays() -> None:
    model = converted(
        """(float[4, 6] x, int32[2] n) => (float[2, 6] y, int32[2] z) <int32[2] i = {3, -1}>
        { y = Gather (x, i) z = Add (n, i) }""",
        {"x": X, "n": np.array([5, 6], np.int32)},
    )
    assert model.graph.initializers["i"].dtype == ir.DataType.INT32
    assert len(model.graph.initializers) == 2


def test_a_default_that_the_caller_may_override_is_cast() -> None:
    model = model_of(
        "(float[4, 6] x) => (float[2, 6] y) <int32[2] i = {3, -1}> { y = Gather (x, i) }"
    )
    model.graph.inputs.append(model.graph.initializers["i"])
    graphfix.run(model, "gather-int64:convert=yes")
    assert ops(model) == ["Cast", "Gather"]
    (found,) = execute(model, {"x": X, "i": np.array([0, 1], np.int32)})
    np.testing.assert_array_equal(found, X[:2])


def test_one_cast_for_all_who_use_an_index() -> None:
    model = converted(
        """(float[4, 6] x, int32[2, 2] i, bool c) => (float[2, 2, 6] y, float[2, 2, 6] z) {
        y = Gather (x, i)
        z = If (c) <
            then_branch = t () => (float[2, 2, 6] a) { a = Gather (x, i) },
            else_branch = e () => (float[2, 2, 6] b) { n = Neg (x) b = Gather (n, i) }> }""",
        {"x": X, "i": IDS, "c": np.array(True)},
    )
    assert ops(model).count("Cast") == 1


def test_an_index_computed_in_a_branch_is_cast_there() -> None:
    model = converted(
        """(float[4, 6] x, int32[2, 2] i, bool c) => (float[2, 2, 6] z) { z = If (c) <
            then_branch = t () => (float[2, 2, 6] a) { m = Neg (i) a = Gather (x, m) },
            else_branch = e () => (float[2, 2, 6] b) { n = Abs (i) b = Gather (x, n) }> }""",
        {"x": X, "i": IDS, "c": np.array(True)},
    )
    assert [x.op_type for x in model.graph] == ["If"]
    assert ops(model).count("Cast") == 2


@pytest.mark.parametrize(
    "text",
    [
        "(float[4, 6] x, int64[2] i) => (float[2, 6] y) { y = Gather (x, i) }",
        "(float[4, 6] x, int32[2] i) => (int32[2] y) { y = Neg (i) }",
    ],
)
def test_what_is_int64_or_no_index_is_not_ours(text: str) -> None:
    model = model_of(text)
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    result = graphfix.get_pass("gather-int64", convert=True)(model)
    assert not result.modified
    assert not result.skips
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_attributes_that_a_call_decides_stay_its_own() -> None:
    text = """<ir_version: 10, opset_import: ["" : 17, "f" : 1]>
        m (float[4, 6] x, int32[2] i) => (float[A, B] y) { y = f.pick <of = 1> (x, i) }
        <domain: "f", opset_import: ["" : 17]> pick <of> (x, i) => (y) <int32[2] j>
        { j = Identity (i) y = Gather <axis: int = @of> (x, j) }"""
    m = ir.from_onnx_text(text)
    assert graphfix.run(m, "gather-int64:convert=yes").changed
    (function,) = m.functions.values()
    gather = next(x for x in function if x.op_type == "Gather")
    assert gather.attributes["axis"].ref_attr_name == "of"
    onnx.checker.check_model(ir.to_proto(m), full_check=True)
