"""graphfix bench: what it runs and says; never how long it took."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from graphfix.benchmark import bench as module
from graphfix.benchmark import places
from graphfix.benchmark.bench import bench
from graphfix.benchmark.bench_result import (
    AS_IT_IS,
    FIRST,
    FIXED,
    MEMORY,
    PHASES,
    SESSION,
    STEADY,
    Benchmark,
    Result,
    Setup,
    Timed,
)
from graphfix.benchmark.candidate import Entrant
from graphfix.benchmark.interleave import Course, FailedError
from graphfix.benchmark.timed_process import Trial
from graphfix.benchmark.timing import Claim, Ratio, Timing
from graphfix.cli import main
from graphfix.cli._benchmark import print_benchmark
from graphfix.errors import ModelError
from graphfix.providers.table import variable_of
from graphfix.runtime import process, python

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
    monkeypatch.delenv(variable_of("dml"), raising=False)
    monkeypatch.setenv(variable_of("dml", "HOME"), str(tmp_path))
    monkeypatch.setattr(python, "has_provider", lambda ep: ep == "cpu")
    yield
    process.stop_all()


def timed(*models: str, **options: object) -> Benchmark:
    given = {"ep": "cpu", "processes": 1, "runs": 2, "seconds": 0.0, **options}
    return bench([f"{x}.onnx" for x in models], **given)  # type: ignore[arg-type]


def test_two_that_are_the_same() -> None:
    done = timed("a", "b", dims={"T": 8}, other={"T": 6}, runs=4, processes=2)
    assert done.ok
    assert done.ep == "cpu"
    assert (done.dims, done.other) == ({"T": 8}, {"T": 6})
    assert [x.name for x in done.setups] == [AS_IT_IS, FIXED]
    assert [x.dims for x in done.setups] == [{"T": 8}, {"T": 8}]
    wanted = {"session": 1, "first run": 1, "new length": 1, "steady": 4}
    wanted |= {"other shape": 2, "back": 2}
    for one in done.models:
        for name, result in one.results.items():
            runs = {phase: [len(x) for x in t.processes] for phase, t in result.phases.items()}
            phases = PHASES if name == AS_IT_IS else (SESSION, FIRST, STEADY)
            assert runs == {phase: [wanted[phase]] * 2 for phase in phases}
            assert len(result.memory) == 2
            assert result.peak_memory
    first, second = (x.results[AS_IT_IS] for x in done.models)
    assert first.copy.keys() == second.claims.keys() == {*PHASES, MEMORY}
    assert not first.claims
    assert not second.copy
    json.dumps(done.to_json())


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The models that each process has made sessions of, in order; none is ever started.

    Each model takes as many seconds as its name is long.
    """
    started: list[list[str]] = []

    def alone(_: Trial, entrant: Entrant) -> dict[str, tuple[float, ...]]:
        name = Path(str(entrant.source)).stem
        started.append([name])
        return {phase: (float(len(name)),) for phase in PHASES}

    monkeypatch.setattr(module, "time_in_process", alone)
    return started


def test_a_copy_of_the_first_model_takes_part_in_every_turn(processes: list[list[str]]) -> None:
    done = timed("one", "wrong", processes=20)
    turns = [[name for (name,) in processes[i : i + 3]] for i in range(0, 60, 3)]
    assert all(sorted(turn) == ["one", "one", "wrong"] for turn in turns)
    assert {turn.index("wrong") for turn in turns} == {0, 1, 2}
    first, second = (x.results[AS_IT_IS] for x in done.models)
    assert first.copy["steady"].value == 1
    claimed = second.claims["steady"]
    assert claimed.ratio is not None
    assert claimed.ratio.value == pytest.approx(5 / 3)
    assert done.models[1].claim == claimed


def test_no_copy_takes_part_where_the_clock_is_known(processes: list[list[str]]) -> None:
    done = timed("one", "wrong", processes=6, copy=False)
    assert sorted(name for (name,) in processes) == ["one"] * 6 + ["wrong"] * 6
    assert done.models[0].results[AS_IT_IS].copy == {}
    assert done.models[1].claim is not None
    assert done.models[1].claim.ratio is not None


