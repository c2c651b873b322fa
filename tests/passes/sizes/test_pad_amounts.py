"""pad-amounts: always the same, they become numbers; where they follow the length, integers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.graph.constants import const_of
from graphfix.runtime.local_session import Session
from tests.passes.models import ops, refusals

CONSTANTS = """int64[1] none = {0}, int64[1] flat = {-1}, float value = {7}, int64[1] two = {2},
    int64 one = {1}, float unit = {1}"""


def model(kernel: int, stride: int, mode: str = "constant", opset: int = 18) -> ir.Model:
    """A causal Pad as EnCodec, Mimi and Qwen3-TTS write it."""
    padding = kernel - stride
    return ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : {opset}]>
        m (float[B, 2, T] x) => (float[B, 2, U] y)
        <{CONSTANTS}, int64 kernel = {{{kernel}}}, int64 padding = {{{padding}}},
         float stride = {{{stride}}}, int64 whole = {{{stride}}}, int64[1] left = {{{padding}}},
         int64 rest = {{{kernel - padding}}}>
        {{ shape = Shape <start = 2, end = 3> (x) t = Squeeze (shape)
          a = Sub (t, kernel) b = Add (a, padding) c = Cast <to = 1> (b) d = Div (c, stride)
          frames = Add (d, unit) up = Ceil (frames) whole_frames = Cast <to = 7> (up)
          e = Sub (whole_frames, one) f = Mul (e, whole) ideal = Add (f, rest)
          extra = Sub (ideal, t) behind = Reshape (extra, flat)
          amounts = Concat <axis = 0> (none, none, left, none, none, behind)
          y = Pad <mode = "{mode}"> (x, amounts, value) }}"""
    )


def outputs(m: ir.Model, length: int) -> np.ndarray:
    x = np.random.default_rng(length).standard_normal((2, 2, length)).astype(np.float32)
    with Session(m) as session:
        return session.run({"x": x})["y"]


@pytest.mark.parametrize("kernel", [1, 3, 7])
@pytest.mark.parametrize("mode", ["constant", "edge"])
def test_a_stride_of_one_adds_nothing_behind(kernel: int, mode: str) -> None:
    before, after = model(kernel, 1, mode), model(kernel, 1, mode)
    assert len(graphfix.run(after, "pad-amounts").passes[0].changes) == 1
    pads = [node for node in after.graph if node.op_type == "Pad"]
    if kernel == 1:
        assert not pads
    else:
        found = const_of(pads[0].inputs[1])
        assert found is not None
        assert found.tolist() == [0, 0, kernel - 1, 0, 0, 0]
    assert not {"Shape", "Ceil", "Concat", "Cast"} & set(ops(after))
    for length in (1, 2, 9, 30):
        assert np.array_equal(outputs(before, length), outputs(after, length))
    assert not graphfix.run(after, "pad-amounts").changed


def filled(amounts: str, ins: str = "x, amounts", mode: str = "constant", opset: int = 18) -> str:
    """A Pad up to a multiple of 4, as PyTorch writes ``math.ceil(T / 4) * 4 - T``."""
    sizes = """shape = Shape (x) t1 = Gather <axis = 0> (shape, two) t = Cast <to = 1> (t1)
        some = Div (t, four) up = Ceil (some) n = Cast <to = 7> (up) m = Mul (n, whole)
        behind = Sub (m, t1)"""
    return f"""<ir_version: 8, opset_import: ["" : {opset}]>
        m (float[B, 2, T] x) => (float[B, V, U] y)
        <int64[1] none = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, float[1] four = {{4}},
         int64[1] whole = {{4}}, float value = {{7}}, int64[1] last = {{-1}},
         int64[2] middle = {{2, 1}}>
        {{ {sizes} {amounts} y = Pad <mode = "{mode}"> ({ins}) }}"""


