"""Read the equation of an Einsum."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

ELLIPSIS = "..."

_TERM = re.compile(r"[A-Za-z]*(?:\.{3})?[A-Za-z]*")


@dataclass(frozen=True)
class Equation:
    """Labels of the axes of an Einsum, a letter each; ``...`` stands for any number of them.

    Attributes:
        terms: The labels of each operand.
        written_result: The labels of the result; None where the equation leaves them to the rule.
    """

    terms: tuple[str, ...]
    written_result: str | None = None

    @property
    def result(self) -> str:
        """Return the labels of the result.

        Unless they are written, they are ``...`` if any operand has it, and the letters that stand
        only once among the operands, sorted.
        """
        if self.written_result is not None:
            return self.written_result
        letters = "".join(self.terms).replace(ELLIPSIS, "")
        ellipsis = ELLIPSIS if self.has_ellipsis else ""
        return ellipsis + "".join(sorted(x for x in letters if letters.count(x) == 1))

    @property
    def has_ellipsis(self) -> bool:
        """Return whether axes without a letter stand in it."""
        return any(ELLIPSIS in term for term in (*self.terms, self.written_result or ""))

    @property
    def has_distinct_labels(self) -> bool:
        """Return whether no letter stands for two axes of one tensor: a diagonal is taken."""
        letters = [term.replace(ELLIPSIS, "") for term in (*self.terms, self.result)]
        return all(len(set(x)) == len(x) for x in letters)

    @property
    def text(self) -> str:
        """Return the equation as ONNX writes it, without spaces."""
        operands = ",".join(self.terms)
        return operands if self.written_result is None else f"{operands}->{self.written_result}"

    def with_terms(self, terms: Sequence[str]) -> Equation:
        """Return the equation of other operands with the same result."""
        return Equation(tuple(terms), self.written_result)


def axes_of_letters(term: str, rank: int) -> list[tuple[str, int]] | None:
    """Return each letter of a term with the axis that it names, those behind dots from the end.

    None if an operand of this rank has other axes than the term names.
    """
    front, dots, back = term.partition(ELLIPSIS)
    count = len(front) + len(back)
    if count > rank or (count < rank and not dots):
        return None
    return [
        *zip(front, range(rank), strict=False),
        *zip(back, range(rank - len(back), rank), strict=True),
    ]


def parse_equation(text: str) -> Equation | None:
    """Return the equation that a text is, or None if it is none; spaces do not count."""
    operands, arrow, result = text.replace(" ", "").partition("->")
    terms = operands.split(",")
    if not all(_TERM.fullmatch(term) for term in (*terms, result)):
        return None
    return Equation(tuple(terms), result if arrow else None)


def equation_of(node: ir.Node) -> Equation | None:
    """Return the equation of an Einsum; None where it is absent or a function's parameter."""
    equation = node.attributes.get("equation")
    return None if equation is None or equation.is_ref() else parse_equation(equation.as_string())
