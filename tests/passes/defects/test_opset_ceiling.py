"""opset-ceiling: what goes down, what keeps a model where it is and why, equal numbers."""

from __future__ import annotations

import importlib

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

import graphfix
from graphfix.errors import UsageError
from tests.passes.models import data, opened

READ_UP_TO = importlib.import_module("graphfix.passes.defects._opsets").READ_UP_TO


def model(text: str, opset: int, domains: str = "") -> ir.Model:
    return ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : {opset}{domains}]>\n{text}')


def feeds_of(session: ort.InferenceSession) -> dict[str, np.ndarray]:
    kinds = {
        "tensor(float)": np.float32,
        "tensor(float16)": np.float16,
        "tensor(int64)": np.int64,
        "tensor(bool)": np.bool_,
    }
    rng = np.random.default_rng(0)
    return {
        x.name: (rng.normal(size=[n if isinstance(n, int) else 5 for n in x.shape]) * 3).astype(
            kinds[x.type]
        )
        for x in session.get_inputs()
    }


def check_same(before: ir.Model, after: ir.Model) -> None:
    first, second = opened(before), opened(after)
    feeds = feeds_of(first)
    for old, new in zip(first.run(None, feeds), second.run(None, feeds), strict=True):
        assert old.dtype == new.dtype
        # Another kernel of a float operator may round in another way.
        rounding = 1e-5 if old.dtype.kind == "f" else 0
        np.testing.assert_allclose(new, old, rtol=rounding, atol=rounding)


def lower(m: ir.Model, spec: str = "opset-ceiling") -> tuple[ir.Model, graphfix.PassReport]:
    after = m.clone()
    report = graphfix.run(after, spec).passes[0]
    saved = data(after)
    again = graphfix.run(after, spec).passes[0]
    assert not again.changes
    assert again.skips == report.skips
    assert data(after) == saved
    return after, report


WEIGHT = "<float[2, 3, 1] w = {1, 2, 3, 4, 5, 6}>"
DOWN = {
    "conv": (22, f"m (float[B, 3, T] x) => (float[B, 2, T] y) {WEIGHT} {{ y = Conv (x, w) }}"),
    "conv of float16": (
        22,
        """m (float16[B, 3, T] x) => (float16[B, 2, T] y) {
            w32 = Constant <value = float[2, 3, 1] {1, 2, 3, 4, 5, 6}> ()
            w = Cast <to = 10> (w32)
            y = Conv (x, w)
        }""",
    ),
    "a pool that rounds down": (
        22,
        "m (float[1, 3, T] x) => (float[1, 3, U] y) { y = MaxPool <kernel_shape = [2]> (x) }",
    ),
    "a pool with ceil_mode=0 given": (
        22,
        """m (float[1, 3, T] x) => (float[1, 3, U] y)
        { y = AveragePool <ceil_mode = 0, kernel_shape = [2]> (x) }""",
    ),
    "layout operators": (
        23,
        """m (float[B, 3, 4] x) => (float[4, N] y) <int64[2] to = {4, -1}, int64[1] axis = {0}> {
            t = Transpose <perm = [2, 0, 1]> (x)
            u = Unsqueeze (t, axis)
            s = Squeeze (u, axis)
            y = Reshape (s, to)
        }""",
    ),
    "shapes": (
        25,
        """m (float[B, T] x) => (int64[B, T] y, int64 n) {
            s = Shape (x)
            y = ConstantOfShape <value = int64[1] {3}> (s)
            n = Size (x)
        }""",
    ),
    "a cast with saturate": (
        24,
        "m (float[N] x) => (int64[N] y) { y = Cast <saturate = 1, to = 7> (x) }",
    ),
    "a cast to a type of the input": (
        24,
        "m (float[N] x, int64[N] k) => (int64[N] y) { y = CastLike (x, k) }",
    ),
    "top k": (
        24,
        """m (float[2, 5] x) => (float[2, K] y, int64[2, K] i) <int64[1] k = {3}>
        { y, i = TopK (x, k) }""",
    ),
    "quantized": (
        23,
        """m (float[N] x) => (float[N] y) <float scale = {0.5}, uint8 zero = {3}> {
            q = QuantizeLinear (x, scale, zero)
            y = DequantizeLinear (q, scale, zero)
        }""",
    ),
    "quantized without a zero point": (
        23,
        """m (float[N] x) => (float[N] y) <float scale = {0.5}> {
            q = QuantizeLinear (x, scale)
            y = DequantizeLinear (q, scale)
        }""",
    ),
    "branches": (
        23,
        """m (float[N] x, bool[1] c) => (float[M] y) <int64[1] flat = {-1}> {
            one = Squeeze (c)
            y = If (one) <
                then_branch = a () => (float[N] p) { p = Identity (x) },
                else_branch = b () => (float[K] q) { r = Sin (x) q = Reshape (r, flat) }
            >
        }""",
    ),
    "what no revision touched": (
        23,
        "m (float[N] x) => (float[N] y) { a = Gelu (x) b = Add (a, x) y = Relu (b) }",
    ),
    "an absent optional input": (
        23,
        """m (float[N] x) => (float[N, 3] y) <int64[4] pads = {0, 1, 0, 1}, int64[2] to = {-1, 1}>
        { r = Reshape (x, to) y = Pad (r, pads, ) }""",
    ),
}


