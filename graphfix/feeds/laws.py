"""Numeric laws of operators, for single numbers or arrays."""

import numpy as np
import numpy.typing as npt

from graphfix import ops
from graphfix.ops.laws import BINARY_LAWS, UNARY_LAWS
from graphfix.ops.laws import Law as Law

Numbers = npt.NDArray[np.float64]

# Whole numbers stay whole through these. Not Relu: data goes through it, and a product behind it
# would look like that of a mask.
UNARY: dict[str, Law] = {
    x: UNARY_LAWS[x] for x in ops.MAKES_WHOLE_NUMBERS | ops.named("Neg Abs Not")
}
TESTS: dict[str, Law] = {x: BINARY_LAWS[x] for x in ops.COMPARISONS | (ops.LOGIC & ops.BROADCASTS)}
BINARY: dict[str, Law] = {
    **TESTS,
    **{x: BINARY_LAWS[x] for x in ops.named("Add Sub Div Min Max")},
    # What is not known, times 0, is 0.
    "Mul": lambda a, b: np.where(np.equal(a, 0) | np.equal(b, 0), 0.0, np.multiply(a, b)),
    "Mod": np.mod,
}


def apply_law(law: Law, *numbers: float | Numbers) -> Numbers:
    """Apply a law to numbers, without warnings about divisions by 0."""
    with np.errstate(all="ignore"):
        return np.asarray(law(*numbers), np.float64)
