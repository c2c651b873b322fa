"""Session.stream() gives, step by step, what the original with caches that grow gives."""

from __future__ import annotations

import importlib
import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import graphfix
from graphfix.cache_axes.growth import unify_dims
from graphfix.cli import main
from graphfix.errors import FeedError, UsageError
from graphfix.feeds.states import StatePair
from graphfix.files import io
from graphfix.job import planning
from graphfix.proof.by_channel import ChannelRule
from graphfix.shipped.manifest import NAME
from graphfix.shipped.manifest_file import read_manifest
from graphfix.shipping import stream_bench
from graphfix.shipping.build import ship_file
from graphfix.shipping.container_spec import parse_containers
from graphfix.shipping.stream_plan import plan_stream
from graphfix.shipping.stream_proof import prove
from graphfix.shipping.stream_steps import run_sequences
from tests.passes.cached import FORMS, WIDTH, WINDOW
from tests.passes.models import model, opened
from tests.shipping.conftest import saved, write_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

CPU = ["CPUExecutionProvider"]
SIZES, FULL = parse_containers(["S=1,4", "B=2"]), 16
HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'


class Growing:
    """The original, fed back what comes out."""

    def __init__(self, form: str) -> None:
        self.session = opened(model(FORMS[form], 17))
        self.states = {x: np.zeros((2, 0, WIDTH), np.float32) for x in ("past_key", "past_value")}

    def run(self, feeds: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
        made = self.session.run(None, {**feeds, **self.states})
        self.states = dict(zip(self.states, made[1:], strict=True))
        return made


def feeds(form: str, length: int, new: int) -> dict[str, Any]:
    """New entries behind so many; with a mask, the first of the second row is padding."""
    x = np.random.default_rng([length, new]).standard_normal((2, new, WIDTH)).astype(np.float32)
    mask = (np.arange(length + new) >= np.array([[0], [1]])).astype(np.int64)
    return {"x": x, "mask": mask} if "] mask)" in FORMS[form] else {"x": x}


def shipped(form: str, folder: Path, cache: Sequence[int]) -> tuple[Path, Path]:
    source = saved(HEADER + FORMS[form], folder / "decoder.onnx")
    done = ship_file(source, folder / "out", SIZES, cache=cache)
    assert done.ok, str(done.whole)
    return source, folder / "out"


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return shipped("causal and mask", tmp_path_factory.mktemp("masked"), (8, FULL))


@pytest.fixture(scope="module")
def rolling(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return shipped("rolling", tmp_path_factory.mktemp("rolling"), ())


def follow(stream: Any, form: str, counts: Sequence[int], grows: Growing, length: int = 0) -> int:
    for count in counts:
        fed = feeds(form, length, count)
        made, array = stream.run(["y"], fed)[0], grows.run(fed)[0]
        if length == 0 and "mask" in fed:  # what padding gives is nobody's
            made[1, 0] = array[1, 0]
        np.testing.assert_allclose(made, array, rtol=0, atol=1e-5)
        length += count
    return length


@pytest.mark.parametrize("counts", [[16], [1] * 16, [5, 1, 3, 7], [4, 4, 4, 4], [2, 6, 1, 1, 6]])
def test_any_parts(masked: tuple[Path, Path], counts: list[int]) -> None:
    grows, stream = Growing("causal and mask"), graphfix.Session(masked[1], CPU).stream()
    assert follow(stream, "causal and mask", counts, grows) == stream.length == FULL
    for name, array in grows.states.items():
        made = stream.states()[name.replace("past", "present")]
        np.testing.assert_allclose(made, array, rtol=0, atol=1e-5)


def test_reset_and_forks_are_apart(masked: tuple[Path, Path]) -> None:
    form, stream = "causal and mask", graphfix.Session(masked[1], CPU).stream()
    grows = Growing(form)
    follow(stream, form, [5], grows)
    fork, other = stream.fork(), Growing(form)
    other.states = dict(grows.states)
    follow(fork, form, [3, 1, 4], other, 5)
    assert (stream.length, fork.length) == (5, 13)
    follow(stream, form, [1, 2], grows, 5)
    follow(fork, form, [1], other, 13)
    stream.reset()
    assert (stream.length, fork.length) == (0, 14)
    follow(stream, form, [7, 1], Growing(form))


def test_full_caches_refuse_and_lose_nothing(masked: tuple[Path, Path]) -> None:
    form, stream = "causal and mask", graphfix.Session(masked[1], CPU).stream()
    grows = Growing(form)
    follow(stream, form, [9, 5], grows)
    before = stream.states()
    for _ in range(2):
        told = r"16 entries, 14 are taken: of the new ones 1 do not fit.*--cache"
        with pytest.raises(FeedError, match=told):
            stream.run(None, feeds(form, 14, 3))
    assert stream.length == 14
    assert all(np.array_equal(x, before[k]) for k, x in stream.states().items())
    follow(stream, form, [1, 1], grows, 14)
    with pytest.raises(FeedError, match=r"reset\(\) empties them"):
        stream.run(None, feeds(form, FULL, 1))


def test_a_host_may_keep_the_states(masked: tuple[Path, Path]) -> None:
    form, session = "causal and mask", graphfix.Session(masked[1], CPU)
    grows, length = Growing(form), 0
    for count in (3, 1, 6, 1):
        fed = feeds(form, length, count)
        names = [x.name for x in session.get_outputs()]
        found = session.run(names, {**fed, **grows.states})
        for made, array in zip(found, grows.run(fed), strict=True):
            made[1, 0] = array[1, 0] if length == 0 else made[1, 0]
            np.testing.assert_allclose(made, array, rtol=0, atol=1e-5)
        length += count
    with pytest.raises(FeedError, match="'past_key' is missing"):
        session.run(None, feeds(form, 0, 1))


@pytest.mark.parametrize(
    ("change", "names", "told"),
    [
        ({"mask": None}, None, "'mask' is missing"),
        ({"mask": np.ones((2, 3), np.int64)}, None, r"'mask' has shape \[2, 3\], and \[2, 4\]"),
        ({"mask": np.ones((2, 4), np.int32)}, None, "is int32, and the model takes int64"),
        ({"x": np.ones((1, 1, 4), np.float32)}, None, r"'x' has shape \[1, 1, 4\]"),
        ({"x": np.ones((2, 4), np.float32)}, None, r"'x' has shape \[2, 4\]"),
        ({"x": np.ones((2, 0, 4), np.float32)}, None, "at least one entry|has shape"),
        ({"past_key": np.ones((2, 3, 4), np.float32)}, None, "'past_key' is a state"),
        ({"other": np.ones(1, np.float32)}, None, "no input 'other'"),
        ({}, ["present_key"], r"is a state, .* states\(\) copies it"),
        ({}, ["z"], "no output 'z'; there are y"),
    ],
)
def test_what_does_not_fit_is_a_sentence(
    masked: tuple[Path, Path], change: dict[str, Any], names: list[str] | None, told: str
) -> None:
    form, stream = "causal and mask", graphfix.Session(masked[1], CPU).stream()
    grows = Growing(form)
    follow(stream, form, [3], grows)
    fed = {k: x for k, x in {**feeds(form, 3, 1), **change}.items() if x is not None}
    with pytest.raises(FeedError, match=told):
        stream.run(names, fed)
    follow(stream, form, [1], grows, 3)


SUMS = "window of the mask by sums"


def test_positions_that_are_counted_go_on_in_caches_that_roll(tmp_path: Path) -> None:
    _, folder = shipped(SUMS, tmp_path, (FULL,))
    assert read_manifest(folder).stream.rolls
    stream, grows = graphfix.Session(folder, providers=CPU).stream(), Growing(SUMS)
    follow(stream, SUMS, [4, FULL - 6, *[1] * 12, 4, 1, 1], grows)


def test_what_rolls_wrongly_is_shipped_with_caches_that_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    makers = importlib.import_module("graphfix.passes.sizes.cache.cache_builder").CacheBuilder
    monkeypatch.setattr(makers, "cumsum_positions", makers.rebuild_cumsum)
    _, folder = shipped(SUMS, tmp_path, (FULL,))
    assert not read_manifest(folder).stream.rolls


def test_a_cache_with_a_window_rolls_for_ever(rolling: tuple[Path, Path]) -> None:
    for counts in ([1] * 40, [7, 1, 4, 13, 1, 1], [30, 1]):
        stream = graphfix.Session(rolling[1], CPU).stream()
        follow(stream, "rolling", counts, Growing("rolling"))
        assert stream.length == WINDOW


def test_a_folder_of_clips_has_no_stream(mean: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match="takes clips and continues no states"):
        graphfix.Session(mean[1], CPU).stream()


# Faults, planted in what was shipped


def before(graph: onnx.GraphProto, node: onnx.NodeProto, place: int, op: str, by: int) -> None:
    """Let a node take its input with a number added, or subtracted."""
    graph.initializer.append(numpy_helper.from_array(np.array([by]), "planted_by"))
    at = list(graph.node).index(node)
    graph.node.insert(at, helper.make_node(op, [node.input[place], "planted_by"], ["planted"]))
    node.input[place] = "planted"


def places(graph: onnx.GraphProto) -> None:
    node = next(x for x in graph.node if x.op_type == "Gather" and x.input[0] == "positions")
    before(graph, node, 1, "Add", 1)


def mask(graph: onnx.GraphProto) -> None:
    node = next(x for x in graph.node if "valid_past" in x.input)
    before(graph, node, list(node.input).index("valid_past"), "Sub", 1)


def rolled(graph: onnx.GraphProto) -> None:
    node = next(x for x in graph.node if "present_key" in x.output)
    node.output[list(node.output).index("present_key")] = "planted"
    for name, value in (("p0", [0]), ("p1", [1]), ("p9", [99])):
        graph.initializer.append(numpy_helper.from_array(np.array(value), name))
    graph.node.append(helper.make_node("Slice", ["planted", "p1", "p9", "p1"], ["late"]))
    graph.node.append(helper.make_node("Slice", ["planted", "p0", "p1", "p1"], ["early"]))
    graph.node.append(helper.make_node("Concat", ["late", "early"], ["present_key"], axis=1))


@pytest.mark.parametrize("fault", [None, places, mask, rolled, "states"])
def test_the_proof_tells_a_planted_fault(
    masked: tuple[Path, Path],
    tmp_path: Path,
    fault: Callable[[onnx.GraphProto], None] | str | None,
) -> None:
    source, folder = masked[0], tmp_path / "out"
    shutil.copytree(masked[1], folder)
    told = json.loads((folder / NAME).read_text(encoding="utf-8"))
    for container in told["containers"] if callable(fault) else ():
        proto = onnx.load(folder / container["file"])
        fault(proto.graph)
        onnx.save(proto, folder / container["file"])
    if fault == "states":
        one, other = told["stream"]["states"]
        one["output"], other["output"] = other["output"], one["output"]
    write_manifest(folder, told)  # a hash that differs is no proof
    grows = io.load(source)
    unify_dims(grows)
    found = plan_stream(grows, SIZES, (8, FULL))
    steps, _ = run_sequences(found, str(source), {})
    proof = prove(folder, steps, ChannelRule())
    assert proof.ok is (fault is None)
    assert fault is None or "differs by" in str(proof)


def test_steps_are_timed_against_the_growing_original(masked: tuple[Path, Path]) -> None:
    source, folder = masked
    done = stream_bench.bench_stream(folder, source, ep="cpu", lengths=[6, 1, 1], processes=1)
    assert done.ok
    assert done.of == "step"
    assert set(done.original.phases) == {"making sessions", "first step", "all steps"}
    plan = planning.plan_summary(source)["run"]
    assert done.original.count.launched == 3 * plan["dispatches"]
    assert done.original.count.recompiled == 2 * plan["recompiled"] > 0
    kernels = {x.file: x.kernels["after"] for x in read_manifest(folder).containers}
    # 6 = 2 and 4 in the containers of four; then one by one.
    parts = [*["decoder.8.4.onnx"] * 2, *["decoder.8.1.onnx"] * 2]
    assert done.shipped.count.launched == sum(kernels[x]["dispatches"] for x in parts)
    assert done.shipped.count.recompiled == 0


def test_no_state_is_moved_between_steps(masked: tuple[Path, Path]) -> None:
    source, folder = masked
    done = stream_bench.bench_stream(folder, source, ep="cpu", lengths=[1, 1], processes=1)
    step = 4 * 2 * WIDTH  # float32, of two rows
    # x, the mask of int64 and y; the containers are told how many entries are valid.
    assert done.shipped.count.moved == 2 * (step + 8 * 2 * (8 + 1) + 8 + step)
    # And key and value, which come with one entry more than they went.
    states = [2 * step * (past + past + 1) for past in (0, 1)]
    assert done.original.count.moved == sum(
        2 * step + 8 * 2 * (past + 1) + states[past] for past in (0, 1)
    )


@pytest.mark.parametrize("counts", [[15, 2], [0]])
def test_steps_that_overfill_the_caches_are_not_timed(
    counts: list[int], masked: tuple[Path, Path]
) -> None:
    source, folder = masked
    with pytest.raises(UsageError, match="at least one entry, and all together 16 at most"):
        stream_bench.bench_stream(folder, source, ep="cpu", lengths=counts, processes=1)


def test_a_stream_is_timed_from_the_command_line(
    masked: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    source, folder = masked
    given = ["--ship", str(folder), "--against", str(source), "--ep", "cpu", "--processes", "1"]
    assert main(["bench", *given, "--clips", "3"]) == 0
    told = capsys.readouterr().out
    assert "4 steps that add 1 to 8, 11 in all, on cpu" in told
    assert "0 of them recompiled" in told
    assert "ms a step" in told


@pytest.mark.parametrize(("cache", "new"), [(1, (1, 4)), (3, (1, 4)), (8, (4,))])
def test_small_caches_and_a_container_of_several_alone(
    cache: int, new: tuple[int, ...], tmp_path: Path
) -> None:
    source = saved(HEADER + FORMS["causal and mask"], tmp_path / "model.onnx")
    spec = parse_containers(["B=2", f"S={','.join(map(str, new))}"])
    assert ship_file(source, tmp_path / "out", spec, cache=(cache,)).ok
    stream = graphfix.Session(tmp_path / "out", CPU).stream()
    follow(stream, "causal and mask", [new[0]] * (cache // new[0]), Growing("causal and mask"))
    with pytest.raises(FeedError, match="do not fit"):
        stream.run(None, feeds("causal and mask", cache, new[0]))


STATES = """float[B, T, 4] x, float[1, B, 4] a, float[1, B, 4] b, int64[1, B, 4] n) =>
    (float[B, T, 4] y, float[1, B, 4] c, float[1, B, 4] d, int64[1, B, 4] m"""


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        ({"a": "y"}, "'y' is float[B,T,4] and the input 'a' float[1,B,4], so the next step cannot"),
        ({"a": "m"}, "'m' is int64[1,B,4] and the input 'a' float[1,B,4], so the next step"),
        ({"a": "d", "b": "z"}, "there is no output 'z'"),
        ({"a": "e"}, "'e' is float of a shape that is not known"),
    ],
)
def test_a_state_that_is_named_is_never_dropped(
    tmp_path: Path, states: dict[str, str], reason: str
) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17, "own" : 1]> g ({STATES}, float[1, B, 4] e) {{
        y = Neg (x) c = Neg (a) d = Neg (b) m = Neg (n) e = own.F (a) }}"""
    file = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(text), file)
    with pytest.raises(UsageError, match=re.escape(reason)):
        ship_file(file, tmp_path / "out", ["T=1"], states=states)


def test_a_state_is_named_once(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g ({STATES}) {{
        y = Neg (x) c = Neg (a) d = Neg (b) m = Neg (n) }}"""
    onnx.save(onnx.parser.parse_model(text), file)
    twice = [StatePair("a", "c"), StatePair("a", "d")]
    with pytest.raises(UsageError, match="--state a: is named twice"):
        ship_file(file, tmp_path / "out", ["T=1"], states=twice)
