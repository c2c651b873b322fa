"""A model that is verified is opened once as users open it; what ONNX Runtime does is simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.errors import ModelError
from graphfix.feeds.case import Case
from graphfix.feeds.signature import Signature
from graphfix.proof import baseline, default_session
from graphfix.proof.baseline import OriginalRun
from graphfix.proof.compare import Tolerance
from graphfix.proof.content import ContentMasks
from graphfix.proof.judge import OutputJudge
from graphfix.runtime.local_session import Session
from graphfix.runtime.run_errors import LoadDiedError
from tests.passes.models import model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PLAIN = "m (float[B, T, 4] x) => (float[B, T, 4] y) { y = Neg (x) }"
ROUNDED = """m (float[B, T, 4] x) => (float[B, T, 4] y) <float s = {0.1}, uint8 z = {0}>
    { q = QuantizeLinear (x, s, z) y = DequantizeLinear (q, s, z) }"""


class Dies(Session):
    """Only without its NchwcTransformer does ONNX Runtime live."""

    def __init__(self, model: ir.Model, *, without: Sequence[str] = ()) -> None:
        if "NchwcTransformer" not in without:
            raise LoadDiedError("the process was ended by signal 11")
        super().__init__(model, without=without)


class Refuses(Session):
    def __init__(self, model: ir.Model) -> None:
        raise ModelError("no")


class Parts(Session):
    """Its optimizer makes something else of it."""

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: array + 1 for name, array in super().run(feeds).items()}


def test_a_death_at_the_default_optimizations_is_a_failed_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(default_session, "open_default_session", Dies)
    verdict = graphfix.verify(model(PLAIN), model(PLAIN))
    assert not verdict.ok
    assert "as users open it" in verdict.reason
    assert "signal 11" in verdict.reason
    assert "(disabled_optimizers=['NchwcTransformer'])" in verdict.reason


def test_what_the_original_does_not_do_either_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_session, "open_default_session", Dies)
    monkeypatch.setattr(baseline, "open_default_session", Refuses)
    verdict = graphfix.verify(model(PLAIN), model(PLAIN))
    assert verdict.ok
    assert any("neither model runs" in x for x in verdict.notes)


def test_another_result_of_the_optimizer_is_a_failed_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_session, "open_default_session", Parts)
    verdict = graphfix.verify(model(PLAIN), model(PLAIN))
    assert not verdict.ok
    assert verdict.reason.startswith("in sessions as users open them")
    assert "'y'" in verdict.reason


def test_another_result_of_what_is_quantized_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_session, "open_default_session", Parts)
    verdict = graphfix.verify(model(ROUNDED), model(ROUNDED))
    assert verdict.ok
    assert any("what is quantized is rounded otherwise there" in x for x in verdict.notes)


def test_a_search_sees_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_session, "open_default_session", Parts)
    verdict = graphfix.verify(model(PLAIN), model(PLAIN), brief=True, locate=False)
    assert not verdict.ok


def test_the_smallest_and_a_middle_case_without_garbage_are_run() -> None:
    fed: list[str] = []

    def feed(case: Case) -> dict[str, np.ndarray]:
        fed.append(case.name)
        return case.feeds

    runs = [
        OriginalRun(Case(f"{n}", {}, {"x": np.ones((1, n, 4), np.float32)}, poison=poison), {})
        for n, poison in ((9, ""), (1, "NaN"), (2, ""), (5, ""), (7, "NaN"), (3, ""))
    ]
    source = model(PLAIN)
    original = baseline.Baseline(source, source, lambda: source, Tolerance(), print)
    judge = OutputJudge(ContentMasks(Signature(source)), Tolerance(), "exact")
    check = default_session.DefaultSessionCheck(
        source, original, judge.compare_case, feed, runs, judge.notes
    )
    assert not check.find_fault(random=True, locate=False)
    assert fed == ["2", "5"]
