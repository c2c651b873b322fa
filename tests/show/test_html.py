"""The page: its numbers, its escapes, and that it needs nothing else."""

from __future__ import annotations

import html as escapes
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

import graphfix
from graphfix.core import Change, Finding
from graphfix.engine import registry
from graphfix.engine.report import PassReport, Report
from graphfix.proof.verdict import Verdict
from graphfix.show import html
from graphfix.spec.manual import manual_of

EVIL = '</script><script>alert("1")</script><img src=x onerror=alert(1)>&<!--'
VOID = {"meta", "br", "input"}
FILTER = resources.files(html.__package__).joinpath("templates", "filter.js").read_text("utf-8")


class Reader(HTMLParser):
    """The page's elements and text; an element that is not closed is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def embedded(self) -> str:
        """The JSON, which comes last; what stands before it is the filter and nothing else."""
        assert [x.strip() for x in self.scripts[:-1]] in ([], [FILTER.strip()])
        return self.scripts[-1]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(data: dict[str, Any]) -> Reader:
    reader = Reader(html.render_page(data))
    assert not reader.open
    ids = [a["id"] for _, a in reader.seen if "id" in a]
    assert len(ids) == len(set(ids))
    links = [str(a["href"])[1:] for _, a in reader.seen if "href" in a]
    assert set(links) <= set(ids)
    return reader


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    before = ir.from_onnx_text(manual_of(registry.pass_class("additive-mask")).before)
    after = before.clone()
    report = graphfix.run(after, "additive-mask,cumsum-index")
    verdict = graphfix.verify(before, after, safety=report.safety)
    return replace(report, source="folder/model.onnx", verdict=verdict).to_json()


def evil(text: str = EVIL) -> dict[str, Any]:
    change = Change(text, text, text, (text,), (text,))
    finding = Finding(text, "warning", text, text, text)
    one = PassReport(text, text, "exact", (change,), ((text, text),), (finding,))
    diff = {
        "output": text, "case": text, "ok": False, "reason": text, "max_abs": "nan",
        "max_rel": "inf", "cosine": "nan", "scale": 0.0, "allowed": 0.0, "differing": 1,
        "compared": 1, "total": 1, "nan_before": 0, "nan_after": 1, "inf_before": 0,
        "inf_after": 0, "note": text,
    }  # fmt: skip
    verdict: dict[str, object] = {
        "ok": False,
        "summary": text,
        "reason": text,
        "worst": diff,
        "first_divergence": {"tensor": text, "node": text, "op": text, "diff": diff, "given": None},
        "cases": [{"name": text, "outputs": [diff]}],
        "dropped": [{"name": text, "reason": text}],
        "notes": [text],
    }
    ops = {text: 1}
    report = Report(text, (one,), ops, {text: 2}, text, text, Verdict(False, {}, reason=text))
    return {**report.to_json(), "verdict": verdict}


def test_the_numbers_are_those_of_the_json(data: dict[str, Any]) -> None:
    page = read(data)
    assert json.loads(page.embedded) == json.loads(json.dumps(data))
    assert "Repaired, and it computes the same" in page.text
    before, after = (sum(data[x].values()) for x in ("ops_before", "ops_after"))
    assert f"{before} nodes became {after}" in page.text
    assert "Where 2 → 0" in page.text
    for case in data["verdict"]["cases"]:
        assert case["name"] in page.text
    for change in data["passes"][0]["changes"]:
        assert change["at"] in page.text
        for line in (*change["removed"], *change["added"]):
            assert line in page.text


def test_nothing_in_it_is_markup_but_ours() -> None:
    page = read(evil())
    assert "img" not in {tag for tag, _ in page.seen}
    assert json.loads(page.embedded)["source"] == EVIL
    text = html.render_page(evil())
    assert text.count("<!--") == 0
    assert escapes.escape(EVIL, quote=False) in text.replace("&#34;", '"')


@pytest.mark.parametrize("mark", ["\u202e", "\u2066", "\x1b", "\x00", "\r"])
def test_marks_that_turn_or_hide_text_are_spelt_out(mark: str) -> None:
    page = html.render_page(evil(f"ok{mark}evil"))
    assert mark not in page
    assert page.count(f"ok{repr(mark)[1:-1]}evil") > 10


def test_four_questions_are_answered_first(data: dict[str, Any]) -> None:
    text = read(data).text
    asked = ["What was wrong", "What was changed", "Is it right", "Is it faster"]
    places = [text.index(x) for x in asked]
    assert places == sorted(places)
    assert places[-1] < text.index("Passes that found something")
    had = [{"rule": "r", "severity": "error", "at": "here", "message": "DirectML refuses it"}]
    counts = {"error": 1, "warning": 2}
    found = {"before": counts, "after": {"error": 0, "warning": 2}, "had": had, "left": []}
    kernels = dict.fromkeys(("all", "directml", "cpu", "recompiled"), 7)
    both = {"before": kernels, "after": {**kernels, "directml": 3, "recompiled": 1}}
    text = read({**data, "hazards": found, "kernels": both}).text
    assert "1 error on DirectML, predicted; 2 warnings: 1 × r : DirectML refuses it" in text
    assert "On DirectML, predicted: 0 errors left, 2 warnings." in text
    assert "7 → 3 kernels per run on DirectML, 7 → 7 on the CPU; 7 → 1 recompiled" in text


def test_a_pass_that_ran_several_times_has_one_place(data: dict[str, Any]) -> None:
    (one, *others) = data["passes"]
    again = {**one, "skips": [["/a/Where", "no mask"]]}
    page = read({**data, "passes": [one, again, again, *others]})
    made = len(one["changes"])
    assert f"{3 * made} {one['name']}" in page.text
    assert f"{one['spec']} : {3 * made} repairs 2 skipped; {one['safety']}" in page.text
    assert "1 × no mask" in page.text
    assert page.text.count(one["changes"][0]["at"]) == 3


def test_places_are_folded_to_three(data: dict[str, Any]) -> None:
    (one, *others) = data["passes"]
    change = one["changes"][0]
    changes = [{**change, "at": f"/layer.{i}/Where"} for i in range(215)]
    skips = [[f"/layer.{i}/Add", "no mask"] for i in range(9)]
    page = read({**data, "passes": [{**one, "changes": changes, "skips": skips}, *others]})
    assert "all 215" in page.text
    assert "9 × no mask /layer.0/Add /layer.1/Add /layer.2/Add all 9" in page.text
    assert ("input", "filter") in [(tag, a.get("id")) for tag, a in page.seen]


def test_contents_lead_to_the_headings(data: dict[str, Any]) -> None:
    page = read(data)
    titles = [a["id"] for tag, a in page.seen if tag == "h2"]
    links = [str(a["href"])[1:] for tag, a in page.seen if tag == "a"]
    assert len(titles) > 2
    assert links[-len(titles) :] == titles


def test_constants_are_no_operators_that_changed() -> None:
    assert html.changed_operators({"Constant": 9, "Add": 2}, {"Add": 1}) == [("Add", 2, 1, 2)]


def test_where_nodes_run_is_drawn_before_and_after(data: dict[str, Any]) -> None:
    strips = {"before": [("dml", 3), ("cpu", 1)], "after": [("fused", 2)]}
    page = read({**data, "strips": strips})
    drawn = [(a["class"], a["style"]) for tag, a in page.seen if tag == "span" and "style" in a]
    assert drawn[:3] == [("dml", "flex: 3"), ("cpu", "flex: 1"), ("fused", "flex: 2")]
    assert "Where the nodes run" not in read(data).text


def test_float16_is_rounded_and_not_the_same(data: dict[str, Any]) -> None:
    verdict = {**data["verdict"], "summary": "the same in 2 cases: top-1 agrees in 85.71% at least"}
    page = read({**data, "verdict": verdict, "answer": "Rounded to float16"})
    assert "Rounded to float16" in page.text
    assert not [a for _, a in page.seen if "good" in (a.get("class") or "")]


def test_a_failed_verdict_is_told() -> None:
    page = read(evil())
    assert "Failed: the repaired model does not compute the same" in page.text
    assert "The first tensor to differ is" in page.text
    assert "there rounding decides" not in page.text
    data = evil()
    data["verdict"]["first_divergence"]["given"] = 1.25e-7
    text = " ".join(read(data).text.split())
    assert "What it is given differs by 1.25e-07 at most: there rounding decides." in text
    assert any(tag == "tr" and a.get("class") == "bad" for tag, a in page.seen)


def test_it_asks_for_no_other_file(data: dict[str, Any]) -> None:
    page = read(data)
    tags = {tag for tag, _ in page.seen}
    assert not tags & {"link", "img", "iframe", "object", "embed", "base"}
    links = [a["href"] for _, a in page.seen if "href" in a]
    assert all(x and x.startswith("#") for x in links)
    assert not [a for _, a in page.seen if {"src", "action", "data"} & a.keys()]
    assert not re.search(r"url\(|@import|https?:", html.render_page(data))


def test_light_dark_and_print(data: dict[str, Any]) -> None:
    text = html.render_page(data)
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


@pytest.mark.parametrize(
    ("changes", "verdict", "says"),
    [(0, None, "No automatic repair"), (1, None, "Not verified")],
)
def test_a_run_that_was_not_verified(changes: int, verdict: None, says: str) -> None:
    change = Change("p", "n", "t", ("a",), ("b",))
    one = PassReport("p", "p", "exact", (change,) * changes)
    page = read(Report("p", (one,), {"Add": 1}, {"Add": 1}, verdict=verdict).to_json())
    assert says in page.text
    assert "a model in memory" in page.text
    assert "Verification" not in page.text


def test_it_is_written_whole(data: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    html.write_page(data, path)
    assert path.read_text(encoding="utf-8") == html.render_page(data)
    assert [f.name for f in tmp_path.iterdir()] == ["page.html"]
