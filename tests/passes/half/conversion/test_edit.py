"""float16 from opset 11 to 23: a layer as exporters of the time write it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.files.half_weights import KEPT_IN_FLOAT32_KEY
from graphfix.float16_search.emulate import emulate_float16
from graphfix.runtime.local_session import Session
from tests.passes.half.test_float16 import HALF, add, agree, f, halved, parse, same_numbers

__all__ = ["same_numbers"]  # a fixture

SIGNATURE = """m (float[B, T, 8] x, int64[B, T] mask, float[8] g, float[8] b, float[8, 8] w,
    float[8, 32] up, float[32, 8] down, int64[2] middle, int64[1] last) => (float[B, T, 8] y)"""


def layer(opset: int) -> ir.Model:
    """Attention with a mask of -3.4e38 between norms; operators in one piece where they exist."""
    unsqueeze = "Unsqueeze <axes = [1, 2]> (lower)" if opset < 13 else "Unsqueeze (lower, middle)"
    squeeze = "Squeeze <axes = [1]> (o4)" if opset < 13 else "Squeeze (o4, one_axis)"
    lift = "Unsqueeze <axes = [1]> (v)" if opset < 13 else "Unsqueeze (v, one_axis)"
    softmax = "Softmax <axis = 3> (hidden)" if opset < 13 else "Softmax <axis = -1> (hidden)"

    def mean(made: str, taken: str) -> str:
        axes = f"<axes = [-1]> ({taken})" if opset < 18 else f"({taken}, last)"
        return f"{made} = ReduceMean {axes}"

    norm = f"""{mean("mu", "x")} d = Sub (x, mu) two = Constant <value = float {{2.0}}> ()
    sq = Pow (d, two) {mean("va", "sq")} eps = Constant <value = float {{1e-5}}> ()
    ve = Add (va, eps) sd = Sqrt (ve) n0 = Div (d, sd) n1 = Mul (n0, g) n = Add (n1, b)"""
    if opset >= 23:
        norm = "n = RMSNormalization <axis = -1> (x, g)"
    elif opset >= 17:
        norm = "n = LayerNormalization (x, g, b)"
    gelu = """root = Constant <value = float {1.4142135}> () h0 = Div (h, root) h1 = Erf (h0)
    h2 = Add (h1, one) h3 = Mul (h, h2) half = Constant <value = float {0.5}> ()
    e = Mul (h3, half)"""
    if opset >= 20:
        gelu = "e = Gelu (h)"
    attention = f"""k = Transpose <perm = [0, 1, 3, 2]> (v4) s = MatMul (v4, k)
    hidden = Add (s, bias) p = {softmax} o4 = MatMul (p, v4)"""
    if opset >= 23:
        attention = "o4 = Attention (v4, v4, v4, whole)"
    body = f"""{norm} v = MatMul (n, w) one_axis = Constant <value = int64[1] {{1}}> () v4 = {lift}
    one = Constant <value = float {{1.0}}> () m = Cast <to = 1> (mask) rest = Sub (one, m)
    low = Constant <value = float {{-3.4028235e38}}> () lower = Mul (rest, low) bias = {unsqueeze}
    size = Shape (x) at = Constant <value = int64[1] {{1}}> () t = Gather (size, at)
    ones = Constant <value = int64[2] {{1, 1}}> () shape = Concat <axis = 0> (ones, t, at)
    whole = Expand (bias, shape) {attention}
    o = {squeeze} r = Add (x, o) h = MatMul (r, up) {gelu} z = MatMul (e, down) y = Add (r, z)"""
    model = ir.from_onnx_text(
        f'<ir_version: {8 if opset < 22 else 10}, opset_import: ["" : {opset}]> '
        f"{SIGNATURE} {{ {body} }}"
    )
    return add(
        model,
        g=1 + f(8, scale=0.1),
        b=f(8),
        w=f(8, 8, scale=0.3),
        up=f(8, 32, scale=0.3),
        down=f(32, 8, scale=0.3),
        middle=np.array([1, 2]),
        last=np.array([-1]),
    )


@pytest.mark.parametrize("opset", [11, 12, 13, 14, 17, 18, 19, 20, 21, 22, 23])
def test_a_layer_at_each_opset(opset: int) -> None:
    before = layer(opset)
    after = halved(before)
    mask = np.arange(6)[None] < np.array([[6], [4]])
    feeds = {"x": f(2, 6, 8), "mask": mask.astype(np.int64)}
    agree(before, after, feeds)
    ours = Session(before, optimize=False).run(feeds)["y"]
    device = Session(emulate_float16(after), optimize=False).run(feeds)["y"]
    np.testing.assert_allclose(device, ours, rtol=0, atol=1e-2 * np.abs(ours).max())
    weights = [x.const_value for x in after.graph.initializers.values() if x.uses()]
    floats = [x for x in weights if x.dtype.is_floating_point() and x.size > 1]
    assert {x.dtype for x in floats} == {HALF}
    inner = [x for x in after.graph if x.op_type == "Cast" and not _is_at_an_end(x)]
    assert len(inner) <= 3  # of the mask, and around the norm where it is in pieces


def _is_at_an_end(node: ir.Node) -> bool:
    return node.outputs[0].is_graph_output() or node.inputs[0].name == "x"


def test_what_graphfix_fuses_in_each_opset_is_float16_too() -> None:
    for opset in (11, 14, 18, 21):
        after = layer(opset)
        graphfix.run(after, "fast,float16")
        made = {x.op_type: x.outputs[0].dtype for x in after.graph if x.op_type != "Cast"}
        assert made["MatMul"] == HALF, opset
        assert made.get("MultiHeadAttention", HALF) == HALF, opset


BRANCHES = """h = MatMul (x, w) y = If (c) <
    then_branch = yes () => (float[B, 8] a) { a = %s (h) },
    else_branch = no () => (float[B, 8] d) { d = Neg (h) }>"""
OF_BRANCHES = "(float[B, 8] x, bool c, float[8, 8] w) => (float[B, 8] y)"


def dtypes(model: ir.Model) -> dict[str, ir.DataType | None]:
    return {x.outputs[0].name or "": x.outputs[0].dtype for x in model.graph.all_nodes()}


@pytest.mark.parametrize(("spec", "half"), [("float16", True), ("float16:keep=y", False)])
def test_what_a_branch_returns_has_the_type_of_its_if(spec: str, half: bool) -> None:
    before = add(parse(OF_BRANCHES, BRANCHES % "Relu"), w=f(8, 8))
    after = halved(before, spec)
    (branches,) = (x for x in after.graph if x.op_type == "If")
    for name in ("then_branch", "else_branch"):
        (output,) = branches.attributes[name].as_graph().outputs
        assert (output.dtype == HALF) == half
    for taken in (True, False):
        agree(before, after, {"x": f(2, 8), "c": np.array(taken)})


def test_the_reason_is_written_on_what_stays_but_not_on_casts() -> None:
    before = add(
        parse(
            "(float[B, 8] x, float[8, 8] w) => (float[B, 8] y)",
            "h = MatMul (x, w) k = Cast <to = 11> (h) n = Neg (k) g = Cast <to = 1> (n) "
            "s = Softplus (g) y = MatMul (s, w)",
        ),
        w=f(8, 8),
    )
    after = halved(before, "float16:keep=s+g+k")
    noted = {x.outputs[0].name: x.metadata_props.get(KEPT_IN_FLOAT32_KEY) for x in after.graph}
    assert noted["s"] == "keep=s"
    assert not any(noted[x] for x in ("k", "g", "h"))


def test_a_tensor_is_cast_once_for_all_who_read_it() -> None:
    before = add(
        parse(
            "(float[B, 8] x, float[8, 8] w) => (float[B, 8] y)",
            "a = MatMul (x, w) b = MatMul (x, w) c = Sub (x, a) d = Add (b, c) y = MatMul (d, w)",
        ),
        w=f(8, 8),
    )
    after = halved(before)
    assert [x.inputs[0].name for x in after.graph if x.op_type == "Cast"] == ["x", "y_float16"]


def test_casts_that_change_nothing_any_more_go() -> None:
    text = "h = MatMul (x, w) k = Cast <to = %d> (h) %s y = MatMul (b, w)"
    of = "(float[B, 8] x, float[8, 8] w) => (float[B, 8] y)"
    there = add(parse(of, text % (10, "n = Neg (k) b = Cast <to = 1> (n)")), w=f(8, 8))
    assert [x.outputs[0].name for x in halved(there).graph if x.op_type == "Cast"] == [
        "x_float16",
        "k",  # of the model's own float16
        "y",
    ]
    whole = add(parse(of, text % (7, "n = Neg (k) b = Cast <to = 1> (n)")), w=f(8, 8))
    assert {"k", "b"} <= dtypes(halved(whole)).keys()


def test_an_output_keeps_its_name_and_says_who_made_it() -> None:
    before = add(
        parse(
            "(float[B, 8] x, float[8, 8] w) => (float[B, 8] y, float[B, 8] y_float16)",
            "y = MatMul (x, w) y_float16 = Relu (y)",
        ),
        w=f(8, 8),
    )
    before.graph.outputs[0].doc_string = "scores"
    after = halved(before)
    assert [x.name for x in after.graph.outputs] == ["y", "y_float16"]
    assert after.graph.outputs[0].doc_string == "scores"
    assert {"y_float16_2", "y_float16_float16"} <= dtypes(after).keys()
    casts = [x for x in after.graph if x.op_type == "Cast" and x.outputs[0].is_graph_output()]
    assert [x.name for x in casts] == ["y", "y_float16"]
    agree(before, after, {"x": f(2, 8)})


@pytest.mark.parametrize(("io", "dtype"), [("keep", ir.DataType.FLOAT), ("half", HALF)])
def test_inputs_and_outputs(io: str, dtype: ir.DataType) -> None:
    before = add(
        parse(
            "(float[B, 8] x, float[B] gain, float[8, 8] w) => (float[B, 8] y, float[B] z)",
            "y = MatMul (x, w) z = Relu (gain)",
        ),
        w=f(8, 8),
    )
    after = halved(before, f"float16:io={io}")
    assert [x.dtype for x in after.graph.inputs] == [dtype, ir.DataType.FLOAT]
    assert [x.dtype for x in after.graph.outputs] == [dtype, ir.DataType.FLOAT]


def test_what_fills_a_shape_is_of_the_type_of_the_node() -> None:
    before = add(
        parse(
            "(float[B, 8] x, float[8, 8] w) => (float[B, 8] y)",
            "h = MatMul (x, w) s = Shape (h) z = ConstantOfShape (s) a = Add (h, z) "
            "o = ConstantOfShape <value = float[1] {2}> (s) m = Mul (a, o) y = MatMul (m, w)",
        ),
        w=f(8, 8),
    )
    after = halved(before)
    made = dtypes(after)
    assert (made["z"], made["o"]) == (HALF, HALF)
    agree(before, after, {"x": f(2, 8)})
