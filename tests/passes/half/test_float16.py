"""float16: what becomes float16, what stays, and that ONNX Runtime makes the same of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from graphfix.engine import pipeline
from graphfix.errors import UsageError
from graphfix.files import io
from graphfix.files.half_weights import NarrowedTensor, float16_fit, tensor_to_float16
from tests.passes.models import opened, refusals

RNG = np.random.default_rng(7)
_BEGIN = RNG.bit_generator.state
FLOAT, HALF = ir.DataType.FLOAT, ir.DataType.FLOAT16


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Each test draws the same numbers, whatever ran before it in this process."""
    RNG.bit_generator.state = _BEGIN


def parse(signature: str, body: str, *, opset: int = 17, extra: str = "") -> ir.Model:
    domains = f'"" : {opset}, "com.microsoft" : 1, "local" : 1'
    return ir.from_onnx_text(
        f"<ir_version: 8, opset_import: [{domains}]>\nm {signature} {{ {body} }} {extra}"
    )


def add(model: ir.Model, **weights: np.ndarray) -> ir.Model:
    """Put weights into the main graph, for inputs of those names."""
    for name, array in weights.items():
        value = next(x for x in model.graph.inputs if x.name == name)
        model.graph.inputs.remove(value)
        value.const_value = ir.tensor(array, name=name)
        value.shape, value.type = (
            ir.Shape(array.shape),
            ir.TensorType(ir.DataType.from_numpy(array.dtype)),
        )
        model.graph.register_initializer(value)
    return model


