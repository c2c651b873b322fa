"""A provider's ``operators.csv``: what it does with operators, a row for each, a column a fact.

An operator of another domain than ONNX's is written with it; a cell has words, or is empty.
"""

import csv
import functools
from importlib import resources

from graphfix.ops import OpSet


@functools.cache
def operator_rows(package: str) -> tuple[dict[str, str], ...]:
    """Return the rows of the table of a provider's package."""
    text = resources.files(package).joinpath("operators.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def operators_with(package: str, column: str, word: str = "yes") -> OpSet:
    """Return the operators whose cell in a column has a word."""
    return OpSet(row["operator"] for row in operator_rows(package) if word in row[column].split())
