"""``graphfix run``: what it takes, what it prints, and its exit code."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from graphfix.core import Change, Finding
from graphfix.engine.report import PassReport, Report
from graphfix.proof.compare import OutputDiff
from graphfix.proof.verdict import Verdict
from tests.cli.conftest import said

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[T, 4] x) => (float[T, 4] y)
    { c = Cast <to = 9> (x) d = Cast <to = 1> (c) y = Relu (d) }"""
CLEAN = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[T, 4] x) => (float[T, 4] y) { y = Relu (x) }"""

verb = importlib.import_module("graphfix.cli.run")  # the name in the package is the command
pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(TEXT), "m.onnx")
    onnx.save(onnx.parser.parse_model(CLEAN), "n.onnx")


Captured = pytest.CaptureFixture[str]


def test_a_model_is_repaired_beside_itself(capsys: Captured) -> None:
    code, out, err = said(capsys, "run", "m.onnx")
    assert (code, err) == (0, "")
    assert Path("m.fixed.onnx").exists()
    assert "m.onnx -> m.fixed.onnx" in out
    assert "numbers" in out
    assert "kernels" in out


def test_nothing_is_written_in_a_dry_run(capsys: Captured) -> None:
    code, out, _ = said(capsys, "run", "m.onnx", "--dry-run")
    assert code == 0
    assert "nothing, a dry run" in out
    assert "numbers" not in out
    assert not Path("m.fixed.onnx").exists()


def test_nothing_is_run_without_verification(capsys: Captured) -> None:
    code, out, _ = said(capsys, "run", "m.onnx", "--no-verify", "-o", "out.onnx")
    assert code == 0
    assert "not compared, as asked (--no-verify)" in out
    assert "kernels" not in out
    assert Path("out.onnx").exists()
    _, out, _ = said(capsys, "run", "m.onnx", "--no-verify", "--kernels", "-o", "out.onnx")
    assert "kernels" in out
    _, out, _ = said(capsys, "run", "m.onnx", "--no-kernels", "-o", "out.onnx")
    assert "kernels" not in out


def test_the_least_budget_is_a_second(capsys: Captured) -> None:
    assert said(capsys, "run", "m.onnx", "--no-kernels", "--budget", "1")[0] == 0
    assert said(capsys, "run", "m.onnx", "--budget", "0.9")[0] == 2


def test_json_is_the_report(capsys: Captured) -> None:
    code, out, err = said(capsys, "run", "m.onnx", "--json", "--no-kernels")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert data["source"] == "m.onnx"
    assert data["verdict"]["ok"] is True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["m.onnx", "gone.onnx"], "gone.onnx: no such file. Is this meant: graphfix run m.onnx -o"),
        (["m.onnx", "T=7"], "Is this meant: graphfix run m.onnx --dims T=7"),
        (["m.onnx", "gone"], "gone: no such file"),
        (["m.onnx", "n.onnx", "-o", "o.onnx"], "-o names the output of one model; give one"),
        (["m.onnx", "n.onnx", "--report", "p.html"], "--report is a page about one model"),
        (["m.onnx", "-o", "-", "--json"], "-o -: the model goes to stdout, all of it"),
        (["m.onnx", "-o", "-", "--external-data", "keep"], "-o -: the model goes to stdout"),
        (["m.onnx", "-o", "-", "--external-data", "separate"], "-o -: the model goes to stdout"),
        (["m.onnx", "-o", "sub/"], "names a folder"),
        (["m.onnx", "--atol", "-1"], "a difference is at least 0"),
        (["m.onnx", "--budget", "0.5"], "budget"),
        (["m.onnx", "--report", "m.onnx"], "is a model's file; name another"),
        (["m.onnx", "--report", "m.fixed.onnx"], "is a model's file; name another"),
    ],
)
def test_what_cannot_be_asked(arguments: list[str], message: str, capsys: Captured) -> None:
    code, out, err = said(capsys, "run", *arguments)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert not Path("m.fixed.onnx").exists()
    if "gone" in arguments:
        assert "Is this meant" not in err


def test_several_models_are_repaired_one_after_another(capsys: Captured) -> None:
    code, out, _ = said(capsys, "run", "m.onnx", "n.onnx", "--no-verify")
    assert code == 0
    assert out.index("m.onnx ->") < out.index("\n\n") < out.index("n.onnx ->")
    assert Path("n.fixed.onnx").exists()
    code, out, _ = said(capsys, "run", "m.onnx", "n.onnx", "--no-verify", "--json")
    assert code == 0
    assert [x["source"] for x in json.loads(out)["models"]] == ["m.onnx", "n.onnx"]


def test_the_worst_of_several_models_counts(capsys: Captured) -> None:
    Path("bad.onnx").write_text("no model")
    code, out, err = said(capsys, "run", "bad.onnx", "m.onnx", "--no-verify", "--json")
    assert code == 2
    assert "error: " in err
    assert [x["source"] for x in json.loads(out)["models"]] == ["m.onnx"]


def test_a_report_is_a_page(capsys: Captured) -> None:
    code, out, _ = said(capsys, "run", "m.onnx", "--no-kernels", "--report", "p.html")
    assert code == 0
    assert Path("p.html").read_text(encoding="utf-8").startswith("<!")
    assert out.splitlines()[-1].split() == ["report", "p.html"]
    _, out, _ = said(capsys, "run", "m.onnx", "--no-kernels", "--json", "--report", "p.html")
    assert "p.html" not in out


def test_each_repair_is_shown_on_request(capsys: Captured) -> None:
    _, out, _ = said(capsys, "run", "m.onnx", "--no-verify", "--diff", "-v")
    assert "    @@ " in out
    assert any(x.startswith("    - ") for x in out.splitlines())
    assert any(x.startswith("    + ") for x in out.splitlines())
    assert "no repairs: " in out
    assert "nodes" in out
    _, out, _ = said(capsys, "run", "m.onnx", "--no-verify")
    assert "    @@ " not in out


CHANGE = Change("a-pass", "node", "y", ("old\nline",), ("new",), "a note")


def test_what_a_pass_did_in_one_line(capsys: Captured) -> None:
    finding = Finding("rule", "warning", "n", "a message", None)

    def head(**facts: Any) -> str:
        report = PassReport("a-pass", "a-pass", "exact", **facts)
        verb._print_pass(report, "a-pass", diff=False, verbose=False)
        return capsys.readouterr().out.splitlines()[0]

    assert head(changes=(CHANGE,)) == "  a-pass  1 repair (exact)"
    assert head(changes=(CHANGE,) * 2, skips=(("n", "why"),)) == (
        "  a-pass  2 repairs (exact), 1 near miss"
    )
    assert (
        head(skips=(("n", "why"),) * 2, findings=(finding,)) == "  a-pass  2 near misses, 1 finding"
    )
    assert head(left="it failed") == "  a-pass  left out"


def test_notes_reasons_and_findings_follow(capsys: Captured) -> None:
    finding = Finding("rule", "warning", "n", "a message", None)
    report = PassReport("a-pass", "a-pass", "exact", (CHANGE,), (("m", "why"),), (finding,))
    verb._print_pass(report, "a-pass", diff=True, verbose=False)
    lines = capsys.readouterr().out.splitlines()
    assert [x.strip() for x in lines if " x " in x] == [
        "1 x a note",
        "1 x why",
        "1 x warning: a message",
    ]
    assert lines[lines.index("    @@ node") + 1 :][:2] == ["    - old\\nline", "    + new"]


def test_operators_before_and_after() -> None:
    assert verb._operators_text({"Add": 2}, {"Add": 2}) == "2 -> 2: the same operators"
    text = verb._operators_text({"Where": 4, "Add": 10}, {"Add": 14})
    assert text == "14 -> 14: Where 4 -> 0, Add 10 -> 14"


@pytest.mark.parametrize("verifies", [True, False])
def test_garbage_is_searched_less(verifies: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    class Collector:
        freeze = "freeze"

        @staticmethod
        def set_threshold(*numbers: int) -> None:
            calls.append(numbers)

        @staticmethod
        def disable() -> None:
            calls.append("disabled")

    monkeypatch.setattr(verb, "gc", Collector)
    monkeypatch.setattr(verb.atexit, "register", calls.append)
    verb._search_less_for_garbage(verifies=verifies)
    first, last = calls
    assert last == "freeze"
    assert (first == "disabled") != verifies
    assert not verifies or (first[0] > 10_000 and len(first) == 3)


def test_the_report_goes_to_stderr_where_the_model_takes_stdout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert verb._report_stream(piped=False) is sys.stdout
    assert verb._report_stream(piped=True) is sys.stderr
    monkeypatch.setattr(verb._terminal, "data_stream", lambda: None)
    assert verb._report_stream(piped=True) is sys.stdout


def report_of(*changed: str, reason: str = "it differs", **facts: Any) -> Report:
    passes = tuple(PassReport(x, x, "exact", (CHANGE,)) for x in changed)
    verdict = Verdict(ok=False, cases={}, reason=reason)
    return Report("spec", (*passes, PassReport("idle", "idle", "exact")), {}, {}, "m x.onnx",
                  **{"verdict": verdict, **facts})  # fmt: skip


@pytest.mark.parametrize(
    ("report", "advice"),
    [
        (report_of(), "graphfix check 'm x.onnx' says what ONNX Runtime refuses"),
        (report_of("fold", reason="it does not load"), "says what ONNX Runtime refuses"),
        (
            report_of("fold", "fuse-norm"),
            "try the repairs without the fusions: graphfix run 'm x.onnx' -p directml",
        ),
        (report_of("a", "b"), "try the passes one at a time: graphfix run 'm x.onnx' -p a, then b"),
        (report_of("a", "b", "c", "d"), "-p a, then b, c, d"),
        (report_of("a", "b", "c", "d", "e"), "-p a, then b, c, d, ..."),
        (
            report_of("a", "a"),
            "leave out a node, --exclude NODE, or look at both models: graphfix run 'm x.onnx' "
            "-p a --no-verify",
        ),
        (report_of("a", verdict=None), "leave out a node"),
    ],
)
def test_the_next_command(report: Report, advice: str) -> None:
    text = verb._next_command(report)
    assert text.endswith(advice) or text.startswith(advice)


def test_why_nothing_was_written(capsys: Captured) -> None:
    assert verb._report_failed_proof(report_of("a")) == 1
    assert capsys.readouterr().err.startswith(
        "graphfix: error: the repaired model does not compute the same: it differs; nothing was "
        "written; leave out a node"
    )
    far = OutputDiff("y", "b", ok=False, reason="differs by 7", max_abs=7)
    numeric = Verdict(ok=False, cases={"b": (far,)})
    verb._report_failed_proof(report_of("a", verdict=numeric))
    assert capsys.readouterr().err.endswith("if that difference is expected, raise --atol\n")
    half = Report("float16", (), {}, {}, "m", verdict=numeric)
    verb._report_failed_proof(half)
    assert capsys.readouterr().err.endswith("raise --rtol\n")


def test_what_became_of_the_model() -> None:
    assert verb._outcome_text(report_of()) == "no model was written"
    assert verb._outcome_text(report_of(output="o.onnx")) == "the model is written: o.onnx"
