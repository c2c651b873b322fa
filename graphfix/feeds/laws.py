"""What operators make of single numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

UNARY: dict[str, Callable[[float], float]] = {
    "Neg": lambda x: -x,
    "Abs": abs,
    "Not": lambda x: float(not x),
    "Floor": lambda x: float(math.floor(x)),
    "Ceil": lambda x: float(math.ceil(x)),
    "Round": lambda x: float(round(x)),
    "Sign": lambda x: float((x > 0) - (x < 0)),
}
BINARY: dict[str, Callable[[float, float], float]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: 0.0 if 0.0 in (a, b) else a * b,
    "Div": lambda a, b: a / b if b else math.inf,
    "Mod": lambda a, b: a % b if b else math.nan,
    "Min": min,
    "Max": max,
    "And": lambda a, b: float(bool(a) and bool(b)),
    "Or": lambda a, b: float(bool(a) or bool(b)),
    "Xor": lambda a, b: float(bool(a) != bool(b)),
    "Equal": lambda a, b: float(a == b),
    "Less": lambda a, b: float(a < b),
    "LessOrEqual": lambda a, b: float(a <= b),
    "Greater": lambda a, b: float(a > b),
    "GreaterOrEqual": lambda a, b: float(a >= b),
}
