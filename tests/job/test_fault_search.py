"""One bad place does not spoil the model: it is found, left out or done otherwise, and said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphfix
from graphfix.cli import main
from graphfix.core import Change, Match, NodePass, Safety
from graphfix.editing.exclusions import NO_EXCLUSIONS
from graphfix.engine import pipeline, registry
from graphfix.engine.report import PassReport, Report
from graphfix.errors import PassError
from graphfix.job import culprits, fault_search
from graphfix.job.task import Task
from graphfix.proof import budget
from graphfix.proof.budget import SearchBudget
from graphfix.proof.verify import BaselineCache

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from graphfix.core import Check
    from graphfix.editing.builder import Builder
    from graphfix.editing.exclusions import Exclusions
    from graphfix.facts.view import View

SITES = 7


def stack(count: int = SITES) -> str:
    """A stack of Softmaxes ``w0``, ``w1``, ..., each of which moves the output by as much."""
    lines = [f"s{i} = Mul (x, c{i}) w{i} = Softmax <axis = -1> (s{i})" for i in range(count)]
    sums = ", ".join(f"w{i}" for i in range(count))
    constants = ", ".join(f"float c{i} = {{{i + 1}.0}}" for i in range(count))
    body = " ".join([*lines, f"y = Sum ({sums})"])
    return f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T, 8] x) => (float[B, T, 8] y) <{constants}> {{ {body} }}"""


# Seven layers of attention; those whose queries are not bounded by a Tanh beat a floor of -1e4.
def layers(unbounded: Sequence[int], count: int = SITES) -> str:
    made = []
    for i in range(count):
        q = "Identity" if i in unbounded else "Tanh"
        made.append(f"""q{i} = {q} (x) k{i} = Transpose <perm = [0, 2, 1]> (q{i})
            scores{i} = MatMul (q{i}, k{i}) masked{i} = Where (wide, inf, scores{i})
            weights{i} = Softmax <axis = -1> (masked{i}) y{i} = MatMul (weights{i}, x)""")
    sums = ", ".join(f"y{i}" for i in range(count))
    return f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T, 8] x, int64[B] lengths) => (float[B, T, 8] y)
        <int64 zero = {{0}}, int64 one = {{1}}, int64[1] first = {{0}}, int64[1] axis = {{1}},
         float inf = {{-inf}}>
        {{
            shape = Shape (x) t = Gather (shape, one) index = Range (zero, t, one)
            row = Unsqueeze (index, first) until = Unsqueeze (lengths, axis)
            hidden = GreaterOrEqual (row, until) wide = Unsqueeze (hidden, axis)
            {" ".join(made)}
            y = Sum ({sums})
        }}"""


@dataclass(frozen=True)
class Scales(NodePass[Match]):
    """Softmax(x) becomes Softmax(1 x), but at some places Softmax(1.5 x), which is wrong."""

    name: ClassVar[str] = "scales"
    safety: ClassVar[Safety] = "exact"
    anchors: ClassVar[tuple[str, ...]] = ("Softmax",)

    wrong: tuple[str, ...] = ()
    by: float = 1.5

    def match(self, node: ir.Node, view: View) -> Match | None:
        made = node.inputs[0].producer() if node.inputs[0] is not None else None
        own = made is not None and made.metadata_props.get("graphfix.pass") == self.name
        return None if own else Match(node)

    def rewrite(self, match: Match, op: Builder) -> ir.Value:
        factor = self.by if match.node.outputs[0].name in self.wrong else 1.0
        return op.Softmax(op.Mul(match.node.inputs[0], np.array(factor, np.float32)), axis=-1)


@dataclass(frozen=True)
class Named(Scales):
    """The same, with a name for what may be tried instead."""

    name: ClassVar[str] = "named"

    def fallbacks(self) -> Iterator[Named]:
        if self.by > 1:
            yield Named(self.wrong, 1.0)


@dataclass(frozen=True)
class Leans(Scales):
    """A Softmax is followed by what makes the second of two larger by a bit."""

    name: ClassVar[str] = "leans"

    def match(self, node: ir.Node, view: View) -> Match | None:
        used = any(
            x.node.metadata_props.get("graphfix.pass") == self.name for x in node.outputs[0].uses()
        )
        return None if used or node.outputs[0].name not in self.wrong else Match(node)

    def rewrite(self, match: Match, op: Builder) -> ir.Value:
        bit = np.array([1, 1 + 2**-23], np.float32)
        return op.Mul(op.Softmax(match.node.inputs[0], axis=-1), bit)


MAY_GO = pipeline.can_drop_pass  # imported before the session begins to forbid it


@pytest.fixture(autouse=True)
def _as_users_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "can_drop_pass", MAY_GO)


@pytest.fixture(autouse=True)
def _no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_plugins", {})


def file(folder: Path, text: str) -> Path:
    onnx.save(onnx.parser.parse_model(text), folder / "m.onnx")
    return folder / "m.onnx"


def left_by(report: graphfix.Report) -> dict[str, tuple[str, ...]]:
    return {one.by: one.at for one in report.left if not one.instead}


@pytest.mark.parametrize("wrong", [(3,), (0, 6), (1, 2), tuple(range(6))])
def test_what_is_wrong_is_left_and_the_rest_is_written(
    tmp_path: Path, wrong: tuple[int, ...]
) -> None:
    names = tuple(f"w{i}" for i in wrong)
    report = graphfix.repair_file(file(tmp_path, stack()), passes=[Scales(names)])
    assert report.ok
    assert report.output is not None
    done = report.passes[0]
    assert {change.tensor for change in done.changes} == {f"w{i}" for i in range(7)} - set(names)
    assert {at for at, _ in done.skips} == {f"Softmax of {name}" for name in names}
    assert all("output 'y' differs by" in reason for _, reason in done.skips)
    assert {at for one in report.left for at in one.at} == {at for at, _ in done.skips}
    assert report.to_json()["left"]
    made = onnx.load(report.output).graph.node
    assert sum(node.op_type == "Mul" for node in made) == 2 * SITES - len(wrong)


def test_where_rounding_decides_the_report_says_so(tmp_path: Path) -> None:
    # 1 + z and what is next to it, of which a TopK takes the larger: a factor that is off by one
    # bit is no error, and neither is another index.
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T, 2] x) => (int64[B, T, 1] y) <int64[1] one = {1}> {
            z = Sub (x, x) even = Softmax <axis = -1> (z) odd = Softmax <axis = -1> (x)
            wide = Mul (odd, z) s = Add (even, wide) best, y = TopK (s, one)
        }"""
    path = file(tmp_path, text)
    report = graphfix.repair_file(path, passes=[Leans(("even",)), Scales()])
    assert report.ok
    (left,) = report.left
    assert left.by == "leans:wrong=even"
    assert "at most: there rounding decides" in left.why
    assert "(TopK)" in left.why


