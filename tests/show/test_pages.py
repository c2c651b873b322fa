"""The pages of check, verify, bench, padded and ship; and those of all verbs in a browser."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from graphfix.cli import main
from graphfix.core import Change
from graphfix.engine import registry
from graphfix.engine.report import PassReport, Report
from graphfix.show import html
from graphfix.spec.manual import manual_of
from tests import browser
from tests.show.test_html import EVIL, Reader, evil

ASKED = ["What was wrong", "What was changed", "Is it right", "Is it faster", "What next"]
LONG = "encoder/layers.0/" + "attention_" * 20
BAD = f"""<ir_version: 8, opset_import: ["" : 17]>
    m (bool[T, 4] hidden, float[T, 4] x) => (float[T, 4] y) <float low = {{-1e4}}>
    {{ ["{LONG}"] a = Where (hidden, low, x) b = Softmax (a) y = Mul (b, b) }}"""
OTHER = BAD.replace("Mul (b, b)", "Add (b, b)")
SAFE = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[1, T, 4] x) => (float[1, T, 4] y) { y = Relu (x) }"""
LEAK = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[1, T, 4] x) => (float[1, T, 4] y) { a = ReduceMean <axes = [1]> (x) y = Sub (x, a) }"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(BAD), "m.onnx")
    onnx.save(onnx.parser.parse_model(OTHER), "other.onnx")
    onnx.save(onnx.parser.parse_model(SAFE), "safe.onnx")
    onnx.save(onnx.parser.parse_model(LEAK), "leak.onnx")
    ir.save(ir.from_onnx_text(manual_of(registry.pass_class("additive-mask")).before), "long.onnx")


def page(*arguments: str, code: int = 0) -> Reader:
    """What a verb writes with --report; its four answers come first, and it needs nothing else."""
    assert main([*arguments, "--report", "page.html"]) == code
    text = Path("page.html").read_text(encoding="utf-8")
    reader = Reader(text)
    assert not reader.open
    assert all(answers(reader).values())
    assert "ot measured" not in reader.text
    ids = [a["id"] for _, a in reader.seen if "id" in a]
    assert len(ids) == len(set(ids))
    assert {str(a["href"])[1:] for _, a in reader.seen if "href" in a} <= set(ids)
    assert not {x for x, _ in reader.seen} & {"link", "img", "iframe", "object", "embed", "base"}
    assert "https:" not in text
    return reader


def answers(reader: Reader) -> dict[str, str]:
    """The answers, by question, in their order; a question without an answer is not asked."""
    ends = [m.start() for m in re.finditer("|".join(ASKED), reader.text)] + [len(reader.text)]
    texts = [reader.text[a:b] for a, b in pairwise(ends)]
    by_question = {q: t.removeprefix(q).strip() for t in texts for q in ASKED if t.startswith(q)}
    assert list(by_question) == [x for x in ASKED if x in by_question]
    return by_question


def tone(reader: Reader) -> str:
    return next(str(a["class"]) for tag, a in reader.seen if tag == "section").strip()


