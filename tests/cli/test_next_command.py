"""A run that writes nothing says what to do next, whatever failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir
import pytest

from graphfix import job
from graphfix.core import Change
from graphfix.engine.report import PassReport, Report
from graphfix.proof.verdict import Verdict
from tests.cli.conftest import said

if TYPE_CHECKING:
    from pathlib import Path

TEXT = '<ir_version: 8, opset_import: ["" : 17]> m (float[N] x) => (float[N] y) { y = Relu (x) }'


def failed(reason: str, *names: str) -> Report:
    change = Change("fold", "n", "y", (), ())
    passes = tuple(PassReport(x, x, "exact", (change,)) for x in names)
    verdict = Verdict(False, {}, reason=reason)
    return Report(",".join(names), passes, {}, {}, source="a model.onnx", verdict=verdict)


@pytest.mark.parametrize(
    ("report", "command"),
    [
        (failed("it gives 3 rows instead of 4", "fold", "fuse-norm"), "-p directml"),
        (failed("it gives 3 rows", "fold", "thaw", "bool-cast"), "-p fold, then thaw, bool-cast"),
        (failed("it dies", "fold"), "--exclude NODE"),
        (failed("the repaired model does not load in ONNX Runtime: no", "fold"), "graphfix check"),
        (failed("it draws random numbers"), "graphfix check"),
    ],
)
@pytest.mark.usefixtures("quiet")
def test_it_is_a_command_for_this_model(
    report: Report,
    command: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(ir.to_proto(ir.from_onnx_text(TEXT)), path)
    monkeypatch.setattr(job, "repair_file", lambda *_, **__: report)
    code, _, err = said(capsys, "run", path)
    told = " ".join(err.split())
    assert code == 1
    assert "nothing was written; " in told
    assert command in told
    assert "'a model.onnx'" in told
