"""Rules for operators that move whole axes, or repeat them."""

from __future__ import annotations

import pytest
import sympy

from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.rule_site import RuleSite
from graphfix.lengths.rules.move_axes import RULES
from graphfix.lengths.tail_state import ANY, FINITE, LAST, ONE, ZERO, Tail, TensorState, fixed_axis
from graphfix.ops import qualified_name
from tests.lengths.sites import site_of, sizes

INPUTS = (
    "float[B, T, 4] x, float[B, 1, 4] k, float[1, T] t, float[B, T, 4, 1] last, float[4] v, "
    "float[1, 1] ones, int64[2] axes, float[T, T] square, int64 diagonal, float[2, 4] w"
)
CONSTANTS = (
    "int64[1] zero = {0}, int64[1] two = {2}, int64[2] ends = {0, -1}, int64[1] back = {-1}, "
    "int64[3] thrice = {1, 1, 3}, int64[3] along = {1, 2, 1}, int64[1] one = {1}, "
    "int64[2] none = {1, 1}, int64[2] double = {2, 1}, int64 first = {1}, int64[2] parts = {1, 3}"
)
SIZES = "s = Shape (x) l = Gather (s, one)"


def infer(node: str, **facts: Tail | dict[str, object]) -> tuple[RuleSite, TensorState]:
    """Return the site of a node, and the state of its first result."""
    text = node if " = " in node.split("(")[0].split("<")[0] else f"y = {node}"
    site = site_of(text, inputs=INPUTS, constants=CONSTANTS, **facts)
    states = RULES[qualified_name(site.node)].infer_states(site)
    first = states if isinstance(states, TensorState) else states[0]
    assert first is not None
    return site, first


