"""A length that the graph does not use, or only hands on: it is told of, and taken if asked for."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import graphfix
from graphfix.feeds.case_search import make_cases
from graphfix.probing.padded import padded

BODIES = {
    "unused": "y = ReduceMean <axes = [1]> (x)",
    "handed on": "y = ReduceMean <axes = [1]> (x)  o = Identity (x_lens)",
}


def saved(tmp_path: Path, body: str, shape: str = "[B]") -> Path:
    more = f", int64{shape} o" if "o =" in body else ""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T, 4] x, int64{shape} x_lens) => (float[B, 1, 4] y{more}) {{ {body} }}"""
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


@pytest.mark.parametrize("shape", ["[B]", "[1]", "[B, 1]"])
def test_what_is_not_used_is_fed_the_same_in_every_case_and_named(tmp_path: Path, shape: str):
    path = saved(tmp_path, BODIES["unused"], shape)
    cases = make_cases(path)
    assert {int(x) for case in cases for x in case.feeds["x_lens"].reshape(-1)} == {0}
    told = "the graph does not use the input 'x_lens'"
    assert any(told in x for x in graphfix.verify(path, path).notes)
    assert any(told in x and "ilens-mask:from=x_lens" in x for x in padded(path).notes)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_it_is_the_length_if_it_is_asked_for(tmp_path: Path, body: str):
    path = saved(tmp_path, body)
    report = graphfix.repair_file(path, tmp_path / "o.onnx", "ilens-mask:from=x_lens")
    assert report.output is not None, report.verdict
    assert report.padded is not None
    assert report.padded.ok
    assert padded(tmp_path / "o.onnx").told == ("x_lens",)
