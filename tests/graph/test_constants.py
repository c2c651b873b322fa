"""Constants that are read once, and only where their contents are needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.files import io
from graphfix.files.external_files import Weight
from graphfix.graph.constants import (
    const_of,
    const_tensor,
    fill_value_of,
)
from graphfix.graph.nodes import use_count

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def test_a_small_one_in_a_file_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _saved(tmp_path)
    read = _reads(monkeypatch)
    bias = model.graph.initializers["bias"]
    assert const_tensor(bias) is bias.const_value
    assert const_tensor(bias, limit=3) is None
    assert read == []
    for _ in range(3):
        np.testing.assert_array_equal(const_of(bias), np.arange(4))
    assert read == ["bias"]


def test_a_sum_that_leads_to_no_softmax_is_no_mask_and_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _saved(tmp_path)
    read = _reads(monkeypatch)
    assert not graphfix.run(model, "finite-mask").changed
    assert read == ["near"]


def test_users_are_counted_by_input() -> None:
    model = ir.from_onnx_text(HEAD + "m (float[N] x) => (float[N] y) { y = Add (x, x) }")
    assert [use_count(x) for x in (*model.graph.inputs, *model.graph.outputs)] == [2, 0]


def constant_of(body: str, constants: str = "", inputs: str = "float[N] x") -> object:
    """Return what the second input of the last node holds, if the file fixes it."""
    values = f"<{constants}>" if constants else ""
    imports = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>'
    model = ir.from_onnx_text(f"{imports} m ({inputs}) => (y) {values} {{ {body} }}")
    array = const_of(model.graph[-1].inputs[1])
    return None if array is None else array.tolist()


@pytest.mark.parametrize(
    ("body", "contents"),
    [
        ("y = Add (x, w)", [2.0]),
        ("i = Identity (w)  j = Identity (i)  y = Add (x, j)", [2.0]),
        ("c = Constant <value = float[1] {3}> ()  y = Add (x, c)", [3.0]),
        ("c = Constant <value_float = 4.0> ()  i = Identity (c)  y = Add (x, i)", 4.0),
        ("c = Neg (w)  y = Add (x, c)", None),
        ("c = own.Identity (w)  y = Add (x, c)", None),
        ("c = own.Constant <value_float = 4.0> ()  y = Add (x, c)", None),
        ("y = Add (x, x)", None),
        ("c = Constant <value_float = 4.0, own = 1> ()  y = Add (x, c)", None),
        ('c = Constant <value_string = "a"> ()  y = own.Add (x, c)', None),
    ],
)
def test_what_the_file_fixes(body: str, contents: object) -> None:
    assert constant_of(body, "float[1] w = {2}") == contents


def test_an_initializer_that_is_an_input_is_no_constant() -> None:
    body, weight = "y = Add (x, w)", "float[1] w = {2}"
    assert constant_of(body, weight, "float[N] x, float[1] w") is None


@pytest.mark.parametrize("size", [1024, 1025])
def test_weights_are_not_read(size: int) -> None:
    value = ir.Value(name="w", const_value=ir.tensor(np.zeros(size, np.float32)))
    graph = ir.Graph([], [], nodes=[], initializers=[value])
    assert (const_tensor(value) is not None) == (size <= 1024)
    assert const_tensor(value, limit=size) is not None
    assert graph.initializers


def test_what_a_fill_repeats() -> None:
    node = ir.Node("", "ConstantOfShape", [None])
    np.testing.assert_array_equal(fill_value_of(node), np.zeros(1, np.float32))
    node.attributes["value"] = ir.AttrTensor("value", ir.tensor(np.array([7], np.int64)))
    np.testing.assert_array_equal(fill_value_of(node), [7])
    node.attributes["value"] = ir.RefAttr("value", "fill", ir.AttributeType.TENSOR)
    assert fill_value_of(node) is None


def _saved(folder: Path) -> ir.Model:
    """A model with a bias before a MatMul and another before a Softmax, in a file beside it."""
    model = ir.from_onnx_text(
        HEAD
        + """m (float[N, 4] x, float[4, 4] w) => (float[N, 4] y)
        <float[4] bias = {0, 1, 2, 3}, float[4] near = {0, 0, 0, 1}> {
            a = Add (x, bias) p = MatMul (a, w) s = Add (p, near) t = Sub (s, x) y = Softmax (t)
        }"""
    )
    ir.save(model, folder / "m.onnx", external_data="m.data", size_threshold_bytes=0)
    return io.load(folder / "m.onnx")


def _reads(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The names of the weights that are read from here on."""
    read: list[str | None] = []
    values = Weight._read_values

    def noted(self: Weight) -> np.ndarray:
        read.append(self.name)
        return values(self)

    monkeypatch.setattr(Weight, "_read_values", noted)
    return read
