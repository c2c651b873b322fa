"""Masks, biases and shapes that MultiHeadAttention takes besides queries, keys and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.passes.fusions.attention.axis_layout import Atom
from graphfix.passes.fusions.attention.bit_tensors import Axes, BitTensor
from graphfix.passes.fusions.attention.hiding_addend import KeyMask
from graphfix.passes.fusions.attention.mha_inputs import (
    AttentionSizes,
    BiasTerm,
    bias_term_of,
    build_attention_bias,
    build_key_padding,
    build_product_shape,
    concat_biases,
    cost_of_bias,
)
from graphfix.passes.fusions.attention.scores import Addend
from tests.passes.models import execute, model

B, T, S, BH = (ir.SymbolicDim(x) for x in ("B", "T", "S", "2*B"))
SIZES = AttentionSizes(B, 2, T, S, 16)
# The axes of the scores: of one head, of two, and of two that are merged with the batch.
ONE = ((Atom("batch", B),), (Atom("query", T),), (Atom("key", S),))
TWO = (ONE[0], (Atom("batch", 2),), *ONE[1:])
MERGED = ((Atom("batch", BH),), *ONE[1:])
APART = ((*TWO[0], *TWO[1]), *ONE[1:])

HEAD = """m (float[B, T, 16] q, float[B, S, 16] k, float[B, 2, T, S] each, float[B, 1, T, S] all,
    float[1, 1, 1, S] row, float[T, S] flat, float[B, S] keys, float[B, T, S] batch,
    float[B, 2, S] by_head, float[2, B, T, S] swapped, float[B, 1, 1, T] queries,
    float[1, B, 1, T, S] deep, float[1, 1, 1, T, S] deep_row, float[B, 3, T, S] three,
    bool[B, S] hidden, bool[B, 1, 1, S] hidden4, int64[B, S] seen, int32[B, S] seen32,
    bool[1, S] hidden_row, bool[S] hidden1, float any, float[C, T, S] other) => (float y)
    <float half = {0.5}, int64[4] often = {1, 2, 1, 1}, int64[3] merge = {-1, 3, 4},
     int64[3] once = {-1, 1, 4}, int64[4] widest = {1, 1, 1, 1}, int64[3] flat3 = {0, 3, 4}>"""


def graph(body: str = "y = Relu (any)", opset: int = 17) -> tuple[dict[str, ir.Value], Builder]:
    m = model(f"{HEAD} {{ {body} }}", opset)
    op = Builder("test", View(m))
    op.start_site(m.graph[-1])
    values = {x.name or "": x for x in m.graph.inputs}
    values |= {x.name or "": x for node in m.graph for x in node.outputs}
    return values, op


def feeds() -> dict[str, np.ndarray]:
    """Numbers for B of 2, T of 3, S of 4."""
    random, sizes = np.random.default_rng(3), {"B": 2, "T": 3, "S": 4, "C": 4}
    values, _ = graph()
    feeds = {}
    for name, value in values.items():
        if value.is_graph_input():
            dims = [x if isinstance(x, int) else sizes[str(x)] for x in value.shape or ()]
            numbers = random.integers(0, 2 if "n" in name else 9, dims)
            feeds[name] = np.asarray(numbers).astype(value.dtype.numpy() if value.dtype else None)
    return feeds


def run(op: Builder, value: ir.Value, dtype: ir.DataType) -> np.ndarray:
    """Return what a value that was built holds."""
    output = op.Identity(value)
    output.type = ir.TensorType(dtype)
    op.view.model.graph.outputs[:] = [output]
    return execute(op.view.model, feeds())[0]


def built(op: Builder) -> list[str]:
    return [x.op_type for x in op.view.model.graph if x.metadata_props]


# An addend as a summand ---------------------------------------------------------------------------


def term_of(name: str, axes: Axes, body: str = "y = Relu (any)", factor: float = 1.0) -> object:
    """Return a term as its tensor, dims, factor, axis and heads; None if there is none."""
    values, op = graph(body)
    batch, heads = ONE[0], () if axes == ONE else TWO[1]
    if axes == MERGED:
        batch, heads = (), MERGED[0]
    term = bias_term_of(Addend(values[name], axes, (), factor), batch, heads, SIZES, op.view)
    if term is None:
        return None
    dims = " ".join(str(x) for x in term.dims)
    return term.value.name, dims, term.factor, term.insert, term.heads


@pytest.mark.parametrize(
    ("name", "axes", "term"),
    [
        ("each", TWO, ("each", "B 2 T S", 1, None, 0)),
        ("all", TWO, ("all", "B 1 T S", 1, None, 0)),
        ("row", TWO, ("row", "1 1 1 S", 1, None, 0)),
        ("flat", TWO, ("flat", "1 1 T S", 1, None, 0)),
        ("flat", MERGED, ("flat", "1 1 T S", 1, None, 0)),
        ("batch", ONE, ("batch", "B 1 T S", 1, 1, 0)),
        ("flat", ONE, ("flat", "1 1 T S", 1, None, 0)),
        ("deep_row", (*((),) * 3, *ONE[1:]), ("deep_row", "1 1 T S", 1, None, 0)),
        # The batch and the heads lie otherwise.
        ("deep", ((), *TWO), None),
        ("swapped", (TWO[1], TWO[0], *TWO[2:]), None),
        # Scores whose keys are turned.
        ("each", (*TWO[:2], TWO[3], TWO[2]), None),
        ("each", (*TWO[:3], TWO[2]), None),
        ("each", (*TWO[:2], TWO[3], TWO[3]), None),
        # More dims than the scores.
        ("deep", TWO, None),
        # Of merged heads: split again by its first axis.
        ("batch", MERGED, None),
        ("other", MERGED, None),
        ("pair", MERGED, ("pair", "B 2 T S", 1, 0, 2)),
        ("pair", APART, ("pair", "B 2 T S", 1, 0, 2)),
        ("fours", MERGED, None),
    ],
)
def test_an_addend_is_a_term(name: str, axes: Axes, term: object) -> None:
    body = """pair = Concat <axis = 0> (batch, batch) fours = Concat <axis = 0> (pair, pair)
        y = Relu (any)"""
    assert term_of(name, axes, body) == term


@pytest.mark.parametrize(
    ("reshaped", "name", "axes", "term"),
    [
        ("each", "m", APART, ("each", "B 2 T S", 1, None, 0)),
        ("each", "m", MERGED, ("each", "B 2 T S", 1, None, 0)),
        ("by_head", "m1", APART, ("by_head", "B 2 1 S", 1, 2, 0)),
        ("three", "m3", ((Atom("batch", ir.SymbolicDim("3*B")),), *ONE[1:]), None),
    ],
)
def test_an_addend_of_merged_heads_is_what_it_was_merged_from(
    reshaped: str, name: str, axes: Axes, term: object
) -> None:
    text = f"""minus = Constant <value_ints = [-1]> () unit = Constant <value_ints = [1]> ()
        ts = Shape <start = 2> (each) ends = Shape <start = 3> (each)
        to = Concat <axis = 0> (minus, ts) to1 = Concat <axis = 0> (minus, unit, ends)
        {name} = Reshape ({reshaped}, {"to1" if name == "m1" else "to"}) y = Relu (any)"""
    assert term_of(name, axes, text) == term


@pytest.mark.parametrize(
    ("body", "factor", "term"),
    [
        ("b = Expand (all, often)", 1.0, ("all", "B 1 T S", 1, None, 0)),
        ("a = Expand (all, widest) b = Expand (a, often)", 1.0, ("all", "B 1 T S", 1, None, 0)),
        # Two factors are one; without a second one the Mul stays, for others to share.
        ("b = Mul (each, half)", 2.0, ("each", "B 2 T S", 1, None, 0)),
        ("b = Mul (each, half)", 1.0, ("b", "B 2 T S", 1, None, 0)),
        ("a = Mul (all, half) b = Expand (a, often)", 3.0, ("all", "B 1 T S", 1.5, None, 0)),
        ("b = Relu (each)", 3.0, ("b", "B 2 T S", 3, None, 0)),
    ],
)
def test_what_an_addend_is_made_of(body: str, factor: float, term: object) -> None:
    assert term_of("b", TWO, f"{body} y = Relu (any)", factor) == term


# Keys that are hidden -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "axes", "visible", "nodes"),
    [
        ("hidden", ((Atom("batch", B),), ONE[2]), False, ["Not", "Cast"]),
        ("hidden", ((Atom("batch", B),), ONE[2]), True, ["Cast"]),
        ("hidden4", ((Atom("batch", B),), (), (), ONE[2]), True, ["Cast", "Squeeze"]),
        ("seen", ((Atom("batch", B),), ONE[2]), True, ["Cast"]),
        ("seen", ((Atom("batch", B),), ONE[2]), False, ["Equal", "Cast"]),
        ("seen32", ((Atom("batch", B),), ONE[2]), True, []),
        ("seen32", ((Atom("batch", B),), ONE[2]), False, ["Equal", "Cast"]),
        # The same for the batch.
        ("hidden_row", ((), ONE[2]), True, ["Cast", "Expand"]),
        ("hidden1", (ONE[2],), True, ["Cast", "Unsqueeze", "Expand"]),
        ("hidden1", (ONE[2],), False, ["Not", "Cast", "Unsqueeze", "Expand"]),
    ],
)
def test_a_mask_of_keys_is_one_for_those_that_are_seen(
    name: str, axes: Axes, visible: bool, nodes: list[str]
) -> None:
    values, op = graph()
    mask = KeyMask(BitTensor(values[name], axes, ()), visible, -1e4)
    value = build_key_padding(mask, SIZES, values["k"], op)
    assert build_key_padding(mask, SIZES, values["k"], op) is value
    assert [x for x in built(op) if x not in ("Shape", "Slice", "Concat")] == nodes
    bits = feeds()[name].reshape(-1, 4).astype(bool)
    expected = np.broadcast_to(bits if visible else ~bits, (2, 4))
    result = run(op, value, ir.DataType.INT32)
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, expected)


def test_masks_of_other_keys_are_others() -> None:
    values, op = graph()
    bit = BitTensor(values["hidden"], ((Atom("batch", B),), ONE[2]), ())
    masks = [KeyMask(bit, visible, -1e4) for visible in (True, False)]
    sizes = [SIZES, replace(SIZES, batch=3), replace(SIZES, keys=3)]
    made = [build_key_padding(x, size, values["k"], op) for x in masks for size in sizes]
    assert len({*made}) == 6


# What is added ------------------------------------------------------------------------------------

TERMS: dict[str, Callable[[ir.Value], BiasTerm]] = {
    "each": lambda x: BiasTerm(x, (B, 2, T, S), 1.0),
    "all": lambda x: BiasTerm(x, (B, 1, T, S), 1.0),
    "row": lambda x: BiasTerm(x, (1, 1, 1, S), 0.5),
    "flat": lambda x: BiasTerm(x, (1, 1, T, S), 1.0),
    "batch": lambda x: BiasTerm(x, (B, 1, T, S), 2.0, insert=1),
    "by_head": lambda x: BiasTerm(x, (B, 2, 1, S), 1.0, insert=2),
    "other": lambda x: BiasTerm(x, (B, 2, T, S), 1.0, insert=0, heads=2),
}


def shown(name: str, number: np.ndarray) -> np.ndarray:
    """Return what a term adds."""
    scaled = number * {"row": 0.5, "batch": 2.0}.get(name, 1.0)
    if name == "other":
        return scaled.reshape(2, 2, 3, 4)
    inserted = {"batch": 1, "by_head": 2}.get(name)
    return scaled if inserted is None else np.expand_dims(scaled, inserted)


@pytest.mark.parametrize(
    ("names", "nodes", "cost"),
    [
        (["each"], [], 0),
        (["all"], ["Expand"], 1),
        (["row"], ["Mul", "Expand"], 5),
        (["flat"], ["Expand"], 5),
        (["batch"], ["Unsqueeze", "Mul", "Expand"], 1),
        (["by_head"], ["Unsqueeze", "Expand"], 5),
        (["other"], ["Unsqueeze", "Reshape"], 2),
        (["each", "all"], ["Add"], 0),
        (["all", "each"], ["Add"], 0),
        (["all", "flat"], ["Add", "Expand"], 1),
        (["by_head", "flat"], ["Unsqueeze", "Add"], 0),
        (["flat", "by_head", "row"], ["Unsqueeze", "Mul", "Add", "Add"], 0),
        (["flat", "other"], ["Unsqueeze", "Reshape", "Add"], 2),
        (["flat", "flat"], ["Add", "Expand"], 5),
    ],
)
def test_the_sum_of_terms_is_one_for_each_score(
    names: list[str], nodes: list[str], cost: int
) -> None:
    values, op = graph()
    terms = [TERMS[name](values[name]) for name in names]
    assert cost_of_bias(terms, SIZES) == cost
    value = build_attention_bias(terms, SIZES, values["q"], [(values["k"], 1)], op)
    assert build_attention_bias(terms, SIZES, values["q"], [(values["k"], 1)], op) is value
    assert [x for x in built(op) if x not in ("Shape", "Slice", "Concat")] == nodes
    numbers = feeds()
    expected = sum(shown(name, numbers[name]) for name in names)
    result = run(op, value, ir.DataType.FLOAT)
    np.testing.assert_array_equal(result, np.broadcast_to(expected, (2, 2, 3, 4)))


def test_no_terms_cost_nothing_and_known_sizes_one_kernel() -> None:
    values, op = graph()
    assert cost_of_bias([], SIZES) == 0
    sizes = AttentionSizes(2, 2, 3, 4, 16)
    term = BiasTerm(values["row"], (1, 1, 1, 4), 1.0)
    assert cost_of_bias([term], sizes) == 1
    value = build_attention_bias([term], sizes, values["q"], [(values["k"], 1)], op)
    assert built(op) == ["Expand"]
    expected = np.broadcast_to(feeds()["row"], (2, 2, 3, 4))
    np.testing.assert_array_equal(run(op, value, ir.DataType.FLOAT), expected)


def test_keys_may_be_counted_by_several_tensors() -> None:
    values, op = graph()
    sizes = replace(SIZES, keys=ir.SymbolicDim("N"))
    term = BiasTerm(values["any"], (1, 1, 1, 1), 3.0)
    sources = [(values["k"], 1), (values["each"], 3)]
    value = build_attention_bias([term], sizes, values["q"], sources, op)
    expected = np.full((2, 2, 3, 8), 3 * feeds()["any"])
    np.testing.assert_array_equal(run(op, value, ir.DataType.FLOAT), expected)


def test_biases_of_other_factors_and_sizes_are_others() -> None:
    values, op = graph()
    keys = [(values["k"], 1)]
    term = TERMS["all"](values["all"])
    made = [
        build_attention_bias([x], size, values["q"], keys, op)
        for x in (term, replace(term, factor=2.0))
        for size in (SIZES, replace(SIZES, heads=4))
    ]
    assert len({*made}) == 4


# Shapes and biases --------------------------------------------------------------------------------


def test_the_shape_of_a_product_is_made_of_its_operands() -> None:
    values, op = graph("w = Transpose <perm = [0, 2, 1]> (k) p = MatMul (q, w) y = Relu (any)")
    product = values["p"].producer()
    assert product is not None
    assert run(op, build_product_shape(product, op), ir.DataType.INT64).tolist() == [2, 3, 4]


@pytest.mark.parametrize(
    ("biases", "expected"),
    [
        ([None, None, None], None),
        ([[1, 2], None, [3]], [1, 2, 0, 0, 3]),
        ([None, [4, 5], None], [0, 0, 4, 5, 0]),
        ([[1, 2], [4, 5], [3]], [1, 2, 4, 5, 3]),
    ],
)
def test_biases_are_one_vector(
    biases: Sequence[list[float] | None], expected: list[float] | None
) -> None:
    _, op = graph()
    arrays = [None if x is None else np.array(x) for x in biases]
    value = concat_biases(arrays, [2, 2, 1], ir.DataType.FLOAT16, op)
    constant = None if value is None else value.const_value
    assert (None if constant is None else constant.numpy().tolist()) == expected
    assert constant is None or constant.dtype == ir.DataType.FLOAT16


@pytest.mark.parametrize(("opset", "inputs"), [(12, 1), (13, 2)])
def test_axes_are_attributes_before_opset_13(opset: int, inputs: int) -> None:
    values, op = graph(opset=opset)
    bit = BitTensor(values["hidden4"], ((Atom("batch", B),), (), (), ONE[2]), ())
    build_key_padding(KeyMask(bit, True, -1e4), SIZES, values["k"], op)
    (squeeze,) = (x for x in op.view.model.graph if x.op_type == "Squeeze")
    assert len(squeeze.inputs) == inputs
