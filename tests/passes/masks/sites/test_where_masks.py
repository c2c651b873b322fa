"""Conditions of Where masks: those that rank the scores, and those that do not."""

from __future__ import annotations

import pytest

from graphfix.passes.masks.sites.where_masks import ranks_scores
from tests.passes.models import model


@pytest.mark.parametrize(
    ("body", "ranks"),
    [
        ("c = Less (x, y)", True),
        ("least = ReduceMin (x) c = Equal (y, least)", True),
        ("least = ArgMin (x) f = Cast <to = 1> (least) c = Equal (y, f)", True),
        ("c = Equal (x, y)", False),
        ("s = Shape (x) f = Cast <to = 1> (s) c = Less (y, f)", False),
        ("e = EyeLike (x) c = Less (y, e)", False),
    ],
)
def test_a_condition_ranks_the_scores(body: str, ranks: bool) -> None:
    m = model(f"m (float[T, T] x, float[T, T] y) => (bool[T, T] c) {{ {body} }}")
    assert ranks_scores(m.graph.outputs[0], m.graph.inputs[0]) == ranks
