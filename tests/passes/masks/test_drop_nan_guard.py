"""drop-nan-guard: which guards go, which stay and why, and that the numbers stay."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import execute, ops, refusals

HEAD = '<ir_version: 8, opset_import: ["" : 17{more}]>\n'
GUARD = "broken = IsNaN (p) y = Where (broken, zero, p)"


def model(addend: str, *, guard: str = GUARD, after: str = "p = Softmax <axis = -1> (masked)",
          more: str = "") -> ir.Model:  # fmt: skip
    """One attention over 4 keys: ``addend`` makes ``masked`` from ``scores`` and the inputs."""
    text = f"""m (float[B, H, 4, 8] q, float[B, H, 8, 4] k, bool[B, 1, 1, 4] hidden,
            int64[B, 4] mask, float[4] given) => (float[B, H, 4, 4] y)
        <float zero = {{0.0}}, float nought = {{-0.0}}, float[1, 1, 1, 1, 1] zero5 = {{0.0}},
         float inf = {{-inf}}, float most = {{-3.4028234663852886e38}}, float mild = {{-1e4}},
         float half = {{0.5}}, float one = {{1.0}}, float eight = {{8.0}}, float high = {{1e4}},
         int64[2] axes = {{1, 2}}, int64[1] first = {{0}},
         float[4, 4] causal = {{0, -1e4, -1e4, -1e4, 0, 0, -1e4, -1e4, 0, 0, 0, -1e4, 0, 0, 0, 0}},
         float[4] holes = {{0, 0, 0, -inf}}, float[4] nan = {{0, 0, 0, nan}}>
        {{ scores = MatMul (q, k) {addend} {after} {guard} }}"""
    return ir.from_onnx_text(HEAD.format(more=more) + text)


def run(m: ir.Model, given: dict[str, np.ndarray]) -> np.ndarray:
    return execute(m, given, optimized=False)[0]


def feeds(hidden: list[int]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    mask = np.array([[0 if i in hidden else 1 for i in range(4)]], np.int64)
    return {
        "q": rng.standard_normal((1, 2, 4, 8)).astype(np.float32) * 30,
        "k": rng.standard_normal((1, 2, 8, 4)).astype(np.float32) * 30,
        "hidden": mask[:, None, None] == 0,
        "mask": mask,
        "given": np.zeros(4, np.float32),
    }


PLAIN = "masked = Identity (scores)"
FLOAT = "f = Cast <to = 1> (mask) u = Unsqueeze (f, axes) away = Sub (one, u)"
REPAIRED = {
    "no mask": PLAIN,
    "a constant mask": "masked = Add (scores, causal)",
    "a mask of additive-mask": "f = Cast <to = 1> (hidden) a = Mul (f, mild)"
    " masked = Add (a, scores)",
    "one float minimum": "a = Where (hidden, most, zero) masked = Add (scores, a)",
    "a float minimum put in": "masked = Where (hidden, most, scores)",
    "a floor on an integer mask": f"{FLOAT} a = Mul (away, mild) masked = Add (scores, a)",
    "a floor subtracted": f"{FLOAT} a = Mul (away, high) masked = Sub (scores, a)",
    "scaled": "s = Mul (scores, half) d = Div (s, eight) masked = Add (d, causal)",
    "clamped": "a = Where (hidden, most, zero) b = Add (scores, a) masked = Max (b, most)",
    "two masks of -1e4": "a = Where (hidden, mild, causal) b = Add (a, causal)"
    " masked = Add (scores, b)",
    "made of shapes": "s = Shape (q) n = Cast <to = 1> (s) masked = Sub (scores, n)",
    "in parts": "a, b = Split <axis = 1> (scores) c = Concat <axis = 1> (b, a)"
    " masked = Add (c, causal)",
    "a normalised product": "t = Tanh (scores) masked = Mul (t, scores)",
}


@pytest.mark.parametrize("case", REPAIRED)
def test_repairs(case: str) -> None:
    before, after = (model(REPAIRED[case]) for _ in range(2))
    report = graphfix.run(after, "drop-nan-guard")
    assert report.changed
    assert report.safety == "conditional"
    assert "IsNaN" not in ops(after)
    for hidden in ([], [3], [0, 1, 2, 3]):
        given = feeds(hidden)
        np.testing.assert_allclose(run(after, given), run(before, given), rtol=1e-5, atol=1e-7)


GUARDS = {
    "the other way round": "b = IsNaN (p) ok = Not (b) y = Where (ok, p, zero)",
    "twice denied": "b = IsNaN (p) n = Not (b) m = Not (n) y = Where (m, zero, p)",
    "minus zero": "b = IsNaN (p) y = Where (b, nought, p)",
    "behind a Cast": "d = Cast <to = 11> (p) e = Cast <to = 1> (d) b = IsNaN (e)"
    " y = Where (b, zero, e)",
}


@pytest.mark.parametrize("case", GUARDS)
def test_guards(case: str) -> None:
    before, after = (model(PLAIN, guard=GUARDS[case]) for _ in range(2))
    assert graphfix.run(after, "drop-nan-guard").changed
    assert "Where" not in ops(after)
    np.testing.assert_allclose(run(after, feeds([])), run(before, feeds([])), rtol=1e-5, atol=1e-7)


STAYS = {
    "-inf put in": ("masked = Where (hidden, inf, scores)", "'inf' holds -inf"),
    "-inf added": ("a = Where (hidden, inf, zero) masked = Add (scores, a)", "'inf' holds -inf"),
    "-inf in a constant mask": ("masked = Add (scores, holes)", "'holes' holds -inf"),
    "NaN in a constant": ("masked = Add (scores, nan)", "'nan' holds nan"),
    "two float minima": (
        "a = Where (hidden, most, zero) b = Add (a, a) masked = Add (scores, b)",
        "'Add of b' may reach -6.80565e+38, beyond float",
    ),
    "a float minimum on an integer mask": (
        f"{FLOAT} a = Mul (away, most) masked = Add (scores, a)",
        "'Mul of a' may reach",
    ),
    "a mask that the caller gives": ("masked = Add (scores, given)", "'given' is an input"),
    "a logarithm": (
        "f = Cast <to = 1> (hidden) a = Log (f) masked = Add (scores, a)",
        "Log 'Log of a' may make -inf or NaN",
    ),
    "a division": ("masked = Div (scores, scores)", "Div 'Div of masked' may make -inf or NaN"),
    "an opaque operator": ("masked = my.Add (scores, zero)", "the type of 'masked' is not known"),
    "float16 on the way": (
        "h = Cast <to = 10> (scores) masked = Cast <to = 1> (h)",
        "'Cast of h' may reach -1e+30, beyond float16",
    ),
    "Exp": ("masked = Exp (scores)", "Exp 'Exp of masked' may make -inf or NaN"),
}


@pytest.mark.parametrize(("floor", "goes"), [("-10000.0", True), ("-65504.0", False)])
def test_float16_takes_scores_to_be_below_its_end(floor: str, goes: bool) -> None:
    """-1e4 and a score are a number; to -65504 a score of -16 makes -inf of it."""
    m = ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        sdpa (float16[B, T, 8] q, float16[B, 8, T] k, bool[B, 1, T] hidden) => (float16[B, T, T] y)
        <float lowest = {{{floor}}}, float nought = {{0.0}}> {{
        low = Cast <to = 10> (lowest) zero = Cast <to = 10> (nought)
        scores = MatMul (q, k) a = Where (hidden, low, zero) masked = Add (scores, a)
        p = Softmax <axis = -1> (masked) b = IsNaN (p) y = Where (b, zero, p) }}"""
    )
    report = graphfix.run(m, "drop-nan-guard")
    assert report.changed == goes
    if goes:
        assert "no score is over 5e4" in report.passes[0].changes[0].note
    else:
        assert "beyond float16" in report.passes[0].skips[0][1]


