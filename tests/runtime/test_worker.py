"""The script that runs models in another Python, its requests one by one."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from graphfix.runtime import _wire, _worker

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[T, 2] x, float[1] bias) => (float[T, 2] y, float[T, 2] z)
    <float[1] one = {1}> { a = Add (x, bias)  b = Add (a, one)  y = Relu (b)  z = Neg (b) }"""
FEEDS = {"x": np.ones((3, 2), np.float32), "bias": np.full(1, 2, np.float32)}


@pytest.fixture(autouse=True)
def _worker_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "wire").touch()
    monkeypatch.setattr(sys, "argv", ["worker", "mark:", str(tmp_path / "wire")])
    monkeypatch.setattr(_worker, "_sessions", {})
    monkeypatch.chdir(tmp_path)
    before = {*sys.modules}
    onnx.save(onnx.parser.parse_model(TEXT), "m.onnx")
    _worker._open_array_file.cache_clear()
    yield
    _worker._open_array_file().close()
    _worker._open_array_file.cache_clear()
    for name in {"_wire", "_results", "_machine"} - before:
        sys.modules.pop(name, None)


def opened(**request: Any) -> dict[str, Any]:
    return _worker._open(
        {
            "id": 1,
            "model": "m.onnx",
            "weights": "",
            "optimize": False,
            "provider": "CPUExecutionProvider",
            "free_dims": {},
            "profile": "",
            **request,
        }
    )


def sent(feeds: dict[str, Any] = FEEDS) -> list[list[Any]]:
    return _wire.put(_worker._open_array_file(), feeds)


def run(**request: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    answer = _worker._run(
        {"id": 1, "feeds": sent(), "outputs": ["z", "y"], "bind": False, **request}
    )
    return answer, _wire.take(_worker._open_array_file(), answer["arrays"])


def test_what_it_is() -> None:
    hello = _worker._hello({})
    assert hello["onnxruntime"] == onnxruntime.__version__
    assert "CPUExecutionProvider" in hello["providers"]
    assert hello["Python"].startswith(f"{sys.version_info[0]}.")
    assert _worker._memory({})["peak"] > 0
    assert "processor" in _worker._machine({"provider": "CPUExecutionProvider"})


def test_a_session_says_its_inputs_and_outputs() -> None:
    answer = opened()
    assert answer["inputs"] == [
        ["x", "tensor(float)", ["T", 2]],
        ["bias", "tensor(float)", [1]],
    ]
    assert [x[0] for x in answer["outputs"]] == ["y", "z"]
    assert answer["defaults"] == []
    assert answer["provider"] == "CPUExecutionProvider"
    assert answer["seconds"] >= 0
    assert opened(free_dims={"T": 3})["inputs"][0][2] == [3, 2]


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("bind", [True, False])
def test_a_run_gives_the_outputs_that_are_asked_for(optimize: bool, bind: bool) -> None:
    opened(optimize=optimize, threads=1)
    answer, arrays = run(bind=bind)
    assert answer["seconds"] > 0
    assert [*arrays] == ["z", "y"]
    np.testing.assert_array_equal(arrays["y"], np.full((3, 2), 4))
    np.testing.assert_array_equal(arrays["z"], np.full((3, 2), -4))
    assert [*run(bind=bind, outputs=["y"])[1]] == ["y"]


def test_a_session_that_falls_back_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Session(onnxruntime.InferenceSession):
        def get_providers(self) -> list[str]:
            return ["OtherExecutionProvider"]

    monkeypatch.setattr(_worker, "InferenceSession", Session)
    with pytest.raises(RuntimeError, match="fell back to OtherExecutionProvider instead of CPU"):
        opened()
    assert _worker._sessions == {}


def test_the_options_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, Any, Any]] = []

    def make(model: Any, options: Any, **more: Any) -> Any:
        seen.append((model, options, more))
        raise ValueError

    monkeypatch.setattr(_worker, "InferenceSession", make)

    def options(**request: Any) -> tuple[Any, Any, Any]:
        with pytest.raises(ValueError):  # noqa: PT011
            opened(**request)
        return seen.pop()

    model, plain, more = options()
    assert model == "m.onnx"
    assert not plain.enable_mem_pattern
    assert not plain.enable_mem_reuse
    assert plain.get_session_config_entry("session.disable_prepacking") == "1"
    assert plain.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert plain.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    assert more["providers"] == ["CPUExecutionProvider"]
    assert more["enable_fallback"] == 0
    assert more["disabled_optimizers"] is None
    assert not plain.enable_profiling
    _, usual, more = options(optimize=True, without=["Fusion"], threads=2, profile="p")
    assert usual.enable_mem_reuse
    assert usual.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    assert (usual.intra_op_num_threads, usual.inter_op_num_threads) == (2, 1)
    assert more["disabled_optimizers"] == ["Fusion"]
    assert usual.enable_profiling
    assert usual.profile_file_prefix == "p"
    _, device, more = options(provider="DmlExecutionProvider")
    assert device.enable_mem_reuse
    assert more["providers"] == [
        ("DmlExecutionProvider", {"device_id": 0}),
        "CPUExecutionProvider",
    ]
    model, weighted, _ = options(weights="folder")
    assert isinstance(model, bytes)
    assert weighted.get_session_config_entry(_worker._WEIGHTS_FOLDER) == "folder"
    monkeypatch.setattr(_worker, "_can_open_path", lambda _: False)
    model, _, _ = options(model="./m.onnx")
    assert isinstance(model, bytes)


