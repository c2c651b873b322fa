"""fuse-matmul: what a product takes along, what it does not, and that the numbers stay."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.facts.shapes import shapes_of
from graphfix.runtime.local_session import Session
from tests.passes.models import refusals
from tests.passes.typed import typed

CONSTANTS = """float half = {0.5}, float eight = {8.0}, float[1] one = {3.0},
    float[1, 1, 1, 1, 1] deep = {0.5}, float zero = {0.0}, int64[4] heads = {0, 0, 2, 4},
    int64[1] axes = {1}, float[4] each = {1, 2, 3, 4}"""
SIZES = {"B": 2, "H": 3, "M": 5, "K": 4, "N": 6}
Y = "float[B, H, M, N] y"


def model(body: str, *, signature: str = "float[B, H, M, K] a, float[B, H, K, N] b", out: str = Y,
          dtype: str = "float", opset: int = 17) -> ir.Model:  # fmt: skip
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
        m ({signature}) => ({out}) <{CONSTANTS}> {{ {body} }}"""
    return typed(text, dtype, "<float half")


def ops(m: ir.Model) -> list[str]:
    return [node.op_type for node in m.graph.all_nodes() if node.op_type != "Constant"]


def run(m: ir.Model) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    with Session(m) as session:
        feeds = {
            x.name: rng.standard_normal([SIZES.get(str(d), d) for d in x.shape]).astype(
                np.float16 if "float16" in x.type else np.float32
            )
            for x in session.inputs
        }
        return list(session.run(feeds).values())


