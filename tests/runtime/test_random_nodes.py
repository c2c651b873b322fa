"""Models that draw random numbers are made repeatable."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.runtime.random_nodes import (
    RepeatableSession,
    first_random_node,
    is_random,
    seed_model,
)

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def model(body: str) -> ir.Model:
    return ir.from_onnx_text(
        f"{HEAD} m (float[2, 3] x, bool fed) => (float[2, 3] y) <float half = {{0.5}}, "
        f"bool yes = {{1}}, bool no = {{0}}> {{ {body} }}"
    )


@pytest.mark.parametrize(
    ("node", "random"),
    [
        ("RandomNormalLike (x)", True),
        ("RandomUniform <shape = [2, 3]> ()", True),
        ("Bernoulli (x)", True),
        ("Relu (x)", False),
        ("Dropout (x)", False),
        ("Dropout (x, half)", False),
        ("Dropout (x, half, yes)", True),
        ("Dropout (x, half, no)", False),
        ("Dropout (x, half, fed)", False),
    ],
)
def test_what_draws(node: str, random: bool) -> None:
    made = model(f"y = {node}")
    assert is_random(made.graph[0]) == random
    assert (first_random_node(made) is made.graph[0]) == random


def test_the_first_of_several_and_of_branches_is_found() -> None:
    made = model("a = Relu (x) b = RandomNormalLike (a) c = RandomUniformLike (b) y = Add (b, c)")
    found = first_random_node(made)
    assert found is not None
    assert found.op_type == "RandomNormalLike"
    branch = model("""y = If (fed) <then_branch = t () => (float[2, 3] a) { a = Relu (x) },
        else_branch = e () => (float[2, 3] b) { b = RandomNormalLike (x) }>""")
    found = first_random_node(branch)
    assert found is not None
    assert found.op_type == "RandomNormalLike"
    assert "seed" in [*seed_model(branch).graph.all_nodes()][-1].attributes


def test_seeds_come_from_names_and_stay() -> None:
    body = (
        "a = RandomNormalLike (x) b = RandomNormalLike <seed = 7.0> (x) d = Dropout (x, half, %s)"
    )
    made = model(f"{body % 'yes'} s = Add (a, b) y = Add (s, d)")
    seeded = seed_model(made)
    assert "seed" not in made.graph[0].attributes
    first, second, dropout, *_ = seeded.graph
    assert second.attributes["seed"].as_float() == 7
    assert 0 <= first.attributes["seed"].as_float() < 2**16
    assert dropout.inputs[2] is None
    again = seed_model(made).graph[0].attributes["seed"].as_float()
    assert first.attributes["seed"].as_float() == again
    other = model("c = RandomNormalLike (x) y = Relu (c)")
    assert seed_model(other).graph[0].attributes["seed"].as_float() != again
    # One that does not train is left as it is.
    kept = seed_model(model(f"{body % 'no'} s = Add (a, b) y = Add (s, d)")).graph[2]
    assert kept.inputs[2] is not None


def test_each_run_draws_the_same() -> None:
    feeds = {"x": np.ones((2, 3), np.float32)}
    made = seed_model(model("a = RandomNormalLike (x) y = Add (a, x)"))
    made.graph.inputs.pop()
    with RepeatableSession(made) as session:
        assert [x.name for x in session.inputs] == ["x"]
        assert [x.name for x in session.outputs] == ["y"]
        assert session.notes == ()
        first, second = (session.run(feeds)["y"] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert len(np.unique(first)) > 1
