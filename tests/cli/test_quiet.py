"""What ONNX Runtime would say for itself stays off the user's stderr, at file-descriptor level."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnx_ir as ir
import pytest

from graphfix.cli import group, main

# ONNX Runtime writes to descriptor 2 itself; on an unlucky machine its default logger does, too.
SCRIPT = """
import sys, onnxruntime
onnxruntime.set_default_logger_severity(0)
from graphfix.cli import main
sys.exit(main(sys.argv[1:]))
"""
UNUSED = {
    "in the graph": "<float[4] unused = {1, 2, 3, 4}> { y = Relu (x) }",
    "in a branch": """<bool c = {1}> { y = If (c) <
        then_branch = t () => (float[B, 4] a) <float[4] unused = {1, 2, 3, 4}> { a = Relu (x) },
        else_branch = e () => (float[B, 4] b) <float[4] idle = {1, 2, 3, 4}> { b = Neg (x) }> }""",
    "folded": "<float[4] w = {1, 2, 3, 4}> { u = Neg (w) v = Abs (u) y = Add (x, v) }",
}
VERBS = {
    "plan": ["m.onnx"],
    "plan --dim": ["m.onnx", "--dim", "B=3"],
    "check": ["m.onnx"],
    "run": ["m.onnx", "--dry-run"],
    "verify": ["m.onnx", "m.onnx"],
    "bench": ["m.onnx", "--ep", "cpu", "--runs", "1"],
}


def stderr_of(folder: Path, arguments: list[str]) -> str:
    command = [sys.executable, "-c", SCRIPT, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    err = done.stderr.decode(errors="replace")
    assert done.returncode in (0, 1), err
    return err


@pytest.mark.parametrize(
    ("verb", "where"),
    [*((verb, "in the graph") for verb in VERBS), ("plan", "in a branch"), ("plan", "folded")],
)
def test_nothing_of_onnxruntime_is_on_stderr(verb: str, where: str, tmp_path: Path) -> None:
    head = '<ir_version: 8, opset_import: ["" : 17]> m (float[B, 4] x) => (float[B, 4] y) '
    ir.save(ir.from_onnx_text(head + UNUSED[where]), tmp_path / "m.onnx")
    err = stderr_of(tmp_path, [verb.split()[0], *VERBS[verb]])
    for word in ("onnxruntime", "Removing initializer", "[W:", "[V:"):
        assert word not in err


class TestQuietVerbs:
    """``-q``: errors, and data that was asked for."""

    @pytest.fixture
    def model(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.chdir(tmp_path)
        head = '<ir_version: 8, opset_import: ["" : 17]> m (float[B, 4] x) => (float[B, 4] y) '
        ir.save(ir.from_onnx_text(head + "{ y = Relu (x) }"), "m.onnx")
        return "m.onnx"

    def test_every_verb_has_it(self) -> None:
        for name, command in group.commands.items():
            assert [x for x in command.params if "-q" in x.opts], name

    @pytest.mark.parametrize(
        "arguments",
        [
            *(["run", "m.onnx"], ["check", "m.onnx"], ["plan", "m.onnx"], ["explain", "fold"]),
            *(["verify", "m.onnx", "m.onnx", "--dims", "B=3"], ["passes"], ["demo"]),
        ],
    )
    def test_nothing_is_said(
        self, model: str, capsys: pytest.CaptureFixture[str], arguments: list[str]
    ) -> None:
        assert main([*arguments, "-q"]) == 0
        assert capsys.readouterr() == ("", "")
        if arguments != ["demo"]:  # it is there already
            assert main(arguments) == 0
            assert capsys.readouterr().out != ""

    def test_errors_and_data_are(self, model: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", "none.onnx", "-q"]) == 2
        assert "none.onnx: no such file" in capsys.readouterr().err
        assert main(["check", model, "-q", "--json"]) == 0
        out, err = capsys.readouterr()
        assert json.loads(out)["source"] == model
        assert err == ""

    def test_a_model_goes_to_stdout(
        self, model: str, capfdbinary: pytest.CaptureFixture[bytes]
    ) -> None:
        assert main(["run", model, "-q", "-o", "-", "--no-verify"]) == 0
        out, err = capfdbinary.readouterr()
        assert out == Path(model).read_bytes()
        assert err == b""


def test_dims_are_one_option_in_all_verbs() -> None:
    for verb in ("run", "verify", "padded", "plan", "bench"):
        (found,) = [x for x in group.commands[verb].params if x.name == "dims"]
        assert found.opts == ["--dims", "--dim"], verb