def check_follows(before: ir.Model, lengths: tuple[int, ...] = (1, 2, 3, 4, 5, 9, 30)) -> ir.Model:
    """The amounts are integers of the length now, and the same at each."""
    after = ir.from_proto(ir.to_proto(before))
    assert len(graphfix.run(after, "pad-amounts").passes[0].changes) == 1
    assert not {"Ceil", "Floor", "Cast"} & set(ops(after))
    for length in lengths:
        assert np.array_equal(outputs(before, length), outputs(after, length))
    assert not graphfix.run(after, "pad-amounts").changed
    return after


@pytest.mark.parametrize(("kernel", "stride"), [(4, 2), (2, 2), (7, 3), (16, 8)])
@pytest.mark.parametrize("mode", ["constant", "edge"])
def test_what_fills_up_to_a_stride_follows_the_length(kernel: int, stride: int, mode: str) -> None:
    check_follows(model(kernel, stride, mode))


MODES = [("constant", 11), ("edge", 13), ("reflect", 18), ("constant", 21), ("wrap", 19)]
BOTH = "none, none, behind, none, none, behind"
PLACES = {
    "behind": "none, none, none, none, none, behind",
    "in front": "none, none, behind, none, none, none",
    "at both ends": BOTH,
    "of two axes": "none, behind, one, none, none, behind",
}


@pytest.mark.parametrize(
    ("mode", "opset", "place"),
    # Two frames have no three to mirror.
    [(*x, y) for x in MODES for y in PLACES if x[0] in ("constant", "edge") or y != "of two axes"],
)
def test_in_each_mode_and_at_each_end(mode: str, opset: int, place: str) -> None:
    amounts = f"amounts = Concat <axis = 0> ({PLACES[place]})"
    short = mode in ("reflect", "wrap")
    lengths = (4, 5, 7, 9, 30) if short else (1, 2, 4, 5, 9, 30)
    check_follows(ir.from_onnx_text(filled(amounts, mode=mode, opset=opset)), lengths)


@pytest.mark.parametrize(
    ("axes", "places"), [("last", "one, behind"), ("middle", "behind, one, one, behind")]
)
@pytest.mark.parametrize("opset", [18, 21, 23])
def test_axes_that_are_named(axes: str, places: str, opset: int) -> None:
    ins = f"x, amounts, value, {axes}"
    amounts = f"amounts = Concat <axis = 0> ({places})"
    check_follows(ir.from_onnx_text(filled(amounts, ins, opset=opset)))


def test_amounts_that_were_int32() -> None:
    text = filled(
        f"""b32 = Cast <to = 6> (behind) less = Cast <to = 7> (b32)
        amounts = Concat <axis = 0> ({BOTH})"""
    )
    check_follows(
        ir.from_onnx_text(
            text.replace(
                "none, none, behind, none, none, behind", "none, none, less, none, none, less"
            )
        )
    )


def test_amounts_below_nothing_cut() -> None:
    """What is over the next smaller multiple of 4 is cut."""
    text = filled(f"over = Sub (behind, whole) amounts = Concat <axis = 0> ({BOTH})")
    text = text.replace(
        "none, none, behind, none, none, behind", "none, none, none, none, none, over"
    )
    check_follows(ir.from_onnx_text(text), (5, 6, 7, 8, 9, 30))


def test_the_length_of_what_is_padded_is_not_that_of_the_input() -> None:
    text = filled(f"amounts = Concat <axis = 0> ({PLACES['behind']})", "h, amounts")
    text = text.replace(
        "shape = Shape (x)", "h = MaxPool <kernel_shape = [3], strides = [3]> (x) shape = Shape (h)"
    )
    check_follows(ir.from_onnx_text(text), (3, 4, 5, 7, 13, 31))


