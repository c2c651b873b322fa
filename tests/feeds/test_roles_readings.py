"""Roles of inputs by their clues: each reading by itself, in the order that decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.feeds import roles
from graphfix.feeds.index_range import IndexRange
from graphfix.feeds.input_trace import Clues
from graphfix.feeds.roles import Role

HIDES, SHOWS = (1.0, 0.0, "Where a"), (0.0, 1.0, "Where b")  # content, padding, node
TABLE = IndexRange(1, 9, (), "Gather g")


def value(dims: tuple[Any, ...] | None, dtype: str = "float32", name: str = "x") -> ir.Value:
    return ir.Value(
        name=name,
        shape=None if dims is None else ir.Shape(dims),
        type=ir.TensorType(ir.DataType.from_numpy(np.dtype(dtype))),
    )


def kind(role: Role | None) -> str | None:
    return None if role is None else role.kind


@pytest.mark.parametrize(
    ("masks", "padded", "node"),
    [
        ([HIDES], 0.0, "Where a"),
        ([SHOWS], 1.0, "Where b"),
        ([SHOWS, HIDES], 0.0, "Where a"),
        ([SHOWS, SHOWS, HIDES], 1.0, "Where b"),
    ],
)
def test_most_uses_say_what_a_mask_is(
    masks: list[tuple[float, float, str]], padded: float, node: str
) -> None:
    role = roles._mask_role(Clues(masks=masks))
    assert role is not None
    assert (role.valid, role.padded, role.why) == (1 - padded, padded, f"masks at {node}")
    assert roles._mask_role(Clues()) is None


@pytest.mark.parametrize(
    ("dims", "clues", "expected"),
    [
        (("B", "T"), {"masks": [SHOWS]}, ("mask", 1.0)),
        (("B", "T"), {}, ("mask", 0.0)),
        ((), {}, ("choice", 0.0)),
        ((1,), {}, ("choice", 0.0)),
        ((1,), {"masks": [SHOWS]}, ("mask", 1.0)),
        ((1,), {"masks": [SHOWS], "branch": True}, ("choice", 0.0)),
        ((), {"masks": [SHOWS]}, ("choice", 0.0)),
    ],
)
def test_booleans(
    dims: tuple[Any, ...], clues: dict[str, Any], expected: tuple[str, float]
) -> None:
    role = roles._role_of_bool(value(dims, "bool"), Clues(**clues))
    assert (role.kind, role.padded) == expected
    assert role.choices == ((0, 1) if role.kind == "choice" else ())


@pytest.mark.parametrize(
    ("dims", "clues", "name", "expected"),
    [
        (("B", "T"), {"added": "Add a"}, "x", "mask"),
        (("B",), {"added": "Add a"}, "x", "data"),
        (("B", "T"), {"masks": [HIDES]}, "x", "mask"),
        ((1, 1), {"masks": [HIDES]}, "x", "data"),
        (("B",), {"compared": "Less l"}, "x", "lengths"),
        (("B", 1), {"compared": "Less l"}, "x", "lengths"),
        ((), {"compared": "Less l"}, "x", "data"),
        (("B", "T"), {"compared": "Less l"}, "x", "data"),
        (("B",), {"fraction": "Mul m", "compared": "Less l"}, "x", "relative-lengths"),
        (("B",), {"fraction": "Mul m", "cut": "Slice s"}, "x", "relative-lengths"),
        (("B",), {"fraction": "Mul m"}, "x", "data"),
        (("B",), {"cut": "Slice s"}, "x", "data"),
        (("B", "T", 1), {"gates": "Mul m"}, "x", "mask"),
        (("B", "T", 4), {"gates": "Mul m"}, "x", "data"),
        ((1, "T"), {"gates": "Mul m"}, "x", "data"),
        (("B", "T", 4), {}, "attention_mask", "mask"),
        (("B",), {}, "attention_mask", "data"),
        (None, {"gates": "Mul m"}, "mask", "data"),
    ],
)
def test_floats(
    dims: tuple[Any, ...] | None, clues: dict[str, Any], name: str, expected: str
) -> None:
    role = roles._role_of_float(value(dims, name=name), Clues(**clues))
    assert role.kind == expected
    if "added" in clues and expected == "mask":
        assert (role.valid, role.padded) == (0.0, -1e4)
    if expected == "mask" and ("gates" in clues or not clues):
        assert not role.sure


def test_a_number_beside_a_table_is_drawn_from_its_half() -> None:
    for dims, span in ((("B",), (0.0, 2.0)), (("B", 1), (0.0, 2.0)), (("B", "T"), None)):
        assert roles._role_of_float(value(dims), Clues(span=(0.0, 2.0))).span == span


INT = "int64"


@pytest.mark.parametrize(
    ("dims", "clues", "table", "counts", "name", "expected"),
    [
        # A place for each entry.
        (("N",), {}, IndexRange(0, 9, (), "S", writes=True), True, "x", "positions"),
        (("N",), {}, TABLE, True, "position_ids", "positions"),
        (("N",), {}, TABLE, True, "x", "tokens"),
        (("N",), {}, TABLE, False, "position_ids", "positions"),
        (("N",), {"waves": "Sin s"}, None, False, "x", "positions"),
        (("N",), {}, None, True, "position_ids", "positions"),
        (("N",), {}, None, False, "position_ids", "int"),
        ((1,), {"waves": "Sin s"}, None, True, "x", "positions"),
        # A number for each row.
        (("B",), {"neighbours": True}, None, False, "x", "cu-lengths"),
        (("B",), {}, None, False, "cu_seqlens", "cu-lengths"),
        (("B",), {}, None, False, "culen", "cu-lengths"),
        (("B",), {"compared": "Less l"}, None, False, "x", "lengths"),
        ((), {"compared": "Less l"}, None, False, "x", "lengths"),
        (("B",), {"limits": "Range r"}, None, False, "x", "lengths"),
        ((), {"limits": "Range r"}, None, False, "x", "int"),
        (("B", 1), {"limits": "Range r"}, None, False, "x", "lengths"),
        (("B",), {"compared": "Less l"}, TABLE, False, "x", "lengths"),
        (("B",), {}, None, False, "audio_len", "lengths"),
        ((), {}, None, False, "audio_len", "int"),
        ((), {"compared_numbers": [4, 2, 4]}, None, False, "x", "choice"),
        ((1,), {"compared_numbers": [4]}, None, False, "x", "choice"),
        (("B",), {"compared_numbers": [4]}, None, False, "x", "int"),
        ((), {"compared_numbers": [4]}, TABLE, False, "x", "tokens"),
        # Indices.
        (("B", "T"), {}, TABLE, False, "x", "tokens"),
        (("B", "T"), {}, TABLE, False, "position_ids", "positions"),
        (("B", "T"), {"masks": [HIDES]}, TABLE, False, "x", "tokens"),
        # What is left.
        (("B", "T"), {"masks": [SHOWS]}, None, False, "x", "mask"),
        (("B",), {"masks": [SHOWS]}, None, False, "x", "int"),
        (("B", "T"), {"waves": "Sin s"}, None, False, "x", "positions"),
        (("B", "T"), {}, None, False, "position_ids", "positions"),
        (("B", "T"), {"summed": "ReduceSum r"}, None, False, "x", "mask"),
        (("B", "T"), {"gates": "Mul m"}, None, False, "x", "mask"),
        (("B", "T"), {}, None, False, "attention_mask", "mask"),
        (("B",), {"summed": "ReduceSum r"}, None, False, "x", "int"),
        (("B", "T"), {"shape": True}, None, False, "x", "int"),
        (("B", "T"), {}, None, False, "x", "int"),
    ],
)
def test_whole_numbers(
    dims: tuple[Any, ...],
    clues: dict[str, Any],
    table: IndexRange | None,
    counts: bool,
    name: str,
    expected: str,
) -> None:
    role = roles._role_of_int(value(dims, INT, name), Clues(**clues), table, counts_entries=counts)
    assert role.kind == expected
    if role.kind == "choice":
        assert (role.choices, role.free) == (
            (2, 4) if 2 in clues["compared_numbers"] else (4,),
            True,
        )
    if role.kind == "positions" and table is None:
        assert role.high == 1 << 30
        assert role.sure is ("waves" in clues)
    if role.kind in ("tokens", "positions") and table is not None:
        assert (role.low, role.high, role.writes) == (table.low, table.high, table.writes)


def test_a_size_a_free_number_and_a_mask_by_its_name() -> None:
    size = roles._role_of_int(value(("B", "T"), INT), Clues(shape=True), None, counts_entries=False)
    assert (size.why, size.low, size.high, size.free) == ("a size", 1, 5, False)
    size = roles._role_of_int(value((), INT), Clues(limits="Range"), None, counts_entries=False)
    assert size.why == "a size"
    free = roles._role_of_int(value((), INT), Clues(), None, counts_entries=False)
    assert (free.why, free.free) == ("a whole number", True)
    named = roles._role_of_int(value(("B", "T"), INT, "mask"), Clues(), None, counts_entries=False)
    assert (named.why, named.sure) == ("counted at its name", False)
    length = roles._role_of_int(value(("B",), INT, "xlen"), Clues(), None, counts_entries=False)
    assert (length.why, length.sure) == ("its name", False)


def test_special_ids_are_those_of_the_table() -> None:
    table = TABLE._replace(wraps=True)
    clues = Clues(compared_numbers=[9, 8, 1, 0, 8])
    role = roles._role_of_int(value(("B", "T"), INT), clues, table, counts_entries=False)
    assert (role.choices, role.wraps, role.why) == ((1, 8), True, "indices of Gather g")


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("bool", ("choice", (0,), 2)),
        ("float32", ("data", (), 2)),
        ("float16", ("data", (), 2)),
        (INT, ("int", (), 1)),
    ],
)
def test_what_nothing_reads(dtype: str, expected: tuple[str, tuple[int, ...], int]) -> None:
    unused = value(("B",), dtype)
    role = roles._role_of(unused, None, lambda _: None, counts_entries=False)
    assert (role.kind, role.choices, role.high) == expected
    assert role.why == roles.UNUSED
    assert roles._with_number_uses(unused, role) is role


@pytest.mark.parametrize(
    ("valid", "padded", "addend"), [(1.0, 0.0, False), (0.0, 1.0, False), (0.0, -1e4, True)]
)
def test_a_mask_that_is_added(valid: float, padded: float, addend: bool) -> None:
    assert Role("mask", "", valid=valid, padded=padded).is_addend is addend
    assert not Role("data", "", valid=valid, padded=padded).is_addend


@pytest.mark.parametrize(
    ("dims", "one_per_row", "one"),
    [
        ((), True, True),
        (("B",), True, False),
        ((1,), True, True),
        (("B", 1), True, False),
        (("B", 1, 1), True, False),
        (("B", "T"), False, False),
        (("B", 1, "T"), False, False),
    ],
)
def test_one_number_for_each_row(dims: tuple[Any, ...], one_per_row: bool, one: bool) -> None:
    assert roles._has_one_per_row(value(dims)) is one_per_row
    assert roles._has_one_element(value(dims)) is one
    assert not roles._has_one_element(value(None))
    assert roles._rank_of(value(None)) == 0


SIGNAL = """<ir_version: 8, opset_import: ["" : 17]> m (%s[B, %s] a) => (float y)
    <float scale = {32768.0}> { f = Cast <to = 1> (a) %s }"""


@pytest.mark.parametrize(
    ("dtype", "dims", "body", "bounds"),
    [
        ("int16", "T", "y = Div (f, scale)", (-2048, 2049)),
        ("int16", "T", "s = Div (f, scale) y = ReduceSum (f)", (-2048, 2049)),
        ("int16", "1", "s = Div (f, scale) y = ReduceSum (f)", None),
        ("int64", "T", "y = Neg (f)", None),
    ],
)
def test_samples_are_whole_numbers(
    dtype: str, dims: str, body: str, bounds: tuple[int, int] | None
) -> None:
    given = ir.from_onnx_text(SIGNAL % (dtype, dims, body)).graph.inputs[0]
    role = roles._int_as_signal(given, Clues(summed="ReduceSum" if "ReduceSum" in body else ""))
    assert (role and (role.low, role.high)) == bounds


def test_the_input_of_lengths_that_a_repair_added_is_known() -> None:
    given = ir.from_onnx_text(
        '<ir_version: 8, opset_import: ["" : 17]> m (float[B, T] x) => (y) { y = Neg (x) }'
    )
    assert roles._length_value(given, given.graph.inputs) is None
    assert roles.roles_of(given)["x"].kind == "data"
