"""What is being done: a line that moves on a terminal, and a plain line a step elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from graphfix.cli import _terminal, main

STEPS = _terminal.print_steps_once  # as it is; conftest.py replaces it
MODEL = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[T, 4] x) => (float[T, 4] y) { y = Relu (x) }"""
LIVE = """
import time
from graphfix.cli import _terminal
with _terminal.show_progress() as tell:
    tell("model 1 of 2, a[b]: repair\\nmodel 2 of 2, c: check")
    time.sleep(0.5)
    _terminal.print_row("ok", "a[b]: 3 repairs", colour="green")
    _terminal.print_remark("one more thing")
    tell("model 2 of 2, c: bench")
    time.sleep(0.5)
    tell("verifying 4/4: before, " + 20 * "a long case ")
    time.sleep(0.5)
    tell("done")
    time.sleep(0.5)
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_terminal, "print_steps_once", STEPS)
    onnx.save(onnx.parser.parse_model(MODEL), "m.onnx")
    return "m.onnx"


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        (["run", "m.onnx"], ["loading", "repairing", "verifying", "counting kernels"]),
        (["verify", "m.onnx", "m.onnx"], ["verifying"]),
        (["check", "m.onnx", "m.onnx"], ["checking m.onnx"]),
        (["padded", "m.onnx"], ["padding"]),
    ],
)
def test_where_stderr_is_no_terminal_each_step_is_a_line(
    model: str, arguments: list[str], steps: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 0
    assert capsys.readouterr().err.splitlines() == [f"graphfix: {x}" for x in steps]
    for hushed in ("-q", "--json"):
        assert main([*arguments, hushed]) == 0
        assert capsys.readouterr().err == ""


def test_details_and_counts_of_a_step_are_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    tell = STEPS()
    for text in ("verifying 1/9: before", "verifying 2/9: after", "model 1, a: x\nmodel 2, b: y"):
        tell(text)
    tell("checking C:/m.onnx")
    said = ["verifying", "model 1, a", "model 2, b", "checking C:/m.onnx"]
    assert capsys.readouterr().err.splitlines() == [f"graphfix: {x}" for x in said]


def test_what_is_left_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(_terminal.time, "monotonic", lambda: now[0])
    estimate = _terminal._TimeEstimate()

    def left(text: str) -> str:
        now[0] += 3
        return estimate.remaining_text(_terminal._COUNT.search(text))

    assert left("verifying 1/4: a") == ""  # the first tells nothing
    assert left("verifying 2/4: b") == "about 9 s left"
    assert left("verifying 4/4: c") == "about 2 s left"
    assert left("repairing") == ""
    assert left("timing 3/9: d") == ""  # other steps
    assert left("timing 5/9: e") == "about 8 s left"
    assert left("timing 1/9: f") == ""  # once more


def screen(seen: str) -> list[str]:
    """What a terminal shows once it has got all that."""
    lines, row = [""], 0
    for part in re.findall(r"\x1b\[[\d;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", seen):
        if part == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif part.endswith("A") and part[0] == "\x1b":
            row -= int(part[2:-1])
        elif part == "\x1b[2K":
            lines[row] = ""
        elif part[0] not in "\r\x1b":
            lines[row] += part
    return [x.rstrip() for x in lines if x.strip()]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
class TestOnATerminal:
    def seen(self, stdout: int | None = None) -> tuple[str, str]:
        """What the terminal gets, and what a pipe at stdout gets if there is one."""
        import pty

        ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
        with subprocess.Popen(
            [sys.executable, "-c", LIVE],
            stdout=stdout or theirs,
            stderr=theirs,
            env=environment,
        ) as process:
            os.close(theirs)
            got = b""
            try:
                while data := os.read(ours, 4096):
                    got += data
            except OSError:  # Linux says so at its end
                pass
            os.close(ours)
            piped = process.stdout.read().decode() if process.stdout else ""
        assert process.returncode == 0
        return got.decode(), piped

    def test_results_go_above_what_moves(self) -> None:
        got, _ = self.seen()
        frames = [screen(got[: x.start()]) for x in re.finditer(r"\r\x1b\[2K", got)]
        texts = [[re.sub(r"[\u2800-\u28ff]|0:00:0\d", "", x).strip() for x in y] for y in frames]
        assert ["model 1 of 2, a[b]: repair", "model 2 of 2, c: check"] in texts
        assert screen(got) == ["  ok        a[b]: 3 repairs", "graphfix: one more thing"]

    def test_a_bar_and_the_time_stay_beside_a_long_text(self) -> None:
        got, _ = self.seen()
        frames = [screen(got[: x.start()]) for x in re.finditer(r"\r\x1b\[2K", got)]
        long = next(x[-1] for x in frames if x and "verifying" in x[-1])
        assert re.fullmatch(r"\S verifying 4/4: before, a long .* \u2501{15}.? 0:00:0\d", long)
        assert len(long) <= 80
        last = next(x[-1] for x in frames if x and "done" in x[-1])
        assert re.fullmatch(r"\S done +0:00:0[1-9]", last), last  # and the clock goes on

    def test_what_is_piped_on_stays_off_the_terminal(self) -> None:
        got, piped = self.seen(subprocess.PIPE)
        assert piped == "  ok        a[b]: 3 repairs\n"
        assert screen(got) == ["graphfix: one more thing"]
