"""Inputs that are made constants before a model is shipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.shipping.chosen_inputs import constants_of, fix_and_fold_inputs, fix_inputs
from tests.feeds.small_models import HEAD
from tests.shipping.conftest import saved

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """m (float[T] x, bool flag) => (float[T] y) { y = If (flag) <
    then_branch = t () => (float[T] p) { p = Neg (x) },
    else_branch = e () => (float[T] q) { q = Abs (x) }> }"""


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def test_only_what_a_pass_names_is_fixed() -> None:
    model = ir.from_onnx_text(HEAD + TEXT)
    assert fix_inputs(model, "fast,float16") is model
    assert [x.name for x in model.graph.inputs] == ["x", "flag"]
    fix_inputs(model, "fast,fix-input:flag=true,float16")
    assert [x.name for x in model.graph.inputs] == ["x"]
    assert operators(model) == ["If"]


def test_what_is_fixed_decides_branches() -> None:
    for word, op in (("true", "Neg"), ("false", "Abs")):
        model = ir.from_onnx_text(HEAD + TEXT)
        assert operators(fix_and_fold_inputs(model, f"fix-input:flag={word}")) == [op]
    # Where nothing is fixed nothing is folded.
    text = TEXT.replace("p = Neg (x)", "n = Identity (x)  p = Neg (n)")
    model = fix_and_fold_inputs(ir.from_onnx_text(HEAD + text), "fast")
    assert [x.op_type for x in model.graph.all_nodes()] == ["If", "Identity", "Neg", "Abs"]


def test_the_file_is_fed_what_is_fixed(tmp_path: Path) -> None:
    path = saved(HEAD + TEXT, tmp_path / "m.onnx")
    model = ir.load(path)
    assert constants_of(path, model) == {}
    fix_inputs(model, "fix-input:flag=true")
    ((name, array),) = constants_of(path, model).items()
    assert (name, array.tolist()) == ("flag", True)
