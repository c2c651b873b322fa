"""Resize as a product and as copies, against what ONNX Runtime computes; its attributes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from graphfix.ops.resizes import Resize, read_resize, scales_input
from tests.ops.nodes import node_in_text, node_of
from tests.ops.samples import Array, Sample, floats, ints, labels

SQUARES = (np.arange(6, dtype=np.float32) ** 2).reshape(1, 1, 6)
NEAREST = Resize(
    (0, 1), (1.0, 2.0), None, "nearest", "half_pixel", "floor", "stretch", False, False, -0.75
)


def resized(opset: int, scale: float, attributes: dict[str, object]) -> tuple[Array, Resize]:
    sample = Sample(
        "Resize", opset, (SQUARES, floats(0), np.array([1, 1, scale], np.float32)), attributes
    )
    resize = read_resize(node_of(sample), 3, opset)
    assert resize is not None
    return sample.first().reshape(-1), resize


@pytest.mark.parametrize("scale", [2.0, 0.5, 1.5, 0.7])
@pytest.mark.parametrize(
    "attributes",
    [
        {"mode": "linear"},
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
        {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
        {"mode": "cubic"},
        {"mode": "cubic", "cubic_coeff_a": -0.5},
        {"mode": "cubic", "exclude_outside": 1},
        {"mode": "cubic", "coordinate_transformation_mode": "align_corners"},
    ],
    ids=str,
)
def test_a_resize_is_a_product(scale: float, attributes: dict[str, object]) -> None:
    shape = (1, 1, 2, 6)
    opset = 13
    data = np.concatenate([SQUARES, 3 - SQUARES]).reshape(shape).astype(np.float32)
    sample = Sample(
        "Resize", opset, (data, floats(0), np.array([1, 1, 1, scale], np.float32)), attributes
    )
    resize = read_resize(node_of(sample), 4, opset)
    assert resize is not None
    result = sample.first()
    weights = resize.weights(3, 6, result.shape[3])
    assert weights is not None
    assert weights.shape == (result.shape[3], 6)
    np.testing.assert_allclose(data @ weights.T, result, atol=2e-4)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_a_shorter_result_is_smoothed_if_asked_for(mode: str) -> None:
    data = SQUARES.reshape(1, 1, 1, 6)
    for antialias in (0, 1):
        sample = Sample(
            "Resize",
            18,
            (data, floats(0), np.array([1, 1, 1, 0.5], np.float32)),
            {"mode": mode, "antialias": antialias, "exclude_outside": antialias},
        )
        resize = read_resize(node_of(sample), 4, 18)
        assert resize is not None
        assert resize.antialias is bool(antialias)
        weights = resize.weights(3, 6, 3)
        assert weights is not None
        np.testing.assert_allclose(data @ weights.T, sample.first(), atol=2e-4)


def test_a_symmetric_grid_is_centred() -> None:
    sample = Sample(
        "Resize",
        19,
        (SQUARES.reshape(1, 1, 1, 6), floats(0), np.array([1, 1, 1, 0.7], np.float32)),
        {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"},
    )
    resize = read_resize(node_of(sample), 4, 19)
    assert resize is not None
    weights = resize.weights(3, 6, 4)
    assert weights is not None
    np.testing.assert_allclose(weights, weights[::-1, ::-1], atol=1e-9)
    places = weights @ np.arange(6)
    np.testing.assert_allclose(np.diff(places), 1 / 0.7, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "old", "new", "known"),
    [
        ({}, 6, 12, True),
        ({"mode": "nearest"}, 6, 12, False),
        ({"coordinates": "tf_crop_and_resize"}, 6, 12, False),
        ({"scales": (1.0, 1.0)}, 6, 6, True),
        ({"scales": (1.0, 1.1)}, 6, 6, False),  # it is copied
        ({"scales": None}, 6, 12, True),
        ({"scales": None}, 0, 12, False),
        ({"scales": (1.0, 0.0)}, 6, 0, False),
    ],
)
def test_which_resizes_are_products(
    change: dict[str, Any], old: int, new: int, known: bool
) -> None:
    linear = dataclasses.replace(NEAREST, mode="linear")
    assert (dataclasses.replace(linear, **change).weights(1, old, new) is not None) is known


def test_one_element_of_pytorch_is_the_first() -> None:
    one = dataclasses.replace(NEAREST, mode="linear", coordinates="pytorch_half_pixel", scales=None)
    weights = one.weights(1, 4, 1)
    assert weights is not None
    assert weights.tolist() == [[1, 0, 0, 0]]
    corners = dataclasses.replace(one, coordinates="align_corners").weights(1, 4, 1)
    assert corners is not None
    assert corners.tolist() == [[1, 0, 0, 0]]


@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric"])
@pytest.mark.parametrize("scale", [2.0, 0.5, 3.0, 1.0])
def test_elements_are_copies(rounding: str, coordinates: str, scale: float) -> None:
    attributes: dict[str, object] = {
        "coordinate_transformation_mode": coordinates,
        "nearest_mode": rounding,
    }
    result, resize = resized(13, scale, attributes)
    copies = resize.nearest_elements(2, 6, len(result))
    if copies is not None:
        assert SQUARES.reshape(-1)[copies].tolist() == result.tolist()
    assert copies is not None or scale == 3.0


@pytest.mark.parametrize(
    ("change", "old", "new", "copies"),
    [
        ({}, 3, 6, [0, 0, 0, 1, 1, 2]),
        ({"rounding": "ceil"}, 3, 6, [0, 1, 1, 2, 2, 2]),
        ({"scales": None}, 3, 6, [0, 0, 0, 1, 1, 2]),
        ({"scales": None}, 3, 3, [0, 1, 2]),
        ({"scales": (1.0, 1.2)}, 3, 3, None),
        ({"scales": (1.0, 3.0)}, 2, 6, None),
        ({"scales": (1.0, 3.0), "rounding": "round_prefer_floor"}, 2, 6, [0, 0, 0, 1, 1, 1]),
        ({"scales": (1.0, 3.0), "coordinates": "asymmetric"}, 2, 6, None),  # at a whole place
        ({"mode": "linear"}, 3, 6, None),
        ({}, 0, 6, None),
        ({"coordinates": "align_corners"}, 3, 6, None),
        ({"coordinates": "pytorch_half_pixel", "scales": (1.0, 0.25)}, 4, 1, None),
        ({"coordinates": "pytorch_half_pixel", "scales": (1.0, 0.5)}, 4, 2, [0, 2]),
    ],
)
def test_which_element_is_the_nearest(
    change: dict[str, Any], old: int, new: int, copies: list[int] | None
) -> None:
    assert dataclasses.replace(NEAREST, **change).nearest_elements(1, old, new) == copies


@pytest.mark.parametrize(("mode", "reach"), [("linear", (1, 2)), ("cubic", (0, 3))])
def test_neighbours_of_a_place(mode: str, reach: tuple[int, int]) -> None:
    first, last = dataclasses.replace(NEAREST, mode=mode).neighbours(np.array([1.25]))
    assert (first[0], last[0]) == reach


@pytest.mark.parametrize(
    ("change", "dims"),
    [
        ({}, (4, 6)),
        ({"axes": (1,), "scales": (0.7,)}, (4, 2)),
        ({"axes": (1,), "scales": None, "sizes": (9,)}, (4, 9)),
        ({"scales": None, "sizes": (2, 9)}, (2, 9)),
        ({"scales": None, "sizes": (2, 9), "aspect": "not_larger"}, None),
        ({"aspect": "not_larger"}, (4, 6)),
        ({"scales": None}, None),
    ],
)
def test_the_shape_of_a_result(change: dict[str, Any], dims: tuple[int, ...] | None) -> None:
    assert dataclasses.replace(NEAREST, **change).resized_dims((4, 3)) == dims


def test_seven_tenths_of_ten_are_seven() -> None:
    assert dataclasses.replace(NEAREST, scales=(0.7, 0.7)).resized_dims((10, 20)) == (7, 14)


def test_a_scale_belongs_to_its_axis() -> None:
    resize = dataclasses.replace(NEAREST, axes=(1,), scales=(2.0,))
    assert [resize.scale_along(i) for i in (0, 1, 2)] == [1.0, 2.0, 1.0]
    assert dataclasses.replace(NEAREST, scales=None).scale_along(1) is None


@pytest.mark.parametrize(
    ("text", "opset", "expected"),
    [
        (
            "Resize (x)",
            13,
            ("nearest", "half_pixel", "round_prefer_floor", "stretch", False, False, -0.75),
        ),
        (
            'Resize <mode = "cubic", coordinate_transformation_mode = "align_corners", '
            'nearest_mode = "ceil", keep_aspect_ratio_policy = "not_larger", antialias = 1, '
            "exclude_outside = 1, cubic_coeff_a = -0.5> (x)",
            18,
            ("cubic", "align_corners", "ceil", "not_larger", True, True, -0.5),
        ),
        (
            'Resize <coordinate_transformation_mode = "align_corners", nearest_mode = "ceil"> (x)',
            10,
            ("nearest", "asymmetric", "floor", "stretch", False, False, -0.75),
        ),
        (
            'Upsample <mode = "linear"> (x)',
            13,
            ("linear", "asymmetric", "floor", "stretch", False, False, -0.75),
        ),
    ],
)
def test_attributes_have_these_defaults(text: str, opset: int, expected: tuple[Any, ...]) -> None:
    found = read_resize(node_in_text(text), 3, opset)
    assert found is not None
    assert found.axes == (0, 1, 2)
    assert (found.scales, found.sizes) == (None, None)
    assert (
        *(found.mode, found.coordinates, found.rounding, found.aspect, found.antialias),
        *(found.excludes_outside, found.cubic_coefficient),
    ) == expected


@pytest.mark.parametrize(
    ("operator", "opset", "index"),
    [
        ("Upsample", 7, None),
        ("Upsample", 8, None),
        ("Upsample", 9, 1),
        ("Upsample", 11, 1),
        ("Resize", 10, 1),
        ("Resize", 11, 2),
        ("Resize", 13, 2),
    ],
)
def test_where_scales_stand(operator: str, opset: int, index: int | None) -> None:
    assert scales_input(node_in_text(f"{operator} (x)"), opset) == index


def test_axes_count_from_the_front_and_lie_in_the_rank() -> None:
    text = "Resize <axes = [-1, 0]> (x)"
    found = read_resize(node_in_text(text), 3, 18)
    assert found is not None
    assert found.axes == (2, 0)
    assert read_resize(node_in_text("Resize <axes = [3]> (x)"), 3, 18) is None


def test_sizes_are_read_from_opset_11_on_beside_empty_scales() -> None:
    sample = Sample("Resize", 18, (labels(2, 3), None, floats(0), ints(4, 5)))
    found = read_resize(node_of(sample), 2, 18)
    assert found is not None
    assert (found.scales, found.sizes) == (None, (4, 5))
    found = read_resize(node_of(sample), 2, 10)
    assert found is not None
    assert found.sizes is None
    listed = Sample("Upsample", 7, (labels(2, 3),), {"scales": [1.0, 2.0]})
    found = read_resize(node_of(listed), 2, 7)
    assert found is not None
    assert found.scales == (1.0, 2.0)