def test_a_model_by_itself_needs_no_copy(processes: list[list[str]]) -> None:
    done = timed("one", processes=6)
    assert processes == [["one"]] * 6
    assert not done.models[0].results[AS_IT_IS].copy


@pytest.fixture
def two_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs on WebGPU runs on the CPU here; DirectML is unavailable."""
    runner = python.runner_for("cpu")

    def runner_of(ep: str) -> process.Runner:
        return python.find_python("dml") if ep == "dml" else runner

    for place in (module, places):
        monkeypatch.setattr(place, "runner_for", runner_of)


def test_each_model_runs_on_each_provider_in_the_same_turns(
    two_providers: None, processes: list[list[str]]
) -> None:
    done = timed("one", "wrong", ep=("cpu", "dml", "webgpu"), processes=20)
    assert (done.ep, done.providers) == ("cpu", ("cpu", "webgpu"))
    assert done.missing.keys() == {"dml"}
    assert "make dml" in done.missing["dml"]
    assert [(x.model, x.ep) for x in done.models] == [
        ("one.onnx", "cpu"), ("one.onnx", "webgpu"), ("wrong.onnx", "cpu"), ("wrong.onnx", "webgpu")
    ]  # fmt: skip
    turns = [sorted(name for (name,) in processes[i : i + 5]) for i in range(0, 100, 5)]
    assert turns == [["one", "one", "one", "wrong", "wrong"]] * 20
    base, other, *wrong = (x.results[AS_IT_IS] for x in done.models)
    assert base.copy[STEADY].value == 1
    assert not base.claims
    assert other.claims[STEADY].ratio is not None
    assert other.claims[STEADY].ratio.value == 1
    assert [x.ok for x in done.models] == [True, True, False, False]
    assert all(x.claims[STEADY].ratio is not None for x in wrong)
    assert str(done).startswith(
        "one.onnx, wrong.onnx on cpu, webgpu; failed: wrong.onnx on the CPU"
    )
    data = json.loads(json.dumps(done.to_json()))
    assert [x["ep"] for x in data["models"]] == ["cpu", "webgpu"] * 2
    assert (data["also"].keys(), data["missing"].keys()) == ({"webgpu"}, {"dml"})


def test_several_providers_on_the_command_line(
    two_providers: None, processes: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "one.onnx", "--ep", "webgpu,cpu,dml,cpu"]) == 0
    told = capsys.readouterr()
    assert "without DirectML: DirectML is unavailable here" in " ".join(told.err.split())
    assert "  A         one.onnx on WebGPU\n  B         one.onnx on the CPU\n" in told.out
    assert processes == [["one"]] * 6 * 3  # each, and the copy of A


@pytest.mark.parametrize(
    ("ep", "says"),
    [
        ("dml,cuda", "there is no provider to time on: DirectML is unavailable here"),
        ("cpu,auto", "auto is one provider; name those that are compared"),
        ("cpu,gpu", "'gpu' is not one of 'cpu', 'dml'"),
        ("cpu,", "'' is not one of"),
    ],
)
def test_providers_of_which_none_is_there_or_one_is_none(
    ep: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "one.onnx", "--ep", ep]) == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_a_stream_is_timed_on_one_provider(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--ship", "x", "--against", "one.onnx", "--ep", "cpu,dml"]) == 2
    assert "--ship DIR is timed on one provider" in capsys.readouterr().err


@pytest.mark.parametrize("nth", [1, 2, 7])
def test_a_model_whose_process_dies_at_one_turn_says_so_and_claims_nothing(
    nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def alone(_: Trial, entrant: Entrant) -> dict[str, tuple[float, ...]]:
        started.append(Path(str(entrant.source)).stem)
        if started[-1] == "one" and started.count("one") == nth:
            raise FailedError("does not run: the process died")
        return {STEADY: (1.0,)}

    monkeypatch.setattr(module, "time_in_process", alone)
    done = timed("one", "wrong", processes=8)
    first, second = (x.results[AS_IT_IS] for x in done.models)
    assert first.error == "does not run: the process died"  # of the model, or of its copy
    assert not first.copy
    assert not second.claims
    assert len(second.timing_of(STEADY).processes) == 8


def test_dims_need_not_be_fixed(processes: list[list[str]]) -> None:
    assert [x.name for x in timed("a", fixed=False).setups] == [AS_IT_IS]
    assert processes == [["a"]]


def test_the_seed_draws_the_order(processes: list[list[str]]) -> None:
    orders = []
    for seed in (1, 1, 2):
        timed("one", "wrong", processes=9, seed=seed)
        orders.append([*processes])
        processes.clear()
    assert orders[0] == orders[1] != orders[2]


def test_where_a_copy_is_not_1_the_line_says_cannot_tell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unequal(members: list[int], *_: object, turns: int, **__: object) -> list[Course]:
        """The last member, which is the copy, takes twice as long as the others."""
        times = [1.0] * (len(members) - 1) + [2.0]
        return [Course(({STEADY: (seconds,)},) * turns) for seconds in times]

    monkeypatch.setattr(module, "take_turns", unequal)
    arguments = ["bench", "one.onnx", "one.onnx", "--ep", "cpu", "--processes", "8"]
    assert main(arguments) == 0
    said = " ".join(capsys.readouterr().out.split())
    answer = "B / A CPU, any shape, steady: cannot tell: a model beside its own copy took 2.000"
    assert said.startswith(f"A one.onnx B one.onnx {answer}")
    assert "A / A CPU, steady, the copy of A: 2.000 of the time (2.000 to 2.000" in said
    assert "CPU steady 1000 ms 0% 1000 ms 0% ?" in said
    assert main([*arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    first, second = (x["setups"][AS_IT_IS] for x in data["models"])
    assert first["copy"]["steady"]["value"] == 2
    assert second["ratios"]["steady"]["value"] is None
    assert "its own copy" in second["ratios"]["steady"]["cannot_tell"]


def test_a_process_is_of_one_model_and_another_one_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, str, str]] = []
    ask = process.Worker.ask

    def heard(self: process.Worker, request: dict[str, object], *more: Any) -> dict[str, object]:
        asked.append((self._process.pid, str(request["verb"]), str(request.get("model", ""))))
        return ask(self, request, *more)

    monkeypatch.setattr(process.Worker, "ask", heard)
    timed("one", "noise", processes=2)
    timers = {pid for pid, verb, _ in asked if verb == "time"}
    assert len(timers) == 2 * 3  # two turns of both and the copy
    for pid in timers:
        verbs = [(verb, Path(model).name) for x, verb, model in asked if x == pid]
        assert [verb for verb, _ in verbs].count("open") == 2  # what starts the device, first
        assert ("run", "") in verbs[: [v for v, _ in verbs].index("time")]
    # No process begins before the last one has ended its work.
    order = [pid for pid, verb, _ in asked if verb == "time"]
    assert len([pid for pid, before in zip(order, [0, *order], strict=False) if pid != before]) == 6


def test_what_ran_where_is_said() -> None:
    result = timed("wrong").models[0].results[AS_IT_IS]
    assert result.seen.placed.provider_counts == {"CPUExecutionProvider": 1}
    assert [node.op for node in result.seen.placed.nodes] == ["Neg"]
    assert (result.seen.placed.fused_count, result.seen.placed.copy_count) == (0, 0)


def test_a_wrong_graph_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--ep", "cpu", "--runs", "1", "--processes", "1", "--seconds", "0"]
    assert main(["bench", "one.onnx", "wrong.onnx", *arguments]) == 1
    assert "wrong.onnx: output 'y' differs" in " ".join(capsys.readouterr().err.split())


def test_half_models_get_half_feeds_also_beside_a_whole_one() -> None:
    assert timed("half").ok
    assert timed("one", "half").ok


def test_a_model_of_one_size_sets_the_size_and_is_left_out_at_others() -> None:
    done = timed("a", "one")
    assert done.ok
    assert done.dims == {"T": 8}
    whole, fixed = done.models
    assert whole.results[AS_IT_IS].timing_of("other shape").processes
    assert not fixed.results[AS_IT_IS].timing_of("other shape").processes
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
    assert timed("noise", "noise2").ok
    assert "differs" in timed("noise", "louder").models[1].results[AS_IT_IS].failure


def test_a_graph_that_kills_the_process_is_a_result_and_the_others_are_timed() -> None:
    done = timed("a", "killer", processes=2)
    good, bad = done.models
    assert good.ok
    assert len(good.phases["steady"].seconds) == 2
    assert "the process died while running the model" in bad.error
    assert bad.error.endswith("it dies at node 'fatal' (Div)")


def test_a_file_that_is_not_there_ends_it_before_anything_is_timed(
    tmp_path: Path, processes: list[list[str]]
) -> None:
    with pytest.raises(ModelError, match=r"gone\.onnx: no such file"):
        timed("one", "gone")
    (tmp_path / "text.onnx").write_text("no model", encoding="utf-8")
    _, unreadable = timed("one", "text").models
    assert unreadable.results[AS_IT_IS].error.startswith("does not load: ")
    assert processes == [["one"]]


@pytest.mark.parametrize("ep", ["dml", "cuda"])
def test_what_is_not_to_be_had_is_refused_with_how_to_get_it(
    ep: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "a.onnx", "--ep", ep]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert {"dml": "make dml", "cuda": "a Python with onnxruntime-gpu"}[ep] in told


def test_a_cpu_run_is_not_called_a_directml_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "a.onnx", "--processes", "1", "--seconds", "0"]) == 0
    told = capsys.readouterr()
    assert "on the CPU, not on DirectML" in told.err
    lines = [line for line in told.out.splitlines() if " ms" in line or " MiB" in line]
    assert len(lines) == 7 + 4
    assert all("CPU" in line for line in lines)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_it_fits_the_terminal(
    count: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    setup = Setup(AS_IT_IS, {"T": 500}, {"T": 480})
    models: list[Timed] = []
    for i in range(count):
        one = Timed(f"{'folder/' * 20}model{i}.onnx")
        phases = dict.fromkeys(PHASES, Timing(((0.0001,), (12.3456 * (i + 1),), (9.999,))))
        ratio = Ratio(123.456, 1.1, 1234.5, 0.978, 10)
        result = Result(
            phases,
            claims=dict.fromkeys((*PHASES, MEMORY), Claim(ratio)) if i else {},
            copy={} if i else dict.fromkeys(PHASES, ratio),
            memory=(1 << 40,),
        )
        models.append(replace(one, results={AS_IT_IS: result}))
    print_benchmark(
        Benchmark("dml", "", {"adapter": "A card " * 20}, (setup,), tuple(models)), verbose=True
    )
    lines = capsys.readouterr().out.splitlines()
    assert max(len(x) for x in lines if "folder" not in x) <= 80
    assert sum("steady " in x for x in lines) == {1: 1, 2: 1, 3: 2}[count]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--ep", "cpu", "--runs", "2", "--processes", "1", "--seconds", "0", "--json"]
    assert main(["bench", "one.onnx", *arguments]) == 0
    data = json.loads(capsys.readouterr().out)
    found = data["models"][0]["setups"][AS_IT_IS]
    assert found["phases"]["steady"]["runs"] == 2
    assert found["placement"]["nodes"][0]["provider"] == "CPUExecutionProvider"
    assert data["about"]["clock"]


@pytest.mark.parametrize(
    "wrong",
    [
        ["--runs", "0"],
        ["--processes", "0"],
        ["--seconds", "-1"],
        ["--dims", "T=1,2"],
        ["--dims", "nope=3"],
    ],
)
def test_wrong_usage(wrong: list[str]) -> None:
    assert main(["bench", "a.onnx", "--ep", "cpu", *wrong]) == 2
