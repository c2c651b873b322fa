"""Which dims and states a stream has, and what is said of those that names do not tell."""

import onnx_ir as ir
import pytest

from graphfix.cache_axes.growth import unify_dims
from graphfix.errors import UsageError
from graphfix.shipping.container_spec import parse_containers
from graphfix.shipping.stream_plan import StreamPlan, plan_stream
from tests.feeds.small_models import HEAD

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
