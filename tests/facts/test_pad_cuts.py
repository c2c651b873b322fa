"""What Pads add and Slices cut, at every opset's spelling."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts.pad_cuts import is_zero_padding, pad_amounts, padded_rows_of, slice_starts
from graphfix.facts.view import View

CONSTANTS = {
    "zero": 0,
    "one": 1,
    "two": 2,
    "four": 4,
    "m1": -1,
    "low": -(1 << 63),
    "high": 2**63 - 1,
}


def build(body: str, opset: int = 17) -> ir.Model:
    constants = ", ".join(f"int64[1] {name} = {{{x}}}" for name, x in CONSTANTS.items())
    return ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : {opset}]>
        m (float[B, T, 8] x, int64[1] unknown, float fill) => (float[Z] y)
        <{constants}, int64[2] pads = {{1, 2}}, int64[6] all = {{0, 1, 0, 0, 2, 0}},
         float nil = {{0}}, float three = {{3}}, float[9, 4] table = {{{", ".join(["0"] * 36)}}}>
        {{ {body} }}"""
    )


def last_node(model: ir.Model) -> ir.Node:
    node = model.graph.outputs[0].producer()
    assert node is not None
    return node


@pytest.mark.parametrize(
    ("opset", "body", "expected"),
    [
        (9, "y = Slice <axes = [1], starts = [2], ends = [9]> (x)", {1: "2"}),
        (17, "y = Slice (x, two, high, one)", {1: "2"}),
        (17, "y = Slice (x, two, high, m1)", {2: "2"}),
        (17, "y = Slice (x, m1, high, one)", {1: "T - 1"}),
        (17, "y = Slice (x, low, high, one)", {1: "0"}),
        (17, "y = Slice (x, low, m1, one)", {1: "0"}),
        (17, "y = Slice (x, zero, high, one)", {}),
        (17, "y = Slice (x, zero, m1, one)", {1: "0"}),
        (17, "n = Shape <start = 0, end = 1> (x) y = Slice (x, n, high, one)", {1: "B"}),
        (17, "y = Slice (x, unknown, high, one)", None),
        (17, "y = Slice (x, two, high, unknown)", None),
        (17, "y = Slice (x, two, high, one, two)", None),
        (17, "y = Slice (x, two, high, one, unknown)", None),
    ],
)
def test_where_a_slice_starts(opset: int, body: str, expected: dict[int, str] | None) -> None:
    model = build(body, opset)
    starts = slice_starts(last_node(model), View(model))
    assert expected == (None if starts is None else {x: str(y) for x, y in starts.items()})


@pytest.mark.parametrize(
    ("opset", "body", "expected"),
    [
        (9, "y = Pad <pads = [0, 1, 0, 0, 2, 0]> (x)", {1: ("1", "2")}),
        (17, "y = Pad (x, all)", {1: ("1", "2")}),
        (18, "y = Pad (x, pads, , m1)", {2: ("1", "2")}),
        (18, "y = Pad (x, pads, , unknown)", None),
        (17, "y = Pad (x, unknown)", None),
    ],
)
def test_how_much_a_pad_adds(
    opset: int, body: str, expected: dict[int, tuple[str, str]] | None
) -> None:
    model = build(body, opset)
    pads = pad_amounts(last_node(model), View(model))
    texts = None if pads is None else {x: tuple(map(str, y)) for x, y in pads.items()}
    assert texts == expected


@pytest.mark.parametrize(
    ("opset", "body", "expected"),
    [
        (9, "y = Pad <pads = [0, 1, 0, 0, 2, 0]> (x)", True),
        (9, "y = Pad <pads = [0, 1, 0, 0, 2, 0], value = 3.0> (x)", False),
        (9, 'y = Pad <pads = [0, 1, 0, 0, 2, 0], mode = "edge"> (x)', False),
        (17, "y = Pad (x, all)", True),
        (17, "y = Pad (x, all, nil)", True),
        (17, "y = Pad (x, all, three)", False),
        (17, "y = Pad (x, all, fill)", False),
    ],
)
def test_a_pad_of_zeros(opset: int, body: str, expected: bool) -> None:
    assert is_zero_padding(last_node(build(body, opset))) is expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Identity (table)", None),
        ("p = Pad (table, around) y = Slice (p, two, high, zero)", ((0, 1), 0, 1)),
        ("p = Pad (table, around) y = Transpose (p)", ((1, 0), 0, -1)),
        ("p = Pad (table, around) y = Slice (p, two, high, one)", None),
        ("p = Pad (table, around, three) y = Slice (p, two, high, zero)", None),
        ("p = Pad (table, around) q = Pad (p, around) y = Identity (q)", ((0, 1), 0, -1)),
        ("p = Pad (table, around) s = Slice (p, m1, high, zero) y = Relu (s)", None),
    ],
)
def test_rows_of_a_padded_table(body: str, expected: tuple[object, ...] | None) -> None:
    around = "around = Constant <value = int64[4] {1, 0, 1, 0}> ()"
    model = build(f"{around} {body}")
    rows = padded_rows_of(model.graph.outputs[0], 1 if "Transpose" in body else 0, 4, View(model))
    assert expected == (None if rows is None else (rows.order, rows.axis, int(rows.shift)))
    # Of two Pads the walk undoes one: the other makes the table.
    assert rows is None or rows.count == (11 if "q = " in body else 9)
