"""Constants and inputs that hide scores, however low, and wherever they are computed."""

from __future__ import annotations

import numpy as np
import pytest

import graphfix
from graphfix.facts.view import View
from graphfix.float16_search.emulate import emulate_float16
from graphfix.passes.half.conversion.constant_range import find_hiding_inputs, keep_unfit_constants
from graphfix.passes.half.conversion.kept_nodes import KeptNodes
from graphfix.passes.half.conversion.value_types import ElementTypes
from graphfix.runtime.local_session import Session
from tests.passes.half.test_float16 import HALF, add, agree, f, halved, parse, run, same_numbers

__all__ = ["same_numbers"]  # a fixture

LOWEST = np.finfo(np.float32).min


def fed(low: float) -> dict[str, np.ndarray]:
    """Two rows; of the second the last keys are hidden, and of its last query all are."""
    mask = np.zeros((2, 1, 5, 5), np.float32)
    mask[1, :, :, 3:] = low
    mask[1, :, 4] = low
    return {"x": f(2, 5, 8), "mask": mask}


@pytest.mark.parametrize("io", ["keep", "half"])
@pytest.mark.parametrize("low", [LOWEST, -np.inf, -65504.0, -1e9, -1e4])
def test_an_input_that_hides_scores_may_be_as_low_as_it_likes(low: float, io: str) -> None:
    before = add(
        parse(
            "(float[B, T, 8] x, float[B, 1, T, S] mask, float[8, 8] w) => (float[B, T, 8] y)",
            """q = MatMul (x, w) k = Transpose <perm = [0, 2, 1]> (q) s = MatMul (q, k)
            one = Constant <value = int64[1] {1}> () u = Unsqueeze (s, one) h = Add (u, mask)
            p = Softmax <axis = -1> (h) t = Squeeze (p, one) y = MatMul (t, q)""",
        ),
        w=f(8, 8),
    )
    spec = f"float16:io={io}"
    after = halved(before, spec)
    feeds = fed(low)
    ours = run(before, feeds)["y"]
    with np.errstate(over="ignore"):
        theirs = run(after, graphfix.get_pass("float16", io=io).feeds(feeds))["y"]
        device = Session(emulate_float16(after), optimize=False).run(feeds)["y"]
    shown = np.ones((2, 5), np.bool_)
    shown[1, 4] = False  # a row that is hidden whole is a number, and no content
    for made in (theirs, device):
        np.testing.assert_allclose(made[shown], ours[shown], atol=0.02 * np.abs(ours[shown]).max())
        assert np.isfinite(made).all()


def test_scores_that_come_in_are_no_mask() -> None:
    """What alone is given to a Softmax, or is multiplied first, has no floor."""
    before = add(
        parse(
            "(float[B, T, 8] x, float[B, T, 8] z, float[8, 8] w) => (float[B, T, 8] y)",
            "q = MatMul (x, w) h = Mul (q, z) p = Softmax <axis = -1> (h) y = MatMul (p, w)",
        ),
        w=f(8, 8),
    )
    assert not [x for x in halved(before).graph if x.op_type == "Max"]


@pytest.mark.parametrize(
    ("attention", "opset"),
    [
        ("com.microsoft.MultiHeadAttention <num_heads = 2> (q, q, q, , , bias)", 17),
        ("com.microsoft.Attention <num_heads = 2> (q, v, c, , , bias)", 17),
    ],
)
def test_the_bias_of_a_fused_attention_hides_as_well(attention: str, opset: int) -> None:
    """-3.4e38 is minus infinity in float16, and a row of that is no number."""
    before = add(
        parse(
            """(float[B, T, 8] x, bool[B, 1, T, S] hide, float[8, 8] w, float[8, 24] v, float[24] c,
            float low) => (float[B, T, 8] y)""",
            f"q = MatMul (x, w) m = Cast <to = 1> (hide) a = Mul (m, low) s = Constant <value ="
            f" int64[4] {{1, 2, 1, 1}}> () bias = Expand (a, s) y = {attention}",
            opset=opset,
        ),
        w=f(8, 8),
        v=f(8, 24),
        c=f(24),
        low=np.array(LOWEST, np.float32),
    )
    after = halved(before)
    made = {x.op_type: x.outputs[0].dtype for x in after.graph}
    assert made["Mul"] == HALF
    assert after.graph.initializers["low"].const_value.numpy() == -30000
    hide = fed(1.0)["mask"] > 0
    hide[1, :, 4] = hide[1, :, 0]
    agree(before, after, {"x": f(2, 5, 8), "hide": hide})


