"""Candidates that keep nodes in float32, beside the original."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.feeds.case import Case, Poison
from graphfix.float16_search.trials import KeepSet, Trials, extreme_cases, first_tensor_name

MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[T, 4] x, int64[1] i) => (y) {
    c = Constant <value = float {2.0}> ()
    s = Shape (x)
    a = Mul (x, c)
    k = Add (i, i)
    b = Cos (a)
    y = Add (a, b)
}"""


@dataclass
class CountedPass:
    """Counts how often it and what is made of it ran."""

    keep: str = ""
    runs: list[ir.Model] = field(default_factory=list, compare=False)

    def __call__(self, model: ir.Model) -> None:
        self.runs.append(model)


def trials_of(keep: str = "") -> Trials:
    return Trials(ir.from_onnx_text(MODEL), CountedPass(keep), lambda _: None)


def test_a_node_keeps_its_first_reason() -> None:
    keep_set = KeepSet({"a": "first"}, ("w",)).with_reasons({"a": "second", "b": "other"})
    assert keep_set.reasons == {"a": "first", "b": "other"}
    assert keep_set.stored == ("w",)
    assert (len(keep_set), len(KeepSet())) == (2, 0)


def test_a_pass_keeps_what_it_kept_and_more() -> None:
    trials = trials_of("a+b")
    chosen = trials.pass_keeping(KeepSet({"b": "", "c:d[0] e": ""}, ("w",)))
    assert chosen.keep == "a+b+c?d?0??e"
    assert trials.pass_keeping(KeepSet()).keep == "a+b"
    assert trials_of().pass_keeping(KeepSet({"a": ""})).keep == "a"


def test_the_last_candidate_is_kept() -> None:
    trials = trials_of()
    first = trials.build_candidate(KeepSet({"a": ""}))
    assert trials.build_candidate(KeepSet({"a": "another reason"})) is first
    assert len(trials.chosen.runs) == 1
    assert trials.build_candidate(KeepSet({"b": ""})) is not first
    assert trials.build_candidate(KeepSet({"a": ""})) is not first
    assert len(trials.chosen.runs) == 3
    assert first is not trials.before


def test_nodes_and_tensors_that_hold_floats() -> None:
    trials = trials_of()
    assert [first_tensor_name(x) for x in trials.float_nodes] == ["a", "b", "y"]
    assert set(trials.producer_by_tensor) == {"a", "b", "y"}
    readers = {x: [n.op_type for n in nodes] for x, nodes in trials.consumers_by_tensor.items()}
    assert readers == {"x": ["Mul"], "c": ["Mul"], "a": ["Cos", "Add"], "b": ["Add"]}
    assert trials.float_tensors == ["a", "b", "y"]
    candidate = ir.from_onnx_text(MODEL.replace("b = Cos (a)\n    y = Add (a, b)", "y = Cos (a)"))
    assert trials.shared_tensors(candidate) == ["a", "y"]


def test_the_name_of_a_node_is_its_first_tensor() -> None:
    node = ir.node("Split", [], num_outputs=2, name="n")
    node.outputs[0].name, node.outputs[1].name = "", "second"
    assert first_tensor_name(node) == "second"
    node.outputs[1].name = ""
    assert first_tensor_name(node) == "n"
    node.name = None
    assert first_tensor_name(node) == ""


def case(size: int, poison: Poison = "", content: int | None = None) -> Case:
    feeds = {"x": np.zeros(size), "y": np.zeros(1)}
    valid = {} if content is None else {"T": (content,)}
    return Case(f"{size}{poison}", {"T": size}, feeds, valid, poison=poison)


@pytest.mark.parametrize(
    ("cases", "names"),
    [
        ([case(3)], ["3"]),
        ([case(3), case(5), case(1)], ["5", "1"]),
        ([case(3), case(9, "NaN"), case(5)], ["5", "3"]),
        ([case(3, "NaN"), case(9, "NaN")], ["9NaN", "3NaN"]),
        ([case(3), case(9, "NaN")], ["3"]),
        ([case(3), case(3)], ["3"]),
        ([case(3), case(3, content=1)], ["3", "3"]),
    ],
)
def test_the_largest_and_the_shortest_case(cases: list[Case], names: list[str]) -> None:
    assert [x.name for x in extreme_cases(cases)] == names


def test_both_models_are_streamed() -> None:
    trials = trials_of()
    feeds = {"x": np.full((2, 4), 0.3, np.float32), "i": np.zeros(1, np.int64)}
    pairs = trials.stream_tensors(trials.build_candidate(KeepSet()), Case("a", {"T": 2}, feeds))
    tensors = {name: (ours, theirs) for name, ours, theirs in pairs.iter_pairs(["a", "b"])}
    assert set(tensors) == {"a", "b"}
    for ours, theirs in tensors.values():
        np.testing.assert_allclose(theirs, ours, atol=1e-3)
