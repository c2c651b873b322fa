"""Loops that never end, as far as the graph alone shows."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.files.endless_loops import find_endless_loop

ALWAYS, FAR = "bool yes = {1}", f"int64 far = {{{1 << 40}}}"


def loop(inputs: str, again: str) -> ir.Model:
    return ir.from_onnx_text(
        f"""<ir_version: 9, opset_import: ["" : 17]>
        m (float[N] x, bool c, int64 n) => (float[N] y)
        <{ALWAYS}, bool no = {{0}}, {FAR}, int64 near = {{{(1 << 40) - 1}}},
         bool[2] two = {{1, 1}}> {{
            y = Loop ({inputs}, x) <body = b (int64 i, bool go, float[N] a)
                => (bool next, float[N] out) {{ next = {again} out = Relu (a) }}> }}"""
    )


@pytest.mark.parametrize(
    ("inputs", "again", "endless"),
    [
        ("far, yes", "Identity (go)", True),
        ("far, yes", "Identity (yes)", True),
        ("far, ", "Identity (yes)", True),
        ("far, ", "Identity (go)", True),
        (", yes", "Identity (go)", True),
        (", yes", "Identity (yes)", True),
        ("near, yes", "Identity (go)", False),
        ("n, yes", "Identity (go)", False),
        ("far, no", "Identity (go)", False),
        ("far, c", "Identity (go)", False),
        ("far, yes", "Identity (no)", False),
        ("far, yes", "Not (go)", False),
        ("far, yes", "Identity (c)", False),
        ("far, yes", "Identity (two)", False),
    ],
)
def test_what_never_ends(inputs: str, again: str, *, endless: bool) -> None:
    sentence = find_endless_loop(loop(inputs, again))
    assert (sentence is not None) is endless
    assert sentence is None or "the Loop of 'y' never ends" in sentence


def test_a_model_without_loops_ends() -> None:
    text = (
        '<ir_version: 9, opset_import: ["" : 17]> m (float[N] x) => (float[N] y) { y = Relu (x) }'
    )
    assert find_endless_loop(ir.from_onnx_text(text)) is None
