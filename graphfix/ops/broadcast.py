"""Operators that broadcast their inputs, where a dim of 1 stands for any size."""

import onnx_ir as ir

from graphfix.graph.nodes import is_op

ARITHMETIC = (
    *("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Min", "Max", "Sum", "Mean"),
    *("BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor"),
)
"""Those whose output has the type of their inputs."""
LOGIC = ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "And", "Or", "Xor")
"""Those that answer yes or no."""
BROADCAST = frozenset({*ARITHMETIC, *LOGIC, "Where"})
"""Operators with multidirectional broadcasting (https://onnx.ai/onnx/repo-docs/Broadcasting.html).

PRelu is none: its slope goes with its input, never the other way.
"""

BY_ELEMENT = frozenset(
    {"Identity", "Cast", "Clip", "Not", "Neg", "Abs", "Sign", "Reciprocal", "Sqrt", "Exp", "Log"}
    | {"Floor", "Ceil", "Round", "Erf", "Sin", "Cos", "Tanh", "Sigmoid", "HardSigmoid", "Relu"}
    | {"LeakyRelu", "Elu", "Gelu", "Softplus", "IsNaN", "IsInf"}
)
"""Operators that make each element of one element of their first input."""

# Before, all inputs have one shape, or an attribute names the axis where the second begins.
_FIRST_OPSET = 7
_FIRST_OPSET_OF = dict.fromkeys(("Min", "Max", "Sum", "Mean"), 8)


def broadcasts_inputs(node: ir.Node | None, opset: int) -> bool:
    """Return whether ``node``, at its standard opset, broadcasts each of its inputs."""
    return is_op(node, *BROADCAST) and opset >= _FIRST_OPSET_OF.get(node.op_type, _FIRST_OPSET)
