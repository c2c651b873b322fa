"""How a model fails: errors, wrong numbers, slow runs; and what is the same failure."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir
import pytest

from graphfix import Match, NodePass
from graphfix.proof.compare import Tolerance
from graphfix.reducing.candidate import Candidate
from graphfix.reducing.failure import (
    Failure,
    Trial,
    contradicts_declaration,
    failure_code,
)

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
SUM = HEAD + "m (float[N] x, float[M] z) => (float[K] y) { y = Add (x, z) }"
# The smallest integer by -1: the processor raises, and the process is gone.
KILLER = (
    HEAD
    + """m (int64[1] one) => (int64[1] y) <int64[1] least = {-9223372036854775808}> {
    y = Div (least, one) }"""
)
CPU = Trial("cpu")


@dataclass(frozen=True)
class WrongAdd(NodePass[Match]):
    """Writes Sub for Add."""

    name = "wrong-add"
    anchors = ("Add",)

    def match(self, node, view):
        return Match(node)

    def rewrite(self, match, op):
        return op.Sub(*match.node.inputs)


def candidate(text: str, **feeds: object) -> Candidate:
    return Candidate(ir.from_onnx_text(text), {k: np.asarray(x) for k, x in feeds.items()})


def floats(count: int) -> np.ndarray:
    return np.arange(1, count + 1, dtype=np.float32)


def test_a_model_that_runs_does_not_fail() -> None:
    assert CPU.observe(candidate(SUM, x=floats(3), z=floats(3))) is None


def test_what_the_reference_does_not_run_is_no_failure() -> None:
    bad = candidate(SUM, x=floats(3), z=floats(2))
    assert CPU.observe(bad) is None
    found = replace(CPU, needs_reference=False).observe(bad)
    assert found is not None
    assert (found.kind, "axis" in found.code) == ("fails", True)


def test_a_process_that_dies() -> None:
    killer = candidate(KILLER, one=np.array([-1], np.int64))
    found = replace(CPU, needs_reference=False).observe(killer)
    assert found is not None
    assert found.kind == "dies"


def test_a_small_column_beside_a_large_one_differs_by_its_own_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = np.random.default_rng(0).uniform(0.5, 1, (20, 2)) * [640, 1]
    text = HEAD + "m (float[N, 2] x) => (float[N, 2] y) { y = Neg (x) }"
    one = candidate(text, x=x.astype(np.float32))
    expected = CPU.reference_outputs(one)
    wrong = {"y": expected["y"] + np.float32([0, 1e-3])}
    monkeypatch.setattr(Trial, "_outputs", lambda *_: (wrong, 0.0))
    found = CPU.observe_against(one, expected)
    assert found is not None
    assert found.kind == "differs"
    wide = replace(CPU, tolerance=Tolerance())
    assert wide.observe_against(one, expected) is None


def test_passes_that_write_something_else() -> None:
    trial = replace(CPU, passes=(WrongAdd(),))
    found = trial.observe(candidate(SUM, x=floats(3), z=floats(3)))
    assert found is not None
    assert (found.kind, found.code) == ("differs", "")
    assert found.expected is not None
    np.testing.assert_array_equal(found.expected, 2 * floats(3))
    np.testing.assert_array_equal(found.got, np.zeros(3))
    assert "differs by 2, allowed 0.0002 where it is 2" in found.text


def test_a_run_that_is_slow() -> None:
    add = candidate(SUM, x=floats(3), z=floats(3))
    found = replace(CPU, slower_than=1e-9).observe(add)
    assert found is not None
    assert found.kind == "slow"
    assert replace(CPU, slower_than=60.0).observe(add) is None


def test_an_output_of_another_shape_than_declared_is_a_fault_of_its_own() -> None:
    text = HEAD + "m (float[N] x) => (float[3] y) { y = Abs (x) }"
    spoilt = replace(CPU, slower_than=1e-9)
    assert spoilt.observe(candidate(text, x=floats(2))) is None
    assert spoilt.observe(candidate(text, x=floats(3))) is not None
    assert replace(spoilt, takes_contradictions=True).observe(candidate(text, x=floats(2)))


@pytest.mark.parametrize(
    ("declared", "contradicts"),
    [("[N, 3]", False), ("[2, 3]", False), ("[3, 3]", True), ("[6]", True)],
)
def test_declared_shapes(declared: str, *, contradicts: bool) -> None:
    text = HEAD + f"m (float[2, 3] x) => (float{declared} y) {{ y = Abs (x) }}"
    outputs = {"y": np.ones((2, 3), np.float32)}
    assert contradicts_declaration(ir.from_onnx_text(text), outputs) is contradicts


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Reshape node 'node_view': 8007023E", "8007023E"),
        ("(1) tid(24) 80070057 The parameter is incorrect.", "80070057"),
        ("Add node 'a': axis == 1 || was false. 4 by 5", "Add node : axis == || was false. by"),
    ],
)
def test_what_errors_have_in_common(text: str, code: str) -> None:
    assert failure_code(text) == code


def test_which_failures_are_the_same() -> None:
    lost, refused = Failure("fails", "8007023E", "a"), Failure("fails", "80070057", "b")
    assert CPU.is_same(lost, Failure("fails", "8007023E", "c"))
    assert not CPU.is_same(lost, refused)
    assert not CPU.is_same(lost, Failure("dies", "8007023E", "a"))
    assert not CPU.is_same(lost, None)
    spoiling = replace(CPU, passes=(WrongAdd(),))
    assert spoiling.is_same(lost, Failure("differs", "", "b"))
    assert not spoiling.is_same(lost, None)
