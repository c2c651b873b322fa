"""mask-length: masks that are as long as the longest row, what is left alone, and the numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import execute, refusals


def model(
    limit: str = "longest",
    *,
    use: str = "y = Mul (x, column)",
    inputs: str = "float[B, T, 4] x, int64[B] lengths",
    dtype: str = "int64",
    step: str = "one",
) -> ir.Model:
    cast = "7" if dtype == "int64" else "1"
    return ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        m ({inputs}) => (float[B, P, 4] y)
        <{dtype} zero = {{0}}, {dtype} one = {{1}}, {dtype} two = {{2}}, int64[1] last = {{-1}}> {{
            top = ReduceMax <keepdims = 0> (lengths)
            longest = Cast <to = {cast}> (top)
            index = Range (zero, {limit}, {step})
            whole = Cast <to = 7> (index)
            ends = Unsqueeze (lengths, last)
            valid = Less (whole, ends)
            mask = Cast <to = 1> (valid)
            column = Unsqueeze (mask, last)
            {use} }}"""
    )


def run(m: ir.Model, feeds: dict[str, np.ndarray]) -> np.ndarray:
    return execute(m, feeds)[0]


X = np.random.default_rng(0).standard_normal((3, 6, 4)).astype(np.float32)


@pytest.mark.parametrize("dtype", ["int64", "float"])
def test_where_a_row_is_full_nothing_changes(dtype: str) -> None:
    before, after = model(dtype=dtype), model(dtype=dtype)
    assert graphfix.run(after, "mask-length").changed
    for lengths in ([6, 2, 3], [1, 6, 6]):
        feeds = {"x": X, "lengths": np.array(lengths)}
        np.testing.assert_array_equal(run(after, feeds), run(before, feeds))


@pytest.mark.parametrize("axis", ["", "<axis = 0>"])
def test_the_longest_may_be_taken_out_of_a_vector(axis: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T, 4] x, int64[B] lengths) => (float[B, P, 4] y)
    <int64 zero = {{0}}, int64 one = {{1}}, int64[1] last = {{-1}}> {{
        tops = ReduceMax <keepdims = 1> (lengths) top = Gather {axis} (tops, zero)
        index = Range (zero, top, one) ends = Unsqueeze (lengths, last)
        valid = Less (index, ends) mask = Cast <to = 1> (valid)
        column = Unsqueeze (mask, last) y = Mul (x, column) }}"""
    before, after = ir.from_onnx_text(text), ir.from_onnx_text(text)
    assert graphfix.run(after, "mask-length").changed
    feeds = {"x": X, "lengths": np.array([6, 2, 3])}
    np.testing.assert_array_equal(run(after, feeds), run(before, feeds))


def test_where_none_is_full_it_runs_and_masks() -> None:
    after = model()
    graphfix.run(after, "mask-length")
    found = run(after, {"x": X, "lengths": np.array([2, 3, 4])})
    inside = np.arange(6) < np.array([2, 3, 4])[:, None]
    np.testing.assert_array_equal(found, X * inside[:, :, None])


def test_a_container_of_it_is_safe_to_pad() -> None:
    m = model(use="h = Mul (x, column) y = Mul (h, column)")
    report = graphfix.run(m, "mask-length,ilens-mask:from=lengths")
    assert report.passes[0].changes


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"limit": "one"}, None),
        ({"use": "y = MatMul (column, column)"}, None),
    ],
)
def test_what_is_left_alone(given: dict[str, str], why: str | None) -> None:
    m = model(**given)
    assert refusals(m, "mask-length") == ([] if why is None else [why])


def test_the_maximum_of_something_else_is_left_alone() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T, 4] x, int64[B, 2] pair) => (float[B, P, 4] y)
    <int64 zero = {0}, int64 one = {1}, int64[1] last = {-1}> {
        tops = ReduceMax <axes = [0], keepdims = 0> (pair)
        top = Gather (tops, zero)
        index = Range (zero, top, one)
        mask = Cast <to = 1> (index)
        column = Unsqueeze (mask, last)
        y = Mul (x, column) }"""
    assert not graphfix.run(ir.from_onnx_text(text), "mask-length").changed


@pytest.mark.parametrize(
    "body",
    [
        "near = Abs (lengths) top = ReduceMax <keepdims = 0> (near)",
        "part = Cast <to = 1> (lengths) far = ReduceMax <keepdims = 0> (shares) "
        "top = Cast <to = 7> (far)",
    ],
    ids=["computed", "shares"],
)
def test_what_is_no_length_input_is_left_alone(body: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T, 4] x, int64[B] lengths, float[B] shares) => (float[B, P, 4] y)
    <int64 zero = {{0}}, int64 one = {{1}}, int64[1] last = {{-1}}> {{ {body}
        index = Range (zero, top, one)
        ends = Unsqueeze (lengths, last)
        valid = Less (index, ends)
        mask = Cast <to = 1> (valid)
        column = Unsqueeze (mask, last)
        y = Mul (x, column) }}"""
    assert not graphfix.run(ir.from_onnx_text(text), "mask-length").changed


def test_a_maximum_over_axes_that_are_computed_is_left_alone() -> None:
    m = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 18]>
        m (float[B, T, 4] x, int64[B] lengths, int64[N] axes) => (float[B, T, 4] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] last = {-1}> {
            longest = ReduceMax <keepdims = 0> (lengths, axes)
            index = Range (zero, longest, one) ends = Unsqueeze (lengths, last)
            valid = Less (index, ends) mask = Cast <to = 1> (valid)
            column = Unsqueeze (mask, last) y = Mul (x, column) }"""
    )
    assert not refusals(m, "mask-length")
