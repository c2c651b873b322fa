"""Rules for sizes, and for what is made to a size."""

from __future__ import annotations

from typing import Any

import pytest

from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.rules.shape_ops import RULES, infer_range, infer_sizes
from graphfix.lengths.tail_state import ANY, FINITE, Tail, TensorState, TimeFactor, size_expr
from tests.lengths.analysed import analysis_of, reasons
from tests.lengths.sites import site_of


def test_what_reads_only_the_shape_needs_no_clean_input() -> None:
    """An input that only lends its shape may hold anything behind what is valid."""
    body = "m = ReduceMean <axes = [1]> (z) r = RandomNormalLike (x) y = Add (r, m)"
    analysis = analysis_of(body, inputs="float[B, T, 4] x, float[B, T, 4] z")
    poisoned = [x.value.name for x in analysis.repairs if x.leak == "poisoned input"]
    assert not analysis.refusals
    assert poisoned == ["z"]


@pytest.mark.parametrize("operator", ["Bernoulli", "Multinomial"])
def test_draws_that_depend_on_data_are_refused(operator: str) -> None:
    analysis = analysis_of(f"f = Flatten <axis = 1> (x) y = {operator} (f)")
    assert any(operator in reason for reason in reasons(analysis))


def infer(node: str, **facts: Tail | dict[str, Any]) -> TensorState:
    """Return the state of the result of a node."""
    inputs = "float[B, T, 4] x, int64 u, int64[1] many"
    constants = (
        "int64 zero = {0}, int64 one = {1}, int64 minus = {-1}, float half = {0.5}, "
        "float begin = {0}, int64[1] at = {1}, int64 two = {2}"
    )
    site = site_of(node, inputs=inputs, constants=constants, **facts)
    return RULES[site.node.op_type].infer_states(site)


LENGTH = "s = Shape (x) l = Gather (s, one)"
COUNTS = {"counts_padding": True, "axes": ()}


@pytest.mark.parametrize(
    ("node", "counts", "fixed", "sign"),
    [
        ("y = Shape (x)", True, False, 1),
        ("y = Shape <start = 2> (x)", False, True, 1),
        ("y = Shape <start = 0, end = 1> (x)", False, True, 1),
        ("y = Shape <start = 1, end = 2> (x)", True, False, 1),
        ("y = Size (x)", True, False, 1),
    ],
)
def test_sizes_count_the_padding_if_one_of_them_does(
    node: str, counts: bool, fixed: bool, sign: int
) -> None:
    state = infer(node)
    assert (state.counts_padding, state.fixed, state.sign) == (counts, fixed, sign)
    assert not state.time_axes


def test_sizes_that_are_not_known_count_the_padding() -> None:
    site = site_of("y = Sub (u, u)", inputs="float[B, T, 4] x, int64 u")
    state = infer_sizes(site)
    assert (state.counts_padding, state.fixed, state.sign) == (True, False, 0)


def test_sizes_below_0_have_no_sign() -> None:
    site = site_of("s = Shape <start = 1> (x) y = Sub (s, s)")
    assert infer_sizes(site).sign == 1
    site = site_of("s = Shape <start = 2> (x) y = Neg (s)")
    assert infer_sizes(site).sign == 0


@pytest.mark.parametrize(
    ("start", "step", "steps", "sign"),
    [
        ("zero", "one", (0, 1), 1),
        ("one", "two", (1, 2), 2),
        ("minus", "one", (-1, 1), 0),
        ("zero", "minus", (0, -1), 0),
        ("one", "minus", (1, -1), 0),
    ],
)
def test_a_range_of_frames(start: str, step: str, steps: tuple[int, int], sign: int) -> None:
    state = infer(f"{LENGTH} y = Range ({start}, l, {step})", l=COUNTS)
    assert (state.steps, state.sign) == (steps, sign)
    if step != "minus":
        assert state.tails == (FINITE,)
        assert state.fixed