def test_in_a_branch_the_sizes_are_those_around_it() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
        m (float[B, 2, T] x) => (float[B, V, U] y)
        <int64[1] none = {0}, int64[1] two = {2}, float[1] four = {4}, int64[1] whole = {4},
         float[1] most = {1e9}>
        { sum = ReduceSum <keepdims = 0> (x) limit = Squeeze (most) low = Less (sum, limit)
          y = If (low) <then_branch = a () => (float[B, V, U] padded) {
            shape = Shape (x) t1 = Gather <axis = 0> (shape, two) t = Cast <to = 1> (t1)
            some = Div (t, four) up = Ceil (some) n = Cast <to = 7> (up) m = Mul (n, whole)
            behind = Sub (m, t1) amounts = Concat <axis = 0> (none, none, none, none, none, behind)
            padded = Pad (x, amounts) }, else_branch = b () => (float[B, V, U] same) {
            same = Relu (x) }> }"""
    before, after = ir.from_onnx_text(text), ir.from_onnx_text(text)
    assert len(graphfix.run(after, "pad-amounts").passes[0].changes) == 1
    assert "Ceil" not in [node.op_type for node in after.graph.all_nodes()]
    for length in (1, 3, 4, 9):
        assert np.array_equal(outputs(before, length), outputs(after, length))


def test_two_pads_share_their_sums() -> None:
    text = filled(f"amounts = Concat <axis = 0> ({BOTH}) z = Pad (x, amounts)").replace(
        "(float[B, V, U] y)", "(float[B, V, U] y, float[B, V, U] z)"
    )
    after = ir.from_onnx_text(text)
    assert len(graphfix.run(after, "pad-amounts").passes[0].changes) == 2
    assert ops(after).count("Div") == 1


def test_integers_that_follow_the_length_are_left_alone() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
        m (float[B, 2, T] x) => (float[B, 2, U] y)
        <int64[1] none = {0}, int64[1] two = {2}, int64[1] whole = {4}, int64[1] less = {3}>
        { shape = Shape (x) t = Gather <axis = 0> (shape, two) up = Add (t, less)
          n = Div (up, whole) m = Mul (n, whole) behind = Sub (m, t)
          amounts = Concat <axis = 0> (none, none, none, none, none, behind)
          y = Pad (x, amounts) }"""
    after = ir.from_onnx_text(text)
    assert not refusals(after, "pad-amounts")


def test_a_fixed_length_makes_them_numbers() -> None:
    before, after = model(4, 2), model(4, 2)
    graphfix.run(after, "fix-dims:T=9,pad-amounts,fold")
    assert "Ceil" not in ops(after)
    assert np.array_equal(outputs(before, 9), outputs(after, 9))


def test_the_users_amounts_are_not_mine() -> None:
    text = '<ir_version: 8, opset_import: ["" : 18]> m '
    text += "(float[B, T] x, int64[4] p) => (float[B, U] y) { y = Pad (x, p) }"
    m = ir.from_onnx_text(text)
    assert not refusals(m, "pad-amounts")


def test_other_uses_of_the_amounts_keep_their_nodes() -> None:
    m = model(3, 1)
    extra = next(x for node in m.graph for x in node.outputs if x.name == "behind")
    m.graph.outputs.append(extra)
    extra.shape, extra.type = ir.Shape([1]), ir.TensorType(ir.DataType.INT64)
    graphfix.run(m, "pad-amounts")
    assert "Ceil" in ops(m)
    assert "Concat" not in ops(m)


def test_an_output_that_was_padded_by_nothing_keeps_its_name() -> None:
    m = model(1, 1)
    graphfix.run(m, "pad-amounts")
    assert [x.name for x in m.graph.outputs] == ["y"]
    assert ops(m) == ["Identity"]


def test_check_names_it() -> None:
    (finding,) = graphfix.check(model(7, 1), "pad-amounts")
    assert finding.fix == "pad-amounts"
    assert finding.severity == "warning"
    assert "80070057" in finding.message


def test_amounts_that_a_call_decides_are_left_alone() -> None:
    m = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 17, "f" : 1]>
        m (float[B, T] x) => (float[B, U] y) { y = f.longer (x) }
        <domain: "f", opset_import: ["" : 17]> longer (x) => (y)
        { shape = Shape (x) half = Constant <value_float = 0.5> () f = Cast <to = 1> (shape)
          g = Mul (f, half) n = Ceil (g) more = Cast <to = 7> (n)
          none = Constant <value_ints = [0, 0]> () to = Concat <axis = 0> (none, more)
          y = Pad (x, to) }""")
    (why,) = refusals(m, "pad-amounts")
    assert why == "its amounts depend on the call of the local function it is in"
