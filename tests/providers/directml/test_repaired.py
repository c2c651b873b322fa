"""What a newer version of the provider repaired is a pass or a rule, and no finding there."""

from __future__ import annotations

import csv
from pathlib import Path

import onnx
import pytest

import graphfix
from graphfix.engine import registry
from graphfix.job.checking import check
from graphfix.providers import table
from graphfix.providers.directml.repaired import repaired_in, wrong_versions
from graphfix.rules import rules

TABLE = Path(graphfix.__file__).parent / "providers" / "directml" / "repaired.csv"
MODEL = """<ir_version: 8, opset_import: ["" : 17]>
up (float[B, 4, T] x, float[4, 3, 4] w) => (float[B, 3, U] y)
{ y = ConvTranspose <strides = [2], output_padding = [1]> (x, w) }"""


def test_each_row_is_of_a_check_and_of_a_version_that_is_known() -> None:
    rows = list(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()))
    assert {x["check"] for x in rows} <= {*rules(), *registry.pass_names()}
    assert {x["version"] for x in rows} <= {x.version for x in table.PROVIDERS["dml"].distributions}


def test_a_version_before_the_repair_is_wrong() -> None:
    versions = ("1.9.0", "1.24.4", "1.30.0", "1.31.0")
    assert repaired_in("convtranspose-2d") == "1.30.0"
    assert wrong_versions("convtranspose-2d", versions) == ("1.9.0", "1.24.4")
    assert wrong_versions("matmul-4d", versions) == versions


@pytest.mark.parametrize(
    ("ep", "severity", "wrong"),
    [
        ("dml", "error", ("1.24.4",)),
        ("dml@1.24.4", "error", ()),
        ("dml@1.26.0", "error", ()),
        ("windowsml", "note", ()),
    ],
)
def test_a_finding_says_for_which_versions_it_holds(
    ep: str, severity: str, wrong: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphfix.runtime.python.has_provider", lambda _: False)
    (finding,) = check(conv_transpose(), "convtranspose-2d", ep=ep)
    assert (finding.severity, finding.versions) == (severity, wrong)
    is_narrow = ep in ("dml", "windowsml")
    assert finding.message.endswith(" (right from onnxruntime 1.30.0 on)") is is_narrow


def test_the_version_of_this_python_is_meant_where_it_has_directml(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("graphfix.runtime.python.has_provider", lambda _: True)
    monkeypatch.setattr("onnxruntime.__version__", "1.30.1")
    (finding,) = check(conv_transpose(), "convtranspose-2d")
    assert finding.severity == "note"


def conv_transpose() -> onnx.ModelProto:
    return onnx.parser.parse_model(MODEL)
