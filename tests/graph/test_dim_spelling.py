"""Dims whose names look like expressions, or like nothing: they are names."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.facts.shapes import infer, input_dim_names, input_dim_symbols
from graphfix.facts.view import View
from graphfix.graph.dim_spelling import DimSpelling
from graphfix.graph.dims import newly_fixed_dims
from graphfix.rules import rules
from graphfix.rules.rule import Rule
from graphfix.runtime.local_session import Session

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
MEAN = (
    "m (float[B, T, 4] x) => (float[B, T, 4] y) { a = ReduceMean <axes = [1]> (x) y = Sub (x, a) }"
)
# A batch and a time as exporters and people call them.
NAMES = [
    ("batch-size", "seq len"),
    ("b", "seq-len"),
    ("seq-len", "b"),
    ("b*n", "seq/len"),
    ("längd-t", "T (frames)"),
    ("max(1", "x)"),
    ("past + seq", "T"),
    ("a-b", "a_b"),
    ("batch.0", "audio.0"),
]


def named(text: str, **names: str) -> ir.Model:
    """A model in which dims are called as no text of a model can say."""
    model = ir.from_onnx_text(HEAD + text)
    for value in (*model.graph.inputs, *model.graph.outputs):
        assert value.shape is not None
        value.shape = ir.Shape([d if isinstance(d, int) else names[str(d)] for d in value.shape])
    return model


@pytest.mark.parametrize(("batch", "time"), NAMES)
def test_a_dim_is_a_name_wherever_it_is_used(batch: str, time: str) -> None:
    model = named(MEAN, B=batch, T=time)
    shapes, spelling = infer(model), DimSpelling(model)
    dims = shapes.dims(model.graph.outputs[0])
    assert dims is not None
    assert len({str(x) for x in dims}) == 3
    assert [spelling.name_of(str(x)) for x in dims[:2]] == [batch, time]
    assert [str(x) for x in map(spelling.to_declared, dims[:2])] == [batch, time]
    assert input_dim_names(model) == [batch, time]
    assert str(model.graph.inputs[0].shape) == f"[{batch},{time},4]"  # it is not changed


@pytest.mark.parametrize(("batch", "time"), NAMES)
def test_ilens_mask_pads_along_it(batch: str, time: str) -> None:
    model = named(MEAN, B=batch, T=time)
    graphfix.run(model, "ilens-mask")
    given = model.graph.inputs[1]
    assert given.shape is not None
    assert str(given.shape[0]) == batch
    x = np.random.default_rng(0).standard_normal((2, 7, 4)).astype(np.float32)
    ilens = np.array([7, 3], np.int64)
    with Session(model, optimize=False) as session:
        y = session.run({"x": x, given.name or "": ilens})["y"]
    for row, n in enumerate(ilens):
        alone = x[row, :n] - x[row, :n].mean(0)
        np.testing.assert_allclose(y[row, :n], alone, atol=1e-6)


@pytest.mark.parametrize(("batch", "time"), NAMES)
def test_fix_dims_takes_it_and_leaves_the_other(batch: str, time: str) -> None:
    model = named(MEAN, B=batch, T=time)
    before = model.clone()
    graphfix.run(model, graphfix.get_pass("fix-dims", dims=((batch, 2),)))
    for value in (model.graph.inputs[0], model.graph.outputs[0]):
        assert str(value.shape) == f"[2,{time},4]"
    assert newly_fixed_dims(before, model) == {batch: 2}
    graphfix.run(model, graphfix.get_pass("fix-dims", dims=((time, 9),)))
    assert str(model.graph.outputs[0].shape) == "[2,9,4]"


def test_the_names_of_the_model_make_an_expression() -> None:
    text = "m (float[P] p, float[S] x, float[Q] z) => (float[Q] y) { y = Concat <axis = 0> (p, x) }"
    model = named(text, P="past", S="seq", Q="past + seq")
    shapes = infer(model)
    assert not DimSpelling(model).symbols
    assert input_dim_symbols(model) == ["past", "seq"]
    made, given = shapes.dims(model.graph.outputs[0]), shapes.dims(model.graph.inputs[2])
    assert str(made) == str(given)
    graphfix.run(model, "fix-dims:past=2:seq=3")
    assert [str(x.shape) for x in model.graph.inputs] == ["[2]", "[3]", "[5]"]


def test_part_of_a_name_is_no_dim() -> None:
    model = named(MEAN, B="batch", T="batch-size")
    assert input_dim_names(model) == ["batch", "batch-size"]
    graphfix.run(model, "fix-dims:batch=3")
    assert str(model.graph.inputs[0].shape) == "[3,batch-size,4]"
    assert str(model.graph.outputs[0].shape) == "[3,batch-size,4]"


def test_a_command_that_fixes_it_is_printed_with_its_name() -> None:
    model = named(MEAN, B="batch-size", T="seq len")
    rule = rules()["dynamic-dims"]()
    assert isinstance(rule, Rule)
    (hazard,) = rule.find_hazards(View(model))
    assert "'batch-size'" in hazard.message
    assert "fix-dims:batch-size=SIZE,seq len=SIZE" in hazard.message


def test_what_is_written_of_shapes_has_the_names_of_the_file() -> None:
    text = "m (float[B, T, 4] x) => (float[B, T, 4] y) { y = Relu (x) }"
    model = named(text, B="batch-size", T="seq len")
    graphfix.run(model, "fresh-shapes")
    assert str(model.graph.outputs[0].shape) == "[batch-size,seq len,4]"
    model.graph.outputs[0].shape = ir.Shape([1, "batch-size", 4])
    graphfix.run(model, "fresh-shapes")
    assert str(model.graph.outputs[0].shape) == "[batch-size,seq len,4]"
