"""arg-max: what the proof tells of a wrong one, and that ties are none."""

from __future__ import annotations

import pytest

import graphfix
from graphfix.engine import pipeline
from tests.passes.models import model

CTC = """ctc (float[B, T, 3] x, float[3, 5] w) => (float[B, T, 5] logits)
    { y = MatMul (x, w) logits = LogSoftmax (y) }"""
SIGNS = CTC.replace("LogSoftmax", "Sign")


def verdict(before: str, node: str, shape: str = "int64[B, T]") -> graphfix.Verdict:
    after = model(
        before.replace("float[B, T, 5] logits", f"{shape} logits_indices").replace(
            "(y) }", f"(y) {node} }}"
        )
    )
    after.metadata_props[pipeline.PIPELINE_KEY] = "arg-max:output=logits"
    return graphfix.verify(model(before), after)


@pytest.mark.parametrize("scores", ["logits", "y"])
def test_the_largest_is_where_it_was_before_the_softmax(scores):
    assert verdict(CTC, f"logits_indices = ArgMax <axis = 2, keepdims = 0> ({scores})").ok


@pytest.mark.parametrize("last", [0, 1])
def test_of_equal_scores_any_will_do(last):
    node = f"logits_indices = ArgMax <axis = 2, keepdims = 0, select_last_index = {last}> (logits)"
    assert verdict(SIGNS, node).ok


@pytest.mark.parametrize(
    "node",
    [
        "logits_indices = ArgMin <axis = 2, keepdims = 0> (logits)",
        "i = ArgMax <axis = 2, keepdims = 0> (logits) logits_indices = Neg (i)",
        "i = ArgMax <axis = 2, keepdims = 0> (logits) logits_indices = Cast <to = 6> (i)",
        "logits_indices = ArgMax <axis = 1, keepdims = 0> (logits)",
        "logits_indices = ArgMax <axis = 2, keepdims = 1> (logits)",
        "n = Neg (logits) logits_indices = ArgMax <axis = 2, keepdims = 0> (n)",
    ],
)
@pytest.mark.parametrize("before", [CTC, SIGNS])
def test_a_wrong_one_is_told(before, node):
    shape = "int32[B, T]" if "Cast" in node else "int64"
    assert not verdict(before, node, shape).ok


def test_it_gives_int32_on_request():
    m = model(CTC)
    graphfix.run(m, "arg-max:output=logits:indices=int32")
    assert [f"{x.name}{x.shape} {x.dtype}" for x in m.graph.outputs] == [
        "logits_indices[B,T] INT32"
    ]
    assert graphfix.verify(model(CTC), m).ok
