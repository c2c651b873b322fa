"""Nodes that must fail once sizes are known, and why."""

from __future__ import annotations

import importlib

import pytest

from graphfix.facts.view import View
from tests.passes.models import model

fixed_dims = importlib.import_module("graphfix.passes.sizes.dims.fixed_dims")
INPUTS = "float[2, 3] x, float[2, 4] z, float[0, 3] e"
CONSTANTS = """int64[2] six = {6, 1}, int64[2] five = {5, 1}, int64[2] rest = {-1, 4},
    int64[2] copied = {0, -1}, int64[2] empty = {0, 3}, int64[3] beyond = {2, 3, 0},
    int64[2] wide = {4, 3}"""


@pytest.mark.parametrize(
    ("node", "opset", "reason"),
    [
        ("Reshape (x, six)", 17, None),
        ("Reshape (x, five)", 17, "[2, 3] has 6 elements and is reshaped to [5, 1]"),
        ("Reshape (x, rest)", 17, "[2, 3] has 6 elements and is reshaped to [-1, 4]"),
        ("Reshape (x, copied)", 17, None),
        (
            "Reshape <allowzero = 1> (x, empty)",
            17,
            "[2, 3] has 6 elements and is reshaped to [0, 3]",
        ),
        ("Reshape (x, beyond)", 17, "[2, 3] has 6 elements and is reshaped to [2, 3, 0]"),
        ("Reshape (e, five)", 17, None),  # nothing is known to fail where nothing is
        ("Add (x, z)", 17, "[2, 3] and [2, 4] do not go together"),
        ("Max (x, z)", 8, "[2, 3] and [2, 4] do not go together"),
        ("Expand (x, wide)", 17, "[2, 3] and [4, 3] do not go together"),
        ("MatMul (x, z)", 17, "[2, 3] is multiplied by [2, 4]"),
        ("Concat <axis = -1> (x, z)", 17, None),
        ("Concat <axis = 0> (x, z)", 17, "[2, 3] and [2, 4] are joined on axis 0"),
        ("Concat <axis = -2> (x, z)", 17, "[2, 3] and [2, 4] are joined on axis 0"),
    ],
)
def test_conflicts(node: str, opset: int, reason: str | None) -> None:
    m = model(f"m ({INPUTS}) => (y) <{CONSTANTS}> {{ y = {node} }}", opset)
    reasons = [skip.reason for skip in fixed_dims.find_conflicts(View(m))]
    assert [x.partition("sizes: ")[2] for x in reasons] == ([reason] if reason else [])
