"""Sizes of tensors and types, each at its bound."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from graphfix.files import byte_sizes
from graphfix.files.byte_sizes import tensor_refusal, type_refusal
from graphfix.ops.attribute_values import MAX_DIMS

P = TensorProto


def tensor(kind: int, dims: list[int], **fields: Any) -> onnx.TensorProto:
    made = onnx.TensorProto(data_type=kind, dims=dims)
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(made, name).extend(value)
        else:
            setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        (tensor(P.FLOAT, [2], raw_data=bytes(8)), None),
        (tensor(P.FLOAT, [2], raw_data=bytes(7)), "has 7 bytes for the shape [2], which takes 8"),
        (tensor(P.FLOAT, [2], raw_data=bytes(1)), "has 1 byte for the shape [2], which takes 8"),
        (tensor(P.FLOAT, [0], raw_data=b""), None),
        (tensor(P.FLOAT, [2], float_data=[1, 2]), None),
        (tensor(P.FLOAT, [2], float_data=[1]), "has 1 value for the shape [2], which takes 2"),
        (tensor(P.COMPLEX64, [1], float_data=[1, 2]), None),
        (tensor(P.DOUBLE, [1], double_data=[1]), None),
        (tensor(P.COMPLEX128, [1], double_data=[1, 2]), None),
        (tensor(P.INT64, [1], int64_data=[1]), None),
        (tensor(P.UINT32, [1], uint64_data=[1]), None),
        (tensor(P.UINT64, [1], uint64_data=[1]), None),
        (tensor(P.STRING, [1], string_data=[b"a"]), None),
        (tensor(P.INT32, [1], int32_data=[1]), None),
        (tensor(P.BOOL, [2], int32_data=[1, 0]), None),
        (tensor(P.FLOAT16, [2], int32_data=[1, 0]), None),
        (tensor(P.INT4, [3], int32_data=[1, 2]), None),
        (
            tensor(P.INT4, [3], int32_data=[1, 2, 3]),
            "has 3 values for the shape [3], which takes 2",
        ),
        (tensor(P.INT4, [3], raw_data=bytes(2)), None),
        (tensor(P.STRING, [1], raw_data=b"a"), "has text as raw bytes, which ONNX does not know"),
        (tensor(99, [1]), "has no type that there is: 99"),
        (tensor(0, [1]), "has no type that there is: 0"),
        (tensor(P.FLOAT, [-1]), "has a dim of -1"),
        (tensor(P.FLOAT, [(1 << 40) + 1, 0]), "has a dim of 1,099,511,627,777"),
        (tensor(P.FLOAT, [1 << 40, 0]), None),
        (tensor(P.FLOAT, [1] * MAX_DIMS, float_data=[1]), None),
        (
            tensor(P.FLOAT, [1] * (MAX_DIMS + 1)),
            f"has {MAX_DIMS + 1} dims; {MAX_DIMS} are the most",
        ),
        (tensor(P.FLOAT, [9], data_location=1), None),
        (
            tensor(P.STRING, [9], data_location=1),
            "has text that lies in another file, which ONNX does not know",
        ),
        (tensor(P.FLOAT, []), "has 0 values for the shape [], which takes 1"),
    ],
    ids=str,
)
def test_a_tensor_has_as_many_values_as_it_needs(
    given: onnx.TensorProto, refusal: str | None
) -> None:
    assert tensor_refusal(given) == refusal


def tensor_type(*dims: int | str, kind: int = TensorProto.FLOAT) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(kind, dims)


def nested(depth: int) -> onnx.TypeProto:
    made = tensor_type(2)
    for _ in range(depth):
        made = helper.make_sequence_type_proto(made)
    return made


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        (tensor_type(2, "T"), None),
        (tensor_type(kind=0), None),
        (tensor_type(kind=99), "has no type that there is: 99"),
        (tensor_type(*[1] * MAX_DIMS), None),
        (tensor_type(*[1] * (MAX_DIMS + 1)), f"has {MAX_DIMS + 1} dims; {MAX_DIMS} are the most"),
        (tensor_type(1 << 40), None),
        (tensor_type((1 << 40) + 1), "has a dim of 1,099,511,627,777"),
        (tensor_type(1 << 24, 1 << 24), None),
        (
            tensor_type(1 << 24, 1 << 25),
            "has 562,949,953,421,312 elements, more than there is memory for",
        ),
        (tensor_type(1 << 24, 0, 1 << 24), None),
        (tensor_type(-3), None),
        (helper.make_map_type_proto(7, tensor_type(1)), "is a map, which graphfix does not know"),
        (nested(120), None),
        (nested(121), "is a sequence of sequences without end"),
        (
            helper.make_optional_type_proto(tensor_type((1 << 40) + 1)),
            "has a dim of 1,099,511,627,777",
        ),
        (
            tensor_type("T" * 2001),
            f"has a dim {'T' * 40 + '...'!r}, which is 2,001 characters long",
        ),
        (onnx.TypeProto(), None),
    ],
)
def test_a_type_has_possible_sizes(given: onnx.TypeProto, refusal: str | None) -> None:
    assert type_refusal(given, thorough=True) == refusal


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("T", None),
        ("batch size", None),
        ("9" * 18, None),
        ("9" * 19, "is too long a number"),
        ("T" + "9" * 30, None),
        ("T" * 2000, None),
        ("T" * 2001, "is 2,001 characters long"),
        ("T + 1", None),
        ("(" * 120 + "T" + ")" * 120, None),
        ("(" * 121 + "T" + ")" * 121, "has too many parentheses or signs"),
        ("T" + " - 1" * 200, None),
        ("T" + " - 1" * 201, "has too many parentheses or signs"),
        ("T**99", None),
        ("T**100", "is a number that no memory may hold"),
        ("T**2**2", "is a number that no memory may hold"),
        ("T**S", "is a number that no memory may hold"),
        ("T**2 + S**2 + T**3", None),
        ("T**2 + S**2 + T**3 + S**3", "is a number that no memory may hold"),
        (f"T + {'9' * 19}", "is a number that no memory may hold"),
        (f"T + {'9' * 18}", None),
        ("T / 0", "is no size"),
    ],
)
def test_a_dim_is_text_that_can_be_worked_out(text: str, refusal: str | None) -> None:
    assert byte_sizes._dim_text_refusal(text, thorough=True) == refusal


def test_sizes_are_worked_out_where_it_is_thorough() -> None:
    assert byte_sizes._dim_text_refusal("T / 0", thorough=False) is None
    assert byte_sizes._nesting_depth("((a) + (b))") == 2
    assert byte_sizes._nesting_depth("a") == 0
    assert byte_sizes._shorten_text("a" * 40) == "a" * 40
    assert byte_sizes._shorten_text("a" * 41) == "a" * 40 + "..."
    assert byte_sizes._bits_per_element(TensorProto.STRING) == 0
    assert byte_sizes._bits_per_element(TensorProto.INT4) == 4
    assert byte_sizes._bits_per_element(99) is None
