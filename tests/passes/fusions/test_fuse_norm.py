"""fuse-norm: every way to write a norm, the sums before it, what is none, what stays and why."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.facts.shapes import shapes_of
from graphfix.runtime.local_session import Session
from tests.passes.models import refusals
from tests.passes.typed import typed

RNG = np.random.default_rng(0)
CONSTANTS = """float two = {2.0}, float eps = {1e-5}, float one = {1.0}, float half = {0.5},
    float below = {-0.5}, float three = {3.0}, float[1] eps1 = {1e-5},
    float[1, 1, 1, 1] deep = {1e-5}, float negative = {-1e-5}, int64[1] last = {-1},
    int64[1] third = {2}, int64[1] middle = {1}, int64[2] both = {-2, -1}, int64[2] ends = {0, -1},
    float[1] only = {3.0}"""
SIGNATURE = """float[B, T, 8] x, float[B, T, 8] r, float[8] scale, float[8] bias, float[8] b,
    float[B, T, 8] wide, float[T, 8] table"""


def model(body: str, *, opset: int = 17, out: str = "float[B, T, 8] y",
          signature: str = SIGNATURE, dtype: str = "float") -> ir.Model:  # fmt: skip
    text = f"""<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>
        m ({signature}) => ({out}) <{CONSTANTS}> {{ {body} }}"""
    return typed(text, dtype, "<float two")


def ops(m: ir.Model) -> list[str]:
    return [node.op_type for node in m.graph.all_nodes() if node.op_type != "Constant"]


SIZES = {"B": 2, "T": 5, "H": 3}


def run(m: ir.Model) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    with Session(m) as session:
        feeds = {
            x.name: (rng.standard_normal([SIZES.get(str(d), d) for d in x.shape]) + 1).astype(
                np.float16 if "float16" in x.type else np.float32
            )
            for x in session.inputs
        }
        return list(session.run(feeds).values())


def fused(body: str, **given: object) -> ir.Model:
    """The model after the pass, compared with the one before."""
    before, after = (model(body, **given) for _ in range(2))  # type: ignore[arg-type]
    report = graphfix.run(after, "fuse-norm")
    assert report.changed, report.passes[0].skips
    assert [x.name for x in after.graph.outputs] == [x.name for x in before.graph.outputs]
    for got, want in zip(run(after), run(before), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    assert not graphfix.run(after, "fuse-norm").changed
    return after


def left(body: str, **given: object) -> list[str]:
    """Why nothing was changed."""
    m = model(body, **given)  # type: ignore[arg-type]
    return refusals(m, "fuse-norm")


MEAN = "mean = ReduceMean <axes = [-1]> (x) d = Sub (x, mean) "
SQUARE = {"Pow": "q = Pow (d, two) ", "Mul": "q = Mul (d, d) "}
VARIANCE = {
    "eps last": "v = ReduceMean <axes = [-1]> (q) w = Add (v, eps) ",
    "eps first": "v = ReduceMean <axes = [2]> (q) w = Add (eps, v) ",
    "eps of one element": "v = ReduceMean <axes = [-1], keepdims = 1> (q) w = Add (v, eps1) ",
    "eps cast from double": "e64 = Constant <value = double {1e-5}> () e = Cast <to = 1> (e64) "
    "v = ReduceMean <axes = [-1]> (q) w = Add (v, e) ",
}
ROOT = {
    "Div by Sqrt": "s = Sqrt (w) y = Div (d, s)",
    "Mul with Reciprocal of Sqrt": "s = Sqrt (w) i = Reciprocal (s) y = Mul (d, i)",
    "Mul with 1 / Sqrt": "s = Sqrt (w) i = Div (one, s) y = Mul (i, d)",
    "Mul with Pow -0.5": "i = Pow (w, below) y = Mul (d, i)",
    "Div by Pow 0.5": "s = Pow (w, half) y = Div (d, s)",
    "Mul with Sqrt of Reciprocal": "s = Pow (w, half) i = Reciprocal (s) y = Mul (d, i)",
}
NORM = MEAN + SQUARE["Pow"] + VARIANCE["eps last"] + ROOT["Div by Sqrt"]
RMS = NORM.replace(MEAN, "").replace("(d", "(x").replace("d)", "x)")


def cases(*tables: dict[str, str]) -> list[tuple[str, ...]]:
    return list(itertools.product(*tables))


@pytest.mark.parametrize(("square", "variance", "root"), cases(SQUARE, VARIANCE, ROOT))
def test_layer_norm(square: str, variance: str, root: str) -> None:
    body = MEAN + SQUARE[square] + VARIANCE[variance] + ROOT[root]
    after = fused(body)
    assert [x for x in ops(after) if x != "Cast"] == ["LayerNormalization"]
    rms = body.replace(MEAN, "").replace("(d,", "(x,").replace("d)", "x)")
    after = fused(rms)
    assert [x for x in ops(after) if x != "Cast"] == ["SimplifiedLayerNormalization"]


AFTER = {
    "scale and bias": ("t = Mul (y, scale) z = Add (t, bias)", ["LayerNormalization"]),
    "turned round": ("t = Mul (scale, y) z = Add (bias, t)", ["LayerNormalization"]),
    "only scale": ("z = Mul (y, scale)", ["LayerNormalization"]),
    "only bias": ("z = Add (y, bias)", ["LayerNormalization"]),
    "a wide scale": ("t = Mul (y, wide) z = Add (t, bias)", ["LayerNormalization", "Mul", "Add"]),
    "a wide bias": ("t = Mul (y, scale) z = Add (t, wide)", ["LayerNormalization", "Add"]),
    "a number": ("t = Mul (y, only) z = Add (t, bias)", ["LayerNormalization", "Mul", "Add"]),
    "scale and scale": ("t = Mul (y, scale) z = Mul (t, b)", ["LayerNormalization", "Mul"]),
    "scale used twice": ("t = Mul (y, scale) u = Add (t, bias) z = Add (u, t)",
                         ["LayerNormalization", "Add", "Add"]),
    "gemma's": ("g = Add (scale, one) z = Mul (y, g)", ["Add", "LayerNormalization"]),
}  # fmt: skip


@pytest.mark.parametrize("case", AFTER)
def test_scale_and_bias(case: str) -> None:
    end, wanted = AFTER[case]
    assert ops(fused(f"{NORM} {end}", out="float[B, T, 8] z")) == wanted


def test_an_rms_norm_has_no_bias() -> None:
    after = fused(f"{RMS} t = Mul (scale, y) z = Add (t, bias)", out="float[B, T, 8] z")
    assert ops(after) == ["SimplifiedLayerNormalization", "Add"]


@pytest.mark.parametrize("opset", [11, 14, 17, 18, 21])
def test_opsets(opset: int) -> None:
    body = NORM
    if opset >= 18:  # the axes are an input
        body = NORM.replace(" <axes = [-1]> (x)", " (x, last)").replace(
            " <axes = [-1]> (q)", " (q, third)"
        )
    after = fused(f"{body} z = Neg (y)", opset=opset, out="float[B, T, 8] z")
    assert ops(after) == ["LayerNormalization", "Neg"]
    again = ir.from_proto(ir.to_proto(after))
    assert [str(x) for x in shapes_of(again).dims(again.graph.outputs[0]) or ()] == ["B", "T", "8"]


def test_torchscript_subtracts_the_mean_twice() -> None:
    body = NORM.replace("q = Pow (d, two)", "d2 = Sub (x, mean) q = Pow (d2, two)")
    assert ops(fused(body)) == ["LayerNormalization"]


def test_a_difference_that_is_used_elsewhere_is_normed() -> None:
    after = fused(f"{NORM} z = Neg (d)", out="float[B, T, 8] y, float[B, T, 8] z")
    assert ops(after) == ["ReduceMean", "Sub", "SimplifiedLayerNormalization", "Neg"]


@pytest.mark.parametrize("axes", ["[-2, -1]", "[-1, -2]"])
def test_more_axes_than_one(axes: str) -> None:
    body = NORM.replace("[-1]", axes).replace("float[B, T, 8]", "float[B, 4, 8]")
    signature = SIGNATURE.replace("T", "4")
    after = fused(body, signature=signature, out="float[B, 4, 8] y")
    (node,) = after.graph
    assert node.attributes["axis"].as_int() == -2
    assert node.inputs[1].shape == [4, 8]


CHANNELS = """m = ReduceMean <axes = [1]> (x) d = Sub (x, m) p = Pow (d, two)
    v = ReduceMean <axes = [-{rank}]> (p) e = Add (v, eps) s = Sqrt (e) n = Div (d, s)"""


@pytest.mark.parametrize(
    ("dims", "factor"),
    [("B, 8, T", "8, 1"), ("B, 8, T", "1, 8, 1"), ("B, 8, T, 3", "8, 1, 1"), ("B, 8", "8")],
)
def test_channels_that_frames_follow(dims: str, factor: str) -> None:
    rank, numbers = dims.count(",") + 1, ", ".join(str(x / 8 + 0.5) for x in range(8))
    body = " ".join(f"{x} = Constant <value = float[{factor}] {{{numbers}}}> ()" for x in "gc")
    body += CHANNELS.format(rank=rank - 1) + " f = Mul (g, n) y = Add (f, c)"
    after = fused(body, signature=f"float[{dims}] x", out=f"float[{dims}] y")
    graphfix.run(after, "fold")
    turned = ["Transpose", "LayerNormalization", "Transpose"]
    assert ops(after) == (turned if rank > 2 else turned[1:2])


WHOLE = """m = ReduceMean <axes = [1, 2]> (x) d = Sub (x, m) p = Pow (d, two)
    v = ReduceMean <axes = [-1, -2]> (p) w = Add (v, eps) s = Sqrt (w) """
IMAGE = ["Unsqueeze", "InstanceNormalization", "Squeeze"]


def _chained(body: str) -> str:
    """A mean over two axes as a mean of a mean over one."""
    body = body.replace(
        "m = ReduceMean <axes = [1, 2]> (x)",
        "i = ReduceMean <axes = [1]> (x) m = ReduceMean <axes = [2]> (i)",
    )
    return body.replace(
        "v = ReduceMean <axes = [-1, -2]> (p)",
        "j = ReduceMean <axes = [-2]> (p) v = ReduceMean <axes = [-1]> (j)",
    )


@pytest.mark.parametrize("chained", [False, True])
@pytest.mark.parametrize(
    ("end", "behind"),
    [
        ("n = Div (d, s) y = Neg (n)", ["Neg"]),
        ("n = Div (d, s) g = Mul (n, r) y = Add (g, r)", ["Mul", "Add"]),
        ("g = Mul (r, d) y = Div (g, s)", ["Mul"]),
        ("g = Mul (d, r) n = Div (g, s) y = Add (n, r)", ["Mul", "Add"]),
    ],
)
def test_a_norm_over_all_but_the_batch(end: str, behind: list[str], chained: bool) -> None:
    body = (_chained(WHOLE) if chained else WHOLE) + end
    after = fused(body, signature="float[B, T, H] x, float[T, 1] r", out="float[B, T, H] y")
    assert ops(after) == [*IMAGE, *behind]


def test_a_norm_over_all_but_the_batch_of_four_dims() -> None:
    body = WHOLE.replace("[1, 2]", "[1, 2, 3]").replace("[-1, -2]", "[-1, -2, -3]")
    dims = "float[B, T, H, 4]"
    after = fused(f"{body} y = Div (d, s)", signature=f"{dims} x", out=f"{dims} y")
    assert ops(after) == IMAGE


def test_a_gain_before_the_division_is_the_scale() -> None:
    after = fused(NORM.replace("y = Div (d, s)", "g = Mul (scale, d) y = Div (g, s)"))
    assert ops(after) == ["LayerNormalization"]


def test_a_mean_of_means_over_other_axes_than_the_last_stays() -> None:
    body = _chained(WHOLE).replace("axes = [2]", "axes = [0]").replace("axes = [-1]", "axes = [0]")
    kept = left(f"{body} y = Div (d, s)", signature="float[B, T, H] x", out="float[B, T, H] y")
    assert any("neither one axis nor the last ones" in x for x in kept)


def test_channels_without_a_scale_of_theirs() -> None:
    body = CHANNELS.format(rank=2) + " y = Mul (n, r)"
    after = fused(body, signature="float[B, 8, T] x, float[B, 8, T] r", out="float[B, 8, T] y")
    assert ops(after) == ["Transpose", "LayerNormalization", "Transpose", "Mul"]
    rms = RMS.replace("[-1]", "[1]")
    after = fused(rms, signature="float[B, 8, T] x", out="float[B, 8, T] y")
    assert ops(after) == ["Transpose", "SimplifiedLayerNormalization", "Transpose"]


def test_means_over_different_axes_are_no_norm_of_one() -> None:
    body = CHANNELS.format(rank=1) + " y = Neg (n)"
    after = fused(body, signature="float[B, 8, 8] x", out="float[B, 8, 8] y")
    assert "LayerNormalization" not in ops(after)


def test_float16() -> None:
    before, after = (model(NORM, dtype="float16") for _ in range(2))
    graphfix.run(after, "fuse-norm")
    assert ops(after) == ["LayerNormalization"]
    assert after.graph[0].inputs[1].dtype == ir.DataType.FLOAT16
    np.testing.assert_allclose(run(after)[0], run(before)[0], rtol=2e-2, atol=2e-2)


def test_casts_around_a_norm_stay() -> None:
    body = "x = Cast <to = 1> (h) " + RMS + " z = Cast <to = 10> (y) o = Mul (z, s16)"
    signature = "float16[B, T, 8] h, float16[8] s16"
    before, after = (model(body, signature=signature, out="float16[B, T, 8] o") for _ in range(2))
    assert graphfix.run(after, "fuse-norm").changed
    assert ops(after) == ["Cast", "SimplifiedLayerNormalization", "Cast", "Mul"]
    np.testing.assert_allclose(run(after)[0], run(before)[0], rtol=2e-3)


STAYS = {
    "the mean is used elsewhere": (
        f"{RMS} z = Neg (v)", {"out": "float[B, T, 8] y, float[B, T, 1] z"},
        "'v', a part of it, goes into",
    ),
    "the root is an output": (
        RMS.replace("s = Sqrt", "z = Sqrt").replace(", s)", ", z)"),
        {"out": "float[B, T, 8] y, float[B, T, 1] z"}, "'z', a part of it, is an output",
    ),
    "double": (NORM, {"dtype": "double"}, "the type of 'x' is double"),
    "over time": (RMS.replace("[-1]", "[1]"), {}, "how many ones to give is not known"),
    "over batch and features": (
        RMS.replace("[-1]", "[0, 2]"), {}, "over [-3, -1]: neither one axis nor the last ones",
    ),
    "over everything": (
        RMS.replace(" <axes = [-1]>", ""), {}, "the axes of its mean are not constant, or are all",
    ),
    "no keepdims": (
        RMS.replace("axes = [-1]", "axes = [-1], keepdims = 0"),
        {"signature": SIGNATURE.replace("B, T", "8, 8").replace("[T", "[8"),
         "out": "float[8, 8, 8] y"}, "loses the axis it is taken over (keepdims=0)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", STAYS)
def test_stays_with_a_reason(case: str) -> None:
    body, given, reason = STAYS[case]
    found = left(body, **given)
    assert any(reason in x for x in found), found


NONE = {
    "another tensor": RMS.replace("Div (x", "Div (r"),
    "a cube": RMS.replace("two)", "three)"),
    "a sum": RMS.replace("Mean", "Sum"),
    "no root": RMS.replace("s = Sqrt (w)", "s = Identity (w)"),
    "the root of the inverse, inverted": RMS.replace(
        "s = Sqrt (w)", "i = Reciprocal (w) s = Sqrt (i)"),
    "the root turned round": RMS.replace("Div (x, s)", "Div (s, x)"),
    "multiplied with the root": RMS.replace("Div (x, s)", "Mul (x, s)"),
    "a negative epsilon": RMS.replace("eps)", "negative)"),
    "a product of two": RMS.replace("Pow (x, two)", "Mul (x, r)"),
}  # fmt: skip


@pytest.mark.parametrize("case", NONE)
def test_is_none(case: str) -> None:
    assert left(NONE[case]) == []


DIFFERENCES = {
    "of another mean": NORM.replace("(x) d =", "(r) d ="),
    "of a mean over other axes": NORM.replace("<axes = [-1]> (x)", "<axes = [1]> (x)"),
    "of a scaled mean": NORM.replace("mean = ", "mean0 = ").replace(
        "d = ", "mean = Mul (mean0, half) d = "),
}  # fmt: skip


@pytest.mark.parametrize("case", DIFFERENCES)
def test_another_difference_is_only_scaled(case: str) -> None:
    after = ops(fused(DIFFERENCES[case]))
    assert after[-2:] == ["Sub", "SimplifiedLayerNormalization"]


def test_torch_leaves_out_a_small_epsilon() -> None:
    """Which an RMSNorm may be without; a LayerNorm, of which variances may be 0, is not one."""
    (norm,) = fused(RMS.replace("Sqrt (w)", "Sqrt (v)").replace("w = Add (v, eps)", "")).graph
    assert norm.op_type == "SimplifiedLayerNormalization"
    assert norm.attributes["epsilon"].as_float() == 0
    after = fused(NORM.replace("Sqrt (w)", "Sqrt (v)").replace("w = Add (v, eps)", ""))
    assert ops(after)[-2:] == ["Sub", "SimplifiedLayerNormalization"]


def test_an_epsilon_of_more_dims_is_none() -> None:
    assert left(RMS.replace("eps)", "deep)"), out="float[1, B, T, 8] y") == []


def test_an_epsilon_that_a_caller_may_give_is_none() -> None:
    m = model(NORM)
    m.graph.inputs.append(m.graph.initializers["eps"])
    assert not graphfix.run(m, "fuse-norm").changed


def test_shared_constants_stay_for_others() -> None:
    after = fused(f"{NORM} z = Pow (r, two)", out="float[B, T, 8] y, float[B, T, 8] z")
    assert "two" in after.graph.initializers
    assert "eps" not in after.graph.initializers


LN = "y = LayerNormalization <epsilon = 0.001> (h, scale, bias)"
SLN = "y = SimplifiedLayerNormalization <epsilon = 0.001> (h, scale)"
Y, Z = "float[B, T, 8] y", "float[B, T, 8] z"
RESIDUAL = {
    "a sum": ("h = Add (x, r)", LN, 4, False),
    "a sum with a bias in it": ("p = Add (x, b) h = Add (p, r)", LN, 5, False),
    "a bias in the other": ("p = Add (b, x) h = Add (r, p)", LN, 5, False),
    "a bias around it": ("p = Add (x, r) h = Add (p, b)", LN, 5, False),
    "a bias around it, turned round": ("p = Add (x, r) h = Add (b, p)", LN, 5, False),
    "used elsewhere": ("h = Add (x, r) z = Neg (h)", LN, 4, True),
    "used elsewhere, with a bias": ("p = Add (x, b) h = Add (p, r) z = Neg (h)", LN, 5, True),
    "used before the norm": ("h = Add (x, r) n = Neg (h) z = Neg (n)", LN, 4, True),
    "an output": ("z = Add (x, r) h = Identity (z)", LN.replace("(h", "(z"), 4, True),
    "a sum of one tensor": ("h = Add (x, x)", LN, 4, False),
    "an RMSNorm": ("h = Add (x, r)", SLN, 3, False),
    "an RMSNorm, used elsewhere": ("h = Add (x, r) z = Neg (h)", SLN, 3, True),
    "no bias of its own": ("p = Add (x, b) h = Add (p, r)", LN.replace(", bias)", ")"), 5, False),
    "an axis from the front": ("h = Add (x, r)", LN.replace("<", "<axis = 2, "), 4, False),
}


@pytest.mark.parametrize("case", RESIDUAL)
def test_residual(case: str) -> None:
    before, norm, inputs, kept = RESIDUAL[case]
    body, out = f"{before} {norm}", f"{Y}, {Z}" if " z = " in f" {before}" else Y
    after = fused(body, out=out)
    (node,) = (x for x in after.graph if x.op_type.startswith("Skip"))
    simplified = "Simplified" * (norm is SLN)
    assert (node.domain, node.op_type) == ("com.microsoft", f"Skip{simplified}LayerNormalization")
    assert node.attributes["epsilon"].as_float() == pytest.approx(0.001)
    assert len(node.inputs) == inputs
    # DirectML's kernel refuses outputs for the mean and the deviation.
    assert [bool(x.name) for x in node.outputs] == [True, *([False, False, True] if kept else [])]
    if kept:
        assert node.outputs[3].name in ("h", "z")
    assert "LayerNormalization" not in ops(after)


def test_a_skip_norm_takes_no_epsilon_below_0() -> None:
    reasons = left(f"h = Add (x, r) {LN.replace('0.001', '-0.001')}")
    assert "its epsilon is -0.001: a Skip norm takes none below 0" in reasons


SUMS_OF_THREE = {
    "the bias in the first": "p = Add (x, b) q = Add (p, wide) h = Add (q, r)",
    "in the second": "p = Add (b, wide) q = Add (x, p) h = Add (r, q)",
}


@pytest.mark.parametrize("case", SUMS_OF_THREE)
def test_a_sum_of_three_tensors_and_a_bias(case: str) -> None:
    after = fused(f"{SUMS_OF_THREE[case]} z = Neg (h) {LN}", out=f"{Y}, {Z}")
    assert ops(after) == ["Add", "SkipLayerNormalization", "Neg"]
    assert len(after.graph[1].inputs) == 5


PARTS_USED_ELSEWHERE = {
    "the sum with the bias": ("p", f"p = Add (x, b) h = Add (p, r) {LN}"),
    "a sum of three": ("q", f"p = Add (x, b) q = Add (p, wide) h = Add (q, r) {LN}"),
    "the first of a sum of three": ("p", f"p = Add (x, b) q = Add (p, wide) h = Add (q, r) {LN}"),
}


@pytest.mark.parametrize("case", PARTS_USED_ELSEWHERE)
def test_a_bias_in_what_is_used_elsewhere_stays(case: str) -> None:
    part, body = PARTS_USED_ELSEWHERE[case]
    after = fused(f"{body} z = Neg ({part})", out=f"{Y}, {Z}")
    norms = [x for x in after.graph if x.op_type == "SkipLayerNormalization"]
    assert all(len(x.inputs) == 4 for x in norms)


def test_a_sum_of_three_tensors_without_a_bias() -> None:
    after = fused(f"q = Add (x, wide) h = Add (q, r) {LN}")
    assert ops(after) == ["Add", "SkipLayerNormalization"]
    assert after.graph[0].outputs[0].name == "q"


def test_in_pieces_without_a_scale_and_after_a_sum() -> None:
    body = "x = Add (r, wide) " + NORM
    assert ops(fused(body, signature=SIGNATURE.replace("float[B, T, 8] x, ", ""))) == [
        "SkipLayerNormalization"
    ]


def test_the_sum_stays_on_request() -> None:
    m = model("x = Add (r, wide) " + NORM, signature=SIGNATURE.replace("float[B, T, 8] x, ", ""))
    assert graphfix.run(m, "fuse-norm:residual=no").changed
    assert ops(m) == ["Add", "LayerNormalization"]
    assert not graphfix.run(m, "fuse-norm:residual=no").changed
    assert graphfix.run(m, "fuse-norm").changed
    assert ops(m) == ["SkipLayerNormalization"]


def test_two_dims() -> None:
    signature = SIGNATURE.replace("B, T", "T")
    after = fused(f"h = Add (x, r) {LN}", signature=signature, out="float[T, 8] y")
    assert ops(after) == ["SkipLayerNormalization"]


def test_in_pieces_and_after_a_sum() -> None:
    body = "p = Add (r, b) x = Add (p, wide) " + NORM + " t = Mul (y, scale) z = Add (t, bias)"
    after = fused(body, signature=SIGNATURE.replace("float[B, T, 8] x, ", ""), out=Z)
    assert ops(after) == ["SkipLayerNormalization"]


def test_the_bias_of_an_rms_norm_stays_outside() -> None:
    """DirectML does not add it to the sum."""
    after = fused(f"p = Add (x, b) h = Add (p, r) {SLN}")
    assert ops(after) == ["Add", "SkipSimplifiedLayerNormalization"]
    assert len(after.graph[1].inputs) == 3


RESIDUAL_STAYS = {
    "a table": ("h = Add (x, table)", LN, Y, "both parts need the shape of the sum"),
    "mean used": ("h = Add (x, r)", LN.replace("y =", "y, z ="), f"{Y}, float[B, T, 1] z",
                  "its mean or deviation is used"),
    "over two axes": ("h = Add (x, r)", LN.replace("<", "<axis = 1, ").replace(
        "scale, bias", "table"), Y, "not taken over the last axis alone"),
    "in another type": ("h = Add (x, r)", LN.replace("<", "<stash_type = 16, "), Y,
                        "it computes in another type than float (stash_type)"),
    "a computed scale": ("h = Add (x, r) z = Neg (h) s2 = Neg (scale)", LN.replace("scale", "s2"),
                         f"{Y}, {Z}", "its scale is computed"),
}  # fmt: skip


@pytest.mark.parametrize("case", RESIDUAL_STAYS)
def test_a_residual_sum_stays_with_a_reason(case: str) -> None:
    before, norm, out, reason = RESIDUAL_STAYS[case]
    found = left(f"{before} {norm}", out=out)
    assert any(reason in x for x in found), found


def test_four_dims_stay() -> None:
    signature = SIGNATURE.replace("B, T", "B, H, T")
    found = left(f"h = Add (x, r) {LN}", signature=signature, out="float[B, H, T, 8] y")
    assert found == ["its tensor has 4 dims, and the operator that has the sum takes 2 or 3"]


def test_two_symbols_that_may_differ_stay() -> None:
    """A sum of [B, T, 8] and [B, S, 8], where one of T and S may be 1."""
    signature = SIGNATURE.replace("float[B, T, 8] r", "float[B, S, 8] r")
    (reason,) = left(f"h = Add (x, r) {LN}", signature=signature)
    assert "[B, T, 8] and [B, S, 8]" in reason


IGNORED = {
    "a bias alone": f"h = Add (x, b) {LN}",
    "no sum": f"h = Mul (x, r) {LN}",
    "an input": LN.replace("(h", "(x"),
    "a sum that is used before its bias": f"q = Add (x, r) h = Add (q, b) z = Neg (q) {LN}",
}


@pytest.mark.parametrize("case", IGNORED)
def test_no_residual(case: str) -> None:
    out = f"{Y}, {Z}" if " z = " in IGNORED[case] else Y
    assert left(IGNORED[case], out=out) == []


def test_a_computed_scale_goes_where_nobody_uses_the_sum_before() -> None:
    after = fused(f"s2 = Neg (scale) h = Add (x, r) {LN.replace('scale', 's2')}")
    assert ops(after) == ["Neg", "SkipLayerNormalization"]


def test_a_sum_from_around_a_branch_stays() -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]> m ({SIGNATURE}, bool c) => ({Y})
        {{ h = Add (x, r)
           y = If (c) <then_branch = yes () => ({Y.replace("y", "o")})
             {{ {LN.replace("y =", "o =")} }},
           else_branch = no () => (float[B, T, 8] o2) {{ o2 = Identity (h) }}> }}"""
    assert not graphfix.run(ir.from_onnx_text(text), "fuse-norm").changed


