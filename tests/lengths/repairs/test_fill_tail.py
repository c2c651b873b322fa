"""Tails that a repair fills: with zeros, with what hides a score, with masks of keys."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from graphfix.lengths.repairs.fill_tail import (
    HideKeys,
    HideTail,
    MaskKeys,
    PoisonedInput,
    RaiseTail,
    ZeroTail,
)
from graphfix.lengths.repairs.repair import Leak
from graphfix.lengths.tail_state import ANY, FINITE, HIDDEN, Tail, state_with_tail
from graphfix.ops.attention import attention_slots
from tests.lengths.rewritten import (
    Array,
    Site,
    operators,
    repair,
    repaired_input,
    run,
    site_before,
)

LENGTHS = np.array([2, 4])
WITHIN = np.array([[1, 1, 0, 0, 0], [1, 1, 1, 1, 0]], bool)
X = np.arange(1, 41, dtype=np.float32).reshape(2, 5, 4)
LOWEST = np.finfo(np.float32).min


def feeds(x: Array = X) -> dict[str, Array]:
    return {"x": x, "ilens": LENGTHS}


def inputs_of(dtype: str) -> str:
    return f"{dtype}[B, T, 4] x, int64[B] ilens"


def filled(number: object, x: Array = X) -> Array:
    return np.where(WITHIN[:, :, None], x, np.asarray(number, x.dtype))


# Zeros


@pytest.mark.parametrize(
    ("dtype", "tail", "operator"),
    [
        ("float", FINITE, "Mul"),
        ("float", HIDDEN, "Mul"),
        ("float", ANY, "Where"),
        ("float", Tail("number", 1e18), "Where"),
        ("int32", FINITE, "Where"),
        ("bool", FINITE, "And"),
    ],
)
def test_a_tail_of_zeros(dtype: str, tail: Tail, operator: str) -> None:
    site = site_before("y = Identity (x)", inputs=inputs_of(dtype))
    change = ZeroTail(site.node, "sum pollution", 0, 1, site.state(tail=tail))
    x = X.astype({"float": np.float32, "int32": np.int32, "bool": bool}[dtype])
    result = run(repair(site, change), **feeds(x))
    np.testing.assert_array_equal(result, filled(0, x))
    assert operator in operators(site.model)


def test_poison_does_not_survive_zeros() -> None:
    site = site_before()
    change = ZeroTail(site.node, "sum pollution", 0, 1, site.state(tail=ANY))
    poisoned = np.where(WITHIN[:, :, None], X, np.float32(np.nan))
    np.testing.assert_array_equal(run(repair(site, change), **feeds(poisoned)), filled(0))


@pytest.mark.parametrize("point", ["uint8 p", "uint8[1] p"])
def test_a_tail_of_zero_points(point: str) -> None:
    constants = f"{point} = {{7}}"
    site = site_before("y = Identity (x)", inputs=inputs_of("uint8"), constants=constants)
    change = ZeroTail(site.node, "sum pollution", 0, 1, site.state(), site.value("p"))
    x = X.astype(np.uint8)
    np.testing.assert_array_equal(run(repair(site, change), **feeds(x)), filled(7, x))


def test_zeros_are_set_in_one_input() -> None:
    site = site_before("y = Sub (x, x)")
    change = ZeroTail(site.node, "sum pollution", 1, 1, site.state(1))
    np.testing.assert_array_equal(run(repair(site, change), **feeds()), X - filled(0))


# Scores


def hidden(
    dtype: str = "float",
    tail: Tail = FINITE,
    leak: Leak = "attention dilution",
    x: Array = X,
    opset: int = 17,
    floor: float | None = None,
) -> tuple[Array, list[str]]:
    site = site_before("y = Identity (x)", inputs=inputs_of(dtype), opset=opset, floor=floor)
    change = HideTail(site.node, leak, 0, 1, site.state(tail=tail))
    result = run(repair(site, change), **feeds(x))
    return result, operators(site.model)


def test_scores_are_hidden_by_a_sum() -> None:
    result, ops = hidden(floor=-100.0)
    np.testing.assert_array_equal(result, X + np.where(WITHIN, 0, -100)[:, :, None])
    assert "Where" not in ops
    result, _ = hidden()
    np.testing.assert_array_equal(result[WITHIN], X[WITHIN])
    assert (result[~WITHIN] <= LOWEST).all()


@pytest.mark.parametrize(("opset", "operator"), [(11, "Add"), (12, "Min")])
def test_half_scores_are_hidden_by_a_limit(opset: int, operator: str) -> None:
    half = X.astype(np.float16)
    if opset == 11:  # no runtime adds what is below the least number
        ops = hidden("float16", x=half, opset=opset)[1]
    else:
        result, ops = hidden("float16", x=half, opset=opset)
        np.testing.assert_array_equal(result, filled(-65504, half))
    assert operator in ops


@pytest.mark.parametrize(
    ("dtype", "tail", "leak", "floor", "number"),
    [
        # What is no score becomes the least number, whatever hides scores.
        ("float", FINITE, "maximum pollution", -100.0, LOWEST),
        ("float", ANY, "attention dilution", -100.0, -100),
        ("float", ANY, "attention dilution", None, LOWEST),
        ("int32", FINITE, "attention dilution", None, np.iinfo(np.int32).min),
        ("int32", FINITE, "maximum pollution", None, np.iinfo(np.int32).min),
    ],
)
def test_what_may_not_be_added_to_is_replaced(
    dtype: str, tail: Tail, leak: Leak, floor: float | None, number: float
) -> None:
    x = X.astype({"float": np.float32, "int32": np.int32}[dtype])
    result, ops = hidden(dtype, tail, leak, x, floor=floor)
    np.testing.assert_array_equal(result, filled(number, x))
    assert "Where" in ops


def test_what_many_read_is_hidden_once_for_each_purpose() -> None:
    site = site_before("a = Identity (x)  b = Identity (x)  y = Sub (a, b)")
    first, second, _ = list(site.model.graph)
    leaks: tuple[Leak, ...] = ("maximum pollution", "maximum pollution", "attention dilution")
    values = []
    for node, leak in zip((first, second, first), leaks, strict=True):
        node.replace_input_with(0, site.value("x"))
        change = HideTail(node, leak, 0, 1, site.state())
        site.op.repair(node, lambda change=change: change.rewrite(site.op, site.lengths))
        values.append(node.inputs[0])
    assert values[0] is values[1]
    assert values[0] is not values[2]


def test_a_tail_is_raised_to_a_number() -> None:
    site = site_before("y = Identity (x)", inputs=inputs_of("int32"))
    change = RaiseTail(site.node, "minimum pollution", 0, 1, site.state(), 99)
    x = X.astype(np.int32)
    np.testing.assert_array_equal(run(repair(site, change), **feeds(x)), filled(99, x))


def test_tails_are_raised_to_numbers_of_their_own() -> None:
    site = site_before("y = Sub (x, x)", inputs=inputs_of("int32"))
    state, x = site.state(), X.astype(np.int32)
    for index, number in enumerate((1, 2)):
        repair(site, RaiseTail(site.node, "minimum pollution", index, 1, state, number))
    np.testing.assert_array_equal(run(site.model, **feeds(x)), filled(1, x) - filled(2, x))


# Keys

# The input of ONNX's Attention that is its mask.
MASK = 3
MHA = "com.microsoft.MultiHeadAttention"


def keys_of(site: Site) -> HideKeys:
    slots = attention_slots(site.node)
    assert slots is not None
    state = site.state(slots.key)
    return HideKeys(site.node, "attention dilution", slots, state, keeps_mask=False)


def test_keys_get_a_mask_and_a_floor() -> None:
    site = site_before(f"y = {MHA} <num_heads = 2> (x, x, x)", floor=-77.0)
    node = site.node
    mask = repaired_input(site, keys_of(site), 4, **feeds())
    np.testing.assert_array_equal(mask, WITHIN)
    assert mask.dtype == np.int32
    assert node.attributes["mask_filter_value"].as_float() == -77


def test_the_keys_of_one_clip_have_a_mask_for_each_row() -> None:
    one = {"inputs": "float[1, T, 4] x, int64[1] ilens"}
    lone = {"x": X[:1], "ilens": LENGTHS[:1]}
    site = site_before(f"y = {MHA} <num_heads = 2> (x, x, x)", **one)
    np.testing.assert_array_equal(repaired_input(site, keys_of(site), 4, **lone), WITHIN[:1])
    assert "Expand" not in operators(site.model)
    # Three rows of one length.
    body = "k = Expand (x, three)"
    many = {"inputs": one["inputs"], "constants": "int64[3] three = {3, 1, 1}"}
    site = site_before(f"{body}  y = {MHA} <num_heads = 2> (k, k, k)", **many)
    mask = repaired_input(site, keys_of(site), 4, **lone)
    np.testing.assert_array_equal(mask, np.tile(WITHIN[:1], (3, 1)))


@pytest.mark.parametrize("role", ["mask", "addend"])
def test_an_operator_without_a_mask_of_keys_is_an_error(role: str) -> None:
    site = site_before(f"y = {MHA} <num_heads = 2> (x, x, x)")
    change = keys_of(site)
    slots = dataclasses.replace(change.slots, **{role: None})
    with pytest.raises(RuntimeError, match="MultiHeadAttention takes no mask of keys"):
        repair(site, dataclasses.replace(change, slots=slots))


@pytest.mark.parametrize("low", [None, -5.0])
def test_a_mask_that_the_model_has_is_merged_into_an_addend(low: float | None) -> None:
    attribute = "" if low is None else f", mask_filter_value = {low}"
    site = site_before(
        f"y = {MHA} <num_heads = 2{attribute}> (x, x, x, , m)",
        inputs=f"{inputs_of('float')}, int32[B, T] m",
        floor=-100.0,
    )
    change = dataclasses.replace(keys_of(site), keeps_mask=True)
    own = np.array([[1, 0, 1, 0, 1], [0, 1, 1, 1, 2]], np.int32)
    node = site.node
    addend = repaired_input(site, change, 5, m=own, **feeds())
    assert node.inputs[4] is None
    assert "mask_filter_value" not in node.attributes or low is not None
    # The default of the operator is -10000.
    keys = np.where(own < 1, -10000.0 if low is None else low, 0) + np.where(WITHIN, 0, -100)
    np.testing.assert_array_equal(addend, np.broadcast_to(keys[:, None, None], (2, 2, 5, 5)))


def test_an_addend_has_the_queries_of_its_node() -> None:
    site = site_before(
        f"y = {MHA} (q, x, x, , m)",
        inputs=f"{inputs_of('float')}, int32[B, T] m, float[B, 3, 4] q",
    )
    change = dataclasses.replace(keys_of(site), keeps_mask=True)
    own, q = np.ones((2, 5), np.int32), np.zeros((2, 3, 4), np.float32)
    assert repaired_input(site, change, 5, m=own, q=q, **feeds()).shape == (2, 1, 3, 5)


@pytest.mark.parametrize(
    ("node", "inputs", "time_axis", "shape"),
    [
        ("y = Attention (x, x, x)", inputs_of("float"), 1, (2, 1, 5, 5)),
        ("y = Attention (z, z, z)", f"{inputs_of('float')}, float[B, 3, T, 4] z", 2, (2, 1, 5, 5)),
        ("y = Attention (q, x, x)", f"{inputs_of('float')}, float[B, 3, 4] q", 1, (2, 1, 3, 5)),
    ],
)
def test_standard_attention_gets_a_mask_for_each_query(
    node: str, inputs: str, time_axis: int, shape: tuple[int, ...]
) -> None:
    site = site_before(node, inputs=inputs, opset=23)
    keys = site.state(1)
    axes = (keys.factors_of(0), keys.factors_of(time_axis))
    state = state_with_tail(axes, FINITE)
    change = MaskKeys(site.node, "attention dilution", state, time_axis)
    z, q = np.zeros((2, 3, 5, 4), np.float32), np.zeros((2, 3, 4), np.float32)
    mask = repaired_input(site, change, MASK, z=z, q=q, **feeds())
    np.testing.assert_array_equal(mask, np.broadcast_to(WITHIN[:, None, None], shape))


def test_masks_are_shared_by_queries_of_one_size() -> None:
    site = site_before(
        "a = Attention (x, x, x)  b = Attention (x, x, x)  y = Attention (q, x, x)",
        inputs=f"{inputs_of('float')}, float[B, 3, 4] q",
        opset=23,
    )
    state = state_with_tail(site.state(1).axes[:2], FINITE)  # type: ignore[index]
    nodes = list(site.model.graph)
    for node in nodes:
        change = MaskKeys(node, "attention dilution", state, 1)
        site.op.repair(node, lambda change=change: change.rewrite(site.op, site.lengths))
    first, second, other = (node.inputs[MASK] for node in nodes)
    assert first is second
    assert first is not other


# Inputs


def test_a_poisoned_input_is_cleaned_for_all_that_read_its_numbers() -> None:
    site = site_before("a = Exp (x)  s = Shape (x)  r = Reshape (a, s)  y = Add (x, r)")
    change = PoisonedInput(site.node, "poisoned input", site.value("x"), site.state(0))
    poisoned = np.where(WITHIN[:, :, None], X / 40, np.float32(np.nan))
    result = run(repair(site, change), **feeds(poisoned))
    np.testing.assert_allclose(result, filled(0, X / 40) + np.exp(filled(0, X / 40)), rtol=1e-6)
    shape = next(x for x in site.model.graph if x.op_type == "Shape")
    assert shape.inputs[0] is site.value("x")


def test_every_time_of_an_input_is_cleaned() -> None:
    site = site_before(inputs="float[B, T, T] x, int64[B] ilens")
    change = PoisonedInput(site.node, "poisoned input", site.value("x"), site.state())
    pairs = WITHIN[:, :, None] & WITHIN[:, None]
    poisoned = np.where(pairs, np.float32(1), np.float32(np.nan))
    np.testing.assert_array_equal(run(repair(site, change), **feeds(poisoned)), pairs)
