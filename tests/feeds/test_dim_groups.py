"""Dims that have the same size, from the graph, from roles, or found by trying."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphfix
from graphfix.errors import UsageError
from graphfix.feeds.case_search import make_cases
from graphfix.feeds.signature import Signature
from graphfix.probing.padded import padded
from graphfix.shipping.build import ship_file
from graphfix.shipping.container_spec import parse_containers
from tests.feeds.small_models import HEAD, model


def test_symbols_with_different_names_get_equal_sizes():
    """Dynamo gives each input its own names."""
    text = """m (int64[s72, s70] a, int64[s43, s53] b) => (float[s72, s70, 1] y)
        <float[5, 1] t = {0,1,2,3,4}, int64[1] ax = {2}, int64 zero = {0}, float fill = {-1e4}>
        { e = Gather (t, a)  m = Equal (b, zero)  u = Unsqueeze (m, ax)
          w = Where (u, fill, e)  y = Softmax <axis = 1> (w) }"""
    for case in make_cases(model(text)):
        assert case.dims["s72"] == case.dims["s43"]
        assert case.dims["s70"] == case.dims["s53"]


def test_a_mask_that_meets_no_data_is_as_long_as_the_data():
    text = """m (float[p, q] wave, int64[r, s] seen) => (float[p, q] y, int64[r] n)
        <int64[1] ax = {1}> { y = Relu (wave)  n = ReduceSum <keepdims = 0> (seen, ax) }"""
    signature = Signature(model(text))
    assert signature.group_of("p") == signature.group_of("r")
    assert signature.group_of("q") == signature.group_of("s")


def test_two_times_that_the_graph_does_not_relate_differ():
    text = """m (float[B, S, 2] a, float[B, T, 2] b) => (float[B, S, T] y)
        { t = Transpose <perm = [0, 2, 1]> (b)  y = MatMul (a, t) }"""
    cases = make_cases(model(text))
    assert all(c.dims["S"] != c.dims["T"] for c in cases if c.dims["S"] > 2)


def test_one_cache_under_several_names():
    # As dynamo writes it: one name recurs, the others stand alone.
    text = """m (float[B, 2, T, 4] q, float[B, 2, P, 4] k0, float[B, 2, Q, 4] v0,
               float[B, 2, P, 4] k1, float[B, 2, R, 4] v1) => (float[B, 2, T, 4] y)
        { a = Concat <axis = 2> (k0, q)  b = Concat <axis = 2> (v0, q)
          c = Concat <axis = 2> (k1, q)  d = Concat <axis = 2> (v1, q)
          at = Transpose <perm = [0, 1, 3, 2]> (a)  ct = Transpose <perm = [0, 1, 3, 2]> (c)
          s = MatMul (q, at)  y0 = MatMul (s, b)  z = MatMul (y0, ct)  y = MatMul (z, d) }"""
    cases = make_cases(model(text))
    for case in cases:
        assert len({case.dims[name] for name in "PQR"}) == 1
    assert any(case.dims["P"] != case.dims["T"] for case in cases)


def test_caches_of_self_and_of_cross_attention_under_names_of_their_own():
    # As torch names dims by itself; a mask of the encoder is looked up for each of its keys.
    text = """m (float[B, T, 8] x, int64[B, M] encoder_mask, float[B, 2, P, 4] k0,
               float[B, 2, Q, 4] v0, float[B, 2, E, 4] cross_k0, float[B, 2, F, 4] cross_v0)
            => (float[B, 2, T, 4] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] i0 = {0}, int64[1] i1 = {1}, int64[1] i2 = {2},
         int64[2] ones = {1, 2}, int64[4] heads = {0, 0, 2, 4}, float low = {-1e4}>
        { h = Reshape (x, heads)  q = Transpose <perm = [0, 2, 1, 3]> (h)
          k = Concat <axis = 2> (k0, q)  v = Concat <axis = 2> (v0, q)
          kt = Transpose <perm = [0, 1, 3, 2]> (k)  s = MatMul (q, kt)  own = MatMul (s, v)
          ct = Transpose <perm = [0, 1, 3, 2]> (cross_k0)  c = MatMul (own, ct)
          b1 = Shape <start = 0, end = 1> (q)  b = Squeeze (b1)  rows = Range (zero, b, one)
          e1 = Shape <start = 2, end = 3> (cross_k0)  e = Squeeze (e1)  keys = Range (zero, e, one)
          r2 = Unsqueeze (rows, i1)  k2 = Unsqueeze (keys, i0)  both = Concat <axis = 0> (b1, e1)
          r3 = Expand (r2, both)  k3 = Expand (k2, both)  r4 = Unsqueeze (r3, i2)
          k4 = Unsqueeze (k3, i2)  at = Concat <axis = -1> (r4, k4)
          seen = GatherND (encoder_mask, at)  hidden = Equal (seen, zero)
          four = Unsqueeze (hidden, ones)  m = Where (four, low, c)  p = Softmax (m)
          y = MatMul (p, cross_v0) }"""
    cases = make_cases(model(text))
    for case in cases:
        assert case.dims["P"] == case.dims["Q"]
        assert case.dims["E"] == case.dims["F"] == case.dims["M"]
    assert any(case.dims["T"] != case.dims["E"] for case in cases)


@pytest.mark.parametrize(("second", "ties"), [("cross_{}1", True), ("other_{}1", False)])
def test_caches_of_one_encoder_in_two_layers_are_one_length(second: str, ties: bool) -> None:
    names = ["k0", "v0", "k1", "v1"]
    own = ", ".join(f"float[B, 2, {'P' if '0' in x else 'Q'}, 4] {x}" for x in names)
    cross = ["cross_k0", "cross_v0", *(second.format(x) for x in "kv")]
    far = ", ".join(f"float[B, 2, {'E' if '0' in x else 'F'}, 4] {x}" for x in cross)
    grown = ", ".join(f"float[B, 2, G, 4] new_{x}" for x in names)
    joins = " ".join(f"new_{x} = Concat <axis = 2> ({x}, q)" for x in names)
    terms = " ".join(f"s_{i} = ReduceSum ({x})" for i, x in enumerate(cross))
    text = f"""m (float[B, 2, T, 4] q, {own}, {far}) => (float[B, 2, T, 4] y, {grown})
        {{ {joins} {terms} all = Sum (s_0, s_1, s_2, s_3) y = Add (q, all) }}"""
    signature = Signature(model(text))
    assert (signature.group_of("E") == signature.group_of("F")) is ties
    assert signature.group_of("P") == signature.group_of("Q")


def test_a_mask_over_a_cache_and_the_new_tokens():
    text = """m (float[B, 2, T, 4] q, float[B, 2, P, 4] k0, float[B, 2, P, 4] k1, int64[B, M] a)
            => (float[B, 2, T, M] y)
        <int64[2] ax = {1, 2}, int64 zero = {0}, float fill = {-1e4}>
        { k = Concat <axis = 2> (k0, q)  v = Concat <axis = 2> (k1, q)
          t = Transpose <perm = [0, 1, 3, 2]> (k)  s = MatMul (q, t)  z = MatMul (q, t)
          u = Unsqueeze (a, ax)  c = Equal (u, zero)  w = Where (c, fill, s)
          n = ReduceSum <keepdims = 0> (v)  p = Softmax (w)  y = Add (p, n) }"""
    cases = make_cases(model(text))
    assert {c.dims["P"] for c in cases} >= {0, 1, 4}
    for case in cases:
        assert case.dims["M"] == case.dims["P"] + case.dims["T"]
        seen = case.feeds["a"].sum(axis=1)
        assert tuple(seen - case.dims["P"]) == case.valid["T"]


KEYS_AND_VALUES = """m (float[B, 2, T, 4] q, float[B, 2, P, 4] past_k0, float[B, 2, Q, 4] past_v0,
           float[B, 2, P, 4] past_k1, float[B, 2, Q, 4] past_v1) => (float[B, 2, K, 4] present_k0,
           float[B, 2, L, 4] present_v0, float[B, 2, M, 4] present_k1, float[B, 2, N, 4] present_v1)
    { present_k0 = Concat <axis = 2> (past_k0, q)  present_v0 = Concat <axis = 2> (past_v0, q)
      present_k1 = Concat <axis = 2> (past_k1, q)  present_v1 = Concat <axis = 2> (past_v1, q) }"""


def test_keys_and_values_that_grow_by_the_same_are_one_length():
    signature = Signature(model(KEYS_AND_VALUES))
    assert signature.group_of("P") == signature.group_of("Q")
    # Values that are twice as many, or that the model cuts, are caches of their own.
    twice = KEYS_AND_VALUES.replace("(past_v0, q)", "(past_v0, q, q)")
    cut = KEYS_AND_VALUES.replace(
        "present_v0 = Concat <axis = 2> (past_v0, q)",
        """from = Constant <value_ints = [-3]> () end = Constant <value_ints = [99]> ()
        two = Constant <value_ints = [2]> () joined = Concat <axis = 2> (past_v0, q)
        present_v0 = Slice (joined, from, end, two)""",
    )
    for text in (twice, cut):
        apart = Signature(model(text))
        assert apart.group_of("P") != apart.group_of("Q")


def test_a_mask_that_is_named_after_an_encoder_is_as_long_as_that():
    text = """m (float[B, T, 4] x, int64[B, A] attention_mask, float[B, E, 4] encoder_out,
           int64[B, M] encoder_mask, float[B, P, 4] past_k) =>
           (float[B, T, 4] y, float[B, K, 4] present_k, int64[B] n, int64[B] m)
        <int64[1] ax = {1}> {
          present_k = Concat <axis = 1> (past_k, x) w = ReduceMean <axes = [1]> (encoder_out)
          y = Add (x, w) n = ReduceSum <keepdims = 0> (attention_mask, ax)
          m = ReduceSum <keepdims = 0> (encoder_mask, ax) }"""
    signature = Signature(model(text), "past")
    assert signature.group_of("M") == signature.group_of("E")
    assert str(signature.derived["A"]) in ("P + T", "T + P")


def stateful(tmp_path: Path) -> Path:
    """An LSTM whose state has a batch of another name; only the kernel knows that it is one."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(rng.normal(size=shape).astype(np.float32) * 0.3, name)

    nodes = [
        helper.make_node("Transpose", ["input"], ["xt"], perm=[1, 0, 2]),
        helper.make_node("Split", ["state"], ["h0", "c0"], axis=0),
        helper.make_node(
            "LSTM", ["xt", "W", "R", "B", "", "h0", "c0"], ["y", "hn", "cn"], hidden_size=4
        ),
        helper.make_node("Squeeze", ["y", "one"], ["ys"]),
        helper.make_node("Transpose", ["ys"], ["out"], perm=[1, 0, 2]),
        helper.make_node("Concat", ["hn", "cn"], ["new"], axis=0),
    ]
    graph = helper.make_graph(
        nodes,
        "stateful",
        [
            helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", "T", 3]),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [2, "S", 4]),
        ],
        [
            helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", "T", 4]),
            helper.make_tensor_value_info("new", TensorProto.FLOAT, [2, "S", 4]),
        ],
        [
            weight("W", 1, 16, 3),
            weight("R", 1, 16, 4),
            weight("B", 1, 32),
            numpy_helper.from_array(np.array([1]), "one"),
        ],
    )
    path = tmp_path / "stateful.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path
    )
    return path


