"""What operators.csv says of operators is what the measurements in edges.csv show."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

import graphfix
from graphfix import ops
from graphfix.ops import OpSet
from graphfix.providers.directml import operator_facts as facts

FOLDER = Path(graphfix.__file__).parent / "providers" / "directml"


def _differing(condition: Callable[[dict[str, str]], bool]) -> set[str]:
    """The operators with a line that differs: of edges.csv, and of survey.csv in the same words."""
    rows = list(csv.DictReader((FOLDER / "edges.csv").read_text(encoding="utf-8").splitlines()))
    rows += [
        {**row, "edge": row["kind"].removeprefix("value "), "returned": row["seen"]}
        for row in csv.DictReader((FOLDER / "survey.csv").read_text(encoding="utf-8").splitlines())
    ]
    return {row["op"] for row in rows if row["verdict"] == "differs" and condition(row)}


def test_what_loses_nan() -> None:
    lost = _differing(lambda row: row["edge"] == "nan" and row["returned"].endswith("CPU nan"))
    assert lost == facts.LOSES_NAN


def test_what_stops_at_the_largest_float16() -> None:
    stopped = _differing(
        lambda row: "65504.0, CPU " in row["returned"] and "inf" in row["returned"]
    )
    assert stopped == facts.SATURATES_IN_FLOAT16


def test_norms_whose_squares_overflow() -> None:
    wrong = _differing(lambda row: row["dtype"] == "float16" and row["edge"] == "negative")
    assert wrong & ops.NORMS <= facts.OVERFLOWS_IN_FLOAT16 <= ops.NORMS


def test_what_is_wrong_when_empty() -> None:
    assert _differing(lambda row: row["edge"] == "empty") <= facts.WRONG_WHEN_EMPTY


@pytest.mark.parametrize(
    ("operator", "taken", "refused"),
    [
        ("Conv", "Sigmoid", "Softmax"),
        ("Add", "Relu", "Sigmoid"),
        ("com.microsoft.FusedMatMul", "Softmax", "Relu"),
    ],
)
def test_which_activations_an_operator_takes(operator: str, taken: str, refused: str) -> None:
    assert taken in facts.ACTIVATIONS_TAKEN[operator]
    assert refused not in facts.ACTIVATIONS_TAKEN[operator]


def test_what_computes_in_place_keeps_the_type_and_works_by_elements() -> None:
    assert facts.COMPUTES_IN_PLACE <= ops.ELEMENTWISE & ops.KEEPS_TYPE


def test_operators_of_few_dims() -> None:
    assert OpSet(facts.MOST_DIMS) >= ops.named("MatMul com.microsoft.FusedMatMul Conv Resize")
    assert all(4 <= most < facts.MAX_DIMS for most in facts.MOST_DIMS.values())
