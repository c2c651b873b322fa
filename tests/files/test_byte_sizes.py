"""Tensors and types with impossible sizes, or without the bytes that they need."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from graphfix.files.byte_sizes import tensor_refusal, type_refusal


def tensor(dtype: int, dims: list[int], **fields: object) -> TensorProto:
    return TensorProto(data_type=dtype, dims=dims, **fields)


@pytest.mark.parametrize(
    "proto",
    [
        tensor(TensorProto.FLOAT, [2], float_data=[1, 2]),
        tensor(TensorProto.FLOAT, [], float_data=[1]),
        tensor(TensorProto.FLOAT, [0, 5]),
        tensor(TensorProto.FLOAT, [1] * 64, float_data=[1]),
        tensor(TensorProto.FLOAT, [2], raw_data=bytes(8)),
        tensor(TensorProto.FLOAT, [1 << 40, 0]),
        tensor(TensorProto.COMPLEX64, [2], float_data=[1] * 4),
        tensor(TensorProto.COMPLEX128, [2], double_data=[1] * 4),
        tensor(TensorProto.DOUBLE, [2], double_data=[1] * 2),
        tensor(TensorProto.INT64, [2], int64_data=[1] * 2),
        tensor(TensorProto.UINT32, [2], uint64_data=[1] * 2),
        tensor(TensorProto.UINT64, [2], uint64_data=[1] * 2),
        tensor(TensorProto.STRING, [2], string_data=[b"a", b"b"]),
        tensor(TensorProto.FLOAT16, [2], int32_data=[1] * 2),
        tensor(TensorProto.BOOL, [2], int32_data=[1] * 2),
        tensor(TensorProto.INT8, [3], int32_data=[1] * 3),
        tensor(TensorProto.INT4, [3], int32_data=[1] * 2),
        tensor(TensorProto.INT4, [4], int32_data=[1] * 2),
        tensor(TensorProto.INT4, [18], int32_data=[1] * 9),
        tensor(TensorProto.INT4, [3], raw_data=bytes(2)),
        tensor(TensorProto.INT4, [5], raw_data=bytes(3)),
        tensor(TensorProto.FLOAT, [9], data_location=TensorProto.EXTERNAL),
    ],
)
def test_what_fits(proto: TensorProto) -> None:
    assert tensor_refusal(proto) is None


@pytest.mark.parametrize(
    ("proto", "reason"),
    [
        (tensor(99, [1]), "has no type that there is: 99"),
        (tensor(TensorProto.FLOAT, [1] * 65), "has 65 dims; 64 are the most"),
        (tensor(TensorProto.FLOAT, [-1]), "has a dim of -1"),
        (tensor(TensorProto.FLOAT, [(1 << 40) + 1]), "has a dim of 1,099,511,627,777"),
        (
            tensor(TensorProto.FLOAT, [2], raw_data=bytes(7)),
            "has 7 bytes for the shape [2], which takes 8",
        ),
        (
            tensor(TensorProto.FLOAT, [2, 3], raw_data=bytes(1)),
            "has 1 byte for the shape [2, 3], which takes 24",
        ),
        (
            tensor(TensorProto.FLOAT, [2], float_data=[1]),
            "has 1 value for the shape [2], which takes 2",
        ),
        (
            tensor(TensorProto.INT4, [3], int32_data=[1] * 3),
            "has 3 values for the shape [3], which takes 2",
        ),
        (
            tensor(TensorProto.STRING, [1], raw_data=b"a"),
            "has text as raw bytes, which ONNX does not know",
        ),
        (
            tensor(TensorProto.STRING, [1], data_location=TensorProto.EXTERNAL),
            "has text that lies in another file, which ONNX does not know",
        ),
    ],
)
def test_what_does_not_fit(proto: TensorProto, reason: str) -> None:
    assert tensor_refusal(proto) == reason


def floats(*dims: str | int) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(TensorProto.FLOAT, dims)


def refusal(*dims: str | int, thorough: bool = True) -> str | None:
    return type_refusal(floats(*dims), thorough=thorough)


@pytest.mark.parametrize(
    "dims",
    [
        (),
        ("T", "batch size", "floor(T/2)", "x.1", 0, -1),
        (1,) * 64,
        (1 << 40,),
        (1 << 24, 1 << 24),
        ("a**2",),
        ("a**2 + b**3 + c**99",),
        ("1" * 18,),
        ("x" + "1" * 19,),
        ("a" * 2000,),
        ("(" * 120 + "a" + ")" * 120,),
        ("-" * 200 + "a",),
    ],
)
def test_types_that_are_possible(dims: tuple[str | int, ...]) -> None:
    assert refusal(*dims, thorough=False) is None


@pytest.mark.parametrize(
    ("dims", "reason"),
    [
        ((1,) * 65, "has 65 dims; 64 are the most"),
        (((1 << 40) + 1,), "has a dim of 1,099,511,627,777"),
        ((1 << 24, 1 << 24, 2), "has 562,949,953,421,312 elements, more than there is memory for"),
        (("1" * 19,), "is too long a number"),
        (("a" * 2001,), "is 2,001 characters long"),
        (("(" * 121 + "a" + ")" * 121,), "has too many parentheses or signs"),
        (("-" * 201 + "a",), "has too many parentheses or signs"),
        (("a**b",), "is a number that no memory may hold"),
        (("a**100",), "is a number that no memory may hold"),
        (("a**2**2",), "is a number that no memory may hold"),
        (("a**2 + b**2 + c**2 + d**2",), "is a number that no memory may hold"),
        (("a + " + "1" * 19,), "is a number that no memory may hold"),
    ],
)
def test_types_that_are_not(dims: tuple[str | int, ...], reason: str) -> None:
    found = refusal(*dims, thorough=False)
    assert found is not None
    assert found.endswith(reason)


def test_a_dim_is_worked_out_if_asked() -> None:
    assert refusal("T/(T - T)") == "has a dim 'T/(T - T)', which is no size"
    assert refusal("T/(T - T)", thorough=False) is None
    assert refusal("floor(T/2)", "batch size") is None


def test_a_long_dim_is_shortened() -> None:
    forty = "a + " + "b" * 36
    assert f"{'(' * 40}..." in (refusal("(" * 121 + "a" + ")" * 121) or "")
    assert (
        refusal(forty + "**c")
        == f"has a dim '{forty}...', which is a number that no memory may hold"
    )


def test_sequences_and_maps() -> None:
    kind = floats(1)
    for depth in range(1, 122):
        kind = helper.make_sequence_type_proto(kind)
        reason = type_refusal(kind, thorough=False)
        assert (reason is None) is (depth <= 120)
    assert reason == "is a sequence of sequences without end"
    optional = helper.make_optional_type_proto(floats(*(1,) * 65))
    assert type_refusal(optional, thorough=False) == "has 65 dims; 64 are the most"
    assert type_refusal(onnx.TypeProto(), thorough=False) is None
    map_type = onnx.TypeProto(map_type=onnx.TypeProto.Map(key_type=TensorProto.INT64))
    assert type_refusal(map_type, thorough=False) == "is a map, which graphfix does not know"
    odd = onnx.TypeProto(tensor_type=onnx.TypeProto.Tensor(elem_type=99))
    assert type_refusal(odd, thorough=False) == "has no type that there is: 99"
    sparse = onnx.TypeProto(sparse_tensor_type=onnx.TypeProto.SparseTensor(elem_type=99))
    assert type_refusal(sparse, thorough=False) == "has no type that there is: 99"
