"""The hook and the action do, on files in a folder, what docs/repository.md says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML comes with dask, which is not installed")
ROOT = Path(__file__).parents[2]
BASH = shutil.which("bash")
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs/repository.md").read_text(encoding="utf-8")


def shown(mark: str) -> Any:
    found = re.search(rf"<!-- tested: {mark} -->\n```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return yaml.safe_load(found[1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("llama", "bert"):
        (tmp_path / "models" / name).mkdir(parents=True)
        shutil.copy(ROOT / "models" / name / "model.onnx", tmp_path / "models" / name)
    return tmp_path


def graphfix(folder: Path, *given: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "graphfix", *given]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_hook_takes_the_files_that_pre_commit_gives_it(folder: Path) -> None:
    (repo,) = shown("hook")["repos"]
    (shown_hook,) = repo["hooks"]
    (hook,) = (x for x in HOOKS if x["id"] == shown_hook["id"])
    assert {k: x for k, x in shown_hook.items() if k != "additional_dependencies"} == {
        k: x for k, x in hook.items() if k != "description"
    }
    assert re.search(hook["files"], "models/llama/model.onnx")
    assert not re.search(hook["files"], "models/llama/model.onnx.data")
    verb = hook["entry"].split()
    assert verb[0] == "graphfix"
    done = graphfix(folder, *verb[1:], "models/llama/model.onnx", "models/bert/model.onnx")
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[-1].startswith("  in all    2 models, ")


@pytest.mark.skipif(BASH is None or sys.platform == "win32", reason="the action's steps are bash")
def test_the_steps_of_the_action_leave_findings_and_pages(folder: Path) -> None:
    asked = shown("action")["jobs"]["models"]["steps"][1]["with"]
    assert asked.keys() <= ACTION["inputs"].keys()
    given = {k: x["default"] for k, x in ACTION["inputs"].items()} | asked
    steps = {x.get("name"): x for x in ACTION["runs"]["steps"]}
    (folder / "bin").mkdir()
    (folder / "bin/graphfix").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m graphfix "$@"\n')
    (folder / "bin/graphfix").chmod(0o755)
    github = folder / "env"
    env = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "RUNNER_TEMP": str(folder),
        "GITHUB_ENV": str(github),
        "MODELS": given["models"],
        "FAIL_ON": given["fail-on"],
        "PASSES": "fold",
    }
    for name in ("Pages", "Check"):
        # As GitHub runs them.
        command = [str(BASH), "--noprofile", "--norc", "-eo", "pipefail", "-c", steps[name]["run"]]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
    assert github.read_text(encoding="utf-8") == "GRAPHFIX_CODE=1\n"
    log = yaml.safe_load((folder / "graphfix.sarif").read_text(encoding="utf-8"))
    assert log["version"] == "2.1.0"
    assert {x.name for x in (folder / "graphfix-pages").iterdir()} == {
        "models_llama_model.onnx.html",
        "models_bert_model.onnx.html",
    }


def test_versions_are_the_one_of_the_package() -> None:
    from graphfix.version import __version__

    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"]
    assert cited == __version__
