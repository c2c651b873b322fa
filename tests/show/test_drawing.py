"""The drawings of repairs: every node, every edge, nothing on top of something else."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

import graphfix
from graphfix.show.drawing import MOST, draw_nodes

ROOT = Path(__file__).parents[2]
LINES = (
    "/a/s = Shape (/a/x)",
    "/a/g = Gather <axis = 0> (/a/s, 0)",
    "/a/c = Concat <axis = 0> (/a/g, {2}, {16, -1})",
    "/a/y = com.microsoft.Reshape (/a/x, /a/c)",
)


def ends(path: str) -> tuple[float, float, float, float]:
    """Where an edge begins and ends."""
    numbers = [float(x) for x in re.findall(r"-?[\d.]+", path.rpartition("C")[2])]
    x, y = (float(x) for x in path[1:].split(" C")[0].split())
    return x, y, numbers[4], numbers[5]


def test_nodes_tensors_and_constants() -> None:
    it = draw_nodes(LINES)
    assert it is not None
    assert {(x.kind, x.text, x.more, x.title) for x in it.boxes} == {
        ("tensor", "x", "", "/a/x"),
        ("node", "Shape", "", LINES[0]),
        ("node", "Gather", "0, axis = 0", LINES[1]),
        ("node", "Concat", "{2}, {16, -1}, axis = 0", LINES[2]),
        ("node", "com.microsoft.Reshape", "", LINES[3]),
        ("tensor", "y", "", "/a/y"),
    }
    assert len(it.edges) == 6
    tops = {x.text: x.y for x in it.boxes}
    down = ["x", "Shape", "Gather", "Concat", "com.microsoft.Reshape", "y"]
    assert sorted(tops, key=tops.__getitem__) == down
    around = max(it.edges, key=len)  # the edge from x goes around what is between
    assert around.count("V") == 3


@pytest.mark.parametrize("name", ["info", "nan_1", "1_x", "Truest", "e5"])
def test_what_is_named_like_a_number_is_a_tensor(name: str) -> None:
    it = draw_nodes([f"y = Pow ({name}, -1.5e-05)"])
    assert it is not None
    assert [(x.kind, x.text, x.more) for x in it.boxes if x.text != "y"] == [
        ("node", "Pow", "-1.5e-05"),
        ("tensor", name, ""),
    ]


def test_a_name_that_is_long_keeps_its_end() -> None:
    it = draw_nodes(["m/" + "y" * 40 + "_end = Relu <a = " + "z" * 40 + "> (x)"])
    assert it is not None
    texts = {x.text: x.more for x in it.boxes}
    assert all(len(x) <= 26 for y in texts.items() for x in y)
    assert any(x.startswith("…") and x.endswith("_end") for x in texts)
    assert texts["Relu"].startswith("a = zz")
    assert texts["Relu"].endswith("…")


@pytest.mark.parametrize(
    "lines",
    [(), ("</script> = <b>",), ("a",), tuple(f"y{i} = Relu (x{i})" for i in range(MOST + 1))],
)
def test_what_is_not_drawn(lines: tuple[str, ...]) -> None:
    assert draw_nodes(lines) is None


@pytest.mark.parametrize("line", ["x = Relu (x)", "x, x = Split (x, x)", " = Relu ()"])
def test_what_no_graph_has_ends_all_the_same(line: str) -> None:
    assert draw_nodes([line, line]) is not None


@pytest.mark.parametrize("name", sorted(x.parent.name for x in ROOT.glob("models/*/model.onnx")))
def test_real_repairs(name: str) -> None:
    model = graphfix.load(ROOT / "models" / name / "model.onnx")
    report = graphfix.run(model, "fast")
    sides = [side for p in report.passes for x in p.changes for side in (x.removed, x.added)]
    drawn = [(lines, it) for lines in sides if (it := draw_nodes(lines))]
    assert len(drawn) > 0.9 * sum(map(bool, sides))
    for lines, it in drawn:
        nodes = [x for x in it.boxes if x.kind == "node"]
        assert [x.title for x in nodes] == list(lines)
        rows: dict[float, list[tuple[float, float]]] = {}
        for box in it.boxes:
            assert -0.01 <= box.x <= box.x + box.width <= it.width + 0.01
            assert box.y + 40 <= it.height
            rows.setdefault(box.y, []).append((box.x, box.x + box.width))
        for row in rows.values():
            assert all(a[1] < b[0] for a, b in itertools.pairwise(sorted(row)))
        for path in it.edges:
            x, y, to, bottom = ends(path)
            assert any(box.y + 40 == y and box.x < x < box.x + box.width for box in it.boxes)
            assert any(box.y == bottom and box.x < to < box.x + box.width for box in it.boxes)
            assert y < bottom
