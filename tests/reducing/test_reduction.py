"""graphfix.reduce: from a model that fails to files for a bug report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.errors import FeedError, UsageError
from graphfix.reducing import reduction as module
from graphfix.reducing.failure import Failure, Trial
from tests.reducing.test_failure import WrongAdd

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
CHAIN = (
    HEAD
    + """m (float[T, 4] x) => (float[T, 4] y) {
    a = Abs (x)  b = Exp (a)  [sum] c = Add (b, a)  y = Relu (c) }"""
)
KILLED = (
    HEAD
    + """m (float[T, 4] x) => (float[T, 4] y) <int64[1] least = {-9223372036854775808}> {
    r = Relu (x)  s = Shape (r)  z = Sub (s, s)  h = Neg (s)  one = Div (h, s)
    [fatal] d = Div (least, one)  i = Mul (d, z)  f = CastLike (i, r)
    m = ReduceSum <keepdims = 0> (f)  y = Add (r, m) }"""
)


def model(text: str = CHAIN) -> ir.Model:
    return ir.from_onnx_text(text)


def test_a_wrong_pass_is_shown_at_one_node() -> None:
    found = graphfix.reduce(model(), ep="cpu", passes=WrongAdd())
    assert [x.op_type for x in found.model.graph] == ["Add"]
    assert found.failure.kind == "differs"
    assert found.nodes_before == 4
    assert "# Add: wrong numbers after wrong-add" in found.report
    assert found.line.startswith("Add: output 'c' differs")
    assert not found.passes


def test_a_model_that_kills_its_process_everywhere() -> None:
    found = graphfix.reduce(model(KILLED), ep="cpu")
    assert [x.name for x in found.model.graph] == ["fatal"]
    assert found.failure.kind == "dies"
    assert {name: x.tolist() for name, x in found.feeds.items()} == {"one": [-1]}


def test_a_slow_model() -> None:
    found = graphfix.reduce(model(), ep="cpu", slower_than=1e-9, budget=5)
    assert len(found.model.graph) == 1
    assert found.failure.kind == "slow"


def test_the_users_inputs_are_tried_alone() -> None:
    feeds = {"x": np.ones((2, 4), np.float32)}
    with pytest.raises(UsageError, match="does not fail on the CPU with these feeds"):
        graphfix.reduce(model(), ep="cpu", feeds=feeds)
    spoilt = graphfix.reduce(model(), ep="cpu", feeds=feeds, passes=WrongAdd())
    assert [x.op_type for x in spoilt.model.graph] == ["Add"]


def test_a_model_that_does_not_fail_is_told() -> None:
    with pytest.raises(UsageError, match="with inputs that were made; --feeds takes yours"):
        graphfix.reduce(model(), ep="cpu")


def test_a_model_without_inputs_that_run_is_told_on_another_provider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Trial, "observe_against", lambda *_: None)
    with pytest.raises(FeedError):
        graphfix.reduce(model(KILLED), ep="dml")


def test_a_repair_that_graphfix_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider that refuses allowzero, as DirectML does."""

    def observe(_: Trial, candidate: module.Candidate, __: object) -> Failure | None:
        refused = any("allowzero" in x.attributes for x in candidate.model.graph)
        return Failure("fails", "8007023E", "8007023E") if refused else None

    monkeypatch.setattr(Trial, "observe_against", observe)
    text = (
        HEAD
        + """m (float[2, 12] x) => (float[2, 3, 4] y) <int64[3] target = {2, -1, 4}> {
        a = Abs (x) [view] y = Reshape <allowzero = 1> (a, target) }"""
    )
    found = graphfix.reduce(model(text), ep="cpu")
    assert [x.name for x in found.model.graph] == ["view"]
    assert found.passes == ("reshape-allowzero",)
    assert "graphfix run model.onnx -p reshape-allowzero" in found.report


