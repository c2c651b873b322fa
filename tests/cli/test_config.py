"""``[tool.graphfix]`` of the nearest pyproject.toml gives defaults, and says so."""

from __future__ import annotations

import json
import re
import signal
import tomllib
from pathlib import Path

import onnx_ir as ir
import pytest

from graphfix.cli import group, main
from graphfix.engine import registry
from graphfix.spec.manual import manual_of

PAGE = Path(__file__).parents[2] / "docs/repair.md"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    model = ir.from_onnx_text(manual_of(registry.pass_class("additive-mask")).before)
    for number, node in enumerate(model.graph):
        node.name = f"/layer{number}/{node.op_type}"
    ir.save(model, "m.onnx")


def put(text: str, folder: str = "..") -> None:
    (Path(folder) / "pyproject.toml").write_text(f"[tool.graphfix]\n{text}\n", encoding="utf-8")


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main([*arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_profile_is_that_of_run(capsys: pytest.CaptureFixture[str]) -> None:
    put('profile = "cumsum-index"')
    _, out, err = said(capsys, "run", "m.onnx", "--dry-run", "--json")
    assert json.loads(out)["spec"] == "cumsum-index"
    assert err.count("\n") == 1
    assert "pyproject.toml: [tool.graphfix] sets profile" in err
    _, out, _ = said(capsys, "run", "m.onnx", "--dry-run", "--json", "-p", "fold")
    assert json.loads(out)["spec"] == "fold"  # what is said there holds
    assert said(capsys, "plan", "m.onnx")[2] == ""
    assert "additive-mask" in said(capsys, "check", "m.onnx")[1]


def test_the_tolerance(capsys: pytest.CaptureFixture[str]) -> None:
    put("atol = -1")
    for verb in (["run", "m.onnx"], ["verify", "m.onnx", "m.onnx"], ["bench", "m.onnx"]):
        assert "--atol -1: a difference is at least 0" in said(capsys, *verb)[2]
    assert "--atol -1: a difference" in said(capsys, "padded", "m.onnx")[2]
    assert said(capsys, "run", "m.onnx", "--atol", "0.1", "--no-verify")[0] == 0
    put("atol = 0.5")
    code, _, err = said(capsys, "verify", "m.onnx", "m.onnx", "--rtol", "0.01", "--dims", "T=3")
    assert code == 0, err  # --rtol is not against what pyproject.toml has
    code, _, err = said(capsys, "verify", "m.onnx", "m.onnx", "--rtol", "0.01", "--atol", "0.1")
    assert "without --atol" in err


def test_nodes_are_excluded(capsys: pytest.CaptureFixture[str]) -> None:
    everything = said(capsys, "check", "m.onnx")[1]
    assert "/layer1/Where" in everything
    put('exclude = ["/layer1/*"]')
    assert "/layer1/" not in said(capsys, "check", "m.onnx")[1]
    assert "/layer3/Where" in said(capsys, "check", "m.onnx")[1]
    put('exclude = "/layer1/*"')  # one, without a list
    assert "/layer3/Where" in said(capsys, "check", "m.onnx")[1]
    out = said(capsys, "check", "m.onnx", "--exclude", "*", "--json")[1]
    assert json.loads(out)["findings"] == []


def test_nothing_is_repaired_at_what_is_excluded(capsys: pytest.CaptureFixture[str]) -> None:
    def repaired(*options: str) -> set[str]:
        asked = ("run", "m.onnx", "-p", "additive-mask", "--no-verify", "--json", *options)
        (only,) = json.loads(said(capsys, *asked)[1])["passes"]
        return {x["at"] for x in only["changes"]}

    every = repaired()
    assert "/layer1/Where" in every
    put('exclude = ["/layer1/*"]')
    assert repaired() == {x for x in every if not x.startswith("/layer1/")}
    assert repaired("--exclude", "*") == set()
    out = said(capsys, "run", "m.onnx", "-p", "additive-mask", "--no-verify", "-v")[1]
    assert "excluded, as asked" in out


def test_the_nearest_file_with_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    put("atol = 0.1")
    Path("pyproject.toml").write_text("[project]\nname = 'x'\n", encoding="utf-8")
    assert "sets atol" in said(capsys, "verify", "m.onnx", "m.onnx", "--dims", "T=3")[2]
    put("", ".")
    assert said(capsys, "verify", "m.onnx", "m.onnx", "--dims", "T=3")[2] == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("atoll = 1", "pyproject.toml: [tool.graphfix] has no 'atoll'; did you mean 'atol'?"),
        ("atol =", "pyproject.toml: is no TOML: "),
        ('atol = "x"', "'x' is not a valid float"),
    ],
)
def test_what_is_wrong(capsys: pytest.CaptureFixture[str], text: str, says: str) -> None:
    put(text)
    code, out, err = said(capsys, "verify", "m.onnx", "m.onnx")
    assert (code, out) == (2, "")
    assert says in err


def test_the_page_has_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    text = re.search(r"<!-- tested: defaults -->\n```toml\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    assert text is not None
    table = tomllib.loads(text[1])["tool"]["graphfix"]
    assert set(table) == {"profile", "atol", "exclude"}
    Path("pyproject.toml").write_text(text[1], encoding="utf-8")
    verbs = {name for name, x in group.commands.items() if "atol" in {y.name for y in x.params}}
    assert verbs == {"run", "verify", "padded", "bench", "ship", "reduce", "merge"}
    assert "sets exclude" in said(capsys, "check", "m.onnx")[2]
    assert "sets profile, atol, exclude" in said(capsys, "run", "m.onnx", "--dry-run")[2]
