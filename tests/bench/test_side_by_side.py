"""make compare: what is counted, what is kept, and what the page says of it."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx
import pytest

BENCH = Path(__file__).parents[2] / "bench"
HEAD = '<ir_version: 8, opset_import: ["": 18, "com.microsoft": 1]>\n'
ATTENTION = (
    HEAD
    + """g (float[B, T, 4] q, float[B, T, 4] k) => (float[B, T, 4] y) {
    t = Transpose <perm = [0, 2, 1]> (k)  s = MatMul (q, t)  p = Softmax (s)
    c = Identity (p)  y = MatMul (c, k) }"""
)
FUSED = (
    HEAD
    + """g (float[B, T, 4] q, float[B, T, 4] k) => (float[B, T, 4] y) {
    a = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, k)  y = Softmax (a) }"""
)
WRONG = HEAD + "g (float[T, 4] x) => (float[T, 4] y) { y = Neg (x) }"
RELU = HEAD + "g (float[T, 4] x) => (float[T, 4] y) { y = Relu (x) }"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """bench/side_by_side.py, as it is when it is run."""
    names = ("peers", "steps", "side_by_side_page", "side_by_side", "picture")
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


def test_a_softmax_that_weighs_a_product_is_an_attention(scripts: Any, tmp_path: Path) -> None:
    peers = part(scripts, "peers")
    assert peers.attentions(saved(tmp_path, "a", ATTENTION)) == {"fused": 0, "open": 1}
    assert peers.attentions(saved(tmp_path, "b", FUSED)) == {"fused": 1, "open": 0}


def compare(scripts: Any, tmp_path: Path, *more: str) -> dict[str, Any]:
    arguments = ["--zoo", str(tmp_path / "zoo"), "--work", str(tmp_path / "work")]
    arguments += ["--out", str(tmp_path / "docs"), *more]
    assert scripts.main(arguments) == 0
    data: dict[str, Any] = json.loads((tmp_path / "docs" / "compare.json").read_text("utf-8"))
    return data


def test_what_is_known_is_not_done_again(
    scripts: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(scripts, "TOOLS", {})
    saved(tmp_path / "zoo", "a", ATTENTION)
    specs = ["--no-time", "--no-dml", "--spec", "mine=cumsum-index", "--spec", "nope"]
    data = compare(scripts, tmp_path, *specs)
    assert "graphfix nope is left out: there is no pass 'nope'" in capsys.readouterr().err
    assert data["tools"] == ["exported", "graphfix mine"]
    (row,) = data["rows"]
    for tool in data["tools"]:
        one = row["tools"][tool]
        assert one["verify"]["ok"]
        assert one["attentions"] == {"fused": 0, "open": 1}
        assert one["plan"]["kernels"] > 0
    page = (tmp_path / "docs" / "compare.md").read_text("utf-8")
    kernels = row["tools"]["exported"]["plan"]["kernels"]
    inside = row["tools"]["exported"]["plan"]["inside"]  # with the dims fixed, one kernel of all
    assert inside == 4  # the Identity goes
    told = f"{kernels} | 1.00 (1.00 to 1.00) | {inside} (1.00)"
    assert f"| as exported | 1 | {told} | 0 of 1 | 0 | 0 |" in page

    asked: list[list[str]] = []

    def heard(command: list[str], _: float) -> Any:
        asked.append(command)
        return part(scripts, "steps").Said("", "not now", 2)

    monkeypatch.setattr(scripts, "run", heard)
    assert compare(scripts, tmp_path, *specs) == data
    assert asked == []
    saved(tmp_path / "zoo", "a", ATTENTION.replace("c = Identity (p)", "c = Abs (p)"))
    compare(scripts, tmp_path, *specs)
    assert asked


def test_of_many_models_each_so_many_th_is_timed_or_run_on_directml(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[str] = []
    ran: list[str] = []
    right = {"made": True, "verify": {"ok": True}}

    def there(_: Any, source: Path, files: dict[str, Path]) -> dict[str, Any]:
        ran.append(source.stem)
        return {label: {"ok": True, "runs": True} for label in files}

    def copied(command: list[str], _: float) -> Any:
        shutil.copy(*command[-2:])
        return part(scripts, "steps").Said("")

    monkeypatch.setattr(scripts, "TOOLS", {})
    monkeypatch.setattr(scripts, "run", copied)
    monkeypatch.setattr(scripts.Study, "_judged", lambda *_: dict(right))
    monkeypatch.setattr(scripts.Study, "_time", lambda _, x, __: timed.append(x["exported"].stem))
    monkeypatch.setattr(scripts, "page", lambda _: "")
    for name in "abcde":
        saved(tmp_path / "zoo", name, RELU)
    monkeypatch.setattr(scripts.Study, "_there", there)
    monkeypatch.setattr(scripts, "require_provider", lambda _: None)
    compare(scripts, tmp_path, "--spec", "mine=fold", "--time-every", "2", "--dml-every", "3")
    assert timed == ["a", "c", "e"]
    assert ran == ["a", "d"]


def test_a_tool_that_fails_and_one_that_is_wrong_are_results(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = saved(tmp_path, "wrong", WRONG)
    peers = tmp_path / "scripts" / "peers.py"
    peers.parent.mkdir()
    peers.write_text(
        "import shutil, sys\n"
        "if sys.argv[1] == '--attentions': print('{\"fused\": 0, \"open\": 0}')\n"
        "elif sys.argv[1] == 'crashes': raise SystemExit('no such thing')\n"
        f"elif sys.argv[1] == 'breaks': shutil.copy({str(wrong)!r}, sys.argv[3])\n",
        encoding="utf-8",
    )
    tools = {name: name for name in ("crashes", "breaks", "idle")}
    monkeypatch.setattr(scripts, "HERE", peers.parent)
    monkeypatch.setattr(scripts, "stamp", lambda tool: tool)
    store = scripts.Store(tmp_path / "work")
    study = scripts.Study(store, tools, dml=False, effort=None)
    row = study.row("relu", saved(tmp_path / "zoo", "relu", RELU))
    found = row["tools"]
    assert (found["crashes"]["made"], found["crashes"]["why"]) == (
        False,
        "exit code 1: no such thing",
    )
    assert found["idle"]["why"] == "it wrote no file"
    assert found["breaks"]["made"]
    assert not found["breaks"]["verify"]["ok"]
    assert found["breaks"]["verify"]["runs"]
    labels = ["exported", *tools]
    data = {"rows": [row], "tools": labels, "dml": False, "with": {}, "machine": "one"}
    page = part(scripts, "side_by_side_page").page(data)
    lines = {x.split("|")[1].strip(): x for x in page.splitlines() if x.startswith("| ")}
    assert lines["breaks"].split("|")[7:9] == [" 1 ", " 0 "]
    assert lines["crashes"].split("|")[7:9] == [" 0 ", " 1 "]
    assert "- relu, crashes: exit code 1: no such thing" in page


def test_a_file_that_nothing_makes_load_has_one_line_without_its_folder(scripts: Any) -> None:
    bad = {"made": False, "why": "/home/me/zoo/a.onnx failed: no kernel"}
    row = {"name": "a", "tools": {"exported": bad, "slim": bad}}
    wrong = part(scripts, "side_by_side_page")._wrong
    said = list(wrong({"rows": [row], "tools": ["exported", "slim"]}))
    assert said == ["- a, as exported and after every tool: a.onnx failed: no kernel"]
    row["tools"]["exported"] = {"made": True}
    said = list(wrong({"rows": [row], "tools": ["exported", "slim"]}))
    assert said == ["- a, slim: a.onnx failed: no kernel"]


def test_what_an_earlier_source_found_is_taken_if_that_is_asked_for(
    scripts: Any, tmp_path: Path
) -> None:
    new = scripts.Store(tmp_path)
    assert new.get(["model"], lambda: {"found": 1}, "source 1") == {"found": 1}
    kept = scripts.Store(tmp_path, keep=True)
    assert kept.knows(["model"], "source 2")
    assert not new.knows(["model"], "source 2")
    assert kept.get(["model"], lambda: {"found": 2}, "source 2") == {"found": 1}
    assert new.get(["model"], lambda: {"found": 2}, "source 2") == {"found": 2}
    assert kept.get(["model"], dict, "source 3") == {"found": 2}


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
    fine = {"ok": True, "runs": True, "worst": 0.0, "why": ""}
    asked: list[list[str]] = []

    def answered(command: list[str], _: float) -> Any:
        names = [Path(x).stem for x in command[3:]]
        asked.append(names)
        told = names[: names.index("b")] if "b" in names else names
        return said("".join(json.dumps(fine) + "\n" for _ in told), "exit code -11: no word", -11)

    monkeypatch.setattr(scripts, "run", answered)
    study = scripts.Study(scripts.Store(tmp_path / "work"), {}, dml=True, effort=None)
    texts = {"a": RELU, "b": WRONG, "c": RELU.replace("Relu", "Abs")}
    files = {name: saved(tmp_path, name, text) for name, text in texts.items()}
    for _ in range(2):
        found = study._there(files["a"], files)
        assert found["a"] == found["c"] == fine
        assert found["b"]["why"] == "exit code -11: no word"
    assert asked == [["a", "b", "c"], ["c"]]


def test_a_step_that_hangs_is_ended(scripts: Any) -> None:
    said = part(scripts, "steps").run([sys.executable, "-c", "while True: pass"], 1)
    assert said.why == "it did not end within 1 s"


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


def test_files_are_timed_side_by_side_and_those_that_are_wrong_are_not(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = {"phases": {"steady": {"processes": 6, "all_ms": [1.0]}}, "copy": {}}
    ratio = {"value": 0.5, "low": 0.4, "high": 0.6}
    models = [{"setups": {"any shape": {**setup, "ratios": x}}} for x in ({}, {"steady": ratio})]
    commands: list[list[str]] = []

    def answered(command: list[str], _: float) -> Any:
        commands.append(command)
        return part(scripts, "steps").Said(json.dumps({"models": models}), "", 0)

    monkeypatch.setattr(scripts, "run", answered)
    store = scripts.Store(tmp_path / "work")
    study = scripts.Study(store, {}, dml=False, effort=("--processes", "6"))
    first, second = (saved(tmp_path, name, RELU) for name in "ab")
    found: dict[str, Any] = {"exported": {}, "mine": {}}
    study._time({"exported": first, "mine": second}, found)
    ((*_, bench, a, b, ep, cpu, fixed, as_json, processes, count),) = commands
    assert [bench, a, b, ep, cpu] == ["bench", str(first), str(second), "--ep", "cpu"]
    assert [fixed, as_json, processes, count] == ["--no-fixed", "--json", "--processes", "6"]
    assert found["mine"]["time"]["ratio"] == ratio
    assert found["exported"]["time"]["ratio"] is None
    assert found["mine"]["time"]["steady"] == {"processes": 6}


def test_the_time_on_the_page_is_the_median_with_its_interval(scripts: Any) -> None:
    def one(value: float | None) -> dict[str, Any]:
        ratio = {"value": value, "low": 0.9 * (value or 1), "high": 1.05 * (value or 1)}
        return {"made": True, "verify": {"ok": True}, "time": {"ratio": ratio}}

    plain = {"made": True, "verify": {"ok": True}}
    values = [0.5, 0.6, 0.7, 0.8, 0.9, 1.2, None]
    rows = [{"name": str(x), "tools": {"exported": plain, "t": one(x)}} for x in values]
    data = {"rows": rows, "tools": ["exported", "t"], "dml": False, "with": {}, "machine": "one"}
    page = part(scripts, "side_by_side_page").page(data)
    assert "| 0.75 (0.50 to 1.20) | 5, 1 of 6 |" in page


def test_the_picture_says_what_is_left_and_what_is_broken(scripts: Any, tmp_path: Path) -> None:
    def one(kernels: int, *, runs: bool = True, ok: bool = True) -> dict[str, Any]:
        return {
            "made": True,
            "plan": {"kernels": kernels},
            "verify": {"ok": ok},
            "dml": {"runs": runs, "ok": runs},
        }

    rows = [
        {"name": "a", "tools": {"exported": one(60, runs=False), "t": one(40, ok=False)}},
        {"name": "b", "tools": {"exported": one(40), "t": {"made": False, "why": "no"}}},
    ]
    data = {"rows": rows, "tools": ["exported", "t"], "dml": True, "with": {}, "machine": "one"}
    page = part(scripts, "side_by_side_page")
    assert [(x.tool, x.kernels, x.told) for x in page.shares(data)] == [
        ("as exported", 100, "100, 1 of 2 do not run there"),
        ("t", 80, "80 (80%), 1 wrong"),
    ]
    pytest.importorskip("matplotlib")
    import picture  # type: ignore[import-not-found]

    (tmp_path / "compare.json").write_text(json.dumps(data), encoding="utf-8")
    picture.main(tmp_path)
    drawn = (tmp_path / "compare.svg").read_text(encoding="utf-8")
    assert "<!-- 80 (80%), 1 wrong -->" in drawn
