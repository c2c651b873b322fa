"""Effects of element-wise operators on single numbers, and which results they keep finite."""

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from graphfix.lengths.tail_state import Sign, TensorState, sign_of_number
from graphfix.ops.broadcast import LOGIC
from graphfix.ops.number_laws import BINARY_LAWS, UNARY_LAWS

_ZERO_AT_ZERO = frozenset(
    {"Asin", "Asinh", "Atan", "Atanh", "BiasGelu", "Celu", "Elu", "Erf", "FastGelu", "Gelu"}
    | {"HardSwish", "LeakyRelu", "Mish", "PRelu", "QuickGelu", "Selu", "Shrink", "Swish"}
    | {"Tan", "ThresholdedRelu"}
)

UNARY = frozenset(
    {*UNARY_LAWS, *_ZERO_AT_ZERO, "Acos", "Acosh", "BitwiseNot", "Cast", "CastLike", "Clip"}
    | {"HardSigmoid", "Dropout"}
) - {"BiasGelu"}
"""Element-wise operators of one tensor; further inputs are parameters."""

MANY = frozenset(
    {
        *BINARY_LAWS,
        "Mean",
        "Mod",
        "Where",
        "PRelu",
        "BitShift",
        "BitwiseAnd",
        "BitwiseOr",
        "BitwiseXor",
    }
    | {"BiasGelu"}
)
"""Element-wise operators of several tensors that broadcast."""


def dtype_limit(dtype: ir.DataType, *, high: bool) -> float:
    """Return the largest, or the least, number of a type."""
    if dtype == ir.DataType.BOOL:
        return int(high)
    edge = dtype.max if high else dtype.min
    return float(edge) if dtype.is_floating_point() else int(edge)


def apply_to_numbers(
    op_type: str, args: list[float], *, integral: bool, to_bool: bool
) -> float | None:
    """Compute what an operator makes of numbers; None where it is not known here.

    Args:
        op_type: The operator.
        args: A number for each input; True is 1.
        integral: Whether the result is of integers.
        to_bool: Whether the result is a boolean.
    """
    with np.errstate(all="ignore"):
        if op_type in UNARY_LAWS:
            return float(UNARY_LAWS[op_type](np.float64(args[0])))
        if op_type in _ZERO_AT_ZERO and args[0] == 0:
            return 0.0
        if op_type == "Dropout":
            return args[0]
        if op_type in ("Cast", "CastLike"):
            return float(args[0] != 0) if to_bool else _truncate(args[0]) if integral else args[0]
        if op_type == "Clip":
            low, high = [*args[1:], -math.inf, math.inf][:2] if len(args) < 3 else args[1:3]
            return min(max(args[0], low), high)
        if op_type == "Where":
            return args[1] if args[0] else args[2]
        if op_type in BINARY_LAWS:
            result = args[0]
            for operand in args[1:]:
                result = float(BINARY_LAWS[op_type](np.float64(result), np.float64(operand)))
            return _truncate(result) if op_type == "Div" and integral else result
    return None


def _truncate(number: float) -> float:
    return float(math.trunc(number)) if math.isfinite(number) else number


def keeps_finite(op_type: str, states: Sequence[TensorState]) -> bool:
    """Return whether finite inputs give finite results."""
    signs, numbers = [x.sign for x in states], [x.fill for x in states]
    if op_type == "Div":
        return signs[1] == 2 or bool(numbers[1])
    if op_type in ("Log", "Reciprocal"):
        return signs[0] == 2 or (op_type == "Reciprocal" and bool(numbers[0]))
    if op_type == "Sqrt":
        return signs[0] >= 1
    if op_type == "Pow":
        exponent = numbers[1]
        if exponent is None:
            return False
        if exponent < 0:
            return signs[0] == 2 and exponent >= -1
        return exponent <= 2 and (signs[0] >= 1 or float(exponent).is_integer())
    # exp(89) is no number in float32; a score less its maximum may be that in the tail.
    return op_type not in _OVERFLOWS


_OVERFLOWS = ("Acos", "Acosh", "Asin", "Atanh", "Cosh", "Exp", "Mod", "Sinh", "Tan")


_NEVER_BELOW = frozenset(
    {"Exp", "Sigmoid", "Softplus", "Abs", "Relu", "HardSigmoid", "Not", *LOGIC}
)
_KEEPS_SIGN = ("Cast", "CastLike", "Identity", "Sqrt", "Dropout", "Ceil")
_MAY_BE_ZERO = ("Floor", "Reciprocal", "Round", "Gelu", "Erf", "Tanh", "Sign")


def result_sign(op_type: str, states: Sequence[TensorState]) -> Sign:
    """Infer the sign of the result: exp(-200) is 0 as floats go, not above it."""
    signs, numbers = [x.sign for x in states], [x.fill for x in states]
    if op_type == "Cosh":
        return 2
    if op_type in _NEVER_BELOW:
        return 1
    if op_type == "Pow":
        exponent = numbers[1]
        if exponent is None:
            return min(signs[0], 1)
        if signs[0] == 2:
            return 2 if abs(exponent) <= 1 else 1
        return 1 if exponent % 2 == 0 and exponent >= 0 else signs[0]
    if op_type in ("Add", "Sum", "Mean"):
        return (2 if 2 in signs else 1) if 0 not in signs else 0
    if op_type in ("Mul", "Div"):
        sign = min(signs) if op_type == "Mul" or signs[1] == 2 else 0
        factors = numbers[1:] if op_type == "Div" else numbers
        return min(sign, 1) if all(x is None for x in factors) else sign
    if op_type == "Max":
        return max(signs)
    if op_type in ("Min", "Where"):
        return min(signs if op_type == "Min" else signs[1:])
    if op_type == "Clip":
        low = numbers[1] if len(numbers) > 1 else None
        return 0 if low is None else sign_of_number(low)
    if op_type in _MAY_BE_ZERO:
        return min(signs[0], 1)
    return signs[0] if op_type in _KEEPS_SIGN else 0
