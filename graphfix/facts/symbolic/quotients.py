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
from graphfix.graph.nodes import attr_int, is_op, maker_of
from graphfix.ops.broadcast import LOGIC
from graphfix.ops.number_laws import OF_ONE, OF_TWO

Numbers = npt.NDArray[np.int64] | npt.NDArray[np.bool_]

_TRIED = np.arange(-4096, 4097)
_LARGEST = 1024
_DEEPEST = 8


_WAYS: dict[str, Callable[..., Numbers]] = {
    **{x: OF_ONE[x] for x in ("Identity", "Neg", "Not", "Sign")},
    **{x: OF_TWO[x] for x in (*LOGIC, "Add", "Mul", "Sub")},
    "Div": lambda a, b: np.trunc(np.true_divide(a, b)).astype(np.int64),
    "Mod": np.mod,
    "Where": np.where,
}


class _UnknownError(Exception):
    """Something else comes in, or it is computed in a way that is not known."""


def floored(
    node: ir.Node, dtype_of: Callable[[ir.Value], ir.DataType | None] = lambda value: value.dtype
) -> tuple[ir.Value, int] | None:
    """What a Sub divides by what, if it is a quotient that is rounded down; None if it is not.

    Args:
        node: The Sub.
        dtype_of: Where the types are known, if not from the values themselves.

    Returns:
        The numerator, of any sign, and the divisor, which is above 0.
    """
    division = maker_of(node.inputs[0])
    if not is_op(node, "Sub") or not is_op(division, "Div") or len(node.inputs) != 2:
        return None
    above, below = division.inputs[0], scalar_of(division.inputs[1])
    whole = above is not None and dtype_of(above) in INTEGERS[:2]
    if above is None or not whole or not isinstance(below, int) or not 0 < below <= _LARGEST:
        return None
    try:
        found = _made(node.outputs[0], above, _DEEPEST)
    except _UnknownError:
        return None
    return (above, below) if np.array_equal(found, _TRIED // below) else None


def _made(value: ir.Value | None, above: ir.Value, depth: int) -> Numbers:
    """What ``value`` is for each of the numbers that are tried as ``above``."""
    if value is above:
        return _TRIED
    number = scalar_of(value)
    if number is not None and abs(number) <= _LARGEST:
        return np.asarray(number)
    node = maker_of(value)
    if node is None or depth == 0 or len(node.outputs) > 1 or not is_op(node, node.op_type):
        raise _UnknownError
    args = [_made(x, above, depth - 1) for x in node.inputs]
    to = ir.DataType(attr_int(node, "to", 0)) if is_op(node, "Cast") else None
    if to in INTEGERS:
        return args[0] != 0 if to == ir.DataType.BOOL else args[0].astype(np.int64)
    way = _WAYS.get(node.op_type)
    fraction = is_op(node, "Mod") and bool(attr_int(node, "fmod", 0))
    if way is None or fraction or (is_op(node, "Div", "Mod") and not np.all(args[1])):
        raise _UnknownError
    return way(*args)
