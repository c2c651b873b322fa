"""What ONNX Runtime knows when a session is made, as the rules ask it."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts import view as views
from graphfix.facts.view import View
from graphfix.job import checking
from graphfix.rules.rule import is_fixed, is_folded


def fixed(body: str) -> set[str | None]:
    view = View(ir.from_onnx_text(f'<ir_version: 8, opset_import: ["" : 18, "f" : 1]> m {body}'))
    return {
        value.name
        for top in (view.model.graph, *(x.graph for x in view.model.functions.values()))
        for node in top.all_nodes()
        for value in node.outputs
        if is_fixed(value, view)
    }


def test_what_is_made_of_constants_alone() -> None:
    assert fixed(
        """(float[N] x) => (float[N] y) <float[2] w = {1, 2}>
        { c = Constant <value = float {3}> ()  a = Mul (w, c)  b = ReduceSum <keepdims = 0> (a)
          y = Add (x, b) }"""
    ) == {"a", "b", "c"}


def test_however_long_the_way_is() -> None:
    steps = " ".join(f"{{}}{i + 1} = Neg ({{}}{i})" for i in range(30))
    body = steps.replace("{}", "a") + steps.replace("{}", "x")
    got = fixed(f"(float[N] x0) => (float[N] y) <float a0 = {{1}}> {{ {body} y = Add (x30, a30) }}")
    assert got == {f"a{i}" for i in range(1, 31)}


def test_what_a_caller_may_give_is_not_nor_what_is_drawn() -> None:
    got = fixed(
        """(float[N] x, float[2] w = {1, 2}) => (float[N] y) <int64[1] size = {4}>
        { a = Neg (w)  r = RandomUniform <shape = [1]> ()  l = RandomUniformLike (size)
          s = ReduceSum <keepdims = 0> (a)  b = Add (x, s)  y = Add (b, r) }"""
    )
    assert not got


def test_in_a_branch_and_in_a_function() -> None:
    assert fixed(
        """(bool c, float[N] x) => (float[N] y) <float[1] w = {1}>
        { y = If (c) <then_branch = t () => (float[N] p) { a = Neg (w)  p = Add (x, a) },
                      else_branch = e () => (float[N] q) { q = f.more (x) }> }
        <domain: "f", opset_import: ["" : 18]> more (d) => (e)
        { k = Constant <value = float {3}> ()  e = Add (d, k) }"""
    ) == {"a", "k"}


def test_a_node_without_inputs_is_not_folded_and_a_constant_is() -> None:
    model = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 18]> m () => (float[1] y)
        { r = RandomNormal <shape = [1]> ()  k = Constant <value = float {3}> ()
          y = Add (r, k) }"""
    )
    assert [is_folded(x, View(model)) for x in model.graph] == [False, True, False]


def test_all_rules_share_one_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each asked by itself how every tensor is made, and walked up from each."""
    walks: list[View] = []
    walk = views.View.constant_values.func
    shared = views.cached_property(lambda view: walks.append(view) or walk(view))
    shared.__set_name__(View, "fixed")
    monkeypatch.setattr(View, "constant_values", shared)
    text = '<ir_version: 8, opset_import: ["" : 18]> m (float[N] x) => (float[N] y) { y = Neg (x) }'
    checking.check(ir.from_onnx_text(text))
    assert len(walks) == 1
