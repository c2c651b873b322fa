"""Operators that move elements do so by their place alone, and lose or repeat what they may."""

import numpy as np
import pytest

from graphfix import ops
from tests.ops.samples import Array, Sample, samples_of

MOVES = sorted(ops.MOVES_ELEMENTS)


def _data(sample: Sample) -> Array:
    return np.concatenate([sample.inputs[i].reshape(-1) for i in sample.data])


@pytest.mark.parametrize("operator", MOVES)
def test_every_element_of_the_result_is_one_of_the_data(operator: str) -> None:
    assert samples_of(operator)
    for sample in samples_of(operator):
        assert np.isin(sample.first(), _data(sample)).all(), sample


@pytest.mark.parametrize("operator", MOVES)
def test_a_function_of_elements_may_come_before_or_after(operator: str) -> None:
    for sample in samples_of(operator):
        table = np.random.default_rng(1).permutation(200).astype(np.float32)
        changed = {i: table[sample.inputs[i].astype(int)] for i in sample.data}
        after = table[sample.first().astype(int)]
        np.testing.assert_array_equal(sample.with_inputs(changed).first(), after, str(sample))


@pytest.mark.parametrize("operator", MOVES)
def test_only_what_keeps_every_element_keeps_every_element(operator: str) -> None:
    kept = [np.isin(_data(x), x.run()[0]).all() for x in samples_of(operator)]
    if operator in ops.KEEPS_EVERY_ELEMENT | ops.named("Concat"):
        assert all(kept)
    else:
        assert operator in ops.TAKES_PART
        assert not all(kept)


@pytest.mark.parametrize("operator", MOVES)
def test_only_what_repeats_repeats(operator: str) -> None:
    repeated = [len(np.unique(x.first())) < x.first().size for x in samples_of(operator)]
    may_repeat = ops.REPEATS | ops.named("Gather GatherElements GatherND")
    assert any(repeated) == (operator in may_repeat)


@pytest.mark.parametrize("operator", sorted(ops.KEEPS_EVERY_ELEMENT - ops.REPEATS))
def test_only_views_keep_the_order(operator: str) -> None:
    ordered = [np.array_equal(x.first().reshape(-1), _data(x)) for x in samples_of(operator)]
    assert all(ordered) == (operator in ops.VIEWS)
    assert operator in ops.VIEWS | ops.PERMUTES


def test_reshapes_change_the_shape_and_identity_does_not() -> None:
    assert {"Identity"} == ops.VIEWS - ops.RESHAPES
    for operator in ops.RESHAPES:
        assert any(x.first().shape != x.inputs[0].shape for x in samples_of(operator))


def test_what_moves_nothing_is_no_move() -> None:
    """Each of these looks like one and is none: it adds zeros, chooses by contents, or computes."""
    for name in ("Trilu", "Pad", "Where", "ScatterND", "TopK", "MaxPool", "Cast", "CenterCropPad"):
        assert name not in ops.MOVES_ELEMENTS
