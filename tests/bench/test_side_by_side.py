"""make compare: what is counted, what is kept, and what the page says of it."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx
import pytest

BENCH = Path(__file__).parents[2] / "bench"
ROOT = BENCH.parent
HEAD = '<ir_version: 8, opset_import: ["": 18]>\n'
WRONG = HEAD + "g (float[T, 4] x) => (float[T, 4] y) { y = Neg (x) }"
RELU = HEAD + "g (float[T, 4] x) => (float[T, 4] y) { y = Relu (x) }"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """bench/side_by_side.py, as it is when it is run."""
    names = ("peers", "steps", "side_by_side_page", "side_by_side", "picture", "clock")
    monkeypatch.syspath_prepend(str(BENCH))
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    import side_by_side  # type: ignore[import-not-found]

    yield side_by_side
    for name in names:
        sys.modules.pop(name, None)


def saved(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(onnx.parser.parse_model(text), folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


def part(scripts: ModuleType, name: str) -> Any:
    assert scripts
    return sys.modules[name]


def compare(scripts: Any, tmp_path: Path, *more: str) -> dict[str, Any]:
    arguments = ["--zoo", str(tmp_path / "zoo"), "--work", str(tmp_path / "work")]
    arguments += ["--peers", str(tmp_path / "none"), "--out", str(tmp_path), *more]
    assert scripts.main(arguments) == 0
    data: dict[str, Any] = json.loads((tmp_path / "docs" / "compare.json").read_text("utf-8"))
    return data


@pytest.mark.process
def test_what_is_known_is_not_done_again(
    scripts: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    saved(tmp_path / "zoo", "a", RELU)
    options = ["--no-dml", "--spec", "mine=cumsum-index", "--spec", "nope"]
    data = compare(scripts, tmp_path, *options)
    heard = capsys.readouterr().err
    assert "graphfix nope is skipped: there is no pass 'nope'" in heard
    assert "onnxslim is skipped: make compare installs it in build/peers" in heard
    assert data["tools"] == ["exported", "graphfix mine"]
    (row,) = data["rows"]
    for tool in data["tools"]:
        found = row["tools"][tool]
        assert found["verify"]["ok"]
        assert found["plan"]["kernels"] == 1
        assert found["time"]["value"] > 0
    assert row["copy"]["value"] > 0
    page = (tmp_path / "docs" / "compare.md").read_text("utf-8")
    assert "| as exported |  | 0 | 0 | 0 |  | 1 | 1.00 (1.00 to 1.00) | 0 | 0 |  |  |" in page

    asked: list[list[str]] = []

    def refused(command: list[str], _: float) -> Any:
        asked.append(command)
        return part(scripts, "steps").Said("", "not now", 2)

    monkeypatch.setattr(scripts, "run", refused)
    assert compare(scripts, tmp_path, *options) == data
    assert asked == []
    saved(tmp_path / "zoo", "a", RELU.replace("Relu", "Abs"))
    compare(scripts, tmp_path, *options)
    assert asked


def test_the_same_seed_draws_the_same_models_of_those_that_load(
    scripts: Any, tmp_path: Path
) -> None:
    paths = {name: saved(tmp_path, name, RELU) for name in "abcdefgh"}
    paths["bad"] = tmp_path / "bad.onnx"
    paths["bad"].write_bytes(b"no model")
    names, drawn = scripts.draw(paths, 4, 7)
    assert scripts.draw(dict(reversed(paths.items())), 4, 7) == (names, drawn)
    assert names == sorted(names)
    assert len({*names}) == 4
    assert drawn == {"of": 8, "seed": 7, "do_not_load": ["bad"]}
    assert scripts.draw(paths, 0, 7)[0] == [*"abcdefgh"]
    assert any(scripts.draw(paths, 4, seed)[0] != names for seed in range(8, 12))


def test_a_tool_that_fails_is_a_result(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = tmp_path / "scripts" / "peers.py"
    peers.parent.mkdir()
    peers.write_text(
        "import sys\nif sys.argv[1] == 'crashes': raise SystemExit('no such thing')\n",
        encoding="utf-8",
    )
    tools = {name: name for name in ("crashes", "idle")}
    monkeypatch.setattr(scripts, "HERE", peers.parent)
    monkeypatch.setattr(scripts.Study, "_stamp", lambda _, tool: tool)
    study = study_with(scripts, tmp_path, tools)
    files = dict(study._make_files("relu", saved(tmp_path / "zoo", "relu", RELU)))
    assert {label: why for label, (_, why) in files.items()} == {
        "exported": "",
        "crashes": "exit code 1: no such thing",
        "idle": "it wrote no file",
    }


def study_with(scripts: Any, tmp_path: Path, tools: dict[str, str], *, dml: bool = False) -> Any:
    store = scripts.Store(tmp_path / "work")
    return scripts.Study(store, tools, Path(sys.executable), {}, 60, dml)


def result(kernels: int, *, runs: bool = True, ok: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "made": True,
        "plan": {"kernels": kernels, "cpu": 2, "copies": 1, "errors": 0 if runs else 3},
        "verify": {"runs": True, "ok": ok},
        "dml": {"runs": runs, "ok": runs and ok},
        **more,
    }


def data_of(*rows: dict[str, Any]) -> dict[str, Any]:
    return {
        "rows": [{"name": str(i), "tools": tools} for i, tools in enumerate(rows)],
        "tools": [*rows[0]],
        "drawn": {"of": len(rows), "seed": 0, "do_not_load": []},
        "limit": 60,
        "dml": "1.24.4",
        "with": {"t": "0.1"},
        "onnxruntime": "1.32.0",
        "machine": "one",
    }


NO_FILE = {"made": False, "why": "no"}


def test_every_column_counts_all_exports(scripts: Any) -> None:
    rejected = {**result(0), "plan": {"kernels": None}, "verify": {"runs": False, "ok": False}}
    rejected["dml"] = rejected["verify"]
    data = data_of(
        {"exported": result(60, runs=False), "t": result(40, ok=False)},
        {"exported": result(40, runs=False), "t": NO_FILE},
        {"exported": result(100), "t": rejected},
    )
    counts = part(scripts, "side_by_side_page").tally(data, "t")
    assert (counts.no_file, counts.invalid, counts.differs) == (1, 1, 1)
    assert counts.fails == 1  # the export that it wrote no file of
    assert (
        counts.did_not_run == 2
    )  # the export that it wrote no file of, and the file that is rejected
    assert (counts.kernels, counts.before) == (40 + 40 + 100, 200)
    assert counts.on_cpu == 6
    assert counts.ratios == [40 / 60, 1, 1]
    assert counts.times is None
    page = part(scripts, "side_by_side_page").page(data)
    assert "| t | 1 | 1 | 1 | 1 | 2 | 180 | 1.00 (0.67 to 1.00) | 6 | 3 |  |  |" in page
    assert "Every column counts all 3 exports" in page


def test_a_file_that_nothing_makes_load_has_one_line_without_its_folder(scripts: Any) -> None:
    bad = {"made": False, "why": "/home/me/zoo/a.onnx failed: no kernel"}
    row = {"name": "a", "tools": {"exported": bad, "slim": bad}}
    wrong = part(scripts, "side_by_side_page")._wrong
    said = list(wrong({"rows": [row], "tools": ["exported", "slim"]}))
    assert said == ["- a, as exported and after every tool: a.onnx failed: no kernel"]
    row["tools"]["exported"] = {"made": True}
    said = list(wrong({"rows": [row], "tools": ["exported", "slim"]}))
    assert said == ["- a, slim: a.onnx failed: no kernel"]


def test_what_a_file_says_of_itself_does_not_make_it_another(scripts: Any, tmp_path: Path) -> None:
    content = part(scripts, "steps").content
    path = saved(tmp_path, "a", RELU)
    plain = content(path)
    model = onnx.load(path)
    onnx.helper.set_model_props(model, {"graphfix": "fold"})
    onnx.save(model, path)
    assert content(path) == plain
    model.graph.node[0].op_type = "Neg"
    onnx.save(model, path)
    assert content(path) != plain


def test_the_file_that_ends_the_process_does_not_take_the_others_with_it(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = part(scripts, "steps").Said
    fine = {"run": {"ok": True, "runs": True, "worst": 0.0, "why": ""}}
    asked: list[list[str]] = []

    def answered(command: list[str], _: float) -> Any:
        names = [Path(x).stem for x in command[4:]]
        asked.append(names)
        told = names[: names.index("b")] if "b" in names else names
        return said("".join(json.dumps(fine) + "\n" for _ in told), "exit code -11: no word", -11)

    monkeypatch.setattr(scripts, "run", answered)
    study = study_with(scripts, tmp_path, {})
    texts = {"a": RELU, "b": WRONG, "c": RELU.replace("Relu", "Abs")}
    files = {name: saved(tmp_path, name, text) for name, text in texts.items()}
    for _ in range(2):
        found = study._judge("dml", files["a"], files)
        assert found["a"] == found["c"] == fine
        assert found["b"]["run"]["why"] == "exit code -11: no word"
    assert asked == [["a", "b", "c"], ["c"]]


def test_a_step_that_hangs_is_ended(scripts: Any) -> None:
    said = part(scripts, "steps").run([sys.executable, "-c", "while True: pass"], 1)
    assert said.why == "it did not end within 1 s"


def test_an_interrupt_ends_all_steps_and_keeps_no_result_of_them(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "peers.py"
    script.write_text("import time\nwhile True: time.sleep(1)\n", encoding="utf-8")
    monkeypatch.setattr(scripts, "HERE", tmp_path)
    monkeypatch.setattr(scripts.Study, "_stamp", lambda _, tool: tool)
    study = study_with(scripts, tmp_path, {"hangs": "hangs"})
    models = {name: saved(tmp_path / "zoo", name, RELU) for name in "abc"}

    study_model = scripts.Study.study_model

    def interrupted(self: Any, name: str, export: Path) -> Any:
        if name == "a":
            time.sleep(1)
            raise KeyboardInterrupt
        return study_model(self, name, export)

    monkeypatch.setattr(scripts.Study, "study_model", interrupted)
    monkeypatch.setattr(part(scripts, "steps"), "_stopped", threading.Event())
    with pytest.raises(KeyboardInterrupt):
        scripts.study_all(study, models, 2, timed=False)
    assert not list(tmp_path.glob("work/known/*"))


def test_what_a_step_has_started_ends_with_it(
    scripts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(120)
        calls = (
            f"import socket; s = socket.create_connection(('127.0.0.1', {server.getsockname()[1]}))"
        )
        starts = (
            "import subprocess, sys; null = subprocess.DEVNULL; subprocess.run([sys.executable, "
            f"'-c', {calls + '; s.recv(1)'!r}], stdin=null, stdout=null, stderr=null)"
        )
        called: list[socket.socket] = []

        class Process(subprocess.Popen[bytes]):
            def communicate(self, *given: Any, **named: Any) -> tuple[bytes, bytes]:
                if not called:  # before the time is over, which is now
                    called.append(server.accept()[0])
                    named["timeout"] = 0
                return super().communicate(*given, **named)

        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "Popen", Process)
            assert (
                "did not end" in part(scripts, "steps").run([sys.executable, "-c", starts], 9).why
            )
        (other,) = called
        with other, contextlib.suppress(ConnectionResetError):
            other.settimeout(20)
            assert other.recv(1) == b"", "it still lives"


def test_files_that_are_right_are_timed_with_a_copy_of_the_export(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def answered(command: list[str], _: float) -> Any:
        commands.append(command[2:])
        if command[2] == "feeds":
            Path(command[-1]).touch()
            return part(scripts, "steps").Said("")
        return part(scripts, "steps").Said(json.dumps([[2.0, 2.1], [1.0, 1.1], [2.0, 2.1]]))

    monkeypatch.setattr(scripts, "run", answered)
    study = study_with(scripts, tmp_path, {"mine": "m", "bad": "b", "none": "n"})
    export = saved(tmp_path, "a", RELU)
    for label in ("mine", "bad"):
        saved(tmp_path / "work" / "made", f"a.{label}", RELU)
    tools = {"exported": result(1), "mine": result(1), "bad": result(1, ok=False), "none": NO_FILE}
    row: dict[str, Any] = {"name": "a", "tools": tools}
    study.add_times(export, row)
    feeds, *runs = commands
    assert feeds[:2] == ["feeds", str(export)]
    assert len(runs) == scripts.TURNS
    mine = str(tmp_path / "work" / "made" / "a.mine.onnx")
    assert {tuple(x[3:]) for x in runs} == {(str(export), mine, str(export))}
    assert row["copy"]["value"] == pytest.approx(1.0, abs=0.01)
    assert tools["mine"]["time"]["value"] == pytest.approx(0.5, abs=0.01)
    assert tools["mine"]["time"]["sure"]
    assert "time" not in tools["bad"]


def test_the_clock_runs_all_files_alternately(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import clock  # type: ignore[import-not-found]

    export = saved(tmp_path, "a", RELU)
    clock.make_feeds(export, tmp_path / "feeds.npz")
    monkeypatch.setattr(clock, "SECONDS", 0)
    seconds = clock.run_alternately(tmp_path / "feeds.npz", [str(export), str(export)], 0)
    assert [len(x) for x in seconds] == [clock.FEWEST] * 2
    assert min(map(min, seconds)) > 0


def test_the_time_on_the_page_is_the_median_over_all_models(scripts: Any) -> None:
    def timed(value: float, *, sure: bool = True) -> dict[str, Any]:
        time = {"value": value, "low": 0.9 * value, "high": 1.05 * value, "sure": sure}
        return result(10, time=time)

    exported = timed(1.0)
    values = [0.5, 0.6, 0.7, 0.8, 0.9, 1.2]
    tools = [*map(timed, values), timed(0.4, sure=False), NO_FILE]
    data = data_of(*({"exported": exported, "t": x} for x in tools))
    for row in data["rows"]:
        row["copy"] = {"value": 1.01}
    page = part(scripts, "side_by_side_page").page(data)
    assert "| 0.75 (0.40 to 1.20) | 5, 1 |" in page  # of eight; the one without a file is 1
    block = part(scripts, "side_by_side_page").readme_block(data)
    assert "a copy of the export took 1.01" in block


def test_the_picture_and_readme_say_what_is_left_and_what_is_broken(
    scripts: Any, tmp_path: Path
) -> None:
    data = data_of(
        {"exported": result(60, runs=False), "t": result(40, ok=False)},
        {"exported": result(40), "t": NO_FILE},
    )
    page = part(scripts, "side_by_side_page")
    assert [page.label(x) for x in page.tallies(data)] == [
        "100, 1 fail",
        "80 (80%), 1 wrong, 1 without a file",
    ]
    block = page.readme_block(data)
    assert "do not run on DirectML" in block
    assert "fail on DirectML, predicted" in page.readme_block({**data, "dml": ""})
    assert "| 2 exports |" in block
    assert "| t 0.1 | 0 | 1 | 80 (80%) |  |" in block
    pytest.importorskip("matplotlib")
    import picture  # type: ignore[import-not-found]

    (tmp_path / "compare.json").write_text(json.dumps(data), encoding="utf-8")
    picture.main(tmp_path)
    drawn = (tmp_path / "compare.svg").read_text(encoding="utf-8")
    assert "<!-- 80 (80%), 1 wrong, 1 without a file -->" in drawn


def test_readme_page_and_picture_are_those_of_the_result(scripts: Any) -> None:
    """Fails where one of them was edited, or where make compare was run and not all committed."""
    data = json.loads((ROOT / "docs" / "compare.json").read_text(encoding="utf-8"))
    page = part(scripts, "side_by_side_page")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert page.into_readme(readme, data) == readme
    assert page.readme_block(data) in readme
    assert page.page(data) == (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
    for name in ("compare.svg", "compare-dark.svg"):
        drawn = (ROOT / "docs" / name).read_text(encoding="utf-8")
        assert [x for x in page.tallies(data) if f"<!-- {page.label(x)} -->" not in drawn] == []
