"""The walls of the room: imports go down only, those of type checkers too."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import graphfix

ROOT = Path(graphfix.__file__).parent
ROOMS = ("graphfix.lengths", "graphfix.facts.symbolic")


def imports(room: str) -> dict[str, set[str]]:
    """What each file of a room imports of it, wherever in the file it does so."""
    folder = ROOT.joinpath(*room.split(".")[1:])
    files = {
        ".".join((room, *x.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__"): x
        for x in folder.rglob("*.py")
    }
    found: dict[str, set[str]] = {}
    for name, path in files.items():
        asked: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                inside = {f"{node.module}.{x.name}" for x in node.names} & set(files)
                asked |= inside or {node.module}
            elif isinstance(node, ast.Import):
                asked |= {x.name for x in node.names}
        found[name] = {x for x in asked if x in files}
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_no_file_imports_one_that_imports_it(room: str) -> None:
    found = imports(room)
    assert len(found) > 5
    assert any(found.values())
    list(TopologicalSorter(found).static_order())


def test_plain_data_imports_nothing_of_the_room() -> None:
    assert imports("graphfix.lengths")["graphfix.lengths.tail_state"] == set()
