"""What becomes of a model whose float16 misses the gate: it is left as it is, or refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix import job
from graphfix.cli import main
from graphfix.core import Change
from graphfix.engine.report import PassReport, Report
from graphfix.float16_search import keep_search
from graphfix.float16_search.keep_search import KeepSearchResult
from graphfix.job import prove
from graphfix.job.task import Task
from graphfix.proof.compare import HALF_GATE, Tolerance
from tests.float16_search.test_keep_search import OVERFLOWS, f, parse

if TYPE_CHECKING:
    from graphfix.core import Pass

# What comes in is known to a thousandth of a turn in float32, and to none in float16.
TURNS = parse(
    "(float[B, T, 16] x, float[16, 16] w, float many) => (float[B, T, 16] y)",
    "a = Mul (x, many) b = Sin (a) y = MatMul (b, w)",
    w=f(16, 16, scale=0.3),
    many=np.array(1e4, np.float32),
)


@pytest.fixture
def _finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search takes the usual inputs for all there are, and is wrong."""

    def settle(model: ir.Model, chosen: Pass, **_: object) -> tuple[Pass, KeepSearchResult]:
        return chosen, KeepSearchResult()

    monkeypatch.setattr(keep_search, "search_kept_nodes", settle)


@pytest.mark.usefixtures("_finds_nothing")
def test_what_float16_does_not_do_for_is_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "m.onnx", tmp_path / "out.onnx"
    ir.save(OVERFLOWS.clone(), source)
    code = main(["run", str(source), "-p", "float16", "-o", str(target), "--no-kernels"])
    assert code == 0
    assert target.read_bytes() == source.read_bytes()
    told = " ".join(capsys.readouterr().out.split())
    assert "left out float16: with it output 'y'" in told
    assert "gains nothing here, left as it is" in told


@pytest.mark.usefixtures("_finds_nothing")
def test_what_comes_before_is_done_all_the_same(tmp_path: Path) -> None:
    model = OVERFLOWS.clone()
    last = next(x for x in model.graph if x.op_type == "Softmax")
    shape = ir.Value(name="shape", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([3]))
    shape.const_value = ir.tensor(np.array([-1, 4, 16]), name="shape")
    model.graph.register_initializer(shape)
    again = ir.node("Reshape", [last.outputs[0], shape], {"allowzero": 1})
    again.outputs[0].name = "z"
    again.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    model.graph.append(again)
    model.graph.outputs[0] = again.outputs[0]
    source, target, third = (tmp_path / f"{x}.onnx" for x in ("m", "out", "third"))
    ir.save(model, source)
    passes = "reshape-allowzero,float16"
    report = job.repair_file(source, target, passes, dims={"T": [4, 8]}, kernels=False)
    assert report.ok
    assert [x.by for x in report.left] == ["float16"]
    made = ir.load(target)
    assert not [x for x in made.graph if x.op_type == "Reshape" and "allowzero" in x.attributes]
    assert {x.const_value.dtype for x in made.graph.initializers.values()} == {
        ir.DataType.FLOAT,
        ir.DataType.INT64,
    }
    # It is written down, and is not tried again.
    second = job.repair_file(target, third, passes, dims={"T": [4, 8]}, kernels=False)
    assert not second.changed
    assert "gains nothing" in second.passes[1].left


@pytest.mark.usefixtures("_finds_nothing")
def test_strictly_it_is_refused(tmp_path: Path) -> None:
    source, target = tmp_path / "m.onnx", tmp_path / "out.onnx"
    ir.save(OVERFLOWS.clone(), source)
    report = job.repair_file(source, target, "float16", strict=True, kernels=False)
    assert not report.ok
    assert not target.exists()


