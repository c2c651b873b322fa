"""expose: a tensor inside becomes an output, and is compared with the original's."""

from __future__ import annotations

import pytest

import graphfix
from graphfix.engine import pipeline
from graphfix.errors import UsageError
from tests.passes.models import model

TEXT = """m (float[N, T, 3] x, bool c) => (float[N, K] y)
    <float[3, 4] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0}>
    { h = MatMul (x, w) r = Relu (h) f = Flatten (r)
      y = If (c) < then_branch = a () => (p) { p = Neg (f) },
                   else_branch = b () => (q) { q = Abs (f) } > }"""


def exposed(spec: str, text: str = TEXT):
    m = model(text)
    graphfix.run(m, spec)
    return m


def test_it_has_the_type_and_the_dims_that_inference_finds():
    m = exposed("expose:tensor=h+r")
    assert [f"{x.name}{x.shape} {x.dtype}" for x in m.graph.outputs] == [
        "y[N,K] FLOAT",
        "h[N,T,4] FLOAT",
        "r[N,T,4] FLOAT",
    ]
    assert graphfix.verify(model(TEXT), m).ok


def test_the_tensor_is_compared_with_the_original():
    """With another `h` and the same `y`, the new output alone differs."""
    other = TEXT.replace(
        "h = MatMul (x, w) r = Relu (h)", "o = MatMul (x, w) r = Relu (o) h = Neg (o)"
    )
    verdict = graphfix.verify(model(TEXT), exposed("expose:tensor=h", other))
    assert not verdict.ok
    assert "'h'" in str(verdict)


def test_a_tensor_that_is_gone_is_told():
    after = model(TEXT)
    after.metadata_props[pipeline.PIPELINE_KEY] = "expose:tensor=h"
    assert "'h' is missing" in str(graphfix.verify(model(TEXT), after))


def test_no_later_pass_takes_it_away():
    m = exposed("expose:tensor=h,rename:h=hidden,directml")
    assert [x.name for x in m.graph.outputs] == ["y", "hidden"]
    assert graphfix.verify(model(TEXT), m).ok


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("p", "inside the branch of an If"),
        ("x", "is an input"),
        ("w", "is a weight"),
        ("hh", "no tensor 'hh'"),
    ],
)
def test_what_cannot_be_an_output_is_a_sentence(name, words):
    with pytest.raises(UsageError, match=words):
        exposed(f"expose:tensor={name}")
