"""Rules for norms and Softmax."""

from __future__ import annotations

from typing import Any

import pytest

from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.rule_site import RuleSite
from graphfix.lengths.rules.normalize import RULES
from graphfix.lengths.tail_state import (
    ANY,
    FINITE,
    HIDDEN,
    ONE,
    PARTLY_HIDDEN,
    ZERO,
    Tail,
    TensorState,
)
from graphfix.ops import qualified_name
from tests.lengths.sites import asked_leaks, site_of

INPUTS = (
    "float[B, T, 4] x, float[B, 4, T] c, float[B, 4, T, 2] deep, float[4] v, float[T] t, "
    "float[B, T, 4] skip, float[B, C, T] open, float[B, 4, 8] still"
)
STATISTICS = ["statistics pollution"]
NORM = "com.microsoft.SkipLayerNormalization"
UNKNOWN = {"axes": None, "tails": ()}


def infer(
    node: str, *, opset: int = 17, output: str = "y", **facts: Tail | dict[str, Any]
) -> tuple[RuleSite, list[TensorState | None]]:
    """Return the site of a node, and the state of each result."""
    site = site_of(f"{output} = {node}", inputs=INPUTS, opset=opset, outputs=output, **facts)
    states = RULES[qualified_name(site.node)].infer_states(site)
    return site, [states] if isinstance(states, TensorState) else list(states)


@pytest.mark.parametrize(
    ("node", "axes"),
    [
        ("LayerNormalization (x, v)", None),
        ("LayerNormalization <axis = 2> (x, v)", None),
        ("LayerNormalization <axis = 1> (x, v)", (1, 2)),
        ("LayerNormalization (c, t)", "its parameter"),
        ("LayerNormalization <axis = 0> (still, v)", None),
        ("SimplifiedLayerNormalization <axis = 1> (x, v)", (1, 2)),
        ("SimplifiedLayerNormalization (x, v)", None),
        ("InstanceNormalization (c, v, v)", (2,)),
        ("InstanceNormalization (deep, v, v)", (2, 3)),
        ("InstanceNormalization (still, v, v)", None),
    ],
)
def test_statistics_over_time_are_of_valid_frames(node: str, axes: Any) -> None:
    if axes == "its parameter":
        with pytest.raises(RefusedError, match="a parameter of it carries time"):
            infer(node)
        return
    site, (state,) = infer(node)
    assert asked_leaks(site) == ([] if axes is None else STATISTICS)
    assert [getattr(x, "axes", None) for x in site.repairs] == ([] if axes is None else [axes])
    assert state is not None
    assert state.axes == site.input_state().axes
    for repair in site.repairs:
        assert getattr(repair, "centred", None) == ("Simplified" not in node)
        assert getattr(repair, "per_channel", None) == node.startswith("Instance")


@pytest.mark.parametrize(("tail", "expected"), [(ZERO, FINITE), (ONE, FINITE), (ANY, ANY)])
@pytest.mark.parametrize(
    "node", ["LayerNormalization (x, v)", f"{NORM} (x, skip, v)", "InstanceNormalization (x, v, v)"]
)
def test_a_norm_computes_its_tail(node: str, tail: Tail, expected: Tail) -> None:
    if node.startswith("Inst"):
        node = node.replace("x", "c")
    _, (state,) = infer(node, x=tail, c=tail)
    assert state is not None
    assert set(state.tails) == {None, expected}


def test_a_skip_must_be_finite_too() -> None:
    _, (state,) = infer(f"{NORM} (x, skip, v)", skip=ANY)
    assert state is not None
    assert state.tails == (None, ANY, None)


@pytest.mark.parametrize("node", ["InstanceNormalization (x, v, v)", "LayerNormalization (x, v)"])
def test_a_rank_that_is_not_known(node: str) -> None:
    node = node.replace("x", "still")
    _, (state,) = infer(node, still=UNKNOWN)
    assert state is not None
    assert not state.time_axes
    with pytest.raises(RefusedError, match="its result grows with the padding"):
        infer(node.replace("still", "x"), x=UNKNOWN)


def test_mean_and_deviation_have_the_axes_that_are_left() -> None:
    _, states = infer("LayerNormalization (x, v)", output="y, mean, deviation")
    assert len(states) == 3
    assert states[1] == states[2]
    assert states[1] is not None
    assert [str(states[1].size_along(i)) for i in range(3)] == ["B", "T", "1"]
    assert states[1].tails == (None, FINITE, None)
    with pytest.raises(RefusedError, match="its mean or deviation over time is used elsewhere"):
        infer("LayerNormalization <axis = 1> (x, v)", output="y, mean")
    unused = site_of("y, mean = LayerNormalization <axis = 1> (x, v)", inputs=INPUTS)
    states = list(RULES["LayerNormalization"].infer_states(unused))
    assert states[1] is not None
    assert states[1].tails == (None, None, None)


