"""``graphfix demo``: a small model out of what is installed, and the next command."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from graphfix.cli import main

ROOT = Path(__file__).parents[2]
MODEL = "sensevoice/model.onnx"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_it_is_the_model_of_the_repository(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    wanted = (ROOT / "models" / MODEL).read_bytes()
    assert Path("demo.onnx").read_bytes() == wanted
    assert len(wanted) < 400_000
    *_, last = capsys.readouterr().out.splitlines()
    next_one = shlex.split(last.removeprefix("next: "))
    assert next_one == ["graphfix", "run", "demo.onnx"]
    assert main([*next_one[1:], "--no-verify"]) == 0
    assert Path("demo.fixed.onnx").exists()


def test_what_is_there_is_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    Path("demo.onnx").write_text("mine", encoding="utf-8")
    assert main(["demo"]) == 2
    assert "demo.onnx: is there already; name another file with -o" in capsys.readouterr().err
    assert Path("demo.onnx").read_text(encoding="utf-8") == "mine"
    assert main(["demo", "-o", "other.onnx"]) == 0


def test_it_is_data_of_the_package() -> None:
    assert (resources.files("graphfix.models") / MODEL).is_file()
    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "setuptools"
    ]
    assert MODEL in data["package-data"]["graphfix.models"]
    assert "graphfix.models" in data["packages"]


def test_it_works_where_the_repository_is_not() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "graphfix", "demo"], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
