"""A sample of the planted faults of ``make mutants``: verification tells each of them."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.engine import pipeline
from graphfix.proof.verify import verify

sys.path.insert(0, str(Path(__file__).parent))

from conditions import condition_faults
from ingraph import graph_faults, plant, sample
from survey import Outcome, finished

MODELS = Path(__file__).parents[2] / "models"
HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
RNG = np.random.default_rng(0)
WEIGHTS = {
    "w": RNG.normal(size=(3, 4)).astype(np.float32),
    "table": RNG.normal(size=(6000, 2)).astype(np.float32),
    "few": RNG.normal(size=(16, 2)).astype(np.float32),
}
TEXTS = {
    "plain": "m (float[B, T, 3] x) => (float[B, T, 4] y) { y = MatMul (x, w) }",
    "pooled": "m (float[B, T, 3] x) => (float[B, 3] y) "
    "{ y = ReduceMean <axes = [1], keepdims = 0> (x) }",
    "tokens": "m (int64[B, T] ids) => (float[B, T, 2] y) { y = Gather (table, ids) }",
    "whole": "m (float[B, T] x, int64[B, T] n) => (float[B, T] y) "
    "{ f = Cast <to = 1> (n)  g = Mul (f, f)  y = Add (x, g) }",
    "gain": "m (float[B, T, 3] x, float[B, T, 1] a) => (float[B, T, 3] y) { y = Mul (x, a) }",
    "mask": """m (float[B, T, 4] x, int64[B, T] mask) => (float[B, T, 4] y)
        <int64[1] ax = {1}, int64 zero = {0}, float fill = {-10000.0}>
        { t = Transpose <perm = [0, 2, 1]> (x)  s = MatMul (x, t)
          e = Equal (mask, zero)  u = Unsqueeze (e, ax)  m = Where (u, fill, s)
          p = Softmax (m)  y = MatMul (p, x) }""",
    "lengths": """m (float[B, T, 2] x, int64[B] n) => (float[B, T, 2] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] ax1 = {1}, int64[1] ax2 = {2}>
        { t = Shape <start = 1, end = 2> (x)  k = Squeeze (t)  r = Range (zero, k, one)
          c = Unsqueeze (n, ax1)  l = Less (r, c)  f = Cast <to = 1> (l)
          m = Unsqueeze (f, ax2)  y = Mul (x, m) }""",
    "cache": """m (float[B, T, 4] x, float[B, 2, P, 2] past) => (float[B, 2, Q, 2] y)
        <int64[4] heads = {0, 0, 2, 2}>
        { r = Reshape (x, heads)  t = Transpose <perm = [0, 2, 1, 3]> (r)
          y = Concat <axis = 2> (past, t) }""",
    "language": """m (float[B, T, 2] x, int32[B] lang, int32[1] mode) => (float[B, T, 2] y)
        <int64[1] one = {1}>
        { e = Gather (few, lang)  u = Unsqueeze (e, one)  z = Add (x, u)
          k = Gather (few, mode)  v = Unsqueeze (k, one)  y = Add (z, v) }""",
    "image": """m (float[B, 1, H, W] x) => (float[B, 2, H, W] y)
        <float[4] up = {1.0, 1.0, 32.0, 32.0}>
        { d = MaxPool <kernel_shape = [32, 32], strides = [32, 32]> (x)
          u = Resize <mode = "nearest"> (d, , up)  y = Concat <axis = 1> (x, u) }""",
    "logarithm": "m (float[B, T] x) => (float[B, T] y) "
    "{ l = Log (x)  m = ReduceMean <axes = [1]> (l)  y = Sub (l, m) }",
}
# Conditions that no input of such a model makes hold.
IMPOSSIBLE = {
    "image": {"T odd", "T = 1"},
    "logarithm": {"a value under -1e4"},
}


def model(text: str) -> ir.Model:
    known = [f"float[{a.shape[0]}, {a.shape[1]}] {n}" for n, a in WEIGHTS.items()]
    body, _, rest = text.partition(") =>")
    made = ir.from_onnx_text(f"{HEAD}{body}, {', '.join(known)}) =>{rest}")
    for name, array in WEIGHTS.items():
        value = next(x for x in made.graph.inputs if x.name == name)
        made.graph.inputs.remove(value)
        if value.uses():
            value.const_value = ir.tensor(array, name=name)
            made.graph.register_initializer(value)
    return made


@pytest.mark.parametrize("name", TEXTS)
def test_every_condition_is_told(name: str) -> None:
    right = model(TEXTS[name])
    assert verify(right, right).ok
    planted = 0
    for kind, make in condition_faults(right):
        verdict = verify(right, make(right), locate=False)
        assert not verdict.reason
        assert verdict.ok == (kind in IMPOSSIBLE.get(name, ())), kind
        planted += 1
    assert planted


@pytest.mark.parametrize("name", ["sensevoice", "llama"])
def test_faults_in_the_graph_are_told(name: str) -> None:
    before = graphfix.load(MODELS / name / "model.onnx")
    after = graphfix.load(MODELS / name / "model.onnx")
    report = pipeline.run(after, pipeline.resolve_passes(pipeline.DEFAULT))
    found = sample(list(graph_faults(after)), 1)
    assert {kind for kind, _, _ in found} >= {"an axis", "a swapped pair", "a lost scale"}
    for kind, place, change in found:
        wrong = plant(after, place, change)
        assert wrong is not None
        assert not verify(before, wrong, safety=report.safety, locate=False).ok, kind


def test_a_survey_that_was_ended_keeps_whole_models(tmp_path: Path) -> None:
    outcomes = [
        Outcome(name, "graph", "an axis", "", told=True, reason="") for name in ("a", "a", "b")
    ]
    rows = [*map(asdict, outcomes[:2]), {"done": "a"}, asdict(outcomes[2])]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(x) + "\n" for x in rows), encoding="utf-8")
    assert finished(log) == {"a": outcomes[:2]}
