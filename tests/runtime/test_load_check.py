"""Whether ONNX Runtime loads a model, asked on the CPU."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.runtime import load_check
from graphfix.runtime.load_check import lacks_kernel, load_refusal, runtime_version

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1, "my.own" : 1]>\n'


def refusal(body: str, dtype: str = "float") -> str | None:
    text = f"{HEAD} m ({dtype}[B, T] x) => ({dtype}[B, T] y) {{ {body} }}"
    return load_refusal(ir.from_onnx_text(text))


def test_a_model_that_loads() -> None:
    assert refusal("y = Relu (x)") is None


def test_a_model_that_does_not() -> None:
    reason = refusal("y = Gather <axis = 7> (x, x)")
    assert reason is not None
    assert "Gather" in reason
    # Of ONNX Runtime's own domain an operator that is unknown is a fault of the model.
    assert refusal("y = com.microsoft.NoSuchOperator (x)") is not None


def test_what_another_provider_or_a_library_may_have_is_no_refusal() -> None:
    assert refusal("y = Relu (x)", "bfloat16") is None
    assert refusal("y = my.own.Operator (x)") is None


@pytest.mark.parametrize(
    ("reason", "lacks"),
    [
        ("Failed to find kernel for Relu(14)", True),
        ("Could not find an implementation for Relu", True),
        ("Kernel not found in 'x'", True),
        ("Node () has input size 1 not in range", False),
        ("", False),
    ],
)
def test_a_kernel_that_is_missing(reason: str, lacks: bool) -> None:
    assert lacks_kernel(reason) == lacks


@pytest.mark.parametrize(
    ("reason", "lacks"),
    [
        ("Fatal error: my.own:Op(-1) is not a registered function/op", True),
        ("ai.onnx:Op(-1) is not a registered function/op", False),
        ("ai.onnx.ml:Op(-1) is not a registered function/op", False),
        ("com.microsoft:Op(-1) is not a registered function/op", False),
        ("com.microsoft.more:Op(-1) is not a registered function/op", True),
        ("something else", False),
    ],
)
def test_a_library_that_is_missing(reason: str, lacks: bool) -> None:
    assert load_check._lacks_library(reason) == lacks


def test_the_version_that_is_asked() -> None:
    assert runtime_version().count(".") >= 2
