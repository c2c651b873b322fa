"""Resize and Upsample, against what ONNX Runtime computes."""

from typing import Any

import numpy as np
import pytest

from graphfix.ops.resizes import read_resize, scales_input
from tests.ops.nodes import node_of
from tests.ops.samples import Array, Sample, floats, ints, labels

_TWICE = np.array([1, 2], np.float32)
_RESIZES = [
    Sample("Upsample", 7, (labels(2, 3),), {"scales": [1.0, 2.0]}),
    Sample("Upsample", 9, (labels(2, 3), _TWICE)),
    Sample("Resize", 10, (labels(2, 3), _TWICE)),
    Sample("Resize", 11, (labels(2, 3), floats(0), _TWICE)),
    Sample("Resize", 13, (labels(2, 3), None, _TWICE), {"mode": "linear"}),
    Sample("Resize", 18, (labels(2, 3), None, None, ints(4, 3))),
    Sample("Resize", 18, (labels(2, 3), None, None, ints(5)), {"axes": [-1]}),
    Sample("Resize", 18, (labels(2, 3), None, np.array([1.5], np.float32)), {"axes": [1]}),
]


@pytest.mark.parametrize("sample", _RESIZES, ids=str)
def test_a_resize_gives_this_shape(sample: Sample) -> None:
    resize = read_resize(node_of(sample), 2, sample.opset)
    assert resize is not None
    assert resize.resized_dims(sample.inputs[0].shape) == sample.first().shape
    assert resize.mode == sample.attributes.get("mode", "nearest")
    old = sample.operator == "Upsample" or sample.opset < 11
    assert resize.coordinates == ("asymmetric" if old else "half_pixel")
    index = scales_input(node_of(sample), sample.opset)
    assert (index is None) == ("scales" in sample.attributes)


def test_a_resize_that_keeps_the_aspect_has_no_known_shape() -> None:
    attributes: dict[str, object] = {"keep_aspect_ratio_policy": "not_larger"}
    sample = Sample("Resize", 18, (labels(2, 3), None, None, ints(4, 3)), attributes)
    resize = read_resize(node_of(sample), 2, 18)
    assert resize is not None
    assert resize.resized_dims((2, 3)) is None


_PLACES = ["half_pixel", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn"]
_ROUNDINGS = ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]


def _resized_ramp(scale: float, opset: int, attributes: dict[str, object]) -> tuple[Array, Any]:
    """Return 0, 1, 2, ... resized along the last axis, and how the Resize reads."""
    ramp = np.arange(8, dtype=np.float32).reshape(1, 1, 8)
    sample = Sample(
        "Resize", opset, (ramp, floats(0), np.array([1, 1, scale], np.float32)), attributes
    )
    resize = read_resize(node_of(sample), 3, opset)
    assert resize is not None
    assert resize.scale_along(2) == np.float32(scale)
    return sample.first().reshape(-1), resize


@pytest.mark.parametrize("coordinates", _PLACES)
@pytest.mark.parametrize("scale", [2.0, 3.0, 0.5, 1.5])
def test_an_element_of_a_resize_is_at_this_place(coordinates: str, scale: float) -> None:
    attributes: dict[str, object] = {
        "coordinate_transformation_mode": coordinates,
        "mode": "linear",
    }
    result, resize = _resized_ramp(scale, 11, attributes)
    places = resize.places(np.arange(len(result), dtype=np.float64), scale)
    assert places is not None
    np.testing.assert_allclose(result, np.clip(places, 0, 7), atol=1e-5)
    first, last = resize.neighbours(places)
    assert (first <= places).all()
    assert (last >= places).all()


@pytest.mark.parametrize("coordinates", _PLACES)
@pytest.mark.parametrize("rounding", _ROUNDINGS)
@pytest.mark.parametrize("scale", [2.0, 4.0, 0.5])
def test_a_resize_takes_this_neighbour(coordinates: str, rounding: str, scale: float) -> None:
    attributes: dict[str, object] = {
        "coordinate_transformation_mode": coordinates,
        "nearest_mode": rounding,
    }
    result, resize = _resized_ramp(scale, 11, attributes)
    places = resize.places(np.arange(len(result), dtype=np.float64), scale)
    assert places is not None
    first, last = resize.neighbours(places)
    np.testing.assert_array_equal(result, np.clip(first, 0, 7))
    np.testing.assert_array_equal(first, last)


def test_a_grid_that_sizes_stretch_has_no_known_places() -> None:
    attributes: dict[str, object] = {"coordinate_transformation_mode": "align_corners"}
    _, resize = _resized_ramp(2.0, 13, attributes)
    assert resize.places(np.zeros(1), 2.0) is None
    by_size = Sample("Resize", 18, (labels(2, 3), None, None, ints(5)), {"axes": [-1]})
    resize = read_resize(node_of(by_size), 2, 18)
    assert resize is not None
    assert resize.scale_along(1) is None