@pytest.mark.parametrize("case", STAYS)
def test_stays_with_a_reason(case: str) -> None:
    addend, reason = STAYS[case]
    after = model(addend, more=', "my" : 1' if "my." in addend else "")
    before = ir.to_proto(after).SerializeToString(deterministic=True)
    report = graphfix.run(after, "drop-nan-guard")
    assert not report.changed
    assert ir.to_proto(after).SerializeToString(deterministic=True) == before
    ((_, found),) = report.passes[0].skips
    assert found.startswith(f"Softmax 'Softmax of p' may make NaN: {reason}")


def test_a_zero_of_more_dims_stays() -> None:
    after = model(PLAIN, guard="b = IsNaN (p) w = Where (b, zero5, p) y = Squeeze (w, first)")
    assert refusals(after, "drop-nan-guard")[0] == "its zero may be larger than 'p'"


IGNORED = {
    "no guard": "y = Identity (p)",
    "another number": "b = IsNaN (p) y = Where (b, half, p)",
    "another tensor": "b = IsNaN (scores) y = Where (b, zero, p)",
    "infinities": "b = IsInf (p) y = Where (b, zero, p)",
    "a companion": "y = Where (hidden, zero, p)",
    "no Softmax": "b = IsNaN (scores) y = Where (b, zero, scores)",
    "both are computed": "b = IsNaN (p) y = Where (b, scores, p)",
}


@pytest.mark.parametrize("case", IGNORED)
def test_is_not_mine(case: str) -> None:
    after = model(PLAIN, guard=IGNORED[case])
    assert not refusals(after, "drop-nan-guard")


def test_after_additive_mask_it_goes() -> None:
    texts = "a = Where (hidden, inf, zero) masked = Add (scores, a)"
    before, after = (model(texts) for _ in range(2))
    report = graphfix.run(after, "additive-mask,drop-nan-guard")
    assert [len(p.changes) for p in report.passes] == [1, 1]
    given = feeds([1, 2])
    np.testing.assert_allclose(run(after, given), run(before, given), atol=1e-6)


def test_a_guard_that_is_an_output_keeps_its_name() -> None:
    after = model(PLAIN)
    graphfix.run(after, "drop-nan-guard")
    assert [x.name for x in after.graph.outputs] == ["y"]


def test_a_large_mask_is_searched_and_a_larger_one_is_not() -> None:
    def guarded(size: int, fill: float) -> graphfix.Report:
        m = model("masked = Add (scores, big)".replace("big", "given"))
        (given,) = (x for x in m.graph.inputs if x.name == "given")
        big = ir.Value(name="big", shape=ir.Shape([size, 4]), type=ir.TensorType(ir.DataType.FLOAT))
        array = np.zeros((size, 4), np.float32)
        array[-1] = fill
        big.const_value = ir.tensor(array, name="big")
        m.graph.register_initializer(big)
        given.replace_all_uses_with(big)
        return graphfix.run(m, "drop-nan-guard")

    assert guarded(4096, -1e4).changed
    assert "'big' holds -inf" in guarded(4096, -np.inf).passes[0].skips[0][1]
    assert "too large to be searched" in guarded(1 << 21, -1e4).passes[0].skips[0][1]
