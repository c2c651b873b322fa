"""What is kept of a model beside its graph belongs to that model alone."""

import onnx_ir as ir
import pytest

import graphfix
from graphfix.facts import shapes
from graphfix.files import io
from graphfix.graph.model_state import state_of

TEXT = (
    '<ir_version: 8, opset_import: ["" : 17]> m (float[T, 4] x) => (float[T, 4] y) {y = Relu (x)}'
)


@pytest.fixture
def model() -> ir.Model:
    return ir.from_onnx_text(TEXT)


def test_a_state_is_kept(model: ir.Model) -> None:
    assert state_of(model) is state_of(model)


@pytest.mark.parametrize("copies_meta", [False, True])
def test_a_clone_has_a_state_of_its_own(model: ir.Model, copies_meta: bool) -> None:
    kept = shapes.shapes_of(model)
    clone = model.clone()
    if copies_meta:  # as another version of onnx-ir might
        clone.meta.update(model.meta)
    assert state_of(clone) is not state_of(model)
    of_clone = shapes.shapes_of(clone)
    assert of_clone.dims(clone.graph.outputs[0]) is not None
    assert shapes.shapes_of(model) is kept
    assert kept.dims(clone.graph.outputs[0]) is None


def test_a_clone_of_a_clone_keeps_none_of_either(model: ir.Model) -> None:
    state_of(model).shapes = object()
    clone = model.clone()
    state_of(clone).shapes = object()
    assert state_of(clone.clone()).shapes is None


def test_nothing_of_it_is_saved(model: ir.Model, tmp_path) -> None:
    before = ir.to_proto(model).SerializeToString()
    shapes.shapes_of(model)
    graphfix.run(model, "fold")
    assert ir.to_proto(model).SerializeToString() == before
    io.save(model, tmp_path / "m.onnx")
    assert not io.load(tmp_path / "m.onnx").metadata_props
