"""Numpy functions that compute what elementwise operators do."""

from collections.abc import Callable
from typing import Any

import numpy as np

Law = Callable[..., Any]

COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
_NAMED_AS_IN_NUMPY = (
    *("Abs", "Ceil", "Cos", "Cosh", "Exp", "Floor", "IsInf", "IsNaN", "Log"),
    *("Round", "Sign", "Sin", "Sinh", "Sqrt", "Tanh"),
)
UNARY_LAWS: dict[str, Law] = {
    **{name: getattr(np, name.lower()) for name in _NAMED_AS_IN_NUMPY},
    "Identity": lambda x: x,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Reciprocal": lambda x: np.divide(1.0, x),
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Softplus": lambda x: np.log1p(np.exp(x)),
    "Softsign": lambda x: x / (1 + np.abs(x)),
}
BINARY_LAWS: dict[str, Law] = {
    **{name: getattr(np, name.lower()) for name in ("Add", "Equal", "Greater", "Less")},
    **{name: getattr(np, f"logical_{name.lower()}") for name in ("And", "Or", "Xor")},
    "Div": np.divide,
    "GreaterOrEqual": np.greater_equal,
    "LessOrEqual": np.less_equal,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": np.multiply,
    "Pow": np.power,
    "Sub": np.subtract,
    "Sum": np.add,
}
"""Of a quotient of integers ONNX keeps the whole part, which is left to who asks."""
