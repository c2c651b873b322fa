"""fuse-projections: what goes into an attention, what does not and why, and that nothing moves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.facts.shapes import shapes_of
from graphfix.files import io
from graphfix.job import planning
from graphfix.runtime.local_session import Session
from tests.passes.models import ops, refusals

SIZES = {"B": 2, "T": 5, "S": 3}
X, Y = "float[B, T, 8] x", "float[B, T, 8] y"
PRODUCTS = "q = MatMul (x, wq) k = MatMul (x, wk) v = MatMul (x, wv)"
MHA = "com.microsoft.MultiHeadAttention"
PLAIN = f"{PRODUCTS} y = {MHA} <num_heads = 2> (q, k, v)"
WEIGHTS = {
    "wq": (8, 8),
    "wk": (8, 8),
    "wv": (8, 8),
    "b": (24,),
    "wide": (8, 16),
    "heads": (8, 2, 4),
    "up": (6, 8),
    "all": (8, 24),
    "down": (24, 8),
}


def model(body: str, *, signature: str = X, out: str = Y, dtype: str = "float") -> ir.Model:
    given = signature.split(", float")
    missing = [x for x in WEIGHTS if not any(y.rstrip().endswith(f"] {x}") for y in given)]
    named = ", ".join(f"float[{', '.join(map(str, WEIGHTS[x]))}] {x}" for x in missing)
    text = f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        m ({signature}, {named}) => ({out}) {{ {body} }}"""
    proto = onnx.parser.parse_model(text.replace("float", dtype))
    rng = np.random.default_rng(1)
    for name in missing:
        array = rng.standard_normal(WEIGHTS[name]) / 2
        kind = {"float": np.float32, "float16": np.float16, "double": np.float64}[dtype]
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(kind), name))
    kept = [x for x in proto.graph.input if x.name not in missing]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    return ir.from_proto(proto)


def run(m: ir.Model) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    feeds = {}
    with Session(m) as session:
        for x in session.inputs:
            dims = [SIZES.get(str(d), d) for d in x.shape]
            kind = np.float16 if "float16" in x.type else np.float32
            feeds[x.name] = rng.standard_normal(dims).astype(kind)
            if "int" in x.type:
                feeds[x.name] = np.arange(SIZES["T"]) < np.array([[3], [5]])
                feeds[x.name] = feeds[x.name].astype(np.int32)
        return list(session.run(feeds).values())