def test_the_batch_of_a_state_is_found(tmp_path: Path):
    cases = make_cases(stateful(tmp_path))
    assert cases.signature.batch == cases.signature.group_of("S")
    assert {case.dims["T"] for case in cases} > {7, 23, 40}
    assert all(case.dims["N"] == case.dims["S"] for case in cases)
    assert graphfix.verify(stateful(tmp_path), stateful(tmp_path)).ok


def test_padded_is_told_the_axis(tmp_path: Path):
    verdict = padded(stateful(tmp_path), dims={"T": [5]}, container=9)
    assert verdict.axis == "T"


def test_two_dims_that_need_not_be_equal_stay_two():
    text = HEAD + "m (float[A, B] x, float[C, D] z) => (float[A, D] y) { y = Gemm (x, z) }"
    cases = make_cases(ir.from_onnx_text(text))
    assert any(case.dims["A"] != case.dims["D"] for case in cases)


def test_a_size_that_is_merely_missing_is_still_asked_for(tmp_path: Path):
    path = tmp_path / "image.onnx"
    text = "m (float[N, 3, H, W] x) => (float[N, 3, H, W] y) { y = Relu (x) }"
    ir.save(ir.from_onnx_text(HEAD + text), path)
    with pytest.raises(UsageError, match="W has none"):
        ship_file(path, tmp_path / "out", parse_containers(["H=8"]), axis="x.2")
