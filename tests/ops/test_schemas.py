"""ONNX's schemas, by opset and domain."""

from __future__ import annotations

import pytest

from graphfix.ops.regions import has_least_size
from graphfix.ops.schemas import schema_of, schema_version
from graphfix.ops.traits import index_inputs, named, shape_source, size_inputs
from tests.ops.nodes import node_in_text


@pytest.mark.parametrize(
    ("operator", "opset", "domain", "since"),
    [
        ("Relu", 17, "", 14),
        ("Relu", 13, "", 13),
        ("Relu", 17, "ai.onnx", 14),
        ("LayerNormalization", 16, "", None),
        ("None", 17, "", None),
        ("Scaler", 3, "ai.onnx.ml", 1),
    ],
)
def test_the_schema_of_an_opset(operator: str, opset: int, domain: str, since: int | None) -> None:
    schema = schema_of(operator, opset, domain)
    assert (None if schema is None else schema.since_version) == since


@pytest.mark.parametrize(
    ("operator", "domain", "version", "checked"),
    [
        ("Relu", "", 13, 13),
        ("Upsample", "", 9, 9),
        ("Upsample", "", 10, None),  # deprecated
        ("None", "", 17, None),
        ("Relu", "com.microsoft", 1, None),
        ("Scaler", "ai.onnx.ml", 3, 3),
        ("None", "ai.onnx.ml", 3, None),
    ],
)
def test_which_version_checks_an_operator(
    operator: str, domain: str, version: int, checked: int | None
) -> None:
    assert schema_version(operator, domain, version) == checked


def test_what_onnx_runtime_has_before_onnx_is_checked_as_of_now() -> None:
    found = schema_version("LayerNormalization", "", 11)
    assert found is not None
    assert found > 17


@pytest.mark.parametrize(
    ("mode", "opset", "least"),
    [
        ("", 15, True),
        ("", 16, False),
        ('<coordinate_transformation_mode = "output_half_pixel">', 16, True),
        ('<coordinate_transformation_mode = "half_pixel">', 16, False),
        ('<coordinate_transformation_mode = "half_pixel">', 15, True),
    ],
)
def test_boxes_of_less_than_a_cell(mode: str, opset: int, least: bool) -> None:
    assert has_least_size(node_in_text(f"RoiAlign {mode} (x, w, v)"), opset) is least


@pytest.mark.parametrize(
    ("text", "sizes", "indices", "shape"),
    [
        ("Reshape (x, w)", (1,), (), None),
        ("Gather (x, w)", (), (1,), None),
        ("Relu (x)", (), (), 0),
        ("Add (x, w)", (), (), None),
        ("my.Own (x)", (), (), None),
    ],
)
def test_inputs_that_decide_shapes_and_places(
    text: str, sizes: tuple[int, ...], indices: tuple[int, ...], shape: int | None
) -> None:
    node = node_in_text(text)
    assert (size_inputs(node, 17), index_inputs(node, 17)) == (sizes, indices)
    assert shape_source(node, 17) == shape


def test_names_in_a_text() -> None:
    assert {*named("Add Max")} == {"Add", "Max"}
    assert {*named("")} == set()
