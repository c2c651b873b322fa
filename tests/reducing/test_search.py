"""The search: the fewest nodes that fail, within its budget."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.proof.budget import SearchBudget
from graphfix.reducing import search as module
from graphfix.reducing.candidate import Candidate
from graphfix.reducing.failure import Failure, Trial
from graphfix.reducing.search import ReductionSearch
from graphfix.runtime.run_errors import RunDiedError
from tests.reducing.test_failure import WrongAdd

LONG = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[T, 4] x) => (float[T, 4] y, float[T, 4] z) {
        a = Abs (x)  b = Neg (a)  c = Exp (b)
        [bad] d = Softmax (c)
        e = Relu (d)  f = Sqrt (e)  y = Add (f, a)  z = Abs (f) }"""


@dataclass(frozen=True)
class Pretended(Trial):
    """A provider on which some operators, all in one graph, fail; the reference runs it."""

    bad: frozenset[str] = frozenset({"Softmax"})
    text: str = "a kernel fails"
    most_rows: int = 10**9

    def observe(self, candidate: Candidate) -> Failure | None:
        self.reference_outputs(candidate)  # each model that is tried is a valid one
        operators = {x.op_type for x in candidate.model.graph}
        return Failure("fails", "80070057", self.text) if self.bad <= operators else None


def search(trial: Trial, *, most: int = 300) -> ReductionSearch:
    feeds = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}
    candidate = Candidate(ir.from_onnx_text(LONG), feeds)
    failure = trial.observe(candidate)
    assert failure is not None
    found = ReductionSearch(trial, candidate, failure, SearchBudget(most), lambda _: None)
    found.run()
    return found


def operators(found: ReductionSearch) -> list[str]:
    return [x.op_type for x in found.best.model.graph]


def test_one_node_is_left_with_feeds_of_one_element() -> None:
    found = search(Pretended("cpu"))
    assert operators(found) == ["Softmax"]
    assert [x.shape for x in found.best.feeds.values()] == [(1, 1)]
    assert found.budget.tries < 60


@pytest.mark.parametrize("bad", [{"Neg", "Sqrt"}, {"Abs", "Exp", "Add"}])
def test_what_fails_together_stays_together(bad: set[str]) -> None:
    found = search(Pretended("cpu", bad=frozenset(bad)))
    assert set(operators(found)) == bad
    assert len(operators(found)) == len(bad)


def test_the_node_that_an_error_names_is_tried_first() -> None:
    found = search(Pretended("cpu", text="Softmax node 'bad': 80070057"), most=1)
    assert operators(found) == ["Softmax"]
    assert found.budget.tries == 1


def test_a_wrong_name_in_an_error_costs_two_tries() -> None:
    found = search(replace(Pretended("cpu"), text="Softmax node 'other': 80070057"))
    assert operators(found) == ["Softmax"]


@pytest.mark.parametrize("most", [1, 2, 5])
def test_the_smallest_so_far_is_kept_when_no_more_may_be_tried(most: int) -> None:
    found = search(Pretended("cpu"), most=most)
    assert "Softmax" in operators(found)
    assert found.budget.tries == most
    assert found.budget.spent


def wrong_add(text: str = LONG) -> ReductionSearch:
    trial = Trial("cpu", passes=(WrongAdd(),))
    feeds = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}
    candidate = Candidate(ir.from_onnx_text(text), feeds)
    failure = trial.observe(candidate)
    assert failure is not None
    return ReductionSearch(trial, candidate, failure, SearchBudget(300), lambda _: None)


@pytest.mark.parametrize("most_compared", [2, 32])
def test_the_first_tensor_that_differs_is_tried_before_anything_is_cut(
    most_compared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_COMPARED", most_compared)
    found = wrong_add(LONG.replace("d = Softmax (c)", "d = Add (c, c)"))
    assert found._keep_first_difference()
    assert [x.name for x in found.best.model.graph] == ["bad"]
    assert found.budget.tries == 1


def test_a_difference_that_is_in_no_single_node_is_found_by_cuts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if it were there in a fused graph only, of which no inner tensor can be seen."""
    monkeypatch.setattr(Trial, "differing_tensors", lambda *_: {})
    found = wrong_add()
    found.run()
    assert operators(found) == ["Add"]


def test_what_cannot_be_compared_inside_is_found_by_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise RunDiedError("the process died")

    monkeypatch.setattr(Trial, "differing_tensors", die)
    found = wrong_add()
    found.run()
    assert operators(found) == ["Add"]
