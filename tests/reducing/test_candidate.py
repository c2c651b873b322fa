"""Smaller models that are cut out of a model: their inputs, outputs and constants."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.errors import ModelError
from graphfix.reducing.candidate import (
    Candidate,
    drop_notes,
    drop_unused,
    expose,
    keep_nodes,
    keep_outputs,
    names_read_from_outside,
    nearest_before,
    part_between,
    tensors_before,
)
from graphfix.runtime.compared_session import open_session

CHAIN = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[T] x, bool more) => (float[T] y, float[T] z) <float two = {2}> {
        [first] a = Abs (x)
        [second] b = Mul (a, two)
        [third] c = If (more) <then_branch = g () => (float[T] t) { t = Add (a, b) },
                               else_branch = h () => (float[T] e) { e = Identity (b) }>
        [last] y = Neg (c)
        z = Exp (b) }"""
X = np.array([-1, 2], np.float32)
VALUES = {"a": np.abs(X), "b": 2 * np.abs(X), "c": 3 * np.abs(X)}


def chain() -> Candidate:
    return Candidate(ir.from_onnx_text(CHAIN), {"x": X, "more": np.array(True)})


def shown(candidate: Candidate | None) -> tuple[list[str], list[str], list[str]]:
    """The operators, the inputs and the outputs."""
    assert candidate is not None
    graph = candidate.model.graph
    assert [x.name for x in graph.inputs] == list(candidate.feeds)
    names = [[x.name or "" for x in values] for values in (graph.inputs, graph.outputs)]
    return [x.op_type for x in graph], *names


@pytest.mark.parametrize(
    ("kept", "wanted"),
    [
        (range(2), (["Abs", "Mul"], ["x"], ["a", "b"])),
        # The bodies of the If read both.
        ([2], (["If"], ["more", "a", "b"], ["c"])),
        ([3], (["Neg"], ["c"], ["y"])),
        ([3, 4], (["Neg", "Exp"], ["b", "c"], ["y", "z"])),
        (range(5), (["Abs", "Mul", "If", "Neg", "Exp"], ["x", "more"], ["y", "z"])),
    ],
)
def test_what_others_make_is_fed_and_what_others_read_is_an_output(
    kept: list[int], wanted: tuple[list[str], list[str], list[str]]
) -> None:
    whole = chain()
    part = keep_nodes(whole, kept, VALUES)
    assert shown(part) == wanted
    assert part is not None
    with open_session(part.model) as session:
        outputs = session.run(part.feeds)
    expected = {**VALUES, "y": -VALUES["c"], "z": np.exp(VALUES["b"])}
    for name, array in outputs.items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-6)
    assert shown(whole)[0] == ["Abs", "Mul", "If", "Neg", "Exp"]  # the original stays


def test_what_others_make_may_be_a_constant() -> None:
    part = keep_nodes(chain(), [3], VALUES, as_constants=True)
    assert shown(part) == (["Neg"], [], ["y"])
    assert part is not None
    assert list(part.model.graph.initializers) == ["c"]


def test_a_value_that_is_not_known_cuts_nothing() -> None:
    assert keep_nodes(chain(), [3], {}) is None
    assert keep_nodes(chain(), [], VALUES) is None


def test_outputs_are_left_out_and_their_nodes_stay() -> None:
    assert shown(keep_outputs(chain(), ["z"])) == (
        ["Abs", "Mul", "If", "Neg", "Exp"],
        ["x", "more"],
        ["z"],
    )


def test_what_nothing_uses_goes() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (float[2] x, float[2] unused, float[2] out) => (float[2] y, float[2] out)
        <float[2] w = {1, 2}> { y = Neg (x) }"""
    feeds = dict.fromkeys(("x", "unused", "out"), X)
    assert shown(drop_unused(Candidate(ir.from_onnx_text(text), feeds)))[1] == ["x", "out"]


def test_what_an_exporter_noted_goes() -> None:
    model = chain().model
    model.producer_name, model.doc_string = "pytorch", "words"
    node = model.graph.node(0)
    node.metadata_props["stack"], node.doc_string = "a trace", "words"
    drop_notes(model)
    assert not model.producer_name
    assert not model.doc_string
    assert not node.metadata_props
    assert not node.doc_string


@pytest.mark.parametrize(
    ("inputs", "outputs", "wanted"),
    [
        (["x"], ["b"], (["Abs", "Mul"], ["x"], ["b"])),
        (["b"], ["z", "b"], (["Exp"], ["b"], ["b", "z"])),
        # What only a body reads is needed, too; a tensor that the model lacks is not.
        (["a", "more", "new"], ["c", "other"], (["Mul", "If"], ["more", "a"], ["c"])),
    ],
)
def test_a_part_is_what_outputs_need_of_inputs(
    inputs: list[str], outputs: list[str], wanted: tuple[list[str], list[str], list[str]]
) -> None:
    model = chain().model
    graph = part_between(model, inputs, outputs).graph
    names = [sorted(x.name or "" for x in values) for values in (graph.inputs, graph.outputs)]
    assert ([x.op_type for x in graph], *names) == (wanted[0], sorted(wanted[1]), wanted[2])
    assert len(model.graph) == 5


def test_a_part_without_outputs_is_told() -> None:
    with pytest.raises(ModelError, match="has no tensor 'q'"):
        part_between(chain().model, ["x"], ["q"])


@pytest.mark.parametrize(
    ("place", "count", "known", "wanted"),
    [
        (3, 1, None, [3]),
        (3, 2, None, [2, 3]),
        (3, 3, None, [0, 2, 3]),
        (4, 9, None, [0, 1, 4]),
        (4, 1, {"b"}, [4]),
        # What it reads must be known: so the node that makes it is kept.
        (4, 1, {"a"}, [1, 4]),
    ],
)
def test_the_nearest_nodes_before_one(
    place: int, count: int, known: set[str] | None, wanted: list[int]
) -> None:
    assert nearest_before(chain(), place, count, known) == wanted


def test_what_tensors_depend_on_and_what_nodes_read() -> None:
    assert tensors_before(chain(), ["c"]) == {"a", "b", "c"}
    assert tensors_before(chain(), ["a", "z"]) == {"a", "b", "z"}
    assert names_read_from_outside(chain(), [2, 3]) == ["a", "b"]


def test_inner_tensors_become_outputs_once() -> None:
    outputs = expose(chain(), {"a", "y"}).model.graph.outputs
    assert [x.name for x in outputs] == ["y", "z", "a"]
