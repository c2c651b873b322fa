"""What operators make of numbers, one by one or in arrays."""

import numpy as np
import numpy.typing as npt

from graphfix.ops.number_laws import COMPARISONS, OF_ONE, OF_TWO
from graphfix.ops.number_laws import Law as Law

Numbers = npt.NDArray[np.float64]

UNARY: dict[str, Law] = {
    x: OF_ONE[x] for x in ("Neg", "Abs", "Not", "Floor", "Ceil", "Round", "Sign")
}
TESTS: dict[str, Law] = {x: OF_TWO[x] for x in ("And", "Or", "Xor", *COMPARISONS)}
BINARY: dict[str, Law] = {
    **TESTS,
    **{x: OF_TWO[x] for x in ("Add", "Sub", "Div", "Min", "Max")},
    # What is not known, times 0, is 0.
    "Mul": lambda a, b: np.where(np.equal(a, 0) | np.equal(b, 0), 0.0, np.multiply(a, b)),
    "Mod": np.mod,
}


def result(law: Law, *numbers: float | Numbers) -> Numbers:
    """What a law makes of numbers; nothing is said of those divided by 0."""
    with np.errstate(all="ignore"):
        return np.asarray(law(*numbers), np.float64)
