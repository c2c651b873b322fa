"""nbits-inputs: which inputs leave a MatMulNBits, equal numbers, what is left and why."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

import graphfix
from graphfix.passes.common.blocks import pack_bits, unpack_bits
from tests.passes.models import execute, refusals

N = 5


def product(
    bits: int = 4,
    block: int = 16,
    blocks: int = 3,
    zeros: str = "",
    groups: np.ndarray | None = None,
    *,
    bias: bool = False,
    given: tuple[str, ...] = (),
) -> tuple[ir.Model, np.ndarray]:
    """A model of one MatMulNBits, and the weight that it stands for, ``[N, K]``.

    Args:
        bits: Of each element.
        block: How many share a scale.
        blocks: How many blocks a row has.
        zeros: The type of its zero points; "whole" for whole numbers in float.
        groups: The g_idx.
        bias: Whether it has one.
        given: The constants that are inputs of the graph instead.
    """
    random, k = np.random.default_rng(0), block * blocks
    weight = random.integers(0, 2**bits, (N, k))
    scales = (random.random((N, blocks)) * 0.1 + 0.05).astype(np.float32)
    points = np.full((N, blocks), float(1 << (bits - 1)))
    tensors = {"w": pack_bits(weight, bits).reshape(N, blocks, -1), "s": scales.reshape(-1)}
    if zeros:
        points = random.integers(0, 2**bits, (N, blocks)) + 0.25 * (zeros == "float")
        packed = pack_bits(points.astype(np.int64), bits).reshape(-1)
        tensors["z"] = packed if zeros == "uint8" else points.reshape(-1).astype(np.float32)
    if groups is not None:
        tensors["g"] = groups.astype(np.int32)
    if bias:
        tensors["b"] = random.standard_normal(N).astype(np.float32)
    group = np.arange(k) // block if groups is None else groups
    meant = (weight - points[:, group]) * scales[:, group]
    wires = ["x", *(x if x in tensors else "" for x in "wszgb")]
    while not wires[-1]:
        wires.pop()
    node = helper.make_node(
        "MatMulNBits", wires, ["y"], domain="com.microsoft", K=k, N=N, bits=bits, block_size=block
    )
    info = helper.make_tensor_value_info
    inputs = [info("x", 1, ["B", "T", k])]
    inputs += [
        info(x, helper.np_dtype_to_tensor_dtype(tensors[x].dtype), tensors[x].shape) for x in given
    ]
    graph = helper.make_graph(
        [node], "m", inputs, [info("y", 1, ["B", "T", N])],
        [numpy_helper.from_array(x, name) for name, x in tensors.items() if name not in given],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    proto: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return ir.from_proto(proto), meant


ACT_ORDER = np.random.default_rng(1).permutation(np.arange(48) // 16)
UNEVEN = np.array([0] * 20 + [1] * 9 + [2] * 19)
CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a bias": ({"bias": True}, ("w", "s", "b")),
    "a bias beside zero points": ({"bias": True, "zeros": "uint8"}, ("w", "s", "b")),
    "g_idx that says nothing": ({"groups": np.arange(48) // 16}, ("w", "s")),
    "act-order": ({"groups": ACT_ORDER}, ()),
    "act-order, bias": ({"groups": ACT_ORDER, "bias": True}, ("b",)),
    "groups of all sizes": ({"groups": UNEVEN}, ()),
    "groups of all sizes, float zero points": ({"groups": UNEVEN, "zeros": "float"}, ()),
    "float zero points": ({"zeros": "float"}, ("w",)),
    "whole zero points in float": ({"zeros": "whole"}, ("w",)),
    "8 bits, an odd number of blocks": ({"bits": 8, "zeros": "uint8"}, ("w",)),
    "8 bits, act-order": ({"bits": 8, "groups": ACT_ORDER}, ()),
}


@pytest.mark.parametrize("case", CASES)
def test_the_same_numbers(case: str) -> None:
    options, _ = CASES[case]
    after, weight = product(**options)
    assert graphfix.run(after, "nbits-inputs").changed
    assert not graphfix.run(after, "nbits-inputs").changed
    assert not [x for x in graphfix.check(after) if x.severity == "error"]
    x = np.random.default_rng(2).standard_normal((2, 3, weight.shape[1])).astype(np.float32)
    (got,) = execute(after, {"x": x})
    if options.get("bits") != 8 or "groups" not in options:  # which the CPU does not run
        (old,) = execute(product(**options)[0], {"x": x})
        np.testing.assert_allclose(got, old, rtol=1e-4, atol=1e-4)
    bias = after.graph.initializers.get("b")
    want = x @ weight.T + (0 if bias is None else bias.const_value.numpy())
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_needed_may_be_known_in_a_run_only(case: str) -> None:
    options, given = CASES[case]
    m, _ = product(**options, given=given)
    assert graphfix.run(m, "nbits-inputs").changed


@pytest.mark.parametrize(
    ("options", "given", "reason"),
    [
        ({"groups": ACT_ORDER}, ("g",), "its g_idx is known only in a run"),
        ({"groups": ACT_ORDER}, ("w",), "'w' is known only in a run"),
        ({"zeros": "float"}, ("s",), "'s' is known only in a run"),
        ({"groups": ACT_ORDER, "zeros": "uint8"}, (), "the CPU takes no packed zero points"),
    ],
)
def test_what_cannot_be_repaired_is_an_error(
    options: dict[str, Any], given: tuple[str, ...], reason: str
) -> None:
    m, _ = product(**options, given=given)
    assert [reason in why for why in refusals(m, "nbits-inputs")] == [True]
    assert [x.severity for x in graphfix.check(m, "nbits-inputs")] == ["error"]


@pytest.mark.parametrize(
    "options",
    [{}, {"zeros": "uint8"}, {"bits": 8}, {"bits": 8, "zeros": "uint8", "blocks": 4}],
)
def test_what_directml_runs_rightly_is_left(options: dict[str, Any]) -> None:
    m, _ = product(**options)
    assert not refusals(m, "nbits-inputs")


def test_no_multiple_of_a_block_runs_on_the_cpu() -> None:
    m, _ = product(bias=True)
    m.graph[0].attributes["K"] = ir.AttrInt64("K", 47)
    assert not refusals(m, "nbits-inputs")


@pytest.mark.parametrize("bits", [4, 8])
def test_packed_and_back(bits: int) -> None:
    elements = np.random.default_rng(0).integers(0, 2**bits, (3, 7))
    np.testing.assert_array_equal(unpack_bits(pack_bits(elements, bits), bits)[:, :7], elements)
