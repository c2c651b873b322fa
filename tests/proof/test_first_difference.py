"""The first tensor that differs, in the order of the graph."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.proof.allowance import USUAL
from graphfix.proof.compare import Tolerance
from graphfix.proof.first_difference import (
    Divergence,
    broadcast_pair,
    find_divergence,
    unmasked_elements,
)
from graphfix.proof.inner_tensors import ModelRun
from graphfix.runtime.port import Feeds

HEADER = '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (y) '
CONSTANTS = "<float two = {2}, float more = {2.5}, float less = {1.9999999}> "
FEEDS = {"x": np.array([1.25, -0.5, 3.0], np.float32)}


def run_of(body: str, feeds: Feeds = FEEDS) -> ModelRun:
    model = ir.from_onnx_text(f"{HEADER}{CONSTANTS}{{ {body} }}")
    return ModelRun(model, model, feeds)


def divergence(before: str, after: str, content: object = None) -> Divergence | None:
    return find_divergence(run_of(before), run_of(after), "a", Tolerance(), content)


BEFORE = "a = Mul (x, two) b = Cos (a) y = Add (b, a)"


def test_what_agrees_has_none() -> None:
    assert divergence(BEFORE, BEFORE) is None
    assert divergence(BEFORE, "z = Mul (x, two) b = Cos (z) y = Add (b, z)") is None


def test_the_first_is_told_with_its_node() -> None:
    found = divergence(BEFORE, BEFORE.replace("two", "more"))
    assert found is not None
    assert (found.tensor, found.op, found.given) == ("a", "Mul", None)
    assert found.diff.case == "a"
    assert str(found) == "The first tensor to differ is 'a' (Mul)."
    named = Divergence("a", "n", "Mul", found.diff, 1e-7)
    assert str(named) == (
        "The first tensor to differ is 'a' (Mul 'n'). What it is given differs by 1e-07 at most: "
        "there rounding decides."
    )


ROUNDED = "a = Mul (x, two) b = Floor (a) y = Neg (b)"


def test_rounding_decides_where_the_inputs_are_nearly_the_same() -> None:
    feeds = {"x": np.array([1.5, 0.5, 7.0], np.float32)}
    before, after = run_of(ROUNDED, feeds), run_of(ROUNDED.replace("two", "less"), feeds)
    found = find_divergence(before, after, "a", Tolerance())
    assert found is not None
    assert found.tensor == "b"
    assert found.given is not None
    assert 0 < found.given < 1e-5


def test_rounding_does_not_decide_where_the_inputs_agree_or_differ_much() -> None:
    for after in (
        ROUNDED.replace("Floor", "Ceil"),
        ROUNDED.replace("b = Floor (a)", "b = Cos (a)"),
    ):
        found = divergence(ROUNDED, after)
        assert found is not None
        assert (found.tensor, found.given) == ("b", None)


def test_only_content_is_compared() -> None:
    after = BEFORE.replace("two", "hidden")
    body = after.replace("a = Mul", "w = Where (c, two, more) a = Mul").replace("hidden", "w")
    constants = CONSTANTS.replace("<", "<bool[3] c = {1, 1, 0}, ")
    model = ir.from_onnx_text(f"{HEADER}{constants}{{ {body} }}")
    runs = run_of(BEFORE), ModelRun(model, model, FEEDS)

    def mask(*kept: bool) -> object:
        return lambda _name, shape: np.array(kept) if shape == (3,) else None

    assert find_divergence(*runs, "a", Tolerance(), mask(True, True, False)) is None
    assert find_divergence(*runs, "a", Tolerance(), mask(True, True, True)) is not None
    assert find_divergence(*runs, "a", Tolerance(), mask(True, True)) is not None
    assert find_divergence(*runs, "a", Tolerance(), lambda *_: None) is not None


SCORES = "a = Mul (x, sizes) b = {} c = Identity (b) y = Neg (c)"
NARROW = "<float[4] sizes = {{640, 1, 1, 1}}, float[4] more = {{0, 0.001, 0, 0}}>"
BOXES = {"x": np.random.default_rng(0).uniform(0.5, 1, (6, 4)).astype(np.float32)}


def run_of_boxes(text: str) -> ModelRun:
    model = ir.from_onnx_text(HEADER.replace("float[N] x", "float[N, 4] x") + text)
    return ModelRun(model, model, BOXES)


def test_a_tensor_is_held_to_its_own_channels() -> None:
    body = f"{NARROW} {{{{ {SCORES} }}}}"
    before, after = (run_of_boxes(body.format(x)) for x in ("Identity (a)", "Add (a, more)"))
    found = find_divergence(before, after, "a", USUAL)
    assert found is not None
    assert found.tensor == "b"
    assert find_divergence(before, after, "a", Tolerance()) is None
    # Behind a rounding to float16 more is allowed.
    found = find_divergence(before, after, "a", USUAL, half=("b",))
    assert found is not None
    assert found.tensor == "c"
    assert find_divergence(before, after, "a", USUAL, half=("b", "c", "y")) is None


def test_what_the_original_is_off_by_itself_is_no_difference() -> None:
    """The difference of two large numbers is as uncertain as they are."""
    text = """<float k = {0.001}, float far = {10}, float[4] more = {MORE, 0, 0, 0}>
        { s = Mul (x, k) a = Add (s, far) b = Sub (a, far) c = Add (b, more) y = Neg (c) }"""
    before, near, far = (run_of_boxes(text.replace("MORE", x)) for x in ("0", "1e-6", "5e-5"))
    assert find_divergence(before, near, "a", USUAL) is None
    assert find_divergence(before, far, "a", USUAL) is not None


def test_shapes_that_do_not_broadcast_differ() -> None:
    found = divergence("a = Concat <axis = 0> (x, x) y = Cos (a)", "a = Cos (x) y = Cos (a)")
    assert found is not None
    assert found.tensor == "a"


def test_text_is_not_compared() -> None:
    body = "a = Cast <to = 8> ({}) b = Cast <to = 1> (a) y = Cos (x)"
    found = divergence(body.format("x"), body.format("two"))
    assert found is not None
    assert found.tensor == "b"


def test_pairs_get_one_shape_and_type() -> None:
    three, one = np.ones(3, np.float32), np.ones(1, np.float32)
    assert all(a is b for a, b in zip(broadcast_pair(three, three), (three, three), strict=True))
    for before, after in ((three, one), (three, three.astype(np.float16))):
        pair = broadcast_pair(before, after)
        assert [(x.shape, x.dtype) for x in pair] == [((3,), np.dtype(np.float64))] * 2
    with pytest.raises(ValueError, match="broadcast"):
        broadcast_pair(three, np.ones(2))


@pytest.mark.parametrize(
    ("before", "after", "mask"),
    [
        ([1.0, -1e30], [1.0, -1e30], [True, False]),
        ([1.0, -1e30], [1.0, 1.0], None),
        ([1.0, 1.0], [1.0, -1e30], None),
        ([np.nan, -np.inf], [np.nan, -np.inf], [True, False]),
        ([1.0], [1.0], None),
    ],
)
def test_fills_of_masks(before: list[float], after: list[float], mask: list[bool] | None) -> None:
    result = unmasked_elements(np.array(before), np.array(after))
    assert (None if result is None else result.tolist()) == mask
    assert unmasked_elements(np.array([-(2**62)]), np.array([-(2**62)])) is None
