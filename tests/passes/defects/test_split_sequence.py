"""split-sequence: which parts of a sequence are read from a Split, and which are left."""

from __future__ import annotations

import numpy as np
import pytest

import graphfix
from tests.passes.models import execute, model, ops, refusals

CONSTANTS = """int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64 last = {-1},
    int64 nine = {9}, int64[3] uneven = {1, 2, 3}, int64[1] axis = {0}"""


def text(body: str, inputs: str = "float[B, T, 6] x", outputs: str = "float[C, D, E] y") -> str:
    return f"m ({inputs}) => ({outputs}) <{CONSTANTS}> {{ {body} }}"


@pytest.mark.parametrize(
    ("body", "left"),
    [
        pytest.param(
            "s = SplitToSequence <axis = 2> (x, uneven) a = SequenceAt (s, one)"
            " b = SequenceAt (s, last) c = SequenceAt (s, two) y = Concat <axis = 2> (b, a, c)",
            ["Split", "Concat"],
            id="of sizes",
        ),
        pytest.param(
            "s = SplitToSequence <axis = -1> (x, two) y = SequenceAt (s, last)",
            ["Split"],
            id="of one size",
        ),
        pytest.param(
            "s = SplitToSequence <axis = 2> (x) y = SequenceAt (s, two)", ["Split"], id="of 1"
        ),
        pytest.param(
            "s = SplitToSequence <axis = 2, keepdims = 0> (x) a = SequenceAt (s, two)"
            " y = Unsqueeze (a, axis)",
            ["Gather", "Unsqueeze"],
            id="of 1 without the axis",
        ),
        pytest.param(
            "s = SplitToSequence <axis = 0> (x, uneven) y = SequenceAt (s, two)",
            ["Split"],
            id="of a size that the parts say",
        ),
    ],
)
@pytest.mark.parametrize("opset", [11, 13, 18])
def test_parts_are_read_from_a_split(body: str, left: list[str], opset: int) -> None:
    if "Unsqueeze" in body and opset < 13:
        pytest.skip("its axes are an attribute")
    before = model(text(body), opset)
    after = before.clone()
    graphfix.run(after, "split-sequence")
    assert ops(after) == left
    assert not graphfix.run(after, "split-sequence").changed
    feeds = {"x": np.arange(144, dtype=np.float32).reshape(6, 4, 6)}
    np.testing.assert_array_equal(execute(after, feeds)[0], execute(before, feeds)[0])


def test_the_last_part_may_be_shorter_and_few_of_many_are_slices() -> None:
    body = (
        "s = SplitToSequence <axis = 2> (x, two) a = SequenceAt (s, one) y = SequenceAt (s, last)"
    )
    before = model(
        text(f"{body} z = Neg (a)", "float[B, T, 35] x", "float[C, D, E] y, float[F, G, H] z")
    )
    after = before.clone()
    graphfix.run(after, "split-sequence")
    assert ops(after) == ["Slice", "Slice", "Neg"]
    feeds = {"x": np.arange(140, dtype=np.float32).reshape(2, 2, 35)}
    for got, want in zip(execute(after, feeds), execute(before, feeds), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("body", "inputs", "reason"),
    [
        ("y = SequenceAt (s, one)", "float x", "the rank of what is split is not known"),
        ("y = If (b) <then_branch = t () => (float[C, D, E] u) { u = SequenceAt (s, one) },"
         " else_branch = e () => (float[C, D, E] v) { v = SequenceAt (s, zero) }>",
         "float[B, T, 6] x, bool b", "another graph"),
    ],
)  # fmt: skip
def test_what_stays_is_explained(body: str, inputs: str, reason: str) -> None:
    made = model(text(f"s = SplitToSequence <axis = 2> (x, two) {body}", inputs))
    if inputs == "float x":
        made.graph.inputs[0].shape = None
    assert reason in refusals(made, "split-sequence")[0]


def test_a_part_that_is_read_twice_and_is_an_output_keeps_both_names() -> None:
    body = """s = SplitToSequence <axis = 2> (x, two) y = SequenceAt (s, one)
        z = SequenceAt (s, one) a = SequenceAt (s, zero) b = SequenceAt (s, nine) n = Neg (a)"""
    outputs = "float[C, D, E] y, float[F, G, H] z, float[I, J, K] n"
    before = model(text(body, outputs=outputs))
    after = before.clone()
    graphfix.run(after, "split-sequence")
    assert [x.name for x in after.graph.outputs] == ["y", "z", "n"]
    assert ops(after).count("Split") == 1
    assert [x.op_type for x in after.graph if x.op_type.startswith("Seq")] == ["SequenceAt"]


def test_branches_with_tensors_of_one_name_have_a_split_each() -> None:
    """One in the graph around both would have to take over the names of both."""
    branch = """() => (float[C, D, E] q) { s = SplitToSequence <axis = 2> (x, two)
        a = SequenceAt (s, zero) b = SequenceAt (s, one) q = Mul (a, b) }"""
    body = f"y = If (c) <then_branch = t {branch}, else_branch = e {branch}>"
    before = model(text(body, "float[B, T, 6] x, bool c"))
    after = before.clone()
    report = graphfix.run(after, "split-sequence")
    assert not report.left
    assert sorted(ops(after)) == ["If", "Mul", "Mul", "Split", "Split"]
    feeds = {"x": np.arange(48, dtype=np.float32).reshape(2, 4, 6), "c": np.array(True)}
    np.testing.assert_array_equal(execute(after, feeds)[0], execute(before, feeds)[0])


def test_a_sequence_that_is_made_of_tensors_is_no_split() -> None:
    made = model(text("s = SequenceConstruct (x, x) y = SequenceAt (s, one)"))
    assert not graphfix.run(made, "split-sequence").passes[0].skips
