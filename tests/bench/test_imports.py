"""What the programs of bench/ import of graphfix is there; most of them run in no test."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.parametrize("file", sorted(BENCH.rglob("*.py")), ids=lambda x: x.name)
def test_what_is_imported_of_graphfix_is_there(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("graphfix"):
            continue
        module = importlib.import_module(str(node.module))
        for name in (x.name for x in node.names):
            is_module = hasattr(module, "__path__") and importlib.util.find_spec(
                f"{node.module}.{name}"
            )
            assert hasattr(module, name) or is_module, f"{node.module} has no {name}"
