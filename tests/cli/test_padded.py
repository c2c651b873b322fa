"""``graphfix padded``: a table of clips, and whether padding changes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

from graphfix.cli.padded import _print_table
from tests.cli.conftest import said

SAFE = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T, 4] x) => (float[B, T, 4] y, float[B, T, 4] z) { y = Neg (x)  z = Abs (x) }"""
LEAKY = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T, 4] x) => (float[B, T, 4] y, float[B, T, 4] z)
    { m = ReduceMean <axes = [1]> (x)  y = Sub (x, m)  z = Abs (x) }"""
Captured = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(SAFE), "safe.onnx")
    onnx.save(onnx.parser.parse_model(LEAKY), "leaky.onnx")


SIZES = ("--dims", "T=5,9", "--container", "24")


def rows(out: str) -> list[list[str]]:
    """Return the lines of the table, cell by cell."""
    lines = out.splitlines()
    start = next(i for i, x in enumerate(lines) if x.lstrip().startswith("clip "))
    end = next(i for i, x in enumerate(lines) if "clip and container count" in x)
    return [x.split() for x in lines[start:end]]


def test_a_model_that_is_safe(capsys: Captured) -> None:
    code, out, err = said(capsys, "padded", "safe.onnx", *SIZES)
    assert (code, err) == (0, "")
    head, *table = rows(out)
    assert head == ["clip", "container", "padding", "max", "abs", "allowed", "cosine", "output"]
    assert [x[:3] for x in table] == [
        [n, "24", fill] for n in "59" for fill in ("zero", "noise", "large")
    ]
    assert "  clip and container count T" in out
    assert "  length of nothing" in out
    assert any(x.startswith("  safe      the same in all 12 comparisons") for x in out.splitlines())


def test_a_model_that_is_not(capsys: Captured) -> None:
    code, out, err = said(capsys, "padded", "leaky.onnx", *SIZES)
    assert code == 1
    assert err == "graphfix: error: leaky.onnx is not safe to pad\n"
    _, *table = rows(out)
    assert {x[-1] for x in table} == {"y"}  # the worst of both
    assert any(x.startswith("  failed    output 'y'") for x in out.splitlines())


def test_every_output_is_shown_on_request(capsys: Captured) -> None:
    _, out, _ = said(capsys, "padded", "leaky.onnx", *SIZES, "-v")
    _, *table = rows(out)
    assert [x[-1] for x in table].count("z") == 6
    assert len(table) == 12


def test_rows_of_several_clips_are_numbered(capsys: Captured) -> None:
    _, out, _ = said(capsys, "padded", "safe.onnx", *SIZES, "--dims", "B=2")
    head, *table = rows(out)
    assert head[2] == "row"
    assert table[0][:6] == ["5", "24", "1", "of", "2", "zero"]
    assert {x[2] for x in table} == {"1", "2"}


def test_more_paddings(capsys: Captured) -> None:
    _, out, _ = said(capsys, "padded", "safe.onnx", *SIZES, "--poison", "nan", "--poison", "inf")
    _, *table = rows(out)
    assert {x[2] for x in table} == {"zero", "noise", "large", "nan", "inf"}


def test_json_and_a_page(capsys: Captured) -> None:
    code, out, err = said(capsys, "padded", "leaky.onnx", *SIZES, "--json", "--report", "p.html")
    assert code == 1
    data = json.loads(out)
    assert data["ok"] is False
    assert err.startswith("graphfix: error: leaky.onnx is not safe to pad: output 'y'")
    assert Path("p.html").read_text(encoding="utf-8").startswith("<!")
    code, out, _ = said(capsys, "padded", "safe.onnx", *SIZES, "--report", "p.html")
    assert code == 0
    assert out.splitlines()[-1].split() == ["report", "p.html"]


def test_a_wider_tolerance_or_another_original(capsys: Captured) -> None:
    code, *_ = said(capsys, "padded", "leaky.onnx", *SIZES, "--max-abs", "1e6", "--cosine", "-1")
    assert code == 0
    code, *_ = said(capsys, "padded", "leaky.onnx", *SIZES, "--original", "safe.onnx")
    assert code == 1


def test_sizes_that_are_dropped(capsys: Captured) -> None:
    _, out, _ = said(
        capsys, "padded", "safe.onnx", "--dims", "T=5,9", "--container", "7", "--container", "24"
    )
    assert "  dropped   1 size not compared" in out
    assert "a container does not hold a clip that is longer" in " ".join(out.split())


def check(output: str, **facts: Any) -> dict[str, Any]:
    usual = {"clip": 5, "row": 0, "container": 24, "fill": "zero", "rows": [5], "ok": True}
    return {**usual, "output": output, "max_abs": 0.0, "allowed": 1e-4, "cosine": 1.0, **facts}


@pytest.mark.parametrize(
    ("checks", "worst"),
    [
        ([check("a", max_abs=0.1), check("b", max_abs=0.2)], "b"),
        ([check("a", max_abs=0.2, allowed=1.0), check("b", max_abs=0.1, allowed=0.01)], "b"),
        ([check("a", max_abs=9.0), check("b", ok=False, max_abs=0.1)], "b"),
        ([check("a", max_abs="nan"), check("b", max_abs=9.0)], "a"),
    ],
)
def test_the_worst_output_stands_for_a_clip(
    checks: list[dict[str, Any]], worst: str, capsys: Captured
) -> None:
    _print_table(checks, "T", every=False)
    _, *table = rows(capsys.readouterr().out)
    assert [x[-1] for x in table] == [worst]
    _print_table(checks, "T", every=True)
    _, *table = rows(capsys.readouterr().out)
    assert [x[-1] for x in table] == ["a", "b"]
    _print_table([], "T", every=True)
    assert capsys.readouterr().out == ""
