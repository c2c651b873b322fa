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
    ],
)
def test_which_masks_hide_whole_rows(body: str, hides: bool) -> None:
    text = f"""m (float[B, T, T] x, float[1, T, 1] rows, float[B, 1, T] keys, int64[3] size,
            float low, float high) => (float[B, T, T] y)
        {{ {body} h = Add (x, m) y = Softmax (h) }}"""
    m = model(text)
    view = View(m)
    masked = next(node.outputs[0] for node in m.graph if node.op_type == "Add")
    mask = masked.producer().inputs[1]
    reason = why_hides_whole_rows(mask, reach_of(masked, view, to_bool=False), view)
    assert (reason is not None) == hides
