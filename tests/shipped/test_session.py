"""graphfix.Session gives what the original gives, for clips of any length."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import graphfix
from graphfix.errors import FeedError, ModelError
from graphfix.shipped.manifest_file import read_manifest
from graphfix.shipping.build import ship_file
from graphfix.shipping.container_spec import parse_containers

Pair = tuple[Path, Path]
CPU = ["CPUExecutionProvider"]


def alone(path: Path, feeds: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=CPU).run(None, feeds)


def clip(length: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng([seed, length])
    x = rng.standard_normal((1, 4, length)).astype(np.float32)
    return {"x": x, "language": np.array([seed % 5])}


def tokens(length: int, seed: int = 0, valid: int | None = None) -> dict[str, Any]:
    rng = np.random.default_rng([seed, length])
    x = rng.standard_normal((1, length, 4)).astype(np.float32)
    return {"x": x, "mask": (np.arange(length) < (valid or length)).astype(np.int64)[None]}


def same(found: list[Any], wanted: list[Any]) -> None:
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 9, 13, 19, 20])
def test_a_clip_of_any_length(mean: Pair, length: int) -> None:
    source, folder = mean
    feeds = clip(length, length)
    same(graphfix.Session(folder, CPU).run(None, feeds), alone(source, feeds))


def test_a_batch_goes_row_by_row_where_the_container_has_one(mean: Pair) -> None:
    source, folder = mean
    rows = [clip(11, seed) for seed in range(3)]
    feeds = {k: np.concatenate([x[k] for x in rows]) for k in rows[0]}
    same(graphfix.Session(folder, CPU).run(None, feeds), alone(source, feeds))


def test_lists_are_clips_of_different_lengths(mean: Pair) -> None:
    source, folder = mean
    clips = [clip(n, n) for n in (20, 3, 8)]
    feeds = {"x": [c["x"] for c in clips], "language": [c["language"] for c in clips]}
    pooled, frames = graphfix.Session(folder, CPU).run(None, feeds)
    for i, one in enumerate(clips):
        same([pooled[i], frames[i]], alone(source, one))


def test_lists_share_a_container_with_rows(masked: Pair) -> None:
    source, folder = masked
    clips = [tokens(n, n) for n in (5, 2, 6, 4, 16)]
    session = graphfix.Session(folder, CPU)
    (found,) = session.run(["y"], {k: [c[k] for c in clips] for k in ("x", "mask")})
    for i, one in enumerate(clips):
        same([found[i]], alone(source, one))
    assert len(session._sessions.open_sessions) == 2


def test_a_mask_of_the_users_stays_what_it_is(masked: Pair) -> None:
    source, folder = masked
    feeds = tokens(5, 1, valid=3)
    found, wanted = graphfix.Session(folder, CPU).run(None, feeds), alone(source, feeds)
    same([x[:, :3] for x in found], [x[:, :3] for x in wanted])


def test_outputs_come_as_they_are_asked_for(mean: Pair) -> None:
    source, folder = mean
    feeds = clip(9)
    session = graphfix.Session(folder, CPU)
    pooled, frames = alone(source, feeds)
    same(session.run(["frames", "pooled"], feeds), [frames, pooled])
    same(session.run(["pooled"], feeds), [pooled])
    with pytest.raises(FeedError, match="there is no output 'nothing'; there are pooled, frames"):
        session.run(["nothing"], feeds)
    with pytest.raises(FeedError, match="a dict of arrays by name, not list"):
        session.run(None, [feeds["x"]])  # type: ignore[arg-type]


def test_it_looks_like_the_original(mean: Pair) -> None:
    source, folder = mean
    session = graphfix.Session(folder, CPU)
    original = onnxruntime.InferenceSession(source, providers=CPU)
    for own, theirs in (
        (session.get_inputs(), original.get_inputs()),
        (session.get_outputs(), original.get_outputs()),
    ):
        assert [(x.name, x.type) for x in own] == [(x.name, x.type) for x in theirs]
        assert [len(x.shape) for x in own] == [len(x.shape) for x in theirs]
    assert session.get_providers() == CPU


def test_a_clip_that_is_too_long_is_named_with_the_longest(mean: Pair) -> None:
    with pytest.raises(FeedError, match="a clip of T=21 is longer than the longest container, 20"):
        graphfix.Session(mean[1], CPU).run(None, clip(21))


def test_the_fallback_runs_what_is_too_long(mean: Pair) -> None:
    source, folder = mean
    session = graphfix.Session(folder, CPU, fallback=source)
    same(session.run(None, clip(33)), alone(source, clip(33)))
    same(session.run(None, clip(4)), alone(source, clip(4)))


def test_the_fallback_may_be_a_repaired_model(mean: Pair, tmp_path: Path) -> None:
    source, folder = mean
    model = graphfix.load(source)
    graphfix.run(model, "ilens-mask")
    graphfix.save(model, tmp_path / "dynamic.onnx")
    session = graphfix.Session(folder, CPU, fallback=tmp_path / "dynamic.onnx")
    same(session.run(None, clip(33)), alone(source, clip(33)))


@pytest.mark.parametrize(
    ("feeds", "told"),
    [
        ({"language": np.array([0])}, "the input 'x' is missing"),
        ({"x": np.zeros((1, 4, 5), np.float32)}, "the input 'language' is missing"),
        ({**clip(5), "x": np.zeros((4, 5), np.float32)}, r"the input 'x' has shape \[4, 5\]"),
        (
            {**clip(5), "x": np.zeros((1, 3, 5), np.float32)},
            "has 3 along axis 1, and 4 is",
        ),
    ],
)
def test_what_does_not_fit_is_a_sentence(mean: Pair, feeds: dict[str, Any], told: str) -> None:
    with pytest.raises(FeedError, match=told):
        graphfix.Session(mean[1], CPU).run(None, feeds)


@pytest.mark.parametrize("length", [5, 8, 13])
def test_shapes_that_came_before_are_run_alike(mean: Pair, length: int) -> None:
    source, folder = mean
    session = graphfix.Session(folder, CPU)
    for seed in range(3):
        feeds = clip(length, seed)
        same(session.run(None, feeds), alone(source, feeds))
        same(session.run(["frames"], feeds), alone(source, feeds)[1:])
    assert session._fit.cache_info().currsize == 1


def test_another_dtype_of_the_same_shape_is_not_what_came_before(mean: Pair) -> None:
    session = graphfix.Session(mean[1], CPU)
    feeds = clip(8)
    session.run(None, feeds)
    with pytest.raises(FeedError, match="the input 'x' is float64, and the model takes float32"):
        session.run(None, {**feeds, "x": feeds["x"].astype(np.float64)})


def test_what_is_remembered_has_an_end(mean: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphfix.shipped.session._REMEMBERED", 2)
    session = graphfix.Session(mean[1], CPU)
    for length in range(1, 9):
        session.run(None, clip(length))
        assert session._fit.cache_info().currsize <= 2


def test_what_is_no_plain_array_is_taken(mean: Pair) -> None:
    source, folder = mean
    feeds = clip(3)
    session = graphfix.Session(folder, CPU)
    same(session.run(None, {**feeds, "x": feeds["x"].view(np.memmap)}), alone(source, feeds))


def test_rows_that_do_not_agree_are_named(mean: Pair) -> None:
    feeds = {**clip(3), "language": np.array([1, 2])}
    with pytest.raises(FeedError, match=r"different numbers of rows: \{'x': 1, 'language': 2\}"):
        graphfix.Session(mean[1], CPU).run(None, feeds)


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
@pytest.mark.parametrize(("share", "most", "least"), [(True, 0.5, 0.0), (False, 9.0, 0.9)])
def test_sessions_may_share_the_memory_of_their_weights(
    large: Path, share: bool, most: float, least: float
) -> None:
    weights = max(x.bytes for x in read_manifest(large).files)
    program = f"""