@pytest.mark.parametrize(
    ("node", "expected", "times"),
    [
        ("Transpose (x)", "4 T B", (1,)),
        ("Transpose <perm = [1, 0, 2]> (x)", "T B 4", (0,)),
        ("Unsqueeze (x, zero)", "1 B T 4", (2,)),
        ("Unsqueeze (x, two)", "B T 1 4", (1,)),
        ("Unsqueeze (x, back)", "B T 4 1", (1,)),
        ("Unsqueeze (x, ends)", "1 B T 4 1", (2,)),
        ("Squeeze (last, back)", "B T 4", (1,)),
        ("Squeeze (t, zero)", "T", (0,)),
        ("Squeeze (ones)", "", ()),
        ("Squeeze (k, one)", "B 4", ()),
    ],
)
def test_axes_keep_their_tails(node: str, expected: str, times: tuple[int, ...]) -> None:
    facts = dict.fromkeys(("x", "last", "t"), ONE)
    _, state = infer(node, **facts)
    assert sizes(state) == expected
    assert state.time_axes == times
    assert all(state.tail_along(i) == ONE for i in times)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ("Unsqueeze (x, axes)", "its axes are not constant"),
        ("Squeeze (x, one)", "it drops the axis that carries time"),
        ("Tile (x, along)", "it repeats the axis that carries time"),
        ("Tile (x, axes)", "how often it repeats is not known"),
        ("Split <axis = 1> (x)", "it splits the axis that carries time"),
        ("SplitToSequence <axis = 1> (x)", "it splits the axis that carries time"),
        ("SplitToSequence (x)", "it splits the batch"),
        ("Trilu (square, diagonal)", "which diagonal it begins at is not fixed"),
    ],
)
def test_refusals(node: str, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        infer(node)


def test_all_axes_of_size_1_are_dropped_if_the_result_has_as_many() -> None:
    """An axis of which only the state knows that it is 1 may be none in the graph."""
    with pytest.raises(RefusedError, match="it drops whatever axes are of size 1"):
        infer("Squeeze (ones)", ones={"axes": ((), fixed_axis(sympy.Integer(2)))})


@pytest.mark.parametrize("node", ["Unsqueeze (v, zero)", "Squeeze (k, one)", "Trilu (w)"])
def test_a_rank_that_is_not_known_is_taken_from_the_result(node: str) -> None:
    facts = {x: {"axes": None, "tails": ()} for x in "vkw"}
    _, state = infer(node, **facts)
    assert not state.time_axes
    assert state.rank == 2


@pytest.mark.parametrize(("facts", "expected"), [({"fill": 3.0}, Tail("number", 3.0)), ({}, LAST)])
def test_an_axis_that_is_repeated_over_time_holds_copies(
    facts: dict[str, object], expected: Tail
) -> None:
    _, state = infer("s = Shape (x) y = Expand (k, s)", k=facts)
    assert sizes(state) == "B T 4"
    assert state.tails == (None, expected, None)


@pytest.mark.parametrize(("tail", "expected"), [(ONE, ONE), (ANY, ANY), (LAST, LAST)])
def test_expand_keeps_tails_and_steps(tail: Tail, expected: Tail) -> None:
    node = f"{SIZES} n = Concat <axis = 0> (two, l) y = Expand (t, n)"
    _, state = infer(node, t={"tails": (None, tail), "steps": (0, 1)})
    assert sizes(state) == "2 T"
    assert state.tails == (None, expected)
    assert state.steps == (0, 1)


def test_steps_along_one_time_are_none_along_two() -> None:
    node = f"{SIZES} n = Concat <axis = 0> (l, l) y = Expand (t, n)"
    _, state = infer(node, t={"tails": (None, ONE), "steps": (0, 1)})
    assert sizes(state) == "T T"
    assert state.tails == (LAST, ONE)
    assert state.steps is None


def test_a_padded_size_is_one_wherever_it_is_repeated() -> None:
    node = f"{SIZES} n = Concat <axis = 0> (two, l) y = Expand (t, n)"
    _, state = infer(node, t={"axes": (), "tails": (), "counts_padding": True})
    assert state.counts_padding
    assert state.tails == (None, None)
    assert sizes(state) == "2 T"


def test_what_has_no_rank_must_not_grow() -> None:
    node = f"{SIZES} n = Concat <axis = 0> (two, l) y = Expand (t, n)"
    with pytest.raises(RefusedError, match="its result grows with the padding"):
        infer(node, t={"axes": None, "tails": ()})


@pytest.mark.parametrize(
    ("node", "expected", "tails"),
    [
        ("Tile (x, thrice)", "B T 12", (None, ONE, None)),
        ("Tile (ones, double)", "2 1", (None, None)),
        ("Tile (t, none)", "1 T", (None, ONE)),
        ("Tile (t, double)", "2 T", (None, ONE)),
        (f"{SIZES} n = Concat <axis = 0> (l, one) y = Tile (ones, n)", "T 1", (LAST, None)),
    ],
)
def test_tiles(node: str, expected: str, tails: tuple[Tail | None, ...]) -> None:
    _, state = infer(node, x=ONE, t={"tails": (None, ONE), "steps": (0, 1)})
    assert sizes(state) == expected
    assert state.tails == tails
    assert state.steps is None


def test_tiles_of_one_number_are_that_number() -> None:
    node = f"{SIZES} n = Concat <axis = 0> (l, one) y = Tile (ones, n)"
    _, state = infer(node, ones={"fill": 0.0})
    assert state.tails == (ZERO, None)


def test_a_split_keeps_time_in_each_part() -> None:
    node = "y, z = Split <axis = -1> (x, parts)"
    site = site_of(node, inputs=INPUTS, constants=CONSTANTS, outputs="y, z", x=ONE)
    parts = RULES["Split"].infer_states(site)
    assert not isinstance(parts, TensorState)
    assert [sizes(x) for x in parts if x is not None] == ["B T 1", "B T 3"]
    assert all(x is not None and x.tails == (None, ONE, None) for x in parts)


def test_a_vector_of_sizes_is_not_split() -> None:
    with pytest.raises(RefusedError, match="it splits a vector of sizes"):
        infer("Split <axis = 0> (v, parts)", v={"counts_padding": True})


@pytest.mark.parametrize(("tail", "expected"), [(ZERO, ZERO), (ONE, FINITE), (ANY, ANY)])
def test_a_triangle_keeps_zeros(tail: Tail, expected: Tail) -> None:
    facts = {"tails": (tail, tail), "sign": 2, "fill": 1.0, "steps": (0, 1)}
    for node in ("Trilu (square)", "Trilu (square, first)", "Trilu <upper = 0> (square)"):
        _, state = infer(node, square=facts)
        assert state.tails == (expected, expected)
        assert (state.sign, state.fill, state.steps) == (1, None, None)


def test_a_triangle_is_of_time_alone() -> None:
    site = site_of("y = Trilu (x)")
    state = site.input_state()
    turned = type(state)((state.axes[0], state.axes[1] * 2, ()), state.tails)
    site.states[0] = turned
    with pytest.raises(RefusedError, match="an axis of it holds time beside something else"):
        RULES["Trilu"].infer_states(site)
