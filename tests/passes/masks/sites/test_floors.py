"""Constant masks: their lowest number, and the same mask with a floor."""

import numpy as np
import pytest

from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.passes.masks.sites.floors import clamp_mask, has_fixed_attributes, lowest_of
from tests.passes.models import execute, model

HEAD = """m (float[2, 2] x, int64[2] size) => (float[2, 2] y) <float[2, 2] mask = {0, -1e9, 0, 0},
    float[2, 2] low = {-1e9, -1e9, -1e9, -1e9}, float[2, 2] mild = {0, -999, 0, 0},
    float[2, 2] all = {-1000, -1e9, -1000, -1000}, float[2, 2] above = {-999, -1e9, -999, -999},
    float[2, 2] same = {-5, -5, -5, -5}, int64[2, 2] whole = {0, -1, 0, 0},
    int64[1] zero = {0}, int64[1] two = {2}, int64 up = {1}>"""


@pytest.mark.parametrize(
    ("steps", "lowest"),
    [
        ("m = Identity (mask)", -1e9),
        ("m = Transpose (mask)", -1e9),
        ("m = Slice (mask, zero, two)", -1e9),
        ("m = Identity (mild)", -999),
        ("m = Identity (above)", -1e9),
        ("m = Identity (same)", None),
        ("m = Identity (all)", None),  # it hides everything
        ("m = Identity (low)", None),  # as the addend of mask * 1e9 - 1e9
        ("m = Trilu (low, up)", -1e9),  # zeros come in
        ("f = Expand (low, size) m = Trilu (f, up)", -1e9),
        ("f = ConstantOfShape <value = float[1] {-1e9}> (size) m = Trilu (f, up)", -1e9),
        ("m = ConstantOfShape <value = float[1] {-1e9}> (size)", None),
        ("m = Identity (x)", None),
        ("m = Neg (mask)", None),
        ("w = Cast <to = 1> (whole) m = Neg (w)", None),
        ("m, n = Split <num_outputs = 2> (mask)", None),
    ],
)
def test_lowest_number(steps: str, lowest: float | None) -> None:
    m = model(f"{HEAD} {{ {steps} y = Add (x, m) }}")
    fill = lowest_of(m.graph[-1].inputs[1])
    assert (None if fill is None else fill.number) == lowest
    assert lowest_of(None) is None


def test_integers_hide_nothing() -> None:
    m = model(f"{HEAD} {{ m = Identity (whole) f = Cast <to = 1> (m) y = Add (x, f) }}")
    assert lowest_of(m.graph[0].outputs[0]) is None


@pytest.mark.parametrize(
    ("steps", "added"),
    [
        ("m = Identity (mask)", 0),
        ("t = Transpose (mask) m = Slice (t, zero, two)", 2),
        ("f = ConstantOfShape <value = float[1] {-1e9}> (size) m = Trilu (f, up)", 2),
    ],
)
@pytest.mark.parametrize("floor", [-1000.0, -2e9])
def test_the_mask_with_a_floor(steps: str, added: int, floor: float) -> None:
    m = model(f"{HEAD} {{ {steps} y = Add (x, m) }}")
    feeds = {"x": np.zeros((2, 2), np.float32), "size": np.array([2, 2])}
    (before,) = execute(m, feeds)
    op, count = Builder("test", View(m)), len(m.graph)
    op.start_site(m.graph[-1])
    node, mask = m.graph[-1], m.graph[-1].inputs[1]
    value = clamp_mask(mask, floor, op)
    assert clamp_mask(mask, floor, op) is value  # once for all sites
    assert len(m.graph) == count + added
    node.replace_input_with(1, value)
    (after,) = execute(m, feeds)
    np.testing.assert_array_equal(after, np.maximum(before, np.float32(floor)))


def test_a_ceiling_for_masks_that_hide_by_large_numbers() -> None:
    m = model("m (float[2] x) => (float[2] y) <float[2] w = {0, 1e9}> { y = Sub (x, w) }")
    op = Builder("test", View(m))
    op.start_site(m.graph[0])
    value = clamp_mask(m.graph.initializers["w"], 1000.0, op)
    assert value.const_value is not None
    assert value.const_value.numpy().tolist() == [0, 1000]
    assert value.const_value.numpy().dtype == np.float32


def test_attributes_of_a_function_are_not_fixed() -> None:
    m = model(
        """m (float[2, 2] x) => (float[2, 2] y) { y = f.g <up = 1> (x) }
        <domain: "f", opset_import: ["" : 18]>
        g <up> (x) => (y) { c = Constant <value = float[2, 2] {0, -1e9, 0, 0}> ()
        t = Trilu <upper: int = @up> (c) d = Trilu <upper = 1> (c)
        u = Transpose (t) a = Add (u, d) y = Add (x, a) }""",
        more=', "f" : 1',
    )
    (function,) = m.functions.values()
    _, bound, fixed, behind, *_ = (node.outputs[0] for node in function)
    assert not has_fixed_attributes(bound)
    assert not has_fixed_attributes(behind)
    assert lowest_of(bound) is None
    assert has_fixed_attributes(fixed)
    assert lowest_of(fixed) is not None