@pytest.mark.parametrize(
    ("opset", "groups", "each"), [(18, 2, False), (20, 2, False), (21, 2, True), (22, 1, True)]
)
def test_a_group_norm_counts_its_channels(opset: int, groups: int, each: bool) -> None:
    node = f"GroupNormalization <num_groups = {groups}> (c, v, v)"
    site, (state,) = infer(node, opset=opset)
    (repair,) = site.repairs
    assert asked_leaks(site) == STATISTICS
    assert (repair.groups, repair.channels, repair.per_channel) == (groups, 4, each)
    assert state is not None
    assert state.tails == (None, None, FINITE)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ("GroupNormalization <num_groups = 2> (open, v, v)", "how many channels it has is not"),
        ("GroupNormalization <num_groups = 2> (x, v, v)", "how many channels it has is not known"),
        ("GroupNormalization <num_groups = 2> (c, t, t)", "a parameter of it carries time"),
        ("LayerNormalization <axis = 0> (x, v)", "it mixes rows of the batch"),
        ("BatchNormalization (x, v, v, v, v)", "time is its channel axis"),
        ("BatchNormalization <training_mode = 1> (c, v, v, v, v)", "it takes statistics of what"),
        ("BatchNormalization (c, t, t, t, t)", "a parameter of it carries time"),
        ("LRN <size = 3> (x)", "time is its channel axis"),
        (f"{NORM} (c, c, v)", "it normalizes over time"),
        (f"{NORM} (x, x, t)", "a parameter of it carries time"),
        ("Softmax <axis = 0> (x)", "it mixes rows of the batch"),
    ],
)
def test_refusals(node: str, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        infer(node, opset=21)


@pytest.mark.parametrize(
    "node", ["BatchNormalization (x, v, v, v, v)", "Softmax (x)", "LogSoftmax (x)"]
)
def test_a_rank_that_must_be_known(node: str) -> None:
    reason = "the rank of its input is not known|time is its channel axis"
    with pytest.raises(RefusedError, match=reason):
        infer(node.replace("x)", "still)").replace("x,", "still,"), still=UNKNOWN)


def test_a_group_norm_without_time_or_rank_needs_nothing() -> None:
    node = "GroupNormalization <num_groups = 2> (still, v, v)"
    assert not infer(node, opset=21)[0].repairs
    assert infer(node, opset=21, still=UNKNOWN)[1] != [None]


def test_channels_are_scaled_one_by_one() -> None:
    for node in ("BatchNormalization (c, v, v, v, v)", "LRN <size = 3> (c)"):
        site, (state,) = infer(node, c=ZERO)
        assert not site.repairs
        assert state is not None
        assert state.tails == (None, None, FINITE)


def test_the_sum_may_be_an_output() -> None:
    site = site_of(f"y, , , sum = {NORM} (x, skip, v)", inputs=INPUTS)
    first, *others, last = RULES[NORM].infer_states(site)
    assert first == last
    assert others == [None, None]

    _, states = infer(f"{NORM} (x, skip, v)", output="y, a, b, sum")
    assert len(states) == 4
    assert all(x == states[0] for x in states)


@pytest.mark.parametrize(
    ("node", "opset", "tail", "leak", "expected"),
    [
        ("Softmax (x)", 17, FINITE, [], FINITE),
        ("Softmax (x)", 17, ANY, [], ANY),
        ("Softmax (c)", 17, FINITE, ["attention dilution"], ZERO),
        ("Softmax (c)", 17, HIDDEN, [], ZERO),
        ("Softmax <axis = 1> (x)", 17, FINITE, ["attention dilution"], ZERO),
        ("LogSoftmax (c)", 17, FINITE, ["attention dilution"], ANY),
        ("LogSoftmax (x)", 17, FINITE, [], FINITE),
        ("Softmax <axis = 2> (x)", 11, FINITE, [], FINITE),
        ("Softmax <axis = 2> (deep)", 11, FINITE, ["attention dilution"], ZERO),
    ],
)
def test_softmax_over_time_hides_the_tail(
    node: str, opset: int, tail: Tail, leak: list[str], expected: Tail
) -> None:
    facts = {"x": tail, "c": tail, "deep": tail}
    site, (state,) = infer(node, opset=opset, **facts)
    assert asked_leaks(site) == leak
    assert state is not None
    assert set(state.tails) - {None} == {expected}
    assert state.sign == (0 if node.startswith("Log") else 1)


def test_scores_that_are_all_hidden_give_nan() -> None:
    _, (state,) = infer("Softmax (x)", x=Tail("low", float("-inf")))
    assert state is not None
    assert state.tails == (None, ANY, None)


def test_a_padded_query_keeps_the_scores_of_valid_keys() -> None:
    scores = {"tails": (None, PARTLY_HIDDEN, Tail("number", float("-inf")))}
    inputs = "float[B, T, 4] x, float[B, T, T] s"

    def weights(node: str, **facts: Any) -> TensorState:
        site = site_of(f"y = {node} (s)", inputs=inputs, s=facts)
        return RULES[qualified_name(site.node)].infer_states(site)

    assert weights("Softmax", **scores).tails == (None, FINITE, ZERO)
    assert weights("LogSoftmax", **scores).tails == (None, ANY, ANY)  # log 0 of a hidden key
    assert weights("Softmax <axis = 1>", **scores).tails[2] == ANY  # all queries of a padded key
