"""ilens-mask behind fuse-attention: attentions in one node, and what they are made with."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.errors import PaddingError
from tests.lengths.padding import session

CONTENT = np.random.default_rng(4).standard_normal((3, 20, 4)).astype(np.float32)
LENGTHS = (3, 7, 11)
QKV = "q = MatMul (x, w)  k = MatMul (x, u)  v = Identity (x)"
SIZES = """s = Shape (x)  b = Slice (s, i0, i1, i0)  t = Slice (s, i1, i2, i0)
    bt = Concat <axis = 0> (b, t)  btt = Concat <axis = 0> (b, i2, t, t)"""
MHA = "com.microsoft.MultiHeadAttention"
ATT = "com.microsoft.Attention"
CAUSAL = """ones = ConstantOfShape <value = int64[1] {{1}}> (t)
    at = CumSum <exclusive = 1> (ones, zero)  row = Unsqueeze (at, i1)  col = Unsqueeze (at, i0)
    later = Greater (col, row)  lf = Cast <to = 1> (later)  low = Mul (lf, {floor})"""

BODIES = {
    "no mask": f"y = {MHA} <num_heads = 2> (q, k, v)",
    "biases": f"y = {MHA} <num_heads = 2, scale = 0.3> (q, k, v, biases)",
    "as many as there are": f"""{SIZES} all = ConstantOfShape <value = int32[1] {{1}}> (bt)
        y = {MHA} <num_heads = 2> (q, k, v, , all)""",
    "a mask that is an input": f"""seen = Cast <to = 6> (m)
        y = {MHA} <num_heads = 2, mask_filter_value = -10000.0> (q, k, v, , seen)""",
    "a mask as low as numbers get": f"""seen = Cast <to = 6> (m)
        y = {MHA} <num_heads = 2, mask_filter_value = -3.4e38> (q, k, v, , seen)""",
    "an addend": f"""{SIZES} {CAUSAL.format(floor="floor")} bias = Expand (low, btt)
        y = {MHA} <num_heads = 2> (q, k, v, , , bias)""",
    "an addend as low as numbers get": f"""{SIZES} {CAUSAL.format(floor="lowest")}
        bias = Expand (low, btt)  y = {MHA} <num_heads = 2> (q, k, v, , , bias)""",
    "one addend for all rows": f"""{SIZES} {CAUSAL.format(floor="floor")}
        bias = Unsqueeze (low, i01)  y = {MHA} <num_heads = 2> (q, k, v, , , bias)""",
    "a mask and an addend": f"""{SIZES} {CAUSAL.format(floor="floor")} bias = Expand (low, btt)
        seen = Cast <to = 6> (m)  y = {MHA} <num_heads = 2> (q, k, v, , seen, bias)""",
    "causal": f"y = {MHA} <num_heads = 2, unidirectional = 1> (q, k, v)",
    "logarithms": f"n = Log (x)  y = {MHA} <num_heads = 2> (q, k, n)",
    "twice": f"a = {MHA} <num_heads = 2> (q, k, v)  y = {MHA} <num_heads = 2> (a, k, a)",
    "keys of another length": f"""fewer = Slice (k, i0, far, i1, i2)
        vs = Slice (v, i0, far, i1, i2)  y = {MHA} <num_heads = 2> (q, fewer, vs)""",
    "keys that are a table": f"""{SIZES} shape = Concat <axis = 0> (b, i2, i4)
        mem = Expand (table, shape)  y = {MHA} <num_heads = 2> (q, mem, mem)""",
    "queries that are a table": f"""{SIZES} shape = Concat <axis = 0> (b, i2, i4)
        mem = Expand (table, shape)  y = {MHA} <num_heads = 2> (mem, k, v)""",
    "of one tensor": f"y = {ATT} <num_heads = 2> (x, all_weights, biases)",
    "of one tensor, with a mask": f"""seen = Cast <to = 6> (m)
        y = {ATT} <num_heads = 2> (x, all_weights, biases, seen)""",
    "of one tensor, with an addend": f"""{SIZES} {CAUSAL.format(floor="floor")}
        bias = Expand (low, btt)  y = {ATT} <num_heads = 2> (x, all_weights, biases, , , bias)""",
    "turned by places": f"""{SIZES} cos = Slice (cosines, i0, t, i0)
        sin = Slice (sines, i0, t, i0)
        r = com.microsoft.RotaryEmbedding <num_heads = 2> (q, i0, cos, sin)
        y = {MHA} <num_heads = 2> (r, k, v)""",
    "turned by a fixed table": f"""
        r = com.microsoft.RotaryEmbedding <num_heads = 2> (q, i0, cosines, sines)
        y = {MHA} <num_heads = 2> (r, k, v)""",
}
REFUSED = {
    "earlier keys": (
        f"y = {MHA} <num_heads = 2> (q, k, v, , , , past, past)",
        "joined to those of earlier runs",
    ),
    "all in one": (
        f"""all = Concat <axis = 2> (q, k, v)  packed = Reshape (all, apart)
        y = {MHA} <num_heads = 2> (packed)""",
        "export them apart",
    ),
    "grouped heads": (
        "y = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 2> (q, k, v)",
        "run ilens-mask before what fuses",
    ),
    "masks of mask and addend": (
        f"""{SIZES} {CAUSAL.format(floor="floor")} n = Expand (two, b)  bias = Expand (low, btt)
        y = {ATT} <num_heads = 2> (x, all_weights, biases, n, , bias)""",
        "mask is of rank 1",
    ),
    "a count of keys": (
        f"{SIZES} n = Expand (two, b)  y = {MHA} <num_heads = 2> (q, k, v, , n)",
        "mask is of rank 1",
    ),
}


def numbers(count: int) -> str:
    return ", ".join(f"{np.sin(7.0 * i):.3f}" for i in range(count))


def model(body: str, batch: str = "B") -> onnx.ModelProto:
    mask = f", int64[{batch}, T] m" if re.search(r"\(m\)", body) else ""
    made = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[{batch}, T, 4] x{mask}) => (float[] y)
        <float[4, 4] w = {{{numbers(16)}}}, float[4, 4] u = {{{numbers(16)}}},
         float[12] biases = {{{numbers(12)}}}, float[1, 2, 4] table = {{{numbers(8)}}},
         float[40, 1] cosines = {{{numbers(40)}}}, float[40, 1] sines = {{{numbers(40)}}},
         float[1, 2, 3, 2] past = {{{numbers(12)}}}, int64[5] apart = {{0, 0, 2, 3, 2}},
         float[4, 12] all_weights = {{{numbers(48)}}},
         int64[1] i0 = {{0}}, int64[1] i1 = {{1}}, int64[1] i2 = {{2}}, int64[1] i4 = {{4}},
         int64[2] i01 = {{0, 1}}, int64[1] far = {{9223372036854775807}}, int64 zero = {{0}},
         int32[1] two = {{2}}, float floor = {{-10000}}, float lowest = {{-3.4e38}}>
        {{ {QKV} {body} }}"""
    )
    made.graph.output[0].ClearField("type")
    return made


