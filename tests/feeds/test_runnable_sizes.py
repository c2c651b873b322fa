"""Sizes at which a model runs, found by trying: small models of the kinds that users bring."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphfix.errors import FeedError
from graphfix.feeds.arrays import CaseMaker
from graphfix.feeds.case import Cases
from graphfix.feeds.case_search import make_cases, search_cases
from graphfix.feeds.runnable_sizes import SizeLimits
from graphfix.feeds.signature import Signature
from graphfix.runtime.local_session import Session

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
Dims = list[int | str | None]
Array = npt.NDArray[np.generic]


def node(op: str, given: str, made: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, given.split(), made.split(), **attributes)


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, Dims],
    outputs: list[str],
    weights: dict[str, tuple[int, ...]],
    numbers: Mapping[str, list[int] | Array] | None = None,
) -> ir.Model:
    """A graph with random weights of these shapes."""
    rng = np.random.default_rng(0)
    ports = [helper.make_tensor_value_info(k, TensorProto.FLOAT, d) for k, d in inputs.items()]
    ends = [helper.make_tensor_value_info(k, TensorProto.FLOAT, None) for k in outputs]
    held = [
        numpy_helper.from_array(rng.normal(size=shape).astype(np.float32) * 0.2, name)
        for name, shape in weights.items()
    ]
    held += [
        numpy_helper.from_array(np.array(x, np.int64) if isinstance(x, list) else x, name)
        for name, x in (numbers or {}).items()
    ]
    graph = helper.make_graph(nodes, "m", ports, ends, held)
    opset = [helper.make_opsetid("", 17)]
    return ir.from_proto(helper.make_model(graph, opset_imports=opset, ir_version=8))


def pyramid(dims: Dims) -> ir.Model:
    """Five halvings and the way back up, each added to what was there: multiples of 32."""
    nodes, x = [], "x"
    for i in range(5):
        nodes.append(
            node("Conv", f"{x} w{i}", f"c{i}", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        )
        x = f"c{i}"
    for i in (3, 2, 1, 0):
        kinds = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        nodes += [node("Resize", f"{x} none scale", f"u{i}", mode="nearest", **kinds)]
        nodes += [node("Add", f"u{i} c{i}", f"a{i}")]
        x = f"a{i}"
    nodes.append(node("Sigmoid", x, "y"))
    shapes = {f"w{i}": (4, 3 if i == 0 else 4, 3, 3) for i in range(5)}
    floats = np.array([1, 1, 2, 2], np.float32), np.array([], np.float32)
    return model(
        nodes, {"x": dims}, ["y"], shapes, dict(zip(("scale", "none"), floats, strict=True))
    )


def listener(window: int, dims: Dims, state: str | None) -> ir.Model:
    """A window of samples, four frames of it at once, and an LSTM with a state."""
    nodes = [
        node("Unsqueeze", "input one", "u"),
        node("Conv", "u w", "c", kernel_shape=[window // 4], strides=[window // 4]),
        node("Flatten", "c", "f", axis=1),
        node("MatMul", "f m", "g"),
        node("Unsqueeze", "g zero", "gx"),
        node("Split", "state", "h0 c0", axis=0),
        node("LSTM", "gx W R B  h0 c0".replace("  ", " "), "y hn cn", hidden_size=8),
        node("Concat", "hn cn", "new", axis=0),
    ]
    nodes[6].input.insert(4, "")
    weights = {"w": (8, 1, window // 4), "m": (32, 8), "W": (1, 32, 8), "R": (1, 32, 8)}
    inputs: dict[str, Dims] = {"input": dims, "state": [2, state, 8]}
    numbers: dict[str, list[int]] = {"one": [1], "zero": [0]}
    return model(nodes, inputs, ["y", "new"], {**weights, "B": (1, 64)}, numbers)


def keyword(frames: int) -> ir.Model:
    """Frames of 40 features, of which one number alone fits the Gemm at the end."""
    rows = (frames - 19) // 3
    nodes = [
        node("Unsqueeze", "x one", "u"),
        node("Conv", "u w", "c", kernel_shape=[20, 8]),
        node("MaxPool", "c", "p", kernel_shape=[3, 3], strides=[3, 3]),
        node("Flatten", "p", "f", axis=1),
        node("Gemm", "f g", "y"),
    ]
    weights = {"w": (4, 1, 20, 8), "g": (4 * rows * 11, 5)}
    return model(nodes, {"x": ["N", "T", 40]}, ["y"], weights, {"one": [1]})


def residual() -> ir.Model:
    """A causal Conv whose cache makes up for what it takes away: four frames."""
    nodes = [
        node("Concat", "cache x", "all", axis=2),
        node("Conv", "all w", "c", kernel_shape=[5]),
        node("Add", "c x", "y"),
        node("Slice", "all last far axis", "new"),
    ]
    inputs: dict[str, Dims] = {"x": ["B", 8, "T"], "cache": ["B", 8, "C"]}
    numbers: dict[str, list[int]] = {"last": [-4], "far": [1 << 31], "axis": [2]}
    return model(nodes, inputs, ["y", "new"], {"w": (8, 8, 5)}, numbers)


def text(body: str) -> ir.Model:
    return ir.from_onnx_text(HEAD + body)


def covering(given: ir.Model) -> Cases:
    """The cases that a verification makes."""
    with Session(given, optimize=False) as session:
        return search_cases(given, lambda case: session.run(case.feeds), cover=True)


def sizes(cases: Cases, name: str) -> set[int]:
    return {case.dims[name] for case in cases}


@pytest.mark.parametrize("dims", [["N", 3, "H", "W"], [None, 3, None, None], [1, 3, 48 * 2, "W"]])
def test_both_sides_of_an_image_are_what_its_halvings_take(dims: Dims) -> None:
    cases = make_cases(pyramid(dims))
    last = cases.signature.user_name(cases.signature.times[-1])
    assert all(n % 32 == 0 for n in sizes(cases, last) - {1, 2})
    assert max(sizes(cases, last)) >= 32
    if len(cases.signature.times) == 2:
        first = cases.signature.user_name(cases.signature.times[0])
        assert any(case.dims[first] != case.dims[last] for case in cases)


@pytest.mark.parametrize("window", [512, 576])
@pytest.mark.parametrize(
    ("dims", "state"),
    [
        (["N", "T"], "N"),
        (["N", "T"], "S"),
        ([None, None], None),
    ],
)
def test_a_window_of_samples_and_a_state(window: int, dims: Dims, state: str | None) -> None:
    cases = covering(listener(window, dims, state))
    lengths = {case.feeds["input"].shape[1] for case in cases}
    assert min(lengths) >= window
    rows = {case.feeds["input"].shape[0] for case in cases}
    assert rows == {case.feeds["state"].shape[1] for case in cases}
    assert len(rows) > (dims[0] != 1)


@pytest.mark.parametrize("frames", [98, 101])
def test_the_frames_that_a_gemm_takes(frames: int) -> None:
    cases = covering(keyword(frames))
    assert all((t - 19) // 3 == (frames - 19) // 3 for t in sizes(cases, "T"))
    assert len(sizes(cases, "N")) > 1


@pytest.mark.parametrize(
    ("body", "allowed"),
    [
        (
            "m (float[B, L] x) => (float[P, Q, R] y) <int64[3] s = {0, -1, 160}>"
            " { y = Reshape (x, s) }",
            lambda n: n % 160 == 0,
        ),
        (
            "m (float[1, L] x) => (float[P, Q] y) <int64[4] pads = {0, 200, 0, 200}>"
            ' { y = Pad <mode = "reflect"> (x, pads) }',
            lambda n: n > 200,
        ),
    ],
)
def test_what_a_reshape_and_a_pad_take(body: str, allowed: Callable[[int], bool]) -> None:
    cases = make_cases(text(body))
    last = cases.signature.user_name(cases.signature.times[0])
    assert all(map(allowed, sizes(cases, last)))
    assert len(sizes(cases, last)) > 2


def test_a_pad_that_reflects_more_than_there_is_is_no_case_of_any_runtime() -> None:
    # ONNX Runtime 1.24.1 runs it, and leaves what it finds in memory there.
    given = text(
        "m (float[1, L] x) => (float[P, Q] y) <int64[4] pads = {0, 200, 0, 200}>"
        ' { y = Pad <mode = "reflect"> (x, pads) }'
    )
    cases = search_cases(given, lambda case: None, cover=True)
    assert min(sizes(cases, "L")) > 200
    assert len(sizes(cases, "L")) > 2
    with pytest.raises(FeedError, match="a Pad reflects more than there is"):
        search_cases(given, lambda case: None, dims={"L": [7]})


def test_a_pad_may_name_the_axes_that_it_reflects() -> None:
    given = text(
        "m (float[1, L] x) => (float[P, Q] y) <int64[2] pads = {200, 200}, int64[1] axes = {-1}>"
        ' { y = Pad <mode = "reflect"> (x, pads, , axes) }'
    )
    given.graph.opset_imports[""] = 18
    cases = search_cases(given, lambda case: None, cover=True)
    assert min(sizes(cases, "L")) > 200


@pytest.mark.parametrize("op", ["Conv", "ConvInteger"])
def test_a_convolution_has_nothing_to_work_on_below_its_window(op: str) -> None:
    dtype = "uint8" if op == "ConvInteger" else "float"
    given = text(
        f"m ({dtype}[B, 1, T] x) => (float[B, 1, S] y) <{dtype}[1, 1, 3] w = {{1, 1, 1}}>"
        f" {{ y = {op} (x, w) }}"
    )
    signature = Signature(given)
    limits = SizeLimits(signature)
    short, long = ({signature.batch: 1, signature.times[0]: n} for n in (2, 3))
    node = limits.first_empty_window(short)
    assert node is not None
    assert node.op_type == op
    assert limits.first_empty_window(long) is None


@pytest.mark.parametrize("pool", ["MaxPool", "AveragePool"])
def test_no_case_has_less_than_the_window_of_a_pool_where_frames_are_counted(pool: str) -> None:
    """ONNX Runtime makes a frame of 3 by a window of 4 and a stride of 2, the standard none."""
    m = text(f"""m (float[B, 2, T] x) => (float[B, 2, S] y)
        {{ y = {pool} <kernel_shape = [4], strides = [2]> (x) }}""")
    assert min(case.feeds["x"].shape[2] for case in make_cases(m)) < 4
    cases = search_cases(m, lambda case: None, frames=True)
    lengths = {case.feeds["x"].shape[2] for case in cases}
    assert min(lengths) >= 4
    assert len(lengths) >= 3
    told = {x.reason for x in cases.dropped}
    assert any("a pool has less than its window" in x for x in told)


def test_an_input_of_a_hundred_gigabytes_is_not_made() -> None:
    signature = Signature(text("m (float[A, B, C, D] x) => (float[A, B, C, D] y) {y = Relu (x)}"))
    with pytest.raises(FeedError, match="more than 134,217,728 elements"):
        CaseMaker(signature, 0).make_case(
            0, dict.fromkeys([*signature.times, signature.batch], 3200)
        )


# Caches of three dims ----------------------------------------------------------------------------


def keys_and_values(key: str, value: str) -> ir.Model:
    """An attention whose keys lie in [B, D, P] and whose values lie in [B, P, D], as Bloom's do."""
    nodes = [
        node("MatMul", "x wk", "k"),
        node("Transpose", "k", "kt", perm=[0, 2, 1]),
        node("Concat", "past_key kt", "present_key", axis=2),
        node("MatMul", "x wv", "v"),
        node("Concat", "past_value v", "present_value", axis=1),
        node("MatMul", "x present_key", "s"),
        node("Softmax", "s", "p", axis=-1),
        node("MatMul", "p present_value", "y"),
    ]
    inputs: dict[str, Dims] = {"x": ["B", "T", 8], "past_key": ["B", 8, key]}
    inputs["past_value"] = ["B", value, 8]
    weights = {"wk": (8, 8), "wv": (8, 8)}
    return model(nodes, inputs, ["y", "present_key", "present_value"], weights)


@pytest.mark.parametrize(("key", "value"), [("P", "P"), ("s1", "s2")])
def test_keys_that_grow_are_a_cache_of_three_dims(key: str, value: str) -> None:
    cases = make_cases(keys_and_values(key, value))
    lengths = {case.feeds["past_key"].shape[2] for case in cases}
    assert 0 in lengths
    assert len(lengths) > 2
    assert all(
        case.feeds["past_value"].shape[1] == case.feeds["past_key"].shape[2] for case in cases
    )
    assert cases.signature.past


def test_frames_that_a_conv_keeps_are_no_cache_that_grows() -> None:
    signature = Signature(residual())
    assert not signature.past
    assert len(signature.times) == 2
