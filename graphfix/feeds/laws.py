"""What operators make of numbers, one by one or in arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    Numbers = npt.NDArray[np.float64]
    Law = Callable[..., Any]

UNARY: dict[str, Law] = {
    "Neg": np.negative,
    "Abs": np.abs,
    "Not": np.logical_not,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.round,
    "Sign": np.sign,
}
TESTS: dict[str, Law] = {
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
    "Equal": np.equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
}
BINARY: dict[str, Law] = {
    **TESTS,
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": lambda a, b: np.where(np.equal(a, 0) | np.equal(b, 0), 0.0, np.multiply(a, b)),
    "Div": np.divide,
    "Mod": np.mod,
    "Min": np.minimum,
    "Max": np.maximum,
}


def result(law: Law, *numbers: float | Numbers) -> Numbers:
    """What a law makes of numbers; nothing is said of those divided by 0."""
    with np.errstate(all="ignore"):
        return np.asarray(law(*numbers), np.float64)
