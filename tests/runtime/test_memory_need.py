"""What verification needs is said before, and refused where it is not there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.cli import main
from graphfix.errors import UsageError
from graphfix.files import wire
from graphfix.runtime import memory_need

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}>
    { a = Add (x, w) y = Softmax (a) }"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), path)
    return path


@pytest.fixture
def big(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_need, "WORTH_TELLING", 15)


@pytest.mark.parametrize("where", ["inline", "separate"])
def test_each_weight_counts_once(tmp_path: Path, where: str) -> None:
    proto = onnx.parser.parse_model(TEXT)
    weight = onnx.numpy_helper.from_array(np.zeros(wire.BIG, np.float16), "big")
    proto.graph.initializer.append(weight)
    onnx.save(proto, tmp_path / "m.onnx")
    graphfix.save(graphfix.load(tmp_path / "m.onnx"), tmp_path / "n.onnx", external_data=where)
    need = memory_need.need_of(graphfix.load(tmp_path / "n.onnx"))
    assert need.weights == 2 * wire.BIG + 4 * 4
    assert need.needed > need.weights


def test_the_machine_says_what_is_free() -> None:
    free = memory_need.available_memory()
    assert free is None or 10_000_000 < free < 10**15


@pytest.mark.usefixtures("big")
def test_a_big_model_is_announced(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    report = graphfix.repair_file(file, passes="cumsum-index")
    assert "verifying takes about 0.3 GB of memory" in caplog.text
    assert report.to_json()["memory"]["weights"] == 16


def test_a_small_one_is_not(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    graphfix.repair_file(file, passes="cumsum-index")
    assert not caplog.text


@pytest.mark.usefixtures("big")
def test_one_that_is_too_big_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_need, "available_memory", lambda: 200_000_000)
    with pytest.raises(UsageError, match=r"0\.2 GB are free.*--no-verify"):
        graphfix.repair_file(file, passes="cumsum-index")
    assert [x.name for x in file.parent.iterdir()] == ["m.onnx"]
    assert graphfix.repair_file(file, passes="cumsum-index", check=False).output
    assert graphfix.repair_file(file, passes="cumsum-index", dry_run=True).memory is None


@pytest.mark.usefixtures("big")
class TestVerb:
    """``graphfix verify`` says and refuses the same; of the two models, the larger counts."""

    @pytest.fixture
    def bare(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        monkeypatch.setenv("COLUMNS", "300")
        proto = onnx.parser.parse_model(TEXT.replace("Add (x, w)", "Relu (x)"))
        proto.graph.ClearField("initializer")
        onnx.save(proto, tmp_path / "bare.onnx")
        return tmp_path / "bare.onnx"

    def test_it_is_said_on_stderr(
        self, bare: Path, file: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["verify", str(bare), str(file), "--json"]) == 1
        said = capsys.readouterr()
        assert "verifying takes about 0.3 GB of memory" in said.err
        assert json.loads(said.out)["ok"] is False

    def test_too_much_is_refused(
        self,
        bare: Path,
        file: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(memory_need, "available_memory", lambda: 200_000_000)
        assert main(["verify", str(bare), str(file)]) == 2
        said = capsys.readouterr().err
        assert "0.2 GB are free: close something else, or verify it on a machine" in said


def test_a_model_that_was_never_a_file_can_be_asked_too() -> None:
    assert memory_need.need_of(ir.from_onnx_text(TEXT)).weights == 16


@pytest.mark.skipif(sys.platform != "linux", reason="bounds of POSIX")
def test_the_users_own_bound_on_memory_stays(file: Path) -> None:
    """`ulimit -v`: no process may raise it again, and asking for that is an error."""
    import resource

    bound = 1 << 38

    def below() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (bound, bound))

    program = """if True:
        import resource
        from graphfix.runtime import _worker
        with _worker._limit_memory(1 << 50):
            print(*resource.getrlimit(resource.RLIMIT_AS))
        with _worker._limit_memory(1 << 20):
            print(*resource.getrlimit(resource.RLIMIT_AS))"""
    told = subprocess.run(
        [sys.executable, "-c", program], preexec_fn=below, check=True, capture_output=True
    ).stdout.split()
    assert [int(told[i]) for i in (0, 1, 3)] == [bound] * 3
    assert int(told[2]) < bound
