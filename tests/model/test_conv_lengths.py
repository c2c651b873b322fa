"""What a Conv makes is reckoned once for each length, word for word as the library says it."""

from __future__ import annotations

import itertools

import onnx_ir as ir
import pytest
from onnx_shape_inference import ShapeInferenceContext, registry

from graphfix.model.shapes import infer
from graphfix.model.symbolic import windows

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
INPUTS = "float[N, 3, H, W, 31] x, float[8, 3, 3, 5, 1] w"


def graph(attributes: str, inputs: str = INPUTS) -> ir.Model:
    """The same Conv twice in a row, as far as its weights go."""
    text = f"{HEAD} g ({inputs}, float[8, 8, 3, 5, 1] v) => (y) "
    return ir.from_onnx_text(f"{text}{{ c = Conv{attributes} (x, w) y = Conv{attributes} (c, v) }}")


def dims(model: ir.Model) -> list[list[str] | None]:
    shapes = infer(model)
    known = [shapes.dims(node.outputs[0]) for node in model.graph]
    return [None if x is None else [str(dim) for dim in x] for x in known]


def by_the_library(model: ir.Model, monkeypatch: pytest.MonkeyPatch) -> list[list[str] | None]:
    with monkeypatch.context() as patch:
        patch.setattr(windows, "_slid", lambda node: None)
        return dims(model)


@pytest.mark.parametrize(
    "attributes",
    [
        *(
            f"<strides = {strides}, dilations = {dilations}, pads = {pads}>"
            for strides, dilations, pads in itertools.product(
                ("[1, 1, 1]", "[2, 3, 1]"),
                ("[1, 1, 1]", "[1, 2, 3]"),
                ("[0, 0, 0, 0, 0, 0]", "[1, 2, 0, 1, 2, 0]", "[0, 1, 0, 3, 0, 1]"),
            )
        ),
        "",
        "<kernel_shape = [3, 5, 1]>",
        '<auto_pad = "SAME_UPPER", strides = [2, 2, 1]>',
        '<auto_pad = "VALID", strides = [2, 2, 1]>',
    ],
)
def test_it_is_what_the_library_says(attributes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = graph(attributes)
    found = dims(model)
    assert found == by_the_library(model, monkeypatch)
    assert found[1] is not None


@pytest.mark.parametrize(
    "inputs",
    [
        "float[N, 3, H, W, 31] x, float[8, 3, KH, 5, 1] w",  # a kernel of any size
        "float[N, 3, ?, W, 31] x, float[8, 3, 3, 5, 1] w",
        "float x, float[8, 3, 3, 5, 1] w",
        "float[N, 3, H, W] x, float[8, 3, 3, 5, 1] w",
    ],
)
def test_what_is_not_plain_is_left_to_the_library(
    inputs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = graph("", inputs)
    assert dims(model) == by_the_library(model, monkeypatch)


def test_a_parameter_of_a_function_is_no_default() -> None:
    model = graph("<strides = [2, 2, 2]>")
    node = model.graph[0]
    assert windows._slid(node) is not None
    node.attributes["strides"] = ir.RefAttr("strides", "steps", ir.AttributeType.INTS)
    assert windows._slid(node) is None


def test_each_length_is_reckoned_once() -> None:
    windows._steps.cache_clear()
    body = "".join(f"c{i + 1} = Conv <pads = [1, 1, 1, 1]> (c{i}, w) " for i in range(20))
    infer(
        ir.from_onnx_text(
            f"{HEAD} g (float[N, 4, H, W] c0, float[4, 4, 3, 3] w) => (c20) {{ {body} }}"
        )
    )
    assert windows._steps.cache_info().misses == 2


def test_outside_of_an_inference_of_ours_it_is_the_librarys() -> None:
    model = graph("")
    windows._steps.cache_clear()
    rule = registry.get("", "Conv", version=17)
    assert rule is not None
    rule(ShapeInferenceContext(model.opset_imports), model.graph[0])
    assert windows._steps.cache_info().misses == 0
    assert model.graph[0].outputs[0].shape is not None
