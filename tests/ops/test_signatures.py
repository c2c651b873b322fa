"""The signatures of operators: ONNX Runtime's own are those that it lists itself."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.ops.signatures import op_signature

pybind = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")


def listed() -> dict[str, object]:
    if not hasattr(pybind, "get_all_operator_schema"):
        pytest.skip("this build of ONNX Runtime lists no schemas")
    schemas = pybind.get_all_operator_schema()
    return {x.name: x for x in schemas if x.domain == "com.microsoft"}


def test_what_is_known_of_contrib_operators_is_what_onnx_runtime_says() -> None:
    known = 0
    for name, schema in listed().items():
        formals = op_signature(name, "com.microsoft", 1)
        if formals is None:
            continue  # newer than the table
        wanted = tuple(x.typeStr for x in schema.inputs)  # type: ignore[attr-defined]
        if wanted[: len(formals.inputs)] != formals.inputs[: len(wanted)]:
            continue  # another version of ONNX Runtime
        known += 1
        for constraint in schema.type_constraints:  # type: ignore[attr-defined]
            half = "tensor(float16)" in constraint.allowed_type_strs
            may = formals.allows_dtype(constraint.type_param_str, ir.DataType.FLOAT16)
            assert half == may, (name, constraint.type_param_str)
    assert known > 100


@pytest.mark.parametrize(
    ("op", "domain", "opset", "variable", "half"),
    [
        ("Resize", "", 17, "tensor(float)", False),
        ("Resize", "", 17, "T1", True),
        ("CumSum", "", 11, "T", False),
        ("CumSum", "", 14, "T", True),
        ("LayerNormalization", "", 14, "T", True),
        ("LayerNormalization", "", 17, "U", False),
        ("MultiHeadAttention", "com.microsoft", 1, "T", True),
        ("DynamicQuantizeMatMul", "com.microsoft", 1, "T1", False),
    ],
)
def test_what_may_be_float16(op: str, domain: str, opset: int, variable: str, half: bool) -> None:
    formals = op_signature(op, domain, opset)
    assert formals is not None
    assert formals.allows_dtype(variable, ir.DataType.FLOAT16) == half


def test_inputs_that_repeat_have_the_last_ones_type() -> None:
    formals = op_signature("Concat", "", 13)
    assert formals is not None
    assert formals.input_variable(0) == formals.input_variable(7) == "T"
    assert formals.output_variable(1) is None


def test_what_nobody_knows() -> None:
    assert op_signature("Strange", "com.example", 1) is None


@pytest.mark.parametrize(
    ("op", "opset", "variable", "alone"),
    [("Identity", 13, "T", True), ("Identity", 16, "V", False), ("Add", 14, "T", True)],
)
def test_what_may_be_a_sequence_is_no_tensor_alone(
    op: str, opset: int, variable: str, alone: bool
) -> None:
    formals = op_signature(op, "", opset)
    assert formals is not None
    assert (variable in formals.tensor_only) == alone
    assert formals.allows_dtype(variable, ir.DataType.FLOAT)
