"""Some of ONNX's own tests through every pass; ``make conformance`` takes all of them."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.engine import pipeline, registry
from tests.conformance import page
from tests.conformance.cases import Example, cases
from tests.conformance.survey import survey
from tests.conformance.trial import Bench, base

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.cases import Case

# Once wrong: what a division by a size of 0 is, names that no expression holds, numbers of four
# bits, graphs of sequences, bits, tensors among attributes, inputs that a kernel writes into.
_ONCE = (
    *("test_attention_4d_with_qk_matmul_softcap_expanded", "test_PixelShuffle"),
    *("test_castlike_FLOAT16_to_INT4_expanded", "test_sequence_map_add_1_sequence_1_tensor"),
    *("test_bitcast_scalar_float32_to_int32", "test_ai_onnx_ml_tree_ensemble_set_membership"),
    *("test_batchnorm_epsilon_training_mode", "test_affine_grid_2d_expanded"),
)
_MORE = 10


def sample() -> list[Case]:
    every = [x for x in cases() if x.kind != "real"]
    return [x for x in every if x.name in _ONCE] + random.Random(5).sample(every, _MORE)


def test_nothing_that_onnx_tests_is_changed(tmp_path: Path) -> None:
    chosen = sample()
    assert {x.name for x in chosen} >= set(_ONCE)
    ran = changed = 0
    for case in chosen:
        before, trials = survey(case, tmp_path)
        bad = [x for x in trials if x.how in ("differs", "fault") or x.what == "load"]
        assert not bad
        ran += before.outputs is not None
        changed += sum(x.how == "same" for x in trials)
    assert ran > len(chosen) / 2
    assert changed > len(chosen)


def test_what_would_be_wrong_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that makes another graph, one that raises, and one that edits in silence."""
    case = next(x for x in cases() if x.name == "test_relu")
    bench = Bench(case, "named", base(case), tmp_path)

    def edit(model: ir.Model) -> None:
        model.graph[0].op_type = "Neg"

    class Report:
        changed = True
        safety = "exact"
        passes = ()

    def run(model: ir.Model, *_: object, **__: object) -> type[Report]:
        edit(model)
        return Report

    monkeypatch.setattr("graphfix.engine.pipeline.run", run)
    assert bench.trial("fold").how == "differs"
    Report.changed = False
    found = bench.trial("fold")
    assert (found.how, "changed nothing" in found.detail) == ("differs", True)
    monkeypatch.setattr("graphfix.engine.pipeline.run", lambda *_, **__: 1 / 0)
    assert bench.trial("fold").how == "fault"


def test_only_rows_that_are_hidden_whole_may_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were 0 behind a NaN guard, and additive-mask says what becomes of them."""
    name = "test_attention_23_boolmask_fullymasked_row_nan_robustness"
    case = next(x for x in cases() if x.name == name)
    bench = Bench(case, "plain", base(case), tmp_path)
    assert bench.trial("older-operators").how == "same"
    found = bench.trial("directml")
    assert (found.how, "hidden whole" in found.detail) == ("told", True)
    whole = pipeline.run

    def wrong(model: ir.Model, *given: object, **more: object) -> object:
        report = whole(model, *given, **more)  # type: ignore[arg-type]
        product = next(x for x in model.graph if x.op_type == "Softmax")
        product.op_type, product.attributes["axis"] = "LogSoftmax", ir.AttrInt64("axis", -1)
        return report

    monkeypatch.setattr("graphfix.engine.pipeline.run", wrong)
    assert Bench(case, "plain", base(case), tmp_path).trial("directml").how == "differs"


def test_dims_get_the_names_that_are_asked_for() -> None:
    case = next(x for x in cases() if x.name == "test_add_bcast")

    def dims(sizes: str) -> list[list[str]]:
        given = case.sized(sizes).graph.input  # type: ignore[arg-type]
        return [[x.dim_param for x in value.type.tensor_type.shape.dim] for value in given]

    assert dims("named") == [["d3", "d4", "d5"], ["d5"]]
    assert dims("apart") == [["x_0", "x_1", "x_2"], ["y_0"]]
    example: Example = case.examples[0]
    assert isinstance(example.feeds["x"], np.ndarray)


def test_the_page_is_made_of_its_numbers_and_has_every_pass() -> None:
    data = json.loads(page.NUMBERS.read_text(encoding="utf-8"))
    assert page.text(data) == page.PAGE.read_text(encoding="utf-8"), "run make conformance"
    assert set(data["rows"]) >= {*registry.pass_names(), *registry.PROFILES}
    assert not data["left"]
