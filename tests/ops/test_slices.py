"""The reader of Slice takes what ONNX Runtime takes, at every opset."""

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from graphfix.ops.slices import (
    OPEN_END,
    Cut,
    cut_length,
    cut_of_cut,
    cuts_of_slice,
    is_known,
    python_slice,
    read_cuts,
    sliced_axes,
)
from tests.ops.nodes import node_of, nodes_in
from tests.ops.samples import Array, Sample, ints, labels, samples_of


def _take(array: Array, cuts: dict[int, Cut[int]]) -> Array:
    index = [slice(None)] * array.ndim
    for axis, cut in cuts.items():
        index[axis] = python_slice(cut, array.shape[axis])
        assert cut_length(cut, array.shape[axis]) == len(range(array.shape[axis])[index[axis]])
    return array[tuple(index)]


@pytest.mark.parametrize("sample", samples_of("Slice"), ids=str)
def test_every_spelling_is_read(sample: Sample) -> None:
    data = sample.inputs[0]
    cuts = cuts_of_slice(node_of(sample), data.ndim)
    assert cuts is not None
    np.testing.assert_array_equal(_take(data, cuts), sample.first())


_BOUND = st.one_of(st.integers(-7, 7), st.sampled_from([2**31 - 1, 2**63 - 1, -(2**31), -(2**63)]))


@settings(max_examples=120, deadline=None)
@given(
    start=_BOUND, end=_BOUND, step=st.integers(-3, 3).filter(bool), axis=st.sampled_from([0, -1])
)
def test_any_cut_is_read(start: int, end: int, step: int, axis: int) -> None:
    inputs = (labels(2, 5), ints(start), ints(end), ints(axis), ints(step))
    sample = Sample("Slice", 13, inputs)
    cuts = cuts_of_slice(node_of(sample), 2)
    assert cuts is not None
    assert [*cuts] == [axis % 2]
    np.testing.assert_array_equal(_take(inputs[0], cuts), sample.first())


TEXT = """<ir_version: 8, opset_import: ["" : 17]>
cut (float[N, 8] x, int64[1] end, int64[1] axis) => (float[N, M] y)
<int64[1] zero = {0}, int64[1] last = {-1}, int64[2] twice = {0, 0}, int64[2] far = {3, 4}>
{
    a = Slice (x, zero, end, last)
    b = Slice (x, zero, end, axis)
    c = Slice (x, end, end)
    d = Slice (x, twice, far, twice)
    e = Slice (x, zero, end, far)
}
"""


def test_what_is_computed_is_not_known() -> None:
    a, b, c, d, e = nodes_in(TEXT)
    assert cuts_of_slice(a, 2) is None
    (cut,) = (read_cuts(a, 2, lambda _: None) or {}).values() or [None]
    assert cut is None or not is_known(cut)
    assert sliced_axes(a, 2) == (1,)
    assert sliced_axes(a, None) == (-1,)
    assert sliced_axes(b, 2) is None
    assert sliced_axes(c, 2) == (0,)
    assert read_cuts(d, 2, lambda x: None) is None
    assert cuts_of_slice(e, 2) is None
    assert sliced_axes(e, 2) is None


def test_what_is_known_of_sizes_is_read() -> None:
    """The end of the first Slice may be a symbolic size for the caller, who names it here."""
    (a, *_) = nodes_in(TEXT)

    def read(value: ir.Value) -> tuple[object, ...] | None:
        array = value.const_value
        return ("N",) if array is None else tuple(array.numpy().tolist())

    assert read_cuts(a, 2, read) == {1: Cut(0, "N", 1)}
    unknown = read_cuts(a, 2, lambda x: None if x.const_value is None else (0,))
    assert unknown == {0: Cut(0, None, 1)}  # it reads axis -1 as 0, and the end not at all


def test_before_opset_10_they_are_attributes() -> None:
    text = """<ir_version: 3, opset_import: ["" : 9]>
    cut (float[4, 8] x) => (float[4, 2] y) {
        y = Slice <axes = [-1], starts = [1], ends = [3]> (x)
    }"""
    (node,) = nodes_in(text)
    assert cuts_of_slice(node, 2) == {1: Cut(1, 3, 1)}
    assert sliced_axes(node, None) == (-1,)


_STARTS = st.integers(0, 5) | st.integers(-5, -1)
_ENDS = st.integers(-6, 6) | st.just(2**31 - 1) | st.just(2**63 - 1)
_CUTS = st.builds(Cut, _STARTS, _ENDS, st.integers(1, 4))


@settings(max_examples=400)
@given(first=_CUTS, second=_CUTS)
@example(first=Cut(2, 2**63 - 1, 2), second=Cut(2, 2**63 - 1, 2))
@example(first=Cut(0, -2, 2), second=Cut(0, -2, 2))
@example(first=Cut(0, 5, 1), second=Cut(0, -2, 1))
def test_a_cut_of_a_cut_is_one_at_every_size(first: Cut[int], second: Cut[int]) -> None:
    both = cut_of_cut(first, second)
    if both is None:
        counts_differently = second.end < 0 <= first.end < OPEN_END
        counts_differently |= first.end < 0 <= second.end < OPEN_END
        assert min(first.start, second.start) < 0 or counts_differently
        return
    for size in range(40):
        elements = list(range(size))
        part = elements[python_slice(first, size)]
        assert elements[python_slice(both, size)] == part[python_slice(second, len(part))]


def test_cuts_that_are_too_far_out_or_go_backwards_are_not_one() -> None:
    whole = Cut(0, 2**63 - 1, 1)
    assert cut_of_cut(Cut(0, 9, 1), whole) == Cut(0, 9, 1)
    assert cut_of_cut(whole, Cut(8, 2**63 - 1, -1)) is None
    assert cut_of_cut(Cut(2**30, 2**63 - 1, 1), Cut(2**30, 2**63 - 1, 1)) is None
    assert cut_of_cut(Cut(0, -(2**30), 4), Cut(0, -(2**30), 1)) is None
