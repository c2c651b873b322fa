"""``graphfix completion``: a script for each shell, and what it asks graphfix for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from graphfix.cli import group, main


def asked(shell: str, **variables: str) -> list[str]:
    environment = {**os.environ, "_GRAPHFIX_COMPLETE": f"{shell}_complete", **variables}
    done = subprocess.run(
        [sys.executable, "-m", "graphfix"], env=environment, capture_output=True, check=True
    )
    return done.stdout.decode().splitlines()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_a_script_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert f"{shell}_complete" in out
    assert "_GRAPHFIX_COMPLETE" in out
    assert "%(" not in out


def test_powershell_asks_for_verbs_options_and_files() -> None:
    verbs = asked("powershell", COMP_WORDS="graphfix ", COMP_WORD="")
    assert [x.split("\t")[1] for x in verbs] == sorted(group.commands)
    assert all(len(x.split("\t")) == 3 for x in verbs)
    run = asked("powershell", COMP_WORDS="graphfix ru", COMP_WORD="ru")
    assert run == ["plain\trun\tRepair a model, verify it, and write it."]
    options = asked("powershell", COMP_WORDS="graphfix run m.onnx --str", COMP_WORD="--str")
    assert [x.split("\t")[1] for x in options] == ["--strict"]
    (file,) = asked("powershell", COMP_WORDS="graphfix run de", COMP_WORD="de")
    assert file.startswith("file\tde\t")


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(tmp_path: Path) -> None:
    (tmp_path / "graphfix").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m graphfix "$@"\n', encoding="utf-8"
    )
    (tmp_path / "graphfix").chmod(0o755)
    script = (
        'eval "$(graphfix completion bash 2>/dev/null)"\n'
        "COMP_WORDS=(graphfix ver); COMP_CWORD=1; _graphfix_completion graphfix ver graphfix\n"
        'echo "${COMPREPLY[@]}"'
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["verify"]


@pytest.mark.parametrize("verb", ["run", "check", "plan", "padded", "ship", "verify"])
def test_a_model_is_completed_as_a_file(verb: str) -> None:
    assert asked("bash", COMP_WORDS=f"graphfix {verb} m", COMP_CWORD="2") == ["file,m"]
