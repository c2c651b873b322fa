"""The walk over a graph: which nodes are asked, what is refused, what an output may be."""

from __future__ import annotations

import pytest

from tests.lengths.analysed import analysis_of, leaks, reasons, state_of

SIZE = "s = Shape <start = 1, end = 2> (x)"
FAR = "int64[1] far = {9223372036854775807}"
AXES = "int64[1] a1 = {1}, int64[1] one = {1}, int64[1] two = {2}"


def test_what_does_not_leak_needs_nothing() -> None:
    analysis = analysis_of("y = Relu (x)")
    assert (leaks(analysis), reasons(analysis)) == ([], [])
    state = state_of(analysis, "x")
    assert state is not None
    assert state.tail_along(1).kind == "any"


def test_an_input_that_leaks_gets_zeros_first() -> None:
    body = (
        "y = Conv <kernel_shape = [3], pads = [1, 1]> (t, w) t = Transpose <perm = [0, 2, 1]> (x)"
    )
    conv, turned = body.split(" t = ")
    analysis = analysis_of(f"t = {turned} {conv}", constants="float[4, 4, 3] w")
    assert leaks(analysis) == ["poisoned input"]
    state = state_of(analysis, "x")
    assert state is not None
    assert state.tail_along(1).is_zero


def test_a_node_that_no_output_needs_is_not_asked() -> None:
    unknown = "z = NonMaxSuppression (x, x)"
    assert reasons(analysis_of(f"{unknown} y = Relu (x)")) == []
    assert reasons(analysis_of(f"{unknown} y = Cast <to = 1> (z)")) == [
        "there is no rule that says what padding does to NonMaxSuppression"
    ]


def test_a_node_behind_one_that_is_refused_is_not_asked() -> None:
    body = "z = NonMaxSuppression (x, x) u = Relu (z) y = NonMaxSuppression (u, u)"
    assert len(reasons(analysis_of(body))) == 1


def test_an_operator_of_onnx_runtime_is_told_with_what_to_do() -> None:
    (reason,) = reasons(analysis_of("y = com.microsoft.Rfft <signal_ndim = 1> (x)"))
    assert "com.microsoft.Rfft; run ilens-mask before what fuses (-p ilens-mask,fast)" in reason


@pytest.mark.parametrize(
    ("body", "fixed"),
    [
        ("c = Constant <value = float[2] {1, 2}> () k = Exp (c)", True),
        ("k = Exp (w)", True),
        # There is no rule for these; padding does not reach them.
        ("k = MaxRoiPool <pooled_shape = [1, 1]> (image, place)", True),
        ("k = MaxRoiPool <pooled_shape = [1, 1]> (image, fed_place)", False),
        ("k = MaxRoiPool <pooled_shape = [1, 1]> (fed_image, place)", False),
        ("k = Exp (other)", False),
    ],
)
def test_what_is_made_of_constants_is_fixed(body: str, fixed: bool) -> None:
    inputs = (
        "float[B, T, 4] x, float[2, 2] other, float[1, 5] fed_place, float[1, 1, 2, 2] fed_image"
    )
    analysis = analysis_of(
        f"{body} f = ReduceSum <keepdims = 0> (k) y = Mul (x, f)",
        inputs=inputs,
        constants="float[2, 2] w = {1, 2, 3, 4}, float[1, 1, 2, 2] image = {1, 2, 3, 4}, "
        "float[1, 5] place = {0, 0, 0, 1, 1}",
    )
    state = state_of(analysis, "k")
    assert state is not None
    assert state.fixed == fixed
    assert not analysis.refusals


@pytest.mark.parametrize(
    ("constant", "sign", "fill"),
    [
        ("float[2] w = {2, 2}", 2, 2.0),
        ("float[2] w = {0, 0}", 1, 0.0),
        ("float[2] w = {0, 1}", 1, None),
        ("float[2] w = {-1, 1}", 0, None),
        ("bool[2] w = {1, 1}", 2, 1.0),
        ("float[0] w", 0, None),
    ],
)
def test_the_numbers_of_a_constant(constant: str, sign: int, fill: float | None) -> None:
    body = "c = Cast <to = 1> (k) f = ReduceSum <keepdims = 0> (c) y = Mul (x, f)"
    value = constant.partition("= ")[2]
    size = 0 if "[0]" in constant else 2
    dtype = constant.partition("[")[0]
    literal = f"{dtype}[{size}] {value or '{}'}"
    analysis = analysis_of(f"k = Constant <value = {literal}> () {body}")
    state = state_of(analysis, "k")
    assert state is not None
    assert state.fixed
    assert (state.sign, state.fill) == (sign, fill)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (f"{SIZE} y = Cast <to = 1> (s)", "is a size that counts the padding in"),
        ("c = Cast <to = 9> (x) y = NonZero (c)", "holds indices that depend on the padded length"),
        ("y = Reshape (x, flat)", "holds batch and time in one axis; fix the batch at 1"),
        (
            "y = Slice (x, back, start, a1, back)",
            "runs backwards, its padding in front",
        ),
        ("y = Relu (x)", None),
        ("m = ReduceMax <axes = [2], keepdims = 0> (x) y = Relu (m)", None),
    ],
)
def test_what_an_output_may_not_be(body: str, reason: str | None) -> None:
    constants = (
        f"{AXES}, int64[1] back = {{-1}}, int64[1] start = {{-9223372036854775807}}, "
        "int64[2] flat = {-1, 4}"
    )
    found = reasons(analysis_of(body, constants=constants))
    if reason is None:
        assert found == []
    else:
        assert len(found) == 1
        assert found[0].startswith("output 'y' ")
        assert reason in found[0]


def test_what_is_shorter_for_a_longer_clip_has_no_room() -> None:
    """T mod 5 frames: they are nowhere in a container of a multiple of five."""
    body = f"""{SIZE} five = Constant <value_ints = [5]> () r = Mod (s, five)
        zero = Constant <value_ints = [0]> () p = Slice (x, zero, r, a1)"""
    constants = "int64[1] a1 = {1}"
    (reason,) = reasons(analysis_of(f"{body} y = Relu (p)", constants=constants))
    assert "which is less for some longer clip" in reason


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "then_branch = a () => (float[B, T, 4] p) { p = Relu (x) }, "
            "else_branch = b () => (float[B, T, 4] q) { q = Neg (x) }",
            "the bodies of If use what carries time",
        ),
        (
            "then_branch = a () => (float[2] p) { p = Relu (w) }, "
            "else_branch = b () => (float[2] q) { q = Neg (w) }",
            None,
        ),
    ],
)
def test_bodies_that_read_time_are_refused(body: str, reason: str | None) -> None:
    text = f"k = If (flag) <{body}> y = Identity (k)"
    analysis = analysis_of(
        text, inputs="float[B, T, 4] x, bool flag", constants="float[2] w = {1, 2}"
    )
    assert reasons(analysis) == ([] if reason is None else [reason])


def test_a_cut_that_begins_at_the_end_has_nothing() -> None:
    """``x[:, T:]`` is empty; it takes no last frames."""
    body = f"{SIZE} c = Slice (x, s, far, a1) m = ReduceSum <keepdims = 1> (c, a1) y = Add (x, m)"
    analysis = analysis_of(body, constants=f"{AXES}, {FAR}")
    state = state_of(analysis, "c")
    assert (leaks(analysis), reasons(analysis)) == ([], [])
    assert state is not None
    assert state.size_along(1) == 0
