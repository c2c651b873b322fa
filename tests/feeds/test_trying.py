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
from graphfix.feeds.search import make_cases
from graphfix.probing.padded import padded
from graphfix.ship.build import ship_file
from graphfix.ship.wanted import wanted

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


def test_the_batch_of_a_state_is_found_and_told(tmp_path: Path):
    cases = make_cases(stateful(tmp_path))
    assert cases.signature.joined == (frozenset({"N", "S"}),)
    assert cases.signature.batch == cases.signature.group("S")
    assert {case.dims["T"] for case in cases} > {7, 23, 40}
    assert all(case.dims["N"] == case.dims["S"] for case in cases)
    verdict = graphfix.verify(stateful(tmp_path), stateful(tmp_path))
    assert any("N and S must be the same size" in x for x in verdict.notes)


def sizes_of(path: Path) -> dict[str, list[int | str]]:
    inputs = onnx.load(path).graph.input
    return {
        x.name: [d.dim_value or d.dim_param for d in x.type.tensor_type.shape.dim] for x in inputs
    }


@pytest.mark.parametrize("size", [1, 2])
def test_fix_dims_of_one_of_them_fixes_the_other_and_says_so(tmp_path: Path, size: int):
    out = tmp_path / "o.onnx"
    report = graphfix.repair_file(stateful(tmp_path), out, f"fix-dims:N={size},directml")
    assert report.verdict is not None
    assert report.verdict["ok"]
    assert f"so fix-dims has fixed S={size}, too" in report.verdict["notes"]
    assert "N and S must be the same size" in report.verdict["notes"][0]
    assert sizes_of(out) == {"input": [size, "T", 3], "state": [2, size, 4]}
    assert report.spec.startswith(f"fix-dims:N={size}:S={size},")
    again = graphfix.repair_file(out, tmp_path / "again.onnx", report.spec)
    assert not again.changed


def test_each_of_several_sizes_fixes_the_other(tmp_path: Path):
    reports = graphfix.repair_buckets(stateful(tmp_path), passes="fix-dims:N=1,2")
    assert [sizes_of(tmp_path / f"stateful.{n}.onnx")["state"][1] for n in (1, 2)] == [1, 2]
    for report in reports:
        assert report.verdict is not None
        assert any("so fix-dims has fixed S=" in x for x in report.verdict["notes"])


def test_without_a_run_nothing_is_tied(tmp_path: Path):
    out = tmp_path / "o.onnx"
    graphfix.repair_file(stateful(tmp_path), out, "fix-dims:N=2", check=False)
    assert sizes_of(out)["state"] == [2, "S", 4]


def test_padded_and_ship_need_not_be_told(tmp_path: Path):
    path = stateful(tmp_path)
    verdict = padded(path, dims={"T": [5]}, container=9)
    assert verdict.axis == "T"
    shipped = ship_file(path, tmp_path / "out", wanted(["T=8"]))
    assert shipped.ok
    assert shipped.manifest.containers[0].sizes == {"N": 1, "T": 8}


def test_two_dims_that_need_not_be_equal_stay_two():
    text = HEAD + "m (float[A, B] x, float[C, D] z) => (float[A, D] y) { y = Gemm (x, z) }"
    cases = make_cases(ir.from_onnx_text(text))
    assert not any({"A", "D"} <= names for names in cases.signature.joined)
    assert any(case.dims["A"] != case.dims["D"] for case in cases)


def test_three_that_must_be_equal_are_found_together():
    text = """m (float[A, T] x, float[2, B, 3] w, float[2, C, 3] z) => (float[A, T] y)
        <int64 one = {1}, int64[1] zero = {0}, int64[1] ax = {0}> {
            sx = Shape <start = 0, end = 1> (x)  sw = Shape <start = 1, end = 2> (w)
            sz = Shape <start = 1, end = 2> (z)
            dw = Sub (sx, sw)  dz = Sub (sx, sz)
            aw = Abs (dw)  az = Abs (dz)  far = Add (aw, az)
            none = Sub (zero, far)
            at = Sub (none, far)
            table = Cast <to = 1> (zero)
            hit = Gather (table, at)
            sum = Mul (x, hit)
            y = Add (x, sum)
        }"""
    cases = make_cases(ir.from_onnx_text(HEAD + text))
    assert cases.signature.joined == (frozenset({"A", "B", "C"}),)
    assert all(len({case.dims[x] for x in "ABC"}) == 1 for case in cases)


def test_a_size_that_is_merely_missing_is_still_asked_for(tmp_path: Path):
    path = tmp_path / "image.onnx"
    text = "m (float[N, 3, H, W] x) => (float[N, 3, H, W] y) { y = Relu (x) }"
    ir.save(ir.from_onnx_text(HEAD + text), path)
    with pytest.raises(UsageError, match="W has none"):
        ship_file(path, tmp_path / "out", wanted(["H=8"]), axis="x.2")
