"""resize-4d: which Resizes have dims that become one, equal numbers, what is left and why."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.facts.view import View
from tests.passes.models import execute, model, refusals


def resizing(
    dims: str, scales: str = "1, 1, 2, 2, 2", mode: str = "linear", opset: int = 17
) -> ir.Model:
    rank = dims.count(",") + 1
    out = ", ".join("PQRSTU"[:rank])
    roi = "roi" if opset < 13 else ""
    return model(
        f"m (float[{dims}] x) => (float[{out}] y) <float[{rank}] s = {{{scales}}}, "
        f'float[0] roi = {{}}> {{ y = Resize <mode = "{mode}"> (x, {roi}, s) }}',
        opset,
    )


def sized(dims: str, opset: int = 18, attributes: str = "", sizes: str = "keep") -> ir.Model:
    """A Resize to sizes: the lead of the input, and then 4, 6, 8."""
    lead = "b = Shape <start = 0, end = 2> (x) s = Concat <axis = 0> (b, new)"
    body = "s = Identity (new)" if sizes == "alone" else lead
    return model(
        f"m (float[{dims}] x) => (float[P, Q, R, S, T] y) <int64[3] new = {{4, 6, 8}}> "
        f'{{ {body} y = Resize <mode = "linear"{attributes}> (x, , , s) }}',
        opset,
    )


def counted_dims(m: ir.Model) -> int:
    view = View(m)
    (node,) = view.nodes("Resize")
    pairs = zip(view.shapes.dims(node.inputs[0]), view.shapes.dims(node.outputs[0]), strict=True)
    return sum(a != 1 or b != 1 for a, b in pairs)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("opset", [11, 13, 17, 21])
@pytest.mark.parametrize("dims", ["B, 4, 2, 3, 4", "B, C, D, H, W", "2, 4, 2, 3, 4"])
def test_the_same_numbers(dims: str, opset: int, mode: str) -> None:
    before, after = (resizing(dims, mode=mode, opset=opset) for _ in range(2))
    found = [(x.severity, x.fix) for x in graphfix.check(before) if x.severity == "error"]
    assert found == [("error", "resize-4d")]
    assert graphfix.run(after, "resize-4d").changed
    assert counted_dims(after) == 4
    assert not [x for x in graphfix.check(after) if x.severity == "error" and "rank" in x.rule]
    x = np.random.default_rng(0).standard_normal((2, 4, 2, 3, 4)).astype(np.float32)
    (old,), (new,) = execute(before, {"x": x}), execute(after, {"x": x})
    np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    ("dims", "scales", "shape"),
    [
        ("A, B, C, H, W", "1, 1, 1, 2, 2", (2, 3, 2, 4, 5)),
        ("A, B, C, D, H, W", "1, 1, 1, 1, 2, 2", (2, 3, 2, 2, 4, 5)),
    ],
)
def test_more_than_two_dims_that_are_kept(dims: str, scales: str, shape: tuple[int, ...]) -> None:
    before, after = (resizing(dims, scales, "nearest") for _ in range(2))
    graphfix.run(after, "directml")
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    np.testing.assert_array_equal(execute(before, {"x": x})[0], execute(after, {"x": x})[0])
    assert counted_dims(after) <= 4


@pytest.mark.parametrize(("attributes", "sizes"), [("", "keep"), (", axes = [2, 3, 4]", "alone")])
def test_sizes(attributes: str, sizes: str) -> None:
    before, after = (sized("B, 4, D, H, W", 18, attributes, sizes) for _ in range(2))
    assert graphfix.run(after, "resize-4d").changed
    x = np.random.default_rng(0).standard_normal((2, 4, 2, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(execute(before, {"x": x})[0], execute(after, {"x": x})[0])


def test_an_empty_batch() -> None:
    before, after = (resizing("B, C, D, H, W") for _ in range(2))
    graphfix.run(after, "directml")
    x = np.zeros((0, 4, 2, 3, 4), np.float32)
    assert execute(after, {"x": x})[0].shape == execute(before, {"x": x})[0].shape


@pytest.mark.parametrize(
    ("dims", "scales", "refused"),
    [
        ("2, 3, 4, 4, 4", "1, 2, 2, 2, 2", True),
        ("1, 3, 4, 4, 4", "1, 1, 2, 2, 2", False),
        ("B, 1, 4, 4, 4", "1, 1, 2, 2, 2", False),
        ("B, C, H, W", "1, 1, 2, 2", False),
    ],
)
def test_what_is_left_alone(dims: str, scales: str, refused: bool) -> None:
    assert bool(refusals(resizing(dims, scales), "resize-4d")) == refused