def test_the_graph_that_onnx_runtime_makes() -> None:
    request = {"model": "m.onnx", "level": "basic", "free_dims": {"T": 3}, "without": []}
    assert _worker._optimize({**request, "optimized": "o.onnx"}) == {}
    graph = onnx.load("o.onnx").graph
    assert [x.op_type for x in graph.node][:2] == ["Add", "Add"]
    dims = graph.input[0].type.tensor_type.shape.dim
    assert dims[0].dim_value in (0, 3)
    answer = _worker._outputs({"model": "m.onnx"})
    assert answer["outputs"] == [[x, "tensor(float)", ["T", 2]] for x in "yz"]
    options = _worker._plain_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (1, 1)
    assert (options.enable_mem_pattern, options.enable_mem_reuse) == (False, False)


class Clock:
    """A clock on which each look takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 1
        return self.now


@pytest.mark.parametrize(
    ("runs", "seconds", "most", "count"),
    [
        (3, 0, 9, 3),  # as many as are asked for, whatever the time
        (1, 100, 4, 4),  # more while there is time, up to the most
        (1, 7, 99, 3),  # two looks at the clock a run, and one before the next
        (0, 0, 9, 0),
        (5, 100, 2, 5),
    ],
)
def test_runs_are_repeated(
    runs: int, seconds: float, most: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened()
    feeds = sent()
    monkeypatch.setattr(_worker, "time", Clock())
    request = {"id": 1, "feeds": feeds, "runs": runs, "seconds": seconds, "most": most}
    assert _worker._time(request)["seconds"] == [1.0] * count
    assert _worker.gc.isenabled()


def test_a_session_is_closed_once(tmp_path: Path) -> None:
    opened(profile=str(tmp_path / "profile"))
    run()
    profile = _worker._close({"id": 1, "profile": True})["profile"]
    assert Path(profile).exists()
    assert _worker._sessions == {}
    assert _worker._close({"id": 1, "profile": True}) == {"profile": ""}
    opened()
    assert _worker._close({"id": 1}) == {"profile": ""}


def test_a_function_of_graphfix_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("called")
    module.work = lambda text, arrays: {text: arrays["x"] + 1}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "called", module)
    answer = _worker._call({"function": "called:work", "text": "y", "feeds": sent()})
    arrays = _wire.take(_worker._open_array_file(), answer["arrays"])
    np.testing.assert_array_equal(arrays["y"], FEEDS["x"] + 1)


def test_outputs_that_do_not_fit_into_memory() -> None:
    opened()
    if sys.platform == "linux":
        with pytest.raises(MemoryError, match=r"outputs of 0\.0 GB"):
            run(memory=48 * 3 - 1)
    assert run(memory=1 << 40)[1].keys() == {"y", "z"}


def test_words_of_an_error() -> None:
    assert _worker._error_text(ValueError("why")) == "why"
    error = UnicodeDecodeError("utf-8", b"caf\xe9", 3, 4, "invalid")
    assert _worker._error_text(error).startswith("caf")


def test_a_path_that_can_be_opened() -> None:
    assert _worker._can_open_path("a.onnx")
    assert not _worker._can_open_path("\udcff.onnx")


@pytest.mark.parametrize("platform", ["win32", "linux"])
def test_each_request_is_answered_by_a_line(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if platform == "linux" and sys.platform == "win32":
        pytest.skip("it ends the process otherwise")
    requests: list[dict[str, Any]] = [
        {"verb": "hello"},
        {"verb": "no-such-verb"},
        {"verb": "close", "id": 1, "forget": [7, 8]},
        {"verb": "run", "id": 3, "feeds": [], "outputs": [], "bind": False},
    ]
    _worker._sessions[7] = "a session"
    ended: list[int] = []
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(json.dumps(x) + "\n" for x in requests)))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(_worker.os, "_exit", ended.append)
    monkeypatch.setattr(sys, "platform", platform)
    _worker.main()
    lines = out.getvalue().splitlines()
    assert all(x.startswith("mark:") for x in lines)
    first, second, third, fourth = (json.loads(x.removeprefix("mark:")) for x in lines)
    assert first["onnxruntime"] == onnxruntime.__version__
    assert second == {"error": "'no-such-verb'"}
    assert third == {"profile": ""}
    assert fourth == {"error": "3"}
    assert 7 not in _worker._sessions
    # Whoever ends in the middle of a run is followed; else the process ends by itself.
    assert ended in (([0], [1, 0]) if platform == "linux" else ([],))