def fused(body: str, **given: object) -> ir.Model:
    """The model after the pass, compared with the one before."""
    before, after = (model(body, **given) for _ in range(2))  # type: ignore[arg-type]
    report = graphfix.run(after, "fuse-matmul")
    assert report.changed, report.passes[0].skips
    for got, want in zip(run(after), run(before), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    # What shape inference says of the new operators is what it said of the old ones.
    again = ir.from_proto(ir.to_proto(after))
    for old, new in zip(before.graph.outputs, again.graph.outputs, strict=True):
        assert old.name == new.name
        found = shapes_of(again).dims(new)
        assert list(map(str, found or ())) == list(map(str, shapes_of(before).dims(old) or ()))
    assert not graphfix.run(after, "fuse-matmul").changed
    return after


def left(body: str, **given: object) -> list[str]:
    """Why nothing was changed."""
    m = model(body, **given)  # type: ignore[arg-type]
    return refusals(m, "fuse-matmul")


A, B = "float[B, H, M, K] a", "float[B, H, K, N] b"
TURNED_A, TURNED_B = "float[B, H, K, M] a", "float[B, H, N, K] b"
SWAP = "Transpose <perm = [0, 1, 3, 2]>"
FUSED: dict[str, tuple[str, str, dict[str, float]]] = {
    "b turned": (f"t = {SWAP} (b) y = MatMul (a, t)", f"{A}, {TURNED_B}", {"transB": 1}),
    "a turned": (f"t = {SWAP} (a) y = MatMul (t, b)", f"{TURNED_A}, {B}", {"transA": 1}),
    "both turned": (
        f"t = {SWAP} (a) u = {SWAP} (b) y = MatMul (t, u)", f"{TURNED_A}, {TURNED_B}",
        {"transA": 1, "transB": 1},
    ),
    "scaled after": ("p = MatMul (a, b) y = Mul (p, half)", f"{A}, {B}", {"alpha": 0.5}),
    "scaled after, turned round": (
        "p = MatMul (a, b) y = Mul (half, p)", f"{A}, {B}", {"alpha": 0.5}),
    "divided after": ("p = MatMul (a, b) y = Div (p, eight)", f"{A}, {B}", {"alpha": 0.125}),
    "scaled twice after": (
        "p = MatMul (a, b) q = Mul (p, half) y = Div (q, eight)", f"{A}, {B}", {"alpha": 0.0625}),
    "scaled before": ("s = Mul (a, half) y = MatMul (s, b)", f"{A}, {B}", {"alpha": 0.5}),
    "both scaled before": (
        "s = Mul (a, half) t = Mul (one, b) y = MatMul (s, t)", f"{A}, {B}", {"alpha": 1.5}),
    "scaled and turned": (
        f"s = Mul (b, half) t = {SWAP} (s) y = MatMul (a, t)", f"{A}, {TURNED_B}",
        {"alpha": 0.5, "transB": 1},
    ),
    "turned and scaled": (
        f"t = {SWAP} (b) s = Mul (t, half) y = MatMul (a, s)", f"{A}, {TURNED_B}", {"alpha": 0.5},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FUSED)
def test_takes_along(case: str) -> None:
    body, signature, attributes = FUSED[case]
    after = fused(body, signature=signature)
    node = after.graph[-1]
    assert (node.domain, node.op_type) == ("com.microsoft", "FusedMatMul")
    assert {k: x.value for k, x in node.attributes.items()} == pytest.approx(attributes)
    assert ops(after) == (["Transpose", "FusedMatMul"] if case == "turned and scaled" else
                          ["FusedMatMul"])  # fmt: skip


ROWS = "float[B, M, 4] x, float[B, M, 1] mask, bool[B, M] seen, float[2] w"
ROUND = "Transpose <perm = [0, 2, 1]>"
LINEAR = (
    "weight = Constant <value_floats = [1, 2, 3, 4, 4, 3, 2, 1]> () wide = Reshape (weight, by)"
)
TURNED = {
    "nothing between": (f"p = MatMul (x, wide) y = {ROUND} (p)", ["FusedMatMul"]),
    "a bias and a mask": (
        f"p = MatMul (x, wide) q = Add (p, two) r = Mul (mask, q) y = {ROUND} (r)",
        ["FusedMatMul", "Unsqueeze", "Add", "Transpose", "Mul"],
    ),
    "a mask with a dim of 1": (
        f"""f = Cast <to = 1> (seen) u = Unsqueeze (f, last) p = MatMul (x, wide) r = Mul (p, u)
        y = {ROUND} (r)""",
        ["Cast", "FusedMatMul", "Unsqueeze", "Mul"],
    ),
}


def rows(body: str) -> ir.Model:
    constants = """float[8] weight = {1, 2, 3, 4, 4, 3, 2, 1}, int64[2] by = {4, 2},
        float[2] two = {1, 2}, int64[1] last = {-1}"""
    return ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : 17]>
        m ({ROWS}) => (float[B, I, J] y) <{constants}> {{ wide = Reshape (weight, by) {body} }}""")


def many(m: ir.Model) -> np.ndarray:
    rng = np.random.default_rng(0)
    x, mask = (rng.standard_normal((2, 5, n)).astype(np.float32) for n in (4, 1))
    with Session(m) as session:
        feeds = {"x": x, "mask": mask, "seen": mask[..., 0] > 0, "w": x[0, 0, :2]}
        return session.run({k.name: feeds[k.name] for k in session.inputs})["y"]


@pytest.mark.parametrize("case", TURNED)
def test_a_transpose_of_a_product_is_the_product_the_other_way_round(case: str) -> None:
    body, left_over = TURNED[case]
    before, after = rows(body), rows(body)
    assert graphfix.run(after, "fuse-matmul").changed
    assert ops(after) == ["Reshape", *left_over]
    np.testing.assert_allclose(many(after), many(before), rtol=2e-5, atol=2e-5)
    assert not graphfix.run(after, "fuse-matmul").changed


@pytest.mark.parametrize(
    "body",
    [
        f"p = MatMul (x, wide) r = Relu (p) y = {ROUND} (r)",
        f"p = MatMul (x, wide) r = Add (p, p) y = {ROUND} (r)",
        f"p = MatMul (x, wide) t = {ROUND} (p) r = {ROUND} (p) y = Add (t, r)",
        f"p = MatMul (x, wide) r = Mul (p, w) y = {ROUND} (r)",  # an input
        "p = MatMul (x, wide) y = Transpose <perm = [1, 0, 2]> (p)",
    ],
)
def test_another_transpose_stays(body: str) -> None:
    m = rows(body)
    assert not graphfix.run(m, "fuse-matmul").changed


def test_a_scale_before_the_heads_are_split_stays() -> None:
    body = """s = Mul (a, half) r = Reshape (s, heads) q = Transpose <perm = [0, 2, 1, 3]> (r)
        y = MatMul (q, b)"""
    out = "float[B, 2, M, N] y"
    assert left(body, signature="float[B, M, 8] a, float[B, 2, 4, N] b", out=out) == []


def test_two_products_of_one_scaled_tensor_stay() -> None:
    body = "s = Mul (a, half) y = MatMul (s, b) z = MatMul (s, b)"
    assert left(body, out=f"{Y}, float[B, H, M, N] z") == []


def test_float16_is_scaled_after_and_not_before() -> None:
    """A sum of products that were not scaled down may pass 65504."""
    assert left("s = Mul (a, half) y = MatMul (s, b)", dtype="float16") == []
    m = model("p = MatMul (a, b) y = Mul (p, half)", dtype="float16")
    assert graphfix.run(m, "fuse-matmul").changed
    assert ops(m) == ["FusedMatMul"]


STAYS = {
    "a Transpose used elsewhere": (
        f"t = {SWAP} (b) y = MatMul (a, t) z = Neg (t)", f"{A}, {TURNED_B}",
        f"{Y}, float[B, H, K, N] z",
    ),
    "a Transpose that is an output": (
        f"t = {SWAP} (b) y = MatMul (a, t)", f"{A}, {TURNED_B}", f"{Y}, float[B, H, K, N] t",
    ),
    "a product used elsewhere": (
        "p = MatMul (a, b) y = Mul (p, half) z = Neg (p)", f"{A}, {B}",
        f"{Y}, float[B, H, M, N] z",
    ),
    "a Transpose of heads": (
        "t = Transpose <perm = [0, 2, 1, 3]> (a) y = MatMul (t, b)", f"float[B, M, H, K] a, {B}", Y,
    ),
    "the first axis behind the batch": (
        "t = Transpose <perm = [1, 2, 0, 3]> (a) y = MatMul (t, b)",
        f"float[M, B, H, K] a, {B}", Y,
    ),
    "a bias": ("p = MatMul (a, b) y = Add (p, c)", f"{A}, {B}, float[N] c", Y),
    "a scale for each": ("s = Mul (a, each) y = MatMul (s, b)", f"{A.replace('K', '4')}, "
                         f"{B.replace('K', '4')}", Y),
    "a scale that is given": ("s = Mul (a, g) y = MatMul (s, b)", f"{A}, {B}, float g", Y),
    "a division by it": ("p = MatMul (a, b) y = Div (half, p)", f"{A}, {B}", Y),
    "nothing": ("p = MatMul (a, b) y = Relu (p)", f"{A}, {B}", Y),
    "times zero": ("p = MatMul (a, b) y = Mul (p, zero)", f"{A}, {B}", Y),
    "more dims": ("p = MatMul (a, b) y = Mul (p, deep)", f"{A}, {B}", "float[1, B, H, M, N] y"),
}  # fmt: skip


@pytest.mark.parametrize("case", STAYS)
def test_stays(case: str) -> None:
    body, signature, out = STAYS[case]
    assert left(body, signature=signature, out=out) == []


def test_the_transpose_of_a_weight_stays() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> m (float[B, T, 2] x) => (float[B, T, 3] y)
        <float[3, 2] w = {1, 2, 3, 4, 5, 6}>
        { t = Transpose <perm = [1, 0]> (w) y = MatMul (x, t) }"""
    assert not graphfix.run(ir.from_onnx_text(text), "fuse-matmul").changed


def test_in_a_local_function_the_type_is_not_known() -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        m ({A}, {TURNED_B}) => ({Y}) {{ y = local.dot (a, b) }}
        <domain: "local", opset_import: ["" : 17]> dot (a, b) => (y)
        {{ t = {SWAP} (b) y = MatMul (a, t) }}"""
    assert (
        refusals(ir.from_onnx_text(text), "fuse-matmul")[0] == "the type of 'a' is not known here"
    )


def test_in_a_branch() -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]> m ({A}, {TURNED_B}, bool c) => ({Y})
        {{ y = If (c) <then_branch = yes () => ({Y.replace("y", "o")})
             {{ t = {SWAP} (b) o = MatMul (a, t) }},
           else_branch = no () => ({Y.replace("y", "o2")})
             {{ u = {SWAP} (b) p = MatMul (a, u) o2 = Neg (p) }}> }}"""
    before, after = (ir.from_onnx_text(text) for _ in range(2))
    assert len(graphfix.run(after, "fuse-matmul").passes[0].changes) == 2
    verdict = graphfix.verify(before, after)
    assert verdict.ok, str(verdict)


def test_a_transpose_without_perm_swaps_the_axes_of_a_matrix() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (float[M, K] a, float[N, K] b) => (float[M, N] y)
        { t = Transpose (b) y = MatMul (a, t) }"""
    before, after = (ir.from_onnx_text(text) for _ in range(2))
    assert graphfix.run(after, "fuse-matmul").changed
    assert ops(after) == ["FusedMatMul"]
    for got, want in zip(run(after), run(before), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_a_matrix_that_a_call_may_transpose_stays() -> None:
    m = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 17, "f" : 1]>
        m (float[4, 4] x, float[4, 4] w) => (float[4, 4] y)
        { y = f.lin <turn = [0, 1]> (x, w) }
        <domain: "f", opset_import: ["" : 17]> lin <turn> (x, w) => (y)
        <float[4, 4] x, float[4, 4] w, float[4, 4] t>
        { t = Transpose <perm: ints = @turn> (x) y = MatMul (t, w) }""")
    refusals(m, "fuse-matmul")


