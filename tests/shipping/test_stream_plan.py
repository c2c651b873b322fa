"""Which dims and states a stream has, and what is said of those that names do not tell."""

import onnx_ir as ir
import pytest

from graphfix.cache_axes.growth import unify_dims
from graphfix.errors import UsageError
from graphfix.shipping.container_spec import parse_containers
from graphfix.shipping.stream_plan import StreamPlan, plan_stream
from tests.feeds.small_models import HEAD
from tests.passes.cached import table

# An encoder's output beside new frames: both are data, and only the frames are new.
TWO_TIMES = """two (float[1, E, 4] encoded, float[1, S, 4] x, float[1, 4] mem)
    => (float[1, S, 4] y, float[1, 4] new_mem) {
    mean = ReduceMean <axes = [1], keepdims = 0> (x)
    new_mem = Add (mem, mean)
    weight = ReduceMean <axes = [1], keepdims = 1> (encoded)
    y = Mul (x, weight)
}"""
# Names say nothing of its states.
BY_SHAPE = """unsaid (float[1, S, 4] x, float[2, 4] aa, float[1, 4] bb)
    => (float[1, S, 4] y, float[2, 4] r0, float[1, 4] r1) {
    mean = ReduceMean <axes = [1], keepdims = 0> (x)
    r0 = Add (aa, mean)
    r1 = Add (bb, mean)
    y = Mul (x, mean)
}"""


def plan_of(text: str, containers: str, axis: str = "") -> StreamPlan:
    model = ir.from_onnx_text(HEAD + text)
    unify_dims(model)
    return plan_stream(model, parse_containers(containers.split()), (), axis=axis)


def test_the_dim_of_new_entries_is_the_one_that_is_named() -> None:
    plan = plan_of(TWO_TIMES, "S=1,8 E=20", axis="S")
    assert (plan.new, plan.fixed_caches) == ("S", ("E",))
    assert plan_of(TWO_TIMES, "E=1,8 S=20", axis="E").new == "E"
    with pytest.raises(UsageError, match="--axis Q: no step adds entries to that dim"):
        plan_of(TWO_TIMES, "S=1,8 E=20", axis="Q")


def test_states_that_only_shapes_tell_are_said() -> None:
    plan = plan_of(BY_SHAPE, "S=1,8")
    assert [(x.input, x.output) for x in plan.states] == [("aa", "r0"), ("bb", "r1")]
    (remark,) = plan.remarks
    assert remark.startswith("states inferred from order and shape alone: aa from r0, bb from r1;")


def test_what_looks_like_a_state_and_is_fed_is_said() -> None:
    text = BY_SHAPE.replace("r1", "new_bb").replace("] aa", "] mem").replace("(aa", "(mem")
    plan = plan_of(text.replace("float[2, 4] r0, ", ""), "S=1,8")
    assert [(x.input, x.output) for x in plan.states] == [("bb", "new_bb")]
    (remark,) = plan.remarks
    assert "no states, so each step is fed them: mem;" in remark
    assert "--state mem=OUTPUT" in remark


def test_a_model_without_states_is_told_what_may_be_one() -> None:
    text = BY_SHAPE.replace("[1, 4] bb", "[2, 4] bb").replace("float[2, 4] r0, ", "")
    text = text.replace("float[1, 4] r1", "float[2, 4] r1")
    with pytest.raises(UsageError, match=r"aa, bb may be; name them, --state aa=OUTPUT"):
        plan_of(text, "S=1,8")


# Ids of one entry beside an encoder's output, and a state of one size.
ONE_ID = f"""one (int64[B, 1] ids, float[B, E, 4] encoded, float[B, 4] h) =>
    (float[B, 1, 4] y, float[B, 4] new_h) <{table("letters", 9, 4)}, int64[1] middle = {{1}}> {{
    x = Gather (letters, ids) last = Squeeze (x, middle) new_h = Add (h, last)
    wide = Unsqueeze (new_h, middle) turned = Transpose <perm = [0, 2, 1]> (encoded)
    scores = MatMul (wide, turned) w = Softmax (scores) y = MatMul (w, encoded) }}"""


def test_an_encoders_output_is_not_new_beside_ids_of_a_fixed_number() -> None:
    plan = plan_of(ONE_ID, "E=20")
    assert plan.step_is_fixed
    assert (plan.new, plan.fixed_caches, plan.containers) == (
        "step",
        ("E",),
        ({"B": 1, "E": 20, "step": 1},),
    )


def test_a_dim_of_new_entries_that_comes_out_again_is_new_beside_ids() -> None:
    text = ONE_ID.replace("float[B, 1, 4] y", "float[B, E, 4] y")
    text = text.replace("w = Softmax (scores) y = MatMul (w, encoded)", "y = Mul (encoded, wide)")
    assert plan_of(text, "E=1,8").new == "E"


def test_sizes_of_a_step_that_is_fixed_are_said_to_be_had_once() -> None:
    text = ONE_ID.replace("[B, E, 4] encoded", "[B, 6, 4] encoded")
    plan = plan_of(text, "S=1,8")
    assert [x["step"] for x in plan.containers] == [1]
    assert "--container S=1,8 is one container" in plan.remarks[-1]
    with pytest.raises(UsageError, match="no input has a dim 'Q'"):
        plan_of(text, "Q=4")


def test_what_caches_grow_by_is_new() -> None:
    text = """m (float[1, E, 4] encoded, float[1, S, 4] x, float[1, P, 4] past_key)
        => (float[1, S, 4] y, float[1, N, 4] present_key) {
        present_key = Concat <axis = 1> (past_key, x) weight = ReduceMean <axes = [1]> (encoded)
        y = Mul (x, weight) }"""
    model = ir.from_onnx_text(HEAD + text)
    unify_dims(model)
    assert plan_stream(model, parse_containers(["S=1,8", "E=20"]), (16,)).new == "S"
