"""By the Windows Python itself, with graphfix and DirectML in one process: a few of what users do.

`make windows` installs graphfix there, and runs all other tests there, too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from graphfix.errors import GraphfixError
from graphfix.runtime import python
from graphfix.shipping.build import ship_file
from graphfix.shipping.container_spec import parse_containers

ROOT = Path(__file__).parents[2]
PREFIX = "Z:\\host"
FOLDER = "mein Ordner ü 模型"  # not in the code page, where ONNX Runtime 1.24 opens no file

RUNS = """
import sys
import numpy as np, graphfix
session = graphfix.Session(sys.argv[1])
feeds = {"audio": np.ones((1, 7000), np.float32), "language": np.array([0], np.int32),
         "textnorm": np.array([14], np.int32)}
logits, *_ = session.run(None, feeds)
print(session.get_providers()[0], logits.shape[1] > 0, bool(np.isfinite(logits).all()))
"""


@pytest.fixture(scope="module")
def windows() -> str:
    """What starts the Windows Python that has this checkout's graphfix."""
    if sys.platform == "win32":
        pytest.skip("this is Windows")
    try:
        home = Path(python.find_python("dml").command[0]).parent
    except GraphfixError as error:
        pytest.skip(str(error))
    found = list(home.glob("opt/dml/windows/Lib/site-packages/graphfix-*/direct_url.json"))
    if not found or not (home / "opt/dml/windows/done").exists():
        pytest.skip("there is no graphfix in the Windows Python; make windows WINDOWS=--setup")
    url = json.loads(found[0].read_text(encoding="utf-8"))["url"]
    if not url.endswith(f":/host{ROOT}"):
        pytest.skip(f"the graphfix in the Windows Python is that of {url}")
    return str(home / "windows-python")


def run(windows: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What it says; after five minutes it is ended, and with it all that it has begun."""
    with subprocess.Popen(
        [windows, *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="cp1252",
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=300)
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            raise
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def there(path: Path) -> str:
    return PREFIX + str(path).replace("/", "\\")


def test_a_repaired_model_runs_and_an_exported_one_does_not(windows: str, tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    fixed = there(tmp_path / FOLDER / "fixed.onnx")
    bert = there(ROOT / "models/bert/model.onnx")
    done = run(windows, "-m", "graphfix", "run", bert, "-o", fixed, "--ep", "dml", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["output"] == fixed
    assert report["verdict"]["ok"]
    done = run(windows, "-m", "graphfix", "verify", bert, bert, "--ep", "dml")
    assert done.returncode == 1, done.stderr
    assert "does not run on DirectML" in done.stderr


def test_what_is_shipped_runs_on_directml_in_process(windows: str, tmp_path: Path) -> None:
    model = ROOT / "models/sensevoice_audio/model.onnx"
    # Made on this side, which is faster; tests/shipping are run on the other one by make windows.
    assert ship_file(model, tmp_path / "shipped", parse_containers(["samples=1s"], 16000)).ok
    done = run(windows, "-c", RUNS, there(tmp_path / "shipped"))
    assert done.stdout.split() == ["DmlExecutionProvider", "True", "True"], done.stderr


def test_what_starts_it_keeps_byte_code_and_asks_no_driver(
    windows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, ours = Path(windows).parent / "opt/dml/in-wine", ROOT / "dml/in-wine"
    if copy.read_bytes() != ours.read_bytes():
        pytest.skip("what starts Wine has changed since; make windows WINDOWS=--setup")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    asks = "import os, sys; print(sys.dont_write_bytecode, sys.pycache_prefix, os.stat('.').st_dev)"
    # A volume has a number where Wine's mount manager was asked, which costs more than the rest.
    assert run(windows, "-c", asks).stdout.split() == ["False", "C:\\pycache", "0"]
