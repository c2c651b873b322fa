"""Faults of the first sort: every output is wrong wherever a condition on the inputs holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from planting import Bed

from graphfix.feeds.array_fill import selector_values
from graphfix.feeds.signature import Signature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from graphfix.feeds.input import Input

Fault = tuple[str, "Callable[[ir.Model], ir.Model]"]


def condition_faults(model: ir.Model) -> Iterator[Fault]:
    """Every kind that this model's inputs allow, as its name and what plants it."""
    signature = Signature(model)
    data = [x for x in signature.inputs if x.role.kind in ("data", "tokens")]
    main = next((x for x in data if x.time is not None and not _is_past(x, signature)), None)
    if main is not None:
        yield from _sizes(main, signature)
    for item in signature.inputs:
        yield from _values(item, signature)
    mask = next((x for x in signature.inputs if x.role.kind == "mask" and x.time is not None), None)
    told = mask or next((x for x in signature.inputs if x.role.kind == "lengths"), None)
    if told is not None and main is not None:
        yield from _rows(told, main, mask)


def _is_past(item: Input, signature: Signature) -> bool:
    return signature.time_of(item) in signature.past


def _fault(kind: str, condition: Callable[[Bed], ir.Value]) -> Fault:
    def plant(model: ir.Model) -> ir.Model:
        bed = Bed(model)
        return bed.spoil(condition(bed))

    return kind, plant


def _sizes(main: Input, signature: Signature) -> Iterator[Fault]:
    time, rows, name = main.time, main.rows, main.name

    def of(bed: Bed, axis: int | None, op: str, number: int, modulo: int = 0) -> ir.Value:
        size = bed.size(bed.input(name), axis or 0)
        if modulo:
            size = bed.op("Mod", size, bed.const(modulo, np.int64))
        return bed.op(op, size, bed.const(number, np.int64))

    free_rows = rows is not None and not isinstance(main.dims[rows], int)
    if free_rows:
        yield _fault("B > 3", lambda b: of(b, rows, "Greater", 3))
        yield _fault("B = 2", lambda b: of(b, rows, "Equal", 2))
    if not isinstance(main.dims[time or 0], int):
        yield _fault("T > 64", lambda b: of(b, time, "Greater", 64))
        yield _fault("T > 128", lambda b: of(b, time, "Greater", 128))
        yield _fault("T a multiple of 3", lambda b: of(b, time, "Equal", 0, 3))
        yield _fault("T a multiple of 5", lambda b: of(b, time, "Equal", 0, 5))
        yield _fault("T even", lambda b: of(b, time, "Equal", 0, 2))
        yield _fault("T odd", lambda b: of(b, time, "Equal", 1, 2))
        yield _fault("T = 1", lambda b: of(b, time, "Equal", 1))
    past = next((x for x in signature.inputs if x.time and _is_past(x, signature)), None)
    if past is not None:
        cache = past
        yield _fault(
            "a cache over 8",
            lambda b: b.op(
                "Greater", b.size(b.input(cache.name), cache.time or 0), b.const(8, np.int64)
            ),
        )


