"""Read the table of operators, ``table.csv``.

One row per operator, or per range of opsets where an operator changed what it is. The columns:

operator
    Its name; with the domain if that is not ONNX's: ``com.microsoft.Gelu``.
opsets
    Where the row holds: ``7-``, ``-12``, ``13-21``; empty for every opset.
kind
    What it does with elements, in one word; ``traits.py`` explains each.
shape_of
    The input whose shape the first output has; ``all`` where shapes broadcast.
mixes
    The axes along which an output element depends on more than one place of its first input.
sizes
    The inputs whose contents decide the shape of the output.
indices
    The inputs that are places in another input.
traits
    What is true of it whatever its attributes; ``traits.py`` states each law.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from graphfix.ops.op_set import ANY_OPSET, OpSet

_FILE = Path(__file__).with_name("table.csv")


@dataclass(frozen=True)
class Row:
    """What the table says of an operator in a range of opsets; see the module for the columns."""

    operator: str
    opsets: range
    kind: str
    shape_of: str
    mixes: str
    sizes: tuple[int, ...]
    indices: tuple[int, ...]
    traits: frozenset[str]


@cache
def rows() -> tuple[Row, ...]:
    """Return all rows of the table in its order."""
    with _FILE.open(encoding="utf-8", newline="") as file:
        return tuple(_parse_row(fields) for fields in csv.DictReader(file))


@cache
def rows_by_operator() -> dict[str, tuple[Row, ...]]:
    """Return the rows of each operator by its qualified name."""
    grouped: dict[str, tuple[Row, ...]] = {}
    for row in rows():
        grouped[row.operator] = (*grouped.get(row.operator, ()), row)
    return grouped


def row_of(operator: str, opset: int | None = None) -> Row | None:
    """Return the row of an operator at an opset; the latest one if no opset is given."""
    matching = rows_by_operator().get(operator, ())
    if opset is not None:
        matching = tuple(row for row in matching if opset in row.opsets)
    return matching[-1] if matching else None


def operators_of_kind(*kinds: str) -> OpSet:
    """Return the operators whose kind is one of these."""
    return _collect([row for row in rows() if row.kind in kinds])


def operators_with(trait: str) -> OpSet:
    """Return the operators that have a trait."""
    return _collect([row for row in rows() if trait in row.traits])


def _collect(matching: list[Row]) -> OpSet:
    opsets: dict[str, tuple[range, ...]] = {}
    for row in matching:
        opsets[row.operator] = (*opsets.get(row.operator, ()), row.opsets)
    partial = {x: y for x, y in opsets.items() if sum(map(len, y)) < len(ANY_OPSET)}
    return OpSet(opsets, partial)


def _parse_row(fields: dict[str, str]) -> Row:
    return Row(
        operator=fields["operator"],
        opsets=_parse_opsets(fields["opsets"]),
        kind=fields["kind"],
        shape_of=fields["shape_of"],
        mixes=fields["mixes"],
        sizes=tuple(map(int, fields["sizes"].split())),
        indices=tuple(map(int, fields["indices"].split())),
        traits=frozenset(fields["traits"].split()),
    )


def _parse_opsets(text: str) -> range:
    if not text:
        return ANY_OPSET
    first, _, last = text.partition("-")
    return range(int(first or ANY_OPSET.start), int(last) + 1 if last else ANY_OPSET.stop)
