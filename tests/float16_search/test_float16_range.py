"""Norms whose sums float16 does not hold: over which elements each of them sums."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.float16_search.float16_range import norm_fault

HEAD = '<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>\n'
# So large that the mean square of one element is beyond float16, and of eight of them is not.
LARGE = 200.0


def fault(body: str, data: np.ndarray, name: str = "x") -> str:
    shape = ", ".join(map(str, data.shape))
    text = f"m (float[{shape}] x, float[{shape}] z, float[C] s) => (float y) {{ y = {body} }}"
    (node,) = ir.from_onnx_text(HEAD + text).graph
    return norm_fault(node, name, data.astype(np.float32), 18)


def spread(shape: tuple[int, ...], axis: int) -> np.ndarray:
    """One large element among zeros along an axis; along the others all are alike."""
    data = np.zeros(shape)
    np.moveaxis(data, axis, 0)[0] = LARGE
    return data


@pytest.mark.parametrize(
    ("body", "summed"),
    [
        ("LayerNormalization (x, s)", {2}),
        ("LayerNormalization <axis = 1> (x, s)", {1, 2}),
        ("LpNormalization <axis = 1> (x)", {1}),
        ("MeanVarianceNormalization <axes = [0, 1]> (x)", {0, 1}),
        ("InstanceNormalization (x, s, s)", {2}),
        ("com.microsoft.SkipLayerNormalization (x, z, s)", {2}),
        ("GroupNormalization <num_groups = 1> (x, s, s)", {1, 2}),
        ("GroupNormalization <num_groups = 8> (x, s, s)", {2}),
        ("com.microsoft.GroupNorm <groups = 1> (x, s, s)", {1, 2}),
        ("com.microsoft.GroupNorm <groups = 8, channels_last = 1> (x, s, s)", {1}),
        ("com.microsoft.GroupNorm <groups = 8, channels_last = 0> (x, s, s)", {2}),
        ("Softmax (x)", {0, 1, 2}),
    ],
)
def test_what_a_norm_sums(body: str, summed: set[int]) -> None:
    reported = {axis for axis in range(3) if fault(body, spread((8, 8, 8), axis))}
    assert reported == {0, 1, 2} - summed


def test_a_skip_is_summed_and_a_scale_is_not() -> None:
    large = np.full((2, 3, 4), LARGE)
    assert fault("com.microsoft.SkipLayerNormalization (x, z, s)", large, "z")
    assert fault("com.microsoft.SkipGroupNorm (x, s, s, z)", large, "z")
    assert not fault("LayerNormalization (x, s)", np.full(4, LARGE), "s")


@pytest.mark.parametrize(("epsilon", "bad"), [(1e-12, True), (1e-4, False)])
@pytest.mark.parametrize(("body", "rounds"), [("LayerNormalization", True), ("RMS", False)])
def test_a_variance_that_float16_rounds_away(
    epsilon: float, bad: bool, body: str, rounds: bool
) -> None:
    data = np.linspace(-1e-4, 1e-4, 24).reshape(2, 3, 4)
    op = body if rounds else "SimplifiedLayerNormalization"
    assert bool(fault(f"{op} <epsilon = {epsilon}> (x, s)", data)) == (bad and rounds)


def test_what_has_no_elements_has_no_fault() -> None:
    assert not fault("GroupNormalization <num_groups = 2> (x, s, s)", np.zeros((0, 4, 3)))
