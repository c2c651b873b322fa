"""graphfix zoo: recipes read strictly, work done once, failures that stay alone."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from graphfix.benchmark import bench
from graphfix.benchmark.timing import Timing, compare_timings
from graphfix.cli import main
from graphfix.errors import ModelError, UsageError
from graphfix.model_zoo import cache, clock, model_process, stages, zoo
from graphfix.model_zoo.figures import FIGURES, count_dynamic_reshapes, count_mask_wheres
from graphfix.model_zoo.model_process import Request, read_request
from graphfix.model_zoo.recipe import Recipe, find_recipes
from graphfix.model_zoo.zoo_job import ZooJob
from graphfix.providers.table import variable_of
from graphfix.runtime import process, python

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'
HEADS = (
    HEAD
    + """heads (float[B, T, 32] x) => (float[B, T, 2, 16] y)
<int64 first = {0}, int64 second = {1}, int64[1] axis = {0}, int64[1] h = {2}, int64[1] d = {16}> {
    shape = Shape (x)
    b = Gather (shape, first)  b1 = Unsqueeze (b, axis)
    t = Gather (shape, second)  t1 = Unsqueeze (t, axis)
    target = Concat <axis = 0> (b1, t1, h, d)
    y = Reshape (x, target) }"""
)
RELU = HEAD + "g (float[T, 4] x) => (float[T, 4] y) { y = Relu (x) }"
MASKED = (
    HEAD
    + """m (float[T, 4] x, bool[T, 4] hidden) => (float[T, 4] y)
<float low = {-10000.0}, float zero = {0.0}> {
    a = Where (hidden, low, x)  b = Mul (a, a)  p = Softmax (b)
    y = Where (hidden, zero, p) }"""
)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv(variable_of("dml"), raising=False)
    monkeypatch.setenv(variable_of("dml", "HOME"), str(tmp_path))
    monkeypatch.setattr(python, "has_provider", lambda ep: ep == "cpu")
    # What takes its time has its own tests.
    monkeypatch.setattr(bench, "EFFORT", dict.fromkeys(bench.EFFORT, bench.Effort(1, 1, 0.0)))


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The models that were worked on; in this process, which has its imports behind it."""
    monkeypatch.setattr(clock, "_ratio_file", lambda ep: tmp_path / f"clock.{ep}.json")
    names: list[str] = []

    def here(request: Request, tell: Callable[[str], None]) -> dict[str, Any]:
        del tell
        names.append(request.recipe.id)
        return model_process.run_request(request)

    monkeypatch.setattr(zoo, "run_in_process", here)
    return names


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without bench, which starts a dozen processes a model: 19 of each 20 seconds here."""
    monkeypatch.setattr(stages, "STAGES", tuple(x for x in stages.STAGES if x.name != "bench"))


def model(name: str, text: str = RELU, recipe: str | None = "") -> Path:
    """``models/NAME`` with its recipe, or ``models/NAME.onnx`` without one."""
    folder = Path("models") / name if recipe is not None else Path("models")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ("model.onnx" if recipe is not None else f"{name}.onnx")
    onnx.save(onnx.parser.parse_model(text), path)
    if recipe is not None:
        (folder / "model.toml").write_text(recipe, encoding="utf-8")
    return path


def row_of(name: str) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(Path(f"build/zoo/{name}.json").read_text(encoding="utf-8"))
    return row


def test_progress_names_each_model_and_what_is_done_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Several at a time, each in its process, which says where it is."""
    model("a")
    model("b")
    told: list[str] = []
    zoo.zoo(Path("models"), jobs=2, progress=told.append)
    stages_of_a = [x for y in told for x in y.splitlines() if x.startswith("model 1 of 2, a: ")]
    assert any(x.endswith(": starting") for x in stages_of_a)
    assert any(x.partition(": ")[2] != "starting" for x in stages_of_a)
    assert any(len(x.splitlines()) == 2 for x in told)