@pytest.mark.parametrize(("opset", "text"), DOWN.values(), ids=DOWN)
def test_what_goes_down(opset: int, text: str) -> None:
    before = model(text, opset)
    after, report = lower(before)
    assert not report.skips
    assert len(report.changes) == 1
    change = report.changes[0]
    assert change.removed == (f'opset_import "" : {opset}',)
    assert change.added == ('opset_import "" : 21',)
    assert after.opset_imports[""] == 21
    assert after.ir_version == before.ir_version
    onnx.checker.check_model(ir.to_proto(after), full_check=True)
    check_same(before, after)


def test_nothing_but_the_number_changes() -> None:
    before = model(DOWN["branches"][1], 23)
    after, _ = lower(before)
    after.metadata_props.pop("graphfix.pipeline")
    after.opset_imports[""] = 23
    assert data(after) == data(before)


# What each holds beside "the model stays at opset N: ".
STAYS = {
    "attention": (
        23,
        """m (float[1, 2, T, 4] q) => (float[1, 2, T, 4] y) { y = Attention (q, q, q) }""",
        "Attention is new in opset 23: opset 21 has no such operator",
    ),
    "rms norm": (
        23,
        """m (float[N, 4] x) => (float[N, 4] y) <float[4] s = {1, 1, 1, 1}>
        { y = RMSNormalization (x, s) }""",
        "RMSNormalization is new in opset 23",
    ),
    "swish": (24, "m (float[N] x) => (float[N] y) { y = Swish (x) }", "Swish is new in opset 24"),
    "in a branch": (
        24,
        """m (float[N] x, bool c) => (float[N] y) { y = If (c) <
            then_branch = a () => (float[N] p) { p = Identity (x) },
            else_branch = b () => (float[N] q) { q = Swish (x) }
        > }""",
        "Swish is new in opset 24",
    ),
    "conv of bfloat16": (
        22,
        """m (bfloat16[B, 3, T] x, bfloat16[2, 3, 1] w) => (bfloat16[B, 2, T] y)
        { y = Conv (x, w) }""",
        "'x' is tensor(bfloat16), which Conv-11 does not allow",
    ),
    "a cast to float4": (
        23,
        "m (float[N] x) => (float[N] y) { q = Cast <to = 23> (x) y = Cast <to = 1> (q) }",
        "'q' is tensor(float4e2m1), which Cast-21 does not allow",
    ),
    "a rounding mode": (
        24,
        'm (float[N] x) => (float[N] y) { y = Cast <round_mode = "up", to = 1> (x) }',
        "its attribute 'round_mode' is unknown to Cast-21",
    ),
    "a cast to float8": (
        24,
        "m (float[N] x) => (float[N] y) { q = Cast <to = 17> (x) y = Cast <to = 1> (q) }",
        "infinity and what is too large become other float8 numbers (changed in Cast-24)",
    ),
    "an output type": (
        23,
        """m (uint8[N] x) => (float[N] y) <float s = {0.5}, uint8 z = {3}>
        { y = DequantizeLinear <output_dtype = 1> (x, s, z) }""",
        "its attribute 'output_dtype' is unknown to DequantizeLinear-21",
    ),
    "a scale of another type": (
        23,
        """m (float16[N] x) => (uint8[N] y) <float s = {0.5}, uint8 z = {3}>
        { y = QuantizeLinear (x, s, z) }""",
        "'s' is tensor(float) beside tensor(float16), and QuantizeLinear-21 wants one type",
    ),
    "a pool that rounds up": (
        22,
        """m (float[1, 3, T] x) => (float[1, 3, U] y)
        { y = MaxPool <ceil_mode = 1, kernel_shape = [2]> (x) }""",
        "with ceil_mode=1, windows that start in the padding",
    ),
    "an average that rounds up": (
        22,
        """m (float[1, 3, T] x) => (float[1, 3, U] y)
        { y = AveragePool <ceil_mode = 1, kernel_shape = [2]> (x) }""",
        "(changed in AveragePool-22)",
    ),
    "a range of float16": (
        27,
        """m (float16 n) => (float16[K] y) {
            zero = Constant <value_float = 0.0> ()
            start = CastLike (zero, n)
            one = Constant <value_float = 1.0> ()
            step = CastLike (one, n)
            y = Range (start, n, step)
        }""",
        "is tensor(float16), which Range-11 does not allow",
    ),
    "a remainder of floats": (
        28,
        "m (float[N] x, float[N] k) => (float[N] y) { y = Mod (x, k) }",
        "fmod=0 was not defined for float (changed in Mod-28)",
    ),
    "a C remainder of integers": (
        28,
        "m (int64[N] x, int64[N] k) => (int64[N] y) { y = Mod <fmod = 1> (x, k) }",
        "fmod=1 was not defined for int64",
    ),
    "a shift": (
        28,
        """m (uint8[N] x, uint8[N] k) => (uint8[N] y)
        { y = BitShift <direction = "LEFT"> (x, k) }""",
        "a shift by as many bits as the type has was not defined (changed in BitShift-28)",
    ),
    "an order of blocks": (
        28,
        """m (float[1, 1, 2, 2] x) => (float[1, 4, 1, 1] y)
        { y = SpaceToDepth <blocksize = 2, mode = "CRD"> (x) }""",
        "its attribute 'mode' is unknown to SpaceToDepth-13",
    ),
    "an operator that nobody knows": (
        23,
        "m (float[N] x) => (float[N] y) { y = Frobnicate (x) }",
        "knows no operator Frobnicate in opset 23",
    ),
}