def test_ctrl_c_keeps_the_smallest_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    observed, calls = Trial.observe_against, []

    def observe(trial: Trial, candidate: module.Candidate, expected: Any) -> Failure | None:
        calls.append(candidate)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return observed(trial, candidate, expected)

    monkeypatch.setattr(Trial, "observe_against", observe)
    found = graphfix.reduce(model(), ep="cpu", passes=WrongAdd())
    assert found.failure.kind == "differs"
    assert len(found.model.graph) < 4
    assert found.spent == "Ctrl-C"


def test_what_was_read_is_not_overwritten(tmp_path: Path) -> None:
    path, feeds = tmp_path / "m.onnx", tmp_path / "small.npz"
    ir.save(model(), path)
    np.savez(feeds, x=np.ones((2, 4), np.float32))
    before = path.read_bytes(), feeds.read_bytes()
    found = graphfix.reduce(path, ep="cpu", passes=WrongAdd(), feeds=feeds)
    for target in (path, tmp_path / "small.onnx"):
        with pytest.raises(UsageError, match="is read for this work"):
            found.save(target)
    assert (path.read_bytes(), feeds.read_bytes()) == before
    assert not (tmp_path / "small.onnx").exists()


def test_what_is_saved_fails_again(tmp_path: Path) -> None:
    found = graphfix.reduce(model(), ep="cpu", passes=WrongAdd())
    files = found.save(tmp_path / "small.onnx")
    assert [x.name for x in files] == ["small.onnx", "small.npz", "small.md"]
    onnx.checker.check_model(str(files[0]))
    again = graphfix.reduce(files[0], ep="cpu", passes=WrongAdd(), feeds=files[1])
    assert again.failure.kind == "differs"
    assert files[2].read_text(encoding="utf-8") == found.report
    assert found.to_json()["nodes"] == {"before": 4, "after": 1}


# A repaired CHAIN, without a node that it does not need, and with another one; its sum is wrong.
REPAIRED = (
    HEAD
    + """m (float[T, 4] x) => (float[T, 4] y) {
    new = Identity (x)  a = Abs (new)  b = Exp (a)  sum = Sub (b, a)  c = Identity (sum)
    y = Relu (c) }"""
)


def test_a_wrong_repair_is_shown_beside_the_original(tmp_path: Path) -> None:
    found = graphfix.reduce(model(REPAIRED), ep="cpu", original=model())
    assert [x.op_type for x in found.model.graph] == ["Sub", "Identity"]
    assert found.original is not None
    assert [x.op_type for x in found.original.graph] == ["Add"]
    assert set(found.feeds) == {"a", "b"}
    assert "# Sub, Identity: wrong numbers compared with the original" in found.report
    assert "## The original" in found.report
    assert "repairs" not in {x.label for x in found.rows()}
    files = found.save(tmp_path / "small.onnx")
    assert files[3].name == "small.original.onnx"
    again = graphfix.reduce(files[0], ep="cpu", original=files[3], feeds=files[1])
    assert again.failure.kind == "differs"
    with pytest.raises(UsageError, match="is read for this work"):
        again.save(files[0])


def test_a_right_repair_is_told() -> None:
    with pytest.raises(UsageError, match="computes what its original computes"):
        graphfix.reduce(model(REPAIRED.replace("Sub", "Add")), ep="cpu", original=model())


def test_another_number_that_hides_a_score_is_no_fault() -> None:
    """Nor is a dim of 1 that broadcasts, where the original has it spread."""
    text = (
        HEAD
        + """m (float[T, 4] x, bool[T, 4] m) => (float[T, 4] y) <float low = {-1e9}> {
        s = Where (m, x, low)  p = Softmax (s)  y = Add (p, p) }"""
    )
    wrong = text.replace("-1e9", "-1e4").replace("Add (p, p)", "Mul (p, p)")
    feeds = {"x": np.ones((2, 4), np.float32), "m": np.array([[1, 1, 1, 0]] * 2, np.bool_)}
    found = graphfix.reduce(model(wrong), ep="cpu", original=model(text), feeds=feeds)
    assert [x.op_type for x in found.model.graph] == ["Mul"]
