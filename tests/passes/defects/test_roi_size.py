"""roi-size: equal numbers for boxes of all sizes, what is left and why."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import execute, model, refusals

HALF = 'coordinate_transformation_mode = "output_half_pixel"'
BOXES = [[1, 1, 6, 6], [1, 1, 1.4, 1.3], [2, 2, 2, 2], [3, 3, 2, 2], [-1, -1, 3, 3], [5, 5, 9, 9]]


def crop(attributes: str, opset: int = 16, kind: str = "float") -> ir.Model:
    return model(
        f"m ({kind}[1, 2, 8, 8] x, {kind}[N, 4] r, int64[N] i) => ({kind}[N, 2, 3, 3] y) {{ y = "
        f"RoiAlign <output_height = 3, output_width = 3, {attributes}> (x, r, i) }}",
        opset,
    )


@pytest.mark.parametrize("scale", [1.0, 0.25])
@pytest.mark.parametrize("ratio", [0, 2])
def test_the_same_numbers(scale: float, ratio: int) -> None:
    attributes = f"{HALF}, sampling_ratio = {ratio}, spatial_scale = {scale}"
    before, after = crop(attributes), crop(attributes)
    assert graphfix.run(after, "roi-size").changed
    assert not graphfix.run(after, "roi-size").changed
    assert not [x for x in graphfix.check(after) if x.severity == "warning" and "roi" in x.rule]
    feeds = {
        "x": np.random.default_rng(0).standard_normal((1, 2, 8, 8)).astype(np.float32),
        "r": np.array(BOXES, np.float32) / np.float32(scale),
        "i": np.zeros(len(BOXES), np.int64),
    }
    (old,), (new,) = execute(before, feeds), execute(after, feeds)
    np.testing.assert_allclose(old, new, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("attributes", "opset", "kind", "refused"),
    [
        (f'{HALF}, mode = "max"', 16, "float", True),
        ("sampling_ratio = 2", 16, "float", False),
        ("sampling_ratio = 2", 10, "float", False),
        (HALF, 16, "double", False),  # on the CPU
    ],
)
def test_what_is_left_alone(attributes: str, opset: int, kind: str, refused: bool) -> None:
    assert bool(refusals(crop(attributes, opset, kind), "roi-size")) == refused
