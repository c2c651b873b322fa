"""reverse-2d: which are done in two dims or by a Slice, what is left alone, equal numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from tests.passes.models import data, execute, model, ops

FIRST, SECOND = "time_axis = 0, batch_axis = 1", "time_axis = 1, batch_axis = 0"
SIZES = {"T": 5, "B": 3, "C": 4, "D": 2}


def reversing(dims: str, axes: str = FIRST, *, opset: int = 17, kind: str = "float") -> ir.Model:
    rows = dims.split(", ")[0 if axes == SECOND else 1]
    made = ", ".join("PQRSTU"[: dims.count(",") + 1])
    return model(
        f"m ({kind}[{dims}] x, int64[{rows}] lengths) => ({kind}[{made}] y) "
        f"{{ y = ReverseSequence <{axes}> (x, lengths) }}",
        opset,
    )


def feeds(m: ir.Model, **sizes: int) -> dict[str, np.ndarray]:
    known = SIZES | sizes
    shape = [x if isinstance(x, int) else known[str(x)] for x in m.graph.inputs[0].shape]
    random = np.random.default_rng(0)
    x = random.integers(0, 2, shape).astype(bool) if is_bool(m) else random.standard_normal(shape)
    time = m.graph[0].attributes["time_axis"].as_int()
    lengths = random.integers(1, shape[time] + 1, shape[1 - time])
    return {"x": x.astype(m.graph.inputs[0].dtype.numpy()), "lengths": lengths}


def is_bool(m: ir.Model) -> bool:
    return m.graph.inputs[0].dtype == ir.DataType.BOOL


def check_same(before: ir.Model, after: ir.Model, given_: dict[str, np.ndarray]) -> None:
    for old, new in zip(execute(before, given_), execute(after, given_), strict=True):
        assert (old.dtype, old.shape) == (new.dtype, new.shape)
        np.testing.assert_array_equal(old, new)


def ranks(m: ir.Model) -> list[int | None]:
    view = graphfix.facts.view.View(m)
    return [view.shapes.rank(node.inputs[0]) for node in view.nodes("ReverseSequence")]


@pytest.mark.parametrize("opset", [10, 13, 17])
@pytest.mark.parametrize("axes", [FIRST, SECOND])
@pytest.mark.parametrize(
    "dims", ["T, B, 4", "B, T, C", "5, 3, 4", "T, B, 4, 3", "T, B, 4, D", "T, B, 1, C"]
)
def test_two_dims(dims: str, axes: str, opset: int) -> None:
    before, after = (reversing(dims, axes, opset=opset) for _ in range(2))
    found = [(x.rule, x.severity) for x in graphfix.check(before) if x.severity == "error"]
    assert found == [("reverse-2d", "error")]
    assert len(graphfix.run(after, "reverse-2d").passes[0].changes) == 1
    assert ranks(after) == [2]
    assert not graphfix.run(after, "reverse-2d").changed
    for sizes in ({}, {"T": 1, "B": 1}, {"T": 1, "B": 4}):
        check_same(before, after, feeds(before, **sizes))
    graphfix.run(after, "directml")
    assert ranks(after) == [2]
    check_same(before, after, feeds(before))


@pytest.mark.parametrize("nothing", ["T", "B"])
def test_no_elements(nothing: str) -> None:
    before, after = reversing("T, B, 4"), reversing("T, B, 4")
    graphfix.run(after, "reverse-2d")
    sizes = {**SIZES, nothing: 0}
    x = np.zeros((sizes["T"], sizes["B"], 4), np.float32)
    check_same(before, after, {"x": x, "lengths": np.zeros(sizes["B"], np.int64)})


@pytest.mark.parametrize("spec", ["reverse-2d", "directml"])
@pytest.mark.parametrize("nothing", ["T", "B", "C", "D"])
def test_no_elements_of_sizes_that_are_open(nothing: str, spec: str) -> None:
    before, after = reversing("T, B, C, D"), reversing("T, B, C, D")
    graphfix.run(after, spec)
    assert ranks(after) == [2]
    assert not graphfix.run(after, spec).changed
    sizes = {**SIZES, nothing: 0}
    x = np.zeros([sizes[i] for i in "TBCD"], np.float32)
    check_same(before, after, {"x": x, "lengths": np.zeros(sizes["B"], np.int64)})


def test_nothing_at_all_is_left_alone() -> None:
    assert not graphfix.run(reversing("T, B, 0"), "reverse-2d").changed


def test_lengths_that_a_caller_may_override_are_no_constant() -> None:
    """What a pass makes of them is inferred again, and is no constant then, either."""
    text = f"""m (float[3, 5, 4] x, int64[3] n) => (float[3, 5, 4] y) <int64[3] n = {{5, 5, 5}}>
        {{ y = ReverseSequence <{SECOND}> (x, n) }}"""
    before, after = model(text), model(text)
    graphfix.run(after, "reverse-2d,fold")
    x = np.random.default_rng(0).random((3, 5, 4), np.float32)
    check_same(before, after, {"x": x, "n": np.array([1, 2, 4])})


WHOLE = {
    "numbers": ("float[B, 5, C] x", "<int64[3] n = {5, 5, 5}>", ""),
    "the size of the axis, expanded": (
        "float[B, T, C] x",
        "<int64 one = {1}, int64[1] none = {0}>",
        "s = Shape (x) t = Gather (s, one) b = Gather (s, none) n = Expand (t, b)",
    ),
    "the size of the axis, by way of views": (
        "float[B, T, C] x",
        "<int64 one = {1}, int64[1] none = {0}, int64[1] flat = {-1}>",
        """s = Shape (x) t = Gather (s, one) b = Gather (s, none) n0 = Expand (t, b)
        n1 = Unsqueeze (n0, none) n2 = Squeeze (n1, none) n3 = Identity (n2)
        n = Reshape (n3, flat)""",
    ),
    "the size of the axis, as a tile": (
        "float[B, T, C] x",
        "<int64[1] one = {1}, int64[1] none = {0}>",
        "s = Shape (x) t = Gather (s, one) b = Gather (s, none) n = Tile (t, b)",
    ),
}


def whole(case: str) -> ir.Model:
    inputs, initializers, body = WHOLE[case]
    return model(
        f"m ({inputs}) => (float[P, Q, R] y) {initializers} "
        f"{{ {body} y = ReverseSequence <{SECOND}> (x, n) }}",
        17,
    )


@pytest.mark.parametrize("case", WHOLE)
def test_whole_rows_are_a_slice(case: str) -> None:
    before, after = whole(case), whole(case)
    graphfix.run(after, "reverse-2d")
    assert "ReverseSequence" not in ops(after)
    assert ops(after).count("Slice") == 1
    check_same(before, after, {"x": np.random.default_rng(0).random((3, 5, 4), np.float32)})


@pytest.mark.parametrize("numbers", ["5, 4, 5", "4, 4, 4"])
def test_parts_of_rows_are_none(numbers: str) -> None:
    text = f"m (float[3, 5, 4] x) => (float[3, 5, 4] y) <int64[3] n = {{{numbers}}}> "
    before, after = (model(text + f"{{ y = ReverseSequence <{SECOND}> (x, n) }}") for _ in range(2))
    graphfix.run(after, "reverse-2d")
    assert ranks(after) == [2]
    check_same(before, after, {"x": np.random.default_rng(0).random((3, 5, 4), np.float32)})


@pytest.mark.parametrize("dims", ["T, B", "T, B, 1", "T, B, 1, 1"])
def test_a_length_for_each_element_is_left_alone(dims: str) -> None:
    m = reversing(dims)
    before = data(m)
    assert not graphfix.check(m, "reverse-2d")
    assert not graphfix.run(m, "reverse-2d").changed
    assert data(m) == before


def test_strings_are_on_the_cpu() -> None:
    assert not graphfix.check(reversing("T, B, C", kind="string"), "reverse-2d")


@settings(max_examples=40, deadline=None)
@given(
    dims=st.lists(st.sampled_from(("C", "D", "1", "2")), min_size=1, max_size=4),
    kind=st.sampled_from(("float", "float16", "int64", "bool", "uint8")),
    axes=st.sampled_from((FIRST, SECOND)),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)),
)
def test_any_dims(dims: list[str], kind: str, axes: str, sizes: tuple[int, int]) -> None:
    text = ", ".join([*("TB" if axes == FIRST else "BT"), *dims])
    before, after = (reversing(text, axes, kind=kind) for _ in range(2))
    assert graphfix.run(after, "reverse-2d").changed == any(x != "1" for x in dims)
    check_same(before, after, feeds(before, T=sizes[0], B=sizes[1]))
