"""Searches around a value."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.feeds.graph_uses import is_only_counted, is_positions

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


@pytest.mark.parametrize(
    ("numbers", "counts"),
    [("{0, 1, 2}", True), ("{3, 4, 5}", True), ("{0, 2, 4}", False), ("{0, 1, 1}", False)],
)
def test_a_constant_counts_if_each_number_is_one_more(numbers: str, counts: bool) -> None:
    m = ir.from_onnx_text(
        f"""{HEAD} m (int64[3] x) => (int64[3] y)
        {{ c = Constant <value = int64[3] {numbers}> () y = Add (x, c) }}"""
    )
    assert is_positions(m.graph[0].outputs[0]) is counts


def test_a_constant_is_only_read() -> None:
    """onnx-ir's own reader writes the name of the value into the tensor, which clones share."""
    m = ir.from_onnx_text(
        f"""{HEAD} m (int64[3] x) => (int64[3] y)
        {{ c = Constant <value = int64[3] {{0, 1, 2}}> () y = Add (x, c) }}"""
    )
    before = ir.to_proto(m).SerializeToString(deterministic=True)
    assert is_positions(m.graph[0].outputs[0])
    assert ir.to_proto(m).SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    ("use", "counted"),
    [
        ("n = ReduceSum (mask, one)  s = Shape (mask)  y = Add (n, s)", True),
        ("f = Cast <to = 1> (mask)  n = ReduceSum (f, one)  y = Cast <to = 7> (n)", True),
        ("n = ReduceSum (mask, one)  y = Add (n, mask)", False),
        ("y = Shape (mask)", False),
        ("y = Identity (mask)", False),
    ],
)
def test_a_mask_that_is_only_counted_hides_nothing(use: str, counted: bool) -> None:
    text = f"{HEAD} m (int64[1, T] mask) => (int64[1, U] y) <int64[1] one = {{1}}> {{ {use} }}"
    assert is_only_counted(ir.from_onnx_text(text).graph.inputs[0]) is counted
