"""Float32 weights on their way to float16: what fits, and when they are converted."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.files.byte_ranges import PIECE
from graphfix.files.half_weights import (
    HALF_MAX,
    HALF_SMALLEST,
    NarrowedTensor,
    array_to_float16,
    float16_fit,
    float32_pieces,
    tensor_to_float16,
)
from graphfix.files.wire import BIG


def in_file(folder: Path, array: np.ndarray, offset: int = 0) -> ir.ExternalTensor:
    """Return a float32 tensor that lies in a file behind ``offset`` other bytes."""
    (folder / "w.bin").write_bytes(bytes(offset) + array.astype("<f4").tobytes())
    shape = ir.Shape(array.shape)
    return ir.ExternalTensor(
        "w.bin", offset, array.nbytes, ir.DataType.FLOAT, shape=shape, name="w", base_dir=folder
    )


def fit_of(*numbers: float) -> tuple[float, int, int, int]:
    fit = float16_fit(ir.tensor(np.array(numbers, np.float32)))
    return fit.largest, fit.underflowing, fit.overflowing, fit.size


def test_the_largest_float16_fits_and_what_is_above_does_not() -> None:
    above = float(np.nextafter(np.float32(HALF_MAX), np.float32(np.inf)))
    assert fit_of(HALF_MAX, -HALF_MAX, 1) == (HALF_MAX, 0, 0, 3)
    assert fit_of(-above, above, 1) == (above, 0, 2, 3)


def test_half_of_the_smallest_float16_becomes_zero_and_what_is_above_does_not() -> None:
    half = HALF_SMALLEST / 2
    above = float(np.nextafter(np.float32(half), np.float32(1)))
    assert fit_of(half, -half, 0, above) == (above, 2, 0, 4)
    assert array_to_float16(np.array([half, above], np.float32)).tolist() == [0, HALF_SMALLEST]


def test_what_is_no_number_is_neither_large_nor_small() -> None:
    assert fit_of(np.inf, np.nan, -3) == (3, 0, 0, 3)
    assert fit_of(np.nan) == (0, 0, 0, 1)
    assert fit_of(np.inf, 70000) == (70000, 0, 1, 2)
    assert fit_of() == (0, 0, 0, 0)


def test_every_piece_counts() -> None:
    array = np.zeros(PIECE + 1, np.float32)
    array[0], array[-1] = 80000, 70000
    fit = float16_fit(ir.tensor(array))
    assert (fit.largest, fit.overflowing, fit.size) == (80000, 2, PIECE + 1)
    assert [piece.size for piece in float32_pieces(ir.tensor(array))] == [PIECE, 1]


@pytest.mark.parametrize(("elements", "is_late"), [(BIG // 4, True), (BIG // 4 - 1, False)])
def test_a_big_weight_in_a_file_is_converted_when_it_is_written(
    tmp_path: Path, elements: int, is_late: bool
) -> None:
    array = np.arange(elements, dtype=np.float32)
    half = tensor_to_float16(in_file(tmp_path, array, offset=12))
    assert isinstance(half, NarrowedTensor) is is_late
    assert half.dtype == ir.DataType.FLOAT16
    np.testing.assert_array_equal(half.numpy(), array.astype(np.float16))


def test_a_weight_in_the_model_is_converted_at_once() -> None:
    half = tensor_to_float16(ir.tensor(np.ones((2, BIG), np.float32), name="w"))
    assert not isinstance(half, NarrowedTensor)
    assert (half.name, half.numpy().shape) == ("w", (2, BIG))
    empty = tensor_to_float16(ir.tensor(np.empty((0, 3), np.float32)))
    assert (empty.numpy().shape, empty.dtype) == ((0, 3), ir.DataType.FLOAT16)


def test_a_narrowed_weight_is_the_same_however_it_is_read(tmp_path: Path) -> None:
    array = np.linspace(-2, 2, PIECE + 3, dtype=np.float32).reshape(1, -1)
    narrowed = NarrowedTensor(in_file(tmp_path, array, offset=4))
    out = io.BytesIO()
    narrowed.tofile(out)
    expected = array.astype(np.float16)
    assert narrowed.nbytes == narrowed.length == expected.nbytes
    assert out.getvalue() == narrowed.tobytes() == expected.astype("<f2").tobytes()
    np.testing.assert_array_equal(narrowed.numpy(), expected)
    assert np.asarray(narrowed).dtype == np.float16
    assert np.asarray(narrowed, np.float32).dtype == np.float32


def test_a_file_that_became_shorter_is_told(tmp_path: Path) -> None:
    tensor = in_file(tmp_path, np.ones(4, np.float32))
    (tmp_path / "w.bin").write_bytes(bytes(15))
    with pytest.raises(OSError, match="has become shorter while it was read"):
        NarrowedTensor(tensor).numpy()