@pytest.mark.parametrize(("opset", "text", "reason"), STAYS.values(), ids=STAYS)
def test_what_stays_and_why(opset: int, text: str, reason: str) -> None:
    before = model(text, opset)
    after, report = lower(before)
    assert not report.changes
    assert data(after) == data(before)
    assert report.skips
    for _, why in report.skips:
        assert why.startswith(f"the model stays at opset {opset}: ")
    assert reason in " ".join(why for _, why in report.skips)


def test_one_node_keeps_the_whole_model_and_is_named() -> None:
    text = """m (float[N, 4] x) => (float[N, 4] y) <float[4] s = {1, 1, 1, 1}>
        { a = Sin (x) [norm] b = RMSNormalization (a, s) y = Cos (b) }"""
    before = model(text, 23)
    after, report = lower(before)
    assert data(after) == data(before)
    assert [at for at, _ in report.skips] == ["norm"]


UNTOUCHED = {
    "at the ceiling": (21, "m (float[N] x) => (float[N] y) { y = Sin (x) }", ""),
    "below it": (17, "m (float[N] x) => (float[N] y) { y = Sin (x) }", ""),
    "no standard node": (
        23,
        "m (float[N] x) => (float[N] y) { y = com.microsoft.Gelu (x) }",
        ', "com.microsoft" : 1',
    ),
    "a higher version of another domain": (
        18,
        "m (float[N] x) => (float[N] y) { a = com.acme.Twice (x) y = Sin (a) }",
        ', "com.acme" : 40',
    ),
}


