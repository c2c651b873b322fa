"""Dims without a name, and with names that are no identifiers."""

from __future__ import annotations

import keyword

import onnx_ir as ir
import pytest

from graphfix.feeds.case_search import make_cases
from graphfix.feeds.signature import Signature
from tests.feeds.small_models import model


def test_a_dim_without_a_name_and_one_with_an_odd_name():
    text = model("m (float[B, T] x) => (float[B, T] y) { y = Relu (x) }")
    text.graph.inputs[0].shape = ir.Shape(["batch-size", None])
    text.graph.outputs[0].shape = None
    case = make_cases(text)[0]
    assert case.dims == {"batch-size": 1, "x_1": 7}
    assert make_cases(text, dims={"batch-size": [4]})[0].feeds["x"].shape[0] == 4
    assert str(text.graph.inputs[0].shape) == "[batch-size,None]"  # it is not changed


@pytest.mark.parametrize("name", ["lambda", "in", "µs"])
def test_a_dim_that_python_calls_something_else(name: str):
    text = model("m (float[B, T] x) => (float[B, T] y) { y = Relu (x) }")
    text.graph.inputs[0].shape = ir.Shape([f"{name}_", name])
    signature = Signature(text)
    (symbol,) = signature.times
    assert symbol.isascii()
    assert not keyword.iskeyword(symbol)
    assert (signature.batch, signature.user_name(symbol)) != (symbol, symbol)
    assert signature.symbol_of(name) == symbol
    assert make_cases(text, dims={name: [4]})[0].feeds["x"].shape[1] == 4


def test_dims_whose_names_differ_in_signs_only():
    text = model("m (float[B, T] x) => (float[B, T] y) { y = Relu (x) }")
    text.graph.inputs[0].shape = ir.Shape(["a b", "a_b"])
    assert make_cases(text, dims={"a b": [4], "a_b": [6]})[0].feeds["x"].shape == (4, 6)
