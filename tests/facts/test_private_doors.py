"""What is taken from a library beyond what it promises: one door each, and a word when it shuts."""

from __future__ import annotations

import importlib
from importlib.metadata import version

import pytest


@pytest.mark.parametrize(
    ("library", "module", "name", "door"),
    [
        (
            "onnx-shape-inference",
            "onnx_shape_inference._symbolic_shapes",
            "parse_symbolic_expression",
            "graphfix/facts/symbolic/expressions.py",
        ),
        (
            "onnx-ir",
            "onnx_ir.passes.common.inliner",
            "_make_unique_name",
            "graphfix/editing/local_functions.py",
        ),
    ],
)
def test_it_is_there(library: str, module: str, name: str, door: str) -> None:
    told = f"{library} {version(library)} has no {module}.{name} any more; change {door}"
    try:
        found = importlib.import_module(module)
    except ImportError:
        pytest.fail(told)
    assert hasattr(found, name), told