class TestRecipes:
    def test_what_is_not_said_has_a_default(self) -> None:
        path = model("a")
        assert find_recipes(Path("models")) == [Recipe("a", path)]

    def test_all_of_it(self) -> None:
        model(
            "a",
            recipe="""name = "A"
            passes = "reshape-allowzero"
            [dims]
            T = [1, 7]
            [feeds]
            notes = "any"
            [tolerance]
            max_abs = 1e-5
            [expect.repairs]
            unflatten-heads = 8
            [expect.near-misses]
            [gates]
            ratio = 1.5
            [bench]
            processes = 7
            dims = { T = 8 }
            runs = 3
            """,
        )
        found = find_recipes(Path("models"))[0]
        assert (found.name, found.passes, found.dims) == ("A", "reshape-allowzero", {"T": [1, 7]})
        assert (found.repairs, found.near_misses, found.findings) == (
            {"unflatten-heads": 8},
            {},
            None,
        )
        assert (found.tolerance, found.gates) == ({"max_abs": 1e-5}, {"ratio": 1.5})
        assert found.bench == {"dims": {"T": 8}, "processes": 7, "runs": 3}

    def test_the_one_in_the_docs(self) -> None:
        page = (Path(__file__).parents[2] / "docs/zoo.md").read_text(encoding="utf-8")
        text = page.partition("<!-- tested: recipe -->\n```toml\n")[2].partition("```")[0]
        folder = model("a", recipe=text).parent
        (folder / "inputs.npz").write_bytes(b"")
        found = find_recipes(Path("models"))[0]
        assert found.feeds == folder / "inputs.npz"
        assert found.gates == {"dynamic-reshapes": 0, "ratio": 1.05}

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("nmae = 'x'", "nmae is no key of a recipe; did you mean 'name'?"),
            ("[expect.repair]", "expect.repair is no key of a recipe; did you mean 'repairs'?"),
            ("[gates]\nspeed = 1", "gates.speed is no key of a recipe. Known are crashes"),
            ("name = 3", "name must be text, not 3"),
            ("dims = 3", "dims must be a table, [dims], not 3"),
            ("[dims]\nT = 3", "dims.T must be a list of sizes such as [1, 7], not 3"),
            ("[dims]\nT = [0]", "dims.T must be a whole number, 1 or more, not [0]"),
            ("[dims]\nT = []", "dims.T must be a list of sizes"),
            (
                "[tolerance]\nmax_abs = '1'",
                "tolerance.max_abs must be a number, 0 or more, not '1'",
            ),
            ("[tolerance]\ncosine = nan", "tolerance.cosine must be a number"),
            ("[expect.repairs]\na = -1", "expect.repairs.a must be a whole number, 0 or more"),
            ("[expect.repairs]\na = true", "expect.repairs.a must be a whole number, 0 or more"),
            ("[bench]\nruns = 0", "bench.runs must be a whole number, 1 or more, not 0"),
            ("[bench.dims]\nT = [8]", "bench.dims.T must be a whole number, 1 or more"),
            ("model = 'b.onnx'", "model is 'b.onnx', and there is no such file beside it"),
            ("[feeds]\nfile = 'in.npz'", "feeds.file is 'in.npz', and there is no such file"),
            ("name = ", "is no TOML"),
            pytest.param("x = " + "[" * 3000, "its brackets go too deep", id="deep"),
            pytest.param("[dims]\nT = [" + "9" * 5000 + "]", "is no TOML: Exceeds", id="digits"),
        ],
    )
    def test_what_does_not_fit_is_named(
        self, text: str, says: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        model("a", recipe=text)
        model("b")
        assert main(["zoo"]) == 2
        told = " ".join(capsys.readouterr().err.split())
        assert f"{Path('models/a/model.toml')}: " in told
        assert says in told
        assert not Path("build").exists()

    def test_a_byte_order_mark_is_no_part_of_it(self) -> None:
        model("a", recipe="\ufeffname = 'Ö'")
        assert find_recipes(Path("models"))[0].name == "Ö"

    def test_all_that_is_wrong_is_told_at_once(self) -> None:
        model("a", recipe="x = 1")
        model("b", recipe="y = 1")
        one, other = (re.escape(str(Path("models", x, "model.toml"))) for x in "ab")
        with pytest.raises(UsageError, match=f"{one}: x is no key.*{other}: y is no key"):
            find_recipes(Path("models"))

    def test_passes_that_there_are_not(self, capsys: pytest.CaptureFixture[str]) -> None:
        model("a")
        model("b", recipe='passes = "additive-musk"')
        assert main(["zoo"]) == 2
        assert "the recipe of b: there is no pass 'additive-musk'" in capsys.readouterr().err
        assert not Path("build").exists()

    def test_names(self, capsys: pytest.CaptureFixture[str]) -> None:
        model("bert")
        model("llama")
        assert [x.id for x in find_recipes(Path("models"), ["llama"])] == ["llama"]
        assert main(["zoo", "brt"]) == 2
        assert "no model 'brt'; did you mean 'bert'?" in capsys.readouterr().err

    @pytest.mark.parametrize("name", ["nowhere", "."])
    def test_a_folder_without_models(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["zoo", "--models", name]) == 2
        assert name in capsys.readouterr().err

    def test_two_of_one_name(self, capsys: pytest.CaptureFixture[str]) -> None:
        model("a")
        model("a", recipe=None)
        assert main(["zoo"]) == 2
        assert "are both called 'a'; rename one" in capsys.readouterr().err

    def test_two_whose_results_would_be_one_file(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os.path, "normcase", str.lower)  # as on Windows
        model("a")
        model("x").rename("models/A.onnx")
        assert main(["zoo"]) == 2
        assert "are both called" in capsys.readouterr().err

    def test_folders_without_a_recipe(self) -> None:
        for name in ("one/x", "two/y", "two/z", "two/z.fixed"):
            path = model(name.replace("/", "_"), recipe=None)
            Path("models", name).parent.mkdir(exist_ok=True)
            path.rename(Path("models", f"{name}.onnx"))
        assert [x.id for x in find_recipes(Path("models"))] == ["one", "two.y", "two.z"]

    def test_plain_files_and_the_folder_of_one(self) -> None:
        model("c", recipe=None)
        model("a")
        model("c.fixed", recipe=None)
        assert [x.id for x in find_recipes(Path("models"))] == ["a", "c"]
        assert [x.id for x in find_recipes(Path("models/a"))] == ["a"]


class TestFigures:
    def test_masks_and_reshapes_are_counted(self) -> None:
        import onnx_ir as ir

        assert count_mask_wheres(ir.from_onnx_text(MASKED)) == 1
        assert count_mask_wheres(ir.from_onnx_text(HEADS)) == 0
        assert count_dynamic_reshapes(ir.from_onnx_text(HEADS)) == 1

    def test_every_figure_is_measured_by_a_stage(self) -> None:
        assert {name for stage in stages.STAGES for name in stage.measures} == set(FIGURES)


class TestWork:
    def test_a_row_has_what_every_stage_found(self, done: list[str]) -> None:
        model("a", HEADS, "[expect.repairs]\nunflatten-heads = 1\n[gates]\ndynamic-reshapes = 0")
        assert main(["zoo"]) == 0
        row = row_of("a")
        assert row["ok"]
        assert row["figures"]["dynamic-reshapes"] == {"before": 1, "after": 0, "why": ""}
        assert row["figures"]["worst"]["after"] == 0
        why = row["figures"]["ratio"]["why"]
        assert row["figures"]["ratio"]["after"] is None
        assert why.startswith("cannot tell: 1 of the 6 processes")
        assert row["figures"]["crashes"]["why"] == "measured on a device only, such as --ep dml"
        assert row["figures"]["copies"] == {"before": 0, "after": 0, "why": ""}  # predicted
        assert row["stages"]["repair"]["verdict"]["ok"]
        assert row["stages"]["check"]["after"]["left"] == {}
        assert [m["model"] for m in row["stages"]["bench"]["models"]] == ["before", "after"]
        assert {gate["gate"]: gate["ok"] for gate in row["gates"]} == {
            "verified": True,
            "bench": True,
            "expect.repairs": True,
            "dynamic-reshapes": True,
        }

    @pytest.mark.usefixtures("unmeasured")
    @pytest.mark.parametrize(
        ("recipe", "says"),
        [
            ("[expect.repairs]\nunflatten-heads = 2", "unflatten-heads: 1 instead of 2"),
            ("[expect.repairs]\n", "unflatten-heads: 1 instead of 0"),
            ("[expect.findings]\nunflatten-heads = 1", "unflatten-heads: 0 instead of 1"),
            ("[gates]\nnodes = 0", "nodes: 1, at most 0 is allowed"),
            ("[dims]\nQ = [3]", "'Q'"),
        ],
    )
    def test_a_gate_that_is_missed(
        self, recipe: str, says: str, done: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        model("a", HEADS, recipe)
        assert main(["zoo"]) == 1
        assert says in " ".join(capsys.readouterr().out.split())
        assert not row_of("a")["ok"]

    @pytest.mark.usefixtures("unmeasured")
    def test_a_gate_without_a_figure_is_not_judged(self, done: list[str]) -> None:
        model("a", recipe="[gates]\ncrashes = 0")
        assert main(["zoo"]) == 0
        gate = row_of("a")["gates"][-1]
        assert gate["ok"] is None
        assert "--ep dml" in gate["text"]

    def test_a_ratio_has_its_interval_and_is_told_of_enough_processes(
        self, done: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def equal(processes: int, seconds: float) -> Timing:
            return Timing(((seconds,),) * processes)

        claimed = compare_timings(equal(6, 0.5), equal(6, 1.0), equal(6, 1.0))
        monkeypatch.setattr(bench, "compare_timings", lambda *_: claimed)
        model("a", HEADS, "[gates]\nratio = 0.4\n[bench]\nprocesses = 2")
        assert main(["zoo"]) == 1
        row = row_of("a")
        assert row["figures"]["ratio"]["after"] == 0.5
        assert row["figures"]["ratio"]["interval"] == [0.5, 0.5]
        assert row["reason"] == "latency ratio: 0.5, at most 0.4 is allowed"
        before, after = row["stages"]["bench"]["models"]
        assert before["phases"]["steady"]["processes"] == 2
        assert before["copy"]["steady"]["turns"] == 2
        assert after["ratios"]["steady"]["value"] == 0.5

    def test_a_clock_that_told_no_model_from_its_copy_today_is_believed(
        self, done: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        copies: list[bool] = []
        kept = {"value": 1.01, "low": 0.98, "high": 1.03, "confidence": 0.97}

        def measured(*models: Any, copy: bool, **asked: Any) -> bench.Benchmark:
            copies.append(copy)
            return timed(*models, copy=copy, **asked)

        timed = bench.bench
        monkeypatch.setattr(bench, "bench", measured)
        model("a", HEADS, "[bench]\nprocesses = 1")
        assert main(["zoo"]) == 0
        assert clock.load_todays_ratio("cpu") is None  # one process tells nothing
        clock.save_ratio("cpu", {**kept, "low": 1.005})
        assert clock.load_todays_ratio("cpu") is None
        clock.save_ratio("cpu", kept)
        assert clock.load_todays_ratio("dml") is None
        model("a", HEADS, "[bench]\nprocesses = 2")
        assert main(["zoo"]) == 0
        assert copies == [True, False]
        found = row_of("a")["stages"]["bench"]
        assert found["clock"] == {"value": 1.01, "low": 0.98, "high": 1.03}
        assert found["models"][0]["copy"] == {}
        page = Path("build/zoo/index.html").read_text(encoding="utf-8")
        assert "A copy of another model, timed beside it today, took 1.010" in page

    @pytest.mark.parametrize(
        ("seconds", "says"),
        [
            (0.49, "cannot tell"),  # as far from 1 as a copy may be today
            (0.2, "0.20 of the time (0.20 to 0.20)"),
            (1.0, "no difference seen: 1.00 of the time (1.00 to 1.00)"),
        ],
    )
    def test_a_ratio_comes_first_and_is_one_that_the_clock_holds(
        self,
        done: list[str],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        seconds: float,
        says: str,
    ) -> None:
        def equal(each: float) -> Timing:
            return Timing(((each,),) * 6)

        claimed = compare_timings(equal(seconds), equal(1.0), None)
        monkeypatch.setattr(bench, "compare_timings", lambda *_: claimed)
        noisy = {"value": 0.57, "low": 0.4, "high": 1.1, "confidence": 0.97}
        clock.save_ratio("cpu", noisy)
        model("a", HEADS, "[bench]\nprocesses = 1")
        assert main(["zoo"]) == 0
        assert f"a: {says}, " in " ".join(capsys.readouterr().out.split())

    def test_a_careful_clock_refines_the_rows_that_stand(
        self, done: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[tuple[bool, bool, float | None]] = []

        def measured(*models: Any, **given: Any) -> bench.Benchmark:
            asked.append((given["careful"], given["copy"], given["seconds"]))
            return timed(*models, **{**given, "careful": False, "seconds": 0.0})

        timed = bench.bench
        monkeypatch.setattr(bench, "bench", measured)
        clock.save_ratio("cpu", {"value": 1.0, "low": 0.98, "high": 1.03, "confidence": 0.97})
        model("a", HEADS, "[bench]\nprocesses = 1")
        for option, careful in (((), False), (("--careful",), True), ((), True)):
            assert main(["zoo", *option]) == 0
            assert row_of("a")["stages"]["bench"]["careful"] == careful
        assert asked == [(False, False, 0.02), (True, True, None)]
        assert main(["zoo", "--careful"]) == 0
        assert done == ["a", "a"]  # it stands

    def test_all_stages_in_another_python(
        self, done: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # What would have DirectML has the CPU here; tests/dml has the real one.
        other = process.Runner((sys.executable,), provider="CPUExecutionProvider")
        monkeypatch.setattr(python, "find_python", lambda _: other)
        model("a", HEADS, "[gates]\ncpu-nodes = 0\n[bench]\nruns = 1")
        assert main(["zoo", "--ep", "dml"]) == 1
        process.stop_all()
        row = row_of("a")
        assert row["reason"] == "nodes on the CPU: 1, at most 0 is allowed"
        told = {name for name, x in row["stages"].items() if "skipped" in x or "error" in x}
        assert told == {"padding"}  # its recipe does not ask for ilens-mask
        assert row["figures"]["crashes"] == {"before": 0, "after": 0, "why": ""}
        assert row["figures"]["worst"]["before"] == 0
        assert row["figures"]["copies"] == {"before": 0, "after": 0, "why": ""}
        ran = row["stages"]["placement"]["after"]["nodes"]
        assert [(node["op"], node["on"]) for node in ran] == [("Reshape", "cpu")]

    @pytest.mark.usefixtures("unmeasured")
    def test_json(self, done: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        model("b")
        model("a", HEADS)
        assert main(["zoo", "b", "a", "--json"]) == 0
        data = json.loads(capsys.readouterr().out)
        assert data["ok"]
        assert data["rows"] == [row_of("b"), row_of("a")]

    @pytest.mark.usefixtures("unmeasured")
    def test_a_stage_is_one_function_and_one_line(
        self, done: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def more(job: ZooJob) -> dict[str, Any]:
            return {"seen": job.after.is_file(), "figures": {"copies": stages.make_figure(3, 1)}}

        monkeypatch.setattr(stages, "STAGES", (*stages.STAGES, stages.Stage("more", more)))
        model("a", HEADS)
        assert main(["zoo"]) == 0
        assert row_of("a")["stages"]["more"]["seen"]
        assert row_of("a")["figures"]["copies"]["before"] == 3


@pytest.mark.usefixtures("unmeasured")
class TestCache:
    def test_what_did_not_change_is_not_done_again(self, done: list[str]) -> None:
        model("a")
        model("b")
        assert main(["zoo"]) == 0
        first = row_of("a")
        assert main(["zoo"]) == 0
        assert sorted(done) == ["a", "b"]
        assert row_of("a") == first

    @pytest.mark.parametrize("what", ["model", "weights", "recipe", "graphfix"])
    def test_what_changed_is(
        self, what: str, done: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model("a")
        path = model("b")
        if what == "weights":
            with_weights(path, 1.0)
        assert main(["zoo"]) == 0
        done.clear()
        if what == "model":
            model("b", HEADS)
        elif what == "weights":
            with_weights(path, 2.0)
        elif what == "recipe":
            model("b", recipe="[dims]\nT = [3, 4, 5]")
        else:
            monkeypatch.setattr(cache, "hash_sources", lambda: "another")
        assert main(["zoo"]) == 0
        assert done == (["a", "b"] if what == "graphfix" else ["b"])

    def test_force_and_names(self, done: list[str]) -> None:
        model("a")
        model("b")
        assert main(["zoo"]) == 0
        done.clear()
        assert main(["zoo", "b", "--force"]) == 0
        assert done == ["b"]

    def test_where_it_lies_does_not_matter(self) -> None:
        Path("x").mkdir()
        path = model("a")
        key = cache.key_of(Recipe("a", path), "cpu")
        assert cache.key_of(Recipe("a", path.rename("x/model.onnx")), "cpu") == key
        assert cache.key_of(Recipe("a", Path("x/model.onnx")), "dml") != key

    def test_a_gate_that_was_missed_is_known_too(self, done: list[str]) -> None:
        model("a", HEADS, "[gates]\nnodes = 0")
        assert main(["zoo"]) == 1
        assert main(["zoo"]) == 1
        assert done == ["a"]

    def test_a_spoiled_result_is_made_again(self, done: list[str]) -> None:
        model("a")
        assert main(["zoo"]) == 0
        Path("build/zoo/a.json").write_text("{", encoding="utf-8")
        assert main(["zoo"]) == 0
        assert done == ["a", "a"]


class TestFailures:
    def test_one_stops_no_other(self, done: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        model("a", HEADS)
        model("b").write_bytes(b"this is no model")
        model("c", recipe=None)
        assert main(["zoo"]) == 1
        out = " ".join(capsys.readouterr().out.split())
        assert "1 of 3 are not as they should be: b" in out
        assert [row_of(x)["ok"] for x in "abc"] == [True, False, True]
        assert str(Path("b/model.onnx")) in row_of("b")["reason"]
        assert row_of("b")["stages"]["bench"]["skipped"] == "there is no repaired model"
        (gate,) = row_of("b")["gates"]  # not one for each stage that reads it
        assert gate["text"].startswith("repair, check: ")

    @pytest.mark.usefixtures("unmeasured")
    def test_a_fault_in_a_stage_is_a_reason(
        self, done: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(_: stages.ZooJob) -> dict[str, Any]:
            raise ZeroDivisionError("oh")

        monkeypatch.setattr(stages, "STAGES", (*stages.STAGES, stages.Stage("x", broken)))
        model("a")
        assert main(["zoo"]) == 1
        assert row_of("a")["reason"] == "x: unexpected ZeroDivisionError: oh"

    def test_a_killed_process_is_a_row_and_is_tried_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if sys.platform == "win32":  # who is killed there has the number that the killer gives
            script, code = Path("dies.bat").resolve(), 9
            text = "@echo off\r\necho out of memory>&2\r\nexit 9\r\n"
        else:
            script, code = Path("dies.sh").resolve(), -9
            text = "#!/bin/sh\necho out of memory >&2\nkill -9 $$\n"
        script.write_text(text, encoding="utf-8", newline="")
        script.chmod(0o755)
        model("a", recipe="[bench]\nprocesses = 1")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", str(script))
            assert main(["zoo"]) == 1
        assert row_of("a")["reason"] == f"its process died, exit code {code}: out of memory"
        assert main(["zoo"]) == 0  # a process of its own, for real
        assert row_of("a")["ok"]

    def test_an_interrupt_between_two_locks_is_one(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def wait(*_: object) -> None:
            try:
                raise KeyboardInterrupt
            finally:
                raise RuntimeError("release unlocked lock")

        monkeypatch.setattr("graphfix.model_zoo.zoo.wait", wait)
        model("a")
        assert main(["zoo"]) == 130
        assert "interrupted; 0 results in" in " ".join(capsys.readouterr().err.split())

    def test_directml_that_is_not_there(self, capsys: pytest.CaptureFixture[str]) -> None:
        model("a")
        assert main(["zoo", "--ep", "dml"]) == 2
        assert "make dml" in capsys.readouterr().err
        assert not Path("build").exists()

    @pytest.mark.parametrize("below", ["", "deeper"])
    def test_results_that_have_no_place_are_told_before_any_work(
        self, below: str, done: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        model("a")
        Path("file").touch()
        assert main(["zoo", "--out", str(Path("file") / below)]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert said.startswith("graphfix: error: --out file")
        assert said.endswith("; name a folder for the results")
        assert not done

    def test_wrong_usage(self) -> None:
        model("a")
        assert main(["zoo", "-j", "0"]) == 2


class TestRequests:
    def test_models_travel_with_their_weights(self, tmp_path: Path) -> None:
        path = model("a")
        with_weights(path, 1.0)
        sent = Request(Recipe("a", path), "cpu", "k").to_send()
        assert set(sent["contents"]) == {"model.onnx", "w.bin"}
        got = read_request(sent, tmp_path / "there")
        assert got.recipe.model == tmp_path / "there/model.onnx"
        assert {x.name: x.read_bytes() for x in got.recipe.files} == sent["contents"]

    def test_paths_of_another_system_do_not_matter(self, tmp_path: Path) -> None:
        sent = Request(Recipe("a", model("a")), "cpu", "k").to_send()
        assert sent["recipe"]["model"] == "model.onnx"
        assert read_request(sent, tmp_path / "there").recipe.model.read_bytes()

    def test_links_and_what_lies_elsewhere(
        self, tmp_path: Path, symlink: Callable[[Path, Path], None]
    ) -> None:
        path = model("a")
        link = tmp_path / "models" / "link.onnx"
        symlink(link, path.resolve())
        sent = Request(Recipe("link", link), "cpu", "k").to_send()
        assert read_request(sent, tmp_path / "there").recipe.model.name == "link.onnx"
        feeds = tmp_path / "in.npz"
        feeds.write_bytes(b"")
        sent = Request(Recipe("a", path.absolute(), feeds=feeds), "cpu", "k").to_send()
        assert "contents" not in sent

    def test_a_large_one_must_be_there(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(model_process, "TRAVELS", 10)
        path = model("a")
        sent = Request(Recipe("a", path), "cpu", "k").to_send()
        assert "contents" not in sent
        assert read_request(sent, tmp_path / "there").recipe.model == path.resolve()
        path.unlink()
        with pytest.raises(ModelError, match="too large to be sent"):
            read_request(sent, tmp_path / "there")


def with_weights(path: Path, value: float) -> None:
    """A model with an external weight of that value."""
    text = "g (float[T, 4] x) => (float[T, 4] y) <float[4] w = {1, 2, 3, 4}> { y = Mul (x, w) }"
    proto = onnx.parser.parse_model(HEAD + text)
    array = np.full(4, value, np.float32)
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(array, "w"))
    (path.parent / "w.bin").unlink(missing_ok=True)
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
