"""What graphfix plan foresees, one graph for each reason; tests/dml/test_plan.py asks DirectML."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphfix import planning, strip
from graphfix.cli import main
from graphfix.errors import ModelError, UsageError
from graphfix.measure.placement import parse

MODELS = Path(__file__).parents[1] / "models"


@dataclass(frozen=True)
class Case:
    """A graph, and what is foreseen for it."""

    text: str
    where: str
    """Where each node runs, in order: f(used), d(ml), c(pu), g(one)."""
    why: str = ""
    """Part of the reason of some node."""
    graphs: int = 0
    copies: int = 0
    opset: int = 18

    def model(self) -> ir.Model:
        head = f'<ir_version: 8, opset_import: ["": {self.opset}, "com.microsoft": 1]>\n'
        text = self.text if self.text.startswith("<") else head + self.text
        return ir.from_proto(onnx.parser.parse_model(text))


CASES = {
    # What is gone before a provider is asked.
    "a constant": Case(
        "g (float[2, 4] x) => (float[2, 4] y) { c = Constant <value = float {2.0}> () "
        "y = Mul (x, c) }",
        "gf", "a constant", graphs=1,
    ),
    "folded": Case(
        "g (float[2, 4] x) => (float[2, 4] y) <float[4] w = {1, 2, 3, 4}> "
        "{ e = Exp (w)  y = Mul (x, e) }",
        "gf", "computed from constants", graphs=1,
    ),
    "a static Shape": Case(
        "g (float[2, 4] x) => (float[2, 4] y) { s = Shape (x)  r = Relu (x)  "
        "y = Reshape (r, s) }",
        "gff", "computed from constants", graphs=1,
    ),
    "the same twice": Case(
        "g (float[T, 4] x) => (float[T, 4] y) { a = Exp (x)  b = Exp (x)  y = Add (a, b) }",
        "gdd", "the same as another",
    ),
    # What stays on the CPU.
    "no kernel": Case(
        "g (float[T, 4] x) => (float[T, 4] y) { a = Relu (x)  b = RandomNormalLike (a)  y = Neg (b) }",
        "dcd", "no kernel for RandomNormalLike", copies=2,
    ),
    "no kernel of this version": Case(
        "g (float[2, 4] x) => (float[2, 4] y) { a = Relu (x)  y = Sin (a) }",
        "fc", "no kernel for Sin-22, the last is of opset 21", graphs=1, copies=1, opset=22,
    ),
    "no kernel for this type": Case(
        "g (int64[T] x) => (int64[T] y) <int64 n = {4}> { a = Abs (x)  b = Mod (a, n)  "
        "y = Neg (b) }",
        "dcd", "no kernel for Mod of int64", copies=2,
    ),
    "a refusal": Case(
        "g (float[1, 1, 4, 4] x) => (float[1, 1, 8, 8] y) <float[4] scales = {1, 1, 2, 2}> "
        '{ y = Resize <mode = "cubic"> (x, , scales) }',
        "c", "refuses mode=cubic",
    ),
    "shape arithmetic": Case(
        "g (float[B, T, 8] x) => (float[B, T, 4, 2] y) <int64[2] head = {4, 2}> "
        "{ s = Shape <start = 0, end = 2> (x)  c = Concat <axis = 0> (s, head)  "
        "r = Relu (x)  y = Reshape (r, c) }",
        "dcdd", "computes a shape",
    ),
    "an index stays on DirectML": Case(
        "g (float[T, 4] x) => (int64[T, 1] y) <int64 zero = {0}, int64 one = {1}, "
        "int64[1] last = {1}> { s = Shape <start = 0, end = 1> (x)  t = Squeeze (s)  "
        "r = Range (zero, t, one)  y = Unsqueeze (r, last) }",
        "dcdd", "computes a shape",
    ),
    # What fuses.
    "all static": Case(
        "g (float[2, 4] x) => (float[2, 4] y) { a = Exp (x)  b = Neg (a)  y = Add (a, b) }",
        "fff", graphs=1,
    ),
    "a size is open": Case(
        "g (float[T, 4] x) => (float[T, 4] y) { a = Exp (x)  y = Neg (a) }",
        "dd", "a size is open",
    ),
    "a length from data": Case(
        "g (float[2, 4] x, int64[2] s) => (float[N, M] y) { a = Exp (x)  y = Reshape (a, s) }",
        "fd", "computed, not constant", graphs=1,
    ),
    "no form for a graph": Case(
        "g (float[3, 1, 4] x) => (float[3, 1, 2, 4] y) <float[1, 12, 4] w = {0}, "
        "float[1, 12, 4] r = {0}> { a = Exp (x)  h = GRU <hidden_size = 4> (a, w, r)  "
        "y = Neg (h) }".replace("float[1, 12, 4] w = {0}", "float[1, 12, 4] w = {"
        + ", ".join(["0.1"] * 48) + "}").replace("float[1, 12, 4] r = {0}",
        "float[1, 12, 4] r = {" + ", ".join(["0.1"] * 48) + "}").replace("[3, 1, 2, 4]", "[3, 1, 1, 4]"),
        "fdf", "GRU has no place", graphs=2,
    ),
    "three operands": Case(
        "g (float[4] x, float[4] z) => (float[4] y) { a = Exp (x)  b = Neg (z)  "
        "c = Sum (a, b, x)  y = Sqrt (c) }",
        "ffdf", "Sum has 3 inputs", graphs=3,
    ),
    "the CPU between": Case(
        "g (float[2, 4] x) => (float[2, 4] y) { a = Exp (x)  b = RandomNormalLike (a)  c = Neg (b)  "
        "y = Add (a, c) }",
        "fcff", "no kernel for RandomNormalLike", graphs=2, copies=2,
    ),
    "a graph that was used is closed": Case(
        "g (float[2, 4] x) => (float[2, 4] y, float[2, 4] z) { a = Exp (x)  b = RandomNormalLike (a)  "
        "y = Neg (b)  z = Sqrt (a) }",
        "fcff", "no kernel for RandomNormalLike", graphs=3, copies=2,
    ),
    "two that meet": Case(
        "g (float[4] x, float[4] z) => (float[4] y) { a = Exp (x)  b = Neg (z)  "
        "y = Add (a, b) }",
        "fff", graphs=1,
    ),
    "two apart": Case(
        "g (float[4] x, float[4] z) => (float[4] y, float[4] w) { y = Exp (x)  w = Neg (z) }",
        "ff", graphs=2,
    ),
    "an activation": Case(
        "g (float[T, 4] x, float[T, 4] z) => (float[T, 4] y) { a = Add (x, z)  y = Relu (a) }",
        "dd", "a size is open",
    ),
    "an activation that others use": Case(
        "g (float[T, 4] x, float[T, 4] z) => (float[T, 4] y, float[T, 4] a) "
        "{ a = Add (x, z)  y = Relu (a) }",
        "dd", "a size is open",
    ),
    # Control flow.
    "an If": Case(
        "g (float[2, 4] x, bool c) => (float[2, 4] y) { b = Exp (x)  y = If (c) "
        "<then_branch = t () => (float[2, 4] p) { p = Neg (b) }, "
        "else_branch = e () => (float[2, 4] q) { q = Sqrt (b) }> }",
        "dddd", "with If in the graph",
    ),
    "an If that is decided": Case(
        "g (float[2, 4] x) => (float[2, 4] y) <bool c = {1}> { b = Exp (x)  y = If (c) "
        "<then_branch = t () => (float[2, 4] p) { r = Neg (b)  p = Exp (r) }, "
        "else_branch = e () => (float[2, 4] q) { q = Sqrt (b) }> }",
        "ffffg", "branch", graphs=1,
    ),
    "a Loop": Case(
        "g (float[2, 4] x, int64 n) => (float[2, 4] y) <bool go = {1}> { b = Exp (x)  "
        "y = Loop (n, go, b) <body = l (int64 i, bool k, float[2, 4] p) => "
        "(bool k2, float[2, 4] q) { k2 = Identity (k)  q = Neg (p) }> }",
        "dcdd", "no kernel for Loop", copies=2,
    ),
    # Types and domains.
    "float16": Case(
        "g (float16[2, 4] x, float16[4, 4] w) => (float[2, 4] y) { a = MatMul (x, w)  "
        "b = Softmax (a)  y = Cast <to = 1> (b) }",
        "fff", graphs=1,
    ),
    "a contrib operator": Case(
        "g (float[2, 4] x) => (float[2, 4] y) { a = Exp (x)  y = com.microsoft.Gelu (a) }",
        "ff", graphs=1,
    ),
    "a pattern": Case(
        "g (float[2, 4] x, float[4] w, float[4] b) => (float[2, 4] y) <int64[1] last = {-1}, "
        "float two = {2.0}, float eps = {0.00001}> { m = ReduceMean (x, last)  d = Sub (x, m)  "
        "p = Pow (d, two)  v = ReduceMean (p, last)  e = Add (v, eps)  s = Sqrt (e)  "
        "n = Div (d, s)  k = Mul (n, w)  y = Add (k, b) }",
        "fffffffff", "part of LayerNormalization", graphs=1,
    ),
    "a local function": Case(
        '<ir_version: 8, opset_import: ["": 18, "l": 1]>\n'
        "g (float[2, 4] x) => (float[2, 4] y) { a = l.f (x)  y = Neg (a) }\n"
        '<domain: "l", opset_import: ["": 18]> f (x) => (y) { b = Neg (x)  y = Exp (b) }',
        "ff", graphs=1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_node_is_foreseen(name: str) -> None:
    case = CASES[name]
    plan = planning.plan(case.model())
    assert "".join(x.where[0] for x in plan.places) == case.where, plan.places
    assert not case.why or any(case.why in x.why for x in plan.places), plan.places
    assert plan.steps_on("graph") == case.graphs, plan.steps
    assert plan.steps_on("copy") == case.copies, plan.steps
