"""Rules that onnx_shape_inference does not have, or has too bold, added through its own registry.

Here a dim is what it is in every run that succeeds, for inputs with no dim of 0 (sizes are taken
to be positive when an expression is simplified). What is not known gets a symbol of its own.
"""

from graphfix.model.symbolic.expressions import (
    Dim,
    equal,
    evaluator,
    expr_of,
    is_positive,
    key_of,
    positive_parts,
    quotient,
    replaced,
    symbols_of,
    times,
    without,
)
from graphfix.model.symbolic.inference import infer
from graphfix.model.symbolic.inferred import Facts, learning
from graphfix.model.symbolic.overrides import register
from graphfix.model.symbolic.signs import never_negative

__all__ = [
    "Dim",
    "Facts",
    "equal",
    "evaluator",
    "expr_of",
    "infer",
    "is_positive",
    "key_of",
    "learning",
    "never_negative",
    "positive_parts",
    "quotient",
    "register",
    "replaced",
    "symbols_of",
    "times",
    "without",
]
