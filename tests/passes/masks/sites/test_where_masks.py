"""Conditions of Where masks: those that rank the scores, and those that do not."""

from __future__ import annotations

import pytest

from graphfix.editing.builder import PASS_KEY
from graphfix.facts.view import View
from graphfix.passes.masks.sites.where_masks import (
    condition_of,
    is_truth_of,
    keeps_shape,
    masks_before,
    ranks_scores,
    softmax_of,
    where_mask_of,
)
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


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("Where (c, low, x)", (True, -1e9, "x")),
        ("Where (c, x, low)", (False, -1e9, "x")),
        ("Where (c, low, zero)", (True, -1e9, "zero")),
        ("Where (c, zero, low)", (False, -1e9, "zero")),
        ("Where (c, x, y)", None),
    ],
)
def test_the_fill_of_a_where(step: str, expected: tuple[bool, float, str] | None) -> None:
    m = model(f"""m (bool[T] c, float[T] x, float[T] y) => (float[T] z)
        <float low = {{-1e9}}, float zero = {{0}}> {{ z = {step} }}""")
    mask = where_mask_of(m.graph[0])
    assert mask is None or mask.condition is m.graph.inputs[0]
    assert (mask and (mask.fill_when, mask.fill.number, mask.data.name)) == expected


@pytest.mark.parametrize(
    ("steps", "root", "when", "truth"),
    [
        ("z = Identity (c)", "c", True, False),
        ("z = Not (c)", "c", False, False),
        ("n = Not (c) z = Not (n)", "c", True, False),
        ("n = Cast <to = 7> (c) z = Cast <to = 9> (n)", "z", True, False),
        ("n = Cast <to = 9> (c) z = Cast <to = 9> (n)", "c", True, False),
        ("z = Cast <to = 9> (x)", "z", True, True),
        ("t = Cast <to = 9> (x) z = Not (t)", "t", False, False),
        ("t = Cast <to = 9> (x) z = Identity (t)", "t", True, True),
        ("g = Greater (x, x) z = Cast <to = 9> (g)", "g", True, False),
        ("z = Expand (c, size)", "z", True, False),
        ("z = And (c, c)", "z", True, False),
    ],
)
def test_what_decides(steps: str, root: str, *, when: bool, truth: bool) -> None:
    m = model(f"m (bool[1, T] c, float[T] x, int64[2] size) => (bool[A, T] z) {{ {steps} }}")
    view, value = View(m), m.graph.outputs[0]
    condition = condition_of(value, view)
    assert (condition.root.name, condition.when) == (root, when)
    assert condition_of(value, view, when=False).when != when
    assert is_truth_of(value, m.graph.inputs[1], view) == truth
    behind = condition_of(value, view, expands=True).root.name
    assert behind == ("c" if "Expand" in steps else root)


def test_a_shape_is_kept() -> None:
    m = model("""m (float[B, T] x, float[1, T] c) => (float[B, T] y)
        { y = Add (x, c) z = Neg (c) }""")
    view, (x, c) = View(m), m.graph.inputs
    assert keeps_shape(m.graph.outputs[0], x, view)
    assert not keeps_shape(m.graph.outputs[0], c, view)
    assert keeps_shape(m.graph[1].outputs[0], c, view)


@pytest.mark.parametrize(
    ("steps", "is_found"),
    [
        ("w = Identity (s)", True),
        ("d = Dropout (s) w = Cast <to = 10> (d)", True),
        ("w = Neg (s)", False),
        ("w = Softmax (s)", True),
        ("w = LogSoftmax (s)", False),
    ],
)
def test_the_softmax_of_weights(steps: str, *, is_found: bool) -> None:
    m = model(f"m (float[T] x) => (float[T] w) {{ s = Softmax (x) {steps} }}")
    assert (softmax_of(m.graph.outputs[0]) is not None) == is_found
    assert softmax_of(m.graph.inputs[0]) is None


@pytest.mark.parametrize("is_repair", [True, False])
def test_masks_before_a_softmax(*, is_repair: bool) -> None:
    m = model("""m (float[T, T] x, bool[T, T] c, bool[T, T] hidden) => (float[T, T] y)
        <float low = {-1e9}> { f = Cast <to = 1> (hidden) a = Mul (f, low) o = Where (c, low, x)
        p = MatMul (x, o) q = Where (c, low, p) h = Add (q, a) y = Softmax (h) }""")
    nodes = {x.outputs[0].name: x for x in m.graph}
    if is_repair:
        nodes["a"].metadata_props[PASS_KEY] = "additive-mask"
    # What lies before a product is no mask of these scores.
    expected = {nodes["q"], *(m.graph.inputs[2:] if is_repair else ())}
    assert {*masks_before(nodes["y"])} == expected
