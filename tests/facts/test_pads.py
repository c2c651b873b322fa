"""The pads of a Pad at every opset, and where DirectML misreads them."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts.pads import (
    can_split_pads,
    directml_misreads_pads,
    has_negative_pad,
    may_be_negative,
    pads_of,
)
from graphfix.facts.shapes import Dim
from graphfix.facts.view import View


def pad(body: str, opset: int = 17) -> tuple[ir.Model, ir.Node]:
    model = ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : {opset}]>
        m (float[2, T] x, int64[4] free) => (float[A, Z] y) {{ {body} }}"""
    )
    node = model.graph.outputs[0].producer()
    assert node is not None
    return model, node


def mode_of(mode: str) -> ir.Node:
    return pad(f'p = Constant <value_ints = [0, 0, 0, 0]> () y = Pad <mode = "{mode}"> (x, p)')[1]


def size(text: str | int) -> Dim:
    return text if isinstance(text, int) else ir.SymbolicDim(text)


@pytest.mark.parametrize(
    ("opset", "body", "expected"),
    [
        (9, "y = Pad <pads = [0, 1, 0, 2]> (x)", ["0", "1", "0", "2"]),
        (17, "p = Constant <value_ints = [0, 1, 0, 2]> () y = Pad (x, p)", ["0", "1", "0", "2"]),
        (17, "p = Constant <value_ints = [0, 0, 0, 0]> () y = Pad (x, p)", ["0"] * 4),
        (17, "y = Pad (x, free)", None),
        (
            17,
            "z = Constant <value_ints = [0, 0, 0]> () t = Shape <start = 1> (x) "
            "p = Concat <axis = 0> (z, t) y = Pad (x, p)",
            ["0", "0", "0", "T"],
        ),
    ],
)
def test_pads_are_read(opset: int, body: str, expected: list[str] | None) -> None:
    model, node = pad(body, opset)
    pads = pads_of(node, View(model))
    assert (None if pads is None else [*map(str, pads)]) == expected


@pytest.mark.parametrize(
    ("mode", "pads", "wrong"),
    [
        ("constant", (0, 0, 0, 0), False),
        ("constant", (0, 1, 0, 1), False),
        ("constant", (0, -1, 0, 0), True),
        ("constant", (-1, 1, 0, 0), True),
        ("constant", (0, 0, 0, -1), False),
        ("constant", (0, "T - 2", 0, 0), True),
        ("constant", (0, "T", 0, 0), False),
        ("edge", (0, -1, 0, 0), True),
        ("edge", (0, 1, 0, -1), False),
        ("reflect", (0, -1, 0, -1), False),
        ("wrap", (0, -1, 0, 1), True),
        ("wrap", (0, 1, 0, -1), True),
        ("wrap", (0, -1, 0, -1), False),
        ("wrap", (0, -1, 0, 0), False),
        ("wrap", (0, -1, 1, 0), False),
        ("constant", (), False),
    ],
)
def test_where_directml_misreads_them(
    mode: str, pads: tuple[int | str, ...], *, wrong: bool
) -> None:
    assert directml_misreads_pads(mode_of(mode), [*map(size, pads)]) is wrong


@pytest.mark.parametrize(
    ("mode", "pads", "opset", "split"),
    [
        ("reflect", (0, 1), 9, True),
        ("constant", (0, "T"), 12, True),
        ("constant", (0, "T"), 11, False),
        ("reflect", (0, "T"), 17, False),
    ],
)
def test_which_pads_can_be_split(
    mode: str, pads: tuple[int | str, ...], opset: int, *, split: bool
) -> None:
    assert can_split_pads(mode_of(mode), [*map(size, pads)], opset) is split


def test_pads_below_0() -> None:
    assert has_negative_pad([0, -1])
    assert not has_negative_pad([0, 1, ir.SymbolicDim("T - 9")])
    assert may_be_negative(ir.SymbolicDim("T - 2"))
    assert may_be_negative(ir.SymbolicDim("3 - T"))
    assert not may_be_negative(ir.SymbolicDim("T - 1"))
    assert not may_be_negative(ir.SymbolicDim("4 - T"))
    assert not may_be_negative(ir.SymbolicDim(None))
    assert not may_be_negative(-1)
