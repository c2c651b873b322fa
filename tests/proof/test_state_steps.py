"""States are fed back for several steps: an error that one step hides is seen in the next."""

import onnx_ir as ir

from graphfix.proof.verify import verify

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
RECURRENT = (
    HEAD
    + """
recurrent (float[B, 3] x, float[B, 3] state) => (float[B, 3] y, float[B, 3] new_state)
<float gain = {40.0}, float least = {-1.0}, float most = {1.0}> {
    sum = Add (x, state)
    near = Clip (sum, least, most)
    wide = Mul (near, gain)
    new_state = Sin (wide)
    y = Identity (new_state)
}
"""
)
GROWING = (
    HEAD
    + """
growing (float[B, T, 4] x, float[B, P, 4] past_values)
    => (float[B, T, 4] y, float[B, S, 4] present_values)
<int64[1] one = {1}, float scale = {1.0}> {
    present_values = Concat <axis = 1> (past_values, x)
    keys = Transpose <perm = [0, 2, 1]> (present_values)
    scores = MatMul (x, keys)
    weights = Softmax <axis = -1> (scores)
    mean = MatMul (weights, present_values)
    y = Mul (mean, scale)
}
"""
)
MASKED = (
    HEAD
    + """
masked (float[B, T, 4] x, int64[B, M] mask, float[B, 2, P, 4] past_key, bool last)
    => (float[B, T, 4] y, float[B, 2, S, 4] present_key)
<int64[1] i0 = {0}, int64[1] i1 = {1}, int64[1] i2 = {2}, int64[1] i3 = {3}, int64[1] i4 = {4},
 int64 zero = {0}, int64 step = {1}, float low = {-10000.0}, float empty = {0.0}>
{
    lifted = Unsqueeze (x, i1)
    shape = Shape (past_key)
    head = Slice (shape, i0, i2)
    tail = Slice (shape, i3, i4)
    length = Shape <start = 1, end = 2> (x)
    wanted = Concat <axis = 0> (head, length, tail)
    new = Expand (lifted, wanted)
    all = Concat <axis = 2> (past_key, new)
    keys = ReduceMean <axes = [1], keepdims = 0> (all)
    turned = Transpose <perm = [0, 2, 1]> (keys)
    scores = MatMul (x, turned)
    places = Shape <start = 2, end = 3> (all)
    total = Squeeze (places)
    each = Range (zero, total, step)
    looked = Gather <axis = 1> (mask, each)
    on = Cast <to = 9> (looked)
    row = Unsqueeze (on, i1)
    hidden = Where (row, scores, low)
    weights = Softmax <axis = -1> (hidden)
    y = MatMul (weights, keys)
    present_key = Where (last, empty, all)
}
"""
)


def test_an_error_that_grows_from_step_to_step_is_seen() -> None:
    before = ir.from_onnx_text(RECURRENT)
    after = ir.from_onnx_text(RECURRENT.replace("40.0", "40.00002"))
    verdict = verify(before, after)
    assert not verdict.ok
    wrong = {name for name, diffs in verdict.cases.items() if not all(d.ok for d in diffs)}
    assert wrong
    assert all("step" in name and "step 1" not in name for name in wrong)
    unsaid = RECURRENT.replace("new_state", "w").replace(
        "state", "z"
    )  # no name says that it is a state
    assert verify(
        ir.from_onnx_text(unsaid), ir.from_onnx_text(unsaid.replace("40.0", "40.00002"))
    ).ok


def test_a_cache_grows_from_an_empty_one_and_from_another() -> None:
    before = ir.from_onnx_text(GROWING)
    verdict = verify(before, ir.from_onnx_text(GROWING))
    assert verdict.ok
    steps = [name for name in verdict.cases if "step" in name]
    lengths = [verdict.dims[name]["P"] for name in steps]
    tokens = [verdict.dims[name]["T"] for name in steps]
    assert len(steps) == 8
    assert lengths[0] == 0
    assert lengths[4] > 0
    for i in (0, 1, 2, 4, 5, 6):
        assert lengths[i + 1] == lengths[i] + tokens[i]
    assert any("4 steps with 1 state fed back" in text for text in verdict.covered)
    assert "more than 4 steps" in verdict.not_tried


def test_each_model_keeps_its_own_states() -> None:
    """A repaired model that forgets a little in each step is not given the original's states."""
    text = RECURRENT.replace("y = Identity (new_state)", "y = Identity (sum)")
    forgets = text.replace("40.0}", "40.0}, float less = {0.999999}").replace(
        "new_state = Sin (wide)", "sine = Sin (wide) new_state = Mul (sine, less)"
    )
    verdict = verify(ir.from_onnx_text(text), ir.from_onnx_text(forgets))
    steps = [diffs for name, diffs in verdict.cases.items() if "step" in name]
    y = [next(d.max_abs for d in diffs if d.output == "y") for diffs in steps]
    assert y[0] == 0.0
    assert all(y[1:4])


def test_what_a_cache_and_a_mask_beside_it_are_together_is_found() -> None:
    """Dynamo gives the mask a dim of its own; it runs with a full cache only as their sum."""
    before = ir.from_onnx_text(MASKED)
    verdict = verify(before, before)
    assert verdict.ok
    assert not verdict.dropped
    assert max(dims["P"] for dims in verdict.dims.values()) > 8
    assert all(dims["M"] == dims["P"] + dims["T"] for dims in verdict.dims.values())
    assert "every value of 'last'" in verdict.covered
    assert any("step 4" in name for name in verdict.cases)


def test_a_counter_starts_where_it_is_about_to_wrap() -> None:
    """A ring of 500: the step in which it wraps comes in none of the usual ones."""
    ring = (
        HEAD
        + """
    ring (float[1, 4] x, int64[1] past_count) => (float[1, 4] y, int64[1] present_count)
    <int64[1] one = {1}, int64[1] most = {500}> {
        present_count = Add (past_count, one)
        place = Mod (present_count, most)
        slope = Cast <to = 1> (place)
        y = Mul (x, slope)
    }
    """
    )
    before = ir.from_onnx_text(ring)
    verdict = verify(before, before)
    assert any("past_count from 497, step 4" in name for name in verdict.cases)
    after = ir.from_onnx_text(ring.replace("Mod (present_count", "Min (present_count"))
    assert not verify(before, after)