def test_the_original_is_run_once_and_a_try_ends_at_the_first_difference(tmp_path: Path) -> None:
    told: list[str] = []
    report = graphfix.repair_file(
        file(tmp_path, stack()), passes=[Scales(("w3",))], progress=told.append
    )
    assert report.ok
    befores = [x.partition(": ")[2] for x in told if ": before, " in x]
    assert len(befores) == len(set(befores)) > 6
    tries = [i for i, x in enumerate(told) if x.startswith("searching: try ")]
    runs = [
        sum(": after, " in x for x in told[start:end])
        for start, end in zip(tries, [*tries[1:], len(told)], strict=True)
    ]
    assert 1 in runs  # it is told by what told it before
    assert max(runs) >= len(befores)  # what passes has passed everything


def test_with_strict_nothing_is_written(tmp_path: Path) -> None:
    source = file(tmp_path, stack())
    report = graphfix.repair_file(source, passes=[Scales(("w3",))], strict=True)
    assert not report.ok
    assert not report.left
    assert not report.searched
    assert [x.name for x in tmp_path.iterdir()] == ["m.onnx"]


def test_where_nothing_is_left_to_repair_nothing_is_written(tmp_path: Path) -> None:
    report = graphfix.repair_file(file(tmp_path, stack(1)), passes=[Scales(("w0",))])
    assert not report.ok
    assert report.output is None
    assert "nothing was found that can be repaired" in report.searched
    assert [x.name for x in tmp_path.iterdir()] == ["m.onnx"]


