"""How a stream may use its containers: filled up, in parts, or one container for a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import graphfix
from graphfix.errors import FeedError
from graphfix.shipped.manifest import Streaming
from graphfix.shipped.manifest_file import read_manifest
from graphfix.shipping import stream_bench
from graphfix.shipping.build import ship_file
from graphfix.shipping.container_spec import parse_containers
from tests.passes.cached import CAUSAL, HIDE, MASK, WIDTH, step, table
from tests.passes.models import model, opened
from tests.shipping.conftest import saved

if TYPE_CHECKING:
    from pathlib import Path

    from graphfix.shipping.result import Shipped

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
# The new entries of a step are averaged, so the average of a part is another.
POOLED = step(mask=CAUSAL, after="y = ReduceMean <axes = [1], keepdims = 1> (inner)").replace(
    f"float[B, S, {WIDTH}] y", f"float[B, 1, {WIDTH}] y"
)
# All new entries of a step are rounded by the largest of them.
ROUNDED = step(
    before="q, scale, zero = DynamicQuantizeLinear (x) h = DequantizeLinear (q, scale, zero)",
    mask=CAUSAL,
    after="y, ys, yz = DynamicQuantizeLinear (inner)",
)
# Each new entry sees those behind it too, where the mask lets it.
SEEN = step(mask="hidden = Add (scores, mask)", inputs=", float[B, S, total] mask")


def shipped(text: str, folder: Path, sizes: str) -> Shipped:
    source = saved(HEADER + text, folder / "decoder.onnx")
    spec = parse_containers([sizes])
    done = ship_file(source, folder / "out", spec, cache=16)
    assert done.ok, str(done.whole)
    return done


def streaming_of(done: Shipped) -> Streaming:
    assert done.manifest.stream is not None
    return done.manifest.stream


@pytest.mark.parametrize("text", [POOLED, SEEN])
def test_whole_containers_are_tried_where_parts_give_something_else(
    text: str, tmp_path: Path
) -> None:
    stream = streaming_of(shipped(text, tmp_path, "S=1,4"))
    assert (stream.joins, stream.partial) == (False, False)
    x = np.ones((1, 3, WIDTH), np.float32)
    feeds = {"x": x, "mask": np.zeros((1, 3, 3), np.float32)} if text is SEEN else {"x": x}
    with pytest.raises(FeedError, match=r"3 new entries: .* as a container has \(1, 4\)"):
        graphfix.Session(tmp_path / "out").stream().run(None, feeds)


def test_prompts_are_sums_of_containers_where_none_is_of_one(tmp_path: Path) -> None:
    text = step(mask=CAUSAL)
    assert streaming_of(shipped(text, tmp_path, "S=2,4")).joins
    stream = graphfix.Session(tmp_path / "out").stream()
    x = np.random.default_rng(0).standard_normal((1, 6, WIDTH)).astype(np.float32)
    empty = np.zeros((1, 0, WIDTH), np.float32)
    original = opened(model(text, 17))
    wanted = original.run(["y"], {"x": x, "past_key": empty, "past_value": empty})[0]
    np.testing.assert_allclose(stream.run(None, {"x": x})[0], wanted, rtol=0, atol=1e-5)
    with pytest.raises(FeedError, match=r"3 new entries are no sum of the sizes .* \(2, 4\)"):
        stream.run(None, {"x": x[:, :3]})


def test_what_rounds_together_is_run_together_and_held_to_its_own_rounding(
    tmp_path: Path,
) -> None:
    done = shipped(ROUNDED.replace("float[B, S, 4] y", "uint8[B, S, 4] y"), tmp_path, "S=1,4")
    assert not streaming_of(done).joins
    assert read_manifest(tmp_path / "out").stream == streaming_of(done)


# Each step adds one entry; or caches have one size, and the model writes at a place it is told.

LETTERS = f"{table('letters', 9, WIDTH)}, int64[1] middle = {{1}}, float half = {{0.5}}"
RECURRENT = f"""m (int64[B, 1] ids, float[B, {WIDTH}] mem) => (float[B, 1, {WIDTH}] y,
    float[B, {WIDTH}] new_mem) <{LETTERS}> {{
    x = Gather (letters, ids) last = Squeeze (x, middle) kept = Mul (mem, half)
    new_mem = Add (kept, last) wide = Unsqueeze (new_mem, middle) y = Mul (x, wide) }}"""
ONE_BY_ONE = step(mask=f"{HIDE} hidden = Add (scores, wide)", inputs=MASK).replace(
    f"float[B, S, {WIDTH}]", f"float[B, 1, {WIDTH}]"
)
PLACED = f"""m (float[1, S, {WIDTH}] x, int64[S] cache_position, float[1, 12, {WIDTH}] past_key)
    => (float[1, S, {WIDTH}] y, float[1, 12, {WIDTH}] present_key)
    <int64[3] each = {{1, -1, 1}}, int64[3] row = {{1, 1, {WIDTH}}}, int64[12] places =
     {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}, float low = {{-10000.0}}, int64[1] last = {{1}}> {{
    at = Reshape (cache_position, each) index = Expand (at, row)
    present_key = ScatterElements <axis = 1> (past_key, index, x)
    turned = Transpose <perm = [0, 2, 1]> (present_key) scores = MatMul (x, turned)
    now = Unsqueeze (cache_position, last) seen = LessOrEqual (places, now)
    hidden = Where (seen, scores, low) weights = Softmax (hidden)
    y = MatMul (weights, present_key) }}"""


def test_a_step_of_a_fixed_number_needs_no_container(tmp_path: Path) -> None:
    source = saved(HEADER + RECURRENT, tmp_path / "m.onnx")
    done = ship_file(source, tmp_path / "out", {}, stream=True)
    assert done.ok, str(done.whole)
    (container,) = done.manifest.containers
    assert container.sizes == {"B": 1, "step": 1}
    stream = graphfix.Session(tmp_path / "out").stream()
    stream.run(None, {"ids": np.array([[3]])})
    with pytest.raises(FeedError, match=r"has shape \[1, 2\], and \[1, 1\] is expected"):
        stream.run(None, {"ids": np.array([[3, 4]])})
    timed = stream_bench.bench_stream(tmp_path / "out", source, ep="cpu", clips=3, processes=1)
    assert timed.ok


def test_caches_grow_by_a_fixed_step(tmp_path: Path) -> None:
    done = shipped(ONE_BY_ONE, tmp_path, "S=1,8")
    assert [x.sizes["step"] for x in done.manifest.containers] == [1]
    assert any("--container S=1,8 is one container" in x for x in done.remarks)


def test_caches_of_one_size_are_written_at_their_place(tmp_path: Path) -> None:
    source = saved(HEADER + PLACED, tmp_path / "m.onnx")
    done = ship_file(source, tmp_path / "out", parse_containers(["S=1,4"]), stream=True)
    assert done.ok, str(done.whole)
    stream, original = graphfix.Session(tmp_path / "out").stream(), opened(model(PLACED, 17))
    x = np.random.default_rng(0).standard_normal((1, 12, WIDTH)).astype(np.float32)
    cache, at = np.zeros((1, 12, WIDTH), np.float32), 0
    for count in (5, 1, 4, 1, 1):
        feeds = {"x": x[:, at : at + count], "cache_position": np.arange(at, at + count)}
        wanted, cache = original.run(None, {**feeds, "past_key": cache})
        np.testing.assert_allclose(stream.run(None, feeds)[0], wanted, rtol=0, atol=1e-5)
        at += count


# An encoder's output has a dim of its own, and may tell how much of it is content.

LONG = step(
    mask=CAUSAL,
    after="""ck = Transpose <perm = [0, 2, 1]> (encoded) cs = MatMul (inner, ck)
    es = Shape (encoded) e = Gather (es, one) seats = Range (nought, e, one)
    until = Unsqueeze (encoded_len, first) here = Less (seats, until) seat = Unsqueeze (here, first)
    known = Where (seat, cs, low) cw = Softmax (known) y = MatMul (cw, encoded)""",
    inputs=f", float[B, E, {WIDTH}] encoded, int64[B] encoded_len",
)


def test_an_encoder_tells_how_long_it_is(tmp_path: Path) -> None:
    source = saved(HEADER + LONG, tmp_path / "m.onnx")
    spec = parse_containers(["S=1,4", "E=6"])
    done = ship_file(source, tmp_path / "out", spec, cache=16)
    assert done.ok, str(done.whole)
    assert [x.sizes["E"] for x in done.manifest.containers] == [6, 6]
    session, original = graphfix.Session(tmp_path / "out"), opened(model(LONG, 17))
    random = np.random.default_rng(1)
    empty = np.zeros((1, 0, WIDTH), np.float32)
    for length, valid in ((6, 6), (6, 4), (4, 4), (4, 3)):
        encoded = random.standard_normal((1, length, WIDTH)).astype(np.float32)
        feeds = {
            "x": random.standard_normal((1, 2, WIDTH)).astype(np.float32),
            "encoded": encoded,
            "encoded_len": np.array([valid]),
        }
        wanted = original.run(["y"], {**feeds, "past_key": empty, "past_value": empty})[0]
        actual = session.stream().run(["y"], feeds)[0]
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=1e-5)


def test_an_encoder_that_cannot_be_filled_up_is_as_long_as_its_container(tmp_path: Path) -> None:
    text = step(
        mask=CAUSAL,
        after="top = ReduceMean <axes = [1], keepdims = 1> (encoded) y = Add (inner, top)",
        inputs=f", float[B, E, {WIDTH}] encoded",
    )
    source = saved(HEADER + text, tmp_path / "m.onnx")
    done = ship_file(source, tmp_path / "out", parse_containers(["S=1", "E=6"]), cache=16)
    assert done.ok, str(done.whole)
    x, stream = np.ones((1, 5, WIDTH), np.float32), graphfix.Session(tmp_path / "out").stream()
    with pytest.raises(FeedError, match=r"'encoded' has shape \[1, 5, 4\], and \[1, 6, 4\]"):
        stream.run(None, {"x": x[:, :1], "encoded": x})


# Beams choose rows of the caches again; positions of time, height and width.

BEAMS = (
    step(
        before="""h = Identity (x) rk = Gather <axis = 0> (past_key, beam)
        rv = Gather <axis = 0> (past_value, beam)""",
        mask=CAUSAL,
        inputs=", int64[B] beam",
    )
    .replace("(past_key, k)", "(rk, k)")
    .replace("(past_value, v)", "(rv, v)")
)
THREE_AXES = step(
    before="""angles = Cast <to = 1> (position_ids) waves = Sin (angles)
    turn = ReduceSum <keepdims = 0> (waves, nought_1) turned_by = Unsqueeze (turn, last)
    h = Add (x, turned_by)""",
    mask=f"{HIDE} hidden = Add (scores, wide)",
    inputs=f", int64[3, B, S] position_ids{MASK}",
)


@pytest.mark.parametrize("text", [BEAMS, THREE_AXES])
@pytest.mark.parametrize("rows", [1, 3])
def test_rows_are_not_on_the_first_axis_of_every_input(
    text: str, rows: int, tmp_path: Path
) -> None:
    source = saved(HEADER + text, tmp_path / "m.onnx")
    spec = parse_containers(["S=1,4", f"B={rows}"])
    done = ship_file(source, tmp_path / "out", spec, cache=12)
    assert done.ok, str(done.whole)


# Rows of a table from a place on that is a scalar: how many they are is known in a run only.
OFFSET = f"""m (float[1, T, {WIDTH}] x, int64 offset, float[1, {WIDTH}] mem) =>
    (float[1, T, {WIDTH}] y, float[1, {WIDTH}] new_mem)
    <{table("rows", 60, WIDTH)}, int64[1] front = {{0}}> {{
    n = Shape <start = 1, end = 2> (x) at = Unsqueeze (offset, front) until = Add (at, n)
    places = Slice (rows, at, until, front) y = Add (x, places)
    mean = ReduceMean <axes = [1], keepdims = 0> (y) new_mem = Add (mem, mean) }}"""


def test_an_offset_counts_what_came_before_and_stays_a_scalar(tmp_path: Path) -> None:
    source = saved(HEADER + OFFSET, tmp_path / "m.onnx")
    done = ship_file(source, tmp_path / "out", parse_containers(["T=1,4"]), stream=True)
    assert done.ok, str(done.whole)
    assert done.manifest.outputs[0].dims == (1, "T", WIDTH)
    stream, original = graphfix.Session(tmp_path / "out").stream(), opened(model(OFFSET, 17))
    feeds = {"x": np.ones((1, 4, WIDTH), np.float32), "offset": np.array(7)}
    wanted = original.run(["y"], {**feeds, "mem": np.zeros((1, WIDTH), np.float32)})[0]
    np.testing.assert_allclose(stream.run(["y"], feeds)[0], wanted, rtol=0, atol=1e-6)