FORMS = {
    "plain": (PLAIN, {}),
    "a mask": (
        f"{PRODUCTS} y = {MHA} <num_heads = 2, mask_filter_value = -5.0> (q, k, v, , seen)",
        {"signature": f"{X}, int32[B, T] seen"},
    ),
    "an addend, a bias and a scale": (
        f"{PRODUCTS} y = {MHA} <num_heads = 4, scale = 0.3> (q, k, v, b, , r)",
        {"signature": f"{X}, float[B, 4, T, T] r"},
    ),
    "another width than the tensor's": (
        f"{PRODUCTS} y = {MHA} <num_heads = 2> (q, k, v)".replace("wq", "up").replace(
            "wk", "up").replace("wv", "up"),
        {"signature": "float[B, T, 6] x"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_an_attention_takes_its_products_along(name: str) -> None:
    body, given = FORMS[name]
    before, after = (model(body, **given) for _ in range(2))  # type: ignore[arg-type]
    report = graphfix.run(after, "fuse-projections")
    assert report.changed, report.passes[0].skips
    assert ops(after) == ["Concat", "Attention"]
    for got, want in zip(run(after), run(before), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    again = ir.from_proto(ir.to_proto(after))
    assert str(shapes_of(again).dims(again.graph.outputs[0])) == str(
        shapes_of(before).dims(before.graph.outputs[0])
    )
    assert planning.plan(after).steps_on("dml", "cpu") == 1  # the Concat is done once


def test_a_weight_may_be_laid_out_as_a_matrix_when_the_model_is_loaded() -> None:
    """XLNet's have their heads apart, as its Einsums take them."""
    laid = "square = Constant <value_ints = [8, 8]> () laid = Reshape (heads, square)"
    before, after = (model(f"{laid} {PLAIN.replace('wk', 'laid')}") for _ in range(2))
    assert graphfix.run(after, "fuse-projections").changed
    assert ops(after) == ["Constant", "Reshape", "Concat", "Attention"]
    np.testing.assert_allclose(run(after)[0], run(before)[0], rtol=2e-5, atol=2e-5)
    assert planning.plan(after).steps_on("dml", "cpu") == 1


@pytest.mark.parametrize("part", ["q", "k", "v"])
@pytest.mark.parametrize("out", [True, False])
def test_a_product_that_something_else_reads_stays_as_well(part: str, out: bool) -> None:
    """As a Conformer's relative positions read the queries."""
    body = PLAIN if out else f"{PLAIN} n = Relu ({part})"
    signature = f"{Y}, float[B, T, 8] {part if out else 'n'}"
    before, after = (model(body, out=signature) for _ in range(2))
    assert graphfix.run(after, "fuse-projections").changed
    assert sorted(ops(after)) == ["Attention", "Concat", "MatMul", *["Relu"] * (not out)]
    for got, want in zip(run(after), run(before), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    assert not graphfix.run(after, "fuse-projections").changed


TURN = "{0}t = Transpose <perm = [1, 0, 2]> ({0})"
TURNED = " ".join(TURN.format(x) for x in "qkv")


@pytest.mark.parametrize("source", ["h = Relu (x)", "h = Transpose <perm = [1, 0, 2]> (x)"])
@pytest.mark.parametrize("aside", ["", "n = Relu (k)", "n = Relu (kt)"])
@pytest.mark.parametrize("whole", [False, True])
def test_time_first_is_turned_at_the_source(source: str, aside: str, whole: bool) -> None:
    """Once for all three, by turn-back; not at all where the source was turned before."""
    body = f"{PRODUCTS.replace('x', 'h')} {TURNED}"
    if whole:
        body = f"""parts = Constant <value_ints = [8, 8, 8]> () p = MatMul (h, all) a = Add (p, b)
            q, k, v = Split <axis = 2> (a, parts) {TURNED}"""
    text = f"{source} {body} y = {MHA} <num_heads = 2> (qt, kt, vt) {aside}"
    out = "float[P, Q, 8] y" + ", float[R, S, 8] n" * bool(aside)
    before, after = (model(text, out=out) for _ in range(2))
    assert graphfix.run(after, "turn-back,fuse-projections").changed
    turns = int("Relu" in source or aside == "n = Relu (k)")
    assert ops(after).count("Transpose") == turns
    assert ops(after).count("Attention") == 1
    for got, want in zip(run(after), run(before), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_what_the_products_make_is_of_float16() -> None:
    after = model(PLAIN, dtype="float16")
    assert graphfix.run(after, "fuse-projections").changed
    (attention,) = (x for x in after.graph if x.op_type == "Attention")
    bias = attention.inputs[2]
    assert bias is not None
    assert bias.const_value is not None
    assert bias.const_value.dtype == ir.DataType.FLOAT16
    assert not bias.const_value.numpy().any()


def test_layers_that_share_their_weights_share_what_is_made_of_them() -> None:
    second = PLAIN.replace("y =", "z =").replace("(x,", "(h,").replace("q ", "q2 ")
    second = second.replace("k ", "k2 ").replace("v ", "v2 ").replace("(q, k, v)", "(q2, k2, v2)")
    m = model(f"{PLAIN.replace('y =', 'h =')} {second} y = Identity (z)")
    want = run(m)
    assert graphfix.run(m, "fuse-projections").changed
    assert ops(m) == ["Concat", "Attention", "Attention", "Identity"]
    np.testing.assert_allclose(run(m)[0], want[0], rtol=2e-5, atol=2e-5)


def test_no_weight_is_read_or_moved(tmp_path: Path) -> None:
    proto = ir.to_proto(model(PLAIN))
    given = {"save_as_external_data": True, "location": "w.data", "size_threshold": 0}
    onnx.save(proto, tmp_path / "m.onnx", **given)
    before = (tmp_path / "w.data").read_bytes()
    m = io.load(tmp_path / "m.onnx")
    assert graphfix.run(m, "fuse-projections").changed
    weights = [m.graph.initializers[x].const_value for x in ("wq", "wk", "wv")]
    assert all(isinstance(x, ir.ExternalTensor) and x.raw is None for x in weights)
    io.save(m, tmp_path / "out.onnx")
    assert (tmp_path / "w.data").read_bytes() == before
    assert {x.name for x in onnx.load(tmp_path / "out.onnx").graph.initializer} >= {"wq", "wk"}
    with Session(tmp_path / "out.onnx") as session:
        x = np.ones((1, 4, 8), np.float32)
        with Session(tmp_path / "m.onnx") as plain:
            np.testing.assert_allclose(
                session.run({"x": x})["y"], plain.run({"x": x})["y"], rtol=2e-5, atol=2e-5
            )


STAYS = {
    "q and v, which it reads, are outputs or go elsewhere": (
        f"{PLAIN} n = Relu (v)", {"out": f"{Y}, float[B, T, 8] n, float[B, T, 8] q"}),
    "its keys and values are outputs": (
        f"{PRODUCTS} y, a, c = {MHA} <num_heads = 2> (q, k, v)",
        {"out": f"{Y}, float[B, 2, T, 4] a, float[B, 2, T, 4] c"}),
    "it is in double": (PLAIN, {"dtype": "double", "out": "double[B, T, 8] y"}),
    "the weight 'wq', which goes into an Add too": (
        f"{PLAIN} n = Add (wq, wq)", {"out": f"{Y}, float[8, 8] n"}),
    "the weight 'wk', which goes into a Reshape too, would be held twice": (
        f"{PLAIN} flat = Constant <value_ints = [64]> () n = Reshape (wk, flat)",
        {"out": f"{Y}, float[64] n"}),
    "of more than one width": (
        f"{PRODUCTS.replace('wv', 'wide')} y = {MHA} <num_heads = 2> (q, k, v)",
        {"out": "float[B, T, 16] y"}),
    "'x', which it is made from, is not known to have three dims": (
        PLAIN, {"signature": "float x"}),
}  # fmt: skip


@pytest.mark.parametrize("reason", STAYS)
def test_what_stays_says_why(reason: str) -> None:
    body, given = STAYS[reason]
    m = model(body, **given)  # type: ignore[arg-type]
    (why,) = refusals(m, "fuse-projections")
    assert reason in why


def test_a_weight_that_a_caller_may_give_anew_stays() -> None:
    m = model(PLAIN)
    m.graph.inputs.append(m.graph.initializers["wk"])
    assert refusals(m, "fuse-projections")[0].startswith("the weight 'wk' is an input")


NONE = {
    "a weight on the left": (
        PLAIN.replace("(x, wq)", "(wq, x)"), {"signature": "float[B, 8, 8] x",
        "out": "float[B, 8, 8] y"},
    ),
    "a bias that stays outside": (
        f"{PRODUCTS} a = Add (q, q) y = {MHA} <num_heads = 2> (a, k, v)", {},
    ),
    "a weight that is laid out by a shape that is given": (
        f"laid = Reshape (heads, sizes) {PLAIN.replace('wk', 'laid')}",
        {"signature": f"{X}, int64[2] sizes"},
    ),
    "a weight that is computed": (
        f"n = Neg (wq) {PLAIN.replace('(x, wq)', '(x, n)')}", {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NONE)
def test_what_is_none_is_left_alone(name: str) -> None:
    body, given = NONE[name]
    m = model(body, **given)  # type: ignore[arg-type]
    assert not refusals(m, "fuse-projections")


SPLIT = "q, k, v = Split <axis = 2> (h, parts)"
PACKED = f"p = MatMul (x, all) h = Add (p, b) {SPLIT} y = {MHA} <num_heads = 2> (q, k, v)"


def packed(body: str, out: str = Y) -> ir.Model:
    """With what a Split needs, which is an input of it since opset 13."""
    return model(f"parts = Constant <value_ints = [8, 8, 8]> () {body}", out=out)


@pytest.mark.parametrize(
    "body",
    [
        PACKED,
        PACKED.replace("h = Add (p, b)", "h = Identity (p)").replace(
            "p = MatMul (x, all) h = Identity (p)", "h = MatMul (x, all)"),
        PACKED.replace("Add (p, b)", "Add (b, p)"),
        PACKED.replace("p = MatMul (x, all) h = Add (p, b)", "h = MatMul (x, all)").replace(
            "(q, k, v)", "(q, k, v, b)"),
    ],
)  # fmt: skip
def test_one_product_for_all_three(body: str) -> None:
    before, after = packed(body), packed(body)
    report = graphfix.run(after, "fuse-projections")
    assert report.changed, report.passes[0].skips
    assert "Concat" not in ops(after)
    assert ops(after)[-1] == "Attention"
    assert "Split" not in ops(after)
    np.testing.assert_allclose(run(after)[0], run(before)[0], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("part", ["q", "k", "v"])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_what_something_else_reads_gets_a_product_of_its_own(
    part: str, first: bool, bias: bool
) -> None:
    """As the memory of SANM reads the values."""
    body = PACKED if bias else PACKED.replace("p = MatMul (x, all) h = Add (p, b)",
                                              "h = MatMul (x, all)")  # fmt: skip
    product, attention = body.split(" y = ")
    n = f"m = Relu ({part}) n = Add (m, {part})"
    body = f"{product} {n} y = {attention}" if first else f"{body} {n}"
    before, after = (packed(body, f"{Y}, float[B, T, 8] n") for _ in range(2))
    assert graphfix.run(after, "fuse-projections").changed
    assert "Split" not in ops(after)
    assert ops(after).count("MatMul") == 1
    for got, want in zip(run(after), run(before), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    assert not graphfix.run(after, "fuse-projections").changed


@pytest.mark.parametrize(
    ("body", "out", "reason"),
    [
        (
            f"{PACKED} n = Relu (v) l = Relu (k)",
            f"{Y}, float[B, T, 8] n, float[B, T, 8] l",
            "'k', which it reads, is an output",
        ),
        (PACKED, f"{Y}, float[B, T, 8] k", "'k', which it reads, is an output"),
        (PACKED.replace("(q, k, v)", "(q, k, v, b)"), Y, "is not its only bias"),
        (PACKED.replace("(q, k, v)", "(k, q, v)"), Y, None),
        (PACKED.replace("q, k, v = Split", "q, v, k = Split"), Y, None),
        (f"{PACKED} n = Relu (h)", f"{Y}, float[B, T, 24] n", None),
    ],
)
def test_other_parts_stay(body: str, out: str, reason: str | None) -> None:
    m = packed(body, out)
    report = graphfix.run(m, "fuse-projections")
    assert not report.changed
    skips = report.passes[0].skips
    assert [reason in why for _, why in skips] == [True] if reason else not skips


PAST = f"{X}, float[B, 2, P, 4] pk, float[B, 2, P, 4] pv"
WITH_PAST = PACKED.replace("(q, k, v)", "(q, k, v, , , , pk, pv)").replace("y =", "y, k2, v2 =")
PRESENT = f"{Y}, float[B, 2, N, 4] k2, float[B, 2, N, 4] v2"


@pytest.mark.parametrize("body", [WITH_PAST, WITH_PAST.replace("(p, b)", "(b, p)")])
def test_the_bias_of_one_with_a_past_goes_into_it(body: str) -> None:
    text = f"parts = Constant <value_ints = [8, 8, 8]> () {body}"
    before, after = (model(text, signature=PAST, out=PRESENT) for _ in range(2))
    assert len(graphfix.run(after, "fuse-projections").passes[0].changes) == 1
    assert ops(after)[-3:] == ["MatMul", "Split", "MultiHeadAttention"]
    verdict = graphfix.verify(before, after)
    assert verdict.ok, verdict.reason or verdict.failed
    assert not graphfix.run(after, "fuse-projections").changed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(q, k, v, ,", "(q, k, v, b,"),  # it has one
        ("(q, k, v, ,", "(k, q, v, ,"),
        ("Add (p, b)", "Add (p, p)"),
        ("y, k2", "other = Relu (v) y, k2"),
    ],
)
def test_another_bias_before_a_past_stays(old: str, new: str) -> None:
    text = f"parts = Constant <value_ints = [8, 8, 8]> () {WITH_PAST.replace(old, new)}"
    m = model(
        text, signature=PAST, out=PRESENT + (", float[B, T, 8] other" if "other" in new else "")
    )
    assert not graphfix.run(m, "fuse-projections").changed


def test_parts_of_time_are_no_queries_keys_and_values() -> None:
    m = model(
        f"""parts = Constant <value_ints = [3, 3, 3]> () h = MatMul (x, wq)
        {SPLIT.replace("axis = 2", "axis = 1")} y = {MHA} <num_heads = 2> (q, k, v)""",
        signature="float[B, 9, 8] x",
        out="float[B, 3, 8] y",
    )
    assert not refusals(m, "fuse-projections")


SEQUENCE = f"""axis = Constant <value = int64[1] {{0}}> () g = Gemm <transB = 1> (x, down, b)
    u = Unsqueeze (g, axis) q, k, v = Split <axis = 2> (u)
    y = {MHA} <num_heads = 2> (q, k, v, , , r)"""
ONE = {"signature": "float[T, 8] x, float[1, 2, T, T] r", "out": "float[1, T, 8] y"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("<transB = 1> (x, down, b)", "(x, all, b)"),
        ("axis = 2", "axis = -1"),
        ("(x, down, b)", "(x, f, b) f = Identity (down)"),
    ],
)
def test_a_sequence_without_a_batch(old: str, new: str) -> None:
    """As the official encoder of Qwen3-ASR has it, of which join-conditions makes one Gemm."""
    text = SEQUENCE.replace(old, new) if old else SEQUENCE
    if "f = Identity" in new:
        text = "f = Identity (down) " + SEQUENCE.replace("(x, down, b)", "(x, f, b)")
    before, after = (model(text, **ONE) for _ in range(2))
    graphfix.run(after, "fuse-projections,fold")
    made = [x for x in ops(after) if x not in ("Constant", "Transpose", "Identity")]
    assert made == ["Unsqueeze", "Attention"]
    assert not graphfix.run(after, "fuse-projections").changed
    for got, want in zip(run(after), run(before), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("old", "new", "more"),
    [
        ("transB = 1", "transB = 1, alpha = 2.0", {}),
        ("transB = 1", "transB = 1, beta = 0.5", {}),
        ("(x, down, b)", "(x, down)", {}),
        ("num_heads = 2", "num_heads = 2, unidirectional = 1", {}),
        (
            "int64[1] {0}",
            "int64[1] {1}",
            {"signature": "float[T, 8] x, float[T, 2, 1, 1] r", "out": "float[T, 1, 8] y"},
        ),
        ("(q, k, v, , , r)", "(q, k, v, b, , r)", {}),
        ("(x, down, b)", "(x, c, b)", {"signature": f"{ONE['signature']}, float[24, 8] c"}),
        ("axis = Const", "z = Relu (g) axis = Const", {"out": f"{ONE['out']}, float[T, 24] z"}),
        ("axis = Const", "z = Relu (u) axis = Const", {"out": f"{ONE['out']}, float[1, T, 24] z"}),
    ],
)
def test_another_sequence_stays(old: str, new: str, more: dict[str, str]) -> None:
    text = SEQUENCE.replace(old, new)
    if new.startswith("z = "):
        text = f"{SEQUENCE} {new.partition(' axis')[0]}"
    after = model(text, **{**ONE, **more})
    graphfix.run(after, "fuse-projections")
    assert "MultiHeadAttention" in ops(after)
