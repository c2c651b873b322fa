"""Numeric laws of operators, for single numbers or arrays."""

import numpy as np
import numpy.typing as npt

from graphfix.ops.number_laws import BINARY_LAWS, COMPARISONS, UNARY_LAWS
from graphfix.ops.number_laws import Law as Law

Numbers = npt.NDArray[np.float64]

UNARY: dict[str, Law] = {
    x: UNARY_LAWS[x] for x in ("Neg", "Abs", "Not", "Floor", "Ceil", "Round", "Sign")
}
TESTS: dict[str, Law] = {x: BINARY_LAWS[x] for x in ("And", "Or", "Xor", *COMPARISONS)}
BINARY: dict[str, Law] = {
    **TESTS,
    **{x: BINARY_LAWS[x] for x in ("Add", "Sub", "Div", "Min", "Max")},
    # What is not known, times 0, is 0.
    "Mul": lambda a, b: np.where(np.equal(a, 0) | np.equal(b, 0), 0.0, np.multiply(a, b)),
    "Mod": np.mod,
}


def apply_law(law: Law, *numbers: float | Numbers) -> Numbers:
    """Apply a law to numbers, without warnings about divisions by 0."""
    with np.errstate(all="ignore"):
        return np.asarray(law(*numbers), np.float64)
