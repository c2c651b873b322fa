"""Passes that round are calibrated by running the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.core import Change
from graphfix.engine.pipeline import resolve_passes
from graphfix.engine.report import PassReport, Report
from graphfix.errors import ModelError
from graphfix.files import io
from graphfix.job.rounding_search import (
    MARGINS,
    Calibration,
    has_rounded,
    is_hopeless,
    rounding_tolerance,
)
from graphfix.proof.compare import HALF_GATE, Tolerance

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
CHANGE = Change("float16", "at", "y", (), ())


def model(text: str = "h = MatMul (x, w) g = Relu (h) y = MatMul (g, w)") -> ir.Model:
    numbers = ", ".join(str((n * 7 % 11 - 5) / 10) for n in range(64))
    return ir.from_onnx_text(
        f"{HEAD} m (float[B, 8] x) => (float[B, 8] y) <float[8, 8] w = {{{numbers}}}> {{ {text} }}"
    )


def report(*changed: str, met: bool | None = None) -> Report:
    passes = tuple(
        PassReport(name, name, "exact", (CHANGE,) if name in changed else ())
        for name in ("fold", "float16")
    )
    return Report("", passes, {}, {}, met=met)


def test_margins_shrink_and_the_later_ones_try_as_much_as_verification() -> None:
    assert MARGINS[0] >= 0.5 > MARGINS[1]
    assert sorted(MARGINS, reverse=True) == [*MARGINS]
    assert len({*MARGINS}) == len(MARGINS) == 3


@pytest.mark.parametrize(("met", "hopeless"), [(True, False), (False, True), (None, False)])
def test_a_search_that_missed_its_aim_is_hopeless(met: bool | None, hopeless: bool) -> None:
    assert is_hopeless(report(met=met)) == hopeless


@pytest.mark.parametrize(
    ("spec", "changed", "rounded"),
    [
        ("fold,float16", ("float16",), True),
        ("fold,float16", ("fold", "float16"), True),
        ("fold,float16", ("fold",), False),
        ("fold,float16", (), False),
        ("fold", ("fold", "float16"), False),
    ],
)
def test_only_a_change_of_a_pass_that_rounds_has_rounded(
    spec: str, changed: tuple[str, ...], rounded: bool
) -> None:
    assert has_rounded(resolve_passes(spec), report(*changed)) == rounded


def test_the_tolerance_of_float16_where_a_pass_rounds() -> None:
    assert rounding_tolerance(resolve_passes("fold,float16")) is HALF_GATE
    assert rounding_tolerance(resolve_passes("fold")) is None
    assert rounding_tolerance([]) is None


def calibration(spec: str = "float16", **facts: Any) -> Calibration:
    return Calibration(
        resolve_passes(spec),
        facts.get("dims", {}),
        facts.get("feeds"),
        facts.get("tolerance"),
        facts.get("tell", lambda _: None),
        facts.get("margin", 0.5),
    )


def test_a_pass_that_does_not_round_is_run_as_it_is() -> None:
    search = calibration("fold,float16")
    fold = search.chosen[0]
    assert search(fold, model(), ()) is fold
    assert search.met is None


def test_nothing_stays_in_float32_where_the_gate_is_met() -> None:
    steps: list[str] = []
    search = calibration(tell=steps.append)
    made = search(search.chosen[0], model(), ())
    assert made.spec() == "float16"
    assert search.met is True
    assert steps


def test_a_closer_gate_keeps_more_in_float32_or_is_missed() -> None:
    search = calibration(tolerance=Tolerance(max_abs=1e-9, cosine=1.0))
    made = search(search.chosen[0], model(), ())
    assert search.met is False or "keep=" in made.spec()


def test_what_overflows_stays_with_its_reason() -> None:
    graph = model("h = MatMul (x, w) s = Mul (h, big) l = Sigmoid (s) y = MatMul (l, w)")
    big = ir.tensor(np.array(30000.0, np.float32), name="big")
    graph.graph.register_initializer(ir.Value(name="big", const_value=big))
    graph = ir.from_proto(ir.to_proto(graph))
    search = calibration(feeds={"x": np.full((2, 8), 50, np.float32)})
    made = search(search.chosen[0], graph, ())
    assert search.met is True
    assert "keep=" in made.spec()


def test_a_model_that_does_not_load_is_an_error_of_the_model(tmp_path: Path) -> None:
    broken = model("h = MatMul (x, w) i = Cast <to = 7> (h) y = Gather <axis = 7> (h, i)")
    with pytest.raises(ModelError):
        calibration()(resolve_passes("float16")[0], broken, ())
    # The original is to blame, if it is the one that does not load.
    io.save(broken, tmp_path / "m.onnx")
    loaded = io.load(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="does not load in ONNX Runtime"):
        calibration()(resolve_passes("float16")[0], loaded, ())


def test_feeds_are_those_of_the_original_whatever_passes_ran_before(tmp_path: Path) -> None:
    io.save(model(), tmp_path / "m.onnx")
    loaded = io.load(tmp_path / "m.onnx")
    graphfix.run(loaded, "fix-dims:B=2")
    search = calibration("fix-dims:B=2,float16", feeds={"x": np.ones((2, 8), np.float32)})
    ran = (PassReport("fix-dims", "fix-dims:B=2", "exact", (CHANGE,)),)
    assert search(search.chosen[1], loaded, ran).spec() == "float16"
    assert search.met is True
