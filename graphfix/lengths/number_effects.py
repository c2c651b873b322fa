"""Effects of element-wise operators on single numbers, and which results they keep finite."""

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.lengths.tail_state import Sign, TensorState, sign_of_number
from graphfix.ops.laws import BINARY_LAWS, UNARY_LAWS

ONE_DATA_INPUT = ops.UNARY - ops.named("com.microsoft.FastGelu")
"""Only their first input is data, the others are parameters; a FastGelu adds a bias."""


def dtype_limit(dtype: ir.DataType, *, high: bool) -> float:
    """Return the largest, or the least, number of a type."""
    if dtype == ir.DataType.BOOL:
        return int(high)
    edge = dtype.max if high else dtype.min
    return float(edge) if dtype.is_floating_point() else int(edge)


def apply_to_numbers(
    operator: str, args: list[float], *, integral: bool, to_bool: bool
) -> float | None:
    """Compute what an operator makes of numbers; None where no law is known.

    Args:
        operator: The qualified name of the operator.
        args: A number for each input; True is 1. Of a Clip, with both bounds.
        integral: Whether the result is of integers.
        to_bool: Whether the result is a boolean.
    """
    if operator in ops.CASTS:
        return _cast_number(args[0], integral=integral, to_bool=to_bool)
    if operator in ops.IDLE:
        return args[0]
    if operator == "Clip":
        return min(max(args[0], args[1]), args[2]) if len(args) == 3 else None
    if operator == "Where":
        return args[1] if args[0] else args[2]
    with np.errstate(all="ignore"):
        if operator in UNARY_LAWS:
            return float(UNARY_LAWS[operator](np.float64(args[0])))
        if operator in BINARY_LAWS:
            result = _fold_numbers(operator, args)
            return _truncate(result) if operator == "Div" and integral else result
    # The slope of a PRelu does not matter at zero; the bias of a Gelu does.
    data = args[:1] if operator == "PRelu" else args
    return 0.0 if operator in ops.ZERO_TO_ZERO and not any(data) else None


def _cast_number(number: float, *, integral: bool, to_bool: bool) -> float:
    if to_bool:
        return float(number != 0)
    return _truncate(number) if integral else number


def _fold_numbers(operator: str, args: list[float]) -> float:
    result = args[0]
    for operand in args[1:]:
        result = float(BINARY_LAWS[operator](np.float64(result), np.float64(operand)))
    return result


def _truncate(number: float) -> float:
    return float(math.trunc(number)) if math.isfinite(number) else number


def keeps_finite(operator: str, states: Sequence[TensorState]) -> bool:
    """Return whether finite inputs give finite results."""
    signs, numbers = [x.sign for x in states], [x.fill for x in states]
    if operator == "Div":
        return signs[1] == 2 or bool(numbers[1])
    if operator in ("Log", "Reciprocal"):
        return signs[0] == 2 or (operator == "Reciprocal" and bool(numbers[0]))
    if operator == "Sqrt":
        return signs[0] >= 1
    if operator == "Pow":
        return _power_stays_finite(signs[0], numbers[1])
    # exp(89) is infinite in float32; a score less its maximum may be as large in the tail.
    return operator in ops.KEEPS_FINITE


def _power_stays_finite(sign: Sign, exponent: float | None) -> bool:
    if exponent is None:
        return False
    if exponent < 0:
        return sign == 2 and exponent >= -1
    return exponent <= 2 and (sign >= 1 or float(exponent).is_integer())


def result_sign(operator: str, states: Sequence[TensorState]) -> Sign:
    """Infer the sign of the result: exp(-200) is 0 in float32, not above it."""
    signs, numbers = [x.sign for x in states], [x.fill for x in states]
    match operator:
        case "Add" | "Sum":
            return _sign_of_sum(signs)
        case "Clip":
            return _sign_of_bound(numbers[1] if len(numbers) == 3 else None)
        case "Cosh":
            return 2
        case "Div":
            return _sign_of_product(min(signs) if signs[1] == 2 else 0, numbers[1:])
        case "Max":
            return max(signs)
        case "Min":
            return min(signs)
        case "Mul":
            return _sign_of_product(min(signs), numbers)
        case "Pow":
            return _sign_of_power(signs[0], numbers[1])
        case "Where":
            return min(signs[1:])
    return _sign_by_traits(operator, signs[:1] if operator in ONE_DATA_INPUT else signs)


def _sign_by_traits(operator: str, data_signs: Sequence[Sign]) -> Sign:
    sign = min(data_signs)
    if sign == 2 and operator in ops.KEEPS_POSITIVE:
        return 2
    if operator in ops.NEVER_NEGATIVE:
        return 1
    return min(sign, 1) if operator in ops.KEEPS_NONNEGATIVE else 0


def _sign_of_sum(signs: Sequence[Sign]) -> Sign:
    return 0 if 0 in signs else max(signs)


def _sign_of_bound(low: float | None) -> Sign:
    return 0 if low is None else sign_of_number(low)


def _sign_of_product(sign: Sign, factors: Sequence[float | None]) -> Sign:
    """Return the sign of a product, which may underflow to 0 unless a factor is known."""
    return min(sign, 1) if all(x is None for x in factors) else sign


def _sign_of_power(sign: Sign, exponent: float | None) -> Sign:
    if exponent is None:
        return min(sign, 1)
    if sign == 2:
        return 2 if abs(exponent) <= 1 else 1
    return 1 if exponent % 2 == 0 and exponent >= 0 else sign