def test_what_a_fused_attention_hides_keys_with_is_a_number_too() -> None:
    before = add(
        parse(
            "(float[B, T, 8] x, int32[B, T] keys, float[8, 8] w) => (float[B, T, 8] y)",
            """q = MatMul (x, w) y = com.microsoft.MultiHeadAttention
            <num_heads = 2, mask_filter_value = -3.4028235e38> (q, q, q, , keys)""",
        ),
        w=f(8, 8),
    )
    after = halved(before)
    node = next(x for x in after.graph if x.op_type == "MultiHeadAttention")
    assert node.attributes["mask_filter_value"].as_float() == -30000
    kept = before.clone()
    graphfix.run(kept, "float16:keep=MultiHeadAttention")
    node = next(x for x in kept.graph if x.op_type == "MultiHeadAttention")
    assert node.attributes["mask_filter_value"].as_float() < -3e38
    keys = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]], np.int32)
    agree(before, after, {"x": f(2, 5, 8), "keys": keys})


@pytest.mark.parametrize(
    ("op", "stays"),
    [
        ("Clip (h, low, large)", False),
        ("Min (h, large)", False),
        ("Max (h, large)", False),
        ("Add (h, large)", True),
        ("Mul (h, large)", True),
    ],
)
def test_a_bound_beyond_float16_keeps_nothing(op: str, stays: bool) -> None:
    before = add(
        parse(
            "(float[B, 8] x, float[8, 8] w) => (float[B, 8] y)",
            f"""low = Constant <value_float = 0.0> () large = Constant <value_float = 1e6> ()
            h = MatMul (x, w) k = {op} g = Sigmoid (k) y = MatMul (g, w)""",
        ),
        w=f(8, 8),
    )
    after = halved(before)
    node = next(x for x in after.graph if x.outputs[0].name == "k")
    assert (node.outputs[0].dtype != HALF) == stays
    agree(before, after, {"x": f(2, 8)})


def kept_in(body: str, inputs: str = "float[B, 2] x", opset: int = 17) -> KeptNodes:
    """Keep what constants need: the names of outputs are those of the nodes."""
    view = View(parse(f"({inputs}) => (float y)", f"{CONSTANTS} {body}", opset=opset))
    kept = KeptNodes(view, ElementTypes(view))
    keep_unfit_constants(kept)
    return kept


CONSTANTS = " ".join(
    f"{name} = Constant <value = float[{len(numbers)}] {{{', '.join(map(str, numbers))}}}> ()"
    for name, numbers in {
        "large": [1e6],
        "floor": [3e4],
        "below": [3.1e4],
        "low": [-1e9, 0],
        "tiny": [1e-9],
        "rounded": [1e-6],
        "little": [1e-5, 2e-6],
        "mixed": [1, 1e-9],
        "zeros": [0, 0],
        "one": [1],
    }.items()
)


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("y = Add (x, large)", {"y": "'large' reaches 1e+06, float16 65504"}),
        ("y = Max (x, large)", {}),
        ("y = Less (x, large)", {}),
        ("y = Add (x, floor)", {}),
        ("y = Add (x, below)", {}),  # float16 holds it
        ("y = Add (x, one)", {}),
        ("y = Add (x, zeros)", {}),
        # One number that is lost, or that loses a hundredth.
        ("y = Add (x, tiny)", {"y": "'tiny' is 1e-09 at most"}),
        ("y = Add (x, rounded)", {"y": "'rounded' is 1e-06 at most"}),
        ("y = Mul (x, little)", {"y": "'little' is 1e-05 at most"}),
        # Of several, added to what is in float16, they are nothing.
        ("y = Add (x, little)", {}),
        ("y = Sub (x, little)", {}),
        ("y = Gemm (x, x, little)", {}),
        ("y = Mul (x, mixed)", {}),
        # What takes it keeps it from 0, where that is needed, and the layout between.
        ("a = Add (x, tiny) y = Log (a)", {"a": "'tiny' is", "y": "it takes what 'tiny' keeps"}),
        ("a = Add (x, tiny) y = Relu (a)", {"a": "'tiny' is"}),
        ("a = Add (x, tiny) y = Div (x, a)", {"a": "'tiny' is", "y": "it takes"}),
        ("a = Add (x, tiny) y = Div (a, x)", {"a": "'tiny' is"}),
        ("a = Add (x, tiny) b = Sqrt (a) y = Div (x, b)", {"a": "'ti", "b": "it", "y": "it"}),
        ("a = Add (x, tiny) b = Reciprocal (a) y = Log (b)", {"a": "'ti", "b": "it", "y": "it"}),
        ("a = Add (x, tiny) b = Pow (a, one) y = Log (b)", {"a": "'ti", "b": "it", "y": "it"}),
        # Behind a logarithm and a quotient the number is of an ordinary size.
        ("a = Add (x, tiny) b = Log (a) y = Sqrt (b)", {"a": "'ti", "b": "it takes"}),
        ("a = Add (x, tiny) b = Div (x, a) y = Log (b)", {"a": "'ti", "b": "it takes"}),
        ("a = Add (x, tiny) b = Transpose (a) y = Log (b)", {"a": "'ti", "b": "it", "y": "it"}),
        ("a = Add (x, tiny) b = Transpose (a) y = Relu (b)", {"a": "'ti"}),
    ],
)
def test_readers_of_what_float16_does_not_hold(body: str, kept: dict[str, str]) -> None:
    reasons = {x.outputs[0].name: reason for x, reason in kept_in(body).reasons.items()}
    assert reasons.keys() == kept.keys()
    for name, reason in kept.items():
        assert reasons[name].startswith(reason)


