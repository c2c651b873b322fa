"""Tensors that float16 does not hold, and the nodes around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.feeds.case import Case
from graphfix.float16_search.overflow import find_overflows
from graphfix.float16_search.trials import KeepSet, Trials

Numbers = dict[str, tuple[list[float], list[float]]]
BODY = "n = Shape (x) a = Mul (x, x) b = Mul (a, a) c = Sqrt (b) i = Cast <to = 7> (c) y = Cos (c)"
CASES = [Case("a", {}, {})]
INF = float("inf")


class ScriptedTrials(Trials):
    """Trials of which each candidate has the tensors that it is told.

    Args:
        body: The nodes of the model.
        half: The tensors that are float16 in a candidate.
        tensors: What each tensor holds in float32 and in the candidate, by round.
    """

    def __init__(self, body: str, half: Sequence[str], *tensors: Numbers) -> None:
        text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[T] x) => (y) {{ {body} }}'
        self.told: list[str] = []
        super().__init__(ir.from_onnx_text(text), None, self.told.append)
        self.half, self.tensors, self.keep_sets = half, tensors, list[KeepSet]()

    def build_candidate(self, keep_set: KeepSet) -> ir.Model:
        self.keep_sets.append(keep_set)
        candidate = self.before.clone()
        for node in candidate.graph:
            for value in node.outputs:
                value.dtype = ir.DataType.FLOAT16 if value.name in self.half else None
        return candidate

    def stream_tensors(self, candidate: ir.Model, case: Case) -> ScriptedTrials:
        return self

    def iter_pairs(self, names: Sequence[str]) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        tensors = self.tensors[min(len(self.keep_sets), len(self.tensors)) - 1]
        for name in names:
            if name in tensors:
                ours, theirs = (np.array(x, np.float32) for x in tensors[name])
                yield name, ours, theirs


def test_what_fits_needs_nothing() -> None:
    trials = ScriptedTrials(BODY, "abc", {"a": ([1.0], [1.0]), "b": ([9.0], [9.1])})
    assert find_overflows(trials, KeepSet(), CASES) == {}
    assert len(trials.keep_sets) == 1
    assert trials.told == ["converting to float16: ranges with 0 kept"]


def test_nodes_around_the_first_overflow_stay() -> None:
    """What reads an infinity is infinite, too: only where it begins is a node to blame."""
    script: list[Numbers] = [
        {"a": ([1.0, 1.0], [1.0, 1.0]), "b": ([1e5, 2e5], [INF, INF]), "c": ([3e2], [INF])},
        {},
    ]
    trials = ScriptedTrials(BODY, (), *script)
    reasons = find_overflows(trials, KeepSet(), CASES)
    assert reasons == dict.fromkeys("bc", "'b' is beyond float16 at 2 places")
    assert [sorted(x.reasons) for x in trials.keep_sets] == [[], ["b", "c"]]
    assert trials.told[1] == "converting to float16: ranges with 2 kept"


def test_an_overflow_of_each_branch_counts() -> None:
    body = "a = Exp (x) b = Cosh (x) y = Add (a, b)"
    script: Numbers = {"a": ([1e5], [INF]), "b": ([1e5], [INF])}
    reasons = find_overflows(ScriptedTrials(body, (), script), KeepSet(), CASES)
    assert reasons == {
        "a": "'a' is beyond float16 at 1 places",
        "b": "'b' is beyond float16 at 1 places",
        "y": "'a' is beyond float16 at 1 places",
    }


@pytest.mark.parametrize(("half", "kept"), [("a", ["a", "b"]), ("", []), ("b", [])])
def test_what_comes_near_the_limit_stays_if_it_is_float16(half: str, kept: list[str]) -> None:
    trials = ScriptedTrials(BODY, half, {"a": ([2e4, 1.0], [2e4, 1.0])}, {})
    reasons = find_overflows(trials, KeepSet(), CASES)
    assert reasons == dict.fromkeys(kept, "'a' reaches 2e+04")


def test_nodes_that_make_whole_numbers_do_not_count() -> None:
    trials = ScriptedTrials(BODY, (), {"c": ([1e5], [INF])}, {})
    trials.before.graph[4].outputs[0].dtype = ir.DataType.INT64
    assert set(find_overflows(trials, KeepSet(), CASES)) == {"c", "y"}


def test_sums_in_a_norm_count() -> None:
    body = "a = Mul (x, x) y = LayerNormalization (a, x)"
    trials = ScriptedTrials(body, (), {"a": ([[200.0, -200.0]], [[200.0, -200.0]])})
    reasons = find_overflows(trials, KeepSet(), CASES)
    assert reasons == {"y": "the mean square of what it takes reaches 4e+04"}


def test_a_search_ends_after_five_rounds() -> None:
    body = " ".join(f"{b} = Exp ({a})" for a, b in zip("xabcdefg", "abcdefgy", strict=True))
    rounds: list[Numbers] = [{x: ([1e5], [INF])} for x in "abcdefg"]
    trials = ScriptedTrials(body, (), *rounds)
    assert len(find_overflows(trials, KeepSet(), CASES)) == 6
    assert len(trials.keep_sets) == 5


def test_another_shape_is_not_compared() -> None:
    trials = ScriptedTrials(BODY, "a", {"a": ([1e5, 1.0], [INF]), "b": ([1e5], [INF])}, {})
    assert set(find_overflows(trials, KeepSet(), CASES)) == {"b", "c"}


def test_every_case_is_looked_at_and_the_first_reason_stays() -> None:
    trials = ScriptedTrials(BODY, "", {"a": ([1e5], [INF])}, {})
    two = [*CASES, Case("b", {}, {})]
    assert set(find_overflows(trials, KeepSet({"q": "kept"}), two)) == {"a", "b"}
    assert set(trials.keep_sets[1].reasons) == {"q", "a", "b"}
