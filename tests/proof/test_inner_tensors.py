"""The inner tensors of two runs side by side: nothing is held that need not be."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.proof.inner_tensors import ModelRun, TensorPairs

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def model(text: str) -> ir.Model:
    return ir.from_onnx_text(HEAD + text)


def long_chain(count: int) -> ir.Model:
    names = ["x", *(f"t{i}" for i in range(count)), "y"]
    body = " ".join(f"{b} = Neg ({a})" for a, b in itertools.pairwise(names))
    return model(f"m (float[T] x) => (float[T] y) {{ {body} }}")


@pytest.mark.parametrize(("bytes_of", "runs"), [(8000, 5), (100, 2), (None, 6)])
def test_no_more_is_held_than_the_budget_allows(bytes_of: int | None, runs: int):
    made = long_chain(39)
    x = np.ones(1000, np.float32)
    run = ModelRun(made, made, {"x": x})
    stream = TensorPairs(run, run, lambda name: bytes_of, budget=64_000, most=20)
    names = [v.name or "" for node in made.graph for v in node.outputs]
    seen = [name for name, _, _ in stream.iter_pairs(names)]
    assert seen == names
    assert stream.runs == runs
    # The graph's own output is there in each run.
    assert stream.peak <= (64_000 + 8000 if bytes_of != 100 else 21 * 8000)


def test_a_tensor_that_cannot_be_an_output_costs_only_itself():
    made = model(
        """m (float[T] x) => (float[T] y)
        { a = Neg (x)  q = SequenceConstruct (a, a)  b = ConcatFromSequence <axis = 0> (q)
          y = Neg (a) }"""
    )
    run = ModelRun(made, made, {"x": np.ones(4, np.float32)})
    stream = TensorPairs(run, run, lambda name: None)
    assert [name for name, _, _ in stream.iter_pairs(["a", "q", "b", "y"])] == ["a", "b", "y"]
