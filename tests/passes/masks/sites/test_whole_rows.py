"""Masks that do not vary along the axis of a Softmax, whatever makes them."""

from __future__ import annotations

import pytest

from graphfix.facts.view import View
from graphfix.passes.common.score_reach import reach_of
from graphfix.passes.masks.sites.whole_rows import why_hides_whole_rows
from tests.passes.models import model


@pytest.mark.parametrize(
    ("body", "hides"),
    [
        ("m = Identity (rows)", True),
        ("m = Identity (keys)", False),
        ("m = Ceil (rows)", True),
        ("f = Transpose <perm = [0, 2, 1]> (rows) m = Expand (f, size)", False),
        # Without the attribute the axes are reversed: [1, T, 1].
        ("f = Transpose (rows) m = Expand (f, size)", True),
        ("m = Expand (rows, size)", True),
        ("m = Clip (rows, low, high)", True),
        ("m = Max (rows, keys)", False),
        ("m = Max (keys, rows)", False),
        ("m = Max (rows, rows)", True),
        ("m = Identity (low)", True),
        ("m = Where (which, low, high)", True),
        ("m = Where (which, keys, high)", False),
        ("m = Identity (same)", True),
        ("m = Identity (other)", False),
        ("m = Identity (thin)", True),
        ("t = Transpose <perm = [0, 2, 1]> (keys) m = Expand (t, size)", True),
        ("m = Unsqueeze (flat, first)", False),
        ("m = Unsqueeze (flat, last)", True),
        ("u = Unsqueeze (few, last) m = Expand (u, size)", True),
        ("m = Softmax (rows)", True),  # of one element
        ("s = Expand (rows, size) m = Softmax (s)", False),  # it may be anything
        ("m = MatMul (rows, keys)", False),
    ],
)
def test_which_masks_hide_whole_rows(body: str, hides: bool) -> None:
    text = f"""m (float[B, T, T] x, float[1, T, 1] rows, float[B, 1, T] keys, int64[3] size,
            float low, float high, bool[1, T, 1] which, float[T, T] flat, float[1, T] few)
            => (float[B, T, T] y)
        <float[1, 1, 3] same = {{2, 2, 2}}, float[1, 1, 3] other = {{2, 2, 3}},
         float[2] thin = {{2, 2}}, int64[1] first = {{0}}, int64[1] last = {{-1}}>
        {{ {body} h = Add (x, m) y = Softmax (h) }}"""
    m = model(text)
    view = View(m)
    masked = next(node.outputs[0] for node in m.graph if node.op_type == "Add")
    mask = masked.producer().inputs[1]
    reason = why_hides_whole_rows(mask, reach_of(masked, view, to_bool=False), view)
    assert (reason is not None) == hides


def test_the_way_back_ends_after_24_nodes() -> None:
    for count, is_seen in ((23, True), (24, False)):
        chain = " ".join(f"n{i + 1} = Neg (n{i})" for i in range(count))
        m = model(f"""m (float[B, T, T] x, float[1, T, 1] rows, int64[3] size) => (float[B, T, T] y)
            {{ n0 = Expand (rows, size) {chain} h = Add (x, n{count}) y = Softmax (h) }}""")
        view, add = View(m), m.graph[-2]
        reach = reach_of(add.outputs[0], view, to_bool=False)
        assert (why_hides_whole_rows(add.inputs[1], reach, view) is not None) == is_seen
