"""Rules for convolutions and pooling: each window by itself."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.rule_site import RuleSite
from graphfix.lengths.rules.convolve import RULES, spatial_time_axes
from graphfix.lengths.tail_state import ANY, FINITE, ONE, ZERO, Tail, TensorState, TimeFactor
from graphfix.ops import qualified_name
from tests.lengths.sites import site_of

INPUTS = (
    "float[B, 4, T] x, float[4, 4, 3] w, float[4, 4, 1] point, float[4, 4, 2] pair, float[4] bias, "
    "float[B, T, 4] turned, float[T, 4, 3] tw, float[B, 4] flat, uint8[B, 4, T] u, "
    "uint8[4, 4, 3] uw, uint8[4, 4, 1] up, uint8 zp, float[B, 4, T, 6] image, "
    "float[4, 4, 3, 3] square, float[B, 4, 9] still"
)
LEAK = ["boundary leak"]


def infer(node: str, **facts: Tail | dict[str, Any]) -> tuple[RuleSite, TensorState]:
    """Return the site of a node whose time is the last axis of ``x``, and the state after it."""
    site = site_of(f"y = {node}", inputs=INPUTS, axis="x.2", **facts)
    state = RULES[qualified_name(site.node)].infer_states(site)
    assert isinstance(state, TensorState)
    return site, state


@pytest.mark.parametrize(
    ("node", "leak", "size"),
    [
        ("Conv (x, w)", [], "T - 2"),
        ("Conv (x, point)", [], "T"),
        ("Conv <pads = [1, 1]> (x, w)", LEAK, "T"),
        ("Conv <pads = [2, 0]> (x, w)", [], "T"),
        ("Conv <pads = [0, 1]> (x, w)", LEAK, "T - 1"),
        ("Conv <pads = [0, 1]> (x, point)", LEAK, "T + 1"),
        ('Conv <auto_pad = "SAME_UPPER"> (x, w)', LEAK, "T"),
        ('Conv <auto_pad = "SAME_LOWER"> (x, w)', LEAK, "T"),
        ('Conv <auto_pad = "SAME_UPPER"> (x, point)', [], "T"),
        ('Conv <auto_pad = "VALID"> (x, w)', [], "T - 2"),
        ("Conv <strides = [2], pads = [1, 1]> (x, w)", LEAK, "floor(T/2 + 1/2)"),
        ("ConvTranspose (x, w)", LEAK, "T + 2"),
        ("ConvTranspose (x, point)", [], "T"),
        ("ConvTranspose <strides = [2]> (x, pair)", LEAK, "2*T"),
        ("ConvTranspose <strides = [2], output_padding = [1]> (x, point)", [], "2*T"),
        # The last frame leaves room for the next one behind it, which a clip alone does not have.
        ("ConvTranspose <dilations = [2], output_padding = [1]> (x, point)", LEAK, "T + 1"),
        ("MaxPool <kernel_shape = [3]> (x)", [], "T - 2"),
        ("MaxPool <kernel_shape = [3], pads = [1, 1]> (x)", LEAK, "T"),
        ("MaxPool <kernel_shape = [1], pads = [0, 0]> (x)", [], "T"),
        ("MaxPool <kernel_shape = [2], strides = [2]> (x)", [], "floor(T/2)"),
        ("MaxPool <kernel_shape = [2], strides = [2], ceil_mode = 1> (x)", LEAK, None),
        ("MaxPool <kernel_shape = [2], strides = [1], ceil_mode = 1> (x)", [], "T - 1"),
        ('MaxPool <kernel_shape = [2], auto_pad = "SAME_UPPER"> (x)', LEAK, "T"),
        ("AveragePool <kernel_shape = [3]> (x)", [], "T - 2"),
        ("AveragePool <kernel_shape = [3], pads = [1, 1], count_include_pad = 1> (x)", LEAK, "T"),
    ],
)
def test_windows(node: str, leak: list[str], size: str | None) -> None:
    site, state = infer(node)
    assert [x.leak for x in site.repairs] == leak
    assert [str(state.size_along(i)) for i in (0, 1)] == ["B", "4"]
    assert isinstance(state.factors_of(2)[0], TimeFactor)
    if size is not None:
        assert str(state.size_along(2)) == size


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ("Conv (turned, w)", "time is its channel axis"),
        ('ConvTranspose <auto_pad = "SAME_UPPER"> (x, w)', "write its auto_pad as pads"),
        ("Conv (flat, w)", "its input is of rank 2, and has nothing to slide along"),
        ("Conv (x, tw)", "its weights carry time"),
        ('Conv <auto_pad = "SAME_UPPER", strides = [2]> (x, w)', "how much SAME_UPPER puts"),
        ('Conv <auto_pad = "SAME_LOWER", strides = [2]> (x, w)', "how much SAME_LOWER puts"),
        ("AveragePool <kernel_shape = [3], pads = [1, 1]> (x)", "its last window is averaged"),
        (
            "AveragePool <kernel_shape = [2], strides = [2], ceil_mode = 1, "
            "count_include_pad = 1> (x)",
            "its last window is averaged",
        ),
    ],
)
def test_refusals(node: str, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        infer(node)


def test_a_rank_must_be_known_and_rows_stay_apart() -> None:
    with pytest.raises(RefusedError, match="the rank of its input is not known"):
        infer("Conv (still, w)", still={"axes": None, "tails": ()})
    site = site_of("y = Conv (x, w)", inputs=INPUTS, axis="x.2")
    state = site.input_state()
    assert state.axes is not None
    rows = state.axes[0]
    site.states[0] = TensorState(
        (*state.axes[:2], rows, *state.axes[2:]), (None, None, *state.tails[1:])
    )
    with pytest.raises(RefusedError, match="it mixes rows of the batch"):
        RULES["Conv"].infer_states(site)


def test_places_of_maxima_count_the_padding() -> None:
    node = "y, at = MaxPool <kernel_shape = [3]> (x)"
    site = site_of(node, inputs=INPUTS, axis="x.2")
    assert isinstance(RULES["MaxPool"].infer_states(site), TensorState)
    ir.node("Neg", [site.node.outputs[1]])
    with pytest.raises(RefusedError, match="its indices count the padding in"):
        RULES["MaxPool"].infer_states(site)


@pytest.mark.parametrize(
    ("node", "tail", "expected"),
    [
        ("Conv (x, point)", ZERO, ZERO),
        ("Conv (x, point)", ONE, FINITE),
        ("Conv (x, point, bias)", ZERO, FINITE),
        ("Conv (x, w)", ZERO, FINITE),
        ("Conv (x, w)", ANY, ANY),
        ("Conv <pads = [0, 1]> (x, w)", ANY, FINITE),
        ("MaxPool <kernel_shape = [1]> (x)", ZERO, ZERO),
    ],
)
def test_tails(node: str, tail: Tail, expected: Tail) -> None:
    assert infer(node, x=tail)[1].tails == (None, None, expected)


def test_integers_pad_with_their_zero_point() -> None:
    site, state = infer("ConvInteger <pads = [1, 1]> (u, uw, zp)")
    assert [x.leak for x in site.repairs] == LEAK
    assert site.zero_points[0] is site.node.inputs[2]
    assert state.tails == (None, None, FINITE)
    _, state = infer("ConvInteger (u, up)", u=ZERO)
    assert state.tails == (None, None, ZERO)


@pytest.mark.parametrize(
    ("node", "signs"),
    [
        ("MaxPool <kernel_shape = [3]> (x)", (0, 1, 2)),
        ("AveragePool <kernel_shape = [3]> (x)", (0, 1, 1)),
        ("Conv (x, w)", (0, 0, 0)),
    ],
)
def test_signs(node: str, signs: tuple[int, ...]) -> None:
    assert tuple(infer(node, x={"sign": x})[1].sign for x in (0, 1, 2)) == signs


def test_a_mean_over_everything_has_no_time() -> None:
    site, state = infer("GlobalAveragePool (x)")
    assert [x.leak for x in site.repairs] == ["mean pollution", "mean pollution"]
    assert [str(state.size_along(i)) for i in range(3)] == ["B", "4", "1"]
    assert state.tails == (None, None, None)
    site, state = infer("GlobalAveragePool (image)", image=ZERO)
    assert [str(state.size_along(i)) for i in range(4)] == ["B", "4", "1", "1"]
    assert site.repairs[0].axes == (2, 3)


def test_time_that_runs_backwards_meets_no_boundary() -> None:
    for node, refused in (
        ("Conv <pads = [1, 1]> (x, w)", True),
        ("Conv (x, w)", True),
        ("Conv (x, point)", False),
        ("ConvTranspose (x, point)", True),
        ("MaxPool <kernel_shape = [1]> (x)", True),
        ("AveragePool <kernel_shape = [1]> (x)", True),
    ):
        axes = site_of(f"y = {node}", inputs=INPUTS, axis="x.2").input_state().axes
        assert axes is not None
        back = (*axes[:2], (TimeFactor(axes[2][0].size, reversed=True),))
        if not refused:
            assert infer(node, x={"axes": back})[1].axes == back
            continue
        with pytest.raises(RefusedError, match="its time axis holds something else"):
            infer(node, x={"axes": back})


def test_each_axis_has_its_own_window() -> None:
    site, state = infer("Conv <pads = [0, 1, 0, 1]> (image, square)")
    assert not site.repairs
    assert spatial_time_axes(site.input_state()) == [2]
    assert [str(state.size_along(i)) for i in range(4)] == ["B", "4", "T - 2", "6"]
    site, _ = infer("Conv <pads = [0, 0, 1, 0]> (image, square)")
    assert [getattr(x, "axis", None) for x in site.repairs] == [2]
