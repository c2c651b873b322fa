"""rename: inputs, outputs and dims, wherever they are named, and names that are taken."""

from __future__ import annotations

import numpy as np
import pytest

import graphfix
from graphfix.errors import UsageError
from tests.passes.models import execute, model

TEXT = """m (float[N, T, 3] x, bool c) => (float[N, T, 3] y, float[T] z)
    { a = Identity (x)
      y = If (c) < then_branch = t () => (float[N, T, 3] p) { p = Neg (x) },
                   else_branch = e () => (float[N, T, 3] q) { q = Abs (a) } >
      z = ReduceSum <keepdims = 0> (x, axes) }"""
TEXT = TEXT.replace("\n    {", "\n    <int64[2] axes = {0, 2}>\n    {", 1)


def renamed(spec: str, text: str = TEXT):
    m = model(text)
    graphfix.run(m, f"rename:{spec}")
    return m


def test_a_body_that_reads_the_input_reads_it_still():
    m = renamed("x=audio:y=out")
    feeds = {"audio": np.ones((1, 2, 3), np.float32), "c": np.array(True)}
    assert (execute(m, feeds)[0] == -1).all()
    assert [x.name for x in (*m.graph.inputs, *m.graph.outputs)] == ["audio", "c", "out", "z"]


def test_dims_are_renamed_in_bodies_and_in_expressions_too():
    text = TEXT.replace("float[T] z", 'float["2*T + T1"] z').replace('"2*T + T1"', "T")
    m = renamed("T=frames", text)
    m.graph.outputs[1].shape = type(m.graph.outputs[1].shape)(["frames + 1"])
    graphfix.run(m, "rename:frames=F")
    branches = [x.as_graph() for n in m.graph for x in n.attributes.values() if "branch" in x.name]
    values = [*m.graph.inputs, *m.graph.outputs, *(x for b in branches for x in b.outputs)]
    shapes = [str(x.shape) for x in values]
    assert shapes == ["[N,F,3]", "[]", "[N,F,3]", "[F + 1]", "[N,F,3]", "[N,F,3]"]


def test_a_dim_without_a_name_is_named_by_its_place():
    m = model(TEXT)
    m.graph.inputs[0].shape = type(m.graph.inputs[0].shape)([None, "T", 3])
    graphfix.run(m, "rename:x.0=B:x.1=F")
    assert str(m.graph.inputs[0].shape) == "[B,F,3]"


def test_an_input_with_a_default_keeps_it():
    text = (
        "m (float[3] x, float[3] w) => (float[3] y) <float[3] w = {1.0, 2.0, 3.0}> {y = Mul (x, w)}"
    )
    m = renamed("w=scale", text)
    assert [*m.graph.initializers] == ["scale"]
    assert execute(m, {"x": np.ones(3, np.float32)})[0].tolist() == [1.0, 2.0, 3.0]


def test_it_is_verified_under_the_old_names():
    m = renamed("x=audio:y=out:T=frames")
    assert graphfix.verify(model(TEXT), m).ok
    verdict = graphfix.verify(model(TEXT.replace("Abs", "Neg")), m)
    assert not verdict.ok
    assert "'y'" in str(verdict)


def test_states_are_fed_under_their_new_names():
    text = """m (float[1, 4] x, float[1, 4] state) => (float[1, 4] y, float[1, 4] new_state)
        { new_state = Add (x, state) y = Tanh (new_state) }"""
    m = renamed("state=s0:new_state=s1", text)
    assert graphfix.verify(model(text), m).ok
    wrong = model(
        text.replace("new_state = Add (x, state)", "o = Sub (x, state) new_state = Neg (o)")
    )
    graphfix.run(wrong, "rename:state=s0:new_state=s1")
    assert not graphfix.verify(model(text), wrong).ok


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("x=y", "another tensor has that name"),
        ("x=p", "another tensor has that name"),
        ("x=a", "another tensor has that name"),
        ("T=N", "both would have one size"),
        ("T=500", "fix-dims:T=500"),
        ("T=a b", "no name for a dim"),
        ("w=v", "no input, output or dim 'w'"),
        ("x.2=F", "x.2 is 3"),
    ],
)
def test_a_name_that_is_taken_is_a_sentence(spec, words):
    with pytest.raises(UsageError, match=words):
        renamed(spec)


def test_what_the_metadata_names_stays():
    text = (
        "m (float[B, T, 3] x) => (float[B, 3] y) { y = ReduceMean <axes = [1], keepdims = 0> (x) }"
    )
    m = model(text, 17)
    graphfix.run(m, "ilens-mask")
    with pytest.raises(UsageError, match=r"graphfix\.lengths names 'x'"):
        graphfix.run(m, "rename:x=audio")
    both = model(text, 17)
    graphfix.run(both, "rename:x=audio,ilens-mask")
    assert graphfix.verify(model(text, 17), both).ok
