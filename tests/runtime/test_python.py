"""Pythons that have an execution provider."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from graphfix.errors import UsageError
from graphfix.providers.table import EVERYWHERE, PROVIDERS, Ep, variable_of
from graphfix.runtime import python
from graphfix.runtime.process import SESSIONS


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (variable_of("dml"), variable_of("dml", "PATHS"), *map(variable_of, EVERYWHERE)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable_of("dml", "VERSION"), "")
    monkeypatch.setenv(variable_of("dml", "HOME"), str(tmp_path / "none"))
    monkeypatch.setattr(python, "available_providers", lambda: ("CPUExecutionProvider",))


def with_providers(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(python, "available_providers", lambda: names)


def program(folder: Path, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_this_python_runs_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = python.runner_for("cpu")
    assert cpu.command == (sys.executable,)
    assert cpu.sessions == 200
    assert cpu.provider == "CPUExecutionProvider"
    with_providers(monkeypatch, "DmlExecutionProvider")
    assert python.has_provider("dml")
    dml = python.runner_for("dml")
    assert (dml.command, dml.sessions) == ((sys.executable,), SESSIONS)
    assert python.choose_provider("auto") == ("dml", "")
    python.require_provider("dml")


def test_the_cpu_is_there_without_asking_onnx_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("available_providers", "_own_version"):  # each loads it
        monkeypatch.setattr(python, name, lambda: pytest.fail("it was asked"))
    python.require_provider("cpu")
    assert python.runner_for("cpu").command == (sys.executable,)


def test_a_provider_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not python.has_provider("dml")
    python.require_provider("cpu")
    with pytest.raises(UsageError, match="DirectML is unavailable here"):
        python.require_provider("dml")
    with pytest.raises(UsageError, match="CUDA is unavailable here"):
        python.require_provider("cuda")
    with_providers(monkeypatch, "CUDAExecutionProvider")
    python.require_provider("cuda")


def test_where_something_runs() -> None:
    assert python.choose_provider("cpu") == ("cpu", "")
    ep, remark = python.choose_provider("auto")
    assert ep == "cpu"
    assert remark.startswith("on the CPU, not on DirectML: DirectML is unavailable here")
    with pytest.raises(UsageError):
        python.choose_provider("dml")


@pytest.mark.skipif(sys.platform == "win32", reason="programs have other names there")
@pytest.mark.parametrize(
    ("name", "paths", "prefix"),
    [
        ("dml-python", None, "Z:\\host"),
        ("wine", None, "Z:"),
        ("my-wine64", None, "Z:"),
        ("python3", None, ""),
        ("python3", "Y:", "Y:"),
        ("dml-python", "", ""),
    ],
)
def test_a_python_of_the_environment(
    name: str, paths: str | None, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = program(tmp_path, name)
    monkeypatch.setenv(variable_of("dml"), f" {path} -X utf8 ")
    if paths is not None:
        monkeypatch.setenv(variable_of("dml", "PATHS"), paths)
    runner = python.find_python("dml")
    assert runner.command == (str(path), "-X", "utf8")
    assert runner.prefix == prefix
    assert python.runner_for("dml") == runner
    python.require_provider("dml")


def test_a_python_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable_of("dml"), "no-such-program -x")
    with pytest.raises(UsageError, match="there is no program 'no-such-program'"):
        python.find_python("dml")
    monkeypatch.setenv(variable_of("dml"), "  ")
    with pytest.raises(UsageError, match="no other Python is known"):
        python.find_python("dml")


@pytest.mark.skipif(sys.platform == "win32", reason="every file may be run there")
def test_a_python_that_make_has_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path, "home/dml-python")
    monkeypatch.setenv(variable_of("dml", "HOME"), str(path.parent))
    runner = python.find_python("dml")
    assert (runner.command, runner.prefix) == ((str(path),), "Z:\\host")
    monkeypatch.setenv(variable_of("dml", "PATHS"), "Y:")
    assert python.find_python("dml").prefix == "Y:"
    path.chmod(0o644)
    with pytest.raises(UsageError):
        python.find_python("dml")


@pytest.mark.skipif(sys.platform == "win32", reason="every file may be run there")
def test_the_newest_that_make_has_set_up_or_the_one_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (program(tmp_path, f"home/{x}-python") for x in ("dml", "windowsml"))
    monkeypatch.setenv(variable_of("dml", "HOME"), str(old.parent))
    assert python.find_python("dml").command == (str(new),)
    monkeypatch.setenv(variable_of("dml", "VERSION"), "1.24.4")
    runner = python.find_python("dml")
    assert (runner.command, runner.version) == ((str(old),), "1.24.4")
    monkeypatch.setenv(variable_of("dml"), f"{old} -X utf8")
    monkeypatch.setenv(variable_of("dml", "VERSION"), "windowsml")
    assert python.find_python("dml").command == (str(new), "-X", "utf8")
    new.unlink()  # then the one that is named must have it
    assert python.find_python("dml").command == (str(old), "-X", "utf8")
    monkeypatch.delenv(variable_of("dml"))
    with pytest.raises(UsageError, match="a Python with onnxruntime-windowsml, or use --ep cpu"):
        python.find_python("dml")


def test_this_python_is_not_taken_for_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    with_providers(monkeypatch, "DmlExecutionProvider")
    monkeypatch.setattr("onnxruntime.__version__", "1.24.4")
    assert python.versions_in_force("dml") == ("1.24.4",)
    assert python.versions_in_force("dml", "windowsml") == ("1.30.0",)
    monkeypatch.setenv(variable_of("dml", "VERSION"), "windowsml")
    assert python.has_provider("dml")
    assert not python.has_meant_provider("dml")
    with pytest.raises(UsageError, match="onnxruntime-windowsml"):
        python.require_provider("dml")
    with_providers(monkeypatch)
    assert python.versions_in_force("dml") == ("1.30.0",)
    monkeypatch.setenv(variable_of("dml", "VERSION"), "")
    assert python.versions_in_force("dml") == ("1.24.4", "1.30.0")


def test_a_command_line_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    class Windows:
        name, X_OK = "nt", os.X_OK

        @staticmethod
        def access(path: str, _: Any) -> bool:
            return path == r"C:\my python\python.exe"

    monkeypatch.setattr(python, "os", Windows)
    assert python._split_command(r"C:\my python\python.exe") == (r"C:\my python\python.exe",)
    assert python._split_command(r'"C:\a b\python.exe" -X utf8') == (
        r"C:\a b\python.exe", "-X", "utf8",
    )  # fmt: skip
    monkeypatch.undo()
    if os.name != "nt":
        assert python._split_command("'/a b/python' -X") == ("/a b/python", "-X")


@pytest.mark.skipif(sys.platform == "win32", reason="every file may be run there")
@pytest.mark.parametrize("ep", ["webgpu", "cuda"])
def test_any_provider_may_be_in_another_python(
    ep: Ep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable_of(ep, "HOME"), str(tmp_path / "none"))
    with pytest.raises(UsageError, match=f"et {variable_of(ep)} .* a Python with onnxruntime-"):
        python.require_provider(ep)
    path = program(tmp_path, "python3")
    monkeypatch.setenv(variable_of(ep), str(path))
    runner = python.runner_for(ep)
    assert (runner.command, runner.prefix) == ((str(path),), "")
    assert runner.provider == PROVIDERS[ep].ort_name


@pytest.mark.skipif(sys.platform == "win32", reason="every file may be run there")
def test_the_python_of_make_webgpu_has_the_paths_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = program(tmp_path, "webgpu-python")
    monkeypatch.setenv(variable_of("webgpu", "HOME"), str(tmp_path))
    runner = python.find_python("webgpu")
    assert (runner.command, runner.prefix) == ((str(path),), "")