def test_in_a_branch() -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]> m ({SIGNATURE}, bool c) => ({Y})
        <{CONSTANTS}>
        {{ y = If (c) <then_branch = yes () => ({Y.replace("y", "o")})
             {{ {NORM.replace("y =", "o =")} }},
           else_branch = no () => (float[B, T, 8] o2) {{ o2 = Identity (x) }}> }}"""
    before, after = (ir.from_onnx_text(text) for _ in range(2))
    assert graphfix.run(after, "fuse-norm").changed
    assert "LayerNormalization" in ops(after)
    verdict = graphfix.verify(before, after)
    assert verdict.ok, str(verdict)


def test_in_a_local_function_the_type_is_not_known() -> None:
    names = {"two": 2.0, "eps": 1e-5}
    body = " ".join(f"{k} = Constant <value = float {{{v}}}> ()" for k, v in names.items())
    text = f"""<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        m (float[B, T, 8] h) => (float[B, T, 8] y) {{ y = local.norm (h) }}
        <domain: "local", opset_import: ["" : 17]> norm (x) => (y) {{ {body} {NORM} }}"""
    assert "is not known" in refusals(ir.from_onnx_text(text), "fuse-norm")[0]


def test_the_report_names_what_went() -> None:
    m = model(f"p = Add (x, b) h = Add (p, r) z = Neg (h) {LN}", out=f"{Y}, {Z}")
    (change,) = graphfix.run(m, "fuse-norm").passes[0].changes
    assert change.tensor == "y"
    assert [line.partition(" = ")[0] for line in change.removed] == ["p", "h", "y"]
    assert "LayerNormalization" in change.removed[-1]
    assert "(h, scale, bias)" in change.removed[-1]
