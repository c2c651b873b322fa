"""select-output: what stays, what goes, and what the verdict says of it."""

from __future__ import annotations

import pytest

import graphfix
from graphfix.errors import UsageError
from tests.passes.models import model, ops

TEXT = """m (float[N, 3] x, float[N] unused) => (float[N, 3] a, float[N, 3] b, float[N, 3] c)
    <float[3] w = {1.0, 2.0, 3.0}, float[3] v = {1.0, 2.0, 3.0}>
    { s = Mul (x, w) a = Tanh (s) t = Add (s, v) b = Relu (t) c = Neg (b) }"""


@pytest.mark.parametrize(
    ("keep", "left", "weights"),
    [
        ("a", ["Mul", "Tanh"], ["w"]),
        ("b", ["Mul", "Add", "Relu"], ["w", "v"]),
        ("c+a", ["Mul", "Tanh", "Add", "Relu", "Neg"], ["w", "v"]),
    ],
)
def test_what_only_the_others_need_goes_with_its_weights(keep, left, weights):
    m = model(TEXT)
    graphfix.run(m, f"select-output:keep={keep}")
    assert ops(m) == left
    assert [*m.graph.initializers] == weights
    assert [x.name for x in m.graph.outputs] == sorted(keep.split("+"))
    assert [x.name for x in m.graph.inputs] == ["x", "unused"]


def test_the_rest_is_compared_and_what_is_not_is_said():
    m = model(TEXT)
    graphfix.run(m, "select-output:keep=a")
    verdict = graphfix.verify(model(TEXT), m)
    assert verdict.ok
    assert "'b' is no output any more: a pass drops it" in verdict.notes
    assert not graphfix.verify(model(TEXT.replace("Tanh", "Sin")), m).ok


def test_names_with_commas_between_them_are_several():
    m = model(TEXT)
    graphfix.run(m, "select-output:keep=a,c,fold")
    assert [x.name for x in m.graph.outputs] == ["a", "c"]


def test_an_unknown_output_is_a_sentence():
    with pytest.raises(UsageError, match=r"no output 'd'.*There are: a, b, c"):
        graphfix.run(model(TEXT), "select-output:keep=d")
