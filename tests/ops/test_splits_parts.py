"""Parts of a Split and of a sequence, each bound by itself."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.graph.constants import ints_of
from graphfix.ops.splits import (
    SequencePart,
    keeps_split_axis,
    read_sequence_part,
    sequence_axis,
    sequence_data,
    sequence_index,
    sequence_sizes,
    split_sizes,
)
from tests.ops.nodes import nodes_in


def nodes(text: str) -> list[ir.Node]:
    return nodes_in(
        f"""<ir_version: 8, opset_import: ["" : 21]> m (float x, int64[2] w, int64 i)
        => (float y) {{ {text} }}"""
    )


@pytest.mark.parametrize(
    ("text", "size", "sizes"),
    [
        ("a, b, c = Split (x)", 6, (2, 2, 2)),
        ("a, b, c = Split (x)", 7, None),
        ("a, b, c = Split (x)", None, None),
        ("a, b, c = Split <num_outputs = 3> (x)", 7, (3, 3, 1)),
        ("a, b, c = Split <num_outputs = 3> (x)", 4, (2, 2, 0)),
        ("a, b, c = Split <num_outputs = 3> (x)", 1, (1, 0, 0)),
        ("a, b = Split <split = [1, 4]> (x)", 5, (1, 4)),
        ("a, b = Split (x, w)", 5, None),
        ("a, b = Split <num_outputs = 0> (x)", 5, None),
        ("a = Split <num_outputs = 1> (x)", 5, (5,)),
    ],
)
def test_sizes_of_parts(text: str, size: int | None, sizes: tuple[int, ...] | None) -> None:
    assert split_sizes(nodes(text)[0], size, ints_of) == sizes


K = "k = Constant <value_ints = [%s]> ()"
ONE = "k = Constant <value_int = %s> ()"


@pytest.mark.parametrize(
    ("text", "size", "sizes"),
    [
        ("s = SplitToSequence (x)", 3, (1, 1, 1)),
        ("s = SplitToSequence (x)", 0, ()),
        ("s = SplitToSequence (x)", None, None),
        (f"{ONE % 2} s = SplitToSequence (x, k)", 5, (2, 2, 1)),
        (f"{ONE % 2} s = SplitToSequence (x, k)", 4, (2, 2)),
        (f"{ONE % 0} s = SplitToSequence (x, k)", 4, None),
        (f"{K % '1, 4'} s = SplitToSequence (x, k)", None, (1, 4)),
        ("s = SplitToSequence (x, w)", 4, None),
    ],
)
def test_sizes_in_a_sequence(text: str, size: int | None, sizes: tuple[int, ...] | None) -> None:
    assert sequence_sizes(nodes(text)[-1], size, ints_of) == sizes


@pytest.mark.parametrize(
    ("split", "at", "part"),
    [
        ("s = SplitToSequence <axis = 1> (x)", 2, SequencePart(1, 1, True)),
        ("s = SplitToSequence <axis = -1> (x)", 3, SequencePart(2, 1, True)),
        ("s = SplitToSequence <axis = 2> (x)", 4, None),
        ("s = SplitToSequence <axis = 2> (x)", -4, SequencePart(2, 1, True)),
        ("s = SplitToSequence <axis = 2> (x)", -5, None),
        ("s = SplitToSequence <axis = 1, keepdims = 0> (x)", 0, SequencePart(1, 1, False)),
        ("s = SplitToSequence (x)", 9, SequencePart(0, 1, True)),  # of unknown many
        ("s = SplitToSequence <axis = 3> (x)", 0, None),
        (f"{ONE % 2} s = SplitToSequence <axis = 1> (x, k)", 0, SequencePart(1, 2, True)),
        (f"{ONE % 2} s = SplitToSequence <axis = 1> (x, k)", 1, SequencePart(1, 1, True)),
        (f"{ONE % 2} s = SplitToSequence <axis = 1, keepdims = 0> (x, k)", -1,
         SequencePart(1, 1, True)),
        (f"{ONE % 2} s = SplitToSequence (x, k)", 0, None),
        (f"{ONE % 1} s = SplitToSequence (x, k)", 0, SequencePart(0, 1, True)),
        ("s = SplitToSequence (x, w)", 0, None),
        ("s = SequenceConstruct (x, x)", 0, None),
    ],
)  # fmt: skip
def test_a_part_of_a_sequence(split: str, at: int, part: SequencePart | None) -> None:
    *_, taken = nodes(f"{split} j = Constant <value_int = {at}> () y = SequenceAt (s, j)")
    assert read_sequence_part(taken, [None, 3, 4], ints_of) == part
    assert sequence_index(taken, ints_of) == at
    data = sequence_data(taken)
    assert (data is not None) is ("SplitToSequence" in split)
    assert data is None or data.name == "x"


def test_a_part_that_is_computed_is_not_known() -> None:
    *_, taken = nodes("s = SplitToSequence <axis = 1> (x) y = SequenceAt (s, i)")
    assert sequence_index(taken, ints_of) is None
    assert read_sequence_part(taken, [None, 3, 4], ints_of) is None


def test_axes_of_sequences() -> None:
    (split,) = nodes("s = SplitToSequence (x)")
    assert (sequence_axis(split, 2), sequence_axis(split, 0)) == (0, None)
    assert keeps_split_axis(split)
    (dropped,) = nodes("s = SplitToSequence <keepdims = 0> (x)")
    assert not keeps_split_axis(dropped)
    (kept,) = nodes("s = SplitToSequence <keepdims = 0> (x, w)")
    assert keeps_split_axis(kept)
