"""Split, against what ONNX Runtime computes."""

import pytest

from graphfix.graph.constants import ints_of
from graphfix.ops.operands import is_given
from graphfix.ops.splits import split_sizes
from tests.ops.nodes import node_of
from tests.ops.samples import Sample, labels, samples_of


@pytest.mark.parametrize("sample", samples_of("Split"), ids=str)
def test_parts_of_a_split_are_that_long(sample: Sample) -> None:
    node, x = node_of(sample), sample.inputs[0]
    axis = int(sample.attributes.get("axis", 0))  # type: ignore[call-overload]
    sizes = tuple(part.shape[axis] for part in sample.run())
    assert split_sizes(node, x.shape[axis], ints_of) == sizes
    given_sizes = is_given(node, 1, "split")
    assert split_sizes(node, None, ints_of) == (sizes if given_sizes else None)


def test_a_split_that_does_not_come_out_even_is_not_known() -> None:
    sample = Sample("Split", 13, (labels(5),), outputs=2)
    assert split_sizes(node_of(sample), 5, ints_of) is None
    with pytest.raises(Exception, match="plit"):
        sample.run()
