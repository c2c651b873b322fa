"""Which addends of scores hide keys, and nothing else."""

from __future__ import annotations

import pytest

from graphfix.facts.view import View
from graphfix.passes.fusions.attention.axis_layout import Atom
from graphfix.passes.fusions.attention.bit_tensors import bit_tensors_of, uniform_number_of
from graphfix.passes.fusions.attention.hiding_addend import (
    find_hiding_bit,
    is_always_zero,
    key_mask_of,
)
from graphfix.passes.fusions.attention.scores import Addend
from tests.passes.models import model

HEAD = """m (bool[B, 1, 1, S] hidden, int64[B, 1, 1, S] ids, float[B, 1, 1, S] curve) => (y)
    <float one = {1}, float zero = {0}, float low = {-10000}, float edge = {-1000},
     float above = {-999}, float high = {10000}, float inf = {-inf},
     int64 nought = {0}, int64 first = {1}, int64[3] three = {0, 1, 2}>"""
PLACES = """sizes = Shape <start = 3, end = 4> (hidden) n = Squeeze (sizes)
    count = Range (nought, n, first) p = Unsqueeze (count, three)"""
SHOWN = "f = Cast <to = 1> (v) o = Sub (one, f) y = Mul (o, low)"
CAST = "f = Cast <to = 1> (hidden)"


def addend_of(body: str, *, roles: str = "bk", factor: float = 1.0) -> tuple[Addend, View]:
    """Return ``y`` as an addend of scores [B, H, T, S]; the roles are those of B and S."""
    m = model(f"{HEAD} {{ {body} }}", opset=17)
    view, value = View(m), m.graph.outputs[0]
    dims = view.shapes.dims(value)
    assert dims is not None
    names = {"b": "batch", "q": "query", "k": "key"}
    first, last = (Atom(names[x], d) for x, d in zip(roles, (dims[0], dims[-1]), strict=True))
    axes = ((first,), (), (), (last,))
    return Addend(value, axes, tuple(bit_tensors_of(value, axes, view)), factor), view


@pytest.mark.parametrize(
    ("body", "low", "visible"),
    [
        (f"{CAST} y = Mul (f, low)", -1e4, False),
        (f"{CAST} y = Mul (f, edge)", -1e3, False),
        (f"{CAST} shown = Sub (one, f) y = Mul (shown, low)", -1e4, True),
        ("y = Where (hidden, low, zero)", -1e4, False),
        ("y = Where (hidden, zero, low)", -1e4, True),
        # Too high, or of the other sign: such scores still count.
        (f"{CAST} y = Mul (f, above)", None, None),
        (f"{CAST} y = Mul (f, high)", None, None),
        # -inf makes NaN of a row that is hidden throughout.
        ("y = Where (hidden, inf, zero)", None, None),
        # What is visible is moved, too.
        ("y = Where (hidden, low, one)", None, None),
        ("y = Where (hidden, low, inf)", None, None),
        # A float may be anything between 0 and 1.
        ("y = Mul (curve, low)", None, None),
    ],
)
def test_a_mask_of_keys(body: str, low: float | None, visible: bool | None) -> None:
    addend, view = addend_of(body)
    mask = key_mask_of(addend, view)
    if low is None:
        assert mask is None
    else:
        assert mask is not None
        assert (mask.low, mask.visible) == (low, visible)


@pytest.mark.parametrize(("factor", "low"), [(0.1, -1e3), (0.05, None), (2.0, -2e4)])
def test_what_the_sum_is_multiplied_by_counts(factor: float, low: float | None) -> None:
    addend, view = addend_of(f"{CAST} y = Mul (f, low)", factor=factor)
    mask = key_mask_of(addend, view)
    assert (None if mask is None else mask.low) == low


@pytest.mark.parametrize(("roles", "hides_keys"), [("bk", True), ("qk", False), ("bq", False)])
def test_it_is_the_same_for_each_query(roles: str, hides_keys: bool) -> None:
    addend, view = addend_of(f"{CAST} y = Mul (f, low)", roles=roles)
    assert (key_mask_of(addend, view) is not None) == hides_keys


@pytest.mark.parametrize(
    ("body", "zero"),
    [
        # Exporters compare places, which are never negative, with 0.
        (f"{PLACES} v = GreaterOrEqual (p, nought) {SHOWN}", True),
        (f"{PLACES} v = GreaterOrEqual (p, first) {SHOWN}", False),
        (f"{CAST} y = Mul (f, low)", False),
    ],
)
def test_a_mask_that_hides_nothing(body: str, zero: bool) -> None:
    addend, view = addend_of(body)
    assert addend.bits
    assert is_always_zero(addend, view) == zero


@pytest.mark.parametrize(
    ("weights", "hides"),
    [
        ("y = Sub (one, f)", True),
        ("y = Identity (f)", False),
        ("s = Sub (one, f) y = Mul (s, low)", False),
    ],
)
def test_weights_that_are_zero_where_an_addend_hides(weights: str, hides: bool) -> None:
    m = model(f"{HEAD} {{ {CAST} a = Mul (f, low) {weights} }}", opset=17)
    view, value = View(m), m.graph.outputs[0]
    hiding = next(x.outputs[0] for x in m.graph if x.outputs[0].name == "a")
    dims = view.shapes.dims(value)
    assert dims is not None
    axes = ((Atom("batch", dims[0]),), (), (), (Atom("key", dims[-1]),))
    addend = Addend(hiding, axes, tuple(bit_tensors_of(hiding, axes, view)), 1.0)
    bit = find_hiding_bit(value, axes, [addend], view)
    assert (bit is not None) == hides
    assert find_hiding_bit(value, axes, [], view) is None


@pytest.mark.parametrize(
    ("node", "number"),
    [
        ("ConstantOfShape <value = bool[1] {1}> (sizes)", 1),
        ("ConstantOfShape <value = int64[1] {7}> (sizes)", 7),
        ("ConstantOfShape <value = float[1] {7}> (sizes)", 7),
        ("ConstantOfShape (sizes)", 0),
        ("Expand (low, sizes)", -1e4),
        ("Identity (low)", -1e4),
        ("Expand (three, sizes)", None),
        ("Expand (curve, sizes)", None),
    ],
)
def test_a_tensor_of_one_number(node: str, number: float | None) -> None:
    body = f"sizes = Shape (hidden) t = {node} y = Cast <to = 1> (t)"
    m = model(f"{HEAD} {{ {body} }}", opset=17)
    assert uniform_number_of(m.graph[1].outputs[0]) == number
