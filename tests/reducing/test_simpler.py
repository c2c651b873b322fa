"""Simpler models of the same nodes: each is simpler in one point."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from graphfix.reducing.candidate import Candidate
from graphfix.reducing.simpler import simpler_candidates

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def simpler(candidate: Candidate) -> list[Candidate]:
    return list(simpler_candidates(candidate))


def scaled() -> Candidate:
    text = (
        HEAD
        + """m (float[T, 40] x) => (float[T, 4, 10] y)
        <int64[3] target = {3, 4, 10}> { [view] y = Reshape <allowzero = 0> (x, target) }"""
    )
    return Candidate(ir.from_onnx_text(text), {"x": np.full((3, 40), 1.5, np.float32)})


def shapes(candidate: Candidate) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in candidate.feeds.items()}


def target_of(candidate: Candidate) -> list[int]:
    constant = candidate.model.graph.initializers["target"].const_value
    assert constant is not None
    return constant.numpy().tolist()


def test_a_size_is_another_one_wherever_it_stands() -> None:
    found = [(shapes(x)["x"], target_of(x)) for x in simpler(scaled())]
    assert ((1, 40), [1, 4, 10]) in found
    assert ((3, 20), [3, 4, 10]) in found
    assert ((3, 1), [3, 4, 10]) in found
    assert all(x.model.graph.inputs[0].name == "x" for x in simpler(scaled()))


def test_declared_shapes_and_attributes_go_one_at_a_time() -> None:
    found = simpler(scaled())
    assert any(x.model.graph.outputs[0].shape is None for x in found)
    assert any("allowzero" not in x.model.graph.node(0).attributes for x in found)
    assert all(
        x.model.graph.outputs[0].shape is not None
        for x in found
        if "allowzero" not in x.model.graph.node(0).attributes
    )


def test_symbolic_dims_become_the_sizes_of_the_feeds() -> None:
    fixed = [x for x in simpler(scaled()) if x.model.graph.inputs[0].shape == ir.Shape((3, 40))]
    assert len(fixed) == 1


def test_numbers_become_ones_or_whole() -> None:
    ones, rounded = (
        [x for x in simpler(scaled()) if np.all(x.feeds["x"] == number)] for number in (1, 2)
    )
    assert len(ones) == 1
    assert len(rounded) == 1
    plain = Candidate(scaled().model, {"x": np.ones((3, 40), np.float32)})
    assert not [x for x in simpler(plain) if not np.array_equal(x.feeds["x"][:1, :1], [[1.0]])]


def test_the_original_stays() -> None:
    whole = scaled()
    text = str(whole.model)
    simpler(whole)
    assert str(whole.model) == text
