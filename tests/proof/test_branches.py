"""Branches of an If that no made-up input takes are forced, in both models."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.proof import branches
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
    verdict = verify(model(COPIES), model(WHERE.replace("{taken}", "x")))
    assert verdict.ok
    assert sum("forced" in name for name in verdict.cases) == 2
    assert not any("branch" in what for what in verdict.not_tried)


def test_a_fault_in_a_where_that_never_chooses_so():
    verdict = verify(model(COPIES), model(WHERE.replace("{taken}", "b")))
    assert not verdict.ok
    assert "the then branch of If 'y' forced" in str(verdict)


NESTED = """m (float[2, B] s, float[B, T] x) => (float[B, T] y)
    <int64 most = {most}, int64 first = {0}, int64 at = {1}>
    { s0 = Shape (s)  t0 = Gather (s0, first)  two = Cast <to = 9> (t0)
      s1 = Shape (x)  t = Gather (s1, at)  long = Greater (t, most)
      y = If (asks) <
          then_branch = then_graph () => (float[B, T] a) {
              a = If (long) <
                  then_branch = long_graph () => (float[B, T] l) { l = Tanh (x) },
                  else_branch = short_graph () => (float[B, T] h) { h = Neg (x) }> },
          else_branch = else_graph () => (float[B, T] b) { b = Abs (x) }> }"""
DECIDED = NESTED.replace("asks", "two").replace("{most}", "{3}")


def test_a_branch_that_the_shapes_rule_out_is_not_forced():
    before, after = model(DECIDED), model(DECIDED)
    assert graphfix.run(after, "fold").changed
    assert [x.inputs[0].name for x in after.graph if x.op_type == "If"] == ["long"]
    verdict = verify(before, after)
    assert verdict.ok, str(verdict)
    assert not any("branch" in what for what in (*verdict.cases, *verdict.not_tried))


def test_an_if_that_asks_something_else_is_not_taken_for_it():
    # What is forced is c; the If that is left asks for d.
    text = """m (float[B, T] x) => (float[B, T] y)
    <int64 few = {3}, int64 most = {5000}, int64 at = {1}>
    { s = Shape (x)  t = Gather (s, at)  c = Greater (t, most)  d = Greater (t, few) REST }"""
    inner = """If (d) <then_branch = g () => (float[B, T] a) { a = Tanh (x) },
        else_branch = h () => (float[B, T] b) { b = Neg (x) }>"""
    outer = f"""y = If (c) <then_branch = k () => (float[B, T] e) {{ e = {inner} }},
        else_branch = l () => (float[B, T] f) {{ f = {inner} }}>"""
    before, after = (model(text.replace("REST", x)) for x in (outer, f"y = {inner}"))
    verdict = verify(before, after)
    assert verdict.ok, str(verdict)
    assert "the then branch of If 'y'" in verdict.not_tried


def test_a_condition_that_is_computed_once_for_two():
    text = RARE.replace("y = If (long)", "again = Greater (t, most)  y = If (again)")
    wrong = RARE.replace("Tanh", "Sigmoid")
    assert not verify(model(text), model(wrong)).ok
    verdict = verify(model(text), model(RARE))
    assert verdict.ok
    assert sum("forced" in name for name in verdict.cases) == 2


def test_shapes_are_asked_for_only_where_a_branch_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ir.Model] = []
    shapes_of = branches.shapes_of
    monkeypatch.setattr(branches, "shapes_of", lambda x: asked.append(x) or shapes_of(x))
    head = '<ir_version: 8, opset_import: ["" : 17]> m'
    plain = ir.from_onnx_text(f"{head} (float[N] x) => (float[N] y) {{ y = Relu (x) }}")
    assert not [*branches.BranchRecord(plain).iter_untaken()]
    assert not asked
    asks = ir.from_onnx_text(
        f"""{head} (float[N] x) => (float[N] y) <float zero = {{0}}> {{
        s = ReduceMax <keepdims = 0> (x)  c = Greater (s, zero)
        y = If (c) <then_branch = t () => (float[N] p) {{ p = Relu (x) }},
                    else_branch = e () => (float[N] q) {{ q = Neg (x) }}> }}"""
    )
    found = branches.BranchRecord(asks)
    found.record_run({"c": np.array(True)})
    assert [x.is_then for x in found.iter_untaken()] == [False]
    assert asked == [asks]


INNER = """m (float[B, T] x) => (float[B, T] y) <int64 most = {5000}, int64 n = {3}, bool go = {1}>
    { y = Loop (n, go, x) <body = g (int64 i, bool c, float[B, T] a) => (bool d, float[B, T] b) {
        d = Identity (c)  long = Greater (i, most)
        b = If (long) <then_branch = p () => (float[B, T] l) { l = Tanh (a) },
                       else_branch = q () => (float[B, T] h) { h = Neg (a) }> }> }"""


def test_a_fault_in_an_if_in_a_loop():
    verdict = verify(model(INNER), model(INNER.replace("Tanh", "Sigmoid")))
    assert not verdict.ok
    assert "the then branch of If 'b' forced" in str(verdict)
    same = verify(model(INNER), model(INNER))
    assert same.ok
    assert not any("branch" in x or "trips" in x for x in same.not_tried)


def test_a_fault_where_both_conditions_are_rare():
    text = """m (float[B, T] x) => (float[B, T] y)
    <int64 most = {5000}, int64 at = {1}, float k = {1e9}>
    { s = Shape (x)  t = Gather (s, at)  long = Greater (t, most)
      y = If (long) <
          then_branch = o () => (float[B, T] a) {
              m = ReduceMax <keepdims = 0> (x)  big = Greater (m, k)
              a = If (big) <then_branch = p () => (float[B, T] l) { l = Tanh (x) },
                            else_branch = q () => (float[B, T] h) { h = Neg (x) }> },
          else_branch = e () => (float[B, T] b) { b = Abs (x) }> }"""
    verdict = verify(model(text), model(text.replace("Tanh", "Sigmoid")))
    assert not verdict.ok
    assert "the then branch of If 'a' forced" in str(verdict)
    assert verify(model(text), model(text)).ok


def test_trips_that_depend_on_the_input_are_said():
    text = INNER.replace("int64 n = {3}", "int64 at = {1}").replace(
        "{ y = Loop", "{ s = Shape (x)  n = Gather (s, at)  y = Loop"
    )
    verdict = verify(model(text), model(text))
    assert verdict.ok
    assert "more trips of Loop 'y'" in verdict.not_tried
