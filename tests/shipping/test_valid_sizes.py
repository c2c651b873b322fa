"""What is valid of an output is what every clip has shown, whatever inference knows."""

import dataclasses
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.errors import ModelError
from graphfix.shipping.dim_expression import size_of
from graphfix.shipping.valid_sizes import Clip, Sizing, _OutputShapes

PLAN = Sizing("T", None, ("T",), ({"T": 400},))
LENGTHS = (40, 59, 60, 77, 200)


def seen(sizes: list[int]) -> _OutputShapes:
    clips = [
        Clip(n, {}, {"y": np.zeros((1, size), np.float32)})
        for n, size in zip(LENGTHS, sizes, strict=True)
    ]
    return _OutputShapes("y", PLAN, clips, {}, frozenset(["T"]))


def dims(sizes: list[int], inferred: str | None, declared: str | int | None) -> object:
    def dim(one: str | int | None) -> object:
        return one if isinstance(one, int) else ir.SymbolicDim(one)

    found = seen(sizes).find_dims((1, dim(inferred)), (1, dim(declared)))
    return found[1] if isinstance(found[1], int) else str(found[1])


FRAMES = [n // 20 - 1 for n in LENGTHS]


@pytest.mark.parametrize(
    ("inferred", "declared"),
    [
        ("floor(T/20) - 1", "frames"),
        (None, "(T//20) - 1"),
        ("-2*_d2 + 2*_d5 + floor(T/20) - 1", "frames"),  # what only a run knows cancels
        ("T - _d7", "(T//20) - 1"),
        ("T", "(T//20) - 1"),  # inference says what no clip shows
    ],
)
def test_the_first_that_every_clip_shows(inferred: str | None, declared: str) -> None:
    found = str(dims(FRAMES, inferred, declared)).replace(" ", "")
    assert found in ("floor(T/20)-1", "(T//20)-1")


def test_what_the_model_computes_counts_if_every_clip_shows_it() -> None:
    sizes = [max(1, n // 50) for n in LENGTHS]
    computed = (ir.SymbolicDim("floor(T/50)"), ir.SymbolicDim("Max(1, floor(T/50))"))
    found = dataclasses.replace(seen(sizes), computed=lambda: computed)
    (dim,) = found.find_dims((1, None), (1, None))[1:]
    assert str(dim) == "Max(1, floor(T/50))"
    assert size_of(str(dim), {"T": 20}) == 1
    few = dataclasses.replace(found, clips=found.clips[3:])
    with pytest.raises(ModelError, match=r"follows no size of the inputs"):
        few.find_dims((1, None), (1, None))


def test_what_no_clip_changes_is_a_number() -> None:
    assert dims([7] * len(LENGTHS), "_d1", "n") == 7


def test_what_one_clip_contradicts_is_refused_with_what_was_tried() -> None:
    odd = [*FRAMES[:-1], FRAMES[-1] + 1]
    with pytest.raises(ModelError, match=r"axis 1 is 1, 1, 2, 2, \.\.\. for clips of 40, 59, 60"):
        dims(odd, "_d1 + floor(T/20) - 1", "frames")


@pytest.mark.parametrize("law", [lambda n: 8 * n, lambda n: 320 * n - 40, lambda n: n + 3])
def test_a_multiple_of_the_length_that_every_clip_shows(law: Callable[[int], int]) -> None:
    sizes = [law(n) for n in LENGTHS]
    found = dims(sizes, "_d1", "samples")
    assert [size_of(str(found), {"T": n}) for n in (*LENGTHS, 41)] == [*sizes, law(41)]
    with pytest.raises(ModelError, match=r"follows no size of the inputs"):
        dims([*sizes[:2], sizes[2] + 1, *sizes[3:]], "_d1", "samples")


def test_two_lengths_show_no_multiple() -> None:
    clips = [Clip(n, {}, {"y": np.zeros((1, 8 * n), np.float32)}) for n in (40, 59)]
    few = _OutputShapes("y", PLAN, clips, {}, frozenset(["T"]))
    with pytest.raises(ModelError, match=r"follows no size of the inputs"):
        few.find_dims((1, ir.SymbolicDim("_d1")), (1, ir.SymbolicDim(None)))
