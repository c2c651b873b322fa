"""merge: proved as a chain, at one opset, and written only if it is the same."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

import graphfix
from graphfix.editing import join
from graphfix.errors import UsageError
from graphfix.job import merging
from tests.passes.models import model

FRONT = """front (float[B, S] audio) => (float[B, S, 2] feats)
    <float[2] w = {1.0, 2.0}, int64[1] last = {2}>
    { u = Unsqueeze (audio, last) feats = Mul (u, w) }"""
ENCODER = """encoder (float[N, T, 2] feats) => (float[N, T, 2] y)
    { u = Softmax <axis = 2> (feats) y = Neg (u) }"""


def saved(path: Path, text: str, opset: int = 17) -> Path:
    ir.save(model(text, opset), path)
    return path


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return saved(tmp_path / "a.onnx", FRONT), saved(tmp_path / "b.onnx", ENCODER)


@pytest.mark.parametrize("connect", [None, {"feats": "feats"}])
def test_two_files_become_one(pair, tmp_path, connect):
    merged = graphfix.merge(*pair, connect, tmp_path / "c.onnx")
    assert merged
    assert merged.verdict is not None
    assert len(merged.verdict.cases) > 5
    assert any("optimized" in name for name in merged.verdict.cases)
    names = [x.name for x in graphfix.load(tmp_path / "c.onnx").graph.inputs]
    assert names == ["audio"]
    assert graphfix.fix(tmp_path / "c.onnx", "directml").ok


def test_models_in_memory_are_not_changed():
    first, second = model(FRONT), model(ENCODER)
    before = [ir.to_proto(x) for x in (first, second)]
    merged = graphfix.merge(first, second)
    assert merged
    assert [ir.to_proto(x) for x in (first, second)] == before
    assert [x.name for x in merged.model.graph.outputs] == ["y"]


@pytest.mark.parametrize("check", [True, False])
def test_a_fault_is_told_and_nothing_is_written(pair, tmp_path, monkeypatch, check):
    """Without the Neg at the end, as a join might lose it."""

    def spoil(*args: object) -> join.Joined:
        joined = join.join_models(*args)
        node = joined.model.graph.outputs[0].producer()
        assert node is not None
        node.op_type = "Abs"
        return joined

    monkeypatch.setattr(merging, "join_models", spoil)
    merged = graphfix.merge(*pair, output=tmp_path / "c.onnx", check=check)
    assert bool(merged) == (not check)
    assert (tmp_path / "c.onnx").exists() == (not check)
    assert not check or "output 'y' differs" in str(merged)


@pytest.mark.parametrize("opsets", [(13, 17), (17, 13), (17, 11)])
def test_opsets_are_made_equal_and_that_is_proved(tmp_path, opsets):
    first = saved(tmp_path / "a.onnx", FRONT, opsets[0])
    second = saved(tmp_path / "b.onnx", ENCODER, opsets[1])
    merged = graphfix.merge(first, second)
    assert merged
    assert merged.converted == tuple(sorted(opsets))
    assert merged.model.opset_imports[""] == 17


def test_without_a_common_name_there_is_a_sentence(pair):
    with pytest.raises(UsageError, match="--connect OUTPUT=INPUT"):
        graphfix.merge(pair[1], pair[1])


def test_other_versions_of_a_domain_are_a_sentence(pair):
    first, second = model(FRONT), model(ENCODER)
    first.opset_imports["com.microsoft"], second.opset_imports["com.microsoft"] = 1, 2
    with pytest.raises(UsageError, match=r"com\.microsoft at versions 1 and 2"):
        graphfix.merge(first, second)


def test_an_input_is_not_overwritten(pair):
    with pytest.raises(UsageError):
        graphfix.merge(*pair, output=pair[1])
