"""The numbers that hide a score from its Softmax."""

from __future__ import annotations

# Exporters write -1e4, -65504 (float16), -1e9, -3.4e38 and -inf.
HIDES = -1e3
"""No score is this low by itself: from here down a constant is meant to hide."""


def hides_score(number: float) -> bool:
    """Return whether a number, in place of a score or added to one, leaves it no weight."""
    return number <= HIDES
