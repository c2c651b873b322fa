"""Bytes that a run gives back: at the sizes given, in expressions too."""

from __future__ import annotations

import pytest

import graphfix
from graphfix.providers.read_back import bytes_read_back, read_back_text
from tests.passes.models import model

TEXT = """m (float[B, T, 3] x, float[3, 5] w) => (float[B, T, 5] logits, int64[B, 1] n)
    <int64[1] one = {1}, int64[1] axes = {2}>
    { logits = MatMul (x, w) s = ReduceSum <keepdims = 0> (x, axes)
      n = ArgMax <axis = 1> (s) }"""


@pytest.mark.parametrize(
    ("sizes", "count"),
    [({"B": 2, "T": 7}, 2 * 7 * 5 * 4 + 2 * 8), ({"B": 2}, None), ({}, None)],
)
def test_it_is_the_outputs_at_the_sizes_given(sizes, count):
    assert bytes_read_back(model(TEXT), sizes) == count


def test_an_output_that_follows_from_the_inputs_has_a_size():
    text = """m (float[1, 1, T] x, float[1, 1, 3] k) => (float16 y)
        { c = Conv <strides = [2]> (x, k) y = Cast <to = 10> (c) }"""
    m = model(text)
    m.graph.outputs[0].shape = None
    assert bytes_read_back(m, {"T": 11}) == 5 * 2


def test_plan_says_it_and_top_k_makes_it_less():
    m = model(TEXT)
    dims = {"B": 1, "T": 100}
    before = graphfix.plan(m, dims=dims)
    graphfix.run(m, "top-k:output=logits:k=1:indices=int32")
    after = graphfix.plan(m, dims=dims)
    assert before.to_json()["read_back_bytes"] == 100 * 5 * 4 + 8
    assert after.read_back == 100 * (4 + 4) + 8
    assert ("outputs", "2.0 kB to read back") in [(x.label, x.text) for x in before.rows()]
    assert graphfix.plan(m).read_back is None


@pytest.mark.parametrize(("size", "text"), [(12, "12 B"), (1200, "1.2 kB"), (9_320_000, "9.3 MB")])
def test_a_number_of_bytes_in_words(size, text):
    assert read_back_text(size) == text
