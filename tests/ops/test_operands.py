"""Operands: inputs that were attributes once."""

from graphfix.ops.operands import is_given, normalize_axes, read_ints
from tests.ops.nodes import node_of
from tests.ops.samples import Sample, labels, samples_of


def test_axes_are_counted_from_the_front() -> None:
    assert normalize_axes((-1, 0), 3) == (2, 0)
    assert normalize_axes((3,), 3) is None
    assert normalize_axes((-4,), 3) is None


def test_an_input_comes_before_an_attribute() -> None:
    (sample, *_) = (x for x in samples_of("Squeeze") if x.opset >= 13)
    assert read_ints(node_of(sample), 1, "axes") == (0, 2)
    assert is_given(node_of(sample), 1, "axes")
    assert not is_given(node_of(Sample("Squeeze", 13, (labels(1, 2),))), 1, "axes")
