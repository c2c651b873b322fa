"""Rules for element-wise operators: each decision by itself."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import pytest

from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.rules import elementwise
from graphfix.lengths.rules.elementwise import infer_elementwise
from graphfix.lengths.rules.result_tail import ResultKind
from graphfix.lengths.tail_state import (
    ANY,
    FINITE,
    ONE,
    ZERO,
    Tail,
    TensorState,
)
from tests.lengths.sites import ROWS, TIME, site_of, size

if TYPE_CHECKING:
    from graphfix.lengths.rule_site import RuleSite

INPUTS = (
    "float[B, T, 4] x, float[B, T, 4] z, int64[T] k, int64[B] n, int64 e, int64[B, 1] col, "
    "float[4] flat, bool[B, T, 1] c, float16[T] half, float[] any, int64[B, T] kk, int64[1] one"
)
KIND = ResultKind(integral=False, boolean=False, largest=math.inf)
SIZE = "s = Shape <start = 1, end = 2> (x)"


def site(node: str, inputs: str = INPUTS, **facts: Tail | dict[str, Any]) -> RuleSite:
    return site_of(node, inputs=inputs, **facts)


def state(**facts: Any) -> TensorState:
    return TensorState((), (), **facts)


@pytest.mark.parametrize(
    ("operator", "covered", "not_covered", "ended", "not_ended"),
    [
        ("Less", "T", "T - 1", "T", "T + 1"),
        ("LessOrEqual", "T - 1", "T - 2", "T - 1", "T"),
        ("Greater", "T - 1", "T - 2", "T - 1", "T"),
        ("GreaterOrEqual", "T", "T - 1", "T", "T + 1"),
    ],
)
def test_positions_on_one_side_of_a_limit(
    operator: str, covered: str, not_covered: str, ended: str, not_ended: str
) -> None:
    comparison = elementwise._PositionComparison(operator, 0, 1, size("T"), state(), 1)
    assert comparison.holds_below is operator.startswith("Less")
    assert comparison.covers(size(covered))
    assert not comparison.covers(size(not_covered))
    assert comparison.ends_at(size(ended))
    assert not comparison.ends_at(size(not_ended))
    odd = elementwise._PositionComparison(operator, 1, 2, size("T"), state(), 1)
    assert (odd.last, odd.behind) == (size("2*T - 1"), size("2*T + 1"))


@pytest.mark.parametrize(
    ("node", "facts", "tail", "fill", "valid_fill"),
    [
        # Against a size that counts the padding in, all are on one side.
        ("Less (k, s)", {}, ONE, 1, 1),
        ("GreaterOrEqual (k, s)", {}, ZERO, 0, 0),
        ("Greater (s, k)", {}, ONE, 1, 1),
        ("LessOrEqual (s, k)", {}, ZERO, 0, 0),
        # Against a length: a mask.
        ("Less (k, e)", {"e": {"length": size("T")}}, ZERO, None, 1),
        ("GreaterOrEqual (k, e)", {"e": {"length": size("T")}}, ONE, None, 0),
        ("Greater (e, k)", {"e": {"length": size("T")}}, ZERO, None, 1),
        ("Less (k, e)", {"e": {"length": size("T - 1")}}, ZERO, None, None),
    ],
)
def test_positions_beside_a_size_and_beside_a_length(
    node: str, facts: dict[str, Any], tail: Tail, fill: float | None, valid_fill: float | None
) -> None:
    known = {"k": {"steps": (0, 1)}, "s": {"counts_padding": True}, **facts}
    found = infer_elementwise(site(f"{SIZE} y = {node}", **known))
    assert (found.tails, found.fill, found.valid_value) == ((tail,), fill, valid_fill)
    assert (found.sign, found.counts_padding) == (1, False)
    assert found.fixed is (fill is not None)


@pytest.mark.parametrize(
    ("node", "facts"),
    [
        ("Less (k, e)", {"e": {"length": size("T + 1")}}),  # the first of the tail are below
        ("Less (k, e)", {}),
        ("Less (k, e)", {"k": {"steps": (0, 0)}, "e": {"length": size("T")}}),
        ("Less (k, e)", {"k": {"steps": None}, "e": {"length": size("T")}}),
        ("Equal (k, e)", {"e": {"length": size("T")}}),
        ("Less (n, e)", {"n": {"steps": (0, 1)}, "e": {"length": size("T")}}),
        ("Less (kk, e)", {"kk": {"steps": (0, 1), "tails": (FINITE, FINITE)}, "e": {}}),
    ],
)
def test_other_comparisons_are_no_masks(node: str, facts: dict[str, Any]) -> None:
    known = {"k": {"steps": (0, 1)}, **facts}
    given = site(f"y = {node}", **known)
    assert elementwise._position_mask(given, (TIME,)) is None


@pytest.mark.parametrize("operator", ["Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
def test_a_comparison_is_read_from_either_side(operator: str) -> None:
    swapped = elementwise._swap_sides(operator)
    assert elementwise._swap_sides(swapped) == operator != swapped
    assert swapped.endswith("OrEqual") == operator.endswith("OrEqual")
    known: dict[str, Any] = {"k": {"steps": (3, 2)}}
    right = elementwise._read_position_comparison(site(f"y = {operator} (e, k)", **known))
    left = elementwise._read_position_comparison(site(f"y = {operator} (k, e)", **known))
    assert right is not None
    assert left is not None
    assert (left.operator, left.first, left.step, left.bound_index) == (operator, 3, 2, 1)
    assert (right.operator, right.first, right.step, right.bound_index) == (swapped, 3, 2, 0)
    assert left.size == right.size == size("T")


def test_what_an_expand_repeats_is_looked_at_before_it() -> None:
    given = site("a = Expand (n, p) b = Expand (a, p) y = Less (k, b)", f"{INPUTS}, int64[2] p")
    inner, middle = (given.node.graph.inputs[3], given.node.graph[0].outputs[0])  # type: ignore[union-attr]
    assert inner.name == "n"
    outer = given.input_state(1)
    assert elementwise._state_before_expand(given, 1) is outer  # nothing is known before
    states = {inner: state(fill=1.0), middle: state(fill=2.0)}
    given.state_of = states.get
    assert elementwise._state_before_expand(given, 1).fill == 1
    states[inner] = TensorState(None)
    assert elementwise._state_before_expand(given, 1).fill == 2
    assert elementwise._state_before_expand(given, 0) is given.input_state(0)


@pytest.mark.parametrize(
    ("node", "facts", "stride", "steps"),
    [
        ("Mul (n, s)", {"n": {"steps": (0, 1)}}, "T", None),
        ("Mul (s, n)", {"n": {"steps": (0, 1)}}, "T", None),
        ("Mul (n, s)", {"n": {"steps": (0, 2)}}, None, None),
        ("Mul (n, s)", {"n": {"steps": (1, 1)}}, None, None),
        ("Mul (k, s)", {"k": {"steps": (0, 1)}}, None, None),  # positions are no rows
        ("Mul (n, e)", {"n": {"steps": (0, 1)}, "e": {"counts_padding": True}}, None, None),
        ("Mul (n, s)", {"n": {"steps": (0, 1)}, "s": {}}, None, None),
        ("Add (n, s)", {"n": {"steps": (0, 1)}}, None, None),
        ("Add (col, k)", {"col": {"stride": size("T")}, "k": {"steps": (0, 1)}}, "T", (0, 1)),
        ("Add (k, col)", {"col": {"stride": size("T")}, "k": {"steps": (0, 1)}}, "T", (0, 1)),
        ("Add (col, k)", {"col": {"stride": size("T")}, "k": {"steps": (1, 1)}}, None, None),
        ("Add (col, k)", {"k": {"steps": (0, 1)}}, None, None),
        ("Mul (col, k)", {"col": {"stride": size("T")}, "k": {"steps": (0, 1)}}, None, None),
        ("Sub (col, k)", {"col": {"stride": size("T")}, "k": {"steps": (0, 1)}}, None, None),
    ],
)
def test_a_row_times_the_size_is_an_index_of_two_axes(
    node: str, facts: dict[str, Any], stride: str | None, steps: tuple[int, int] | None
) -> None:
    given = site(f"{SIZE} y = {node}", **{"s": {"counts_padding": True}, **facts})
    found = elementwise._flat_index(given, (ROWS, TIME))
    assert (found is not None) is (stride is not None)
    if found is not None and stride is not None:
        assert (found.stride, found.steps) == (size(stride), steps)
        assert (found.fixed, found.sign, found.tails) == (True, 1, (None, FINITE))
        assert not found.counts_padding


@pytest.mark.parametrize(
    ("operator", "states", "fill", "valid_fill"),
    [
        ("Add", [state(fill=1.0), state(fill=2.0)], 3.0, None),
        ("Add", [state(fill=1.0), state()], None, None),
        ("Add", [state(valid_fill=1.0), state(fill=2.0)], None, 3.0),
        ("Add", [state(valid_fill=1.0), state()], None, None),
        ("Where", [state(fill=1.0), state(fill=5.0), state()], 5.0, None),
        ("Where", [state(fill=0.0), state(fill=5.0), state()], None, None),
        ("Where", [state(fill=0.0), state(), state(fill=7.0)], 7.0, None),
        ("Where", [state(valid_fill=1.0), state(fill=5.0), state()], None, 5.0),
        ("Where", [state(valid_fill=1.0), state(), state(fill=5.0)], None, None),
        ("Where", [state(valid_fill=0.0), state(), state(valid_fill=7.0)], None, 7.0),
        ("Where", [state(), state(fill=5.0), state()], None, None),
        ("Where", [state(valid_fill=0.0), state(fill=5.0), state(fill=7.0)], None, 7.0),
    ],
)
def test_the_number_that_all_elements_are(
    operator: str, states: list[TensorState], fill: float | None, valid_fill: float | None
) -> None:
    found = elementwise._with_known_numbers(state(), operator, states, KIND)
    assert (found.fill, found.valid_fill) == (fill, valid_fill)


def test_a_choice_has_the_sign_of_what_it_takes() -> None:
    for chosen, sign in ((1.0, 2), (0.0, 1)):
        states = [state(fill=chosen), state(sign=2), state(sign=1)]
        assert elementwise._with_known_numbers(state(), "Where", states, KIND).sign == sign


@pytest.mark.parametrize(
    ("node", "operator"),
    [
        ("Clip (x, flat, flat)", "Clip"),
        ("Clip (x, flat)", "Max"),
        ("Clip (x, , flat)", "Min"),
        ("Clip (x)", "Clip"),
        ("Add (x, flat)", "Add"),
        ("com.microsoft.FastGelu (x, flat)", "com.microsoft.FastGelu"),
    ],
)
def test_a_clip_with_one_bound_is_a_max_or_a_min(node: str, operator: str) -> None:
    assert elementwise._operator_of(site(f"y = {node}")) == operator


def test_a_present_input_is_counted_past_absent_ones() -> None:
    given = site("y = Clip (x, , flat)")
    assert [elementwise._bound_input(given, i) for i in (0, 1)] == [0, 2]


@pytest.mark.parametrize(
    ("before", "after", "may"),
    [
        ("float", 1, False),
        ("float", 11, False),
        ("float", 10, True),
        ("float", 7, True),
        ("float", 9, False),
        ("int64", 1, False),
        ("int64", 6, False),
        ("double", 1, True),
        ("float16", 16, True),
    ],
)
def test_a_cast_that_may_make_0_of_more(before: str, after: int, may: bool) -> None:
    given = site(f"y = Cast <to = {after}> (v)", f"float[B, T, 4] x, {before}[B] v")
    assert elementwise._may_round_to_zero(given) is may


@pytest.mark.parametrize(
    ("node", "sign", "expected"),
    [
        ("Mul (x, x)", 0, 1),
        ("Mul (x, z)", 0, 0),
        ("Cast <to = 1> (x)", 2, 2),
        ("Cast <to = 10> (x)", 2, 1),
        ("Abs (x)", 0, 1),
    ],
)
def test_the_sign_of_a_result(node: str, sign: int, expected: int) -> None:
    given = site(f"y = {node}", x={"sign": sign})
    assert elementwise._sign_at(given, given.present_states()) == expected


@pytest.mark.parametrize(
    ("to", "integral", "boolean", "largest"),
    [
        (1, False, False, 3.4028234663852886e38),
        (10, False, False, 65504.0),
        (7, True, False, 2**63 - 1),
        (9, False, True, math.inf),
        (8, False, False, math.inf),
    ],
)
def test_what_is_known_of_the_type_of_a_result(
    to: int, integral: bool, boolean: bool, largest: float
) -> None:
    kind = elementwise._result_kind(site(f"y = Cast <to = {to}> (x)"))
    assert (kind.integral, kind.boolean, kind.largest) == (integral, boolean, largest)


@pytest.mark.parametrize(
    ("node", "states", "steps"),
    [
        ("Identity (k)", [state(steps=(2, 3))], (2, 3)),
        ("Cast <to = 1> (k)", [state(steps=(2, 3))], (2, 3)),
        ("Neg (k)", [state(steps=(2, 3))], None),
        ("Add (k, e)", [state(steps=(2, 3)), state(fill=4.0)], (6, 3)),
        ("Add (e, k)", [state(fill=4.0), state(steps=(2, 3))], (6, 3)),
        ("Sub (k, e)", [state(steps=(2, 3)), state(fill=4.0)], (-2, 3)),
        ("Sub (e, k)", [state(fill=4.0), state(steps=(2, 3))], None),
        ("Mul (k, e)", [state(steps=(2, 3)), state(fill=4.0)], (8, 12)),
        ("Div (k, e)", [state(steps=(2, 3)), state(fill=4.0)], None),
        ("Add (k, e)", [state(steps=(2, 3)), state(fill=0.5)], None),
        ("Add (k, e)", [state(steps=(2, 3)), state()], None),
        ("Add (k, e)", [state(), state(fill=4.0)], None),
        ("Add (k, k)", [state(steps=(2, 3))], None),
    ],
)
def test_steps_with_a_number(
    node: str, states: list[TensorState], steps: tuple[int, int] | None
) -> None:
    assert elementwise._result_steps(site(f"y = {node}").node, states) == steps


def test_a_length_that_may_be_below_0_has_no_sign() -> None:
    for given, sign in (("T", 1), ("T - 1", 1), ("T - 2", 0)):
        known: dict[str, Any] = {"n": {"length": size(given)}}
        found = infer_elementwise(site("y = Identity (n)", **known))
        assert (found.length, found.sign) == (size(given), sign)
        assert infer_elementwise(site("y = Identity (n)", n={**known["n"], "sign": 2})).sign == 2


@pytest.mark.parametrize(
    ("node", "facts", "tails", "fixed"),
    [
        ("Add (x, flat)", {"flat": {"fixed": True}}, (None, FINITE, None), False),
        ("Add (x, z)", {"x": ANY}, (None, ANY, None), False),
        ("Mul (x, z)", {"x": ZERO}, (None, ZERO, None), False),
        ("Add (x, half)", {}, (None, FINITE, FINITE), False),
        ("Add (flat, flat)", {"flat": {"fixed": True}}, (None,), True),
        ("Relu (x)", {"x": {"fixed": True}}, (None, FINITE, None), True),
    ],
)
def test_a_result_has_the_time_of_its_inputs(
    node: str, facts: dict[str, Any], tails: tuple[Tail | None, ...], fixed: bool
) -> None:
    inputs = INPUTS.replace("float16[T] half", "float[T] half")
    if "half" in node:
        inputs = inputs.replace("float[B, T, 4] x", "float[B, T, T] x")
    found = infer_elementwise(site(f"y = {node}", inputs, **facts))
    assert (found.tails, found.fixed) == (tails, fixed)


def test_a_rank_that_is_not_known() -> None:
    unknown: dict[str, Any] = {"axes": None, "tails": ()}
    found = infer_elementwise(site("y = Add (flat, any)", any=unknown))
    assert found.axes is None
    with pytest.raises(RefusedError, match="the rank of one of its inputs is not known"):
        infer_elementwise(site("y = Add (x, any)", any=unknown))


def test_numbers_that_were_cut_to_the_length_go_nowhere_else() -> None:
    cut: dict[str, Any] = {"e": {"capped_at": size("T")}}
    with pytest.raises(RefusedError, match="cut to the padded length"):
        infer_elementwise(site("y = Add (e, k)", **cut))
    found = infer_elementwise(site("y = Less (k, e)", k={"steps": (0, 1)}, **cut))
    assert found.capped_at is None
    with pytest.raises(RefusedError, match="cut to the padded length"):
        infer_elementwise(site("y = Less (k, e)", k={"steps": (1, 1)}, **cut))


@pytest.mark.parametrize(
    ("node", "facts", "capped"),
    [
        ("Min (one, s)", {}, True),
        ("Min (s, one)", {}, True),
        ("Min (k, s)", {}, True),
        ("Clip (one, , s)", {}, True),
        ("Max (one, s)", {}, False),
        ("Min (one, s, one)", {}, False),
        ("Min (e, s)", {}, False),
        ("Min (n, s)", {}, False),  # it has a row for each length
        ("Min (e, n)", {"n": {"counts_padding": True}}, False),
        ("Min (e, k)", {}, False),
        ("Min (g, s)", {"g": {"counts_padding": True}}, False),
    ],
)
def test_a_number_that_is_cut_to_the_size(node: str, facts: dict[str, Any], capped: bool) -> None:
    given = site(f"{SIZE} g = Add (s, s) y = {node}", **{"s": {"counts_padding": True}, **facts})
    axes = elementwise._broadcast_axes(given, given.present_states())
    assert axes is not None
    found = elementwise._infer_capped(given, axes)
    assert (found is not None) is capped
    if found is not None:
        assert found.capped_at == size("T")


def test_a_number_is_cut_only_where_rows_have_lengths_of_their_own() -> None:
    inputs = INPUTS.replace("float[B, T, 4] x", "float[1, T, 4] x")
    given = site(f"{SIZE} y = Min (one, s)", inputs, s={"counts_padding": True})
    assert elementwise._infer_capped(given, ((),)) is None
    signs = {sign: elementwise._infer_capped(
        site(f"{SIZE} y = Min (one, s)", s={"counts_padding": True}, one={"sign": sign}), ((),)
    ) for sign in (0, 1, 2)}  # fmt: skip
    assert {x: y and y.sign for x, y in signs.items()} == {0: 0, 1: 1, 2: 1}


def test_a_bound_that_is_a_size_takes_the_valid_length_of_one_clip() -> None:
    text = f"{SIZE} f = Cast <to = 1> (s) y = Clip (x, f)"
    known: dict[str, Any] = {"f": {"counts_padding": True}}
    with pytest.raises(RefusedError, match="its bound is a size"):
        infer_elementwise(site(text, **known))
    one_clip = site(text, INPUTS.replace("[B, T, 4] x", "[1, T, 4] x"), **known)
    infer_elementwise(one_clip)
    assert [x.leak for x in one_clip.repairs] == ["length as data"]
    text = f"{SIZE} f = Cast <to = 1> (s) y = Div (x, f)"
    rows = site(text, **known)
    infer_elementwise(rows)
    assert [x.leak for x in rows.repairs] == ["length as data"]


def test_a_size_times_a_size_is_a_size() -> None:
    known: dict[str, Any] = {"s": {"counts_padding": True}}
    found = infer_elementwise(site(f"{SIZE} y = Mul (s, s)", **known))
    assert found.counts_padding
    given = site(f"{SIZE} y = Mul (s, e)", **known)
    assert elementwise._size_arithmetic(given, given.present_states()) is None
    given = site(f"{SIZE} y = Mul (s, e)", e={"fixed": True}, **known)
    assert elementwise._size_arithmetic(given, given.present_states()) is not None
    given = site("y = Mul (e, e)", e={"fixed": True})
    assert elementwise._size_arithmetic(given, given.present_states()) is None
    timed = [dataclasses.replace(given.input_state(0), counts_padding=True, fixed=True)]
    timed.append(TensorState((TIME,), (FINITE,), fixed=True))
    assert elementwise._size_arithmetic(given, timed) is None


def test_of_an_unknown_type_nothing_is_known() -> None:
    given = site("y = my.Op (x)")
    assert elementwise._result_dtype(given) is None
    kind = elementwise._result_kind(given)
    assert (kind.integral, kind.boolean, kind.largest) == (False, False, math.inf)
    assert elementwise._result_dtype(site("y = Cast <to = 7> (x)")) == ir.DataType.INT64
