"""The parts of a plan of a stream: new entries, caches, sizes, ports; each by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import onnx_ir as ir
import pytest

from graphfix.cache_axes.growth import GrowingState, unify_dims
from graphfix.errors import UsageError
from graphfix.facts import shapes
from graphfix.feeds.signature import Signature
from graphfix.feeds.states import StatePair
from graphfix.shipping import stream_plan
from graphfix.shipping.container_spec import parse_containers
from graphfix.shipping.stream_plan import StreamPlan, has_growing_states, plan_stream
from tests.feeds.small_models import HEAD

DECODER = """decoder (int64[B, S] ids, float[B, P, 4] past_key) =>
    (float[B, S, 4] y, float[B, U, 4] present_key) <float[3, 4] t = {0,1,2,3,4,5,6,7,8,9,0,1}> {
    e = Gather (t, ids)  present_key = Concat <axis = 1> (past_key, e)
    m = ReduceMean <axes = [1]> (present_key)  y = Add (e, m) }"""
ONE_STEP = DECODER.replace("[B, S] ids", "[B, 2] ids").replace("[B, S, 4] y", "[B, 2, 4] y")
STEADY = """steady (float[B, S, 4] x, float[B, 4] state_h)
    => (float[B, S, 4] y, float[B, 4] new_h) {
    m = ReduceMean <axes = [1], keepdims = 0> (x)  new_h = Add (state_h, m)  y = Neg (x) }"""


def model(text: str) -> ir.Model:
    made = ir.from_onnx_text(HEAD + text)
    unify_dims(made)
    return made


def plan_of(text: str, containers: str, cache: tuple[int, ...] = (), **options: Any) -> StreamPlan:
    return plan_stream(model(text), parse_containers(containers.split()), cache, **options)


def state(axis: int | None = 1, dim: str = "P", output: str = "present") -> GrowingState:
    return GrowingState("past", output, axis, dim)


def dim(text: str | int) -> Any:
    return text if isinstance(text, int) else ir.SymbolicDim(text)


def test_which_models_have_states_that_grow() -> None:
    assert has_growing_states(model(DECODER))
    assert not has_growing_states(model(STEADY))
    assert not has_growing_states(model("m (float[B, T] x) => (float[B, T] y) { y = Neg (x) }"))


def test_a_decoder_has_a_container_for_each_cache_and_step() -> None:
    plan = plan_of(DECODER, "S=1,8", (64, 16, 64))
    assert (plan.new, plan.batch, plan.caches, plan.fixed_caches) == ("S", "B", ("P",), ())
    sizes = [(x["P"], x["S"], x["B"]) for x in plan.containers]
    assert sizes == [(16, 1, 1), (16, 8, 1), (64, 1, 1), (64, 8, 1)]
    assert [(x.input, x.output, x.axis) for x in plan.states] == [("past_key", "present_key", 1)]
    assert (plan.windows, plan.remarks, plan.step_is_fixed) == ({}, (), False)
    assert [x.name for x in plan.outputs] == ["y", "present_key"]
    assert plan.names["S"] == ("S",)


def test_a_step_of_a_fixed_number_has_a_name_of_its_own() -> None:
    plan = plan_of(ONE_STEP, "B=1", (16,))
    assert (plan.new, plan.step_is_fixed) == ("step", True)
    assert [(x["step"], x["P"]) for x in plan.containers] == [(2, 16)]
    assert plan.names["step"] == ("step",)
    plan = plan_of(ONE_STEP, "S=1,8", (16,))
    assert plan.remarks == (
        "each step adds 2 entries, since no dim of what it takes varies: "
        "--container S=1,8 is one container",
    )


def test_states_of_one_size_need_no_cache() -> None:
    plan = plan_of(STEADY, "S=1,4")
    assert (plan.caches, plan.new) == ((), "S")
    assert [x["S"] for x in plan.containers] == [1, 4]


@pytest.mark.parametrize(
    ("text", "containers", "cache", "message"),
    [
        (DECODER, "S=1", (), r"\(P grows from run to run\), which needs a size: say --cache 256"),
        (DECODER, "S=1 P=8", (8,), "--container P: that is the length of a cache; say --cache"),
        (DECODER, "B=1", (8,), "and S has none; say --container S=1,16"),
        (STEADY, "S=1 Q=2", (), "no input has a dim 'Q'"),
        (STEADY, "S=1 B=1,2", (), "--container B: only S has several"),
    ],
)
def test_sizes_that_are_missing(
    text: str, containers: str, cache: tuple[int, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        plan_of(text, containers, cache)


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ([("past_key", "present_key"), ("past_key", "y")], "--state past_key: is named twice"),
        ([("past", "present_key")], "there is no input 'past'; there are ids, past_key"),
        ([("past_key", "z")], "there is no output 'z'; there are present_key, y"),
        ([("ids", "y")], "the output 'y' is .* and the input 'ids' int64.*cannot be fed"),
    ],
)
def test_states_that_a_user_names(states: list[tuple[str, str]], message: str) -> None:
    pairs = [StatePair(*x) for x in states]
    with pytest.raises(UsageError, match=message):
        plan_of(DECODER, "S=1", (8,), user_states=pairs)
    plan = plan_of(DECODER, "S=1", (8,), user_states=[StatePair("past_key", "present_key")])
    assert len(plan.states) == 1


@pytest.mark.parametrize(
    ("caches", "windows", "cache", "levels"),
    [
        (("P",), {}, (8, 4), [{"P": 4}, {"P": 8}]),
        (("P", "Q"), {}, (8,), [{"P": 8, "Q": 8}]),
        (("P", "Q"), {"Q": 3}, (8, 4), [{"Q": 3, "P": 4}, {"Q": 3, "P": 8}]),
        (("P",), {"P": 3}, (), [{"P": 3}]),
        (("P",), {"P": 3}, (8, 4), [{"P": 3}]),
        ((), {}, (), [{}]),
        ((), {}, (8,), [{}]),
    ],
)
def test_sizes_of_caches(
    caches: tuple[str, ...], windows: dict[str, int], cache: tuple[int, ...], levels: Any
) -> None:
    assert stream_plan._cache_levels(caches, windows, cache) == levels


def test_containers_are_all_combinations() -> None:
    sizes = {"B": (2,), "S": (1, 8)}
    found = stream_plan._combine_sizes(sizes, "S", [{"P": 4}, {"P": 8}])
    assert found == (
        {"B": 2, "S": 1, "P": 4},
        {"B": 2, "S": 8, "P": 4},
        {"B": 2, "S": 1, "P": 8},
        {"B": 2, "S": 8, "P": 8},
    )


@pytest.mark.parametrize(
    ("states", "dims", "growths"),
    [
        ([state()], (dim("B"), dim("P + S")), ["S"]),
        ([state()], (dim("B"), dim("P + 2")), [2]),
        ([state()], (dim("B"), dim("P")), [0]),
        ([state(0)], (dim("P + S"), dim("P")), ["S"]),
        ([state(None)], (dim("B"), dim("P + S")), []),
        ([state()], None, []),
        ([state()], (dim("B"), dim("P + S + 1")), [None]),
        ([state(), state(0)], (dim("P + 1"), dim("P + S")), ["S", 1]),
    ],
)
def test_by_how_much_caches_grow(states: list[GrowingState], dims: Any, growths: list[Any]) -> None:
    assert [*stream_plan._growths(states, {"present": dims})] == growths


@pytest.mark.parametrize(
    ("text", "dims", "step"),
    [
        (ONE_STEP, (dim("B"), dim("P + 5")), 5),
        (ONE_STEP, (dim("B"), dim("P + S")), 2),
        (ONE_STEP, (dim("B"), dim("P")), 2),
        (DECODER, (dim("B"), dim("P")), 1),
        (STEADY, None, 1),
        (ONE_STEP.replace("[B, 2] ids", "[2] ids").replace("[B, 2, 4] y", "[2, 4] y"), None, 1),
    ],
)
def test_entries_of_a_step_of_a_fixed_number(text: str, dims: Any, step: int) -> None:
    signature = Signature(ir.from_onnx_text(HEAD + text))
    assert stream_plan._fixed_step(signature, [state()], {"present": dims}) == step


def test_a_name_that_no_dim_has() -> None:
    signature = Signature(model("m (float[step, step_, T] x) => (y) { y = Neg (x) }"))
    assert stream_plan._unused_name("step", signature) == "step__"
    assert stream_plan._unused_name("other", signature) == "other"


@pytest.mark.parametrize(
    ("dims", "declared", "known"),
    [
        (("T", 4), ("T", 4), ("T", 4)),
        (("_d1", 4), ("S", 5), ("S", 4)),
        ((None, 4), ("S", 5), ("S", 4)),
        (None, ("S", 5), ("S", 5)),
        (("_d1", 4), ("S",), ("_d1", 4)),
        (("_d1", 4), None, ("_d1", 4)),
        (("T + _d1", 4), ("S", 5), ("S", 4)),
    ],
)
def test_what_the_exporter_says_counts_where_nothing_is_inferred(
    dims: Any, declared: Any, known: Any
) -> None:
    given, said, wanted = (
        None if x is None else tuple(ir.SymbolicDim(None) if d is None else dim(d) for d in x)
        for x in (dims, declared, known)
    )
    assert stream_plan._known_or_declared(given, said, {"T", "S"}) == wanted


@pytest.mark.parametrize(
    ("dims", "known"),
    [(("T", 4), True), (("T + S",), True), (("_d1",), False), ((None,), False), (None, False)],
)
def test_an_output_of_an_unknown_shape_is_refused(dims: Any, known: bool) -> None:
    given = (
        None if dims is None else tuple(ir.SymbolicDim(None) if d is None else dim(d) for d in dims)
    )
    value = ir.Value(name="y")
    if known:
        assert stream_plan._require_known_dims(value, given, {"T", "S"}) == given
    else:
        with pytest.raises(UsageError, match="the shape of the output 'y' cannot be inferred"):
            stream_plan._require_known_dims(value, given, {"T", "S"})


def test_an_output_that_grows_is_a_state_or_refused() -> None:
    text = DECODER.replace("y = Add (e, m)", "y = Add (e, m) z = Neg (present_key)").replace(
        "float[B, S, 4] y,", "float[B, S, 4] y, float[B, V, 4] z,"
    )
    with pytest.raises(
        UsageError, match=r"the output 'z' .* grows with the caches and is no state"
    ):
        plan_of(text, "S=1", (8,))


@pytest.mark.parametrize(
    ("axis", "before", "after", "said", "fed"),
    [
        (1, ("B", "P"), ("B", "P + S"), (), True),
        (None, ("B", 4), ("B", 4), (), True),
        (None, ("B", 4), ("B", 5), (), False),
        (None, ("B", 4), ("B",), (), False),
        (None, None, ("B", 4), (), False),
        (None, ("B", 4), None, (), False),
        # A buffer comes out as large as it goes in, if that is declared.
        (None, ("B", 4), ("B", "Max(4, S)"), ("B", 4), True),
        (None, ("B", 4), ("B", "Max(4, S)"), ("B", 5), False),
        (None, ("B", 4), ("B", "Max(4, S)"), (), False),
        (None, ("B", 4), ("B", 5), ("B", 4), False),
    ],
)
def test_a_state_is_fed_back_if_it_fits(
    axis: int | None, before: Any, after: Any, said: Any, fed: bool
) -> None:
    values = [ir.Value(name="past"), ir.Value(name="present")]
    table = {
        v: tuple(map(dim, x)) for v, x in zip(values, (before, after), strict=True) if x is not None
    }
    given: Any = SimpleNamespace(graph=SimpleNamespace(inputs=values[:1], outputs=values[1:]))
    inferred = shapes.Shapes(table, {}, {})
    declared = {"present": tuple(map(dim, said))}
    kept, idle = stream_plan._split_states(given, inferred, [state(axis)], declared)
    assert ([x.input for x in kept], idle) == ((["past"], set()) if fed else ([], {"present"}))


@pytest.mark.parametrize(
    ("dims", "axis", "windows"),
    [
        (("B", "Min(6, P + S)"), 1, {"P": 6}),
        (("B", "P + S"), 1, {}),
        (("B", "Min(6, P + S)"), None, {}),
    ],
)
def test_caches_that_the_model_cuts(dims: Any, axis: int | None, windows: dict[str, int]) -> None:
    output = ir.Value(name="present")
    given: Any = SimpleNamespace(graph=SimpleNamespace(outputs=[output]))
    inferred = shapes.Shapes({output: tuple(map(dim, dims))}, {}, {})
    assert stream_plan._cache_windows(given, inferred, [state(axis)]) == windows


def test_types_as_text() -> None:
    value = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT16))
    known = shapes.Shapes({value: (dim("B"), 4)}, {}, {})
    assert stream_plan._type_text(value, known) == "float16[B,4]"
    none = shapes.Shapes({}, {}, {})
    assert stream_plan._type_text(value, none) == "float16 of a shape that is not known"
    assert stream_plan._type_text(ir.Value(name="x"), none) == "? of a shape that is not known"


def test_steps_that_cannot_be_had() -> None:
    signature = Signature(model(ONE_STEP))
    spec, remarks = stream_plan._without_steps(signature, parse_containers(["S=1", "B=2"]), 1)
    assert dict(spec.sizes) == {"B": (2,)}
    assert len(remarks) == 1
    assert remarks[0].startswith("each step adds 1 entry, ")
    taken = Signature(model(DECODER))
    spec, remarks = stream_plan._without_steps(taken, parse_containers(["S=1"]), 1)
    assert (dict(spec.sizes), remarks) == ({"S": (1,)}, ())


def test_states_stand_in_the_order_of_the_inputs() -> None:
    given = model(DECODER)
    found = stream_plan._in_order_of_inputs(
        given, [GrowingState("past_key", "a", None, ""), GrowingState("ids", "b", None, "")]
    )
    assert [x.input for x in found] == ["ids", "past_key"]
