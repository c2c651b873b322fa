"""The page of the zoo: its numbers, that it needs nothing else, and how a browser takes it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import onnx
import pytest

from graphfix.model_zoo import model_process, zoo_page
from graphfix.model_zoo.figures import FIGURES, make_figure, merge_figures
from graphfix.model_zoo.model_process import Request
from graphfix.model_zoo.recipe import Recipe
from tests import browser
from tests.dml import picture

ROOT = Path(__file__).parents[2]
EVIL = '</script><script>document.title = "hacked"</script><img src=x onerror=alert(1)>&"<!--'
HEADS = """<ir_version: 8, opset_import: ["": 17]>
heads (float[B, T, 32] x) => (float[B, T, 2, 16] y)
<int64 first = {0}, int64 second = {1}, int64[1] axis = {0}, int64[1] h = {2}, int64[1] d = {16}> {
    shape = Shape (x)
    b = Gather (shape, first)  b1 = Unsqueeze (b, axis)
    t = Gather (shape, second)  t1 = Unsqueeze (t, axis)
    target = Concat <axis = 0> (b1, t1, h, d)
    y = Reshape (x, target) }"""
VOID = {"meta", "br"}


class Reader(HTMLParser):
    """The cells of the table, what is embedded, and all text; unclosed elements are errors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.source = text
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: dict[tuple[str, str], str] = {}
        self.words: list[str] = []
        self.embedded = ""
        self._row = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._row = dict(attrs).get("data-model") or self._row
        if tag not in VOID:
            self.open.append((tag, dict(attrs)))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        tag, attrs = self.open[-1] if self.open else ("", {})
        if tag == "script":
            self.embedded += data
        elif tag != "style":
            self.words.append(data)
        if "data-figure" in attrs:  # not what is in an element inside it, such as an interval
            self.cells[self._row, str(attrs["data-figure"])] = data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def row(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The row of a small model, and what DirectML would have said of it."""
    path = tmp_path_factory.mktemp("heads") / "model.onnx"
    onnx.save(onnx.parser.parse_model(HEADS), path)
    recipe = Recipe(
        "heads",
        path,
        name="Heads",
        shows="A head split.",
        gates={"nodes": 3},
        bench={"processes": 1},
    )
    made = json.loads(json.dumps(model_process.run_request(Request(recipe, "cpu", "k"))))
    nodes = [
        {"name": "a", "op": "Shape", "on": "cpu"},
        {"name": "b", "op": "MemcpyFromHost", "on": "dml"},
        {"name": "c", "op": "Relu", "on": "dml"},
        {"name": "d", "op": "DmlFusedNode_0_0", "on": "dml"},
    ]
    counts = {"fused-graphs": 1, "copies": 1, "cpu-nodes": 1}
    made["stages"]["placement"] = {
        "before": {"nodes": [], "error": "Reshape node 'y': 8007023E", "counts": {}},
        "after": {"nodes": nodes, "error": "", "counts": counts},
        "figures": {name: make_figure(None, count, "8007023E") for name, count in counts.items()},
    }
    made["stages"]["device"] = {
        "figures": {"crashes": make_figure(1, 0), "worst": make_figure(None, 2.5e-7, "8007023E")}
    }
    # Of one process nothing is told.
    ratio = {**make_figure(None, 0.87, "the original"), "interval": [0.8, 0.9]}
    made["stages"]["bench"]["figures"] = {"ratio": ratio}
    copy = {"value": 1.0123, "low": 0.987, "high": 1.1}
    made["stages"]["bench"]["models"][0]["copy"] = {"steady": copy}
    made["figures"] = merge_figures(made["stages"])
    return made


def evil(row: dict[str, Any]) -> dict[str, Any]:
    """The same with bad text wherever a model may put text."""

    def spoil(data: object) -> object:
        if isinstance(data, dict):
            # An SVG is drawn by graphfix, of words and numbers of its own.
            kept = ("on", "op", "ep", "side", "model", "spec", "safety", "severity", "svg")
            return {k: v if k in kept else spoil(v) for k, v in data.items()}
        if isinstance(data, list):
            return [spoil(x) for x in data]
        return EVIL if isinstance(data, str) else data

    spoiled = spoil(row)
    assert isinstance(spoiled, dict)
    return spoiled


def read(*rows: dict[str, Any]) -> Reader:
    return Reader(zoo_page.render_page(rows))


def test_the_numbers_are_those_of_the_json(row: dict[str, Any]) -> None:
    seen = read(row)
    carried = json.loads(seen.embedded)["rows"]
    assert carried == [row]
    cells = {name: seen.cells["heads", name] for name in FIGURES}
    assert cells["dynamic-reshapes"] == "1 → 0"
    assert cells["crashes"] == "crashes → runs"
    assert cells["worst"] == "2.5e-07"
    assert cells["copies"] == "- → 1"
    assert cells["ratio"] == f"{carried[0]['figures']['ratio']['after']:.2f}"
    for name, one in carried[0]["figures"].items():
        assert cells[name] == zoo_page.figure_cell(name, one)


def test_a_ratio_that_cannot_be_told_is_none(row: dict[str, Any]) -> None:
    unsure = make_figure(
        None, None, "cannot tell: a model beside its own copy took 1.2 of the time"
    )
    made = {**row, "figures": {**row["figures"], "ratio": unsure}}
    assert read(made).cells["heads", "ratio"] == "cannot tell"


def test_a_model_shows_what_was_found(row: dict[str, Any]) -> None:
    text = read(row).text
    change = next(p for p in row["stages"]["repair"]["passes"] if p["changes"])["changes"][0]
    for line in (*change["removed"], *change["added"], change["at"]):
        assert line in text
    for gate in row["gates"]:
        assert gate["text"] in text
    for one in row["stages"]["bench"]["models"]:
        for phase in one["phases"].values():
            if phase["runs"]:
                assert f"{phase['median_ms']:.3g} ms" in text
    shown = text[text.index("median of all processes") :]
    figures = ("first run", "new length", "steady", "memory", "session")
    assert sorted(figures, key=shown.index) == [*figures]
    assert "A copy of the original took 1.012 of its time (0.987 to 1.100)" in text
    assert "A head split." in text
    assert "4 nodes, 1 fused, 1 on the CPU, 1 copies" in text
    assert "Reshape node 'y': 8007023E" in text


def test_every_refusal_has_its_reason(row: dict[str, Any]) -> None:
    copied = json.loads(json.dumps(row))
    copied["stages"]["repair"]["passes"][0]["skips"] = [["/a/Reshape", "two dims could be meant"]]
    text = read(copied).text
    assert "1 × two dims could be meant" in text
    assert "/a/Reshape" in text


def test_what_is_not_known_says_why(row: dict[str, Any]) -> None:
    copied = json.loads(json.dumps(row))
    for name in ("device", "placement"):
        copied["stages"][name] = {"skipped": "measured on a device only, such as --ep dml"}
    copied["figures"]["copies"] = make_figure(
        None, None, "measured on a device only, such as --ep dml"
    )
    seen = read(copied)
    assert seen.cells["heads", "copies"] == "-"
    assert "Not known: copies; measured on a device only, such as --ep dml." in seen.text


def test_a_failed_model_comes_first_in_the_verdict(row: dict[str, Any]) -> None:
    request = Request(Recipe("gone", Path("gone.onnx")), "cpu", "k")
    text = read(row, model_process.failed_row(request, "its process died, exit code -9")).text
    assert "1 of 2 models are not as they should be" in text
    assert "its process died, exit code -9" in text


def test_what_was_not_tried_stands_in_the_verdict(row: dict[str, Any]) -> None:
    skipped = {**row, "id": "b", "stages": {**row["stages"], "bench": {"skipped": "no device"}}}
    text = read(skipped).text
    assert "All 1 models are as they should be where they were tried Not tried:" in text
    assert "Not tried: bench; no device." in text
    assert "Not tried: bench of 1 model; no device." in read(row, skipped).text


def test_nothing_in_it_is_markup_but_ours(row: dict[str, Any]) -> None:
    spoiled = evil(row)
    seen = read(spoiled)
    assert [tag for tag, _ in seen.tags].count("script") == 1
    assert "img" not in {tag for tag, _ in seen.tags}
    assert json.loads(seen.embedded)["rows"] == [spoiled]


@pytest.mark.parametrize("name", ["a b#c", "m\udcff", "模型"])
def test_links_lead_to_models_of_any_name(row: dict[str, Any], name: str, tmp_path: Path) -> None:
    """Also to one whose file is named in no encoding, as Python gives it."""
    zoo_page.write_page([{**row, "id": name}], tmp_path / "index.html")
    tags = Reader((tmp_path / "index.html").read_text(encoding="utf-8")).tags
    (section,) = (found["id"] for tag, found in tags if tag == "section" and "id" in found)
    links = [str(found["href"]) for tag, found in tags if tag == "a" and "href" in found]
    assert f"#{section}" in map(unquote, links)


def test_it_asks_for_no_other_file(row: dict[str, Any]) -> None:
    text = zoo_page.render_page([row])
    seen = Reader(text)
    assert not {tag for tag, _ in seen.tags} & {"link", "img", "iframe", "object", "embed", "base"}
    links = [a["href"] for _, a in seen.tags if a.get("href")]
    assert links == ["#heads"]
    assert not [a for _, a in seen.tags if {"src", "action", "data"} & a.keys()]
    assert not re.search(r"url\(|@import|https?:", text)


def test_no_models_and_light_dark_and_print() -> None:
    text = zoo_page.render_page([])
    assert "No models yet" in Reader(text).text
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


@browser.needed
class TestBrowser:
    def test_it_fits_at_any_width(self, row: dict[str, Any], tmp_path: Path) -> None:
        pages = {
            "zoo": zoo_page.render_page([row, {**evil(row), "id": "b"}]),
            "none": zoo_page.render_page([]),
        }
        assert browser.faults(pages, tmp_path) == []

    def test_the_numbers_that_it_shows(self, row: dict[str, Any], tmp_path: Path) -> None:
        # Told by the browser: a script error, or markup that got through, would be seen here.
        zoo_page.write_page([row, {**evil(row), "id": "b"}], tmp_path / "index.html")
        shown, said = browser.dumped(tmp_path / "index.html")
        assert "CONSOLE" not in said
        assert "<title>graphfix zoo</title>" in shown
        rows = dict(re.findall(r'<tr data-model="(\w+)">(.*?)</tr>', shown, re.DOTALL))
        carried = json.loads(re.search(r'id="zoo">(.*?)</script>', shown, re.DOTALL)[1])  # type: ignore[index]
        for wanted in carried["rows"]:
            cells = re.findall(r'data-figure="([\w-]+)"[^>]*>([^<]*)<', rows[wanted["id"]])
            assert len(cells) == len(FIGURES)
            for name, text in cells:
                assert text == zoo_page.figure_cell(name, wanted["figures"][name])


class TestPicture:
    """The picture of README is of the page, except what no other machine would show."""

    def test_no_time_is_in_it(self, row: dict[str, Any]) -> None:
        text = picture.without_times(zoo_page.render_page([row]))
        hidden = re.findall(r'\[(data-[a-z]+)="([\w-]+)"\]', text.partition("</head>")[0])
        timed = re.compile(
            r"<(\w+)[^>]*?(data-[a-z]+)=\"([\w-]+)\"[^>]*>([^<]*latency[^<]*)<", re.I
        )
        seen = [(mark, name) for _, mark, name, _ in timed.findall(text)]
        assert seen.count(("data-of", "ratio")) == 2  # the head of the column, and what it means
        assert set(seen) <= set(hidden)
        assert ("data-figure", "ratio") in hidden
        assert 'data-figure="ratio"' in text.partition("</head>")[2]