def held(before: onnx.ModelProto, hidden: int = 0) -> ir.Model:
    """Each row alone against all in containers of NaN; ``hidden`` valid keys the mask hides."""
    after = ir.from_proto(before)
    graphfix.run(after, "ilens-mask:axis=x.1")
    alone, together = session(before), session(ir.to_proto(after))
    batch = before.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    lengths = LENGTHS if not batch else LENGTHS[:1] * batch
    given = {x.name for x in together.get_inputs()}
    for size in (max(lengths), max(lengths) + 1, 19):
        x = np.full((len(lengths), size, 4), np.nan, np.float32)
        m = np.ones((len(lengths), size), np.int64)
        m[:, 1 : 1 + hidden] = 0
        for row, n in enumerate(lengths):
            x[row, :n] = np.abs(CONTENT[row, :n])
        ilens = np.array(lengths if not batch else lengths[:1])
        feeds = {"x": x, "m": m, "ilens": ilens}
        found = together.run(None, {k: v for k, v in feeds.items() if k in given})[0]
        for row, n in enumerate(lengths):
            rows = slice(row, row + 1) if not batch else slice(None)
            own = {"x": x[rows, :n], "m": m[rows, :n]}
            names = [value.name for value in alone.get_inputs()]
            wanted = alone.run(None, {k: v for k, v in own.items() if k in names})[0]
            got = found[rows, : wanted.shape[1]]
            np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=2e-6, err_msg=f"{n} in {size}")
    return after


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_no_key_of_the_padding_is_seen(body: str) -> None:
    held(model(body))
    if "(m)" in body:
        held(model(body), hidden=2)


