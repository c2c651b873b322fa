"""Sizes of sizes of sizes: what takes sympy too long gets a name."""

from __future__ import annotations

import onnx_ir as ir
import onnxruntime as ort
import pytest
import sympy

from graphfix.facts.shapes import Shapes, infer, same_dim, shapes_of
from graphfix.facts.symbolic import expressions, inference, inferred, signs
from graphfix.files import gate

WEIGHT = ", ".join(["0.1"] * 12)


def pitch(levels: int) -> ir.Model:
    """Each level halves the length and cuts it to half of the shorter of two sizes."""
    body, x = [], "x"
    for i in range(levels):
        body.append(
            f"""c{i} = Conv <strides = [2], pads = [1, 1]> ({x}, w)
            sc{i} = Shape <start = 2, end = 3> (c{i}) sx{i} = Shape <start = 2, end = 3> ({x})
            d{i} = Mul (sc{i}, two) m{i} = Min (d{i}, sx{i}) h{i} = Div (m{i}, two)
            a{i} = Slice (c{i}, zero, h{i}, two) b{i} = Slice (c{i}, zero, h{i}, two)
            y{i} = Add (a{i}, b{i})"""
        )
        x = f"y{i}"
    return ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        pitch (float[B, 2, T] x) => (float[B, 2, U] out)
        <float[2, 2, 3] w = {{{WEIGHT}}}, int64[1] two = {{2}}, int64[1] zero = {{0}}>
        {{ {" ".join(body)} out = Relu ({x}) }}"""
    )


def shapes(model: ir.Model) -> tuple[Shapes, dict[str, ir.Value]]:
    return shapes_of(model), {x.name or "": x for n in model.graph for x in n.outputs}


def test_no_size_grows_with_the_depth() -> None:
    found, values = shapes(pitch(8))
    texts = [str(x) for value in values.values() for x in found.dims(value) or ()]
    texts += [str(x) for value in values.values() for x in found.known_elements(value) or ()]
    assert max(map(len, texts)) <= inferred.MAX_DIM_TEXT


def test_the_work_grows_with_the_depth_and_not_faster() -> None:
    def work(levels: int) -> int:
        expressions.normal_form.cache_clear()
        signs.never_negative.cache_clear()
        shapes(pitch(levels))
        return (
            expressions.normal_form.cache_info().misses + signs.never_negative.cache_info().misses
        )

    few, many = work(4), work(8)
    assert many < 4 * few


def test_no_power_grows_with_the_depth() -> None:
    """Sympy asks for the roots of a power of a sum: of the square of a square for minutes."""
    body = ["s0 = Shape <start = 0, end = 1> (x)"]
    body += [f"q{i} = Mul (s{i}, s{i}) s{i + 1} = Add (q{i}, s0)" for i in range(6)]
    found, values = shapes(
        ir.from_onnx_text(
            f"""<ir_version: 8, opset_import: ["" : 17]> m (float[T] x) => (float[U] y)
            {{ {" ".join(body)} y = ConstantOfShape (s6) }}"""
        )
    )
    steep = 0
    for value in values.values():
        for size in (*(found.known_elements(value) or ()), *(found.dims(value) or ())):
            expr = expressions.expr_of(size)
            degree = max([0, *(sympy.degree(expr, x) for x in expr.free_symbols)])
            steep = max(steep, degree)
    assert 4 <= steep <= inferred.MAX_POWER


def test_two_that_are_cut_alike_have_one_name() -> None:
    found, values = shapes(pitch(6))
    a, b = (found.dims(values[x]) for x in ("a5", "b5"))
    assert a is not None
    assert b is not None
    assert same_dim(a[2], b[2])


@pytest.mark.parametrize("length", [64, 100, 129])
def test_what_is_known_is_what_onnx_runtime_makes(length: int) -> None:
    model = pitch(3)
    found, values = shapes(model)
    want = {x.name: found.dims(x) for x in values.values()}
    sizes = {"B": 1, "T": length}
    model.graph.outputs.extend(values[f"y{i}"] for i in range(3))
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), options)
    feed = {"x": ort.OrtValue.ortvalue_from_shape_and_type([1, 2, length], "float32").numpy()}
    names = [f"y{i}" for i in range(3)]
    checked = 0
    for name, array in zip(names, session.run(names, feed), strict=True):
        dim = (want[name] or ())[2]
        if expressions.symbols_of(dim) <= sizes.keys():
            expr = expressions.expr_of(dim)
            assert int(expr.subs({x: sizes[x.name] for x in expr.free_symbols})) == array.shape[2]
            checked += 1
    assert checked >= 2


def test_thirty_layers_of_dynamos_ceilings_are_a_graph() -> None:
    # A causal Conv with a computed pad each: the official decoder of Qwen3-TTS has 29.
    name = "T"
    for _ in range(30):
        name = f"CeilToInt((IntTrueDiv({name} - 1, 1)) + 1.0)"
    proto = ir.to_proto(pitch(1))
    proto.graph.output[0].type.tensor_type.shape.dim[2].dim_param = name
    gate.check_model_proto(proto)


def test_a_branch_is_not_inferred_apart_where_no_sign_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 17]>
        m (bool c, float[B, T, 4] x, float[B, V, U] z) => (y) { y = If (c) <
            then_branch = a () => (p) { p = MatMul (x, z) },
            else_branch = b () => (q) { q = Neg (x) }> }"""
    )
    runs = []
    infer_shapes = inference.infer_shapes

    def counting(*args: object, **options: object) -> None:
        runs.append(args)
        infer_shapes(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(inference, "infer_shapes", counting)
    shapes_of(model)
    assert len(runs) == 1


def known(body: str, name: str = "y") -> list[str] | None:
    model = ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : 17]> m (float[B, T] x, int64[P] p) => (y)
        <float half = {{0.5}}, int64[1] at = {{0}}, int64[2] flat = {{-1, 1}}> {{ {body} }}"""
    )
    values = {x.name or "": x for n in model.graph for x in n.outputs}
    elements = infer(model, usual=True).known_elements(values[name])
    return None if elements is None else [str(x) for x in elements]


def test_floats_between_sizes_are_followed() -> None:
    halves = """s = Shape <start = 1> (x)  f = Cast <to = 1> (s)  h = Mul (f, half)
        g = Floor (h)"""
    assert known(f"{halves}  y = Cast <to = 7> (g)") == ["floor(T/2)"]
    # Of numbers that nobody knows nothing is known behind them, either.
    halves = halves.replace("Shape <start = 1> (x)", "Neg (p)")
    assert known(f"{halves}  y = Cast <to = 7> (g)") is None


def test_a_table_of_sizes_is_no_shape() -> None:
    assert known("s = Shape (x)  y = Reshape (s, flat)") is None
    assert known("s = Shape (x)  t = Reshape (s, flat)  y = Squeeze (t)") == ["B", "T"]
