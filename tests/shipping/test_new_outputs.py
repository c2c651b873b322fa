"""Passes that change outputs run before a model is shipped, and are proved by themselves."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

import graphfix
from graphfix.errors import UsageError, VerificationError
from graphfix.shipping import new_outputs
from graphfix.shipping.new_outputs import ShipSource, change_outputs, split_passes
from tests.passes.models import model

TEXT = """m (float[B, T, 3] x, float[3, 5] w) => (float[B, T, 5] logits)
    { logits = MatMul (x, w) }"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    ir.save(model(TEXT), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.mark.parametrize(
    ("spec", "changing", "others"),
    [
        ("", "", ""),
        ("directml,fix-dims,fast", "", "directml,fix-dims,fast"),
        ("fast,top-k:output=y:k=2,rename:y=z", "top-k:output=y:k=2,rename:y=z", "fast"),
        ("arg-max:output=logits", "arg-max:output=logits", ""),
        ("nonsense", "", "nonsense"),
    ],
)
def test_they_are_taken_out_of_the_others(spec, changing, others):
    assert split_passes(spec) == (changing, others)


def test_without_them_the_file_is_the_users(source, tmp_path):
    given = change_outputs(source, "directml", tmp_path, lambda _: None)
    assert given == ShipSource(source, source)


def test_they_are_run_into_a_file_of_the_same_name(source, tmp_path):
    given = change_outputs(source, "fast,arg-max:output=logits", tmp_path, lambda _: None)
    assert given.path.name == source.name
    assert given.path != source == given.origin
    assert given.with_passes("fast") == "arg-max:output=logits,fast"
    assert [x.name for x in graphfix.load(given.path).graph.outputs] == ["logits_indices"]


def test_one_that_is_not_proved_ends_it(source, tmp_path, monkeypatch):
    """A pass that gives the least, as if it were the largest."""
    from graphfix.engine import registry

    cls = registry.pass_class("arg-max")
    repair = cls.repair

    def spoil(self, model):
        yield from repair(self, model)
        for node in model.graph:
            if node.op_type == "ArgMax":
                node.op_type = "ArgMin"

    monkeypatch.setattr(cls, "repair", spoil)
    with pytest.raises(VerificationError, match="'logits'"):
        new_outputs.change_outputs(source, "arg-max:output=logits", tmp_path, lambda _: None)


def test_a_slip_is_a_sentence(source, tmp_path):
    with pytest.raises(UsageError, match="no output 'logit'"):
        change_outputs(source, "arg-max:output=logit", tmp_path, lambda _: None)