@pytest.mark.parametrize(
    ("body", "floor"),
    [
        ("a = Add (x, low) y = Softmax (a)", 3e4),
        ("m = Mul (low, half) a = Add (x, m) y = Softmax (a)", 6e4),
        ("m = Mul (low, two) a = Add (x, m) y = Softmax (a)", 3e4),
        ("a = Add (x, below) y = Softmax (a)", 3e4),
        ("a = Add (x, floor) y = Softmax (a)", None),
        ("a = Add (x, low) y = Relu (a)", None),
    ],
)
def test_what_hides_scores_gets_a_floor(body: str, floor: float | None) -> None:
    scales = """half = Constant <value_float = 0.5> () two = Constant <value_float = 2.0> ()"""
    kept = kept_in(f"{scales} {body}")
    assert [*kept.masks.values()] == ([] if floor is None else [floor])
    assert bool(kept.reasons) == ("Relu" in body)


def test_how_many_elements_are_lost_is_said() -> None:
    ((value, text),) = kept_in("y = Mul (x, mixed)").unfit
    assert value.name == "mixed"
    assert text == "1 of 2 elements of 'mixed' are too small for float16 and become 0"
    assert not kept_in("y = Mul (x, one)").unfit
    assert not kept_in("y = Mul (x, tiny)").unfit  # its reader stays


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        ("s = MatMul (x, x) h = Add (s, mask) y = Softmax (h)", {"mask"}),
        ("s = MatMul (x, x) h = Add (mask, s) y = Softmax (h)", {"mask"}),
        ("s = MatMul (x, x) t = Transpose (s) h = Add (t, mask) y = Softmax (h)", {"mask"}),
        ("s = Mul (x, x) m = Transpose (mask) h = Add (s, m) y = Softmax (h)", {"mask"}),
        ("s = MatMul (x, x) h = Add (s, mask) y = Relu (h)", set()),
        ("s = Relu (x) h = Add (s, mask) y = Softmax (h)", set()),
        ("s = MatMul (x, x) h = Mul (s, mask) y = Softmax (h)", set()),
        ("s = MatMul (x, x) e = Expand (s, mask0) h = Add (e, s) y = Softmax (h)", set()),
        ("y = com.microsoft.MultiHeadAttention <num_heads = 1> (x, x, x, , , mask)", {"mask"}),
        ("y = com.microsoft.MultiHeadAttention <num_heads = 1> (x, x, mask)", set()),
    ],
)
def test_inputs_that_are_added_to_scores(body: str, inputs: set[str]) -> None:
    signature = "(float[2, 2] x, float[2, 2] mask, int64[2] mask0, bool[2] no) => (float y)"
    view = View(parse(signature, body))
    kept = KeptNodes(view, ElementTypes(view))
    find_hiding_inputs(kept)
    assert {x.name for x in kept.floors} == inputs
