"""Sequences of steps of the original: which there are, what each step is fed, what is refused."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.cache_axes.growth import unify_dims
from graphfix.errors import FeedError, UsageError
from graphfix.feeds.input import Input
from graphfix.feeds.roles import Role
from graphfix.runtime.run_errors import RunError
from graphfix.shipped.manifest import InputPort
from graphfix.shipping.container_spec import parse_containers
from graphfix.shipping.first_call import FirstCall
from graphfix.shipping.stream_plan import StreamPlan, plan_stream
from graphfix.shipping.stream_steps import (
    SINGLE,
    SequenceRunner,
    StepSequence,
    choose_running_plan,
    run_sequences,
)
from tests.feeds.small_models import HEAD
from tests.shipping.conftest import saved

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from graphfix.feeds.dim_groups import Tie

Feeds = dict[str, Any]

TABLE = ", ".join(map(str, range(36)))
# A decoder with a cache, a sum that it carries on, and an encoder's output.
DECODER = f"""decoder (int64[B, S] input_ids, int64[B, M] attention_mask, int64[B, S] position_ids,
    float[B, E, 4] encoded, float[B, P, 4] past_key, float[B, 4] past_sum)
    => (float[B, S, 4] y, float[B, Q, 4] present_key, float[B, 4] present_sum)
    <float[9, 4] table = {{{TABLE}}}, int64[1] one = {{1}}> {{
    e = Gather (table, input_ids)  p = Gather (table, position_ids)  k = Add (e, p)
    present_key = Concat <axis = 1> (past_key, k)
    t = Transpose <perm = [0, 2, 1]> (present_key)  s = MatMul (k, t)
    m = Cast <to = 1> (attention_mask)  u = Unsqueeze (m, one)  h = Mul (s, u)
    a = MatMul (h, present_key)  c = ReduceMean <axes = [1]> (encoded)  y = Add (a, c)
    n = ReduceMean <axes = [1], keepdims = 0> (k)  present_sum = Add (past_sum, n) }}"""
# A recurrence: nothing of it grows.
RECURRENT = """recurrent (float[B, S, 4] x, float[B, 4] past_sum)
    => (float[B, S, 4] y, float[B, 4] present_sum) <int64[1] one = {1}> {
    n = ReduceMean <axes = [1], keepdims = 0> (x)  present_sum = Add (past_sum, n)
    u = Unsqueeze (present_sum, one)  y = Add (x, u) }"""


def plan_of(
    text: str = DECODER,
    containers: str = "S=1,3 B=2 E=5",
    cache: Sequence[int] = (8, 12),
    tie: Tie = "past",
) -> StreamPlan:
    model = ir.from_onnx_text(HEAD + text)
    unify_dims(model, tie)
    return plan_stream(model, parse_containers(containers.split()), cache)


@dataclass
class Original:
    """Stands for the original: keeps what it is fed, and answers with numbers that tell it.

    Attributes:
        reads: How many of the last entries of the cache an output depends on, by new entries.
        fails_behind: The length of the cache from which it does not run.
        keeps: How many entries of the cache it returns.
    """

    reads: dict[int, int] = field(default_factory=dict)
    fails_behind: int = 10_000
    keeps: int = 10_000
    runs: list[Feeds] = field(default_factory=list)

    def __call__(self, feeds: Feeds) -> Feeds:
        self.runs.append(feeds)
        past = feeds["past_key"]
        if past.shape[1] >= self.fails_behind:
            raise RunError("too long")
        ids = feeds["input_ids"]
        new = np.repeat(ids[..., None], 4, -1).astype(np.float32)
        read = past[:, -self.reads.get(ids.shape[1], past.shape[1] + 1) :]
        return {
            "y": new + read.sum((1, 2))[:, None, None],
            "present_key": np.concatenate([past, new], 1)[:, -self.keeps :],
            "present_sum": feeds["past_sum"] + new.mean(1),
            "present_cross": np.ones((2, 5, 4), np.float32),
        }


def counts_of(sequence: StepSequence) -> list[int]:
    return [x["input_ids"].shape[1] for x in sequence.feeds]


def sequences(
    plan: StreamPlan, *, rolls: bool = False, joins: bool = True
) -> dict[str, StepSequence]:
    runner = SequenceRunner(plan, Original())
    return {x.name: x for x in runner.iter_sequences(rolls=rolls, joins=joins)}


# Which sequences there are


def test_every_way_to_fill_the_caches_is_played() -> None:
    played = sequences(plan_of())
    assert {name: counts_of(x) for name, x in played.items()} == {
        "to the end of the caches": [2, 3, *[1] * 7],
        "a prompt of 1": [1],
        "steps behind a prompt of 1": [1, 1, 1],
        "a prompt of 5": [5],
        "steps behind a prompt of 5": [5, 1, 1],
        "a prompt of 6": [6],
        "steps behind a prompt of 6": [6, 1, 1],
        "going on behind 7": [1, 1, 1],
        "prompts filled up on the left": [4, 1, 1],
        "shorter caches of the encoder": [2, 1],
    }
    assert [name for name, x in played.items() if x.padded_entries] == [
        "prompts filled up on the left"
    ]
    assert played["prompts filled up on the left"].padded_entries == 2
    # One more entry, behind 12, is refused.
    full = played["to the end of the caches"].overflow_feeds
    assert full["input_ids"].shape == (2, 1)
    assert full["attention_mask"].shape == (2, 13)
    assert not played["a prompt of 5"].overflow_feeds


@pytest.mark.parametrize(
    ("cache", "prompts", "behind", "left"),
    [
        (4, [1], 1, False),
        (5, [1, 5], 1, False),
        (6, [1, 5, 6], 2, False),
        (7, [1, 5, 6], 3, True),
        (11, [1, 5, 6], 7, True),
        (12, [1, 5, 6], 7, True),
    ],
)
def test_small_caches_hold_short_prompts(
    cache: int, prompts: list[int], behind: int, left: bool
) -> None:
    played = sequences(plan_of(cache=(cache,)))
    assert [int(x.split()[-1]) for x in played if x.startswith("a prompt")] == prompts
    assert f"going on behind {behind}" in played
    assert ("prompts filled up on the left" in played) == left
    assert sum(counts_of(played["to the end of the caches"])) == cache


def test_caches_that_roll_take_every_prompt() -> None:
    played = sequences(plan_of(cache=(4,)), rolls=True)
    assert "a prompt of 6" in played
    assert counts_of(played["to the end of the caches"]) == [1] * (1 + SINGLE)
    assert not played["to the end of the caches"].overflow_feeds


def test_steps_that_do_not_join_have_sizes_of_containers() -> None:
    played = sequences(plan_of(), joins=False)
    assert {name: counts_of(x) for name, x in played.items()} == {
        "to the end of the caches": [3, *[1] * 9],
        "each size": [1, 3, 3, 1],
        "a prompt of 1": [1],
        "steps behind a prompt of 1": [1, 1, 1],
        "a prompt of 3": [3],
        "steps behind a prompt of 3": [3, 1, 1],
        "going on behind 7": [1, 1, 1],
        "prompts filled up on the left": [3, 1, 1],
        "shorter caches of the encoder": [1, 1],
    }
    assert played["to the end of the caches"].overflow_feeds["attention_mask"].shape == (2, 13)
    played = sequences(plan_of(containers="S=3,5 B=2 E=5", cache=(12,)), joins=False)
    assert counts_of(played["to the end of the caches"]) == [5, 3, 3]
    assert played["to the end of the caches"].overflow_feeds["input_ids"].shape == (2, 3)


@pytest.mark.parametrize(("cache", "overflows"), [(43, True), (44, False)])
def test_caches_that_are_not_full_refuse_nothing(cache: int, overflows: bool) -> None:
    played = sequences(plan_of(cache=(cache,)), joins=False)["to the end of the caches"]
    assert counts_of(played) == [3, *[1] * SINGLE]
    assert bool(played.overflow_feeds) == overflows


def test_a_model_without_caches_has_no_end() -> None:
    plan = plan_of(RECURRENT, "S=1,3 B=2")

    def run(feeds: Feeds) -> Feeds:
        return {"y": feeds["x"], "present_sum": feeds["past_sum"] + 1}

    played = list(SequenceRunner(plan, run).iter_sequences(rolls=False, joins=True))
    assert [x.name.split(" ")[0] for x in played] == ["to", *["a", "steps"] * 3]
    counts = [x["x"].shape[1] for x in played[0].feeds]
    assert counts == [1] * 4 * SINGLE
    assert not played[0].overflow_feeds


@pytest.mark.parametrize(
    ("levels", "capacity", "rolls", "counts"),
    [
        ([8, 12], 12, False, [2, 3, *[1] * 7]),
        ([2], 2, False, [1, 1]),
        ([2], 2, True, [1, *[1] * 40]),
        ([3], 3, False, [1, 1, 1]),
        ([6, 50], 50, False, [2, *[1] * 6, *[1] * 40, 1, 1]),
        ([7, 60], 60, False, [2, 2, *[1] * 6, 7, *[1] * 40, *[1] * 3]),
        ([200], 200, False, [37, 120, *[1] * 43]),
        ([100, 200], 200, False, [33, 64, *[1] * 6, 54, *[1] * 43]),
        ([100, 200], 200, True, [33, 64, *[1] * 6, 54, *[1] * 40]),
        ([8, 9], 9, True, [2, 3, *[1] * 6, *[1] * 40]),
    ],
)
def test_steps_come_close_to_each_size_and_go_on_by_one(
    levels: list[int], capacity: int, rolls: bool, counts: list[int]
) -> None:
    runner = SequenceRunner(plan_of(), Original())
    assert runner._counts_up_to_capacity(levels, capacity, rolls) == counts


# Caches that may roll


def test_what_the_newest_entries_decide_may_roll() -> None:
    every = {1: 12, 3: 12}
    original = Original(every)
    assert SequenceRunner(plan_of(), original).can_roll()
    # Once with one new entry and once with three, each beside the same with the oldest changed.
    assert [x["input_ids"].shape[1] for x in original.runs] == [1, 1, 3, 3]
    plain, changed = original.runs[:2]
    assert plain["past_key"].shape == (2, 17, 4)
    np.testing.assert_array_equal(changed["past_key"][:, :5], plain["past_key"][:, :5] * -50)
    np.testing.assert_array_equal(changed["past_key"][:, 5:], plain["past_key"][:, 5:])
    for name in ("past_sum", "input_ids", "encoded", "attention_mask"):
        np.testing.assert_array_equal(changed[name], plain[name])
    assert plain["past_key"].any()


@pytest.mark.parametrize("reads", [{1: 13, 3: 12}, {1: 12, 3: 13}, {}])
def test_what_reads_an_older_entry_may_not(reads: dict[int, int]) -> None:
    assert not SequenceRunner(plan_of(), Original(reads)).can_roll()


def test_what_does_not_run_past_its_caches_may_not() -> None:
    assert not SequenceRunner(plan_of(), Original(fails_behind=17)).can_roll()

    def refuse(feeds: Feeds) -> Feeds:
        raise ValueError(feeds)

    assert not SequenceRunner(plan_of(), refuse).can_roll()


def test_what_cuts_its_caches_itself_rolls() -> None:
    def refuse(feeds: Feeds) -> Feeds:
        raise AssertionError("nothing is run")

    plan = plan_of()
    assert SequenceRunner(replace(plan, windows={"P": 12}), refuse).can_roll()
    two = replace(plan, caches=("P", "Q"), windows={"P": 12})
    with pytest.raises(KeyError, match="Q"):
        SequenceRunner(two, refuse).can_roll()


# One sequence


def test_each_step_is_fed_what_the_one_before_returned() -> None:
    original = Original()
    sequence = SequenceRunner(plan_of(), original).run_sequence("some", [2, 1])
    first, second = original.runs
    assert first["past_key"].shape == (2, 0, 4)
    assert not first["past_sum"].any()
    np.testing.assert_array_equal(second["past_key"][:, :, 0], first["input_ids"])
    np.testing.assert_array_equal(second["past_sum"][:, 0], first["input_ids"].mean(1))
    assert second["attention_mask"].shape == (2, 3)
    assert second["position_ids"].tolist() == [[2], [2]]
    # The encoder's output stays, and the sequence has no states.
    np.testing.assert_array_equal(second["encoded"], first["encoded"])
    assert [set(x) for x in sequence.outputs] == [{"y"}] * 2
    assert "past_key" not in sequence.feeds[0]
    assert sequence.states == {}
    assert sequence.padded_entries == 0


def test_a_cache_says_how_long_it_is() -> None:
    original = Original(keeps=3)
    SequenceRunner(plan_of(), original).run_sequence("some", [2, 2, 1])
    assert [x["attention_mask"].shape[1] for x in original.runs] == [2, 4, 4]
    plan = plan_of(RECURRENT, "S=1,3 B=2")
    lengths = []

    def run(feeds: Feeds) -> Feeds:
        lengths.append(feeds["x"].shape[1])
        return {"y": feeds["x"], "present_sum": feeds["past_sum"]}

    SequenceRunner(plan, run).run_sequence("some", [2, 1])
    assert lengths == [2, 1]


def test_a_sequence_may_go_on_behind_a_prompt() -> None:
    original = Original()
    runner = SequenceRunner(plan_of(cache=(12,)), original)
    sequence = next(
        x for x in runner.iter_sequences(rolls=False, joins=True) if x.name.startswith("going")
    )
    assert sequence.states["past_key"].shape == (2, 7, 4)
    assert sequence.states["past_sum"].any()
    assert sequence.feeds[0]["attention_mask"].shape == (2, 8)
    assert sequence.feeds[0]["position_ids"].tolist() == [[7], [7]]


def test_fixed_caches_may_be_shorter() -> None:
    for size, shorter in ((5, 3), (2, 1), (1, 1)):
        plan = plan_of(containers=f"S=1,3 B=2 E={size}")
        played = sequences(plan)
        assert played["a prompt of 1"].feeds[0]["encoded"].shape == (2, size, 4)
        shape = played["shorter caches of the encoder"].feeds[0]["encoded"].shape
        assert shape == (2, shorter, 4)


def test_a_model_without_fixed_caches_has_no_shorter_ones() -> None:
    text = DECODER.replace("float[B, E, 4] encoded", "float[B, 5, 4] encoded")
    assert "shorter caches of the encoder" not in sequences(plan_of(text, "S=1,3 B=2"))


def test_a_step_that_does_not_run_is_told() -> None:
    plan = plan_of()
    with pytest.raises(FeedError, match="does not run 2 new entries behind 0: too long"):
        SequenceRunner(plan, Original(fails_behind=0)).run_sequence("some", [2, 1])
    said = "does not run behind 2 entries, so caches of P=12 cannot be proved; say --cache 2 "
    with pytest.raises(UsageError, match=said):
        SequenceRunner(plan, Original(fails_behind=2)).run_sequence("some", [2, 1])


def test_the_same_seed_makes_the_same_inputs() -> None:
    ids = [
        SequenceRunner(plan_of(), Original(), seed).run_sequence("some", [9]).feeds[0]["input_ids"]
        for seed in (0, 0, 1)
    ]
    assert ids[0].tolist() == ids[1].tolist() != ids[2].tolist()


# What is fed


def fed(
    dims: tuple[str | int, ...],
    role: Role,
    dtype: str = "int64",
    counts: Sequence[int] = (2, 1),
    padded_entries: int = 0,
    length: int = 0,
) -> list[np.ndarray[Any, Any]]:
    """Return what an input of a role is fed in each step."""
    plan = plan_of()
    symbolic = tuple(x if isinstance(x, int) else ir.SymbolicDim(x) for x in dims)
    item = Input("extra", np.dtype(dtype), symbolic, role)
    rows = dims.index("B") if "B" in dims else None
    port = InputPort("extra", f"tensor({dtype})", dims, rows, role.kind)
    signature = plan.signature

    class WithExtra:
        def input_named(self, name: str) -> Input:
            return item if name == "extra" else signature.input_named(name)

        def time_of(self, _: Input) -> None:
            """Nothing is beside it."""

        def __getattr__(self, name: str) -> Any:
            return getattr(signature, name)

    plan = replace(plan, signature=WithExtra(), inputs=(*plan.inputs, port))  # type: ignore[arg-type]
    runner = SequenceRunner(plan, Original())
    sequence = runner.run_sequence("some", counts, length=length, padded_entries=padded_entries)
    return [x["extra"] for x in sequence.feeds]


def test_tokens_are_of_their_table() -> None:
    (ids,) = fed(("B", "S"), Role("tokens", "", 3, 5), counts=[200])
    assert set(ids.reshape(-1).tolist()) == {3, 4}
    assert ids.dtype == np.int64


def test_positions_go_on_behind_the_padding() -> None:
    role = Role("positions", "")
    first, second = fed(("B", "S"), role, counts=[3, 1])
    assert first.tolist() == [[0, 1, 2]] * 2
    assert second.tolist() == [[3]] * 2
    first, second = fed(("B", "S"), role, counts=[3, 1], padded_entries=2)
    assert first.tolist() == [[0, 1, 2], [0, 0, 0]]
    assert second.tolist() == [[3], [1]]
    (wide,) = fed((3, "B", "S"), role, counts=[3], padded_entries=2)
    assert wide.tolist() == [[[0, 1, 2], [0, 0, 0]]] * 3
    # Of rows without a dim of their own the first is the one without padding.
    (fixed,) = fed((2, "S"), role, counts=[3], padded_entries=2)
    assert fixed.tolist() == [[0, 1, 2], [0, 0, 0]]
    (lone,) = fed((1, "S"), role, counts=[3], padded_entries=2)
    assert lone.tolist() == [[0, 0, 0]]
    # One position for all rows counts every entry.
    assert fed(("S",), role, counts=[3], padded_entries=2)[0].tolist() == [0, 1, 2]
    assert fed((), role, counts=[3], length=5)[0].tolist() == 5
    # One for each row is that of the first new entry.
    assert fed(("B",), role, counts=[3], length=5)[0].tolist() == [5, 5]


def test_masks_that_are_as_long_as_the_caches_tell_the_padding() -> None:
    role = Role("mask", "", valid=0.0, padded=7.0)
    first, second = fed(("B", "P + S"), role, counts=[3, 1], padded_entries=2)
    assert first.tolist() == [[0, 0, 0], [7, 7, 0]]
    assert second.tolist() == [[0, 0, 0, 0], [7, 7, 0, 0]]
    (wide,) = fed(("B", 1, "S", "P + S"), role, counts=[3], padded_entries=2)
    assert wide[:, 0].tolist() == [[[0, 0, 0]] * 3, [[7, 7, 0]] * 3]
    (lone,) = fed(("P + S",), role, counts=[3], padded_entries=2)
    assert lone.tolist() == [7, 7, 0]
    (own,) = fed(("B", "S"), role, counts=[3], padded_entries=2)
    assert not own.any()


@pytest.mark.parametrize(
    ("role", "numbers"),
    [
        (Role("choice", "", choices=(4, 6)), [4, 6]),
        (Role("choice", ""), [0, 1]),
        (Role("int", "", low=3, high=9), [3, 3]),
        (Role("lengths", "", low=2, high=9), [2, 2]),
        (Role("int", "", low=3, choices=(5, 8)), [3, 3]),
    ],
)
def test_choices_change_in_the_last_step(role: Role, numbers: list[int]) -> None:
    assert [x.tolist() for x in fed(("B",), role)] == [[x] * 2 for x in numbers]


def test_flags_are_set_in_the_last_step() -> None:
    assert [x.tolist() for x in fed((), Role("data", ""), "bool")] == [False, True]


def test_other_numbers_are_drawn() -> None:
    (wide,) = fed((90,), Role("data", ""), "float32", counts=[1])
    assert wide.dtype == np.float32
    assert wide.std() > 0.5
    assert set(fed((90,), Role("data", "", 0, 9), counts=[1])[0]) == {0, 1}
    assert set(fed((90,), Role("data", "", 0, 1), counts=[1])[0]) == {0}
    assert set(fed((90,), Role("data", "", 4, 9), counts=[1])[0]) == {4}


def test_states_are_empty_or_zeros_at_first() -> None:
    runner = SequenceRunner(plan_of(), Original())
    states = runner.empty_states()
    assert {k: x.shape for k, x in states.items()} == {"past_key": (2, 0, 4), "past_sum": (2, 4)}
    assert not states["past_sum"].any()
    assert all(x.dtype == np.float32 for x in states.values())
    assert {k: x.shape for k, x in runner.initial_feeds().items()} == {
        k: x.shape for k, x in states.items()
    }


# A first call of its own


def with_first_call() -> StreamPlan:
    """Return a plan in which the first call computes ``encoded`` from ``hidden``."""
    plan = plan_of()
    hidden = InputPort("hidden", "tensor(float)", ("B", "F", 4), 0)
    first = FirstCall("flag", {"encoded": "present_cross"}, (hidden,), {"B": "B", "F": "E"})
    return replace(plan, first=first, inputs=(*plan.inputs, *first.input_ports()))


def test_the_first_step_takes_what_the_first_call_computes() -> None:
    original = Original()
    sequence = SequenceRunner(with_first_call(), original).run_sequence("some", [2, 1])
    call, first, second = original.runs
    # The call is one entry behind nothing; with its flag, and the same encoder's output.
    assert call["input_ids"].shape == (2, 1)
    assert call["past_key"].shape == (2, 0, 4)
    assert call["flag"].tolist() == first["flag"].tolist() == [False]
    np.testing.assert_array_equal(call["hidden"], first["hidden"])
    assert "flag" not in second
    assert (first["encoded"] == 1).all()
    assert (second["encoded"] == 1).all()
    np.testing.assert_array_equal(second["hidden"], first["hidden"])
    # A stream is fed what the call reads, and not what it computes.
    assert "hidden" in sequence.feeds[0]
    assert "encoded" not in sequence.feeds[0]
    assert call["hidden"].dtype == np.float32


def test_behind_a_prompt_the_first_call_is_over() -> None:
    original = Original()
    runner = SequenceRunner(with_first_call(), original)
    runner.run_sequence("some", [1], states=runner.empty_states())
    call, first = original.runs
    assert "flag" in call
    assert "flag" not in first
    assert (first["encoded"] == 1).all()


def test_the_first_feeds_of_the_original_choose_the_first_call() -> None:
    feeds = SequenceRunner(with_first_call(), Original()).initial_feeds()
    assert feeds["flag"].tolist() == [False]
    assert feeds["encoded"].shape == (2, 5, 4)
    assert {*feeds} == {"past_key", "past_sum", "encoded", "flag"}


# Files


def test_sequences_of_a_file(tmp_path: Path) -> None:
    source = saved(HEAD + DECODER, tmp_path / "decoder.onnx")
    model = ir.load(source)
    spec = parse_containers(["S=1", "B=1", "E=2"])
    plan, constants, tie = choose_running_plan(source, model, spec, (4,), ())
    assert (tie, constants, plan.caches) == ("past", {}, ("P",))
    played, rolls = run_sequences(plan, str(source), constants)
    assert not rolls
    assert played[0].name == "to the end of the caches"
    assert [set(x) for x in played[0].outputs] == [{"y"}] * 4
