"""Rule for Resize and Upsample: each place between frames by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

import graphfix
from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.rule_site import RuleSite
from graphfix.lengths.rules.resize import RULES
from graphfix.lengths.tail_state import ANY, FINITE, LAST, ZERO, Tail, TensorState
from tests.lengths.sites import asked_leaks, site_of

INPUTS = "float[B, 4, T] x, float[B, 4, T, 6] image, float[B, 4, 9] still, float[B, 4, T] twice"
SCALES = ", ".join(
    f"float[3] by{name} = {{1, 1, {number}}}"
    for name, number in {"1": 1, "2": 2, "3": 3, "half": 0.5, "third": 1 / 3, "more": 1.5}.items()
)
CONSTANTS = (
    f"{SCALES}, float[4] wide = {{1, 1, 1, 2}}, float[3] rows = {{2, 1, 2}}, "
    "float[4] both = {1, 1, 2, 2}, int64[1] i0 = {0}, int64[1] i2 = {2}, int64[1] i4 = {4}"
)
COPIES, NUMBERS = ["copies of its last valid frame are put behind it"], ["its tail is set to zero"]
LINEAR = 'mode = "linear", coordinate_transformation_mode'
NEAREST = "coordinate_transformation_mode"


def infer(
    node: str, before: str = "", opset: int = 17, **facts: Tail | dict[str, Any]
) -> tuple[RuleSite, TensorState]:
    """Return the site of a node whose time is the last axis of ``x``, and the state after it."""
    site = site_of(
        f"{before} y = {node}",
        inputs=INPUTS,
        constants=CONSTANTS,
        opset=opset,
        axis="x.2",
        **facts,
    )
    state = RULES[site.node.op_type].infer_states(site)
    assert isinstance(state, TensorState)
    return site, state


def remedies(site: RuleSite) -> list[str]:
    return [x.remedy for x in site.repairs]


@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
@pytest.mark.parametrize(
    ("places", "scale", "reads_on"),
    [
        # The last frame of 2 T frames is at place T - 1/2; of 3 T frames, at T - 1/3.
        ("asymmetric", "2", {"ceil", "round_prefer_ceil"}),
        ("asymmetric", "3", {"ceil", "round_prefer_floor", "round_prefer_ceil"}),
        # At T - 3/4, and at T - 2/3.
        ("half_pixel", "2", {"ceil"}),
        ("pytorch_half_pixel", "3", {"ceil"}),
        # At T - 1.
        ("asymmetric", "1", set()),
        ("half_pixel", "1", set()),
        # Two frames further on than the last that is read.
        ("asymmetric", "half", set()),
        ("half_pixel", "half", set()),
    ],
)
def test_the_nearest_frame(places: str, scale: str, rounding: str, reads_on: set[str]) -> None:
    node = f'Resize <{NEAREST} = "{places}", nearest_mode = "{rounding}"> (x, , by{scale})'
    site, state = infer(node, x=ANY)
    assert remedies(site) == (COPIES if rounding in reads_on else [])
    assert asked_leaks(site) == ["boundary leak"] * (rounding in reads_on)
    size = {"1": "T", "2": "2*T", "3": "3*T", "half": "floor(T/2)"}[scale]
    assert [str(state.size_along(i)) for i in range(3)] == ["B", "4", size]


@pytest.mark.parametrize(
    ("places", "scale", "need"),
    [
        ("half_pixel", "2", COPIES),
        ("half_pixel", "3", COPIES),
        ("asymmetric", "2", COPIES),
        ("pytorch_half_pixel", "2", COPIES),
        ("half_pixel", "more", COPIES),
        # The next frame has a weight of 0, which times NaN is NaN.
        ("half_pixel", "1", NUMBERS),
        ("asymmetric", "half", NUMBERS),
    ],
)
def test_between_two_frames(places: str, scale: str, need: list[str]) -> None:
    node = f'Resize <{LINEAR} = "{places}"> (x, , by{scale})'
    site, _ = infer(node, x=ANY)
    assert [x[: len(need[0])] for x in remedies(site)] == need
    site, _ = infer(node, x=FINITE)
    assert remedies(site) == (need if need is COPIES else [])
    assert not infer(node, x=LAST)[0].repairs
    assert not infer(node, x={"fill": 2.0})[0].repairs


def test_a_result_of_one_frame_is_the_first_in_pytorch_half_pixel() -> None:
    site, _ = infer(f'Resize <{LINEAR} = "pytorch_half_pixel"> (x, , byhalf)')
    assert remedies(site) == ["a result of one frame is the first frame of the clip"]
    assert not infer(f'Resize <{LINEAR} = "half_pixel"> (x, , byhalf)')[0].repairs
    nearest = f'Resize <{NEAREST} = "pytorch_half_pixel", nearest_mode = "floor"> (x, , byhalf)'
    assert len(infer(nearest)[0].repairs) == 0  # place 1/2 is frame 0, too


@pytest.mark.parametrize(
    ("node", "before", "after"),
    [
        ('Resize <coordinate_transformation_mode = "asymmetric"> (x, , by2)', ZERO, ZERO),
        ('Resize <coordinate_transformation_mode = "asymmetric"> (x, , by2)', LAST, LAST),
        ('Resize <coordinate_transformation_mode = "asymmetric"> (x, , by2)', ANY, ANY),
        # Half a frame behind the end lies between the last frame and the tail.
        ('Resize <mode = "linear"> (x, , by2)', ZERO, LAST),
        ('Resize <mode = "linear"> (x, , by1)', ZERO, ZERO),
        ('Resize <mode = "cubic"> (image, , wide)', ZERO, FINITE),
        ('Resize <nearest_mode = "floor"> (x, , byhalf)', LAST, FINITE),
    ],
)
def test_the_tail(node: str, before: Tail, after: Tail) -> None:
    site, state = infer(node, x=before, image=before)
    assert state.tail_along(2) == after
    assert state.tail_along(2) == after, site.repairs


def test_what_is_known_of_all_elements() -> None:
    known = {"sign": 2, "fill": 3.0, "valid_fill": 3.0}
    nearest = infer("Resize (x, , by2)", x=known)[1]
    assert (nearest.sign, nearest.fill, nearest.valid_fill) == (2, 3.0, 3.0)
    linear = infer('Resize <mode = "linear"> (x, , by2)', x=known)[1]
    assert (linear.sign, linear.fill, linear.valid_fill) == (1, None, None)


def test_sizes_that_are_a_multiple_at_any_length() -> None:
    shape = "s = Shape (x) t = Gather <axis = 0> (s, i2) front = Slice (s, i0, i2, i0)"
    double = f"{shape} more = Mul (t, i2) z = Concat <axis = 0> (front, more)"
    site, state = infer('Resize <mode = "linear"> (x, , , z)', double)
    assert (remedies(site), str(state.size_along(2))) == (COPIES, "2*T")
    half = f"{shape} less = Div (t, i2) z = Concat <axis = 0> (front, less)"
    with pytest.raises(RefusedError, match=r"stretches T frames to floor\(T/2\), at each length"):
        infer("Resize (x, , , z)", half)


def test_the_other_axes() -> None:
    site, state = infer("Resize (image, , wide)")
    assert [str(state.size_along(i)) for i in range(4)] == ["B", "4", "T", "12"]
    assert not site.repairs
    with pytest.raises(RefusedError, match="it resizes the batch"):
        infer("Resize (x, , rows)")
    sizes = "s = Shape (x)"
    with pytest.raises(RefusedError, match="it stretches 9 of something that does not follow"):
        infer("Resize (still, , , s)", sizes)
    node = f'Resize <{LINEAR} = "pytorch_half_pixel"> (image, , both)'
    assert infer(node)[0].repairs  # upwards there is no result of one frame


@pytest.mark.parametrize(
    ("options", "opset", "reason"),
    [
        ('coordinate_transformation_mode = "align_corners"', 17, "export it with align_corners=F"),
        ('coordinate_transformation_mode = "tf_crop_and_resize"', 17, "there is no rule for its"),
        ('mode = "linear", antialias = 1', 18, "export without"),
        ('mode = "cubic", exclude_outside = 1', 17, "its exclude_outside has other weights"),
    ],
)
def test_refusals(options: str, opset: int, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        infer(f"Resize <{options}> (x, , byhalf)", opset=opset)


def test_a_size_that_no_rule_knows_is_no_fixed_size() -> None:
    """The scale is computed, so that the shape of the result is not known."""
    node = "Resize (x, , computed)"
    with pytest.raises(RefusedError, match="how many frames its result has is not known"):
        infer(node, "c = Sqrt (by2) computed = Mul (c, c)")


def repaired(body: str, constants: str) -> tuple[ort.InferenceSession, ort.InferenceSession]:
    """Return the sessions of a model of a clip [1, 1, T], and of what is repaired."""
    header = '<ir_version: 8, opset_import: ["" : 17]>'
    model = onnx.parser.parse_model(f"{header} g (float[1, 1, T] x) => (y) <{constants}> {body}")
    after = ir.from_proto(model)
    graphfix.run(after, "ilens-mask")
    texts = (model.SerializeToString(), ir.to_proto(after).SerializeToString())
    native, padded = (ort.InferenceSession(x) for x in texts)
    return native, padded


@pytest.mark.parametrize("length", [2, 3, 5, 6, 7])
def test_a_clip_that_leaves_one_frame(length: int) -> None:
    """Of two frames one is left: the first, and not the mean of both as in a longer clip."""
    node = f'{{ y = Resize <{LINEAR} = "pytorch_half_pixel"> (x, , by) }}'
    native, padded = repaired(node, "float[3] by = {1, 1, 0.5}")
    x = np.full((1, 1, 9), np.nan, np.float32)
    x[..., :length] = np.arange(1, length + 1)
    expected = native.run(None, {"x": x[..., :length]})[0]
    y = padded.run(None, {"x": x, "ilens": np.array([length])})[0]
    np.testing.assert_array_equal(y[..., : expected.shape[-1]], expected)


@pytest.mark.parametrize(
    "beside",
    [
        "both = Concat <axis = 1> (x, b)  y = Conv <pads = [1, 1]> (both, v)",
        "both = Add (x, b)  y = Conv <pads = [1, 1]> (both, w)",
    ],
)
@pytest.mark.parametrize(
    "back",
    [
        "ConvTranspose <strides = [2], pads = [1, 1], output_padding = [1]> (h, w)",
        "Resize (h, , double)",
    ],
)
def test_a_net_of_halves_runs_for_even_clips(beside: str, back: str) -> None:
    """Half of the frames, doubled, stand beside all frames: the model runs if these are even."""
    body = f"{{ h = AveragePool <kernel_shape = [2], strides = [2]> (x)  b = {back}  {beside} }}"
    constants = """float[1, 1, 3] w = {1, 2, 3}, float[1, 2, 3] v = {1, 2, 3, 4, 5, 6},
        float[3] double = {1, 1, 2}"""
    native, padded = repaired(body, constants)
    x = np.full((1, 1, 12), np.nan, np.float32)
    x[..., :8] = np.arange(8)
    expected = native.run(None, {"x": x[..., :8]})[0]
    y = padded.run(None, {"x": x, "ilens": np.array([8])})[0]
    np.testing.assert_array_equal(y[..., :8], expected)
