"""The bug report: what somebody needs who has neither graphfix nor the model."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx_ir as ir

from graphfix.reducing.bug_report import render_report
from graphfix.reducing.candidate import Candidate
from graphfix.reducing.failure import Failure, Trial

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[2] x) => (float[2] y) <float[2] small = {1, 2}> { y = Add (x, small) }"""
FEEDS = {"x": np.array([1, 2], np.float32)}


def report(text: str = TEXT, **changed: object) -> str:
    failure = Failure("differs", "", "output 'y' differs by 1", FEEDS["x"], FEEDS["x"] + 1)
    options = {"failure": failure, "trial": Trial("cpu"), "passes": (), **changed}
    return render_report(Candidate(ir.from_onnx_text(text), FEEDS), **options)  # type: ignore[arg-type]


def test_it_says_what_where_and_with_which_version() -> None:
    lines = report().splitlines()
    assert lines[0] == "# Add: wrong numbers on the CPU"
    assert "output 'y' differs by 1" in lines
    assert re.search(r"^Run on ONNX Runtime \d+\.\d+\.\d+, the CPU", report(), re.MULTILINE)


def test_the_model_in_it_can_be_read_again() -> None:
    (text,) = re.findall(r"```\n(.*?)\n```", report(), re.DOTALL)
    model = onnx.parser.parse_model(text)
    assert [x.op_type for x in model.graph.node] == ["Add"]
    assert [x.name for x in model.graph.initializer] == ["small"]


def test_inputs_and_both_outputs_are_written_out() -> None:
    assert "- `x`: float32[2] = [1., 2.]" in report()
    assert "## Expected\n\nfloat32[2] = [1., 2.]\n\n## Got\n\nfloat32[2] = [2., 3.]" in report()
    assert "## Expected" not in report(failure=Failure("dies", "", "the process died"))


def test_large_constants_are_named_and_not_written_out() -> None:
    numbers = ", ".join(str(i) for i in range(64))
    text = TEXT.replace("float[2] small = {1, 2}", f"float[64] table = {{{numbers}}}")
    text = text.replace("Add (x, small)", "Gather (table, x)").replace("float[2] x", "int64[2] x")
    assert "- `table`: float32[64], 0.0 to 63.0" in report(text)
    assert "31, 32, 33" not in report(text)


def test_of_large_arrays_the_element_that_is_off_most_is_named() -> None:
    ones = np.ones((8, 5), np.float32)
    wrong = ones.copy()
    wrong[6, 2] = 0.5
    text = report(failure=Failure("differs", "", "output 'y' differs", ones, wrong))
    assert "float32[8, 5], all 1.0" in text
    assert "The largest difference is at [6, 2]: expected 1.0, got 0.5." in text
    assert "The largest difference" not in report()


def test_a_way_around_it_is_a_command() -> None:
    assert "`graphfix run model.onnx -p fold`" in report(passes=("fold",))
    assert "A way around it" not in report()
