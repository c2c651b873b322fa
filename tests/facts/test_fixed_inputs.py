"""Values of inputs as text, and as a model's metadata records them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.errors import ModelError
from graphfix.facts.fixed_inputs import (
    METADATA_KEY,
    fixed_input_arrays,
    fixed_input_texts,
    parse_input_value,
    record_fixed_inputs,
)


def value_of(dtype: str, dims: list[int | str] | None = None) -> ir.Value:
    shape = None if dims is None else ir.Shape(dims)
    return ir.Value(name="v", shape=shape, type=ir.TensorType(ir.DataType[dtype]))


@pytest.mark.parametrize(
    ("dtype", "dims", "text", "expected"),
    [
        ("FLOAT", [2], "0.5+-1e+2", [0.5, -100.0]),
        ("FLOAT", [2], "1E+3 + 2", [1000.0, 2.0]),
        ("FLOAT", [], "inf", np.inf),
        ("FLOAT16", [1], "65504", [65504.0]),
        ("FLOAT", [], "nan", np.nan),
        ("INT8", [], "-128", -128),
        ("INT8", [], "127", 127),
        ("INT64", [], "16e3", 16000),
        ("INT64", [], "0x10", 16),
        ("INT64", [], "yes", 1),
        ("UINT8", [2, 2], "7", [[7, 7], [7, 7]]),
        ("UINT8", [2, 2], "1+2+3+4", [[1, 2], [3, 4]]),
        ("BOOL", [], "True", True),
        ("BOOL", [2], "no+1", [False, True]),
        ("FLOAT", [0], "1", []),
        # Of an unknown rank: a number, or a list.
        ("FLOAT", None, "3", 3.0),
        ("FLOAT", None, "3+4", [3.0, 4.0]),
    ],
)
def test_values_of_every_type(
    dtype: str, dims: list[int | str] | None, text: str, expected: object
) -> None:
    array = parse_input_value(value_of(dtype, dims), text)
    assert array.dtype == ir.DataType[dtype].numpy()
    np.testing.assert_array_equal(array, np.array(expected, array.dtype))
    assert array.shape == np.shape(expected)


@pytest.mark.parametrize(
    ("dtype", "dims", "text", "reason"),
    [
        ("INT8", [], "128", "the input 'v' is int8, from -128 to 127, and 128 is not among them"),
        ("INT8", [], "-129", "from -128 to 127, and -129 is not among them"),
        ("INT8", [], "1.5", "the input 'v' is int8, and 1.5 is not a whole number"),
        ("INT8", [], "9e99", "the input 'v' is int8, from -128 to 127"),
        ("INT8", [], "nan", "the input 'v' is int8, and nan is not a whole number"),
        ("INT8", [], "9" * 400, "the input 'v' is int8, from -128 to 127"),
        ("INT8", [], "sixteen", "the input 'v' is int8, and 'sixteen' is no number"),
        ("INT8", [], "1+2", r"shape \[\], 1 elements, and 2 are given; give one for all, or each"),
        ("UINT8", [2, 2], "1+2+3", r"shape \[2, 2\], 4 elements, and 3 are given"),
        ("BOOL", [], "2", "the input 'v' is bool, and 2 is neither true nor false"),
        ("FLOAT16", [], "65600", "the input 'v' is float16, and 65600 is beyond its range"),
        ("FLOAT", [], "", "the input 'v' is float, and '' is no number"),
        ("STRING", [], "1", "the input 'v' holds text, and only numbers can be given"),
        ("COMPLEX64", [], "1", "the input 'v' is complex64, of which no number can be given"),
        (
            "FLOAT", [2, "B", "T"], "1",
            "axis 1 of the input 'v' has no size, and a constant has one: "
            "fix-dims:v.1=SIZE,fix-dims:v.2=SIZE,fix-input:v=1",
        ),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit(
    dtype: str, dims: list[int | str], text: str, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_input_value(value_of(dtype, dims), text)


def test_a_sequence_has_no_value() -> None:
    value = ir.Value(name="v", type=ir.SequenceType(ir.TensorType(ir.DataType.FLOAT)))
    with pytest.raises(ValueError, match=r"is no tensor .* and cannot become a constant"):
        parse_input_value(value, "1")


@pytest.mark.parametrize(
    ("dims", "text", "shape"),
    [
        (["B"], "3", (1,)),
        (["B"], "3+4+5", (3,)),
        (["B", 2], "3", (1, 2)),
        (["B", 2], "3+4+5+6", (2, 2)),
        (["B", "T"], "3+4", (2, 1)),
        (["B", 0], "3", (1, 0)),
    ],
)
def test_dims_without_a_size_are_as_many_as_are_given(
    dims: list[int | str], text: str, shape: tuple[int, ...]
) -> None:
    assert parse_input_value(value_of("FLOAT", dims), text, strict=False).shape == shape


def model(inputs: str, metadata: str | None = None) -> ir.Model:
    text = (
        f'<ir_version: 8, opset_import: ["" : 17]> m ({inputs}) => (float[T] y) {{ y = Neg (x) }}'
    )
    result = ir.from_onnx_text(text)
    if metadata is not None:
        result.metadata_props[METADATA_KEY] = metadata
    return result


def test_what_is_recorded_is_read_again() -> None:
    m = model("float[T] x")
    assert fixed_input_texts(m) == {}
    record_fixed_inputs(m, {"sr": "16000"})
    record_fixed_inputs(m, {"last": "1", "sr": "8000"})
    assert fixed_input_texts(m) == {"last": "1", "sr": "8000"}


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ("{", "is malformed"),
        ("[1]", "names no values"),
        ('{"sr": 16000}', "names no values"),
    ],
)
def test_malformed_metadata(metadata: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        fixed_input_texts(model("float[T] x", metadata))


def test_the_original_is_fed_what_the_other_has_as_constants() -> None:
    before = model("float[T] x, int64 sr, int64[B] lens")
    after = model("float[T] x, int64[B] lens", '{"sr": "16000", "lens": "3", "gone": "1"}')
    arrays = fixed_input_arrays(before, after)
    assert {name: array.tolist() for name, array in arrays.items()} == {"sr": 16000}
    after = model("float[T] x", '{"sr": "16000", "lens": "3+4"}')
    arrays = fixed_input_arrays(before, after)
    assert {name: array.tolist() for name, array in arrays.items()} == {"sr": 16000, "lens": [3, 4]}


def test_a_recorded_value_that_does_not_fit_is_the_models_fault() -> None:
    before, after = model("float[T] x, int8 sr"), model("float[T] x", '{"sr": "128"}')
    with pytest.raises(ModelError, match=r"graphfix\.inputs: the input 'sr' is int8"):
        fixed_input_arrays(before, after)