def test_what_was_left_is_left_again_without_a_search(tmp_path: Path) -> None:
    chosen = [Scales(("w3",))]
    first = graphfix.repair_file(file(tmp_path, stack()), passes=chosen)
    again = graphfix.repair_file(first.output, tmp_path / "again.onnx", chosen)
    assert again.ok
    assert not again.changed
    assert not again.searched
    assert [at for at, _ in again.passes[0].skips] == ["Softmax of w3"]
    found = graphfix.check(graphfix.load(first.output), chosen)
    assert [(x.at, x.severity, x.fix) for x in found] == [("Softmax of w3", "note", None)]
    # With other options it is another pass.
    other = graphfix.check(graphfix.load(first.output), [Scales(())])
    assert [(x.at, x.severity) for x in other] == [("Softmax of w3", "warning")]


def test_a_bad_place_among_those_of_the_profile(tmp_path: Path) -> None:
    chosen = ["additive-mask", "cumsum-index"]
    passes = [Scales(("weights1",)), *(graphfix.get_pass(x) for x in chosen)]
    report = graphfix.repair_file(file(tmp_path, layers([])), passes=passes)
    assert report.ok
    assert left_by(report) == {passes[0].spec(): ("Softmax of weights1",)}
    by = {done.name: len(done.changes) for done in report.passes}
    assert by["scales"] == SITES - 1
    assert by["additive-mask"] == SITES
    assert by["cumsum-index"] == 1


@pytest.mark.parametrize("unbounded", [(4,), (2, 3), (0, 6), tuple(range(SITES))])
def test_scores_without_a_bound_get_the_lower_floor_that_the_pass_names(
    tmp_path: Path, unbounded: tuple[int, ...]
) -> None:
    report = graphfix.repair_file(file(tmp_path, layers(unbounded)))
    assert report.ok
    assert report.output is not None
    ops = [node.op_type for node in onnx.load(report.output).graph.node]
    assert "Where" not in ops
    assert not left_by(report)
    (told,) = report.left
    assert (told.by, told.instead) == ("additive-mask", "additive-mask:floor=-1e9")
    assert set(told.at) == {f"Where of masked{i}" for i in range(SITES)}
    assert "large values in the padding" in told.why
    low = [x for done in report.passes if done.spec == told.instead for x in done.changes]
    assert {change.at for change in low} == set(told.at)
    assert "additive-mask:floor=-1e9" in report.spec.split(",")
    assert "additive-mask" not in report.spec.split(",")


def test_what_a_pass_names_is_not_taken_where_it_is_wrong_too(tmp_path: Path) -> None:
    class Both(Named):
        name: ClassVar[str] = "both"

        def fallbacks(self) -> Iterator[Named]:
            yield Both(self.wrong, 2.5) if self.by == 1.5 else self

    report = graphfix.repair_file(file(tmp_path, stack()), passes=[Both(("w2", "w5"))])
    assert report.ok
    assert {at for x in report.left for at in x.at} == {"Softmax of w2", "Softmax of w5"}
    assert not any(x.instead for x in report.left)
    assert sum(len(done.changes) for done in report.passes) == SITES - 2


def test_a_pass_that_chooses_no_places_is_left_out_as_a_whole(tmp_path: Path) -> None:
    class Whole(Scales):
        name: ClassVar[str] = "whole"

        def supports_site_exclusion(self) -> bool:
            return False

    passes = [Whole(("w2",)), graphfix.get_pass("additive-mask")]
    report = graphfix.repair_file(
        file(tmp_path, layers([])), passes=[Whole(("weights2",)), passes[1]]
    )
    assert report.ok
    assert [done.left != "" for done in report.passes] == [True, False]
    assert left_by(report) == {passes[0].spec().replace("w2", "weights2"): ()}
    assert len(report.passes[1].changes) == SITES


