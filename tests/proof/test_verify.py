"""The verdict: what must be caught, what must not be compared with a repair, what is said."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.errors import FeedError, ModelError
from graphfix.proof.baseline import BaselineCache
from graphfix.proof.compare import Tolerance, compare
from graphfix.proof.first_difference import find_divergence
from graphfix.proof.inner_tensors import ModelRun
from graphfix.proof.verify import verify

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
ATTENTION = """m (float[B, T, 4] x, int64[B, T] mask) => (float[B, T, 4] y)
    <int64[1] ax = {1}, int64 zero = {0}, float fill = {-10000.0}, float[4] w = {1, 2, 3, 4}>
    { h = Tanh (x)  v = Mul (h, w)  t = Transpose <perm = [0, 2, 1]> (v)  s = MatMul (v, t)
      e = Equal (mask, zero)  u = Unsqueeze (e, ax)  m = Where (u, fill, s)
      p = Softmax (m)  y = MatMul (p, v) }"""
PLAIN = "m (float[B, T] x) => (float[B, T] y) { a = Relu (x)  y = Neg (a) }"


def model(text: str) -> ir.Model:
    return ir.from_onnx_text(HEAD + text)


def test_a_model_is_the_same_as_itself():
    verdict = verify(model(ATTENTION), model(ATTENTION))
    assert verdict.ok
    assert verdict.worst is not None
    assert verdict.worst.max_abs < 1e-6  # on most machines 0
    assert re.match("(identical|the same) in 23 cases", str(verdict))
    assert verdict.first_divergence is None


def test_a_difference_of_nothing_is_said_in_words():
    text = "m (float[B, T] x) => (float[B, T] y) { a = Relu (x)  y = Neg (a) }"
    verdict = verify(model(text), model(text))
    assert verdict.worst.max_abs == 0
    assert str(verdict).startswith("identical in ")


def test_a_repair_that_keeps_the_numbers():
    after = ATTENTION.replace(
        "m = Where (u, fill, s)",
        "f = Cast <to = 1> (u)  d = Mul (f, fill)  m = Add (s, d)",
    )
    verdict = verify(model(ATTENTION), model(after), safety="valid-rows")
    assert verdict.ok, str(verdict)


@pytest.mark.parametrize(
    ("was", "now", "tensor"),
    [
        ("Where (u, fill, s)", "Where (u, s, fill)", "m"),
        ("w = {1, 2, 3, 4}", "w = {1, 2, 3, 4.01}", "v"),
        ("Softmax (m)", "Softmax <axis = 1> (m)", "p"),
        ("m = Where (u, fill, s)", "m = Identity (s)", "m"),
    ],
)
def test_a_broken_repair_is_caught_and_its_first_tensor_named(was: str, now: str, tensor: str):
    after = model(ATTENTION.replace(was, now))
    for safety in ("exact", "valid-rows"):
        verdict = verify(model(ATTENTION), after, safety=safety)
        assert not verdict.ok
        assert verdict.first_divergence is not None
        named = verdict.first_divergence.tensor
        # Scores of padded keys are no content: without their mask, it is the Softmax that parts.
        assert named == tensor or (safety == "valid-rows" and named == "p")
        assert f"first tensor to differ is '{named}'" in str(verdict)


def test_the_verdict_says_output_number_allowed_and_case():
    after = model(PLAIN.replace("Neg (a)", "Identity (a)"))
    verdict = verify(model(PLAIN), after)
    assert verdict.worst is not None
    worst = verdict.worst
    assert not worst.ok
    assert worst.output == "y"
    assert worst.max_abs > 1
    assert worst.cosine == pytest.approx(-1)
    for part in (
        "output 'y'",
        f"{worst.worst_abs:.3g}",
        f"allowed {worst.allowed:.3g}",
        worst.case,
    ):
        assert part in str(verdict)


def test_the_json_is_plain_and_holds_no_nan():
    after = model(PLAIN.replace("Neg (a)", "Log (x)"))
    verdict = verify(model(PLAIN), after)
    assert not verdict.ok
    data = json.loads(json.dumps(verdict.to_json(), allow_nan=False))
    assert data["ok"] is False
    assert data["worst"]["nan_after"] > 0
    assert "NaN" in data["summary"]
    assert data["first_divergence"]["tensor"] == "y"
    assert len(data["cases"]) == len(verdict.cases)


CHOOSES = """m (float[B, T, 3] x) => (int64[B, T, 1] y)
    <int64[1] one = {1}, float[3] near = {1, 1, 1}> {
        z = Sub (x, x) s = Add (z, near) v, y = TopK (s, one)
    }"""


@pytest.mark.parametrize(
    ("was", "now", "decides"),
    [
        ("near = {1, 1, 1}", "near = {1, 1, 1.0000001}", True),
        ("near = {1, 1, 1}", "near = {1, 1, 1.5}", False),  # the sum parts first
        ("TopK", "TopK <largest = 0>", False),  # what is given is the same
    ],
)
def test_where_rounding_decides_the_verdict_says_so(was: str, now: str, decides: bool):
    before = CHOOSES if decides else CHOOSES.replace("Sub (x, x)", "Identity (x)")
    verdict = verify(model(before), model(before.replace(was, now)))
    assert not verdict.ok
    first = verdict.first_divergence
    assert first is not None
    assert ("there rounding decides" in str(verdict)) == decides
    if decides:
        assert first.tensor == "y"
        assert first.given == np.float32(1.0000001) - np.float32(1)
        assert verdict.to_json()["first_divergence"]["given"] == first.given
    else:
        assert first.given is None


def test_locating_can_be_left_out():
    verdict = verify(model(PLAIN), model(PLAIN.replace("Neg (a)", "Abs (a)")), locate=False)
    assert not verdict.ok
    assert verdict.first_divergence is None


# Padding


def test_what_padding_was_made_into_counts_for_exact_and_not_for_valid_rows():
    text = """m (float[B, T] x, bool[B, T] k) => (float[B, T] y)
        <float fill = {%s}> { y = Where (k, x, fill) }"""
    before, after = model(text % "-10000.0"), model(text % "-20000.0")
    assert not verify(before, after).ok
    verdict = verify(before, after, safety="valid-rows")
    assert verdict.ok, str(verdict)
    notes = [d.note for diffs in verdict.cases.values() for d in diffs if d.note]
    assert any("elements were compared" in note for note in notes)


SUBSAMPLED = """m (float[B, 1, T] x, int64[B] n) => (float[B, 1, F] y)
    <float[1, 1, 3] w = {1, 2, 3}, int64 zero = {0}, int64 one = {1}, int64[1] ax1 = {1},
     int64[2] ax2 = {1}, float far = {%s}>
    { c = Conv <kernel_shape = [3], strides = [2]> (x, w)
      s = Shape <start = 2, end = 3> (x)  k = Squeeze (s)  r = Range (zero, k, one)
      u = Unsqueeze (n, ax1)  l = Less (r, u)  f = Cast <to = 1> (l)
      z = Unsqueeze (f, ax1)  pad = MaxPool <kernel_shape = [3], strides = [2]> (z)
      i = Sub (pad, pad)  minus = Neg (z)  low = MaxPool <kernel_shape = [3], strides = [2]> (minus)
      o = Neg (low)  g = Add (c, i)  h = Mul (g, o)
      q = Cast <to = 9> (o)  y = Where (q, h, far) }""".replace("ax2 = {1}", "ax2 = {1, 1}")


def test_valid_rows_of_an_axis_that_a_convolution_has_shortened():
    """A row of length n has floor((n - 3) / 2) + 1 frames."""
    before, after = model(SUBSAMPLED % "0.0"), model(SUBSAMPLED % "5.0")
    assert not verify(before, after).ok
    verdict = verify(before, after, safety="valid-rows")
    assert verdict.ok, str(verdict)


def test_poison_that_the_original_keeps_out_must_stay_out():
    """Multiplying by 0 is no mask for NaN."""
    text = """m (float[B, T] x, bool[B, T] k) => (float[B] y)
        <float zero = {0.0}, int64[1] ax = {1}>
        { %s  y = ReduceSum <keepdims = 0> (z, ax) }"""
    before = model(text % "z = Where (k, x, zero)")
    after = model(text % "f = Cast <to = 1> (k)  z = Mul (x, f)")
    verdict = verify(before, after)
    assert not verdict.ok
    assert verdict.worst is not None
    assert "NaN in the padding" in verdict.worst.case
    assert "has NaN" in verdict.worst.reason
    assert verify(before, before).ok


def test_poison_that_the_original_leaks_too_is_not_held_against_the_repair():
    text = """m (float[B, T] x, bool[B, T] k) => (float[B] y)
        <float zero = {0.0}, int64[1] ax = {1}>
        { f = Cast <to = 1> (k)  z = Mul (x, f)  y = ReduceSum <keepdims = 0> (z, ax) }"""
    after = text.replace("z = Mul (x, f)", "h = Mul (f, f)  z = Mul (h, x)")
    verdict = verify(model(text), model(after))
    assert verdict.ok, str(verdict)
    assert any("the original leaks NaN" in note for note in verdict.notes)


def test_poison_that_makes_an_output_longer():
    """A predictor fires another number of frames where NaN reaches what it counts."""
    text = """m (float[B, T] x, bool[B, T] k) => (float[B, N] y)
        <float[1] zero = {0.0}, int64[1] few = {3}, int64[1] many = {5}, int64[1] ax = {0}>
        { f = Cast <to = 1> (k)  z = Mul (x, f)  r = ReduceSum <keepdims = 0> (z)  w = IsNaN (r)
          n = Where (w, many, few)  s = Shape <end = 1> (x)  d = Concat <axis = 0> (s, n)
          y = Expand (zero, d) }"""
    verdict = verify(model(text), model(text))
    assert verdict.ok, str(verdict)
    assert any("NaN in the padding" in case for case in verdict.cases)


def test_nan_of_the_original_is_equal_to_nan():
    text = "m (float[B, T] x) => (float[B, T] y) { y = Log (x) }"
    verdict = verify(model(text), model(text))
    assert verdict.ok
    assert verdict.worst is not None
    assert any(d.nan_before for diffs in verdict.cases.values() for d in diffs)


# What else can differ


def test_a_missing_output_another_dtype_another_shape():
    before = model(PLAIN)
    missing = model("m (float[B, T] x) => (float[B, T] z) { z = Neg (x) }")
    assert "is missing" in str(verify(before, missing))
    other = (
        "m (float[B, T] x) => (double[B, T] y) { a = Relu (x) n = Neg (a) y = Cast <to=11> (n) }"
    )
    assert "is float64 instead of float32" in str(verify(before, model(other)))
    turned = "m (float[B, T] x) => (float[T, B] y) { a = Relu (x) n = Neg (a) y = Transpose (n) }"
    assert "has shape [7, 1] instead of [1, 7]" in str(verify(before, model(turned), locate=False))


def test_integers_must_be_the_same():
    text = "m (float[B, T] x) => (int64[B] y) { y = Arg%s <axis = 1, keepdims = 0> (x) }"
    verdict = verify(model(text % "Max"), model(text % "Min"))
    assert not verdict.ok
    assert verdict.worst is not None
    assert verdict.worst.differing > 0
    assert "elements" in str(verdict)


def test_the_original_does_not_load():
    broken = model("m (float[T] x) => (float[T] y) { y = Frobnicate (x) }")
    with pytest.raises(ModelError, match=r"as given does not load in ONNX Runtime: .*Frobnicate"):
        verify(broken, broken)


def test_the_repaired_does_not_load_or_run():
    broken = model(PLAIN.replace("Neg", "Frobnicate"))
    verdict = verify(model(PLAIN), broken)
    assert not verdict.ok
    assert "repaired model does not load in ONNX Runtime" in str(verdict)
    frozen = PLAIN.replace(
        "y = Neg (a)", "n = Neg (a) s = Constant <value_ints=[1, 7]> () y = Reshape (n, s)"
    )
    verdict = verify(model(PLAIN), model(frozen))
    assert not verdict.ok
    assert "repaired model does not run, in case" in str(verdict)
    json.dumps(verdict.to_json(), allow_nan=False)


def test_rows_are_told_from_the_runs_where_inference_does_not_know_them():
    # The shape of y is computed from data, so its dims are no expression in T.
    text = """m (float[B, T, 4] x, int64[B] n) => (float[P, Q, R] y)
        <int64[1] axis = {1}, int64 zero = {0}, int64 one = {1}, int64[1] first = {0},
         float low = {-1e9}, int64[3] like = {0, 0, -1}>
        { shape = Shape (x)  t = Gather (shape, one)  i = Range (zero, t, one)
          row = Unsqueeze (i, first)  until = Unsqueeze (n, axis)
          off = GreaterOrEqual (row, until)  at = NonZero (off)  some = Shape (at)
          k = Transpose <perm = [0, 2, 1]> (x)  s = MatMul (x, k)  wide = Unsqueeze (off, axis)
          m = Where (wide, low, s)  w = Softmax <axis = -1> (m)  c = MatMul (w, x)
          none = Sub (some, some)  z = ReduceSum <keepdims = 0> (none)
          same = Add (shape, z)  y = Reshape (c, same) }"""
    changed = text.replace(
        "y = Reshape", "f = Cast <to = 1> (off) g = Unsqueeze (f, last) d = Add (c, g) y = Reshape"
    ).replace("(c, same)", "(d, same)")
    changed = changed.replace("int64[1] axis = {1}", "int64[1] axis = {1}, int64[1] last = {2}")
    verdict = verify(model(text), model(changed), safety="valid-rows")
    assert verdict.ok, str(verdict)
    assert not verify(model(text), model(changed)).ok


@pytest.mark.parametrize(
    "draw",
    [
        "RandomNormalLike (x)",
        "RandomUniformLike <low = -1.0, high = 1.0> (x)",
        "Dropout (x, half, training)",
        "Bernoulli (p)",
    ],
)
def test_random_numbers_are_drawn_alike(draw):
    text = f"""m (float[B, T] x) => (float[B, T] y)
        <float half = {{0.5}}, bool training = {{1}}, float two = {{2.0}}>
        {{ p = Sigmoid (x) r = {draw}  s = Add (x, r)  y = Mul (s, two) }}"""
    assert verify(model(text), model(text)).worst.max_abs == 0
    wrong = text.replace("Mul (s, two)", "Mul (s, half)")
    assert not verify(model(text), model(wrong)).ok


def test_what_a_kernel_writes_into_its_inputs_is_not_fed_again():
    """BatchNormalization in training mode makes its mean where the old one is."""
    text = """m (float[B, 3, T] x, float[3] mean, float[3] var) => (float[B, 3, T] y, float[3] m)
        <float[3] one = {1.0, 1.0, 1.0}, float[3] zero = {0.0, 0.0, 0.0}> {
        y, m, v = BatchNormalization <training_mode = 1> (x, one, zero, mean, var) }"""
    verdict = verify(model(text), model(text))
    assert verdict.ok, str(verdict)
    assert verdict.worst.max_abs == 0


def test_a_dropout_in_training_mode_is_run_as_in_inference():
    # As ONNX Runtime's optimizer leaves it; on another platform it would draw other numbers.
    text = """m (float[B, T] x) => (float[B, T] y) <float half = {0.5}, bool training = {1}>
        { y = Dropout <seed = 1> (x, half, training) }"""
    assert verify(model(text), model(text.replace("seed = 1", "seed = 2"))).worst.max_abs == 0
    plain = "m (float[B, T] x) => (float[B, T] y) { y = Identity (x) }"
    assert verify(model(text), model(plain)).worst.max_abs == 0


def test_random_numbers_are_pointed_out():
    text = "m (float[B, T] x) => (float[B, T] y) { r = RandomNormalLike (x)  y = Add (x, r) }"
    after = text.replace("RandomNormalLike", "RandomNormalLike <seed = 7.0>")
    verdict = verify(model(text), model(after))
    assert not verdict.ok
    assert any("draws random numbers (RandomNormalLike 'r')" in note for note in verdict.notes)


def test_float16_has_a_tolerance_of_its_own():
    text = """m (float[B, T] x) => (float[B, T] y) <float k32 = {%s}>
        { h = Cast <to = 10> (x)  k = Cast <to = 10> (k32)
          z = Mul (h, k)  y = Cast <to = 1> (z) }"""
    verdict = verify(model(text % "1.0"), model(text % "1.001"))
    assert verdict.ok
    assert verdict.worst is not None
    assert verdict.worst.max_abs > 1e-4
    assert not verify(model(text % "1.0"), model(text % "1.05")).ok


def test_the_tolerance_is_relative_to_large_outputs():
    text = "m (float[B, T] x) => (float[B, T] y) <float k = {%s}> { y = Mul (x, k) }"
    assert verify(model(text % "10000.0"), model(text % "10000.05")).ok
    assert not verify(model(text % "1.0"), model(text % "1.05")).ok
    strict = Tolerance(max_abs=0.0)
    assert not verify(model(text % "1.0"), model(text % "1.0000002"), tolerance=strict).ok


# Inputs


def test_given_feeds_and_a_changed_signature(tmp_path: Path):
    np.savez(tmp_path / "f.npz", x=np.array([[1.0, -2.0]], np.float32))
    after = model("m (float[B, T] z) => (float[B, T] y) { a = Relu (z)  y = Neg (a) }")
    verdict = verify(
        model(PLAIN),
        after,
        feeds=tmp_path / "f.npz",
        map_feeds=lambda old: {"z": old["x"]},
    )
    assert verdict.ok
    assert list(verdict.cases) == ["given"]
    with pytest.raises(FeedError, match="'x' is float64, and the model wants float32"):
        verify(model(PLAIN), after, feeds={"x": np.zeros((1, 2))})
    three = "m (float[B, T] x) => (float[N] y) <int64[1] n = {3}> { y = Reshape (x, n) }"
    with pytest.raises(FeedError, match="does not run on the case 'given'"):
        verify(model(three), model(three), feeds={"x": np.zeros((1, 2), np.float32)})


def test_given_dims_and_progress():
    seen: list[str] = []
    verdict = verify(
        model(PLAIN),
        model(PLAIN),
        dims={"T": [3, 30]},
        progress=seen.append,
    )
    assert {sizes["T"] for sizes in verdict.dims.values()} == {3, 30}
    count = len(verdict.cases)
    assert count >= 4
    steps = [re.fullmatch(r"(\d+)/(\d+): (before|after), .*", x) for x in seen]
    assert [x[3] for x in steps] == ["before"] * count + ["after"] * count
    assert all(int(x[1]) <= int(x[2]) for x in steps)


def test_a_repair_that_fixes_a_dim_is_verified_at_that_size():
    after = model(PLAIN.replace("float[B, T] x", "float[B, 6] x"))
    verdict = verify(model(PLAIN), after)
    assert not verdict.ok
    assert "fixed at 6 instead of T" in str(verdict)
    verdict = verify(model(PLAIN), after, may_change=["dims"])
    assert verdict.ok, str(verdict)
    assert {sizes["T"] for sizes in verdict.dims.values()} == {6}
    assert {sizes["B"] for sizes in verdict.dims.values()} >= {1, 2, 5}


def test_models_are_not_changed():
    before, after = (
        model(ATTENTION),
        model(ATTENTION.replace("Softmax (m)", "Softmax <axis=1> (m)")),
    )
    texts = [ir.to_proto(m).SerializeToString() for m in (before, after)]
    assert not verify(before, after).ok
    assert [ir.to_proto(m).SerializeToString() for m in (before, after)] == texts


def test_from_files(tmp_path: Path):
    for name in ("a.onnx", "b.onnx.part"):
        (tmp_path / name).write_bytes(ir.to_proto(model(PLAIN)).SerializeToString())
    assert verify(tmp_path / "a.onnx", tmp_path / "b.onnx.part").ok
    with pytest.raises(ModelError, match="no such file"):
        verify(tmp_path / "none.onnx", tmp_path / "a.onnx")


# The parts


def test_the_first_divergence_of_a_long_graph_is_found():
    """Also where an equal side branch lies before it."""
    steps = "".join(f"a{i + 1} = Relu (a{i})  side{i} = Neg (x)  " for i in range(40))
    text = f"m (float[T] x) => (float[T] y) {{ a0 = Abs (x) {steps} y = Neg (a40) }}"
    before, after = model(text), model(text.replace("a18 = Relu", "a18 = Cos"))
    feeds = {"x": np.linspace(-1, 1, 5, dtype=np.float32)}
    found = find_divergence(
        ModelRun(before, before, feeds), ModelRun(after, after, feeds), "c", Tolerance()
    )
    assert found is not None
    assert (found.tensor, found.op) == ("a18", "Relu")


def test_masked_scores_are_no_divergence_however_they_are_masked():
    """-inf before and -1e4 after take a position out of a Softmax alike."""
    before = model(ATTENTION.replace("-10000.0", "-90000.0"))
    after = model(ATTENTION.replace("Softmax (m)", "Softmax <axis = 1> (m)"))
    verdict = verify(before, after, safety="valid-rows")
    assert verdict.first_divergence is not None
    assert verdict.first_divergence.tensor == "p"


def diff(before: list[float], after: list[float], **options: object) -> object:
    a, b = (np.array(x, np.float32) for x in (before, after))
    return compare("y", "c", a, b, Tolerance(), **options)


def test_numbers_of_a_comparison():
    found = diff([1, -4, 0], [1, -4.5, 0.25])
    assert (found.max_abs, found.max_rel, found.scale) == (0.5, 0.125, 4)
    assert (found.differing, found.compared, found.total) == (2, 3, 3)
    assert found.allowed == pytest.approx(4e-4)
    assert not found.ok


def test_a_small_output_that_points_elsewhere_fails_by_its_cosine():
    found = diff([1e-5, 0], [0, 1e-5])
    assert not found.ok
    assert "cosine" in found.reason


def test_rounding_noise_around_zero_has_no_cosine():
    assert diff([1e-8, 0], [0, 1e-8]).ok
    assert diff([0, 0], [0, 0]).ok


def test_nan_and_infinity():
    nan, inf = float("nan"), float("inf")
    assert diff([nan, inf, -inf], [nan, inf, -inf]).ok
    assert "has NaN at 1 places" in diff([1, 2], [nan, 2]).reason
    assert not diff([nan, 2], [1, 2]).ok
    assert not diff([inf, 2], [-inf, 2]).ok
    assert not diff([1, 2], [inf, 2]).ok
    assert diff([nan, 2], [1, 2], leave_out="NaN").ok
    assert not diff([-inf, 2], [1, 2], leave_out="NaN").ok
    assert diff([-inf, 2], [1, 2], leave_out="not finite").ok
    assert not diff([1, 2], [nan, 2], leave_out="not finite").ok


def test_empty_arrays_are_equal():
    assert diff([], []).ok


def test_speech_is_heard_where_noise_drives_every_gate_to_its_end():
    """A silero VAD answers the same to any noise as loud as 1; one that hears nothing does, too."""
    text = """m (float[B, T] x) => (float[B, 1] y) <float[1] all = {1}, float[1] ten = {8}>
        { a = Abs (x) l = Mul (a, ten) m = ReduceMean <axes = [1]> (l)
          y = HardSigmoid <alpha = 1.0, beta = 0.0> (m) }"""
    heard = verify(model(text), model(text))
    assert heard.ok
    assert not any("reaches an output" in x for x in heard.not_tried)
    assert "values of size 0.03" in " ".join(heard.cases)
    deaf = verify(
        model(text), model(text.replace("Abs (x)", "Sign (p)").replace("{ a", "{ p = Abs (x) a"))
    )
    assert deaf.worst is not None
    assert "values of size 0.03" in deaf.worst.case


def test_an_input_of_which_no_change_reaches_an_output_is_named():
    text = """m (float[B, T] x, int64[B, T] a) => (float[B, T] y)
        <int64 none = {0}, float[5] t = {1, 2, 3, 4, 5}>
        { i = Mul (a, none) g = Gather (t, i) y = Add (x, g) }"""
    found = verify(model(text), model(text))
    assert found.ok
    assert "a change of 'a' that reaches an output" in found.not_tried
    assert not any("'a'" in x for x in found.covered)
    assert not any("'x' that reaches" in x for x in found.not_tried)
    heard = model(text.replace("Mul (a, none)", "Add (a, none)"))
    found = verify(heard, heard)
    assert "10 values of 'a' (-5 to 4)" in found.covered  # both ends of the table
    assert not any("reaches an output" in x for x in found.not_tried)


SLOTS = """m (float[B, T, 2] x, int64[B, T] mask) => (float[B, 2, 2] u)
    <float[1, 2, 2] slots = {1, -2, 0.5, 3}, float one = {1}, float fill, int64[1] at = {1}>
    { k = Transpose <perm = [0, 2, 1]> (x) s = MatMul (slots, k) c = Cast <to = 1> (mask)
      r = Unsqueeze (c, at) o = Sub (one, r) n = Mul (o, fill) a = Add (s, n)
      w = Softmax <axis = 1> (a) u = MatMul (w, x) }"""
# Garbage leaks where it is huge; numbers of every day are hidden by the mask, or are not.
HIDES = """m (float[B, T, 2] x, int64[B, T] mask) => (float[B, T, 2] y)
    <float huge = {100}, int64[1] last = {-1}, int64[1] time = {1}>
    { c = Cast <to = 1> (mask) k = Unsqueeze (c, last) a = Abs (x) big = Greater (a, huge)
      g = Cast <to = 1> (big) w = Max (k, g) %s s = ReduceSum (h, time) y = Add (x, s) }"""


@pytest.mark.parametrize("safety", ["exact", "conditional"])
def test_what_is_fed_into_padding_may_be_content(safety: str):
    """Zeros stay zeros without a bias, and what is huge leaks in the original, too."""
    good = model(SLOTS.replace("float fill", "float fill = {-3.4e38}"))
    wrong = model(SLOTS.replace("float fill", "float fill = {0}"))
    assert verify(good, good, safety=safety).ok
    found = verify(good, wrong, safety=safety)
    assert not found.ok
    assert any("other numbers in the padding" in name for name in found.failed)


def test_rows_beside_ordinary_padding_are_held_where_the_original_does_not_leak():
    good, wrong = model(HIDES % "h = Mul (x, w)"), model(HIDES % "h = Identity (x)")
    assert verify(good, good, safety="valid-rows").ok
    found = verify(good, wrong, safety="valid-rows")
    assert "other numbers in the padding" in str(found)


def test_a_brief_verdict_begins_with_the_case_that_failed_before():
    before, wrong = model(PLAIN), model(PLAIN.replace("Relu", "Tanh"))
    names = list(verify(before, before).cases)
    cache = BaselineCache(failed=[names[3]])
    verdict = verify(before, wrong, brief=True, held=cache, locate=False)
    assert list(verdict.cases) == [names[3]]
    assert not verdict.ok
    assert next(iter(verify(before, wrong, held=cache, locate=False).cases)) == names[0]


def test_an_answer_to_nan_counts_where_it_is_a_number() -> None:
    """What the original lets through is its own affair; what it guards must stay guarded."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T, 4] x) => (float[B, T, 4] y, float[B, T, 4] z, int64[B, T] i) <float a = {0.0}> {
        n = IsNaN (x)  y = Where (n, a, x)  z = %s (x)  i = ArgMax <axis = 2, keepdims = 0> (x) }"""
    before = ir.from_onnx_text(text % "Neg")
    assert verify(before, ir.from_onnx_text(text % "Neg"))
    unguarded = (text % "Neg").replace("Where (n, a, x)", "Identity (x)")
    verdict = verify(before, ir.from_onnx_text(unguarded))
    assert not verdict
    assert "NaN and infinity" in verdict.failed[0]
    diffs = verify(before, before).cases
    rows = {x.output: x.compared for name in diffs if "NaN" in name for x in diffs[name]}
    assert rows["y"] > rows["z"] > rows["i"] == 0


def test_a_model_without_outputs_is_refused_before_any_size_is_tried() -> None:
    nothing = ir.from_onnx_text(
        '<ir_version: 8, opset_import: ["" : 17]> m (float[T] x) => (float[T] y) { y = Relu (x) }'
    )
    nothing.graph.outputs.clear()
    with pytest.raises(ModelError, match="has no outputs, so there is nothing to compare"):
        verify(nothing, nothing)
