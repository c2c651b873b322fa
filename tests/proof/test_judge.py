"""Which elements of two runs are compared, and what is said of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.feeds.case import Case
from graphfix.feeds.signature import Signature
from graphfix.proof.baseline import OriginalRun
from graphfix.proof.compare import HALF_GATE, Array, Mask, OutputDiff, Tolerance
from graphfix.proof.content import ContentMasks
from graphfix.proof.judge import OutputJudge

if TYPE_CHECKING:
    from graphfix.core import Safety
    from graphfix.feeds.case import Poison

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T, 2] x, int64[B, T] mask) => (float[B, T, 2] y)
    <int64[1] last = {-1}> { f = Cast <to = 1> (mask) u = Unsqueeze (f, last) y = Mul (x, u) }"""


def judge(
    safety: Safety = "valid-rows",
    tolerance: Tolerance = Tolerance(),  # noqa: B008
    caches: dict[str, int] | None = None,
    *,
    may_narrow: bool = False,
) -> OutputJudge:
    content = ContentMasks(Signature(ir.from_onnx_text(MODEL)))
    content.dims = {"y": (ir.SymbolicDim("B"), ir.SymbolicDim("T"), 2)}
    return OutputJudge(content, tolerance, safety, caches or {}, may_narrow)


def run(
    before: Array,
    *,
    name: str = "y",
    valid: tuple[int, ...] = (),
    poison: Poison = "",
    clean: Mask | None = None,
    isolated: Mask | None = None,
) -> OriginalRun:
    lengths = {"T": valid} if valid else {}
    case = Case("the case", {"B": 2, "T": 3}, {}, lengths, poison)
    masks = [{} if mask is None else {name: mask} for mask in (clean, isolated)]
    return OriginalRun(case, {name: before}, *masks)


def compared(judge: OutputJudge, run: OriginalRun, after: Array, name: str = "y") -> OutputDiff:
    (diff,) = judge.compare_case(run, {name: after})
    return diff


def frames() -> Array:
    return np.arange(1, 13, dtype=np.float32).reshape(2, 3, 2)


def test_an_output_that_is_missing() -> None:
    (diff,) = judge("exact").compare_case(run(frames()), {"other": frames()})
    assert (diff.output, diff.case, diff.ok, diff.reason) == ("y", "the case", False, "is missing")
    (diff,) = judge("exact").compare_case(run(frames(), name="logits"), {"logit": frames()})
    assert diff.reason == "is missing (did you mean 'logit'?)"


def test_all_elements_of_a_full_case_are_compared() -> None:
    after = frames()
    assert compared(judge(), run(after), after).ok
    after[1, 2, 1] = 0
    assert not compared(judge(), run(frames()), after).ok


@pytest.mark.parametrize(("may_narrow", "ok"), [(True, True), (False, False)])
def test_float16_counts_where_it_was_asked_for(may_narrow: bool, ok: bool) -> None:
    after = frames().astype(np.float16)
    assert compared(judge("exact", may_narrow=may_narrow), run(frames()), after).ok == ok


def test_of_a_cache_the_last_entries_are_compared() -> None:
    after = np.concatenate([np.full((2, 1, 2), 99, np.float32), frames()], axis=1)
    assert compared(judge("exact", caches={"y": 1}), run(frames()), after).ok
    assert compared(judge("exact", caches={"y": 1}), run(after), frames()).ok
    assert not compared(judge("exact"), run(frames()), after).ok
    assert not compared(judge("exact", caches={"y": 1}), run(frames()), after[:, :3]).ok


def test_the_mask_of_a_cache_is_cut_with_it() -> None:
    after = np.concatenate([np.full((2, 1, 2), 99, np.float32), frames()], axis=1)
    after[0, 1, 0] = 0
    clean = np.ones((2, 3, 2), np.bool_)
    clean[0, 0, 0] = False
    spoiled = run(frames(), poison="NaN", clean=clean)
    assert compared(judge("valid-rows", caches={"y": 1}), spoiled, after).ok


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_padding_stays_finite_under_the_gate_of_float16(value: float) -> None:
    """Whatever was compared: in float16 a mask may overflow where nobody looks."""
    isolated = np.ones((2, 3, 2), np.bool_)
    isolated[0, 2] = False
    after = frames()
    after[0, 2, 0] = value
    case = run(frames(), valid=(0, 3), isolated=isolated)
    assert compared(judge(), case, after).ok
    assert not compared(judge(tolerance=HALF_GATE), case, after).ok


@pytest.mark.parametrize(
    ("safety", "poison", "counts"),
    [
        # Garbage that is no trap for numbers: an exact repair computes the same of it.
        ("exact", "other numbers", True),
        ("valid-rows", "other numbers", False),
        ("exact", "NaN", False),
        ("valid-rows", "NaN", False),
    ],
)
def test_garbage_that_the_original_lets_in_is_left_out(
    safety: Safety, poison: Poison, counts: bool
) -> None:
    clean = np.ones((2, 3, 2), np.bool_)
    clean[0] = False
    after = frames()
    after[0, 0, 0] = 0
    diff = compared(judge(safety), run(frames(), poison=poison, clean=clean), after)
    assert diff.ok == (not counts)
    if not counts:
        assert diff.note == "6 of 12 elements were compared"


def test_rows_without_content_are_left_out() -> None:
    after = frames()
    after[0] = 99
    isolated = np.ones((2, 3, 2), np.bool_)
    isolated[0] = False
    case = run(frames(), valid=(0, 3), isolated=isolated)
    assert compared(judge(), case, after).ok
    assert not compared(judge("exact"), case, after).ok
    # Nothing is known to stand apart: nothing is compared.
    assert compared(judge(), run(frames(), valid=(0, 3)), after).note.startswith("0 of 12")


@pytest.mark.parametrize(("valid", "kind"), [((1, 3), "padded rows"), ((0, 3), "rows of length 0")])
def test_what_is_left_out_and_differs_is_noted(valid: tuple[int, ...], kind: str) -> None:
    after, isolated = frames(), np.ones((2, 3, 2), np.bool_)
    case = run(frames(), valid=valid, isolated=isolated)
    assert compared(judge(), case, after).excluded == ""
    after[0, 1] += 1.5
    found = compared(judge(), case, after)
    assert (found.ok, found.excluded, found.excluded_abs) == (True, kind, 1.5)
    after = frames()
    after[0, 1] += 1e-6  # rounding
    assert compared(judge(), case, after).excluded == ""


def test_an_output_that_does_not_say_what_is_content_is_compared_whole() -> None:
    before = np.ones((2, 3), np.float32)
    the_judge = judge()
    diff = compared(the_judge, run(before, name="z", valid=(2, 3)), before, "z")
    note = "the dims of 'z' do not say which rows are content, so all its elements were compared"
    assert (diff.ok, diff.note, [*the_judge.notes]) == (True, note, [note])
    # What is not a number in the original says nothing.
    before[0, 0] = np.inf
    assert compared(the_judge, run(before, name="z", valid=(2, 3)), np.ones_like(before), "z").ok
    the_judge = judge("exact")
    assert compared(the_judge, run(before, name="z", valid=(2, 3)), before, "z").note == ""
    assert not the_judge.notes
