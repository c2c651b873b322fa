"""What a rule may ask of its node: tails, lengths, frames, sizes; and what is refused."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.tail_state import (
    ANY,
    FINITE,
    HIDDEN,
    LAST,
    ONE,
    ZERO,
    OtherFactor,
    Tail,
    TensorState,
    TimeFactor,
)
from tests.lengths.sites import FOUR, ROWS, TIME, asked_leaks, site_of, size

if TYPE_CHECKING:
    from graphfix.lengths.rule_site import RuleSite

INPUTS = (
    "float[B, T, 4] x, float16[B, T, 4] half, int32[B, T, 4] whole, bool[B, T, 4] flag, "
    "float[T, 4] alone, float[B, 4] rows, float[B, T, N] odd, float point, float[4] points, "
    "float[B, U, 4] other, int64[N] open"
)
CONSTANTS = (
    "int64[1] one = {1}, int64[2] two = {5, 6}, float[1] single = {2}, int64[1] at = {1}, "
    "int64[6] pads = {0, 1, 0, 0, 2, 0}, int64[1] minus = {-1}, int64[1, 2] table = {3, 4}"
)
LEAK: Any = "boundary leak"
LOWEST, LARGEST = -3.4028234663852886e38, 3.4028234663852886e38


def site(
    node: str = "y = Relu (x)", inputs: str = INPUTS, **facts: Tail | dict[str, Any]
) -> RuleSite:
    return site_of(node, inputs=inputs, constants=CONSTANTS, **facts)


def one_clip(text: str = INPUTS) -> str:
    return text.replace("[B, T, 4] x", "[1, T, 4] x")


def test_inputs_that_are_there_and_not_there() -> None:
    given = site("y = Clip (x, , point)")
    assert [given.has_input(i) for i in (0, 1, 2, 3, None)] == [True, False, True, False, False]
    assert given.optional_state(1) is None
    assert given.optional_state(3) is None
    assert len(given.present_states()) == 2
    with pytest.raises(RefusedError, match="input 1 of it is missing"):
        given.input_state(1)


@pytest.mark.parametrize(("tail", "asked"), [(FINITE, 1), (ZERO, 0), (ONE, 1), (ANY, 1)])
def test_a_tail_of_zeros_is_asked_for_once(tail: Tail, asked: int) -> None:
    given = site(x=tail)
    for _ in range(2):
        assert given.require_zero_tail(0, 1, LEAK).tail_along(1) == ZERO
    assert asked_leaks(given) == [LEAK] * asked
    for repair in given.repairs:
        assert (repair.index, repair.axis, repair.point) == (0, 1, None)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("point", "ok"), [("point", True), ("single", True), ("points", False)])
def test_the_zero_of_a_quantized_tensor_is_one_number(point: str, ok: bool) -> None:
    given = site(f"y = Add (x, {point})")
    given.zero_points[0] = given.node.inputs[1]
    if ok:
        given.require_zero_tail(0, 1, LEAK)
        assert given.repairs[0].point is given.node.inputs[1]  # type: ignore[attr-defined]
    else:
        with pytest.raises(RefusedError, match="its zero point is not one number"):
            given.require_zero_tail(0, 1, LEAK)


@pytest.mark.parametrize(
    ("name", "tail", "asked", "edge"),
    [
        ("x", FINITE, 1, LOWEST),
        ("x", HIDDEN, 0, None),
        ("x", Tail("number", -1e30), 0, -1e30),
        ("x", Tail("number", -1e29), 1, LOWEST),
        ("x", Tail("number", -math.inf), 0, -math.inf),
        ("half", Tail("number", -65504.0), 0, -65504.0),
        ("half", Tail("number", -65503.0), 1, -65504.0),
        ("whole", FINITE, 1, -(2**31)),
        ("flag", FINITE, 1, 0),
        ("flag", ZERO, 0, 0),
    ],
)
def test_scores_are_hidden_by_the_lowest_number(
    name: str, tail: Tail, asked: int, edge: float | None
) -> None:
    given = site(f"y = Identity ({name})", **{name: tail})
    state = given.require_hidden_tail(0, 1)
    assert asked_leaks(given) == ["attention dilution"] * asked
    assert edge is None or state.tail_along(1) == Tail("number", edge)
    again = site(f"y = Identity ({name})", **{name: HIDDEN})
    again.require_low_tail(0, 1, LEAK)
    assert asked_leaks(again) == [LEAK]  # hidden is not yet below all numbers


@pytest.mark.parametrize(
    ("name", "tail", "most", "asked", "number"),
    [
        ("x", FINITE, None, 1, LARGEST),
        ("x", Tail("number", 1e30), None, 0, 1e30),
        ("x", Tail("number", 1e29), None, 1, LARGEST),
        ("x", Tail("number", 7.0), 7.0, 0, 7.0),
        ("x", Tail("number", 6.0), 7.0, 1, 7.0),
        ("half", FINITE, None, 1, 65504.0),
        ("flag", FINITE, None, 1, 1),
        ("whole", FINITE, None, 1, 2**31 - 1),
    ],
)
def test_a_tail_is_raised_to_the_largest_number(
    name: str, tail: Tail, most: float | None, asked: int, number: float
) -> None:
    given = site(f"y = Identity ({name})", **{name: tail})
    state = given.require_high_tail(0, 1, LEAK, most)
    assert state.tail_along(1) == Tail("number", number)
    assert asked_leaks(given) == [LEAK] * asked
    for repair in given.repairs:
        assert repair.number == number  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("tails", "asked"),
    [((FINITE, FINITE), 0), ((ANY, FINITE), 1), ((FINITE, ANY), 1), ((ANY, ANY), 2)],
)
def test_each_tail_that_is_not_finite_is_zeroed(tails: tuple[Tail, Tail], asked: int) -> None:
    inputs = "float[B, T, 4] x, float[B, T, T, 4] square"
    axes = (ROWS, TIME, TIME, ())
    given = site("y = Relu (square)", inputs, square={"axes": axes, "tails": (None, *tails, None)})
    assert given.require_finite_tails(0, LEAK).is_finite
    assert len(given.repairs) == asked


def test_a_tail_of_copies_of_the_last_frame() -> None:
    for tail, asked in ((LAST, 0), (FINITE, 1)):
        given = site(x=tail)
        assert given.require_last_tail(0, 1, LEAK).tail_along(1) == LAST
        assert asked_leaks(given) == [LEAK] * asked
    with pytest.raises(RefusedError, match="no batch axis"):
        site("y = Relu (alone)").require_last_tail(0, 0, LEAK)


SIZE = "s = Shape <start = 1, end = 2> (x)"


@pytest.mark.parametrize(
    ("axes", "trailing"),
    [((ROWS, TIME, ()), 2), ((ROWS,), 0), (((), ROWS, TIME), 1), ((ROWS, ()), 1)],
)
def test_a_size_becomes_the_length_of_each_row(axes: Any, trailing: int) -> None:
    given = site(f"{SIZE} f = Cast <to = 1> (s) y = Mul (x, f)")
    state = given.require_valid_length(1, axes)
    assert state.axes == ()
    (repair,) = given.repairs
    assert (repair.leak, repair.index, repair.rank, repair.trailing) == (  # type: ignore[attr-defined]
        "length as data",
        1,
        1,
        trailing,
    )


def test_a_size_of_one_clip_needs_no_rows() -> None:
    given = site(f"{SIZE} y = Add (s, s)", one_clip())
    given.require_valid_length(0, ((),))
    assert given.repairs[0].trailing == 0  # type: ignore[attr-defined]
    with pytest.raises(RefusedError, match=r"no batch axis, and each row.*fix-dims:B=1"):
        site(f"{SIZE} y = Add (s, s)").require_valid_length(0, ((),))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("s = Shape (x) y = Mul (x, s)", "several sizes at once"),
        ("y = Mul (x, points)", "several sizes at once"),
        ("s = ReduceSum (points) f = Cast <to = 7> (s) y = Mul (x, f)", "several sizes|not known"),
        ("n = NonZero (point) s = Shape <start = 1> (n) y = Mul (x, s)", "it is not known which"),
        (f"{SIZE} e = Slice (s, one, open) y = Mul (x, e)", "several|not known which"),
        ("y = Mul (x, single)", None),
        (f"{SIZE} f = Cast <to = 1> (s) g = Sqrt (f) h = Mul (g, single) y = Mul (x, h)", None),
        (f"{SIZE} f = Cast <to = 1> (s) g = Add (f, point) y = Mul (x, g)", "not known which"),
    ],
)
def test_sizes_that_are_made_of_lengths(body: str, reason: str | None) -> None:
    given = site(body)
    axes = (ROWS, TIME, ())
    if reason is None:
        given.require_valid_length(1, axes)
        assert len(given.repairs) == 1
    else:
        with pytest.raises(RefusedError, match=reason):
            given.require_valid_length(1, axes)


def test_sizes_that_can_be_computed() -> None:
    given = site()
    given.check_size(size("floor(T/2) + 3"))
    for text in ("T + N", "N", "T*S"):
        with pytest.raises(RefusedError, match="cannot be computed from T alone"):
            given.check_size(size(text))
    given.check_mask(given.input_state(0), 1)
    odd = TensorState((ROWS, (TimeFactor(size("T + N")),)), (None, FINITE))
    with pytest.raises(RefusedError, match="cannot be computed from T alone"):
        given.check_mask(odd, 1)


def test_parameters_carry_no_time() -> None:
    site("y = Add (alone, point)").check_parameters("no")
    with pytest.raises(RefusedError, match=r"^no$"):
        site("y = Add (point, alone)").check_parameters("no")
    with pytest.raises(RefusedError, match=r"^no$"):
        site("y = Clip (point, point, alone)").check_parameters("no")


@pytest.mark.parametrize(
    ("x", "other", "tail"), [(FINITE, FINITE, FINITE), (FINITE, ANY, ANY), (ANY, FINITE, ANY)]
)
def test_what_is_computed_from_all_inputs(x: Tail, other: Tail, tail: Tail) -> None:
    given = site("y = Add (x, alone)", x=x, alone=other)
    state = given.state_after_arithmetic((ROWS, TIME, ()), (None, x, None))
    assert state.tails == (None, tail, None)


@pytest.mark.parametrize(
    ("facts", "offsets", "asked"),
    [
        ({}, (-1,), 1),
        ({"fill": 2.0}, (-1,), 0),
        ({"tails": (None, LAST, None)}, (-1,), 0),
        ({"tails": (None, LAST, None)}, (-2,), 1),
        ({"tails": (None, LAST, None)}, (-1, -1), 1),
    ],
)
def test_frames_are_read_from_the_end(
    facts: dict[str, Any], offsets: tuple[int, ...], asked: int
) -> None:
    given = site(x=facts)
    given.request_last_frames(given.input_state(0), 1, offsets, drop=True)
    assert asked_leaks(given) == ["last-frame read"] * asked
    for repair in given.repairs:
        assert (repair.offsets, repair.drops_axis) == (offsets, True)  # type: ignore[attr-defined]


def test_what_nodes_hold() -> None:
    given = site(f"{SIZE} c = Concat <axis = 0> (s, two) y = Reshape (x, c)")
    assert given.input_contents(1) == [size("T"), 5, 6]
    assert given.input_array(1) is None
    assert given.input_ints(1) is None
    given = site("c = Concat <axis = 0> (two, one) y = Reshape (x, c)")
    assert given.input_ints(1) == (5, 6, 1)
    assert given.input_contents(5) is None
    given = site("y = Gather (x, table)")
    found = given.input_array(1)
    assert found is not None
    assert found.tolist() == [[3, 4]]
    given = site("n = NonZero (point) k = Shape <start = 1> (n) y = Reshape (x, k)")
    assert given.input_contents(1) is None  # no size of the inputs


def test_shapes_of_results() -> None:
    given = site("y = Transpose <perm = [1, 0, 2]> (x)")
    assert given.output_dims() == [size("T"), size("B"), 4]
    assert given.output_axes() == (TIME, ROWS, FOUR)
    with pytest.raises(RefusedError, match="its result grows with the padding"):
        given.output_without_time()
    assert given.output_of_shape(fixed=True).fixed
    unknown = site("y = Reshape (x, open)")
    with pytest.raises(RefusedError, match="the shape of its result is not known"):
        unknown.output_dims()
    assert unknown.output_without_time().axes is None
    assert unknown.dims_of(None) is None
    fixed = site("y = Relu (rows)")
    assert fixed.output_without_time().axes == (ROWS, FOUR)
    assert not fixed.output_without_time().fixed


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("1", ()),
        ("T", TIME),
        ("2*T + 1", (TimeFactor(size("2*T + 1")),)),
        ("B", ROWS),
        ("2*B", (OtherFactor(size("2*B")),)),
        ("4", FOUR),
    ],
)
def test_the_axis_of_a_size(text: str, axis: Any) -> None:
    given = site()
    assert given.axis_of_size(size(text)) == axis
    assert given.axis_of_repeats(size(text)) == axis
    assert given.grows_with_padding(size(text)) is ("T" in text)


def test_repeats_of_rows_and_times_are_two_factors() -> None:
    given = site()
    assert given.axis_of_repeats(size("B*T")) == (*ROWS, *TIME)
    assert given.axis_of_repeats(size("2*B*T")) == (*ROWS, TimeFactor(size("2*T")))
    for text in ("B*T + B**2", "B + T", "B*T + T"):
        assert given.axis_of_repeats(size(text)) == (TimeFactor(size(text)),)


def test_names_of_inputs_are_sizes_and_others_are_not() -> None:
    given = site()
    assert given.is_size_of_inputs(size("T + B*N"))
    assert not given.is_size_of_inputs(size("T + Q"))


def test_cuts_pads_and_axes() -> None:
    given = site(f"{SIZE} y = Slice (x, one, s, one)")
    cuts = given.slice_cuts(3)
    assert cuts is not None
    assert {axis: (x.start, x.end, x.step) for axis, x in cuts.items()} == {1: (1, size("T"), 1)}
    assert site("y = Slice (x, one, one, open)").slice_cuts(3) is None
    pads = site("y = Pad (x, pads)").pad_amounts(3)
    assert pads is not None
    assert pads[1] == (1, 2)
    assert site("y = Pad (x, open)").pad_amounts(3) is None
    assert site("y = Gather <axis = -1> (x, one)").axis_attribute(3) == 2
    with pytest.raises(RefusedError, match="its axis lies outside of its rank 3"):
        site("y = Gather <axis = 3> (x, one)").axis_attribute(3)
    assert site("y = Unsqueeze (x, minus)").axes_operand() == (-1,)
    assert site("y = Unsqueeze (x, open)").axes_operand() is None


def test_rows_of_their_own_are_needed_for_frames() -> None:
    given = site("y = Relu (alone)")
    with pytest.raises(RefusedError, match="no batch axis"):
        given.request_last_frames(given.input_state(0), 0, (-1,), drop=False)
    clip = site("y = Relu (alone)", one_clip())
    clip.request_last_frames(clip.input_state(0), 0, (-1,), drop=False)
    assert len(clip.repairs) == 1
