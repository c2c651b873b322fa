"""``-`` is stdin and stdout: the model is binary there, and all else goes to stderr."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import graphfix

MASKED = """<ir_version: 8, opset_import: ["" : 17]>
m (float[B, T, T] scores, bool[B, 1, T] hidden) => (float[B, T, T] y)
<float low = {-3.4028234663852886e38}> { a = Where (hidden, low, scores) y = Softmax (a) }"""
ADD = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[T, 400] x) => (float[T, 400] y) { y = Add (x, w) }"""


def piped(given: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "graphfix", *arguments]
    return subprocess.run(command, input=given, capture_output=True, check=False)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return onnx.parser.parse_model(MASKED).SerializeToString()


def test_a_model_goes_through(model: bytes, tmp_path: Path) -> None:
    done = piped(model, "run", "-", "-o", "-", "--report", "page.html")
    assert done.returncode == 0
    fixed = onnx.load_model_from_string(done.stdout)
    assert "Where" not in [x.op_type for x in fixed.graph.node]
    assert graphfix.verify(onnx.load_model_from_string(model), fixed)
    said = done.stderr.decode()
    assert "\nstdin -> stdout" in said
    assert "repairs " in said
    assert str(tmp_path) not in said
    page = Path("page.html").read_text(encoding="utf-8")
    assert "graphfix: stdin" in page
    assert "graphfix-" not in page
    assert not list(tmp_path.glob("graphfix-*"))


def test_from_stdin_into_a_file_and_from_a_file_to_stdout(model: bytes) -> None:
    done = piped(model, "run", "-", "-o", "a.onnx")
    assert done.returncode == 0
    assert done.stdout.decode().startswith("stdin -> a.onnx")
    Path("m.onnx").write_bytes(model)
    assert piped(b"", "run", "m.onnx", "-o", "-").stdout == Path("a.onnx").read_bytes()


def test_verbs_that_only_read(model: bytes) -> None:
    Path("m.onnx").write_bytes(model)
    assert piped(model, "check", "-").stdout.decode().splitlines()[0] == "stdin"
    assert json.loads(piped(model, "plan", "-", "--json").stdout)["source"] == "stdin"
    assert b"identical" in piped(model, "verify", "-", "m.onnx", "--dims", "T=3").stdout


def test_weights_in_other_files_are_refused(model: bytes, tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(ADD)
    proto.graph.initializer.append(numpy_helper.from_array(np.zeros((1, 400), np.float32), "w"))
    onnx.save(proto, "e.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    done = piped(Path("e.onnx").read_bytes(), "run", "-", "-o", "-")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"stdin: the weights of 'w' are said to be in 'w.bin'" in done.stderr
    assert b"name the model's file instead of -" in done.stderr
    assert str(tmp_path).encode() not in done.stderr
    whole = piped(b"", "run", "e.onnx", "-o", "-").stdout
    assert not onnx.load_model_from_string(whole).graph.initializer[0].external_data


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "-"], b"name the output with -o FILE, or -o - for stdout"),
        (["run", "-", "-o", "-", "--json"], b"the model goes to stdout"),
        (["run", "-", "-o", "-", "--external-data", "separate"], b"the model goes to stdout"),
        (["demo", "-o", "-"], b"only graphfix run writes to stdout"),
        (["check", "-"], b"stdin: not an ONNX file"),
    ],
)
def test_what_is_refused(arguments: list[str], says: bytes) -> None:
    done = piped(b"no model", *arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert says in done.stderr


def test_a_model_that_fails_is_not_printed(model: bytes) -> None:
    Path("wrong.py").write_text(
        "import graphfix\n"
        "class Wrong(graphfix.NodePass):\n"
        "    name = 'wrong'\n"
        "    anchors = ('Softmax',)\n"
        "    def match(self, node, view):\n"
        "        return graphfix.Match(node)\n"
        "    def rewrite(self, match, op):\n"
        "        return op.Sigmoid(match.node.inputs[0])\n",
        encoding="utf-8",
    )
    words = "run - -o - -p wrong --plugin wrong.py --strict"
    done = piped(model, *words.split())
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"nothing was written" in done.stderr