@pytest.mark.parametrize("name", ["no mask", "as many as there are", "an addend"])
@pytest.mark.parametrize("batch", ["1", "2"])
def test_a_batch_of_fixed_size(name: str, batch: str) -> None:
    held(model(BODIES[name], batch))


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_rule_is_refused(name: str) -> None:
    body, reason = REFUSED[name]
    with pytest.raises(PaddingError, match=reason):
        graphfix.run(ir.from_proto(model(body)), "ilens-mask:axis=x.1")


def attentions(after: ir.Model) -> list[ir.Node]:
    return [node for node in after.graph if node.op_type in ("MultiHeadAttention", "Attention")]


def has(node: ir.Node, index: int) -> bool:
    return index < len(node.inputs) and node.inputs[index] is not None


@pytest.mark.parametrize("name", [x for x in BODIES if x != "a mask and an addend"])
def test_no_mask_stands_beside_an_addend(name: str) -> None:
    """DirectML computes something else then, in silence."""
    after = held(model(BODIES[name]))
    for node in attentions(after):
        mask = 4 if node.op_type == "MultiHeadAttention" else 3
        assert not (has(node, mask) and has(node, 5))


def test_a_mask_that_hides_what_is_valid_too_becomes_an_addend_with_ours() -> None:
    (node,) = attentions(held(model(BODIES["a mask that is an input"])))
    assert has(node, 5)
    assert not has(node, 4)


def test_a_mask_as_low_as_numbers_get_is_only_ended() -> None:
    (node,) = attentions(held(model(BODIES["a mask as low as numbers get"])))
    assert has(node, 4)
    assert not has(node, 5)


def test_one_mask_does_for_all() -> None:
    one, other = attentions(held(model(BODIES["twice"])))
    assert one.inputs[4] is other.inputs[4]


def test_keys_that_carry_no_time_and_causal_ones_get_no_mask() -> None:
    for name in ("keys that are a table", "causal"):
        (node,) = attentions(held(model(BODIES[name])))
        assert not has(node, 4)
        assert not has(node, 5)


def test_the_floor_is_what_the_mask_adds() -> None:
    after = ir.from_proto(model(BODIES["no mask"]))
    graphfix.run(after, "ilens-mask:axis=x.1:floor=-20000")
    (node,) = attentions(after)
    assert node.attributes["mask_filter_value"].as_float() == -20000


def test_a_mask_that_says_what_is_valid_is_enough() -> None:
    before = model(BODIES["a mask that is an input"])
    after = ir.from_proto(before)
    graphfix.run(after, "ilens-mask:axis=x.1:from=m")
    (node,) = attentions(after)
    assert not has(node, 5)
    assert {x.name for x in after.graph.inputs} == {"x", "m"}


PIECES = """x4 = Reshape (x, split)  qh = Transpose <perm = [0, 2, 1, 3]> (x4)
    kt = Transpose <perm = [0, 2, 3, 1]> (x4)  p = MatMul (qh, kt)  {mask}
    a = Softmax <axis = -1> (sc)  c = MatMul (a, qh)  ct = Transpose <perm = [0, 2, 1, 3]> (c)
    y = Reshape (ct, merge)"""
MASKS = {
    "none": "sc = Mul (p, half)",
    "of keys": """hide = Equal (m, zero)  h4 = Unsqueeze (hide, i12)  hf = Cast <to = 1> (h4)
        low = Mul (hf, floor)  sc = Add (p, low)""",
    "causal": f"{SIZES} {CAUSAL.format(floor='floor')}  sc = Add (p, low)",
}


@pytest.mark.parametrize("mask", MASKS)
def test_in_either_order_with_fast(mask: str) -> None:
    before = in_pieces(PIECES.format(mask=MASKS[mask]))
    held(before, hidden=1 if mask == "of keys" else 0)
    after = ir.from_proto(before)
    graphfix.run(after, "fast")
    assert len(attentions(after)) == 1
    held(ir.to_proto(after), hidden=1 if mask == "of keys" else 0)


def in_pieces(body: str) -> onnx.ModelProto:
    mask = ", int64[B, T] m" if "(m," in body else ""
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[B, T, 4] x{mask}) => (float[B, T, 4] y)
        <int64[4] split = {{0, 0, 2, 2}}, int64[3] merge = {{0, 0, 4}}, float half = {{0.5}},
         int64[1] i0 = {{0}}, int64[1] i1 = {{1}}, int64[1] i2 = {{2}}, int64[2] i12 = {{1, 2}},
         int64 zero = {{0}}, float floor = {{-10000}}>
        {{ {body} }}"""
    )
