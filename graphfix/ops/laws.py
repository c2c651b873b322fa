"""What element-wise operators make of numbers, as numpy has it.

Tests hold each law against ONNX Runtime. Of a Div of integers ONNX keeps the whole part, and a Mod
has two readings: both are left to the caller.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Law = Callable[..., Any]

UNARY_LAWS: Mapping[str, Law] = {
    "Abs": np.abs,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Exp": np.exp,
    "Floor": np.floor,
    "Identity": lambda x: x,
    "IsInf": np.isinf,
    "IsNaN": np.isnan,
    "Log": np.log,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Reciprocal": lambda x: np.divide(1.0, x),
    "Relu": lambda x: np.maximum(x, 0),
    "Round": np.round,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Sign": np.sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Softplus": lambda x: np.log1p(np.exp(x)),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Sqrt": np.sqrt,
    "Tanh": np.tanh,
}
"""Functions of one number, without attributes."""

BINARY_LAWS: Mapping[str, Law] = {
    "Add": np.add,
    "And": np.logical_and,
    "Div": np.divide,
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": np.multiply,
    "Or": np.logical_or,
    "Pow": np.power,
    "Sub": np.subtract,
    "Sum": np.add,
    "Xor": np.logical_xor,
}
"""Functions of two numbers; Max, Min and Sum take more, one after the other."""