NAN = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, 8] x) => (float[B, 8] y) <float low = {-1.0}>
    { a = Abs (x) b = Sub (low, a) s = Softmax <axis = -1> (b) r = Sqrt (b) y = Add (s, r) }"""


def test_where_the_original_itself_fails_there_is_no_search_through_the_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    source = file(tmp_path, NAN)
    report = graphfix.repair_file(source, passes=[Scales(("s",))], progress=tried.append)
    assert not report.ok
    assert report.output is None
    assert "no repair is to blame" in report.searched
    assert max(x for x in tried if x.startswith("searching")).startswith("searching: try 1,")


class Leaks(NodePass[Match]):
    """Right for each clip alone; what is in the padding, if it is large, reaches all frames."""

    name: ClassVar[str] = "leaks"
    anchors: ClassVar[tuple[str, ...]] = ("Relu",)

    def match(self, node: ir.Node, view: View) -> Match | None:
        return None if node.metadata_props else Match(node)

    def rewrite(self, match: Match, op: Builder) -> ir.Value:
        value = match.node.inputs[0]
        large = op.Greater(op.ReduceMax(value), np.array(100, np.float32))
        return op.Add(op.Relu(value), op.Cast(large, to=1))


class Promises(graphfix.Pass):
    """Changes nothing, and says that padding reaches nothing."""

    name = "promises"
    safe_to_pad = True

    def sites(self, model: ir.Model) -> Iterator[graphfix.Match | graphfix.Skip]:
        yield from ()

    def repair(self, model: ir.Model) -> Iterator[graphfix.Change | graphfix.Skip]:
        yield from ()


def test_what_spoils_a_promise_of_safe_padding_is_found_too(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T, 8] x) => (float[B, T, 8] y)
        { r = Relu (x) w = Softmax <axis = -1> (x) y = Add (r, w) }"""
    passes = [Leaks(), Scales(), Promises()]
    report = graphfix.repair_file(file(tmp_path, text), passes=passes)
    assert report.ok
    assert report.padded is not None
    assert left_by(report) == {"leaks": ("Relu of r",)}
    assert [len(done.changes) for done in report.passes] == [0, 1, 0]


