"""Division that rounds down, where exporters correct ONNX's, which rounds towards 0.

TorchScript writes ``q - (a % b != 0 and (a < 0) != (b < 0))`` for ``torch.div(a, b,
rounding_mode="floor")``, dynamo something like it. What a few nodes make of one number and
constants is known once it is known for the numbers of a few periods.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from graphfix.facts.symbolic.inferred import INTEGERS
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import attr_int, is_op, producer_of
from graphfix.ops.broadcast import LOGIC
from graphfix.ops.number_laws import BINARY_LAWS, UNARY_LAWS

Numbers = npt.NDArray[np.int64] | npt.NDArray[np.bool_]

_TRIED_NUMBERS = np.arange(-4096, 4097)
_MAX_DIVISOR = 1024
_MAX_DEPTH = 8


_EVALUATORS: dict[str, Callable[..., Numbers]] = {
    **{x: UNARY_LAWS[x] for x in ("Identity", "Neg", "Not", "Sign")},
    **{x: BINARY_LAWS[x] for x in (*LOGIC, "Add", "Mul", "Sub")},
    "Div": lambda a, b: np.trunc(np.true_divide(a, b)).astype(np.int64),
    "Mod": np.mod,
    "Where": np.where,
}


class _UnknownError(Exception):
    """A number comes from another source, or is computed in a way that is not known."""


def floor_division(
    node: ir.Node, dtype_of: Callable[[ir.Value], ir.DataType | None] = lambda value: value.dtype
) -> tuple[ir.Value, int] | None:
    """Return numerator and divisor of a quotient that a Sub rounds down, or None.

    Args:
        node: The Sub.
        dtype_of: Where the types are known, if not from the values themselves.

    Returns:
        The numerator, of any sign, and the divisor, which is above 0.
    """
    division = producer_of(node.inputs[0])
    if not is_op(node, "Sub") or not is_op(division, "Div") or len(node.inputs) != 2:
        return None
    numerator, divisor = division.inputs[0], scalar_of(division.inputs[1])
    is_integer = numerator is not None and dtype_of(numerator) in INTEGERS[:2]
    if (
        numerator is None
        or not is_integer
        or not isinstance(divisor, int)
        or not 0 < divisor <= _MAX_DIVISOR
    ):
        return None
    try:
        results = _evaluate_tried(node.outputs[0], numerator, _MAX_DEPTH)
    except _UnknownError:
        return None
    return (numerator, divisor) if np.array_equal(results, _TRIED_NUMBERS // divisor) else None


def _evaluate_tried(value: ir.Value | None, numerator: ir.Value, depth: int) -> Numbers:
    """Return what ``value`` is for each of the numbers that are tried as ``numerator``."""
    if value is numerator:
        return _TRIED_NUMBERS
    number = scalar_of(value)
    if number is not None and abs(number) <= _MAX_DIVISOR:
        return np.asarray(number)
    node = producer_of(value)
    if node is None or depth == 0 or len(node.outputs) > 1 or not is_op(node, node.op_type):
        raise _UnknownError
    args = [_evaluate_tried(x, numerator, depth - 1) for x in node.inputs]
    to = ir.DataType(attr_int(node, "to", 0)) if is_op(node, "Cast") else None
    if to in INTEGERS:
        return args[0] != 0 if to == ir.DataType.BOOL else args[0].astype(np.int64)
    compute = _EVALUATORS.get(node.op_type)
    fraction = is_op(node, "Mod") and bool(attr_int(node, "fmod", 0))
    if compute is None or fraction or (is_op(node, "Div", "Mod") and not np.all(args[1])):
        raise _UnknownError
    return compute(*args)