def test_a_layout_that_a_call_says_is_not_made_again() -> None:
    m = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 17, "f" : 1]>
        m (float[2, 3, 4] x, float[3, 5] w) => (float[2, 4, 5] y)
        { y = f.lin <turn = [0, 2, 1]> (x, w) }
        <domain: "f", opset_import: ["" : 17]> lin <turn> (x, w) => (y)
        <float[2, 3, 4] x, float[3, 5] w, float[2, 3, 4] s, float[2, 4, 3] t>
        { half = Constant <value_float = 0.5> () s = Mul (x, half)
          t = Transpose <perm: ints = @turn> (s) y = MatMul (t, w) }""")
    refusals(m, "fuse-matmul")


@pytest.mark.parametrize(
    ("between", "out"),
    [
        ("y0 = Transpose <perm = [0, 1, 3, 2]> (p)", "float[B, H, N, M] y"),
        ("y0 = Slice (p, start, end, last)", "float[B, H, M, 1] y"),
        (
            "s = Reshape (p, flat) t = Pad (s, sides) y0 = Slice (t, start, end, axes)",
            "float[A, C] y",
        ),
        ('y0 = Pad <mode = "reflect"> (p, ends)', "float[B, H, M, C] y"),
        ("y0 = Flatten <axis = 2> (p)", "float[A, C] y"),
        ("y0 = Expand (p, wide)", "float[2, B, H, M, N] y"),
    ],
)
def test_a_factor_goes_through_what_lays_out_a_product(between: str, out: str) -> None:
    """As the shift of relative positions does, before their products are scaled."""
    kinds = fused_through(f"p = MatMul (a, b) {between} y = Mul (y0, half)", out)
    assert "Mul" not in kinds
    assert "FusedMatMul" in kinds


@pytest.mark.parametrize(
    "body",
    [
        "p = MatMul (a, b) t = Pad (p, ends, one0) y = Mul (t, half)",  # 3.0 stays 3.0
        "p = MatMul (a, b) t = Relu (p) y = Mul (t, half)",
        "p = MatMul (a, b) t, z = Split <axis = 3> (p, parts) w = Mul (t, half) y = Add (w, z)",
        "p = MatMul (a, b) z = Neg (p) t = Slice (p, start, end, last) y = Mul (t, half)",
        "p = MatMul (a, each4) t = Slice (p, start, end, last) y = Mul (t, half)",
    ],
)
def test_a_factor_of_something_else_stays(body: str) -> None:
    assert "Mul" in fused_through(body, "float[B, H, M, O] y", changed=False)


def fused_through(body: str, out: str, *, changed: bool = True) -> list[str]:
    """The operators after the pass, which compute the same."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, H, M, K] a, float[B, H, K, N] b) => ({out}) <float half = {{0.5}},
        float one0 = {{3.0}}, float[4, 2] each4 = {{1, 2, 3, 4, 5, 6, 7, 8}},
        int64[2] flat = {{-1, 6}}, int64[5] wide = {{2, 1, 1, 1, 1}},
        int64[2] parts = {{3, 3}}, int64[4] sides = {{1, 0, 0, 2}}, int64[1] start = {{1}},
        int64[1] end = {{2}}, int64[1] last = {{3}}, int64[1] axes = {{1}},
        int64[8] ends = {{0, 0, 0, 1, 0, 0, 0, 0}}> {{ {body} }}"""
    before, after = (ir.from_onnx_text(text) for _ in range(2))
    assert graphfix.run(after, "fuse-matmul").changed == changed
    for got, want in zip(run(after), run(before), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    return ops(after)