@pytest.mark.parametrize(("opset", "text", "domains"), UNTOUCHED.values(), ids=UNTOUCHED)
def test_what_is_none_of_its_business(opset: int, text: str, domains: str) -> None:
    before = model(text, opset, domains)
    after, report = lower(before)
    assert not report.changes
    assert not report.skips
    assert data(after) == data(before)


def with_function(body: str, opset: int, kind: str = "float") -> ir.Model:
    return ir.from_onnx_text(f"""<ir_version: 10, opset_import: ["" : 23, "local" : 1]>
    m ({kind}[N, 4] x) => ({kind}[M] y) <int64[1] flat = {{-1}}> {{
        a = local.f (x)
        y = Reshape (a, flat)
    }}
    <domain: "local", opset_import: ["" : {opset}]>
    f (v) => (w) {{ {body} }}""")


def test_a_function_has_an_import_of_its_own() -> None:
    before = with_function("t = Transpose (v) w = Sin (t)", 22)
    after, report = lower(before)
    assert [x.at for x in report.changes] == ["m", "function f"]
    assert after.opset_imports[""] == 21
    assert next(iter(after.functions.values())).opset_imports[""] == 21
    check_same(before, after)


def test_a_function_below_the_ceiling_stays() -> None:
    after, report = lower(with_function("w = Transpose (v)", 18))
    assert [x.at for x in report.changes] == ["m"]
    assert next(iter(after.functions.values())).opset_imports[""] == 18


def test_a_function_in_the_way_keeps_the_graph() -> None:
    before = with_function("w = Swish (v)", 24)
    after, report = lower(before)
    assert data(after) == data(before)
    assert "Swish is new" in report.skips[0][1]


def test_an_unknown_type_is_taken_for_any_that_the_model_uses() -> None:
    before = with_function("t = Transpose (v) w = Sin (t)", 22, "bfloat16")
    after, report = lower(before)
    assert data(after) == data(before)
    assert "the type of 't' is not known, and tensor(bfloat16) is new" in report.skips[0][1]


def test_the_other_spelling_of_the_domain() -> None:
    before = model("m (float[N] x) => (float[N] y) { y = Sin (x) }", 23)
    before.opset_imports["ai.onnx"] = before.opset_imports.pop("")
    after, report = lower(before)
    assert report.changes
    assert dict(after.opset_imports) == {"ai.onnx": 21}


def test_an_opset_that_does_not_exist_yet() -> None:
    newest = onnx.defs.onnx_opset_version()
    text = "m (float[N] x) => (float[N] y) { y = Sin (x) }"
    after, report = lower(model(text, newest + 5))
    # Nothing is known of such an opset, so nothing is known of the meaning of Sin in it.
    assert not report.changes
    assert f"knows opsets up to {newest} only" in report.skips[0][1]
    assert after.opset_imports[""] == newest + 5


def test_another_ceiling() -> None:
    text = "m (float[N] x) => (float[N] y) { y = Swish (x) }"
    after, report = lower(model(text, 25), "opset-ceiling:to=24")
    assert after.opset_imports[""] == 24
    assert len(report.changes) == 1


@pytest.mark.parametrize("to", [20, 0, -1])
def test_a_ceiling_below_21_is_refused(to: int) -> None:
    with pytest.raises(UsageError, match="at least 21"):
        graphfix.check(
            model("m (float[N] x) => (float[N] y) { y = Sin (x) }", 23), f"opset-ceiling:to={to}"
        )


def test_check_counts_the_nodes() -> None:
    found = graphfix.check(model(DOWN["layout operators"][1], 23), "opset-ceiling")
    assert [x.message for x in found] == [
        "m is of opset 23, in which 4 of its nodes are newer than opset 21; it can be of opset 21"
    ]
    assert found[0].fix == "opset-ceiling"


def test_every_revision_of_the_installed_onnx_was_read() -> None:
    assert onnx.defs.onnx_opset_version() <= READ_UP_TO, (
        "onnx has a newer opset: compare its schemas with the older ones, extend _REREAD and "
        "raise READ_UP_TO"
    )
