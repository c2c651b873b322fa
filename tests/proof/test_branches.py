"""Branches of an If that no made-up input takes are forced, in both models."""

from __future__ import annotations

import onnx_ir as ir

import graphfix
from graphfix.proof.verify import verify

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
RARE = """m (float[B, T] x) => (float[B, T] y) <int64 most = {5000}, int64 at = {1}>
    { s = Shape (x)  t = Gather (s, at)  long = Greater (t, most)
      y = If (long) <
          then_branch = long_graph () => (float[B, T] a) { a = Tanh (x) },
          else_branch = short_graph () => (float[B, T] b) { b = Neg (x) }> }"""


def model(text: str) -> ir.Model:
    return ir.from_onnx_text(HEAD + text)


def test_a_fault_in_a_branch_that_is_never_taken():
    verdict = verify(model(RARE), model(RARE.replace("Tanh", "Sigmoid")))
    assert not verdict.ok
    assert "the then branch of If 'y' forced" in str(verdict)


def test_both_branches_are_run():
    verdict = verify(model(RARE), model(RARE))
    assert verdict.ok
    assert sum("forced" in name for name in verdict.cases) == 2
    assert not any("branch" in what for what in verdict.not_tried)


def test_a_branch_that_cannot_be_forced_is_said():
    cannot = RARE.replace(
        "a = Tanh (x)",
        "c = Constant <value_ints = [7, 7, 7]> () d = Reshape (x, c) a = Identity (d)",
    )
    verdict = verify(model(cannot), model(cannot))
    assert verdict.ok
    assert "the then branch of If 'y'" in verdict.not_tried


COPIES = RARE.replace("a = Tanh (x)", "a = Identity (x)")
WHERE = COPIES[: COPIES.index("y = If")] + "b = Neg (x) y = Where (long, {taken}, b) }"


def test_a_where_in_the_place_of_an_if():
    after = model(COPIES)
    assert graphfix.run(after, "if-where").changed
    verdict = verify(model(COPIES), after)
    assert verdict.ok
    assert sum("forced" in name for name in verdict.cases) == 2
    assert not any("branch" in what for what in verdict.not_tried)


def test_a_fault_in_a_where_that_never_chooses_so():
    right, wrong = (model(WHERE.replace("{taken}", x)) for x in ("x", "b"))
    assert verify(model(COPIES), right).ok
    verdict = verify(model(COPIES), wrong)
    assert not verdict.ok
    assert "the then branch of If 'y' forced" in str(verdict)
