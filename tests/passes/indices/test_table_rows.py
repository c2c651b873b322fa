"""table-rows: which lookups are a Slice, what is left alone, and that every number stays."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import opened, ops, refusals

INITS = f"""int64 zero = {{0}}, int64 one = {{1}}, int64 two = {{2}}, int64 second = {{1}},
    int64[1] front = {{0}}, int64[1] at = {{1}}, int64[1] step = {{1}}, int64[1] twice = {{2}},
    int64[1] backwards = {{-1}}, int32 nought = {{0}}, int32 once = {{1}},
    float[24, 2] table = {{{", ".join(str(i) for i in range(48))}}},
    int64[1, 24] ids = {{{", ".join(str(i) for i in range(24))}}},
    int64[24] line = {{{", ".join(str(i) for i in range(24))}}},
    int64[1, 23] short = {{{", ".join(str(i) for i in range(23))}}},
    int64[1, 24] shifted = {{{", ".join(str(i + 2) for i in range(24))}}},
    int64[1, 24] back = {{{", ".join(str(23 - i) for i in range(24))}}}"""
SIZE = "shape = Shape (x) t = Gather (shape, second) t1 = Unsqueeze (t, front)"


def model(body: str, *, opset: int = 17) -> ir.Model:
    return ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : {opset}]>
        m (float[B, T, 2] x) => (float y) <{INITS}> {{ {SIZE} {body} }}""")


def run(m: ir.Model, size: int) -> np.ndarray:
    session = opened(m)
    x = np.random.default_rng(0).standard_normal((2, size, 2)).astype(np.float32)
    return session.run(None, {"x": x})[0]


FORMS = {
    "a range": "at0 = Range (zero, t, one) y = Gather (table, at0)",
    "a range with dims of 1": """at0 = Range (zero, t, one) r = Unsqueeze (at0, front)
        y = Gather (table, r)""",
    "a range behind the rows": """at0 = Range (zero, t, one) r = Unsqueeze (at0, at)
        y = Gather (table, r)""",
    "an axis that is counted from the end": """at0 = Range (zero, t, one)
        y = Gather <axis = -2> (table, at0)""",
    "a buffer and an axis that is counted from the end": """r = Slice (ids, front, t1, backwards)
        y = Gather (table, r)""",
    "a buffer of positions": "r = Slice (ids, front, t1, at, step) y = Gather (table, r)",
    "a buffer with one dim": "r = Slice (line, front, t1) y = Gather (table, r)",
    "a buffer and a dim": """r = Slice (line, front, t1, front) s = Unsqueeze (r, front)
        y = Gather (table, s)""",
}


@pytest.mark.parametrize("size", [1, 5, 24])
@pytest.mark.parametrize("name", FORMS)
def test_the_first_rows_are_a_slice(name: str, size: int) -> None:
    before, after = model(FORMS[name]), model(FORMS[name])
    report = graphfix.run(after, "table-rows")
    assert report.changed, report.passes[0].skips
    assert "Gather" not in ops(after)[2:]
    assert "Range" not in ops(after)
    got, want = run(after, size), run(before, size)
    assert got.shape == want.shape
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "body",
    [
        "at0 = Range (one, t, one) y = Gather (table, at0)",  # from the second row
        "at0 = Range (zero, t, two) y = Gather (table, at0)",  # every other row
        "at0 = Range (zero, t, one) y = Gather <axis = 1> (table, at0)",  # columns
        "r = Slice (short, front, t1, at) y = Gather (table, r)",  # a row less than the table
        "r = Slice (shifted, front, t1, at) y = Gather (table, r)",  # as RoBERTa counts: from 2
        "r = Slice (back, front, t1, at) y = Gather (table, r)",
        "r = Slice (ids, at, t1, at) y = Gather (table, r)",
        "r = Slice (ids, front, t1, at, twice) y = Gather (table, r)",
        "r = Slice (ids, front, t1, front) y = Gather (table, r)",  # the other axis
        "y = Gather (table, line)",
        # counted in 32 bits, and a Slice takes one type for all that it is given
        "n = Cast <to = 6> (t) at0 = Range (nought, n, once) y = Gather (table, at0)",
    ],
)
def test_other_lookups_are_left_alone(body: str) -> None:
    m = model(body)
    assert not refusals(m, "table-rows")


def test_a_lookup_of_more_rows_than_there_are_still_fails() -> None:
    body = "at0 = Range (zero, t, one) r = Gather (table, at0) y = Add (x, r)"
    before, after = model(body), model(body)
    assert graphfix.run(after, "table-rows").changed
    for m in (before, after):
        with pytest.raises(Exception, match="Non-zero status code returned"):
            run(m, 25)


def test_below_opset_13_the_axes_are_an_attribute() -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 11]>
        m (float[B, T, 2] x) => (float y) <{INITS}> {{
        shape = Shape (x) t = Gather (shape, second) at0 = Range (zero, t, one)
        r = Unsqueeze <axes = [0]> (at0) y = Gather (table, r) }}"""
    before, after = ir.from_onnx_text(text), ir.from_onnx_text(text)
    assert graphfix.run(after, "table-rows").changed
    np.testing.assert_array_equal(run(after, 7), run(before, 7))


@pytest.mark.parametrize(("most", "changes"), [(24, True), (23, False)])
def test_a_buffer_of_positions_is_read_up_to_so_many(
    most: int, monkeypatch: pytest.MonkeyPatch, *, changes: bool
) -> None:
    monkeypatch.setattr("graphfix.passes.indices.table_rows._MAX_ROWS", most)
    m = model(FORMS["a buffer of positions"])
    assert graphfix.run(m, "table-rows").changed == changes


def test_a_buffer_of_several_rows_is_no_count() -> None:
    m = ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[B, T, 2] x) => (float y)
        <int64[1] at = {{1}}, int64[1] front = {{0}}, int64 second = {{1}},
         float[2, 2] table = {{0, 1, 2, 3}}, int64[2, 2] pairs = {{0, 1, 2, 3}}>
        {{ {SIZE} r = Slice (pairs, front, t1, at) y = Gather (table, r) }}""")
    assert not refusals(m, "table-rows")
