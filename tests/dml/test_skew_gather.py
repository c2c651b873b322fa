"""On the real DirectML: relative positions, which are looked up, are what they are on the CPU."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.runtime.local_session import Session
from tests.passes.indices.test_skew_gather import WIDE, feeds, layer, shifted, text


def compare(
    before: ir.Model, after: ir.Model, lead: tuple[int, ...], sizes: tuple[int, ...]
) -> bool:
    given = {x.name for x in before.graph.inputs}
    agree = True
    with Session(before) as cpu, Session(after, ep="dml") as dml:
        for size in sizes:
            feed = {k: v for k, v in feeds(lead, size).items() if k in given}
            want, got = cpu.run(feed)["y"], dml.run(feed)["y"]
            agree &= np.allclose(got, want, rtol=1e-4, atol=1e-5)
    return agree


@pytest.mark.parametrize(
    ("window", "style", "opset"),
    [(4, "torchscript", 14), (1, "dynamo", 18), (2, "torchscript", 21)],
)
def test_relative_keys_and_values(window: int, style: str, opset: int) -> None:
    source = text(layer("y", window, style, 1), window, opset=opset)
    before, after = ir.from_onnx_text(source), ir.from_onnx_text(source)
    assert len(graphfix.run(after, "skew-gather").passes[0].changes) == 2
    sizes = (*range(1, 13), 40, 3)
    assert compare(before, after, (4,), sizes)


def test_pads_below_0_are_still_wrong_there() -> None:
    """Of a clip that is shorter than the window, traced with one that is longer."""
    source = text(layer("y", 4, "torchscript", 1), 4)
    before, again = ir.from_onnx_text(source), ir.from_onnx_text(source)
    assert not compare(before, again, (4,), (2, 3))
    assert compare(before, again, (4,), (5, 6, 12))


def test_a_conformers_shift() -> None:
    source = text(
        f"{WIDE} {shifted('x', 'a')} x2 = Neg (x) {shifted('x2', 'b')} y = Sub (a, b)",
        lead=("B", "H"),
    )
    before, after = ir.from_onnx_text(source), ir.from_onnx_text(source)
    assert len(graphfix.run(after, "skew-gather").passes[0].changes) == 2
    assert compare(before, after, (2, 3), (1, 2, 7, 30, 7))
