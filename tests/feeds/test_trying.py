"""Dims that must be equal in a run, found by trying."""

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
from graphfix.probing.padded import padded
from graphfix.shipping.build import ship_file
from graphfix.shipping.container_spec import parse_containers

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


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