def test_where_callers_would_see_it_the_gate_refuses_and_the_page_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Inputs in float16 are what was asked for: a model that they lose is not written."""
    source, target, page = tmp_path / "m.onnx", tmp_path / "out.onnx", tmp_path / "page.html"
    ir.save(TURNS.clone(), source)
    arguments = ["run", str(source), "-p", "float16:io=half", "-o", str(target), "--no-kernels"]
    assert main([*arguments, "--report", str(page), "--dims", "T=9,40"]) == 1
    assert not target.exists()
    told = capsys.readouterr()
    assert "output 'y' differs by" in told.err
    assert "nothing was written" in told.err
    assert "raise --rtol" in told.err
    text = page.read_text(encoding="utf-8")
    assert "Failed: the repaired model does not compute the same" in text


def test_what_stays_whole_is_said_to_gain_nothing(tmp_path: Path) -> None:
    source, target = tmp_path / "m.onnx", tmp_path / "out.onnx"
    ir.save(TURNS.clone(), source)
    report = job.repair_file(source, target, "float16:keep=MatMul+Mul+Sin", kernels=False)
    assert report.ok
    assert not report.changed
    assert target.read_bytes() == source.read_bytes()
    assert ["gains nothing here, left as it is: keep=" in x for _, x in report.passes[0].skips] == [
        True
    ]


def test_a_conversion_gone_wrong_is_told_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A Cast to float32 whose output is still declared as float16, as converters leave it."""
    source = tmp_path / "m.onnx"
    model = parse("(int64[B, 8] x) => (float16[B, 8] y)", "a = Cast <to = 1> (x) y = Relu (a)")
    ir.save(model, source)
    assert main(["run", str(source), "-p", "float16"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "does not load in ONNX Runtime" in told
    assert "graphfix run FLOAT32.onnx -p directml,float16" in told


def test_a_search_that_meets_its_aim_in_no_way_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With less of the gate it would find as little, and take as long."""
    source, margins, least = tmp_path / "m.onnx", list[float](), [1.0]
    known_each_time: list[object] = []
    ir.save(OVERFLOWS.clone(), source)

    def settle(
        model: ir.Model, chosen: Pass, *, margin: float, known: object, **_: object
    ) -> tuple[Pass, KeepSearchResult]:
        margins.append(margin)
        known_each_time.append(known)
        return chosen, KeepSearchResult({"none": f"at {margin}"}, met=margin > least[-1])

    monkeypatch.setattr(keep_search, "search_kept_nodes", settle)
    for met, tried in ((1.0, [0.5]), (0.0, [0.5, 0.4, 0.2])):
        margins.clear()
        least.append(met)
        report = job.repair_file(source, tmp_path / "out.onnx", "float16", kernels=False)
        assert [x.by for x in report.left] == ["float16"]
        assert margins == tried
    # Each goes on from what the one before has found.
    assert known_each_time == [None, None, {"none": "at 0.5"}, {"none": "at 0.4"}]


def test_what_has_nothing_to_convert_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keep_search, "Trials", None)
    chosen = graphfix.get_pass("float16", keep="MatMul+Mul+Sin")
    assert keep_search.search_kept_nodes(TURNS.clone(), chosen, tolerance=HALF_GATE) == (
        chosen,
        KeepSearchResult(),
    )


def test_what_rounds_nothing_is_held_to_the_usual_gate() -> None:
    chosen = (graphfix.get_pass("float16"),)
    task = Task(Path("m.onnx"), chosen, True, {}, None, HALF_GATE, "cpu", None, False, print)
    change = Change("float16", "m", "y", (), ())
    done = PassReport("float16", "float16", "valid-rows", changes=(change,))
    idle = dataclasses.replace(done, changes=())
    for passes, allowed in (((done,), HALF_GATE), ((idle,), None)):
        assert prove._allowed_tolerance(task, Report("float16", passes, {}, {})) == allowed
    # What was asked for element by element is what was asked for.
    own = dataclasses.replace(task, tolerance=Tolerance(max_abs=0.5))
    assert prove._allowed_tolerance(own, Report("float16", (idle,), {}, {})) == own.tolerance
