"""Each difference that edges.csv has is what a rule or a pass is for, or is not worth one."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import graphfix
from graphfix.engine import registry
from graphfix.rules import rules

TABLE = Path(graphfix.__file__).parent / "providers" / "directml" / "edges.csv"

# Operator, the start of the type, the edges: the rules and passes that flag it where it matters.
FLAGGED: list[tuple[str, str, str, tuple[str, ...]]] = [
    ("Cast", "float", "*", ("bool-cast",)),
    ("Cast", "int64>bool", "over32", ("bool-cast",)),
    ("Clip", "float16 min over max", "*", ("clip-minmax",)),
    ("Clip", "float32 min over max", "*", ("clip-minmax",)),
    ("Clip", "int64 min over max", "*", ("clip-minmax",)),
    *((op, "float", "nan", ("lost-nan",)) for op in ("Clip", "Max", "Min", "Relu", "Sign")),
    *((op, "float", "nan", ("lost-nan",)) for op in ("ReduceMax", "ReduceMin")),
    *((op, "float16", "large", ("lost-infinity",)) for op in ("Conv", "ConvTranspose", "ReduceL2")),
    *((op, "float16", "large", ("lost-infinity",)) for op in ("ReduceProd", "ReduceSum")),
    ("ReduceSumSquare", "float16", "*", ("lost-infinity",)),
    *((op, "float16", "large", ("lost-infinity",)) for op in ("Gemm", "MatMul")),
    *((op, "float16", "negative", ("lost-infinity",)) for op in ("Gemm", "MatMul", "ReduceProd")),
    *((op, "int64", "over32", ("wide-comparison",)) for op in ("Greater", "GreaterOrEqual")),
    *((op, "int64", "over32", ("wide-comparison",)) for op in ("Less", "LessOrEqual")),
    *((f"{op}Normalization", "float16", "*", ("half-norm",)) for op in ("Instance", "Layer")),
    *((op, "int64", "over32", ("wide-comparison",)) for op in ("Max", "Min")),
    ("Pad", "", "*", ("negative-pads",)),
    ("ReduceProd", "", "empty", ("empty-input",)),
    ("ReduceSum", "int", "empty", ("empty-input",)),
]
# What no graph shows, or what is no fault of DirectML.
LEFT: list[tuple[str, str, str, str]] = [
    ("ConvInteger", "int8,uint8", "*",
     "DirectML is right, and the CPU wrong without VNNI: -33957 for -34266"),
    ("MatMulInteger", "uint8,int8", "large",
     "DirectML is right; the CPU without VNNI adds two products in 16 bits, which stop at 32767"),
    ("DynamicQuantizeLinear", "float32", "equal",
     "the scale of zeros is 0 on DirectML and 1 on the CPU; what they stand for is 0 with both"),
    ("LayerNormalization", "float32", "large",
     "of numbers beyond 1e19, whose squares no float32 holds, both make something else"),
    ("Mod", "float", "*", "of floats beyond 1e30 or infinite; nothing in a graph shows that"),
    ("Pow", "float", "nan", "0, infinity and NaN to the power of 0, which no export has"),
    ("Pow", "float", "negative", "-0.0 to a negative power; right with a constant exponent"),
    ("Pow", "float32", "large", "a negative number to a power beyond 2**24, even or odd by chance"),
    ("Pow", "float", "inf", "-inf to a negative fraction; right with a whole constant exponent"),
    ("Sign", "int64", "over32", "DirectML is right, and the CPU wrong: 2147483648 is above 0"),
    ("Softplus", "float16", "large", "DirectML is right, and the CPU passes 65504 on its way"),
]  # fmt: skip


def differing() -> list[tuple[str, str, str]]:
    rows = csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines())
    return [(x["op"], x["dtype"], x["edge"]) for x in rows if x["verdict"] == "differs"]


def covers(entry: tuple[str, str, str, object], row: tuple[str, str, str]) -> bool:
    op, dtype, edge, _ = entry
    return row[0] == op and row[1].startswith(dtype) and edge in ("*", row[2])


@pytest.mark.parametrize("row", differing(), ids=" ".join)
def test_a_difference_is_flagged_or_left_for_a_reason(row: tuple[str, str, str]) -> None:
    entries: list[tuple[str, str, str, object]] = [*FLAGGED, *LEFT]
    assert [x for x in entries if covers(x, row)], f"{row} has neither rule nor reason"


def test_nothing_stands_here_that_the_table_does_not_say() -> None:
    entries: list[tuple[str, str, str, object]] = [*FLAGGED, *LEFT]
    stale = [x for x in entries if not any(covers(x, row) for row in differing())]
    assert not stale


def test_the_rules_are_there() -> None:
    named = {name for *_, names in FLAGGED for name in names}
    assert named <= {*rules(), *registry.pass_names()}
