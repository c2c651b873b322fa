"""Ctrl-C before the command line is there, while it imports, and when all is done."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "models" / "bert" / "model.onnx"
SAID = "graphfix: interrupted; nothing was written"

# The signal comes where a module is looked for; {how} is what a library does with it there.
BEGIN = """
import atexit, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)

def interrupt():
    signal.raise_signal(signal.SIGINT)

class Finder:
    def find_spec(name, path=None, target=None):
        if name == {name!r}:
            sys.meta_path.remove(Finder)
            {how}

sys.meta_path.insert(0, Finder)
sys.argv = ["graphfix", *sys.argv[1:]]
{more}
runpy.run_module("graphfix", run_name="__main__", alter_sys=True)
"""
HEARS = "interrupt()"
CATCHES = """
            try:
                interrupt()
                for _ in range(100):  # it may be heard a step later
                    pass
            except BaseException:
                pass"""


def graphfix(
    *words: str | Path, name: str = "", how: str = "pass", more: str = ""
) -> tuple[int, str]:
    text = BEGIN.format(name=name, how=how, more=more)
    done = subprocess.run(
        [sys.executable, "-c", text, *map(str, words)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stderr.strip()  # click ends the line of a spinner


@pytest.mark.parametrize("how", [HEARS, CATCHES], ids=["heard", "caught"])
@pytest.mark.parametrize("name", ["graphfix.cli", "click", "graphfix.cli.zoo", "onnx_ir", "sympy"])
def test_while_modules_are_imported(name: str, how: str) -> None:
    code, said = graphfix("check", MODEL, name=name, how=how)
    assert code == 130
    assert set(said.splitlines()) - {f"graphfix: checking {MODEL}", ""} == {SAID}


def test_an_import_without_end_is_ended(tmp_path: Path) -> None:
    plugin = tmp_path / "endless.py"
    plugin.write_text(
        "import signal, time\nsignal.raise_signal(signal.SIGINT)\n"
        "while True:\n    time.sleep(0.1)\n"
    )
    words = ("run", MODEL, "-o", tmp_path / "o.onnx", "--plugin", plugin)
    code, said = graphfix(*words)
    assert (code, said) == (130, SAID)
    assert not (tmp_path / "o.onnx").exists()


def test_when_all_is_done(tmp_path: Path) -> None:
    """The exit code tells what became of the model, and that was said already."""
    more = "atexit.register(interrupt)"
    out = tmp_path / "o.onnx"
    assert graphfix("run", MODEL, "-o", out, "--no-verify", "-q", more=more) == (0, "")
    assert out.exists()
    assert graphfix("check", tmp_path / "none.onnx", more=more)[0] == 2


def test_what_was_told_to_hear_none(tmp_path: Path) -> None:
    """As a shell tells what runs behind it."""
    more = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    for name in ("graphfix.cli", "onnx_ir"):
        assert graphfix("passes", name=name, how=HEARS, more=more) == (0, "")
    words = ("run", MODEL, "-o", tmp_path / "o.onnx", "--no-verify", "-q")
    assert graphfix(*words, name="onnx_ir", how=HEARS, more=more) == (0, "")