def _values(item: Input, signature: Signature) -> Iterator[Fault]:
    name, role = item.name, item.role

    def over(bed: Bed, number: float, reduce: str = "ReduceMax", op: str = "Greater") -> ir.Value:
        value = bed.cast(bed.input(name), ir.DataType.FLOAT)
        return bed.op(op, bed.reduce(reduce, value), bed.const(number, np.float32))

    def has(bed: Bed, number: int) -> ir.Value:
        value = bed.cast(bed.input(name), ir.DataType.INT64)
        same = bed.cast(bed.op("Equal", value, bed.const(number, np.int64)), ir.DataType.INT64)
        return bed.op("Greater", bed.reduce("ReduceMax", same), bed.const(0, np.int64))

    if role.kind == "data" and np.dtype(item.dtype).kind == "f" and not _is_past(item, signature):
        yield _fault("a value over 1000", lambda b: over(b, 1000))
        yield _fault("a value over 1e4", lambda b: over(b, 1e4))
        yield _fault("a value under -1e4", lambda b: over(b, -1e4, "ReduceMin", "Less"))
        yield _fault("values all above 0", lambda b: over(b, 0, "ReduceMin"))
    if options := selector_values(item):
        for value in dict.fromkeys((options[0], options[len(options) // 2], options[-1])):
            yield _fault("a choice has a value", lambda b, value=value: has(b, value))
    elif role.kind == "tokens":
        if role.high > 4097:
            yield _fault("a token id over 4095", lambda b: over(b, 4095))
        if role.high - role.low > 1:
            yield _fault("the last token id", lambda b: has(b, role.high - 1))
    elif role.kind == "int" and role.free:
        yield _fault("a whole number over 1", lambda b: over(b, 1))
        yield _fault("a whole number below 0", lambda b: over(b, 0, "ReduceMin", "Less"))
    if not role.sure:
        yield _fault(
            "a gain between 0 and 1",
            lambda b: b.all_of(
                b.op("Less", over_value(b, name), b.const(1, np.float32)),
                b.op("Greater", over_value(b, name), b.const(0, np.float32)),
            ),
        )


def over_value(bed: Bed, name: str) -> ir.Value:
    """The least value of an input, as a float."""
    return bed.reduce("ReduceMin", bed.cast(bed.input(name), ir.DataType.FLOAT))


def _rows(told: Input, main: Input, mask: Input | None) -> Iterator[Fault]:
    several = told.rows is not None

    def ends(bed: Bed) -> ir.Value:
        """How long each row is, float [B]."""
        value = bed.cast(bed.input(told.name), ir.DataType.FLOAT)
        if told.role.kind == "mask":
            value = _inside(bed, told)
            value = bed.reduce("ReduceSum", value, [told.time or 0])
            others = [a for a in range(len(told.dims)) if a not in (told.rows, told.time)]
            value = bed.reduce("ReduceMax", value, others)
        return bed.op("Reshape", value, bed.const([-1], np.int64))

    def whole(bed: Bed) -> ir.Value:
        source, axis = (told, told.time) if told.role.kind == "mask" else (main, main.time)
        size = bed.size(bed.input(source.name), axis or 0)
        return bed.cast(size, ir.DataType.FLOAT)

    def least(bed: Bed) -> ir.Value:
        return bed.reduce("ReduceMin", ends(bed))

    def most(bed: Bed) -> ir.Value:
        return bed.reduce("ReduceMax", ends(bed))

    def count(bed: Bed) -> ir.Value:
        return bed.size(ends(bed), 0)

    def many(bed: Bed) -> ir.Value:
        return bed.op("Greater", count(bed), bed.const(1, np.int64))

    if several:
        yield _fault(
            "several rows, all full",
            lambda b: b.all_of(many(b), b.op("Not", b.op("Less", least(b), whole(b)))),
        )
        yield _fault(
            "row 0 shorter than another",
            lambda b: b.op("Less", b.op("Gather", ends(b), b.const(0, np.int64)), most(b)),
        )
        yield _fault("rows of different length", lambda b: b.op("Less", least(b), most(b)))
    yield _fault("no row full", lambda b: b.op("Less", most(b), whole(b)))
    yield _fault("an empty row", lambda b: b.op("Less", least(b), b.const(0.5, np.float32)))
    if mask is not None:
        held = mask

        def first(bed: Bed) -> ir.Value:
            inside = _inside(bed, held)
            begin = bed.op("Gather", inside, bed.const([0], np.int64), axis=held.time or 0)
            end = bed.op("Gather", inside, bed.const([-1], np.int64), axis=held.time or 0)
            gap = bed.op("Sub", end, begin)
            return bed.op("Greater", bed.reduce("ReduceMax", gap), bed.const(0.5, np.float32))

        yield _fault("padding on the left", first)
        if len(held.dims) - (held.rows is not None) == 1:
            yield _fault("a hole in the mask", lambda b: _has_hole(b, held))


def _has_hole(bed: Bed, item: Input) -> ir.Value:
    """Return whether padding stands between content in any row."""
    inside, axis = _inside(bed, item), bed.const(item.time or 0, np.int64)
    before = bed.op("CumSum", inside, axis)
    behind = bed.op("CumSum", inside, axis, reverse=1)
    outside = bed.op("Sub", bed.const(1, np.float32), inside)
    within = bed.op("Mul", bed.op("Min", before, behind), outside)
    return bed.op("Greater", bed.reduce("ReduceMax", within), bed.const(0.5, np.float32))


def _inside(bed: Bed, item: Input) -> ir.Value:
    """1 where a mask says content."""
    value = bed.cast(bed.input(item.name), ir.DataType.FLOAT)
    half = bed.const((item.role.valid + item.role.padded) / 2, np.float32)
    op = "Greater" if item.role.valid > item.role.padded else "Less"
    return bed.cast(bed.op(op, value, half), ir.DataType.FLOAT)
