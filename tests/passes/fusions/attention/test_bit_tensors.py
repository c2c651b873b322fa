"""Tensors of zeros and ones from which masks and addends are computed."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts.view import View
from graphfix.passes.fusions.attention.axis_layout import Atom
from graphfix.passes.fusions.attention.bit_tensors import (
    BitTensor,
    align_axes,
    axes_before,
    bit_tensors_of,
    evaluate_for_bit,
    is_always_true,
    uniform_number_of,
)
from tests.passes.models import model

HEAD = """m (bool[B, 1, 1, S] hidden, bool[B, 1, 1, S] other, int64[B, 1, 1, S] ids,
    float[B, 1, 1, S] curve, int64[4] sizes) => (y)
    <float one = {1}, float zero = {0}, float low = {-10000}, float two = {2}, float half = {0.5},
     int64 nought = {0}, int64 unit = {1}, int64 minus = {-1}, int64 five = {5},
     bool yes = {1}, int64[2] pair = {0, 1}, float[3] several = {1, 2, 3},
     int64[4] shape = {0, 1, 1, -1}, int64[2] rows = {0, -1}>"""
SIZE = "s = Shape <start = 3, end = 4> (hidden)"
COUNT = f"{SIZE} n = Squeeze (s)"
COUNTED = f"{COUNT} p = Range (nought, n, unit)"


def value_of(body: str) -> tuple[ir.Value, View]:
    m = model(f"{HEAD} {{ {body} }}", 17)
    return m.graph.outputs[0], View(m)


def bits(body: str, rank: int = 4) -> list[BitTensor]:
    """Return the 0/1 tensors of ``y``, which is broadcast to scores [B, H, T, S]."""
    value, view = value_of(body)
    names = {"B": "batch", "T": "query", "S": "key"}
    dims = view.shapes.dims(view.model.graph.inputs[0])
    assert dims is not None
    axes = ((Atom(names["B"], dims[0]),), (), (), (Atom(names["S"], dims[3]),))  # type: ignore[arg-type]
    return bit_tensors_of(value, axes[4 - rank :], view)


def names(found: list[BitTensor]) -> list[str]:
    return [x.value.name or "" for x in found]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("f = Cast <to = 1> (hidden) y = Mul (f, low)", ["f", "hidden"]),
        ("y = Where (hidden, low, zero)", ["hidden"]),
        ("n = Not (hidden) f = Cast <to = 1> (n) y = Mul (f, low)", ["f", "n", "hidden"]),
        ("f = Cast <to = 1> (ids) i = Sub (one, f) y = Mul (i, low)", ["i", "f", "ids"]),
        # Two masks are one only behind what joins them.
        ("a = And (hidden, other) f = Cast <to = 1> (a) y = Mul (f, low)", ["f", "a"]),
        (
            "f = Cast <to = 1> (hidden) g = Cast <to = 1> (other) s = Add (f, g) y = Mul (s, low)",
            [],
        ),
        # The same one twice is one.
        ("f = Cast <to = 1> (hidden) s = Add (f, f) y = Mul (s, low)", ["f", "hidden"]),
        (
            "f = Cast <to = 1> (hidden) i = Sub (one, f) s = Mul (i, f) y = Mul (s, low)",
            ["s", "f", "hidden"],
        ),
        ("y = Mul (curve, low)", ["curve"]),  # if it is fed nothing else
        ("f = Cast <to = 1> (hidden) d = Dropout (f) y = Mul (d, low)", []),
        ("f = Cast <to = 1> (hidden) c = CumSum (f, unit) y = Mul (c, low)", []),
        ("e = Expand (hidden, sizes) y = Where (e, low, zero)", ["e", "hidden"]),
    ],
)
def test_the_nearest_come_first(body: str, found: list[str]) -> None:
    assert names(bits(body)) == found


def test_integers_that_are_fed_are_taken_to_be_0_and_1() -> None:
    found = bits("f = Cast <to = 1> (ids) y = Mul (f, low)")
    assert [[x.name for x in bit.binary_inputs] for bit in found] == [["ids"]] * len(found)
    proved = bits("f = Cast <to = 1> (hidden) y = Mul (f, low)")
    assert all(not bit.binary_inputs for bit in proved)


def test_axes_follow_the_tensor() -> None:
    (bit,) = bits("y = Where (hidden, low, zero)")
    assert [len(axis) for axis in bit.axes] == [1, 0, 0, 1]
    assert [x.role for x in bit.flat_atoms] == ["batch", "key"]


def test_a_chain_that_is_too_long_is_given_up() -> None:
    def chain(count: int) -> str:
        steps = " ".join(f"n{i + 1} = Neg (n{i})" for i in range(count))
        return f"n0 = Cast <to = 1> (hidden) {steps} y = Mul (n{count}, low)"

    assert "hidden" in names(bits(chain(30)))
    assert "hidden" not in names(bits(chain(45)))


def test_a_tensor_of_more_dims_than_the_axes_has_none() -> None:
    assert bits("y = Where (hidden, low, zero)", rank=3) == []
    assert bits("y = Where (hidden, low, zero)", rank=4)


def axis(*sizes: int | str) -> tuple[Atom, ...]:
    dims = (x if isinstance(x, int) else ir.SymbolicDim(x) for x in sizes)
    return tuple(Atom("key", x) for x in dims)


def test_axes_of_what_is_broadcast() -> None:
    value, view = value_of("y = Not (hidden)")
    whole = (axis("B"), axis(3), axis("T"), axis("S"))
    found = align_axes(value, whole, view)
    assert found == (whole[0], (), (), whole[3])
    longer = align_axes(value, ((), *whole), view)
    assert longer == found
    assert align_axes(value, whole[1:], view) is None
    # A size that is not proved to be the axis's may be 1.
    unlike = align_axes(value, (axis("C"), *whole[1:]), view)
    assert unlike is not None
    assert [str(x.size) for x in unlike[0]] == ["B"]
    assert unlike[0][0] is not whole[0][0]
    # An axis without atoms has none.
    assert align_axes(value, ((), *whole[1:]), view) == ((), (), (), whole[3])


def test_axes_before_a_reshape_are_regrouped() -> None:
    value, view = value_of("y = Reshape (hidden, rows)")
    node = value.producer()
    assert node is not None
    source = node.inputs[0]
    assert source is not None
    found = axes_before(node, source, (axis("B"), axis("S")), view)
    assert found is not None
    assert [len(x) for x in found] == [1, 0, 0, 1]
    assert axes_before(node, source, (axis("S"), axis("B")), view) is None
    other, view = value_of("y = Not (hidden)")
    node = other.producer()
    assert node is not None
    assert node.inputs[0] is not None
    assert axes_before(node, node.inputs[0], (axis("S"),), view) is None


@pytest.mark.parametrize(
    ("body", "at_zero", "at_one"),
    [
        ("f = Cast <to = 1> (hidden) y = Mul (f, low)", 0, -1e4),
        ("f = Cast <to = 1> (hidden) i = Sub (one, f) y = Mul (i, low)", -1e4, 0),
        ("y = Where (hidden, low, zero)", 0, -1e4),
        ("y = Where (hidden, zero, low)", -1e4, 0),
        ("f = Cast <to = 1> (hidden) y = Div (one, f)", None, 1),
        ("f = Cast <to = 1> (hidden) y = Div (f, two)", 0, 0.5),
        ("f = Cast <to = 7> (hidden) y = Div (f, five)", 0, 0),
        ("f = Cast <to = 1> (hidden) s = Add (f, f) y = Mul (s, s)", 0, 4),
        ("y = Where (hidden, curve, zero)", None, None),
        ("y = Identity (curve)", None, None),
        ("t = And (hidden, yes) y = Where (t, low, zero)", 0, -1e4),
    ],
)
def test_what_a_tensor_holds_for_a_bit(
    body: str, at_zero: float | None, at_one: float | None
) -> None:
    value, view = value_of(body)
    root = view.model.graph.inputs[0]
    assert [evaluate_for_bit(value, root, x, view) for x in (0.0, 1.0)] == [at_zero, at_one]


def test_a_bit_is_what_it_holds() -> None:
    value, view = value_of("y = Not (hidden)")
    assert evaluate_for_bit(value, value, 0.25, view) == 0.25


@pytest.mark.parametrize(
    ("body", "always"),
    [
        (f"{COUNTED} y = GreaterOrEqual (p, nought)", True),
        (f"{COUNTED} y = GreaterOrEqual (p, minus)", True),
        (f"{COUNTED} y = GreaterOrEqual (p, unit)", False),
        (f"{COUNT} p = Range (unit, n, unit) y = GreaterOrEqual (p, nought)", True),
        (f"{COUNT} p = Range (minus, n, unit) y = GreaterOrEqual (p, nought)", False),
        (f"{COUNT} p = Range (n, minus, minus) y = GreaterOrEqual (p, nought)", False),
        (f"{COUNT} p = Range (five, minus, minus) y = GreaterOrEqual (p, nought)", False),
        (f"{COUNTED} y = Greater (p, nought)", False),
        (f"{COUNT} p = Range (nought, n, n) y = GreaterOrEqual (p, nought)", False),
        (
            f"{SIZE} o = ConstantOfShape <value = int64[1] {{1}}> (s) "
            "p = CumSum (o, nought) y = GreaterOrEqual (p, nought)",
            True,
        ),
        (
            f"{SIZE} o = ConstantOfShape <value = int64[1] {{-1}}> (s) "
            "p = CumSum (o, nought) y = GreaterOrEqual (p, nought)",
            False,
        ),
        (
            f"{COUNTED} q = Add (p, five) r = Mul (five, q) "
            "y = GreaterOrEqual (r, nought)",
            True,
        ),
        (f"{COUNTED} q = Mul (p, nought) y = GreaterOrEqual (q, nought)",
         True),
        (f"{COUNTED} q = Add (p, minus) y = GreaterOrEqual (q, nought)",
         False),
        (f"{COUNTED} q = Add (p, p) y = GreaterOrEqual (q, nought)", False),
        (f"{COUNTED} q = Sub (p, unit) y = GreaterOrEqual (q, nought)",
         False),
        (f"{COUNTED} q = Cast <to = 1> (p) y = GreaterOrEqual (q, zero)",
         True),
        ("y = GreaterOrEqual (ids, nought)", False),
        (f"{COUNTED} g = GreaterOrEqual (p, nought) y = And (g, yes)",
         True),
        (f"{COUNTED} g = GreaterOrEqual (p, nought) y = And (g, hidden)",
         False),
        (f"{COUNTED} g = GreaterOrEqual (p, nought) y = Cast <to = 9> (g)",
         True),
        ("y = Not (hidden)", False),
    ],
)  # fmt: skip
def test_what_is_true_everywhere(body: str, always: bool) -> None:
    value, view = value_of(body)
    assert is_always_true(value, view) == always


def test_a_mask_that_is_true_everywhere_decides_nothing() -> None:
    always = f"{COUNTED} g = GreaterOrEqual (p, nought)"
    found = bits(f"{always} a = And (g, hidden) y = Where (a, low, zero)")
    assert names(found) == ["a", "hidden"]
    assert names(bits(f"{always} a = And (hidden, g) y = Where (a, low, zero)")) == ["a", "hidden"]


@pytest.mark.parametrize(
    ("node", "number"),
    [
        ("Identity (low)", -1e4),
        ("ConstantOfShape <value = float[1] {7}> (sizes)", 7),
        ("ConstantOfShape (sizes)", 0),
        ("Expand (low, sizes)", -1e4),
        ("Identity (several)", None),
        ("Identity (curve)", None),
        ("Expand (several, sizes)", None),
    ],
)
def test_a_tensor_of_one_number(node: str, number: float | None) -> None:
    value, _ = value_of(f"y = {node}")
    assert uniform_number_of(value) == number
