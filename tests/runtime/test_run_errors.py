"""Errors of running a model, in one short line."""

from __future__ import annotations

import pytest

from graphfix.errors import ModelError
from graphfix.runtime.run_errors import (
    LoadDiedError,
    RunDiedError,
    RunError,
    as_load_error,
    as_run_error,
    reason_of,
)


def test_an_error_of_the_process_is_one_of_loading_or_of_running() -> None:
    for run, load in ((RunDiedError, LoadDiedError), (RunError, ModelError)):
        made = as_load_error(run("why"))
        assert (type(made), str(made)) == (load, "why")
        back = as_run_error(load("why"))
        assert (type(back), str(back)) == (run, "why")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("plain", "plain"),
        ("two\n  lines\n\n", "two lines"),
        ("", "ValueError"),
        ("[ONNXRuntimeError] : 1 : FAIL : it broke", "it broke"),
        ("[ONNXRuntimeError] : 1 : FAIL : Load model from a/b.onnx failed:it broke", "it broke"),
        ("[ONNXRuntimeError] : 1 : FAIL : Load model from a b.onnx failed: it broke", "it broke"),
        (
            "Non-zero status code returned while running Add node. Name:'n' Status Message: no",
            "Add node 'n': no",
        ),
        (
            "/onnxruntime_src/core/x.cc:91 void ns::f(int) condition was false.",
            "condition was false.",
        ),
        (
            "/x/onnxruntime/x.cc:91 void ns::f(int) const condition was false.",
            "condition was false.",
        ),
        (
            r"E:\x\onnxruntime\core\x.h:47 onnxruntime::f condition was false.",
            "condition was false.",
        ),
        (
            r"E:\x\onnxruntime\y.cpp(28)\z.pyd!0: (caller: 0) Exception(1) tid(24) 80070057 Bad",
            "80070057 Bad",
        ),
        ("x" * 300, "x" * 300),
        ("x" * 301, "x" * 299 + "…"),
        ("x" * 9000, "x" * 299 + "…"),
    ],
)
def test_a_reason_in_one_line(text: str, reason: str) -> None:
    assert reason_of(ValueError(text)) == reason


def test_a_reason_in_another_code_page() -> None:
    error = UnicodeDecodeError("utf-8", b"caf\xe9", 3, 4, "invalid")
    assert reason_of(error).startswith("caf")