def run(model: ir.Model, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = opened(model)
    names = [x.name for x in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def halved(model: ir.Model, spec: str = "float16") -> ir.Model:
    proto = ir.to_proto(model)
    after = ir.from_proto(proto)
    report = graphfix.run(after, spec)
    assert report.changed
    text = ir.to_proto(after).SerializeToString(deterministic=True)
    assert not graphfix.run(after, spec).changed, "a second run changes something"
    assert ir.to_proto(after).SerializeToString(deterministic=True) == text
    onnx.checker.check_model(onnx.load_model_from_string(text), full_check=False)
    return after


def agree(
    before: ir.Model, after: ir.Model, feeds: dict[str, np.ndarray], share: float = 1e-2
) -> None:
    theirs = run(after, feeds)
    for name, ours in run(before, feeds).items():
        assert theirs[name].dtype == ours.dtype, name
        if ours.dtype.kind == "f":
            assert np.isfinite(theirs[name][np.isfinite(ours)]).all(), name
            top = np.abs(ours[np.isfinite(ours)]).max(initial=0)
            np.testing.assert_allclose(theirs[name], ours, rtol=0, atol=share * top)
        else:
            np.testing.assert_array_equal(theirs[name], ours)


def types(model: ir.Model) -> dict[str, list[str]]:
    """The types that inference finds of what each operator takes, by operator."""
    proto = onnx.shape_inference.infer_shapes(ir.to_proto(model))
    known = {x.name: x.type.tensor_type.elem_type for x in proto.graph.value_info}
    known |= {
        x.name: x.type.tensor_type.elem_type for x in (*proto.graph.input, *proto.graph.output)
    }
    known |= {x.name: x.data_type for x in proto.graph.initializer}
    found: dict[str, list[str]] = {}
    for node in proto.graph.node:
        kinds = {ir.DataType(known.get(x, 0)).name for x in node.input if x}
        found.setdefault(node.op_type, []).append("/".join(sorted(kinds)))
    return found


def f(*dims: int, scale: float = 1.0) -> np.ndarray:
    return (scale * RNG.standard_normal(dims)).astype(np.float32)


# Each graph with what it is fed; weights by name are put in.
GRAPHS: dict[str, tuple[str, str, dict[str, np.ndarray], dict[str, np.ndarray]]] = {
    "linear": (
        "(float[B, 8] x, float[8, 8] w, float[8] b) => (float[B, 8] y)",
        "h = MatMul (x, w) y = Add (h, b)",
        {"w": f(8, 8), "b": f(8)},
        {"x": f(3, 8)},
    ),
    "branches that take what is outside": (
        "(float[B, 8] x, bool c, float[8, 8] w) => (float[B, 8] y)",
        """h = MatMul (x, w)
        y = If (c) <then_branch = yes () => (float[B, 8] a) { a = MatMul (h, w) },
                    else_branch = no () => (float[B, 8] d) { e = Relu (x) d = Add (e, h) }>""",
        {"w": f(8, 8)},
        {"x": f(2, 8), "c": np.array(True)},
    ),
    "a branch that is an outer value": (
        "(float[B, 8] x, bool c, float[8, 8] w) => (float[B, 8] y)",
        """h = MatMul (x, w)
        y = If (c) <then_branch = yes () => (float[B, 8] a) { a = Identity (x) },
                    else_branch = no () => (float[B, 8] d) { d = Identity (h) }>""",
        {"w": f(8, 8)},
        {"x": f(2, 8), "c": np.array(False)},
    ),
    "a loop that carries": (
        "(float[B, 8] x, int64 n, float[8, 8] w) => (float[B, 8] y, float[N, B, 8] all)",
        """t = Constant <value = bool {1}> ()
        y, all = Loop (n, t, x) <body = step (int64 i, bool go, float[B, 8] s)
            => (bool on, float[B, 8] u, float[B, 8] v)
            { on = Identity (go) u = MatMul (s, w) v = Tanh (u) }>""",
        {"w": f(8, 8, scale=0.3)},
        {"x": f(2, 8), "n": np.array(3, np.int64)},
    ),
    "a scan": (
        "(float[T, 8] x, float[8] h, float[8, 8] w) => (float[8] last, float[T, 8] y)",
        """last, y = Scan <num_scan_inputs = 1, body = step (float[8] s, float[8] e)
            => (float[8] u, float[8] v)
            { p = MatMul (e, w) q = Add (p, s) u = Tanh (q) v = Identity (u) }> (h, x)""",
        {"w": f(8, 8, scale=0.3)},
        {"x": f(5, 8), "h": f(8)},
    ),
    "a resize": (
        "(float[1, 4, 6] x, float[4, 4, 3] w, float[6] roi, float[3] by) => (float[1, 4, U] y)",
        'h = Conv <pads = [1, 1]> (x, w) y = Resize <mode = "linear"> (h, roi, by)',
        {"w": f(4, 4, 3), "roi": np.zeros(6, np.float32), "by": np.array([1, 1, 2], np.float32)},
        {"x": f(1, 4, 6)},
    ),
    "recurrence": (
        "(float[T, B, 4] x, float[1, 16, 4] w, float[1, 16, 4] r, float[1, 32] b, int32[B] n)"
        " => (float[T, 1, B, 4] y, float[1, B, 4] h, float[1, B, 4] c)",
        "y, h, c = LSTM <hidden_size = 4> (x, w, r, b, n)",
        {"w": f(1, 16, 4), "r": f(1, 16, 4), "b": f(1, 32)},
        {"x": f(5, 2, 4), "n": np.array([5, 3], np.int32)},
    ),
    "norms": (
        "(float[B, 4, 8] x, float[8, 8] w, float[8] s, float[4] g, float[4] v)"
        " => (float[B, 4, 8] y)",
        """a = MatMul (x, w) b = LayerNormalization (a, s, s) c = InstanceNormalization (b, g, g)
        y = BatchNormalization (c, g, g, g, v)""",
        {"w": f(8, 8), "s": f(8), "g": f(4), "v": np.abs(f(4)) + 1},
        {"x": f(2, 4, 8)},
    ),
    "a mean over what is valid": (
        "(float[B, T, 8] x, bool[B, T] m, float[8, 8] w) => (float[B, 8] y)",
        """h = MatMul (x, w) p = Cast <to = 1> (m) two = Constant <value = int64[1] {2}> ()
        one = Constant <value = int64[1] {1}> () q = Unsqueeze (p, two) r = Mul (h, q)
        s = ReduceSum <keepdims = 0> (r, one) n = ReduceSum <keepdims = 0> (q, one)
        least = Constant <value = float {1e-9}> () k = Max (n, least) y = Div (s, k)""",
        {"w": f(8, 8)},
        {"x": f(2, 3000, 8) + 1, "m": np.arange(3000)[None] < np.array([[3000], [2500]])},
    ),
    "a mask of the float minimum": (
        "(float[B, T, 8] x, bool[B, T, T] m, float[8, 8] w) => (float[B, T, T] y)",
        """h = MatMul (x, w) t = Transpose <perm = [0, 2, 1]> (x) s = MatMul (h, t)
        low = Constant <value = float {-3.4028235e38}> () z = Where (m, s, low)
        y = Softmax <axis = -1> (z)""",
        {"w": f(8, 8, scale=0.3)},
        {
            "x": f(2, 5, 8),
            "m": np.arange(5)[None, None] < np.array([5, 2])[:, None, None] + np.zeros((2, 5, 1)),
        },
    ),
    "positions": (
        "(int64[B, T] ids, float[9, 8] table, float[1, 4] freq) => (float[B, T, 8] y)",
        """h = Gather (table, ids) one = Constant <value = int64 {1}> () sh = Shape (ids)
        t = Gather (sh, one) zero = Constant <value = int64 {0}> () r = Range (zero, t, one)
        at = Constant <value = int64[1] {1}> () u = Unsqueeze (r, at) c = Cast <to = 1> (u)
        a = MatMul (c, freq) si = Sin (a) co = Cos (a) e = Concat <axis = -1> (si, co)
        y = Add (h, e)""",
        {"table": f(9, 8), "freq": np.array([[1, 0.3, 0.1, 0.01]], np.float32)},
        {"ids": RNG.integers(0, 9, (1, 5000))},
    ),
    "a length in floats": (
        "(float[B, T, 8] x, int64[B] n, float[8, 8] w) => (float[B, T, 8] y, int64[B] k)",
        """y = MatMul (x, w) c = Cast <to = 1> (n) three = Constant <value = float {3}> ()
        d = Div (c, three) e = Floor (d) k = Cast <to = 7> (e)""",
        {"w": f(8, 8)},
        {"x": f(1, 2, 8), "n": np.array([480_001])},
    ),
    "a log of powers": (
        "(float[B, 8] x, float[8, 8] w) => (float[B, 8] y)",
        """h = MatMul (x, w) p = Mul (h, h) least = Constant <value = float {1e-10}> ()
        c = Clip (p, least) y = Log (c)""",
        {"w": f(8, 8, scale=1e-4)},
        {"x": f(3, 8)},
    ),
    "a weight that is too large": (
        "(float[B, 8] x, float[8, 8] w, float[8] b) => (float[B, 8] y)",
        "h = MatMul (x, w) g = Mul (h, b) y = MatMul (g, w)",
        {"w": f(8, 8), "b": np.full(8, 1e5, np.float32)},
        {"x": f(3, 8, scale=1e-3)},
    ),
    "a bound that is too large": (
        "(float[B, 8] x, float[8, 8] w) => (float[B, 8] y)",
        """h = MatMul (x, w) top = Constant <value = float {1e30}> () n = Neg (top)
        y = Clip (h, n, top)""",
        {"w": f(8, 8)},
        {"x": f(3, 8)},
    ),
    "a sequence": (
        "(float[6, 8] x, float[8, 8] w) => (float[2, 8] y)",
        """h = MatMul (x, w) two = Constant <value = int64 {2}> ()
        s = SplitToSequence <axis = 0> (h, two)
        one = Constant <value = int64 {1}> () e = SequenceAt (s, one) y = MatMul (e, w)""",
        {"w": f(8, 8)},
        {"x": f(6, 8)},
    ),
    "quantized": (
        "(float[B, 8] x, int8[8, 8] w, float s) => (float[B, 8] y)",
        """d = DequantizeLinear (w, s) h = MatMul (x, d) a, b, c = DynamicQuantizeLinear (h)
        y = DequantizeLinear (a, b, c)""",
        {"w": RNG.integers(-100, 100, (8, 8)).astype(np.int8), "s": np.array(3e-3, np.float32)},
        {"x": f(3, 8)},
    ),
    "operators of ONNX Runtime": (
        "(float[B, T, 8] x, float[8, 8] w, float[8] b) => (float[B, T, 8] y)",
        """h = com.microsoft.FusedMatMul <alpha = 0.5> (x, w) g = com.microsoft.BiasGelu (h, b)
        n, u, v, s = com.microsoft.SkipLayerNormalization (g, x, b, b)
        y = com.microsoft.MultiHeadAttention <num_heads = 2> (n, s, s)""",
        {"w": f(8, 8), "b": f(8)},
        {"x": f(2, 5, 8)},
    ),
    "an output that is read inside as well": (
        "(float[B, 8] x, float[8, 8] w) => (float[B, 8] y, float[B, 8] z, float[B, 8] x2)",
        "y = MatMul (x, w) z = MatMul (y, w) x2 = Identity (x)",
        {"w": f(8, 8)},
        {"x": f(3, 8)},
    ),
    "what random operators and fills make": (
        "(float[B, 8] x, float[8, 8] w) => (float[B, 8] y)",
        """h = MatMul (x, w) s = Shape (h) z = ConstantOfShape (s)
        o = ConstantOfShape <value = float[1] {2}> (s)
        e = EyeLike (w) k = MatMul (o, e) a = Add (h, z) y = Add (a, k)""",
        {"w": f(8, 8)},
        {"x": f(3, 8)},
    ),
    "casts of the model's own": (
        "(float[B, 8] x, float[8, 8] w) => (float[B, 8] y, double[B, 8] z, int64[B, 8] i)",
        """h = MatMul (x, w) d = Cast <to = 11> (h) e = Cast <to = 1> (d) s = CastLike (e, x)
        y = MatMul (s, w) z = Cast <to = 11> (y) r = Round (x) i = Cast <to = 7> (r)""",
        {"w": f(8, 8)},
        {"x": f(3, 8)},
    ),
    "a matrix that ONNX Runtime makes in float32": (
        "(float[B, 9] x) => (float[B, 6] y)",
        """bins = Constant <value_int = 6> () size = Constant <value_int = 16> ()
        rate = Constant <value_int = 8000> () low = Constant <value_float = 0.0> ()
        high = Constant <value_float = 4000.0> ()
        m = MelWeightMatrix (bins, size, rate, low, high) y = MatMul (x, m)""",
        {},
        {"x": f(3, 9)},
    ),
    "a mixed model": (
        "(float[B, 40] x, float16[40, 40] w, float[40, 40] v) => (float[B, 40] y)",
        """a = Cast <to = 10> (x) h = MatMul (a, w) b = Cast <to = 1> (h) p = Softmax (b)
        q = Cast <to = 10> (p) r = MatMul (q, w) s = Cast <to = 1> (r) y = MatMul (s, v)""",
        {"w": f(40, 40).astype(np.float16), "v": f(40, 40)},
        {"x": f(3, 40)},
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_it_loads_and_agrees(name: str) -> None:
    signature, body, weights, feeds = GRAPHS[name]
    before = add(parse(signature, body), **weights)
    agree(before, halved(before), feeds)


@pytest.mark.parametrize("opset", [9, 13, 18])
def test_a_norm_that_onnx_runtime_has_as_a_function_of_float32_stays(opset: int) -> None:
    signature = "(float[3, 3, 3, 2] x, float[2, 2] w) => (float[3, 3, 3, 2] y)"
    body = "h = MatMul (x, w) y = MeanVarianceNormalization (h)"
    before = add(parse(signature, body, opset=opset), w=f(2, 2))
    agree(before, halved(before), {"x": f(3, 3, 3, 2)})


@pytest.mark.parametrize(
    ("made", "opset"),
    [
        ("EyeLike <dtype = 1> (x)", 17),
        ("EyeLike <dtype = 1> (x)", 22),
        ("RandomNormalLike <dtype = 1> (x)", 17),
        ("RandomUniformLike <dtype = 1> (x)", 17),
        ("RandomNormal <shape = [4, 4]> ()", 17),
        ("RandomUniform <shape = [4, 4]> ()", 17),
    ],
)
def test_what_onnx_runtime_makes_in_float32_alone_stays(made: str, opset: int) -> None:
    body = f"a = MatMul (x, w) n = {made} y = Add (a, n)"
    before = parse("(float[4, 4] x, float[4, 4] w) => (float[4, 4] y)", body, opset=opset)
    after = halved(add(before, w=f(4, 4)))
    assert run(after, {"x": f(4, 4)})["y"].shape == (4, 4)


@pytest.mark.parametrize("name", GRAPHS)
def test_inputs_and_outputs_become_float16_if_asked(name: str) -> None:
    signature, body, weights, feeds = GRAPHS[name]
    before = add(parse(signature, body), **weights)
    after = halved(before, "float16:io=half")
    given = {
        x.name: feeds[x.name].astype(np.float16)
        if feeds[x.name].dtype == np.float32 and feeds[x.name].ndim > 1
        else feeds[x.name]
        for x in after.graph.inputs
    }
    made = graphfix.get_pass("float16", io="half").feeds(feeds)
    assert {n: x.dtype for n, x in made.items()} == {n: x.dtype for n, x in given.items()}
    ours, theirs = run(before, feeds), run(after, given)
    for key, array in theirs.items():
        if ours[key].dtype == np.float32 and ours[key].ndim > 1:
            assert array.dtype == np.float16, key
            top = np.abs(ours[key]).max()
            assert np.abs(array - ours[key]).max() <= 2e-2 * top or top > 65504 or top < 1e-4


def test_a_row_that_is_hidden_whole_stays_a_number() -> None:
    before = add(
        parse(
            "(float[B, T, T] s, float[T, T] w, bool[B, 1, T] m) => (float[B, T, T] y)",
            """h = MatMul (s, w) one = Constant <value = float {1}> () f = Cast <to = 1> (m)
            g = Sub (one, f) low = Constant <value = float {-3.4028235e38}> () k = Mul (g, low)
            twice = Add (h, k) z = Add (twice, k) y = Softmax (z)""",
        ),
        w=f(4, 4),
    )
    feeds = {"s": f(2, 4, 4), "m": np.array([[[True, True, False, True]], [[False] * 4]])}
    ours, theirs = run(before, feeds)["y"], run(halved(before), feeds)["y"]
    np.testing.assert_allclose(theirs[0], ours[0], atol=2e-3)
    assert np.isnan(ours[1]).all()  # twice the minimum is -inf in float32 already
    assert np.isfinite(theirs[1]).all()


def test_what_stays_says_why_and_there_are_casts_at_borders_only() -> None:
    signature, body, weights, _ = GRAPHS["positions"]
    after = halved(add(parse(signature, body), **weights))
    found = types(after)
    assert found["Sin"] == found["Cos"] == ["FLOAT"]
    assert found["Add"] == ["FLOAT16"]
    assert len(found["Cast"]) == 3  # of the positions, behind the angles, before the output
    report = graphfix.run(add(parse(signature, body), **weights), "float16")
    reasons = " ".join(reason for _, reason in report.passes[0].skips)
    assert "may hold whole numbers past 2,048" in reasons


@pytest.mark.parametrize(("dtype", "wide"), [("int8", False), ("uint8", False), ("int16", True)])
def test_whole_numbers_of_eight_bits_are_all_in_float16(dtype: str, wide: bool) -> None:
    """Weights in int8 that the graph scales itself: none is past 2,048."""
    before = add(
        parse(
            f"(float[B, 8] x, {dtype}[8, 8] w, float[8] s) => (float[B, 8] y)",
            "f = Cast <to = 1> (w) d = Mul (f, s) h = MatMul (x, d) y = Tanh (h)",
        ),
        w=np.arange(-32, 32).reshape(8, 8).astype(dtype),
        s=f(8),
    )
    report = graphfix.run(before, "float16")
    reasons = " ".join(reason for one in report.passes for _, reason in one.skips)
    assert ("past 2,048" in reasons) == wide
    assert report.changed or wide


def test_a_weight_that_float16_does_not_hold_is_named() -> None:
    signature, body, weights, _ = GRAPHS["a weight that is too large"]
    model = add(parse(signature, body), **weights)
    skips = graphfix.run(model, "float16").passes[0].skips
    assert any("'b' reaches 1e+05, float16 65504" in reason for _, reason in skips)
    initializers = {x.name: x.const_value.dtype for x in model.graph.initializers.values()}
    assert initializers["b"] == FLOAT
    assert initializers["w"] == HALF


@pytest.mark.parametrize(("count", "more"), [(5, ""), (6, "1 more constants lose some")])
def test_few_weights_that_lose_digits_are_named(count: int, more: str) -> None:
    weights = {f"w{n}": f(8, 8) for n in range(count)}
    for array in weights.values():
        array[0, 0] = 1e-9
    inputs = ", ".join(f"float[8, 8] {name}" for name in weights)
    steps = " ".join(f"h{n + 1} = MatMul (h{n}, w{n})" for n in range(count))
    body = f"h0 = Identity (x) {steps} y = Tanh (h{count})"
    model = add(parse(f"(float[B, 8] x, {inputs}) => (float[B, 8] y)", body), **weights)
    (change,) = graphfix.run(model, "float16").passes[0].changes
    assert change.note.count("become 0") == 5
    assert change.note.endswith(more or "become 0")


def test_a_mask_gets_a_floor_that_float16_holds_twice() -> None:
    signature, body, _, _ = GRAPHS["a mask of the float minimum"]
    model = add(parse(signature, body), w=f(8, 8))
    graphfix.run(model, "float16")
    low = next(x for x in model.graph if x.outputs[0].name == "low")
    value = low.attributes["value"].as_tensor().numpy()
    assert value.dtype == np.float16
    assert -65504 / 2 < value < -1e4


@pytest.mark.parametrize("keep", ["MatMul", "h", "*at?ul*", "Softmax+h"])
def test_what_is_kept_by_name_stays(keep: str) -> None:
    signature, body, weights, feeds = GRAPHS["a mask of the float minimum"]
    before = add(parse(signature, body), **weights)
    after = halved(before, f"float16:keep={keep}")
    agree(before, after, feeds)
    assert "FLOAT" in types(after)["MatMul"]
    assert ("FLOAT" in types(after)["Softmax"][0].split("/")) == (keep == "Softmax+h")


def test_names_behind_a_comma_are_names_too() -> None:
    passes = pipeline.parse_passes("float16:keep=Softmax,MatMul,reshape-allowzero")
    assert [x.spec() for x in passes] == ["float16:keep=Softmax+MatMul", "reshape-allowzero"]


def test_a_name_that_nothing_has_is_refused() -> None:
    signature, body, weights, _ = GRAPHS["linear"]
    with pytest.raises(UsageError, match="no node, tensor or operator 'Sofmax'"):
        graphfix.run(add(parse(signature, body), **weights), "float16:keep=Sofmax")


def test_only_some_operators() -> None:
    signature, body, weights, feeds = GRAPHS["norms"]
    before = add(parse(signature, body), **weights)
    after = halved(before, "float16:only=MatMul")
    agree(before, after, feeds)
    assert types(after)["MatMul"] == ["FLOAT16"]
    assert types(after)["LayerNormalization"] == ["FLOAT"]


def test_local_functions_are_inlined() -> None:
    before = parse(
        "(float[B, 8] x, float[8, 8] w) => (float[B, 8] y)",
        "h = local.twice (x, w) y = local.twice (h, w)",
        extra="""<domain: "local", opset_import: ["" : 17]>
        twice (a, k) => (c) { b = MatMul (a, k) c = MatMul (b, k) }""",
    )
    before = add(before, w=f(8, 8, scale=0.3))
    after = halved(before)
    assert not after.functions
    agree(before, after, {"x": f(3, 8)})


@pytest.mark.skipif(
    ort.__version__.startswith("1.24."), reason="its CPU optimizer dies of a float16 default"
)
def test_a_weight_that_is_an_input_becomes_float16_and_a_setting_does_not() -> None:
    before = parse(
        "(float[B, 40] x, float[40, 40] w, float speed) => (float[B, 40] y)",
        "h = MatMul (x, w) y = Mul (h, speed)",
    )
    before.graph.inputs[1].const_value = ir.tensor(f(40, 40), name="w")
    before.graph.inputs[2].const_value = ir.tensor(np.array(2, np.float32), name="speed")
    for value in before.graph.inputs[1:]:
        before.graph.initializers[value.name] = value
    after = halved(before)
    assert [x.dtype for x in after.graph.inputs] == [FLOAT, HALF, FLOAT]
    agree(before, after, {"x": f(3, 40)})
    agree(before, after, {"x": f(3, 40), "speed": np.array(3, np.float32)})


def test_a_shared_weight_is_one_and_a_small_one_stays() -> None:
    before = add(
        parse(
            "(float[B, 40] x, float[40, 40] w, float[40] b) => (float[B, 40] y)",
            "h = MatMul (x, w) g = Add (h, b) e = Add (g, b) y = MatMul (e, w)",
        ),
        w=f(40, 40),
        b=f(40),
    )
    after = halved(before, "float16:keep=e+y")
    held = {x.name: x.const_value for x in after.graph.initializers.values()}
    assert held["w"].dtype == HALF
    assert sum(x.size == 1600 for x in held.values()) == 1
    assert [x.dtype.name for x in held.values() if x.size == 40] == ["FLOAT"]
    agree(before, after, {"x": f(3, 40)})


def test_a_graph_that_is_float16_already_keeps_every_byte() -> None:
    model = add(
        parse(
            "(float16[B, 8] x, float16[8, 8] w) => (float[B, 8] y)",
            "h = MatMul (x, w) y = Cast <to = 1> (h)",
        ),
        w=f(8, 8).astype(np.float16),
    )
    refusals(model, "float16")


# Weights


@pytest.mark.parametrize("placed", ["inside", "beside"])
@pytest.mark.parametrize("placement", ["auto", "inline", "separate"])
def test_big_weights_are_converted_on_their_way(
    tmp_path: Path, placed: str, placement: str
) -> None:
    weights = {"w": f(300, 300, scale=0.05), "v": f(300, 300, scale=0.05)}
    before = add(
        parse(
            "(float[B, 300] x, float[300, 300] w, float[300, 300] v) => (float[B, 300] y)",
            "h = MatMul (x, w) g = Relu (h) y = MatMul (g, v)",
        ),
        **weights,
    )
    source, target = tmp_path / "m.onnx", tmp_path / "half.onnx"
    ir.save(before, source, external_data="m.data" if placed == "beside" else None)
    model = io.load(source)
    graphfix.run(model, "float16")
    assert isinstance(model.graph.initializers["w"].const_value, NarrowedTensor)
    io.save(model, target, external_data=placement)
    again = io.load(target)
    for name, array in weights.items():
        tensor = again.graph.initializers[name].const_value
        assert tensor.dtype == HALF
        np.testing.assert_array_equal(tensor.numpy(), array.astype(np.float16))
    made = {x.name for x in tmp_path.iterdir()} - {"m.onnx", "m.data"}
    beside = placement == "separate" or (placement == "auto" and placed == "beside")
    assert len(made) == 1 + beside
    assert (target.stat().st_size < 10_000) == beside
    feeds = {"x": f(2, 300)}
    options = ort.SessionOptions()
    ours = ort.InferenceSession(source, options).run(None, feeds)[0]
    theirs = ort.InferenceSession(target, options).run(None, feeds)[0]
    np.testing.assert_allclose(theirs, ours, atol=1e-2 * np.abs(ours).max())


@given(st.lists(st.floats(width=32, allow_nan=True, allow_infinity=True), max_size=50))
@settings(deadline=None)
def test_what_is_told_of_a_weight_is_what_converting_it_does(numbers: list[float]) -> None:
    array = np.array(numbers, np.float32)
    tensor = ir.tensor(array)
    with np.errstate(over="ignore"):
        half = array.astype(np.float16)
    np.testing.assert_array_equal(tensor_to_float16(tensor).numpy(), half)
    extent, finite = float16_fit(tensor), np.isfinite(array)
    assert extent.largest == np.abs(array[finite]).max(initial=0)
    assert extent.overflowing >= np.count_nonzero(finite & np.isinf(half))
    assert extent.overflowing == np.count_nonzero(np.abs(array[finite]) > 65504)
    zeros = np.count_nonzero(finite & (array != 0) & (half == 0))
    assert (
        0 <= zeros - extent.underflowing <= np.count_nonzero(np.abs(array) == np.float32(2.0**-25))
    )


def test_an_operator_that_only_onnx_runtime_has_at_this_opset() -> None:
    before = add(
        parse(
            "(float[B, 8] x, float[8, 8] w, float[8] s) => (float[B, 8] y)",
            "h = LayerNormalization (x, s, s) y = MatMul (h, w)",
            opset=14,
        ),
        w=f(8, 8),
        s=f(8),
    )
    after = graphfix.run(before, "float16").passes[0]
    assert not after.skips
    assert {x.const_value.dtype for x in before.graph.initializers.values()} == {HALF}


@pytest.mark.parametrize(
    ("signature", "body", "reason"),
    [
        (
            "(float[T, 4] x, seq(float[T, 4]) s) => (seq(float[T, 4]) y)",
            """h = MatMul (x, w) y = SequenceMap <body = b (float[T, 4] a, float[T, 4] c)
                => (float[T, 4] d) { d = Add (a, c) }> (s, h)""",
            "a sequence has one type throughout",
        ),
        (
            "(float[T, 4] x) => (int32[T, 4] y)",
            "h = MatMul (x, w) y = BitCast <to = 6> (h)",
            "its bits are read as those of another type",
        ),
        (
            "(float[T, 4] x) => (float[T, 4] y)",
            """h = MatMul (x, w) y = ai.onnx.ml.LabelEncoder <keys_tensor = float[1] {1.0},
                values_tensor = float[1] {2.0}> (h)""",
            "a tensor of float32 is among its attributes",
        ),
    ],
)
def test_what_float16_would_be_of_another_type_stays(
    signature: str, body: str, reason: str
) -> None:
    weights = f"float[4, 4] w = {{ {', '.join(['0.5'] * 16)} }}"
    model = ir.from_onnx_text(
        f"""<ir_version: 10, opset_import: ["" : 26, "ai.onnx.ml" : 4]>
        m {signature} <{weights}> {{ {body} }}"""
    )
    graphfix.run(model, "float16")
    last = next(x for x in model.graph if x.op_type in ("SequenceMap", "BitCast", "LabelEncoder"))
    assert last.metadata_props["graphfix.float16"] == reason
    product = next(x for x in model.graph if x.op_type == "MatMul")
    assert product.outputs[0].dtype == HALF


def test_an_operator_that_nobody_knows_is_left_with_what_it_takes() -> None:
    model = add(
        parse(
            "(float[B, 8] x, float[8, 8] w) => (float[B, 8] y)",
            "h = MatMul (x, w) k = local.strange (h) y = MatMul (k, w)",
        ),
        w=f(8, 8),
    )
    report = graphfix.run(model, "float16")
    assert any("strange of 'local' is not known" in x for _, x in report.passes[0].skips)
    strange = next(x for x in model.graph if x.op_type == "strange")
    maker = strange.inputs[0].producer()
    assert maker.op_type == "Cast"
    assert maker.attributes["to"].as_int() == FLOAT


def test_reasons_that_differ_in_names_and_numbers_alone_are_told_once() -> None:
    model = parse(
        "(float[N, 64] x, float[64, 64] w, float a, float b, float c) => (float[N, 64] y)",
        "h = MatMul (x, w) p = Add (h, a) q = Add (p, b) r = Add (q, c) s = Sqrt (r)"
        " g = MatMul (s, w) k = MatMul (g, w) l = MatMul (k, w) y = MatMul (l, w)",
    )
    tiny = {name: np.array(n, np.float32) for name, n in (("a", 1e-9), ("b", 2e-9), ("c", 3e-9))}
    add(model, w=np.abs(RNG.standard_normal((64, 64))).astype(np.float32) / 64, **tiny)
    skips = [reason for _, reason in graphfix.run(model, "float16").passes[0].skips]
    start, end = "stays in float32 (and ", " is 1e-09 at most, too little for float16"
    (reason,) = [x for x in skips if "at most" in x]
    assert reason == f"{start}2 like it): 'a'{end}"
