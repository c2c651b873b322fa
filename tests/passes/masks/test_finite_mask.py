"""finite-mask: which masks get a floor, which are left alone and why, and that the rows stay."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.errors import UsageError
from tests.passes.models import execute, refusals

HEAD = '<ir_version: 8, opset_import: ["" : 17{more}]>\n'


def model(addend: str, *, end: str = "weights = Softmax <axis = -1> (masked)",
          outputs: str = "", more: str = "") -> ir.Model:  # fmt: skip
    """One attention over 4 keys: ``addend`` makes ``masked`` out of ``scores`` and the inputs."""
    text = f"""m (float[B, 2, 4, 4] scores, int64[B, 1, 1, 4] mask, float[B, 1, 1, 4] soft,
               bool[B, 1, 1, 4] hidden, int64[1] n) => (float[B, 2, 4, 4] weights{outputs})
        <float one = {{1.0}}, float most = {{-3.4028234663852886e38}}, float inf = {{-inf}},
         float nine = {{-1e9}}, float plus = {{1e9}}, float mild = {{-1e4}}, float bit = {{0.125}},
         int64[1] zero = {{0}}, int64[1] four = {{4}}, int64[1] last = {{1}}, int64 up = {{1}},
         float[4, 4] causal = {{0, -inf, -inf, -inf, 0, 0, -inf, -inf, 0, 0, 0, -inf, 0, 0, 0, 0}},
         float[4] bias = {{0, 1, -2, -3.4e38}}, float[4] low = {{-1e9, -1e9, -1e9, -1e9}},
         float[4] near = {{0, 0, -1e4, -1e3}}, int64[2] square = {{4, 4}},
         float[4] none = {{0, 0, 0, 0}}>
        {{ f = Cast <to = 1> (mask) away = Sub (one, f) {addend} {end} }}"""
    return ir.from_onnx_text(HEAD.format(more=more) + text)


def run(m: ir.Model, given: dict[str, np.ndarray]) -> np.ndarray:
    return execute(m, given)[0]


def feeds(hidden: list[int]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    mask = np.array([[[[int(i not in hidden) for i in range(4)]]]], np.int64)
    return {
        "scores": rng.standard_normal((1, 2, 4, 4)).astype(np.float32) * 30,
        "mask": mask,
        "soft": mask.astype(np.float32),
        "hidden": mask == 0,
        "n": np.array([4], np.int64),
    }


def least(m: ir.Model) -> float:
    """What is farthest from 0 among the constants in use, as a negative number."""
    arrays = [x.const_value.numpy() for x in m.graph.initializers.values() if x.uses()]
    arrays += [
        attribute.as_tensor().numpy()
        for node in m.graph
        for attribute in node.attributes.values()
        if attribute.type == ir.AttributeType.TENSOR
    ]
    return -max(float(abs(x).max()) for x in arrays if x.dtype.kind == "f" and x.size)


TAKES = "takes it that 'mask' holds only 0 and 1"
REPAIRED = {
    "1 - mask times float minimum": ("a = Mul (away, most) masked = Add (scores, a)", TAKES),
    "the factors exchanged": ("a = Mul (most, away) masked = Add (a, scores)", TAKES),
    "-1e9": ("a = Mul (away, nine) masked = Add (scores, a)", TAKES),
    "mask - 1 times 1e9": (
        "b = Sub (f, one) a = Mul (b, plus) masked = Add (scores, a)",
        TAKES,
    ),
    "a proved mask": ("h = Cast <to = 1> (hidden) a = Mul (h, nine) masked = Add (scores, a)", ""),
    "a mask given as floats": (
        "g = Sub (one, soft) a = Mul (g, nine) masked = Add (scores, a)",
        "takes it that 'soft' holds only 0 and 1",
    ),
    "two masks": (
        "g = Mul (f, soft) w = Sub (one, g) a = Mul (w, nine) masked = Add (scores, a)",
        "takes it that 'soft' and 'mask' holds only 0 and 1",
    ),
    "a fill made large": (
        "s = Shape (scores) e = Expand (most, s) a = Mul (away, e) masked = Add (scores, a)",
        TAKES,
    ),
    "a constant triangle": ("masked = Add (scores, causal)", ""),
    "a triangle that is sliced": (
        "c = Slice (causal, zero, n, last) u = Unsqueeze (c, zero) masked = Add (u, scores)",
        "",
    ),
    "a triangle that is made": (
        "c = ConstantOfShape <value = float[1] {-inf}> (square)"
        " t = Trilu <upper = 1> (c, up) masked = Add (scores, t)",
        "",
    ),
    "a triangle of an expanded number": (
        "c = Expand (inf, square) t = Trilu <upper = 1> (c, up) masked = Add (scores, t)",
        "",
    ),
    "a bias among it": ("masked = Add (scores, bias)", ""),
}


@pytest.mark.parametrize("case", REPAIRED)
def test_repairs(case: str) -> None:
    addend, note = REPAIRED[case]
    before, after = (model(addend) for _ in range(2))
    report = graphfix.run(after, "finite-mask")
    assert [change.note for change in report.passes[0].changes] == [note]
    assert report.safety == "valid-rows"
    assert least(after) == -1e4
    for hidden in ([], [3], [2, 3]):
        given = feeds(hidden)
        np.testing.assert_allclose(run(after, given), run(before, given), atol=1e-6)
    refusals(after, "finite-mask")


def test_two_float_minima_no_longer_make_nan() -> None:
    addend = "a = Mul (away, most) b = Add (scores, a) c = Mul (away, most) masked = Add (b, c)"
    before, after = (model(addend) for _ in range(2))
    given = feeds([0, 1, 2, 3])
    assert np.isnan(run(before, given)).all()
    assert len(graphfix.run(after, "finite-mask").passes[0].changes) == 2
    assert np.isfinite(run(after, given)).all()


HALF = """h = Cast <to = 10> (away) l = Cast <to = 10> (nine) a = Mul (h, l)
    s = Cast <to = 10> (scores) b = Add (s, a) masked = Cast <to = 1> (b)"""


def test_in_float16_the_floor_is_a_number() -> None:
    after = model(HALF)
    assert graphfix.run(after, "finite-mask").changed
    given = feeds([3])
    got = run(after, given)
    assert np.isnan(run(model(HALF), given)).all()  # -1e9 is -inf there, and 0 * -inf is NaN
    np.testing.assert_allclose(got[..., 3], 0, atol=1e-30)
    want = run(model(REPAIRED["-1e9"][0]), given)
    np.testing.assert_allclose(got, want, atol=1e-2)


def test_a_floor_that_float16_does_not_have_is_refused() -> None:
    report = graphfix.run(model(HALF), "finite-mask:floor=-7e4")
    assert report.passes[0].skips[0][1] == "floor=-70000 is no number in float16"


def test_a_scale_below_one_lowers_the_floor() -> None:
    after = model("a = Mul (away, nine) b = Add (scores, a) masked = Mul (b, bit)")
    assert graphfix.run(after, "finite-mask").changed
    assert least(after) == -8e4


def test_the_floor_can_be_chosen() -> None:
    after = model(REPAIRED["-1e9"][0])
    graphfix.run(after, "finite-mask:floor=-1e3")
    assert -1e3 in [float(x.const_value.numpy().min()) for x in after.graph.initializers.values()
                    if x.name.startswith("gf_")]  # fmt: skip
    for floor in ("-10", "-inf", "nan", "5"):
        with pytest.raises(UsageError):
            graphfix.run(after, f"finite-mask:floor={floor}")


SKIPPED = {
    "not a mask": (
        "g = Relu (scores) a = Mul (g, nine) masked = Add (scores, a)",
        "'g' is not known to be a mask of 0 and 1",
    ),
    "a difference of numbers": (
        "r = Relu (scores) g = Sub (one, r) a = Mul (g, nine) masked = Add (scores, a)",
        "'g' is not known to be a mask of 0 and 1",
    ),
    "mask - 1 times -1e9": (
        "b = Sub (f, one) a = Mul (b, nine) masked = Add (scores, a)",
        "it adds 1e+09 where 'b' is not 0",
    ),
    "subtracted": (
        "a = Mul (away, plus) masked = Sub (scores, a)",
        "it also goes to Sub 'Sub of masked'",
    ),
    "it is seen elsewhere": (
        "a = Mul (away, nine) masked = Add (scores, a) k = ReduceSum (a) s = Shape (k)",
        "it also goes to ReduceSum 'ReduceSum of k'",
    ),
    "a constant that is seen elsewhere": (
        "masked = Add (scores, causal) k = Exp (masked)",
        "it also goes to Exp 'Exp of k'",
    ),
}


@pytest.mark.parametrize("case", SKIPPED)
def test_left_alone_with_a_reason(case: str) -> None:
    addend, reason = SKIPPED[case]
    after = model(addend)
    assert refusals(after, "finite-mask") == [reason]


IGNORED = {
    "no mask": "masked = Identity (scores)",
    "-1e4": "a = Mul (away, mild) masked = Add (scores, a)",
    "nothing below -1e4": "masked = Add (scores, near)",
    "a bias of 0": "masked = Add (scores, none)",
    "a Where": "masked = Where (hidden, inf, scores)",
    "a Where that is added": "w = Where (hidden, most, one) masked = Add (scores, w)",
    "mask * 1e9 - 1e9 as one number": "masked = Add (scores, nine)",
    "the same low number throughout": "masked = Add (scores, low)",
    "a temperature": "r = Relu (scores) masked = Mul (r, plus)",
    "no Softmax behind a product": "a = Mul (away, nine) b = Tanh (a) masked = Add (scores, b)",
    "another domain": "a = my.Mul (away, nine) masked = Add (scores, a)",
}


@pytest.mark.parametrize("case", IGNORED)
def test_is_not_mine(case: str) -> None:
    text = IGNORED[case]
    after = model(text, more=', "my" : 1' if "my." in text else "")
    before = ir.to_proto(after).SerializeToString(deterministic=True)
    assert not refusals(after, "finite-mask")
    assert ir.to_proto(after).SerializeToString(deterministic=True) == before


def test_logits_are_not_mine() -> None:
    end = "k = ArgMax <axis = -1> (masked) weights = Cast <to = 1> (k)"
    for addend in (REPAIRED["-1e9"][0], "masked = Add (scores, causal)"):
        assert not graphfix.run(model(addend, end=end), "finite-mask").changed


def test_what_additive_mask_made_stays_with_whatever_floor_it_has() -> None:
    after = model("masked = Where (hidden, inf, scores)")
    graphfix.run(after, "additive-mask:floor=-6e4")
    assert not graphfix.run(after, "finite-mask").changed
    assert least(after) == -6e4


def test_a_mask_inside_a_where_is_seen_once_additive_mask_has_been() -> None:
    addend = "c = Add (scores, causal) masked = Where (hidden, inf, c)"
    before, after = (model(addend) for _ in range(2))
    report = graphfix.run(after, "additive-mask,finite-mask")
    assert [len(p.changes) for p in report.passes] == [1, 1]
    assert least(after) == -1e4
    given = feeds([3])
    np.testing.assert_allclose(run(after, given), run(before, given), atol=1e-6)


def test_layers_share_the_mask() -> None:
    addend = """c = Slice (causal, zero, n, last) m1 = Add (scores, c)
        w1 = Softmax <axis = -1> (m1) masked = Add (w1, c)"""
    after = model(addend)
    assert len(graphfix.run(after, "finite-mask").passes[0].changes) == 2
    assert [n.op_type for n in after.graph].count("Slice") == 1
    assert sum(x.shape == [4, 4] for x in after.graph.initializers.values()) == 1


SLOTS = {
    "a product": "u = Unsqueeze (away, mid) a = Mul (u, {low}) m = Add (scores, a)",
    "unsqueezed behind it": "a = Mul (away, {low}) u = Unsqueeze (a, mid) m = Add (scores, u)",
    "expanded": "u = Unsqueeze (away, mid) s = Shape (scores) e = Expand (u, s)"
    " a = Mul (e, {low}) m = Add (scores, a)",
    "transposed": "u = Unsqueeze (away, end) a = Mul (u, {low})"
    " p = Transpose <perm = [0, 2, 1]> (scores) q = Add (p, a)"
    " m = Transpose <perm = [0, 2, 1]> (q)",
    "a constant": "m = Add (scores, rows{low})",
}


@pytest.mark.parametrize("low", ["inf", "most", "nine"])
@pytest.mark.parametrize("case", SLOTS)
def test_a_mask_that_hides_whole_rows_stays(case: str, low: str) -> None:
    """Slots compete for each key: with all scores of a key hidden, each slot gets as much of it."""
    text = f"""m (float[B, 3, T] scores, int64[B, T] mask) => (float[B, 3, T] weights)
        <float one = {{1}}, float most = {{-3.4e38}}, float inf = {{-inf}}, float nine = {{-1e9}},
         int64[1] mid = {{1}}, int64[1] end = {{2}}, float[1, 4] rowsinf = {{0, -inf, 0, 0}},
         float[3, 4] rowsnine = {{0, 0, -1e9, 0, 0, 0, -1e9, 0, 0, 0, -1e9, 0}},
         float[1, 4] rowsmost = {{0, 0, 0, -3.4e38}}>
        {{ f = Cast <to = 1> (mask) away = Sub (one, f) {SLOTS[case].format(low=low)}
           weights = Softmax <axis = 1> (m) }}"""
    report = graphfix.run(ir.from_onnx_text(HEAD.format(more="") + text), "finite-mask")
    assert not report.changed
    (skip,) = report.passes[0].skips
    assert skip[1].startswith("it hides whole rows of Softmax")
