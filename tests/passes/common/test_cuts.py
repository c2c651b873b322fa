"""How a Slice is built, and which tensors are halves of another."""

import onnx_ir as ir
import pytest

from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.ops.slices import cuts_of_slice
from graphfix.passes.common.cuts import build_slice, half_cut_of
from tests.passes.models import model

HEAD = """m (float[2, 8, T] x, int64[1] fed) => (float y) <int64[1] zero = {0}, int64[1] one = {1},
    int64[1] two = {2}, int64[1] three = {3}, int64[1] four = {4}, int64[1] eight = {8},
    int64[1] minus = {-4}, int64[1] far = {-8}, int64[2] from = {4, 1}, int64[2] to = {8, 3},
    int64[2] axes = {1, 2}, int64[2] steps = {1, 1}, int64[2] uneven = {2, 6},
    int64[3] parts = {2, 4, 2}>"""


@pytest.mark.parametrize("opset", [9, 10, 18])
@pytest.mark.parametrize(("step", "inputs"), [(1, 4), (2, 5)])
def test_a_slice_is_read_as_it_was_built(opset: int, step: int, inputs: int) -> None:
    m = model("m (float[2, 8, 6] x) => (float[2, A, B] y) { y = Neg (x) }", opset)
    op = Builder("test", View(m))
    op.start_site(m.graph[0])
    cuts = {1: (2, 6, 1), 2: (0, 6, step if opset >= 10 else 1)}
    node = build_slice(m.graph.inputs[0], cuts, op).producer()
    assert node is not None
    assert cuts_of_slice(node, 3) == cuts
    # A step that is 1 everywhere is left out.
    assert len(node.inputs) == (1 if opset < 10 else inputs)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("Slice (x, zero, four, one)", (1, 0, ())),
        ("Slice (x, four, eight, one)", (1, 1, ())),
        ("Slice (x, minus, eight, one)", (1, 1, ())),
        ("Slice (x, far, four, one)", (1, 0, ())),
        ("Slice (x, from, to, axes, steps)", (1, 1, ((2, (1, 3, 1)),))),
        ("Slice (x, two, four, one)", None),  # a quarter
        ("Slice (x, two, minus, one)", None),
        ("Slice (x, zero, eight, one, two)", None),  # every second
        ("Slice (x, zero, four, two)", None),  # T is not known
        ("Slice (x, fed, four, one)", None),
        ("Neg (x)", None),
        ("Identity (fed)", None),
    ],
)
def test_half_cut_of_a_slice(step: str, expected: tuple[int, int, object] | None) -> None:
    m = model(f"{HEAD} {{ y = {step} }}")
    assert half_of(m, m.graph.outputs[0]) == expected


def test_a_slice_of_the_middle_is_no_half() -> None:
    m = model("""m (float[2, 8] x) => (float[2, N] y) <int64[1] two = {2}, int64[1] six = {6},
        int64[1] one = {1}> { y = Slice (x, two, six, one) }""")
    assert half_of(m, m.graph.outputs[0]) is None


@pytest.mark.parametrize(
    ("outputs", "step", "expected"),
    [
        ("a, b", "Split <axis = 1, num_outputs = 2> (x)", [(1, 0, ()), (1, 1, ())]),
        ("a, b", "Split <axis = -2> (x, halves)", [(1, 0, ()), (1, 1, ())]),
        ("a, b, c, d", "Split <axis = 1, num_outputs = 4> (x)", [None] * 4),
        ("a, b", "Split <num_outputs = 2> (x)", [(0, 0, ()), (0, 1, ())]),
        ("a, b", "Split <axis = 1> (x, uneven)", [None, None]),
        ("a, b", "Split <axis = 2, num_outputs = 2> (x)", [None, None]),
        # The second starts before the middle.
        ("a, b, c", "Split <axis = 1> (x, parts)", [None, None, None]),
    ],
)
def test_half_cut_of_a_split(outputs: str, step: str, expected: list[object]) -> None:
    m = model(
        f"""m (float[2, 8, T] x) => (float y) <int64[2] halves = {{4, 4}},
        int64[2] uneven = {{2, 6}}, int64[3] parts = {{2, 4, 2}}>
        {{ {outputs} = {step} y = Neg (b) }}"""
    )
    assert [half_of(m, x) for x in m.graph[0].outputs] == expected


def half_of(m: ir.Model, part: ir.Value) -> tuple[int, int, object] | None:
    """The axis, the place and the other cuts, of a half of x."""
    m.graph.outputs[0].shape = None
    half = half_cut_of(part, View(m))
    if half is None:
        return None
    cut, place = half
    assert cut.source is m.graph.inputs[0]
    return cut.axis, place, cut.other_cuts
