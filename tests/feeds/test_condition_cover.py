"""The cases of verification: what they meet, what they cost, what is said of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.errors import FeedError
from graphfix.feeds import condition_cover
from graphfix.feeds.case import Cases
from graphfix.feeds.case_search import search_cases
from graphfix.feeds.case_style import row_lengths
from graphfix.feeds.condition_cover import frame_hop
from graphfix.feeds.coverage import measure_coverage
from graphfix.feeds.input import size_of_dim
from graphfix.feeds.roles import roles_of
from graphfix.feeds.signature import Signature
from graphfix.proof.verify import verify
from graphfix.runtime.local_session import Session

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
MASK = """m (float[B, T, 4] x, int64[B, T] mask) => (float[B, T, 4] y)
    <int64[1] ax = {1}, int64 zero = {0}, float fill = {-10000.0}>
    { t = Transpose <perm = [0, 2, 1]> (x)  s = MatMul (x, t)  e = Equal (mask, zero)
      u = Unsqueeze (e, ax)  m = Where (u, fill, s)  p = Softmax (m)  y = MatMul (p, x) }"""
FLAGS = """m (float[B, T] x, int64 a, bool b) => (float[B, T] y)
    <int64 three = {3}, int64 five = {5}>
    { e = Equal (a, three)  f = Equal (a, five)  o = Or (e, f)  p = And (o, b)
      y = If (p) < then_branch = yes () => (float[B, T] u) { u = Neg (x) },
                   else_branch = no () => (float[B, T] v) { v = Abs (x) }> }"""
PAD_ID = """m (int64[B, T] a) => (float[B, T, 1] y)
    <float[4, 1] table = {0, 1, 2, 3}, int64 pad = {1}, float fill = {-9.0}, int64[1] two = {2}>
    { e = Gather (table, a)  p = Equal (a, pad)  q = Unsqueeze (p, two)  y = Where (q, fill, e) }"""


def model(text: str) -> ir.Model:
    return ir.from_onnx_text(HEAD + text)


def covered(text: str, dims: dict[str, list[int]] | None = None) -> Cases:
    made = model(text)
    with Session(made, optimize=False) as session:
        return search_cases(made, lambda case: session.run(case.feeds), dims=dims, cover=True)


def test_rows_end_in_every_way():
    cases = covered(MASK)
    rows = [(case.dims["T"], case.valid["T"], case.side) for case in cases]
    assert any(len(ends) > 3 and set(ends) == {size} for size, ends, _ in rows)
    assert any(ends[0] < max(ends) == size for size, ends, _ in rows)
    assert any(max(ends) < size and len(ends) > 1 for size, ends, _ in rows)
    assert any(0 in ends for _, ends, _ in rows)
    assert any(side == "left" and min(ends) < size for size, ends, side in rows)
    sizes = {size for size, _, _ in rows}
    lengths = {n for _, ends, _ in rows for n in ends if n > 8}
    for number in (2, 3, 4, 5, 8):
        assert {size % number for size in sizes} == set(range(number))
        assert {n % number for n in lengths} == set(range(number))
    assert max(sizes) > 256
    assert {case.dims["B"] for case in cases} >= {1, 2, 3, 4, 5, 6, 9}


def test_a_mask_that_is_padded_on_the_left():
    case = next(x for x in covered(MASK) if x.side == "left")
    for row, length in zip(case.feeds["mask"], case.valid["T"], strict=True):
        assert (row[row.size - length :] == 1).all()
        assert (row[: row.size - length] == 0).all()


def test_every_choice_in_every_combination():
    cases = covered(FLAGS)
    had = {(int(x.feeds["a"]), bool(x.feeds["b"])) for x in cases}
    assert had == {(a, b) for a in (3, 5, 6) for b in (False, True)}
    assert {"every value of 'a'", "every value of 'b'"} <= {
        *measure_coverage(cases, cases.signature).covered
    }


def test_each_value_is_given_to_all_rows_as_well():
    text = """m (float[B, T, 1] x, int32[B] a) => (float[B, T, 1] y)
        <float[6, 1] table = {0, 1, 2, 3, 4, 5}, int64[1] one = {1}>
        { e = Gather (table, a)  u = Unsqueeze (e, one)  y = Add (x, u) }"""
    had = [x.feeds["a"] for x in covered(text)]
    assert {int(a[0]) for a in had if len(a) == 1} == set(range(6))
    assert any(len(set(a)) > 1 for a in had)


def test_padding_that_only_an_id_tells():
    cases = covered(PAD_ID)
    ends = [x.feeds["a"] for x in cases if (x.feeds["a"] == 1).any()]
    assert ends
    assert any((ids[:, -1] == 1).any() and (ids[:, 0] != 1).all() for ids in ends)
    assert any((ids[:, 0] == 1).any() and (ids[:, -1] != 1).all() for ids in ends)


def test_what_multiplies_data_is_tried_as_a_mask_and_as_a_gain():
    text = "m (float[B, T, 3] x, float[B, T, 1] a) => (float[B, T, 3] y) { y = Mul (x, a) }"
    assert not roles_of(model(text))["a"].sure
    values = [set(np.unique(x.feeds["a"])) for x in covered(text)]
    assert any(had == {0, 1} for had in values)
    assert any(had and not had <= {0, 1} for had in values)


def test_an_input_with_a_default_gets_another_value():
    text = """m (float[B, T] x, float[1] g) => (float[B, T] y) <float[1] g = {2.0}>
        { y = Mul (x, g) }"""
    given = [x.feeds["g"] for x in covered(text) if "g" in x.feeds]
    assert given
    assert all((array != 2).all() for array in given)


def test_sizes_that_the_user_gives_are_the_only_ones():
    cases = covered(MASK, {"T": [8], "B": [2]})
    assert {(x.dims["B"], x.dims["T"]) for x in cases} == {(2, 8)}
    assert any(x.side == "left" for x in cases)
    assert any(max(x.valid["T"]) < 8 for x in cases)


def test_no_case_costs_much_more_than_the_usual_ones():
    cases = covered(MASK, {"T": [2000]})
    frames = [x.feeds["mask"].size for x in cases]
    usual = frames[:2]
    assert max(frames[2:]) <= max(usual)
    assert sum(frames[2:]) <= 2 * sum(usual)
    assert not any(len(x.valid["T"]) == 9 for x in cases)
    assert cases.left_out


def test_what_was_not_tried_is_said():
    cases = covered(MASK, {"T": [8]})
    told = measure_coverage(cases, cases.signature)
    assert "padding on the left" in told.covered
    assert "T > 8" in told.missing
    told = measure_coverage([x for x in cases if x.side == "right"], cases.signature)
    assert "padding on the left" in told.missing


def test_what_whole_numbers_were_fed_is_said():
    text = """m (int64[B, T] a) => (float[B, T, 1] y) <float[5, 1] t = {1, 2, 3, 4, 5}>
        { y = Gather (t, a) }"""
    cases = covered(text)
    assert "10 values of 'a' (-5 to 4)" in measure_coverage(cases, cases.signature).covered
    narrow = [replace(x, feeds={"a": np.clip(x.feeds["a"], 0, 1)}) for x in cases]
    told = measure_coverage(narrow, cases.signature)
    assert {"values of 'a' other than 0 to 1", "the last id of 'a'"} <= {*told.missing}
    assert not any("'a'" in x for x in told.covered)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("whole", [1, 2, 7, 40])
def test_ends(rows: int, whole: int):
    assert set(row_lengths("all full", whole, rows, 0)) == {whole}
    first = row_lengths("first full", whole, rows, 0)
    assert first[0] == whole
    none = row_lengths("none full", whole, rows, 0)
    assert whole == 1 or max(none) < whole
    short = row_lengths("first short", whole, rows, 0)
    assert whole == 1 or rows == 1 or short[0] < max(short) == whole
    empty = row_lengths("an empty row", whole, rows, 0)
    assert 0 in empty
    for found in (first, none, short, empty):
        assert len(found) == rows
        assert all(0 <= n <= whole for n in found)


def test_inputs_that_share_their_dims_are_looked_at_once(monkeypatch):
    """Thousands of inputs have a handful of sizes: none is worked out input by input."""

    def sized(inputs: int) -> tuple[int, int]:
        asked, evaluated = [], []
        monkeypatch.setattr(
            condition_cover, "size_of_dim", lambda *x: asked.append(x) or size_of_dim(*x)
        )
        worked_out = ir.SymbolicDim.evaluate
        monkeypatch.setattr(
            ir.SymbolicDim, "evaluate", lambda *x: evaluated.append(x) or worked_out(*x)
        )
        names = [f"x{i}" for i in range(inputs)]
        declared = ", ".join(f"float[B, T] {x}" for x in names)
        made = model(f"m ({declared}) => (float[B, T] y) {{ y = Sum ({', '.join(names)}) }}")
        assert search_cases(made, lambda case: None, cover=True)
        monkeypatch.undo()
        return len(asked), len(evaluated)

    assert sized(3) == sized(30)
    assert sized(30)[1] == 0


ONES = ", ".join(["1"] * 16)
STRIDED = f"""m (float[B, 1, T] x) => (float[B, 1, F] y)
    <float[1, 1, 16] w = {{{ONES}}}, float most = {{512}}, int64 last = {{-1}}>
    {{ BEFORE h = Conv <strides = [16], pads = [15, 0]> (c, w)
       y = Conv <strides = [16], pads = [15, 0]> (h, w) }}"""
WHOLE = STRIDED.replace("BEFORE", "c = Identity (x)")
# What comes behind the first 512 samples, two frames, is lost.
LOST = STRIDED.replace(
    "BEFORE",
    """n = Sub (x, x) o = Exp (n) i = CumSum (o, last) k = LessOrEqual (i, most)
    f = Cast <to = 1> (k) c = Mul (x, f)""",
)


def test_strides_are_multiplied_along_the_way():
    assert frame_hop(Signature(model(WHOLE))) == 256
    assert frame_hop(Signature(model("m (float[B, T] x) => (float[B, T] y) { y = Tanh (x) }"))) == 1


def test_dims_without_a_size_say_nothing_of_frames(monkeypatch):
    def refuse(*_args):
        raise FeedError("the dim T - 5 has no size")

    monkeypatch.setattr(Signature, "symbol_sizes", refuse)
    assert frame_hop(Signature(model(WHOLE))) == 1


def test_a_size_whose_symbol_cancels_says_nothing_of_frames():
    """The last frame behind a Conv, as Zipformer pads with it: one at each length."""
    last = model(f"""m (float[B, 1, T] x) => (float[B, 1, K] y)
        <float[1, 1, 5] w = {{1, 1, 1, 1, 1}}, int64[1] less = {{-5}}, int64[1] two = {{2}},
         int64[1] all = {{{2**63 - 1}}}>
        {{ h = Conv <strides = [2]> (x, w)  n = Shape <start = 2> (x)  m = Add (n, less)
           last = Div (m, two)  y = Slice (h, last, all, two) }}""")
    assert frame_hop(Signature(last)) == 2


def test_lengths_have_several_frames_and_a_second_of_samples():
    lengths = {x.dims["T"] for x in search_cases(model(WHOLE), lambda case: None, cover=True)}
    assert {513, 1279, 16_000} <= lengths
    assert verify(model(WHOLE), model(WHOLE)).ok
    assert not verify(model(WHOLE), model(LOST)).ok


def test_a_size_that_ran_is_not_too_much():
    made = model("m (float[1, T, T2] x) => (float[1, T, T2] y) { y = Tanh (x) }")
    found = search_cases(made, lambda case: None, dims={"T": [576], "T2": [576]}, cover=True)
    assert found
    assert not found.left_out


def test_sizes_are_tried_in_pairs_and_at_both_ends_of_windows():
    cases = covered("m (float[B, T] x) => (float[B, T] y) { y = Tanh (x) }")
    assert len(cases) <= 14
    lengths = {case.dims["T"] for case in cases}
    for window in (7, 10, 16, 64, 160):
        assert {0, window - 1} <= {n % window for n in lengths}
    sizes = {(case.dims["B"], case.dims["T"]) for case in cases}
    assert any(rows > 1 and length == 1 for rows, length in sizes)
    assert any(rows >= 4 and length > 64 for rows, length in sizes)
    assert not any(" with " in x for x in measure_coverage(cases, cases.signature).missing)


def test_a_second_length_is_long_where_the_first_is_1_and_the_other_way_round():
    cases = covered("""m (float[B, T, 2] x, float[B, S, 2] z) => (float[B, T, S] y)
        { t = Transpose <perm = [0, 2, 1]> (z)  y = MatMul (x, t) }""")
    sizes = [(case.dims["T"], case.dims["S"]) for case in cases]
    assert any(length == 1 and other > 64 for length, other in sizes)
    assert any(length > 64 and other == 1 for length, other in sizes)


# Two models that differ in what only unusual numbers show.
ONLY_UNUSUAL = {
    "positions of the first row": (
        "int64[B, T] position_ids",
        "y = Gather (t, position_ids)",
        "r = Gather <axis = 0> (position_ids, row)  o = Shape (position_ids)  e = Expand (r, o) "
        "y = Gather (t, e)",
    ),
    "positions that are not looked at": (
        "int64[B, T] position_ids",
        "y = Gather (t, position_ids)",
        "h = ConstantOfShape <value = int64[1] {1}> (o)  o2 = CumSum (h, last) "
        "p = Sub (o2, i1)  m = Min (p, most)  z = Gather (t, m)  y = Identity (z)",
    ),
    "ids that count from the end": (
        "int64[B, T] ids",
        "y = Gather (t, ids)",
        "m = Max (ids, zero)  y = Gather (t, m)",
    ),
}


@pytest.mark.parametrize("name", ONLY_UNUSUAL)
def test_numbers_that_only_a_wide_case_has(name: str):
    taken, original, other = ONLY_UNUSUAL[name]
    head = f"""m ({taken}) => (float[B, T] y) <int64 zero = {{0}}, int64[1] row = {{0}},
        int64 last = {{1}}, int64 i1 = {{1}}, int64 most = {{399}}>"""
    rest = (
        "{ c0 = Constant <value_int = 0> ()  c4 = Constant <value_int = 400> () "
        "c1 = Constant <value_int = 1> ()  n = Range (c0, c4, c1)  t = Cast <to = 1> (n) "
    )
    if "(o)" in other:
        other = "o = Shape (position_ids) " + other
    assert not verify(model(head + rest + other + " }"), model(head + rest + original + " }"))


def test_masks_of_each_query_hide_other_elements():
    text = """m (float[B, T, T] s, bool[B, 1, T, T] mask) => (float[B, 1, T, T] y)
        <float fill = {-10000.0}, int64[1] ax = {1}>
        { u = Unsqueeze (s, ax)  w = Where (mask, u, fill)  y = Softmax (w) }"""
    masks = [case.feeds["mask"] for case in covered(text)]
    large = [x for x in masks if x.shape[0] > 1 and x.shape[3] > 3]
    assert any((x[:, :, :1] != x[:, :, 1:2]).any() and (x[0] != x[1]).any() for x in large)
    assert all(x.any(axis=3).all() for x in large if (x[:, :, :1] != x[:, :, 1:2]).any())


@pytest.mark.parametrize(
    ("body", "label"),
    [("y = Round (x)", "equal and half-way"), ("y = Max (x, low)", "NaN and infinity")],
)
def test_a_case_of_rare_numbers_is_made_where_they_matter(body: str, label: str) -> None:
    made = "m (float[B, T] x) => (float[B, T] y) <float low = {-1.0}> { %s }"
    labels = [x.name for x in covered(made % body) if label in x.name]
    assert len(labels) == 1
    assert not any(label in x.name for x in covered(made % "y = Tanh (x)"))
