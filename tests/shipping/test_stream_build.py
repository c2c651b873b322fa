"""A model that continues its states: passes in their order, attempts, uses, the manifest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import pytest

from graphfix.cache_axes.cache_input import CacheInput
from graphfix.engine.report import Report
from graphfix.errors import PaddingError
from graphfix.job.rounding_search import MARGINS
from graphfix.proof.by_channel import ChannelRule
from graphfix.proof.compare import Tolerance
from graphfix.shipped.manifest import Cache, InputPort, StateLink, Streaming
from graphfix.shipping import stream_build
from graphfix.shipping.container_spec import parse_containers
from graphfix.shipping.end_to_end import SessionProof
from graphfix.shipping.first_call import FirstCall
from graphfix.shipping.new_outputs import ShipSource
from graphfix.shipping.stream_build import StreamOrder, ship_stream
from graphfix.shipping.stream_steps import StepSequence
from tests.feeds.small_models import HEAD
from tests.shipping.conftest import saved
from tests.shipping.test_stream_steps import DECODER, RECURRENT, plan_of

if TYPE_CHECKING:
    from graphfix.shipping.stream_plan import StreamPlan


PLAIN = ir.from_onnx_text(
    '<ir_version: 8, opset_import: ["" : 17]> m (float[S] x) => (float[S] y) { y = Relu (x) }'
)
SOURCE = ShipSource(Path("m.onnx"), Path("m.onnx"))


def order_of(spec: str = "static-cache,fix-dims", plan: StreamPlan | None = None) -> StreamOrder:
    return StreamOrder(
        Path("decoder.onnx"),
        plan or plan_of(),
        spec,
        "past",
        ChannelRule(),
        "cpu",
        lambda _: None,
        {},
        False,
    )


# Passes


def names(spec: str, fixed: tuple[str, ...] = ("E",)) -> list[str]:
    return [x.name for x in order_of(spec).passes_at(order_of().plan.containers[0], fixed)]


def test_passes_that_fix_sizes_get_those_of_the_container() -> None:
    found = {x.name: dict(x.dims) for x in order_of().passes_at(plan_of().containers[0], ("E",))}  # type: ignore[attr-defined]
    assert found == {"static-cache": {"P": 8, "E": 5}, "fix-dims": {"S": 1, "B": 2}}
    found = {x.name: dict(x.dims) for x in order_of().passes_at(plan_of().containers[3], ())}  # type: ignore[attr-defined]
    assert found == {"static-cache": {"P": 12}, "fix-dims": {"S": 3, "B": 2, "E": 5}}


@pytest.mark.parametrize(
    ("spec", "order"),
    [
        ("static-cache,fix-dims", ["static-cache", "fix-dims"]),
        # Where they are missing they come before the passes that want sizes.
        ("additive-mask", ["additive-mask", "static-cache", "fix-dims"]),
        ("additive-mask,float16", ["additive-mask", "static-cache", "fix-dims", "float16"]),
        ("fuse-gelu,float16", ["static-cache", "fix-dims", "fuse-gelu", "float16"]),
        ("fix-dims,float16", ["static-cache", "fix-dims", "float16"]),
        ("static-cache,additive-mask,fuse-gelu",
         ["static-cache", "additive-mask", "fix-dims", "fuse-gelu"]),
        ("fuse-gelu,static-cache", ["fix-dims", "fuse-gelu", "static-cache"]),
    ],
)  # fmt: skip
def test_passes_that_fix_sizes_come_before_the_late_ones(spec: str, order: list[str]) -> None:
    assert names(spec) == order


def test_options_of_other_passes_stay() -> None:
    (fused, *_) = (
        x
        for x in order_of("fuse-gelu:approximate=yes").passes_at(plan_of().containers[0], ())
        if x.name == "fuse-gelu"
    )
    assert fused.approximate is True  # type: ignore[attr-defined]


def test_a_model_without_caches_has_none_to_fix() -> None:
    plan = plan_of(RECURRENT, "S=1,3 B=2")
    order = order_of("static-cache,fix-dims", plan)
    assert [x.name for x in order.passes_at(plan.containers[0], ())] == ["fix-dims"]


@pytest.mark.parametrize("fixed", [("E",), ()])
def test_caches_of_one_size_that_cannot_be_analysed_stay(
    fixed: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[str, ...]] = []

    def repair(self: StreamOrder, container: object, caches: tuple[str, ...]) -> object:
        tried.append(caches)
        if caches == fixed:
            raise PaddingError("no")
        return "model", Report("", (), {}, {})

    monkeypatch.setattr(StreamOrder, "_repair_with_caches", repair)
    monkeypatch.setattr(stream_build, "require_sizes_applied", lambda *_: None)
    order = order_of(plan=replace(plan_of(), fixed_caches=fixed))
    if not fixed:
        with pytest.raises(PaddingError):
            order.repair_container({})
        return
    model, report = order.repair_container({})
    assert (model, report.source) == ("model", "decoder.onnx")
    assert tried == [("E",), ()]


HIDDEN = InputPort("hidden", "tensor(float)", ("B", "F", 4), 0)
FIRST = FirstCall("flag", {"encoded": "present"}, (HIDDEN,), {"B": "B", "F": "E"})


def test_the_first_call_has_sizes_of_the_containers() -> None:
    assert order_of().first_call_sizes(FIRST) == {"B": 2, "E": 5}


def test_the_original_has_one_name_for_equal_dims(tmp_path: Path) -> None:
    text = DECODER.replace(
        "float[B, E, 4] encoded", "float[B, E, 4] encoded, float[B, F, 4] hidden"
    )
    order = replace(order_of(), source=saved(HEAD + text, tmp_path / "decoder.onnx"))
    inputs = {x.name: str(x.shape) for x in order.load_original().graph.inputs}
    assert inputs["attention_mask"] == "[B,P + S]"
    # What only the first call reads is none of its inputs.
    order = replace(order, plan=replace(order.plan, first=FIRST))
    assert {x.name for x in order.load_original().graph.inputs} == {*inputs} - {"hidden"}


def test_a_pass_that_rounds_may_use_the_first_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def run(model: object, passes: object, *, settle: Any) -> object:
        seen.append(settle)
        return "report"

    monkeypatch.setattr(stream_build.pipeline, "run", run)
    order = order_of()
    assert order._run_passes(None, ()) == "report"  # type: ignore[arg-type]
    assert [(x.margin, x.tolerance, x.tell) for x in seen] == [
        (MARGINS[0], order.rule.tolerance, order.tell)
    ]


# Attempts

USUAL = "plain-attention,directml,static-cache,fix-dims"


@pytest.mark.parametrize(
    ("given", "oks", "specs"),
    [
        ({}, [True], [f"{USUAL},fast"]),
        ({}, [False, True], [f"{USUAL},fast", USUAL]),
        ({"float16": True}, [False, False], [f"{USUAL},fast,float16", f"{USUAL},float16"]),
        ({"strict": True}, [False], [f"{USUAL},fast"]),
        ({"passes": "fast"}, [False], ["fast"]),
    ],
)  # fmt: skip
def test_if_the_proof_fails_nothing_is_fused(
    given: dict[str, Any], oks: list[bool], specs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[StreamOrder] = []
    results = [SimpleNamespace(ok=ok) for ok in oks]

    def ship_once(order: StreamOrder, folder: Path, uses: object) -> object:
        made.append(order)
        return results[len(made) - 1]

    plan = plan_of()
    monkeypatch.setattr(stream_build, "_ship_once", ship_once)
    monkeypatch.setattr(stream_build, "choose_running_plan", lambda *_: (plan, {}, "past"))
    monkeypatch.setattr(stream_build, "fix_and_fold_inputs", lambda model, spec: model)
    monkeypatch.setattr(stream_build, "branch_input_of", lambda model: "")
    monkeypatch.setattr(stream_build, "expand_state_globs", lambda model, states: states)
    order = {"passes": "", "float16": False, "strict": False, "tolerance": None, **given}
    result = ship_stream(
        SOURCE, Path("out"), PLAIN, parse_containers(["S=1"]),
        cache=(8,), states=(), axis="", ep="cpu", tell=lambda _: None, **order,
    )  # fmt: skip
    assert [x.spec for x in made] == specs
    # If all fail, the first is what is told.
    assert result is (results[-1] if oks[-1] else results[0])
    assert all(x.tie == "past" for x in made)


def test_a_branch_is_chosen_and_a_tolerance_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    specs: list[str] = []
    wanted = Tolerance(0.5)

    def ship_once(order: StreamOrder, folder: Path, uses: object) -> object:
        specs.append(order.spec)
        assert order.rule == ChannelRule(wanted)
        return SimpleNamespace(ok=True)

    def fix_inputs(model: object, spec: str) -> object:
        specs.append(spec)
        return model

    monkeypatch.setattr(stream_build, "_ship_once", ship_once)
    monkeypatch.setattr(stream_build, "choose_running_plan", lambda *_: (plan_of(), {}, "past"))
    monkeypatch.setattr(stream_build, "fix_and_fold_inputs", fix_inputs)
    monkeypatch.setattr(stream_build, "branch_input_of", lambda model: "use cache")
    monkeypatch.setattr(stream_build, "expand_state_globs", lambda model, states: states)
    ship_stream(
        SOURCE, Path("out"), PLAIN, parse_containers(["S=1"]),
        cache=(8,), states=(), axis="", passes="static-cache,fix-dims", float16=False, ep="cpu",
        tolerance=wanted, strict=False, tell=lambda _: None,
    )  # fmt: skip
    assert specs[0] == specs[1]
    assert specs[0].startswith("fix-input:")
    assert specs[0].endswith("=true,static-cache,fix-dims")


# Uses


def uses(plan: StreamPlan, *, strict: bool = False, rolls: bool = True) -> list[tuple[bool, ...]]:
    """Return what each use says: rolls, fills up in front, joins."""

    def steps(joins: bool, may_roll: bool) -> tuple[tuple[()], bool]:
        return (), rolls and may_roll

    found = stream_build._possible_uses(order_of(plan=plan), steps, strict=strict)  # type: ignore[arg-type]
    ways = [x.streaming for x in found]
    return [(x.rolls, x.partial, x.joins) for x in ways]


def all_growing(plan: StreamPlan) -> StreamPlan:
    return replace(plan, states=tuple(x for x in plan.states if x.axis is not None))


def test_the_most_useful_use_comes_first() -> None:
    growing = all_growing(plan_of())
    # Parts, the first filled up in front; parts that are containers; one container.
    assert uses(growing) == [
        (True, True, True),
        (True, False, True),
        (True, False, False),
        (False, True, True),
        (False, False, True),
        (False, False, False),
    ]
    assert uses(growing, rolls=False) == [
        (False, True, True),
        (False, False, True),
        (False, False, False),
    ]
    assert uses(growing, strict=True) == [(True, True, True)]
    assert uses(growing, strict=True, rolls=False) == [(False, True, True)]


def test_a_state_of_one_size_is_never_filled_up_in_front() -> None:
    assert uses(plan_of(), rolls=False) == [(False, False, True), (False, False, False)]


def test_steps_of_two_entries_are_not_filled_up() -> None:
    plan = all_growing(plan_of(containers="S=2,3 B=2 E=5"))
    assert uses(plan, rolls=False) == [(False, False, True), (False, False, False)]


def test_only_whole_containers_are_held_to_the_rounding_of_the_original(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def measure(self: StreamOrder, steps: Any, *, may_roll: bool) -> None:
        asked.append((steps, may_roll))

    monkeypatch.setattr(StreamOrder, "measure_own_rounding", measure)
    order = order_of(plan=plan_of())
    found = stream_build._possible_uses(order, lambda *_: ("steps", False), strict=False)  # type: ignore[arg-type,return-value]
    for use in found:
        use.measure()
    assert asked == [("steps", True)]


def test_a_tolerance_of_the_user_is_not_widened() -> None:
    assert order_of().measure_own_rounding((), may_roll=True) is None


@pytest.mark.parametrize("told", ["", "frames"])
def test_shorter_caches_are_proved_where_containers_are_told(
    told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proved: list[Any] = []
    asked: list[Any] = []

    def prove(folder: Path, steps: Any, rule: object, measure: Any) -> SessionProof:
        proved.append(steps)
        measure()
        return SessionProof(True, ())

    def measure(self: StreamOrder, steps: Any, *, may_roll: bool) -> None:
        asked.append(steps)

    monkeypatch.setattr(stream_build, "prove", prove)
    monkeypatch.setattr(StreamOrder, "measure_own_rounding", measure)
    order = order_of(plan=plan_of())
    assert order.plan.fixed_caches == ("E",)
    steps = (StepSequence("some", {}, (), ()), StepSequence("short", {}, (), (), shorter=True))
    streaming = Streaming((Cache("E", told, False),), (), joins=False)
    assert order.prove(Path("out"), order.use_for(streaming, steps, may_roll=True)).ok
    assert proved == [[*steps] if told else [steps[0]]]
    # A copy of the original is run on all of them.
    assert asked == [steps]


# The manifest


def test_the_caches_of_the_manifest() -> None:
    plan = plan_of()
    states = (StateLink("past_key", "present_key", 1), StateLink("past_sum", "present_sum", None))
    use = Streaming((), (), True, False, True)
    told = CacheInput("valid", "P", 8, (), ())
    stream = stream_build._complete_streaming(plan, [told], use)
    assert stream == replace(use, caches=(Cache("P", "valid", True),), states=states)
    fixed = CacheInput("frames", "E", 5, (), ())
    stream = stream_build._complete_streaming(plan, [fixed], use)
    assert stream.caches == (Cache("P", "", True), Cache("E", "frames", False))


def test_names_of_sizes_and_files() -> None:
    plan = replace(plan_of(), names={"P": ("past_len", "P"), "S": ("steps",)})
    assert stream_build._sizes_text(plan, plan.containers[1]) == "past_len=8, steps=3"
    assert stream_build._sizes_text(plan_of(), plan.containers[1]) == "P=8, S=3"
    assert stream_build._file_name(Path("d.onnx"), plan, plan.containers[1]) == "d.8.3.onnx"
    flat = plan_of(RECURRENT, "S=1,3 B=2")
    assert stream_build._file_name(Path("d.onnx"), flat, flat.containers[1]) == "d.3.onnx"


@pytest.mark.parametrize(
    ("text", "containers", "axis"),
    [(DECODER, "S=1,3 B=2 E=5", ("S", "input_ids", 1)), (RECURRENT, "S=1,3 B=2", ("S", "x", 1))],
)
def test_the_manifest_names_the_input_of_new_entries(
    text: str,
    containers: str,
    axis: tuple[str, str, int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(stream_build, "containers_with_kernels", lambda *_: ())
    monkeypatch.setattr(stream_build, "provenance_of", lambda *_: {})
    plan = plan_of(text, containers)
    manifest = stream_build._build_manifest(order_of(plan=plan), [tmp_path / "m.onnx"])
    assert (manifest.axis.dim, manifest.axis.input, manifest.axis.axis) == axis
    assert (manifest.axis.rate, manifest.axis.shortest) == (None, 1)
    assert manifest.batch == "B"
    assert manifest.lengths is None
    assert manifest.inputs == plan.inputs
