"""At which shapes a benchmark times models: those of people, or the nearest that they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir
import pytest

from graphfix.benchmark.bench_result import AS_IT_IS, FIXED
from graphfix.benchmark.candidate import read_entrant
from graphfix.benchmark.timing_plan import plan_setups

if TYPE_CHECKING:
    from pathlib import Path

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
FRAMES = "m (float[B, T, 8] x) => (float[B, T, 8] y) { y = Relu (x) }"
# Positions of a table of 150 rows: more frames are none.
SHORT = """m (float[1, T, 8] x) => (float[1, T, 8] y)
    <int64[2] sizes = {150, 8}, int64[1] zero = {0}> {
    table = ConstantOfShape (sizes)  end = Shape <start = 1, end = 2> (x)
    rows = Slice (table, zero, end)  y = Add (x, rows) }"""
SUM = "m (float[1, T, 8] x, float[1, U, 8] z) => (float[1, T, 8] y) { y = Add (x, z) }"
ONE_SIZE = "m (float[1, 4] x) => (float[1, 4] y) { y = Relu (x) }"


def planned_sizes(
    folder: Path,
    graph: str,
    dims: dict[str, int] | None = None,
    other: dict[str, int] | None = None,
) -> list[tuple[dict[str, int], dict[str, int]]]:
    """The sizes of the setups and of their other shapes."""
    path = folder / "m.onnx"
    ir.save(ir.from_onnx_text(HEAD + graph), path)
    plan = plan_setups(path, [read_entrant(path)], dims, other, fixed=True, seed=0)
    assert [x.name for x, *_ in plan] == [AS_IT_IS, FIXED][: len(plan)]
    return [(dict(first.dims), dict(second.dims) if second else {}) for _, first, second in plan]


@pytest.mark.parametrize(
    ("graph", "first", "second"),
    [
        (FRAMES, {"B": 1, "T": 500}, {"B": 1, "T": 375}),
        (SHORT, {"T": 125}, {"T": 93}),
        (SUM, {"T": 500, "U": 500}, {"T": 375, "U": 375}),
    ],
)
def test_clips_of_usual_length(
    graph: str, first: dict[str, int], second: dict[str, int], tmp_path: Path
) -> None:
    assert planned_sizes(tmp_path, graph) == [(first, second), (first, {})]


def test_sizes_that_are_named_are_taken(tmp_path: Path) -> None:
    assert planned_sizes(tmp_path, FRAMES, {"T": 40})[0][0] == {"B": 1, "T": 40}
    assert planned_sizes(tmp_path, FRAMES, {"B": 2})[0][0] == {"B": 2, "T": 500}
    assert planned_sizes(tmp_path, FRAMES, None, {"T": 9})[0][1] == {"B": 1, "T": 9}


def test_a_model_of_one_size_has_one_setup(tmp_path: Path) -> None:
    assert planned_sizes(tmp_path, ONE_SIZE) == [({}, {})]
