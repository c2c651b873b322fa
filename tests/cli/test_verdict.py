"""A verdict in a few lines."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.cli._verdict import (
    failure_sentence,
    is_numeric_difference,
    print_details,
    rounding_advice,
)
from graphfix.feeds.case import DroppedCase
from graphfix.proof.compare import OutputDiff
from graphfix.proof.verdict import Verdict

SAME = OutputDiff("y", "a", ok=True)
NEAR = OutputDiff("z", "a", ok=True, max_abs=0.25, differing=3)
FAR = OutputDiff("y", "b", ok=False, reason="differs by 7", max_abs=7, differing=1)


def lines(verdict: Verdict, capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_details(verdict)
    return capsys.readouterr().out.splitlines()


def test_each_case_has_its_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    verdict = Verdict(ok=False, cases={"a": (SAME, NEAR), "b": (FAR,)})
    assert lines(verdict, capsys) == [
        "  cases     a",
        "                y: the same",
        "                z: differs by at most 0.25",
        "            b",
        "                y: differs by 7",
    ]


def test_what_was_covered_and_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    verdict = Verdict(
        ok=True,
        cases={"a": (SAME,)},
        covered=("T 1 to 7", "several full rows", "padding"),
        dims={"a": {"T": 7}},
        dropped=(DroppedCase("T=1", "too short"), DroppedCase("T=2", "too short")),
    )
    printed = lines(verdict, capsys)
    assert printed[0] == "  covered   several full rows, padding"
    assert printed[3] == "            2 x too short"
    assert "T=1" in printed[4]
    assert "T=2" in " ".join(printed[4:])
    bare = Verdict(ok=True, cases={"a": (SAME,)}, covered=("T 1 to 7",), dims={"a": {"T": 7}})
    assert lines(bare, capsys)[0] == "  cases     a"


@pytest.mark.parametrize(
    ("verdict", "numeric"),
    [
        (None, False),
        (Verdict(ok=True, cases={"a": (SAME,)}), False),
        (Verdict(ok=False, cases={"b": (FAR,)}), True),
        (Verdict(ok=False, cases={"b": (FAR,)}, reason="it does not load"), False),
        (Verdict(ok=False, cases={}), False),
    ],
)
def test_whether_a_larger_tolerance_may_help(verdict: Verdict | None, numeric: bool) -> None:
    assert is_numeric_difference(verdict) == numeric


def test_a_failure_in_a_sentence() -> None:
    verdict = Verdict(ok=False, cases={}, reason="it does not load.")
    assert (
        failure_sentence(verdict, "m.onnx") == "m.onnx does not compute the same: it does not load"
    )


def test_the_rounding_of_another_tool() -> None:
    def model(dtype: str) -> ir.Model:
        return ir.from_onnx_text(
            f'<ir_version: 8, opset_import: ["" : 17]> m ({dtype}[T] x) => ({dtype}[T] y) '
            "{ y = Exp (x) }"
        )

    single, half = model("float"), model("float16")
    assert "--rtol 0.01 allows what that rounds" in rounding_advice(single, half)
    assert rounding_advice(half, half) == ""
    assert rounding_advice(single, single) == ""
    assert rounding_advice(half, single) == ""
