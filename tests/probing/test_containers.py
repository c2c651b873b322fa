"""Clips in containers, compared with the clips alone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.errors import FeedError, ModelError
from graphfix.feeds.clips import FILLS
from graphfix.lengths.length_input import KEY
from graphfix.probing import containers
from graphfix.probing.containers import PaddedCheck
from graphfix.proof.allowance import USUAL
from graphfix.proof.compare import Tolerance
from graphfix.runtime.run_errors import RunError

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
PLAIN = "m (float[B, T, 4] x) => (float[B, T, 4] y) { y = Neg (x) }"
MEAN = """m (float[B, T, 4] x) => (float[B, T, 4] y, float[B, T, 4] z)
    { mean = ReduceMean <axes = [1]> (x)  y = Sub (x, mean)  z = Neg (x) }"""
LENGTHS = """m (float[B, T, 4] x, int64[B] n) => (float[B, T, 4] y)
    <int64 zero = {0}, int64 one = {1}, int64[1] ax1 = {1}, int64[1] ax2 = {2}, float nil = {0}>
    { %s  r = Range (zero, most, one)
      u = Unsqueeze (n, ax1)  l = Less (r, u)  m = Unsqueeze (l, ax2)  y = Where (m, x, nil) }"""
BY_ITS_SIZE = LENGTHS % "s = Shape <start = 1, end = 2> (x)  most = Squeeze (s)"
BY_ITS_LONGEST = LENGTHS % "most = ReduceMax <keepdims = 0> (n)"
BY_LENGTH = {"input": "ilens", "axis": "x.1", "kind": "lengths"}


def model(text: str, lengths: dict[str, str] | None = None) -> ir.Model:
    made = ir.from_onnx_text(HEAD + text)
    if lengths is not None:
        made.metadata_props[KEY] = json.dumps(lengths)
    return made


def prepared(text: str | ir.Model, original: str = "", **facts: Any) -> PaddedCheck:
    return PaddedCheck(
        text if isinstance(text, ir.Model) else model(text),
        model(original) if original else None,
        facts.get("dims", {"T": [5, 9]}),
        facts.get("containers", (24,)),
        facts.get("axis", ""),
        facts.get("fills", ("zero", "noise")),
        facts.get("tolerance"),
        facts.get("seeds"),
        facts.get("ep", "cpu"),
    )


def run(text: str | ir.Model, original: str = "", **facts: Any) -> PaddedCheck:
    check = prepared(text, original, **facts)
    check.run(lambda _: None)
    return check


def test_every_output_of_every_clip_is_compared_with_every_padding() -> None:
    steps: list[str] = []
    check = prepared(MEAN, fills=FILLS)
    check.run(steps.append)
    assert len(check.checks) == 2 * 2 * 3
    assert {(x.clip, x.container, x.rows, x.row) for x in check.checks} == {
        (n, 24, (n,), 0) for n in (5, 9)
    }
    assert {x.diff.output: x.ok for x in check.checks} == {"y": False, "z": True}
    assert not check.ok
    assert check.reason == ""
    assert [x.length for x in check.clips_alone] == [5, 9]
    assert steps == [
        "0/1: T=5 alone",
        "1/2: T=9 alone",
        "2/8: 5 in T=24, padding zero",
        "3/8: 5 in T=24, padding noise",
        "4/8: 5 in T=24, padding large",
        "5/8: 9 in T=24, padding zero",
        "6/8: 9 in T=24, padding noise",
        "7/8: 9 in T=24, padding large",
    ]


def test_a_check_that_has_not_run_is_not_ok() -> None:
    assert not prepared(PLAIN).ok
    assert run(PLAIN).ok


def test_how_much_of_a_container_is_valid_is_noted() -> None:
    (full, part) = (
        run(PLAIN, dims={"T": [9], "B": [b]}, containers=(n,), fills=("zero",)).checks[0].diff.note
        for b, n in ((2, 9), (2, 12))
    )
    assert part == "36 of 48 elements are valid"
    assert full == ""


def test_containers_are_longer_than_the_clips_by_default() -> None:
    check = run(PLAIN, containers=(), dims={"T": [6, 9]})
    assert {(x.clip, x.container) for x in check.checks} == {(6, 9), (6, 73), (9, 14), (9, 109)}


def test_a_container_is_as_long_as_the_longest_of_its_clips() -> None:
    check = run(PLAIN, containers=(9, 5, 24), dims={"T": [5, 9]})
    assert {(x.clip, x.container) for x in check.checks} == {
        (5, 5),
        (5, 9),
        (5, 24),
        (9, 9),
        (9, 24),
    }
    assert [(x.name, x.reason) for x in check.clip_runs.dropped] == [
        ("9 in T=5", "a container does not hold a clip that is longer")
    ]


def test_rows_begin_with_each_length_in_turn() -> None:
    check = run(PLAIN, dims={"T": [5, 9], "B": [2, 1]}, fills=("zero",))
    assert [(x.rows, x.row, x.clip) for x in check.checks] == [
        ((5, 9), 0, 5),
        ((5, 9), 1, 9),
        ((5,), 0, 5),
        ((9, 5), 0, 9),
        ((9, 5), 1, 5),
        ((9,), 0, 9),
    ]
    assert check.ok


def test_rows_of_one_length_where_one_number_says_it() -> None:
    text = BY_ITS_SIZE.replace("int64[B] n", "int64[1] ilens").replace("(n, ax1)", "(ilens, ax1)")
    check = run(model(text, BY_LENGTH), dims={"T": [5, 9], "B": [2]}, fills=("zero",))
    assert [x.rows for x in check.checks] == [(5, 5), (5, 5), (9, 9), (9, 9)]
    assert check.ok


def test_each_content_has_a_container() -> None:
    check = run(PLAIN, dims={"T": [5]}, seeds=3, fills=("zero",))
    assert len(check.checks) == 3


def test_a_leak_beside_large_numbers_is_told() -> None:
    leaks = """m (float[B, T, 2] x) => (float[B, T, 4] y) <float size = {640}, float eps = {EPS}>
        { boxes = Mul (x, size) mean = ReduceMean <axes = [1]> (x) e = Mul (mean, eps)
          scores = Add (x, e) y = Concat <axis = -1> (boxes, scores) }"""
    leak, none = (leaks.replace("EPS", x) for x in ("0.02", "0"))
    assert not run(leak, fills=("zero",)).ok
    assert run(none, fills=("zero",)).ok
    # With one number for all it is none.
    assert run(leak, fills=("zero",), tolerance=Tolerance()).ok


def test_float16_has_a_wider_tolerance_unless_one_is_given() -> None:
    half = PLAIN.replace("float[", "float16[")
    wide = prepared(half)
    assert wide.tolerance == USUAL.for_half()
    notes = ["the model computes in float16, so it may differ 100 times more"]
    assert run(half).run_notes(True)[:1] == notes
    assert prepared(half, PLAIN).tolerance == prepared(PLAIN, half).tolerance == wide.tolerance
    mine = Tolerance(max_abs=0.5)
    assert prepared(half, tolerance=mine).tolerance is mine
    assert notes[0] not in run(half, tolerance=mine).run_notes(True)
    assert prepared(PLAIN).tolerance == USUAL
    assert notes[0] not in run(PLAIN).run_notes(True)


def test_the_original_runs_the_clips() -> None:
    other = PLAIN.replace("Neg", "Abs")
    assert not run(PLAIN, other).ok
    check = run(PLAIN, PLAIN)
    assert check.ok
    assert check.native is not check.graph
    alone = prepared(PLAIN)
    assert alone.native is alone.graph


def test_outputs_that_the_repaired_model_lacks() -> None:
    check = run("m (float[B, T, 4] x) => (float[B, T, 4] z) { z = Neg (x) }", MEAN)
    missing = [x.diff for x in check.checks if x.diff.output == "y"]
    assert {(x.ok, x.reason) for x in missing} == {(False, "is missing")}
    assert {x.total for x in missing} == {20, 36}
    assert not check.ok


def test_outputs_that_cannot_be_cropped() -> None:
    text = """m (float[B, T, 4] x) => (float[N, 4] y)
        <int64[2] cut = {-1, 4}> { a = Relu (x)  y = Reshape (a, cut) }"""
    check = run(text, dims={"T": [5], "B": [2]}, fills=("zero",))
    assert {x.diff.reason.partition(":")[0] for x in check.checks} == {"has no axis of 2 rows"}
    assert {x.diff.total for x in check.checks} == {12, 20}  # a clip of 3 in the other row


def test_rows_are_found_by_the_dims_of_the_output() -> None:
    # Of two axes of two rows the second is the batch.
    text = """m (float[B, T, 1] x) => (float[F, B, T] y) <int64[1] ax = {0}>
        { t = Transpose <perm = [2, 0, 1]> (x) n = Neg (t) y = Concat <axis = 0> (t, n) }"""
    assert run(text, dims={"T": [5, 9], "B": [2]}).ok


def test_an_output_that_is_never_a_number_is_a_fault_though_nothing_differs() -> None:
    check = run(
        "m (float[B, T, 4] x) => (float[B, T, 4] y) { a = Abs (x) b = Neg (a) y = Log (b) }"
    )
    assert all(x.ok for x in check.checks)
    assert "no finite number" in check.reason
    assert not check.ok
    # Where something differs, that is the fault.
    both = MEAN.replace("z = Neg (x)", "a = Abs (x) b = Neg (a) z = Log (b)")
    assert run(both).reason == ""


ONES = ", ".join("1" * 16)
TABLE = f"""m (float[1, T, 1] x) => (float[1, T, 1] y)
    <float[1, 16, 1] p = {{{ONES}}}, int64[1] zero = {{0}}, int64[1] ax = {{1}}>
    {{ s = Shape <start = 1, end = 2> (x)  q = Slice (p, zero, s, ax)  y = Add (x, q) }}"""


def test_a_container_that_does_not_run_without_padding_is_dropped() -> None:
    check = run(TABLE, dims={"T": [5]}, containers=(12, 24))
    assert check.ok
    assert [x.name for x in check.clip_runs.dropped] == ["T=24 without padding"]
    assert {x.container for x in check.checks} == {12}
    message = r"runs in none of the containers \(T=24 without padding: "
    with pytest.raises(FeedError, match=message):
        run(TABLE, dims={"T": [5]}, containers=(24,))


def test_a_container_that_the_repaired_model_alone_does_not_run() -> None:
    plain = "m (float[1, T, 1] x) => (float[1, T, 1] y) { y = Add (x, x) }"
    check = run(TABLE, plain, dims={"T": [5, 9]}, containers=(24, 30), fills=("zero",))
    assert check.reason.startswith("the model does not run, with 5 in T=24, padding zero: ")
    assert not check.ok
    assert check.clip_runs.dropped == []


def test_no_other_padding_is_tried_where_one_does_not_run() -> None:
    steps: list[str] = []
    check = prepared(TABLE, dims={"T": [5]}, containers=(24, 12), fills=FILLS)
    check.run(steps.append)
    assert [x.partition(": ")[2] for x in steps if "24" in x] == ["5 in T=24, padding zero"]


FULL_ROW = "the model runs only with a row as long as the container, so one was added to each"


def test_a_full_row_for_a_model_that_takes_its_size_from_the_longest() -> None:
    check = run(BY_ITS_LONGEST, dims={"T": [5, 9], "B": [2]})
    assert check.ok
    assert FULL_ROW in check.run_notes(True)
    assert {x.rows for x in check.checks} == {(5, 9), (9, 5)}
    assert FULL_ROW not in run(PLAIN).run_notes(True)


def test_no_row_is_added_to_a_model_without_a_batch() -> None:
    single = BY_ITS_LONGEST.replace("[B", "[1")
    check = run(single, dims={"T": [5]})
    assert check.reason.startswith("the model does not run, with 5 in T=24, padding zero: ")
    assert FULL_ROW not in check.run_notes(False)


def test_which_inputs_say_where_content_ends() -> None:
    own = BY_ITS_SIZE
    check = run(own, fills=("zero",))
    assert check.length_inputs == ("n",)
    assert not any("no input tells" in x for x in check.run_notes(True))
    check = run(PLAIN)
    assert check.length_inputs == ()
    assert check.run_notes(True) == [
        "no input tells the model where content ends: it was run as it is"
    ]
    two = own.replace("int64[B] n)", "int64[B] n, int64[B] ilens)").replace(
        "float[B, T, 4] y)", "float[B, T, 4] y, int64[B] c)"
    )
    two = two.replace("y = Where", "c = Neg (ilens) y = Where")
    check = run(model(two, BY_LENGTH), fills=("zero",))
    assert check.length_inputs == ("ilens", "n")
    named = {**BY_LENGTH, "input": "n"}
    assert run(model(own, named), fills=("zero",)).length_inputs == ("n",)


def test_an_input_that_is_not_used_is_said_of_a_model_on_its_own() -> None:
    unused = PLAIN.replace("x)", "x, int64[B] lens)", 1)
    note = "the graph does not use the input 'lens': what it says is not heard"
    assert any(x.startswith(note) for x in run(unused).run_notes(True))
    assert not any(x.startswith(note) for x in run(unused, unused).run_notes(True))


def test_random_numbers_are_said_where_something_differs() -> None:
    text = """m (float[B, T, 4] x) => (float[B, T, 4] y)
        { r = RandomNormalLike (x)  y = Add (x, r) }"""
    check = run(text, dims={"T": [5], "B": [2]})
    assert check.native is check.graph
    note = (
        "the model draws random numbers (RandomNormalLike 'r'), and draws others for another size"
    )
    assert note in check.run_notes(False)
    assert note not in check.run_notes(True)
    assert not any("random" in x for x in run(PLAIN).run_notes(False))


@pytest.mark.parametrize(("ep", "label"), [("dml", "DirectML"), ("webgpu", "WebGPU")])
def test_another_provider_runs_the_containers_alone(
    ep: str, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    real = containers.open_session

    def open_here(source: Any, ep: Any) -> Any:
        opened.append(ep)
        return real(source, "cpu")

    monkeypatch.setattr(containers, "open_session", open_here)
    note = f"containers ran on {label}, clips alone on the CPU"
    check = run(PLAIN, ep=ep)
    assert check.ok
    assert opened == [ep]
    assert note in check.run_notes(True)
    assert note not in run(PLAIN).run_notes(True)
    assert opened == [ep]
    assert run(PLAIN, PLAIN).ok
    assert opened == [ep, "cpu"]


@pytest.mark.parametrize(
    ("ep", "where"), [("dml", "on DirectML"), ("webgpu", "on WebGPU"), ("cpu", "in ONNX Runtime")]
)
def test_a_repaired_model_that_does_not_load(
    ep: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise ModelError("no")

    monkeypatch.setattr(containers, "open_session", refuse)
    check = run(PLAIN, PLAIN, ep=ep)
    assert check.reason == f"the model does not load {where}: no"
    assert not check.ok


@pytest.mark.parametrize(
    ("ep", "where"), [("dml", " on DirectML"), ("webgpu", " on WebGPU"), ("cpu", "")]
)
def test_a_container_that_fails_there(ep: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = containers.open_session

    def open_failing(source: Any, _: Any) -> Any:
        session = real(source, "cpu")

        def fail(_: Any) -> Any:
            raise RunError("late")

        session.run = fail  # type: ignore[method-assign]
        return session

    monkeypatch.setattr(containers, "open_session", open_failing)
    check = run(PLAIN, PLAIN, ep=ep, dims={"T": [5]}, fills=("noise",))
    assert check.reason == f"the model does not run{where}, with 5 in T=24, padding noise: late"


def test_the_padding_lies_behind_the_content() -> None:
    text = """m (float[B, T, 4] x) => (float[B, T, 4] y) { y = CumSum (x, axis) }""".replace(
        "{ y", "<int64 axis = {1}> { y"
    )
    assert run(text, fills=FILLS).ok
    back = text.replace("CumSum (", "CumSum <reverse = 1> (")
    assert not run(back, fills=("noise",)).ok
    assert run(back, fills=("zero",), tolerance=Tolerance(max_abs=1e-3)).ok
    assert np.isfinite(run(back).checks[0].diff.max_abs)