def test_a_promise_is_never_left_out(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T, 8] x) => (float[B, T, 8] y)
        { mean = ReduceMean <axes = [1]> (x) y = Sub (x, mean) }"""
    report = graphfix.repair_file(file(tmp_path, text), passes=[Promises()])
    assert not report.ok
    assert report.output is None


PLUGIN = '''
import numpy as np
import graphfix


class Planted(graphfix.NodePass):
    """Softmax(x) becomes Softmax(1 x), and at w1 Softmax(2 x)."""

    name = "planted"
    anchors = ("Softmax",)

    def match(self, node, view):
        return None if node.metadata_props else graphfix.Match(node)

    def rewrite(self, match, op):
        factor = 2 if match.node.outputs[0].name == "w1" else 1
        return op.Softmax(op.Mul(match.node.inputs[0], np.array(factor, np.float32)), axis=-1)
'''


# Passes that raise


@dataclass(frozen=True)
class Raises(Scales):
    """Raises at its third place, in the middle of an edit."""

    name: ClassVar[str] = "raises"

    def rewrite(self, match: Match, op: Builder) -> ir.Value:
        made = super().rewrite(match, op)
        if match.node.outputs[0].name == "w2":
            match.node.inputs[0].name = "spoiled"
            raise ValueError("odd node")
        return made


def bytes_of(model: ir.Model) -> bytes:
    data: bytes = ir.to_proto(model).SerializeToString(deterministic=True)
    return data


def test_a_pass_that_raises_is_put_back_and_the_rest_goes_on() -> None:
    model = ir.from_proto(onnx.parser.parse_model(layers([])))
    alone = ir.from_proto(onnx.parser.parse_model(layers([])))
    graphfix.run(alone, "additive-mask")
    report = graphfix.run(model, [graphfix.get_pass("additive-mask"), RaisesLate()])
    (left,) = report.left
    assert left.by == "raises-late"
    assert "the pass raises-late failed: ValueError at test_fault_search.py:" in left.why
    assert [bool(x.left) for x in report.passes] == [False, True]
    model.metadata_props.clear()
    alone.metadata_props.clear()
    assert bytes_of(model) == bytes_of(alone)


class RaisesLate(Scales):
    """Raises when half of its work is done."""

    name: ClassVar[str] = "raises-late"

    def repair(self, model: ir.Model) -> Iterator[Change | graphfix.Skip]:
        for i, event in enumerate(super().repair(model)):
            yield event
            if i == 3:
                model.graph.initializers.clear()
                model.graph.outputs.clear()
                raise ValueError("too many")


class NamesTwice(Scales):
    """Gives two tensors one name."""

    name: ClassVar[str] = "names-twice"

    def repair(self, model: ir.Model) -> Iterator[Change | graphfix.Skip]:
        yield from super().repair(model)
        model.graph[0].outputs[0].name = model.graph[1].outputs[0].name


def test_a_pass_that_breaks_the_graph_is_put_back_and_the_rest_goes_on() -> None:
    model = ir.from_proto(onnx.parser.parse_model(layers([])))
    report = graphfix.run(model, [graphfix.get_pass("additive-mask"), NamesTwice()])
    (left,) = report.left
    assert left.by == "names-twice"
    assert left.why.startswith("the pass names-twice makes ")
    assert report.passes[0].changes
    before = ir.from_proto(onnx.parser.parse_model(layers([])))
    assert graphfix.verify(before, model, safety="valid-rows").ok


def test_a_pass_that_raises_leaves_a_model_as_it_was_if_it_cannot_do_without() -> None:
    class Needed(Raises):
        name: ClassVar[str] = "needed"
        safe_to_pad: ClassVar[bool] = True

    model = ir.from_proto(onnx.parser.parse_model(stack()))
    before = bytes_of(model)
    with pytest.raises(PassError, match="the pass needed failed: ValueError"):
        graphfix.run(model, [Needed()])
    assert bytes_of(model) == before


def test_the_job_says_which_pass_failed_and_writes_the_rest(tmp_path: Path) -> None:
    source = file(tmp_path, stack())
    report = graphfix.repair_file(source, passes=[Raises(), Scales()])
    assert report.ok
    assert report.output is not None
    assert [x.by for x in report.left] == ["raises"]
    assert "odd node" in report.left[0].why
    assert [len(done.changes) for done in report.passes] == [0, SITES]
    with pytest.raises(PassError, match="odd node"):
        graphfix.repair_file(source, tmp_path / "s.onnx", [Raises(), Scales()], strict=True)
    assert not (tmp_path / "s.onnx").exists()


# The search by itself

Bad = set[tuple[str, str]] | frozenset[tuple[str, str]]


def searched(
    sizes: Sequence[int],
    spoiled: Bad,
    needed: Bad = frozenset(),
    *,
    alone: bool = True,
    seconds: float = 60,
) -> tuple[culprits.Culprits, list[int]]:
    """A search through passes with so many places each, of which some are bad."""
    kinds = [type(f"P{i}", (Scales,), {"name": f"p{i}"}) for i in range(len(sizes))]
    chosen: list[Check] = [kind() for kind in kinds]
    done = [
        PassReport(f"p{i}", f"p{i}", "exact", tuple(
            Change(f"p{i}", f"n{j}", f"t{j}", (), ()) for j in range(count)
        ))
        for i, count in enumerate(sizes)
    ]  # fmt: skip
    tries = [0]

    def proves(_: Sequence[Check], leave: Exclusions, __: bool) -> str:
        tries[0] += 1

        def there(places: Bad) -> int:
            return sum(
                leave.reason_for(*x) is None and leave.reason_for_pass(x[0]) is None for x in places
            )

        return "it differs" if there(spoiled) or there(needed) < len(needed) else ""

    tensors = frozenset(f"t{j}" for j in range(max(sizes, default=0)))
    spending = SearchBudget(culprits.TRIES, seconds)
    found = culprits.CulpritSearch(chosen, done, tensors, proves, lambda _: None, spending)
    return found.run("it differs", proves_unrepaired=alone), tries


@given(st.data())
def test_what_is_found_is_what_is_bad(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    places = [(f"p{i}", f"t{j}") for i, count in enumerate(sizes) for j in range(count)]
    spoiled = data.draw(st.sets(st.sampled_from(places), min_size=1, max_size=4))
    if len(spoiled) == len(places):
        return
    found, tries = searched(sizes, spoiled)
    deny, only = found.exclusions
    assert {x for x in places if deny.reason_for(*x) is not None} == spoiled
    assert {
        x for x in places if only.reason_for(*x) is not None or only.reason_for_pass(x[0]) == ""
    } >= spoiled
    assert tries[0] <= 1 + len(spoiled) * 2 * (len(places).bit_length() + 3)


def test_where_nothing_runs_unrepaired_one_pass_at_a_time_is_left_out() -> None:
    needed, spoiled = {("p0", "t0"), ("p2", "t3")}, {("p1", "t1"), ("p1", "t4")}
    found, _ = searched([4, 6, 5], spoiled, needed, alone=False)
    deny, _ = found.exclusions
    left = {(f"p{i}", f"t{j}") for i in range(3) for j in range(6)}
    assert {x for x in left if deny.reason_for(*x) is not None} == spoiled
    # Where the original has to be proved as it is, that is no search for the passes.
    found, tries = searched([4, 6, 5], spoiled, needed)
    assert not found.exclusions
    assert tries[0] == 1
    assert "no repair is to blame" in found.searched


def test_a_search_that_is_given_up_leaves_what_it_has_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(culprits, "TRIES", 3)
    found, tries = searched([8, 8], {("p0", "t5"), ("p1", "t5")})
    assert tries[0] == 3
    deny, _ = found.exclusions
    assert deny.reason_for("p0", "t1") is None
    assert deny.reason_for("p0", "t5") is not None
    assert deny.reason_for("p1", "t5") is not None
    assert any("not tried: the search ended after 3 tries" in one.why for one in found.left)


def test_a_search_ends_with_its_budget_and_keeps_what_is_proved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = iter(range(100))  # one at the beginning, one before each other try
    monkeypatch.setattr(budget.time, "monotonic", lambda: float(next(seconds)))
    found, tries = searched([8, 8], {("p0", "t5"), ("p1", "t5")}, seconds=5)
    assert tries[0] == 5
    deny, only = found.exclusions
    assert only.reason_for_pass("p0") is None
    assert deny.reason_for("p0", "t1") is None
    assert any("not tried: the search ended after --budget 5" in x.why for x in found.left)


# What is said


def said(capsys: pytest.CaptureFixture[str], *given: object) -> tuple[int, str, str]:
    code = main([str(x) for x in given])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_the_command_line_and_the_page_say_what_was_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plugin.py").write_text(PLUGIN, encoding="utf-8")
    file(tmp_path, stack(3))
    given = ["run", "m.onnx", "--plugin", "plugin.py", "-p", "planted"]
    code, out, err = said(capsys, *given, "--strict")
    assert code == 1
    assert "nothing was written" in err
    assert "left out" not in out
    monkeypatch.setattr(registry, "_plugins", {})
    code, out, _ = said(capsys, *given, "--report", "r.html")
    assert code == 0
    assert all(len(line) <= 80 for line in out.splitlines())
    flat = " ".join(out.split())
    assert "repairs 2: 2 planted" in flat
    assert "left out planted at Softmax of w1: with it output 'y' differs by" in flat
    assert "searched 1 of 3 places is to blame, found in" in flat
    assert (tmp_path / "m.fixed.onnx").is_file()
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Bad places: left out, or repaired in another way" in page


def test_a_pass_that_fails_is_said_and_with_strict_its_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PLUGIN.replace("factor = 2", "factor = odd")
    (tmp_path / "plugin.py").write_text(text, encoding="utf-8")
    file(tmp_path, stack(3))
    given = ["run", "m.onnx", "--plugin", "plugin.py", "-p", "planted,directml"]
    code, out, _ = said(capsys, *given)
    assert code == 0
    flat = " ".join(out.split())
    assert "left out the pass planted failed: NameError at plugin.py:" in flat
    assert "what it did was rolled back" in flat
    monkeypatch.setattr(registry, "_plugins", {})
    code, _, err = said(capsys, *given, "-o", "s.onnx", "--strict")
    assert code == 2
    assert "Traceback" in err
    assert "the pass planted failed: NameError" in err
    assert not (tmp_path / "s.onnx").exists()


@pytest.mark.parametrize(
    ("spec", "given", "shared"),
    [("fold", True, True), ("fold", False, False), ("fold,float16", True, False)],
)
def test_the_originals_outputs_are_shared_by_all_trials_unless_a_pass_rounds(
    spec: str, given: bool, shared: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    onnx.save(onnx.parser.parse_model(stack(1)), tmp_path / "m.onnx")
    task = Task(tmp_path / "m.onnx", tuple(pipeline.resolve_passes(spec)))
    seen: list[object] = []

    class Search:
        def __init__(self, *arguments: object) -> None:
            self.failure_with = arguments[3]

        def run(self, *_: object, **__: object) -> culprits.Culprits:
            for _i in range(2):
                self.failure_with((), NO_EXCLUSIONS, False)  # type: ignore[operator]
            return culprits.Culprits()

    def trial(_: object, __: object, outputs: object, *, locate: bool) -> str:
        assert not locate
        seen.append(outputs)
        return ""

    monkeypatch.setattr(fault_search, "CulpritSearch", Search)
    monkeypatch.setattr(fault_search, "_failure_of_trial", trial)
    outputs = BaselineCache() if given else None
    fault_search.find_culprits(task, Report("", (), {}, {}), outputs)
    first, second = seen
    assert first is second
    assert isinstance(first, BaselineCache)
    assert (first is outputs) == shared