class TestCheck:
    def test_what_is_wrong_and_what_repairs_it(self, capsys: pytest.CaptureFixture[str]) -> None:
        reader = page("check", "m.onnx")
        assert "report    page.html" in capsys.readouterr().out
        assert main(["check", "m.onnx", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert json.loads(reader.embedded) == found
        count = found["count"]["warning"]
        assert f"{count} warnings on DirectML, predicted" in reader.text
        assert tone(reader) == "verdict"
        said = answers(reader)
        wrong, changed = said["What was wrong"], said["What was changed"]
        for one in found["findings"]:
            if one["severity"] == "warning":
                assert one["rule"] in wrong
            assert one["at"] in reader.text
            assert one["message"] in reader.text
        assert "graphfix run m.onnx -p additive-mask repairs 1 of" in changed

    def test_several_models_each_have_a_place(self) -> None:
        reader = page("check", "m.onnx", "other.onnx")
        assert "2 models, 0 with errors" in reader.text
        assert "graphfix run other.onnx -p additive-mask repairs" in reader.text
        assert {"m.onnx", "other.onnx"} <= {a.get("id") for _, a in reader.seen}

    def test_what_cannot_be_read_is_on_it(self) -> None:
        reader = page("check", "none.onnx", "m.onnx", code=2)
        assert "Not read: none.onnx: no such file" in reader.text
        assert tone(reader) == "verdict bad"
        assert "Not read: none2.onnx" in page("check", "none.onnx", "none2.onnx", code=2).text

    def test_stdout_is_the_json_alone(self, capsys: pytest.CaptureFixture[str]) -> None:
        for how in ("--json", "--sarif"):
            page("check", "m.onnx", how)
            json.loads(capsys.readouterr().out)


class TestVerify:
    def test_the_same(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", "m.onnx", "-o", "fixed.onnx", "-q"]) == 0
        reader = page("verify", "m.onnx", "fixed.onnx")
        assert "m.onnx → fixed.onnx" in reader.text
        assert "Computes the same" in reader.text
        assert tone(reader) == "verdict good"
        said = answers(reader)
        changed, right = said["What was changed"], said["Is it right"]
        assert "passes went over it, as the second model says" in changed
        assert "nodes became" in changed
        verdict = json.loads(reader.embedded)
        assert verdict["summary"].lower()[:-1] in right.lower()
        assert "graphfix bench m.onnx fixed.onnx measures the time" in said["What next"]
        assert all(case["name"] in reader.text for case in verdict["cases"])
        capsys.readouterr()
        page("verify", "m.onnx", "fixed.onnx", "--json")
        json.loads(capsys.readouterr().out)

    def test_another_result(self) -> None:
        reader = page("verify", "m.onnx", "other.onnx", code=1)
        assert "Does not compute the same" in reader.text
        assert tone(reader) == "verdict bad"
        assert "Mul" in reader.text
        assert "1 → 0" in reader.text


class TestBench:
    def bench(self, *models: str, code: int = 0) -> Reader:
        arguments = ["--ep", "cpu", "--processes", "1", "--seconds", "0", "--no-fixed"]
        return page("bench", *models, *arguments, code=code)

    def test_what_was_timed(self, capsys: pytest.CaptureFixture[str]) -> None:
        reader = self.bench("m.onnx", "m.onnx")
        assert "B: the ratio cannot be inferred" in reader.text
        said = answers(reader)
        changed, right = said["What was changed"], said["Is it right"]
        assert "No model failed on the CPU." in said["What was wrong"]
        assert "A is m.onnx ; B is m.onnx ." in changed
        assert "B computes what A computes on the CPU; the largest difference is 0." in right
        assert "it cannot be inferred: 1 of" in said["Is it faster"]
        data = json.loads(reader.embedded)
        for one in data["models"]:
            for phase in one["setups"]["any shape"]["phases"].values():
                assert f"{phase['median_ms']:.3g} ms" in reader.text
            memory = one["setups"]["any shape"]["peak_memory_bytes"]
            assert f"{memory / 1048576:.0f} MiB" in reader.text
        figures = ("first run", "new length", "steady", "memory", "session")
        table = reader.text[reader.text.rindex("Times on the CPU, any shape") :]
        assert sorted(figures, key=table.index) == [*figures]
        capsys.readouterr()

    def test_another_result_is_a_failure(self) -> None:
        reader = self.bench("m.onnx", "other.onnx", code=1)
        assert "Failed: other.onnx" in reader.text
        assert tone(reader) == "verdict bad"
        assert "B, any shape: output y" in answers(reader)["Is it right"]

    def test_one_model(self) -> None:
        reader = self.bench("m.onnx")
        assert "ms per run on the CPU" in reader.text
        assert "There is no other model to compare with." in answers(reader)["Is it faster"]

    @pytest.mark.parametrize(
        ("low", "high", "says"), [(0.7, 0.9, "0.80 of the time of A"), (0.7, 1.1, "no difference")]
    )
    def test_a_ratio(self, low: float, high: float, says: str) -> None:
        data = json.loads(self.bench("m.onnx", "m.onnx").embedded)
        ratio = {"value": 0.8, "low": low, "high": high, "confidence": 0.97, "turns": 6}
        data["models"][1]["setups"]["any shape"]["ratios"]["steady"] = ratio
        text = Reader(html.render_data_page("bench.html", data, names=["A", "B"])).text
        assert f"B: {says}" in text
        assert f"0.800 of the time ({low:.3f} to {high:.3f} with 97 % confidence" in text

    def test_several_providers(self) -> None:
        document = json.loads(self.bench("m.onnx", "m.onnx").embedded)
        document["models"][1]["ep"] = "dml"
        document |= {"also": {"dml": {"adapter": "a card"}}, "missing": {"webgpu": "no device"}}
        reader = Reader(html.render_data_page("bench.html", document, names=["A", "B"]))
        assert "Without WebGPU: no device" in reader.text
        assert "No model failed on the CPU, DirectML." in reader.text
        assert "A is m.onnx on the CPU; B is m.onnx on DirectML." in reader.text
        assert "DirectML: adapter a card" in reader.text

    def test_a_stream_has_no_page(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["bench", "--ship", "x", "--against", "m.onnx", "--report", "p.html"]) == 2
        assert "no --report" in capsys.readouterr().err


class TestPadded:
    def test_what_padding_changes(self) -> None:
        reader = page("padded", "leak.onnx", code=1)
        assert "Padding changes the results" in reader.text
        assert tone(reader) == "verdict bad"
        said = answers(reader)
        wrong, changed = said["What was wrong"], said["What was changed"]
        verdict = json.loads(reader.embedded)
        failed = sum(not x["ok"] for x in verdict["checks"])
        assert f"{failed} of {len(verdict['checks'])} comparisons differ" in wrong
        assert "graphfix run leak.onnx -p ilens-mask repairs leaks" in changed
        assert verdict["summary"][1:] in said["Is it right"]

    def test_what_it_leaves(self) -> None:
        reader = page("padded", "safe.onnx")
        assert "Padding does not change the results" in reader.text
        assert tone(reader) == "verdict good"
        assert "comparisons within the allowance" in reader.text


class TestShip:
    def test_what_was_shipped(self) -> None:
        reader = page("ship", "safe.onnx", "--container", "T=8,16", "-o", "shipped")
        assert "2 graphs of fixed sizes are in shipped" in reader.text
        data = json.loads(reader.embedded)
        assert all(x["file"] in reader.text for x in data["manifest"]["containers"])
        said = answers(reader)
        changed, right = said["What was changed"], said["Is it right"]
        assert data["manifest"]["provenance"]["passes"] in changed
        assert data["whole"]["summary"] in right
        command = "graphfix bench --ship shipped --against safe.onnx"
        assert f"{command} measures the time" in said["What next"]


@pytest.mark.parametrize("verb", ["check", "verify", "bench", "padded", "ship"])
@pytest.mark.parametrize(
    ("report", "says"),
    [("none/p.html", "there is no folder none"), (".", "is a folder"), ("m.onnx", "model's file")],
)
def test_a_bad_place_is_refused_first(
    verb: str, report: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    models = ["m.onnx", "m.onnx"] if verb == "verify" else ["m.onnx"]
    models += ["--container", "T=8", "-o", "shipped"] if verb == "ship" else []
    assert main([verb, *models, "--report", report]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["check", "verify", "bench"])
def test_what_is_read_is_not_overwritten(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a model under another name nor its weights."""
    model = onnx.load("m.onnx")
    low = onnx.numpy_helper.from_array(np.array(-1e4, np.float32), "low")
    model.graph.initializer[0].CopyFrom(low)
    onnx.save(model, "ext.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    Path("page.html").hardlink_to("m.onnx")
    before = Path("w.bin").read_bytes()
    for report in ("page.html", "w.bin"):
        assert main([verb, "m.onnx", "ext.onnx", "--report", report]) == 2
        assert f"--report {report}: is read for this work" in capsys.readouterr().err
    assert Path("w.bin").read_bytes() == before


def test_text_of_a_model_is_no_markup() -> None:
    finding = dict.fromkeys(("rule", "at", "message", "fix"), EVIL) | {"severity": "error"}
    count = {"error": 1, "warning": 0, "note": 0}
    one = {"source": EVIL, "ep": "dml", "count": count, "findings": [finding]}
    group = {**finding, "found": [finding], "reasons": {EVIL: [EVIL]}}
    about = {"models": [one], "groups": {EVIL: [group]}, "about": {EVIL: EVIL}, "unread": [EVIL]}
    verdict = evil()["verdict"]
    ops = {"ops_before": {EVIL: 1}, "ops_after": {EVIL: 2}}
    for text in (
        html.render_data_page("check.html", one, where="DirectML", **about),
        html.render_data_page("verify.html", verdict, before=EVIL, after=EVIL, spec=EVIL, **ops),
    ):
        reader = Reader(text)
        assert reader.embedded
        assert "img" not in {tag for tag, _ in reader.seen}


@browser.needed
def test_the_filter_leaves_what_its_words_name(tmp_path: Path) -> None:
    changes = tuple(Change("fold", f"/layer.{i}/Where", "t", ("a",), ("b",)) for i in range(40))
    report = Report("fold", (PassReport("fold", "fold", "exact", changes),), {"Add": 1}, {"Add": 1})
    text = html.render_page(report.to_json())
    typed = """<script>document.body.dataset.before = box.closest("p").hidden;
        box.value = WORDS; box.dispatchEvent(new Event("input"));
        document.body.dataset.shown = places.filter((x) => x.checkVisibility()).length;
        document.body.dataset.kept = places.filter((x) => !x.hidden).length</script></body>"""
    for word, count in (("where LAYER.1", 11), ("no such node", 0)):
        asked = text.replace("</body>", typed.replace("WORDS", json.dumps(word)))
        (tmp_path / "filter.html").write_text(asked, encoding="utf-8")
        document, _ = browser.dumped(tmp_path / "filter.html")
        assert f'data-before="false" data-shown="{count}" data-kept="{count}"' in document


@browser.needed
def test_they_fit_at_any_width(tmp_path: Path) -> None:
    pages = {"evil": html.render_page(evil())}

    def add(name: str, *arguments: str) -> None:
        main([*arguments, "-q", "--report", "page.html"])
        pages[name] = Path("page.html").read_text(encoding="utf-8")

    add("run", "run", "long.onnx", "-p", "fast,float16", "-o", "half.onnx")
    add("failed run", "run", "m.onnx", "--dry-run")
    add("check", "check", "long.onnx", "-p", "float16,directml")
    add("check several", "check", "m.onnx", "other.onnx", str(tmp_path / "long.onnx"))
    add("verify", "verify", "long.onnx", "half.onnx")
    add("padded", "padded", "safe.onnx")
    add("failed padded", "padded", "leak.onnx")
    add("ship", "ship", "safe.onnx", "--container", "T=8", "-o", "shipped")
    add("failed verify", "verify", "m.onnx", "other.onnx")
    timed = ["--ep", "cpu", "--processes", "1", "--seconds", "0"]
    add("bench", "bench", "long.onnx", "half.onnx", "m.onnx", *timed)
    assert browser.faults(pages, tmp_path) == []