import re
import graphfix
def own():
    return int(re.search(r"Anonymous:\\s+(\\d+)", open("/proc/self/smaps_rollup").read())[1]) * 1024
session = graphfix.Session({str(large)!r}, {CPU!r}, share={share})
session._session_of(session.manifest.containers[0])
before = own()
session._session_of(session.manifest.containers[1])
print(own() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert least * weights <= int(done.stdout) <= most * weights


def test_sessions_are_made_when_they_are_needed(mean: Pair) -> None:
    session = graphfix.Session(mean[1], CPU)
    assert not session._sessions.open_sessions
    session.run(None, clip(5))
    assert [x.name for x in session._sessions.open_sessions] == ["mean.8.onnx"]
    warm = graphfix.Session(mean[1], CPU, warm=True)
    assert len(warm._sessions.open_sessions) == 2


def test_several_threads_at_once(mean: Pair) -> None:
    source, folder = mean
    session = graphfix.Session(folder, CPU)
    clips = [clip(1 + i % 20, i) for i in range(60)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda feeds: session.run(None, feeds), clips))
    for feeds, got in zip(clips, found, strict=True):
        same(got, alone(source, feeds))
    assert len(session._sessions.open_sessions) == 2


def test_directml_is_asked_for_with_its_device(mean: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one it is unavailable on older Windows, and the CPU takes over in silence."""
    known = ["DmlExecutionProvider", *CPU]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: known)
    session = graphfix.Session(mean[1])
    assert session._sessions.providers == [("DmlExecutionProvider", {"device_id": 0}), *CPU]
    assert session._sessions.on_directml


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="name a folder that 'graphfix ship' made"):
        graphfix.Session(tmp_path)


def test_importing_it_needs_numpy_and_onnxruntime_only() -> None:
    code = (
        "import sys, graphfix; graphfix.Session\n"
        "print(sorted({'onnx', 'onnx_ir', 'sympy', 'click', 'rich', 'jinja2'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_clip_of_which_a_pool_makes_nothing_is_refused(tmp_path: Path) -> None:
    """Of one frame ONNX Runtime's second pool makes one more, where the standard has none."""
    source = tmp_path / "pools.onnx"
    onnx.save(onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        pools (float[1, 2, T] x) => (float[1, 2] y) {
            a = MaxPool <kernel_shape = [2], strides = [2]> (x)
            b = MaxPool <kernel_shape = [2], strides = [2]> (a)
            y = ReduceMean <axes = [2], keepdims = 0> (b)
        }"""), source)  # fmt: skip
    ship_file(source, tmp_path / "out", parse_containers(["T=16"]))
    session = graphfix.Session(tmp_path / "out", CPU)
    rng = np.random.default_rng(0)
    for length in range(1, 17):
        feeds = {"x": rng.standard_normal((1, 2, length)).astype(np.float32)}
        if length < 4:
            with pytest.raises(FeedError, match=rf"a clip of T={length} is shorter than 4"):
                session.run(None, feeds)
        else:
            same(session.run(None, feeds), alone(source, feeds))


def test_a_clip_that_the_original_refuses_is_refused(tmp_path: Path) -> None:
    """In a container the third frame is padding, which the clip has not."""
    path, folder = tmp_path / "m.onnx", tmp_path / "out"
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (float[1, T, 4] x) => (float[1, T, 4] y) <int64[1] third = {2}>
        { g = Gather <axis = 1> (x, third) s = ReduceSum (g, third) y = Add (x, s) }"""
    onnx.save(onnx.parser.parse_model(text), path)
    assert ship_file(path, folder, parse_containers(["T=9,24"])).ok
    session = graphfix.Session(folder, CPU)
    for length in (1, 2):
        with pytest.raises(FeedError, match=f"a clip of T={length} is shorter than 3"):
            session.run(None, {"x": np.ones((1, length, 4), np.float32)})
    feeds = {"x": np.ones((1, 3, 4), np.float32)}
    same(session.run(None, feeds), alone(path, feeds))
