"""The figures that models are compared by."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from graphfix.model_zoo import figures
from graphfix.model_zoo.figures import count_dynamic_reshapes, count_mask_wheres, make_figure


@pytest.mark.parametrize(
    ("before", "after", "why", "known"),
    [(1, 2, "", True), (None, 2, "x", True), (1, None, "x", True), (None, None, "x", False)],
)
def test_a_reason_stands_where_a_number_lacks(before: Any, after: Any, why: str, known: bool):
    figure = make_figure(before, after, "x")
    assert figure == {"before": before, "after": after, "why": why}
    assert figures.is_known(figure) is known


def test_what_a_later_stage_knows_overrules() -> None:
    merged = figures.merge_figures(
        {
            "plan": {"figures": {"copies": make_figure(1, 2), "nodes": make_figure(3, 4)}},
            "check": {},
            "placement": {
                "figures": {"copies": make_figure(5, 6), "nodes": make_figure(None, None, "x")}
            },
            "repair": {"figures": {"worst": make_figure(None, None, "it failed")}},
        }
    )
    assert [*merged] == [*figures.FIGURES]
    assert (merged["copies"]["after"], merged["nodes"]["after"]) == (6, 4)
    assert merged["worst"]["why"] == "it failed"
    assert merged["ratio"]["why"] == "it was not measured"


def test_wheres_that_hide_scores_are_counted_and_not_those_behind_the_softmax() -> None:
    model = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T, S] x, bool[B, T, S] c) => (float[B, T, S] y)
        <float low = {-inf}, float zero = {0}>
        { s = Where (c, x, low)  p = Softmax (s)  q = Where (c, p, zero)
          t = Where (c, q, low)  y = Softmax (t) }"""
    )
    assert count_mask_wheres(model) == 2


def test_reshapes_are_counted_whose_shape_is_computed() -> None:
    model = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T] x, int64[2] s) => (float[U, V] y) <int64[2] flat = {-1, 1}>
        { a = Reshape (x, flat)  n = Shape (a)  b = Reshape (a, n)  y = Reshape (b, s) }"""
    )
    assert count_dynamic_reshapes(model) == 2
