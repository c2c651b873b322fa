"""static-cache: caches of one size give what growing ones give, over any steps, or a refusal."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphfix.cache_axes.cache_input import CacheInput
from graphfix.core import interface_changes_of
from graphfix.engine import pipeline
from graphfix.errors import PaddingError, UsageError
from graphfix.proof.verify import verify
from graphfix.shipped.in_front import last_entries
from tests.passes.cached import FORMS, SIZE, WIDTH, WINDOW, step, table
from tests.passes.models import data, model, opened

if TYPE_CHECKING:
    import onnxruntime as ort

ROLLING = ("window of the cache", "rolling", "cut before it is read")


@cache
def sessions(
    form: str,
) -> tuple[ort.InferenceSession, ort.InferenceSession, tuple[CacheInput, ...]]:
    """A form with caches that grow, the same with caches of one size, and what that is fed."""
    before, after = model(FORMS[form], 17), model(FORMS[form], 17)
    size = WINDOW if form in ROLLING else SIZE
    pipeline.run(after, f"static-cache:past={size}" + (",enc=6" if form == "cross" else ""))
    return opened(before), opened(after), CacheInput.all_from_metadata(after)


def fed(session: ort.InferenceSession, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    known = {x.name for x in session.get_inputs()}
    names = [x.name for x in session.get_outputs()]
    made = session.run(names, {k: x for k, x in feeds.items() if k in known})
    return dict(zip(names, made, strict=True))


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=12)
@given(draw=st.data())
def test_any_steps_give_what_growing_caches_give(form: str, draw: st.DataObject) -> None:
    grows, static, told = sessions(form)
    rolls = form in ROLLING
    rows, seed = draw.draw(st.integers(1, 3)), draw.draw(st.integers(0, 99))
    counts = draw.draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    pads = draw.draw(st.lists(st.integers(0, counts[0] - 1), min_size=rows, max_size=rows))
    random, length = np.random.default_rng(seed), 0

    def drawn(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    held = {x: drawn(rows, 1 + seed % 6, WIDTH) for x in ("cross_key", "cross_value")}
    state = {x: np.zeros((rows, 0, WIDTH), np.float32) for x in ("past_key", "past_value")}
    own: dict[str, np.ndarray] = {}
    for count in counts:
        if length + count > SIZE and not rolls:
            break
        mask = (np.arange(length + count) >= np.array(pads)[:, None]).astype(np.int64)
        old = {"x": drawn(rows, count, WIDTH), "mask": mask, **held, **state}
        new: dict[str, np.ndarray] = old
        for one in told:
            new = one.pad_feeds(new)
        wanted, made = fed(grows, old), fed(static, {**new, **own})
        state = {x: wanted[x.replace("past", "present")] for x in state}
        own = {x: made[x.replace("past", "present")] for x in state}
        for _, name, axis in (x for one in told for x in one.states):
            most = min(wanted[name].shape[axis], made[name].shape[axis])
            wanted[name], made[name] = (last_entries(x[name], axis, most) for x in (wanted, made))
        length += count
        for name, array in wanted.items():
            np.testing.assert_allclose(made[name], array, rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("form", FORMS)
def test_what_it_does_is_said_and_done_once(form: str) -> None:
    after = model(FORMS[form], 17)
    spec = "static-cache:past=" + str(WINDOW if form in ROLLING else SIZE)
    assert pipeline.run(after, spec).changed
    once = data(after)
    pipeline.run(after, spec)
    assert data(after) == once
    shapes = {x.name: [*x.shape] for x in after.graph.inputs}
    assert shapes["past_key"][1] == CacheInput.all_from_metadata(after)[0].size


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ("c = Conv <pads = [1, 1]> (turned, kernel) k2 = ReduceMax <axes = [2]> (c)", "Conv"),
        ("n = NonZero (values) s2 = Shape (n) k2 = Cast <to = 1> (s2)", "NonZero|Shape"),
        ('d = MatMul (values, turned) k2 = Einsum <equation = "bii->b"> (d)', "Einsum.*diagonal"),
        ("k2 = ReduceMean <axes = [1]> (values)", "ReduceMean"),
        ("k2 = Gather <axis = 1> (values, nought_1)", "Gather"),
        ("k2 = Slice (values, nought_1, first, first)", "Slice"),
        ("z = Reshape (values, halves) k2 = ReduceMax <axes = [1, 2]> (z)", "Reshape"),
    ],
)
def test_what_cannot_be_seen_through_is_refused_by_its_name(node: str, told: str) -> None:
    text = step(after=f"{node} y = Add (inner, k2)").replace(
        "float unit",
        f"{table('kernel', 4, 4, 3)}, int64[4] halves = {{0, 2, -1, {WIDTH}}}, float unit",
    )
    m = model(text, 17)
    before = data(m)
    with pytest.raises(PaddingError, match=told):
        pipeline.run(m, f"static-cache:past={SIZE}")
    assert data(m) == before


@pytest.mark.parametrize(
    ("opset", "softmax"),
    [
        (11, "Softmax (scores)"),  # axis 1, and all behind it
        (11, "Softmax <axis = 1> (scores)"),
        (11, "Softmax <axis = -1> (scores)"),
        (13, "Softmax (scores)"),  # the last axis
        (13, "Softmax <axis = 2> (scores)"),
    ],
)
def test_the_axes_of_a_softmax_are_those_of_its_opset(opset: int, softmax: str) -> None:
    """Before opset 13 all axes from its own on are normalized together."""
    text = f"""m (float[B, 1, 4] x, float[B, past, 4] past_keys)
        => (float[B, 1, 4] y, float[B, total, 4] present_keys)
    {{
        present_keys = Concat <axis = 1> (past_keys, x)
        turned = Transpose <perm = [0, 2, 1]> (present_keys)
        scores = MatMul (x, turned)
        weights = {softmax}
        y = MatMul (weights, present_keys)
    }}"""
    before, after = model(text, opset), model(text, opset)
    passes = pipeline.resolve_passes("static-cache:past=6")
    pipeline.run(after, passes)
    assert [node.op_type for node in after.graph].count("Where") == 1  # the scores to hide
    dims = {"past": [0, 2, 6], "B": [1, 2]}
    verdict = verify(before, after, dims=dims, may_change=interface_changes_of(passes))
    assert verdict.ok, str(verdict)


@pytest.mark.parametrize(
    ("opset", "reduction"),
    [
        (12, "ReduceSum <axes = [1], keepdims = 1> (present_keys)"),
        (18, "ReduceL1 (present_keys, one)"),
        (18, "ReduceLogSum (positive, one)"),
        (18, "ReduceMax <noop_with_empty_axes = 1> (present_keys)"),  # reduces nothing
    ],
)
def test_sums_over_a_cache_leave_out_what_is_not_valid(opset: int, reduction: str) -> None:
    text = f"""m (float[B, 1, 4] x, float[B, past, 4] past_keys)
        => (float[B, P, 4] y, float[B, total, 4] present_keys) <int64[1] one = {{1}}>
    {{
        present_keys = Concat <axis = 1> (past_keys, x)
        positive = Abs (present_keys)
        sums = {reduction}
        turned = Transpose <perm = [0, 2, 1]> (present_keys)
        scores = MatMul (x, turned)
        weights = Softmax <axis = -1> (scores)
        mixed = MatMul (weights, present_keys)
        picked = Gather <axis = 1> (sums, minus)
        y = Add (mixed, picked)
    }}""".replace("int64[1] one", "int64[1] minus = {-1}, int64[1] one")
    before, after = model(text, opset), model(text, opset)
    passes = pipeline.resolve_passes("static-cache:past=6")
    pipeline.run(after, passes)
    dims = {"past": [0, 2, 6], "B": [1, 2]}
    verdict = verify(before, after, dims=dims, may_change=interface_changes_of(passes))
    assert verdict.ok, str(verdict)


DECODER = """m (float[B, 1, 4] x, float[B, past, 4] past_keys%s)
    => (float[B, 1, 4] y, float[B, total, 4] present_keys)
    <float[4] gain = {1, 2, 3, 4}, float nil = {0}>
    {
        present_keys = Concat <axis = 1> (past_keys, x)
        %s
        turned = Transpose <perm = [0, 2, 1]> (keys)
        scores = MatMul (x, turned)
        weights = Softmax <axis = -1> (scores)
        y = MatMul (weights, keys)
    }"""


@pytest.mark.parametrize(("axis", "is_refused"), [(-1, False), (2, False), (1, True), (-2, True)])
def test_a_norm_of_each_entry_keeps_them_apart(axis: int, *, is_refused: bool) -> None:
    norm = f"keys = LayerNormalization <axis = {axis}> (present_keys, gain)"
    before, after = (model(DECODER % ("", norm), 17) for _ in range(2))
    passes = pipeline.resolve_passes("static-cache:past=6")
    if is_refused:
        with pytest.raises(PaddingError, match="LayerNormalization may mix the entries"):
            pipeline.run(after, passes)
        return
    pipeline.run(after, passes)
    dims = {"past": [0, 2, 6], "B": [1, 2]}
    verdict = verify(before, after, dims=dims, may_change=interface_changes_of(passes))
    assert verdict.ok, str(verdict)


def test_what_is_as_long_as_the_past_is_filled_with_0() -> None:
    body = "keys = Identity (present_keys) unused = Neg (weight)"
    after = model(DECODER % (", float[B, past] weight", body), 17)
    pipeline.run(after, "static-cache:past=6")
    (cache,) = CacheInput.all_from_metadata(after)
    assert cache.padded == (("past_keys", 1, 0.0), ("weight", 1, 0.0))


@pytest.mark.parametrize(
    ("where", "hides"),
    [
        ("Where (wide, past_keys, nil)", True),
        ("Where (wide, past_keys, unit)", False),
        ("Where (wide, nil, past_keys)", False),
    ],
)
def test_what_a_mask_of_the_model_makes_0_is_not_made_0_again(where: str, *, hides: bool) -> None:
    text = f"""m (float[B, 1, 4] x, float[B, past, 4] past_keys, int64[B, past] mask)
        => (float[B, 1, 4] y, float[B, total, 4] present_keys)
        <int64[1] last = {{2}}, int64[1] one = {{1}}, float nil = {{0}}, float unit = {{1}}>
    {{
        present_keys = Concat <axis = 1> (past_keys, x)
        shown = Cast <to = 9> (mask)
        wide = Unsqueeze (shown, last)
        clean = {where}
        sums = ReduceSum <keepdims = 1> (clean, one)
        y = Add (x, sums)
    }}"""
    after = model(text, 17)
    pipeline.run(after, "static-cache:past=6")
    assert ([x.op_type for x in after.graph].count("Where") == 1) == hides


@pytest.mark.parametrize("opset", [10, 11, 12])
def test_rows_of_a_table_are_taken_at_each_opset_that_can(opset: int) -> None:
    """Max takes integers from opset 12 on, and Range begins with 11."""
    table = ", ".join(str(x / 8) for x in range(48))
    text = f"""m (float[B, 1, 4] x, float[B, past, 4] past_keys)
        => (float[B, 1, 4] y, float[B, total, 4] present_keys)
        <float[12, 4] table = {{{table}}}, int64[1] zero = {{0}}, int64[1] one = {{1}}>
    {{
        present_keys = Concat <axis = 1> (past_keys, x)
        s = Shape (present_keys)
        length = Gather (s, one)
        rows = Slice (table, zero, length, zero)
        placed = Add (present_keys, rows)
        turned = Transpose <perm = [0, 2, 1]> (placed)
        scores = MatMul (x, turned)
        weights = Softmax <axis = -1> (scores)
        y = MatMul (weights, placed)
    }}"""
    before, after = model(text, opset), model(text, opset)
    passes = pipeline.resolve_passes("static-cache:past=6")
    if opset < 11:
        with pytest.raises(PaddingError, match="it takes opset 11: convert the model to it"):
            pipeline.run(after, passes)
        return
    pipeline.run(after, passes)
    dims = {"past": [0, 2, 6], "B": [1, 2]}
    verdict = verify(before, after, dims=dims, may_change=interface_changes_of(passes))
    assert verdict.ok, str(verdict)


def test_axes_of_a_reduction_that_are_not_known_are_refused() -> None:
    text = """m (float[B, 1, 4] x, float[B, past, 4] past_keys, int64[1] axes)
        => (float[P, Q, R] y, float[B, total, 4] present_keys)
    {
        present_keys = Concat <axis = 1> (past_keys, x)
        y = ReduceSum <keepdims = 1> (present_keys, axes)
    }"""
    with pytest.raises(PaddingError, match=r"ReduceSum.*which axes it reduces is not known"):
        pipeline.run(model(text, 18), "static-cache:past=6")


def test_a_name_that_is_none_and_a_size_beside_the_models_own() -> None:
    with pytest.raises(UsageError, match="no input has a dim named 'pasts'"):
        pipeline.run(model(FORMS["causal"], 17), "static-cache:pasts=8")
    with pytest.raises(UsageError, match=f"static-cache:past={WINDOW}"):
        pipeline.run(model(FORMS["window of the cache"], 17), "static-cache:past=8")


@pytest.mark.parametrize("form", ["causal and mask", "rolling", "cross"])
def test_verify_holds_caches_of_one_size_to_growing_ones(form: str) -> None:
    """Of more new entries than a cache holds, too, and then of what is made of the result."""
    before, after = model(FORMS[form], 17), model(FORMS[form], 17)
    size = 3 if form != "rolling" else WINDOW
    made = pipeline.resolve_passes(
        f"static-cache:past={size}" + (",enc=6" if form == "cross" else "")
    )
    pipeline.run(after, made)
    dims = {"past": [0, 1, size], "S": [1, 7], "B": [1, 2]}
    verdict = verify(before, after, dims=dims, may_change=interface_changes_of(made))
    assert verdict.ok, str(verdict)
    copy = after.clone()
    pipeline.run(copy, "fold")
    assert verify(after, copy).ok


def test_verify_tells_entries_that_are_not_hidden() -> None:
    before, after = model(FORMS["causal and mask"], 17), model(FORMS["causal and mask"], 17)
    made = pipeline.resolve_passes("static-cache:past=6")
    pipeline.run(after, made)
    told = next(x for x in after.graph if x.op_type == "Less")
    told.replace_input_with(0, told.inputs[1])
    told.replace_input_with(1, told.inputs[1])
    dims = {"past": [0, 2], "S": [3], "B": [1]}
    assert not verify(before, after, dims=dims, may_change=interface_changes_of(made)).ok


def test_an_input_of_another_size_is_a_change() -> None:
    m = model("m (float[B, past, 4] x) => (float[B, past, 4] y) { y = Relu (x) }", 18)
    (report,) = pipeline.run(m, "static-cache:past=3").passes
    assert [(x.tensor, len(x.removed), len(x.added)) for x in report.changes] == [("x", 1, 1)]
    assert "[B,3,4]" in report.changes[0].added[0]


def test_a_state_that_only_its_growth_tells_is_cut() -> None:
    """As ``ik`` of GPT-SoVITS, which comes out as ``k``."""
    text = FORMS["causal"].replace("present_key", "kk").replace("present_value", "vv")
    after = model(text.replace("past_key", "ik").replace("past_value", "iv"), 17)
    pipeline.run(after, f"static-cache:past={SIZE}")
    (told,) = CacheInput.all_from_metadata(after)
    assert told.states == (("ik", "kk", 1), ("iv", "vv", 1))
    assert [x.shape[1] for x in after.graph.outputs[1:] if x.shape] == [SIZE, SIZE]
