"""top-k: which outputs it takes, and what the proof tells of a wrong one."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.core import read_outputs
from graphfix.engine import pipeline
from graphfix.errors import UsageError
from tests.passes.models import execute, model, opened

CTC = """ctc (float[B, T, 3] x, float[3, 5] w, float[3, 5] u)
    => (float[B, T, 5] logits, float[B, T, 5] other)
    { logits = MatMul (x, w) other = MatMul (x, u) }"""
SPEC = "top-k:output=logits:k=2"


def shapes(m: ir.Model) -> list[str]:
    return [f"{x.name}{x.shape} {x.dtype}" for x in m.graph.outputs]


def ran(text: str, spec: str, opset: int = 18) -> ir.Model:
    m = model(text, opset)
    graphfix.run(m, spec)
    return m


def verdict(after: str, spec: str = SPEC) -> graphfix.Verdict:
    """What the proof says of a model that claims to have gone through a pass."""
    repaired = model(after)
    repaired.metadata_props[pipeline.PIPELINE_KEY] = spec
    return graphfix.verify(model(CTC), repaired)


def by_hand(axis: int = 2, k: int = 2, source: str = "logits", flags: str = "") -> str:
    return f"""ctc (float[B, T, 3] x, float[3, 5] w, float[3, 5] u)
        => (logits_values, logits_indices, float[B, T, 5] other)
        <int64[1] k = {{{k}}}>
        {{ logits = MatMul (x, w) other = MatMul (x, u)
          logits_values, logits_indices = TopK <axis = {axis} {flags}> ({source}, k) }}"""


def test_the_new_outputs_stand_where_the_old_one_stood():
    assert shapes(ran(CTC, SPEC)) == [
        "logits_values[B,T,2] FLOAT",
        "logits_indices[B,T,2] INT64",
        "other[B,T,5] FLOAT",
    ]


@pytest.mark.parametrize("opset", [9, 10, 11, 17])
def test_it_runs_at_each_opset(opset):
    m = ran(CTC, SPEC + ":indices=int32", opset)
    rng = np.random.default_rng(0)
    x, w, u = (rng.standard_normal(s).astype(np.float32) for s in ((2, 4, 3), (3, 5), (3, 5)))
    values, places, _ = execute(m, {"x": x, "w": w, "u": u})
    assert places.dtype == np.int32
    assert (values == np.sort(x @ w, -1)[..., :-3:-1]).all()
    assert (places == np.argsort(x @ w, -1)[..., :-3:-1]).all()


def test_what_is_right_is_proved_by_hand_too():
    assert verdict(by_hand()).ok


@pytest.mark.parametrize(
    "after",
    [
        by_hand(k=1),
        by_hand(k=3),
        by_hand(source="other"),
        by_hand(flags=", largest = 0"),
        by_hand(axis=1, k=2),
        by_hand().replace("logits_values, logits_indices = TopK", "a, logits_indices = TopK")[:-1]
        + "logits_values, b = TopK (other, k) }",
        by_hand().replace("logits_values, logits_indices = TopK", "logits_values, b = TopK")[:-1]
        + "a, logits_indices = TopK (other, k) }",
        by_hand().replace("logits_indices, float", "float"),
    ],
    ids=["k-1", "k-3", "head", "smallest", "axis", "values", "indices", "missing"],
)
def test_a_wrong_one_is_told(after):
    result = verdict(after)
    assert not result.ok
    assert "'logits'" in str(result) or "TopK" in str(result)


def test_the_other_outputs_are_compared_as_before():
    assert not verdict(by_hand().replace("other = MatMul (x, u)", "other = MatMul (x, w)")).ok


def test_ties_make_no_refusal():
    """Scores of -1, 0 and 1 have ties in every vector, in whatever order a kernel ranks them."""
    text = CTC.replace("logits = MatMul (x, w)", "z = MatMul (x, w) logits = Sign (z)")
    after = model(
        by_hand()
        .replace("logits = MatMul (x, w)", "z = MatMul (x, w) logits = Sign (z)")
        # The last of equals first: the scores are reversed, ranked, and the places counted back.
        .replace(
            "logits_values, logits_indices = TopK <axis = 2 > (logits, k)",
            """back = Slice (logits, from, to, axis, step)
               logits_values, turned = TopK <axis = 2> (back, k)
               logits_indices = Sub (four, turned)""",
        )
        .replace(
            "k = {2}>",
            "k = {2}, int64[1] from = {-1}, int64[1] to = {-9}, int64[1] axis = {2}, "
            "int64[1] step = {-1}, int64 four = {4}>",
        )
    )
    after.metadata_props[pipeline.PIPELINE_KEY] = SPEC
    assert graphfix.verify(model(text), after).ok


def test_it_goes_with_a_rename_and_with_another_head():
    spec = f"rename:other=more,{SPEC},top-k:output=more:k=3:axis=1,rename:logits_values=best"
    text = CTC.replace("B, T", "B, 4")
    m = ran(text, spec)
    assert [x.name for x in m.graph.outputs] == [
        "best",
        "logits_indices",
        "more_values",
        "more_indices",
    ]
    assert graphfix.verify(model(text), m).ok
    wrong = ran(text.replace("logits = MatMul (x, w)", "logits = MatMul (x, u)"), spec)
    assert not graphfix.verify(model(text), wrong).ok


def test_outputs_are_told_there_and_back():
    """What a chain of passes makes of outputs tells these outputs again."""
    chosen = pipeline.parse_passes(
        f"{SPEC},rename:logits_values=v,select-output:keep=v+logits_indices"
    )
    scores = np.random.default_rng(0).standard_normal((2, 3, 5)).astype(np.float32)
    old = {"logits": scores, "other": scores}
    new = old
    for check in chosen:
        new = check.outputs(new)
    assert sorted(new) == ["logits_indices", "v"]
    back = read_outputs(chosen, new, old)
    assert back["other"] is None
    assert (back["logits"] == scores).all()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("top-k:output=logit:k=2", "did you mean 'logits'"),
        ("top-k:output=logits", "give how many"),
        ("top-k:output=logits:k=9", "give k=5 at most"),
        ("top-k:output=logits:k=2:axis=1", "no fixed size"),
        ("top-k:output=logits:k=2:axis=3", "no axis 3"),
        ("rename:other=logits_values,top-k:output=logits:k=2", "is called 'logits_values' already"),
    ],
)
def test_what_does_not_fit_is_a_sentence(spec, words):
    with pytest.raises(UsageError, match=words):
        ran(CTC, spec)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("m (bool[B, 5] x) => (bool[B, 5] logits) { logits = Not (x) }", "only numbers"),
        ("m (float[B, 5] logits) => (float[B, 5] logits) { y = Neg (logits) }", "is an input"),
    ],
)
def test_what_cannot_be_ranked_is_a_sentence(text, words):
    with pytest.raises(UsageError, match=words):
        ran(text, SPEC)


def test_it_knows_a_size_that_is_declared_nowhere():
    text = "m (float[B, 3] x) => (float logits) <float[3, 4] w = {1,2,3,4,5,6,7,8,9,1,2,3}> "
    m = model(f"{text}{{ logits = MatMul (x, w) }}")
    m.graph.outputs[0].shape = None
    graphfix.run(m, SPEC)
    assert [str(x.shape) for x in m.graph.outputs] == ["[B,2]", "[B,2]"]
    assert opened(m)