@pytest.mark.parametrize("ends", ["l, two, u", "u, l, one", "l, u, one"])
def test_a_range_that_begins_at_a_padded_length_is_refused(ends: str) -> None:
    with pytest.raises(RefusedError, match="where it begins, or its step"):
        infer(f"{LENGTH} y = Range ({ends})", l=COUNTS, u={"axes": ()})


@pytest.mark.parametrize(
    ("ends", "refused"),
    [("begin, f, half", False), ("g, f, half", True), ("begin, f, g", True), ("g, f, g", True)],
)
def test_a_range_of_floats_has_a_constant_start_and_step(ends: str, refused: bool) -> None:
    inputs = "float[B, T, 4] x, float f, float g"
    constants = "float begin = {0}, float half = {0.5}"
    node = f"y = Range ({ends})"
    site = site_of(node, inputs=inputs, constants=constants, outputs="float[T] y", f=COUNTS)
    site.output_axes = lambda index=0: ((TimeFactor(size_expr("T")),),)
    if refused:
        with pytest.raises(RefusedError, match="where it begins, or its step"):
            infer_range(site)
        return
    state = infer_range(site)
    assert (state.tails, state.steps, state.sign, state.fixed) == ((FINITE,), None, 0, True)


@pytest.mark.parametrize(("end", "fixed"), [("two", True), ("u", False)])
def test_a_range_without_time(end: str, fixed: bool) -> None:
    state = infer(f"y = Range (one, {end}, one)")
    assert state.fixed == fixed
    assert not state.time_axes
    assert state.steps == (1, 1)
    assert state.sign == 2
    assert infer(f"y = Range (u, {end}, one)").fixed is False


@pytest.mark.parametrize(
    ("value", "fill", "sign"),
    [
        ("", 0.0, 1),
        ("<value = float[1] {2.0}>", 2.0, 2),
        ("<value = float[1] {-2.0}>", -2.0, 0),
    ],
)
def test_one_number_everywhere(value: str, fill: float, sign: int) -> None:
    state = infer(f"s = Shape (x) y = ConstantOfShape {value} (s)", s=COUNTS)
    assert state.tails == (None, Tail("number", fill), None)
    assert (state.fill, state.sign, state.fixed) == (fill, sign, True)


def test_random_numbers_are_finite() -> None:
    state = infer("y = RandomNormalLike (x)", x=ANY)
    assert state.tails == (None, FINITE, None)
    assert not state.fixed


RAW = """s = Shape (x) b = Gather (s, nil) t = Gather (s, at) f0 = Constant <value = float {0}> ()
    f1 = Constant <value = float {1}> () r0 = CastLike (f0, b) r1 = CastLike (f1, b)
    k0 = CastLike (f0, t) k1 = CastLike (f1, t) rows = Range (r0, b, r1) k = Range (k0, t, k1)"""


def test_ranges_of_numbers_that_are_cast_to_the_type_of_a_size() -> None:
    """As torch's dynamo exporter writes them before it optimizes, the look-up of its masks too."""
    body = f"""{RAW} z = Add (k, nil)
        r = Unsqueeze (rows, one) c = Unsqueeze (z, front) most = Max (r, c) shape = Shape (most)
        rw = Expand (r, shape) cw = Expand (c, shape) ru = Unsqueeze (rw, last)
        cu = Unsqueeze (cw, last) places = Concat <axis = -1> (ru, cu)
        m = GatherND (mask, places) y = Identity (m)"""
    constants = "int64 nil = {0}, int64 at = {1}, int64[1] one = {1}, int64[1] front = {0}, "
    analysis = analysis_of(
        body,
        inputs="float[B, T, 4] x, bool[B, T] mask",
        constants=f"{constants} int64[1] last = {{-1}}",
    )
    assert not reasons(analysis)
    state = next(state for value, state in analysis.states.items() if value.name == "k")
    assert state is not None
    assert state.steps == (0, 1)


def test_a_cast_like_a_size_computes_with_no_size() -> None:
    body = "s = Shape (x) f = Relu (x) y = CastLike (f, s)"
    analysis = analysis_of(body)
    assert not analysis.refusals
    assert not analysis.repairs
