"""graphfix bench: what it runs and says; never how long it took."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import onnx
import pytest

from graphfix.benchmark.bench import bench
from graphfix.benchmark.outcome import AS_IT_IS, FIXED, PHASES, Benchmark, Result, Setup, Timed
from graphfix.benchmark.timing import Ratio, Timing
from graphfix.cli import main
from graphfix.cli._benchmark import show
from graphfix.runtime import process, provider, python

HEAD = '<ir_version: 8, opset_import: ["": 18]>\n'
# Those of one shape are timed in one setup only, which takes half as long.
MODELS = {
    "one": "g (float[8, 4] x) => (float[8, 4] y) { y = Relu (x) }",
    "a": "g (float[T, 4] x) => (float[T, 4] y) { y = Relu (x) }",
    "b": "g (float[T, 4] x) => (float[T, 4] y) { n = Neg (x) m = Neg (n) y = Relu (m) }",
    "wrong": "g (float[8, 4] x) => (float[8, 4] y) { y = Neg (x) }",
    "half": "g (float16[8, 4] x) => (float16[8, 4] y) { y = Relu (x) }",
    "added": "g (float[8, 4] x, float[1] more) => (float[8, 4] y) "
    "{ a = Add (x, more) s = Sub (a, more) y = Relu (s) }",
    "noise": "g (float[8, 4] x) => (float[8, 4] y) "
    "{ n = RandomNormalLike (x) a = Add (x, n) y = Relu (a) }",
    "noise2": "g (float[8, 4] x) => (float[8, 4] y) "
    "{ n = RandomNormalLike (x) a = Add (n, x) y = Relu (a) }",
    "louder": "g (float[8, 4] x) => (float[8, 4] y) "
    "{ n = RandomNormalLike <scale = 2.0> (x) a = Add (x, n) y = Relu (a) }",
    # The smallest integer divided by -1: the processor raises, and the process is gone.
    "killer": """g (float[T, 4] x) => (float[T, 4] y) <int64[1] least = {-9223372036854775808}> {
        r = Relu (x)  s = Shape (r)  z = Sub (s, s)  h = Neg (s)  one = Div (h, s)
        [fatal] d = Div (least, one)  i = Mul (d, z)  f = CastLike (i, r)
        m = ReduceSum <keepdims = 0> (f)  y = Add (r, m) }""",
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    for name, text in MODELS.items():
        onnx.save(onnx.parser.parse_model(HEAD + text), tmp_path / f"{name}.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.delenv(python.COMMAND, raising=False)
    monkeypatch.setenv(python.HOME, str(tmp_path))
    monkeypatch.setattr(python, "native", lambda: False)
    yield
    process.stop_all()


def timed(*models: str, **options: object) -> Benchmark:
    given = {"ep": "cpu", "runs": 2, "sessions": 1, **options}
    return bench([f"{x}.onnx" for x in models], **given)  # type: ignore[arg-type]


def test_two_that_are_the_same() -> None:
    done = timed("a", "b", dims={"T": 8}, other={"T": 6}, buckets={"T": [3, 5]}, runs=4, sessions=2)
    assert done.ok
    assert done.ep == "cpu"
    assert (done.dims, done.other) == ({"T": 8}, {"T": 6})
    assert [x.name for x in done.setups] == [AS_IT_IS, FIXED, "bucket T=3", "bucket T=5"]
    assert [x.dims for x in done.setups] == [{"T": 8}, {"T": 8}, {"T": 3}, {"T": 5}]
    wanted = {"session": 2, "first run": 2, "steady": 4, "other shape": 2, "back": 2}
    for one in done.models:
        for name, result in one.results.items():
            counts = {name: len(timing.seconds) for name, timing in result.phases.items()}
            fixed = {**wanted, "other shape": 0, "back": 0}
            assert counts == (wanted if name == AS_IT_IS else fixed)
            assert result.peak_memory
    first, second = done.models
    low, high = second.interval or (1.0, 0.0)
    assert low <= (second.ratio or 0) <= high
    assert first.ratio is None
    json.dumps(done.to_json())


def test_what_ran_where_is_said() -> None:
    result = timed("wrong").models[0].results[AS_IT_IS]
    assert result.placed.counts == {"CPUExecutionProvider": 1}
    assert [node.op for node in result.placed.nodes] == ["Neg"]
    assert (result.placed.fused, result.placed.copies) == (0, 0)


def test_a_wrong_graph_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--ep", "cpu", "--runs", "1", "--sessions", "1"]
    assert main(["bench", "one.onnx", "wrong.onnx", *arguments]) == 1
    assert "wrong.onnx: output 'y' differs" in " ".join(capsys.readouterr().err.split())


def test_half_models_get_half_feeds_also_beside_a_whole_one() -> None:
    assert timed("half").ok
    assert timed("one", "half").ok


def test_a_model_of_one_size_sets_the_size_and_is_left_out_at_others() -> None:
    done = timed("a", "one", buckets={"T": [3]})
    assert done.ok
    assert done.dims == {"T": 8}
    whole, fixed = done.models
    assert whole.results[AS_IT_IS].phases["other shape"].seconds
    assert not fixed.results[AS_IT_IS].phases["other shape"].seconds
    assert "bucket T=3" in whole.results
    assert "bucket T=3" not in fixed.results
    assert any("T=3" in note for note in fixed.notes)
    done = timed("a", "one", dims={"T": 5})
    assert done.models[0].ok
    assert done.models[1].error == "it does not take T=5"


def test_a_model_with_another_input_is_fed_by_what_its_pass_says() -> None:
    more = np.ones(1, np.float32)
    assert timed("one", "added", map_feeds=[None, lambda old: {**old, "more": more}]).ok
    done = timed("one", "added")
    assert not done.ok
    assert "its input 'more'" in done.models[1].error


def test_models_that_draw_random_numbers_draw_the_same() -> None:
    assert timed("noise", "noise2", sessions=2).ok
    assert "differs" in timed("noise", "louder").models[1].results[AS_IT_IS].failure


def test_a_graph_that_kills_the_process_is_a_result_and_the_others_are_timed() -> None:
    done = timed("a", "killer", runs=3)
    good, bad = done.models
    assert good.ok
    assert len(good.phases["steady"].seconds) == 3
    assert "the process died while running the model" in bad.error
    assert bad.error.endswith("it dies at node 'fatal' (Div)")


def test_inputs_and_outputs_may_be_bound_to_the_device() -> None:
    done = timed("one", io_binding=True)
    assert done.ok
    assert done.bound


@pytest.mark.parametrize("ep", ["dml", "cuda"])
def test_what_is_not_to_be_had_is_refused_with_how_to_get_it(
    ep: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if provider.PROVIDERS["cuda"] in provider.available():
        pytest.skip("this Python has CUDA")
    assert main(["bench", "a.onnx", "--ep", ep]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert {"dml": "make dml", "cuda": "pip install onnxruntime-gpu"}[ep] in told


def test_a_cpu_run_is_not_called_a_directml_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "a.onnx", "--runs", "1", "--sessions", "1"]) == 0
    told = capsys.readouterr()
    assert "on the CPU, not on DirectML" in told.err
    lines = [line for line in told.out.splitlines() if " ms" in line]
    assert len(lines) == 5 + 3
    assert all("CPU" in line for line in lines)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_it_fits_the_terminal(
    count: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    setup = Setup(AS_IT_IS, {"T": 500}, {"T": 480})
    models = [Timed(f"{'folder/' * 20}model{i}.onnx") for i in range(count)]
    for i, one in enumerate(models):
        phases = {x: Timing([0.0001, 12.3456 * (i + 1), 9.999]) for x in PHASES}
        ratios = {x: Ratio(123.456, 0.1, 1234.5, 0.978, 10) for x in PHASES} if i else {}
        one.results[AS_IT_IS] = Result(phases, ratios, peak_memory=1 << 40, gpu_reason="no " * 40)
    show(Benchmark("dml", "", {"adapter": "A card " * 20}, [setup], models), verbose=True)
    lines = capsys.readouterr().out.splitlines()
    assert max(len(x) for x in lines if "folder" not in x) <= 80
    assert sum("steady " in x for x in lines) == {1: 1, 2: 1, 3: 2}[count]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--ep", "cpu", "--runs", "2", "--sessions", "1", "--json"]
    assert main(["bench", "one.onnx", *arguments]) == 0
    data = json.loads(capsys.readouterr().out)
    found = data["models"][0]["setups"][AS_IT_IS]
    assert found["phases"]["steady"]["runs"] == 2
    assert found["placement"]["nodes"][0]["provider"] == "CPUExecutionProvider"
    assert data["about"]["clock"]


@pytest.mark.parametrize(
    "wrong",
    [["--runs", "0"], ["--sessions", "0"], ["--dims", "T=1,2"], ["--dims", "nope=3"]],
)
def test_wrong_usage(wrong: list[str]) -> None:
    assert main(["bench", "a.onnx", "--ep", "cpu", *wrong]) == 2
