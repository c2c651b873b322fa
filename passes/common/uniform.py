"""Tensors filled with one number: masks that hide nothing, and needlessly expanded tensors.

A bidirectional mask leaves transformers as ``index >= 0``, expanded to the size of the scores: true
everywhere. A tensor of one number needs no size of its own where its readers broadcast it anyway.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.facts.intervals import interval_of
from graphfix.graph.constants import fill_value_of, uniform_number
from graphfix.graph.nodes import attr_int, is_op, producer_of
from graphfix.ops.axes import axis_of
from graphfix.ops.laws import BINARY_LAWS, UNARY_LAWS

from .fold_view import FoldView, Key, Replacement, constant_of, perm_of
from .pattern import shared
from .reshape_targets import with_axes

Number = float | int | bool

_NEUTRAL_NUMBER: Mapping[str, Number] = {"Add": 0, "Mul": 1, "And": True, "Or": False}
NEUTRAL = frozenset({"Where", *_NEUTRAL_NUMBER})
"""The operators that :meth:`UniformTensors.drop_neutral` looks at."""
# Each element is one of those of the first input.
_MOVES = ops.MOVES_FIRST_INPUT - ops.COUNTS_CONTENTS
_COMPUTES = ops.LOGIC | ops.COMPARISONS | ops.named("Cast Add Sub Mul")
SHRUNK = _MOVES | _COMPUTES | ops.named("ConstantOfShape Where")
"""The operators that :meth:`UniformTensors.shrink` looks at."""

_CENTRED, _DEVIATION = shared.Sub("x", "mean"), shared.Sqrt("variance")
_NORM_SCALE_OR_BIAS = shared.Mul(
    shared.Div(_CENTRED, _DEVIATION, name="operand"), "scale"
) | shared.Add(shared.Mul(shared.Div(_CENTRED, _DEVIATION), "scale", name="operand"), "bias")

# Index arithmetic is a handful of nodes deep; deeper numbers count as unknown.
_DEPTH = 24


class UniformTensors:
    """The tensors of a model that hold one number throughout, whatever their size.

    Attributes:
        touched: The tensors whose shape no longer is what inference found.
    """

    def __init__(self, look: FoldView) -> None:
        self._look = look
        self._number_by_value: dict[ir.Value, Number | None] = {}
        self._shrunk_dims: dict[ir.Value, tuple[Key, ...]] = {}
        self.touched: set[ir.Value] = set()

    def uniform_number(self, value: ir.Value | None, depth: int = _DEPTH) -> Number | None:
        """Return the number that every element of ``value`` is, or None."""
        if value is None or depth == 0:
            return None
        if value not in self._number_by_value:
            self._number_by_value[value] = self._find_number(value, depth - 1)
        return self._number_by_value[value]

    def _find_number(self, value: ir.Value, depth: int) -> Number | None:
        """Return the number of a tensor that was not asked for before, or None."""
        node = value.producer()
        if node is None or is_op(node, "Constant", "Identity"):
            array = constant_of(value, 1024)
            if array is not None:
                return uniform_number(array)
        if not SHRUNK.has(node):
            return None
        if is_op(node, "ConstantOfShape"):
            filler = fill_value_of(node)
            return None if filler is None else uniform_number(filler)
        if node in _MOVES:
            return self.uniform_number(node.inputs[0], depth)
        return self._number_of_result(node, depth)

    def _number_of_result(self, node: ir.Node, depth: int) -> Number | None:
        """Return the number that a Where, or an operator on numbers, gives everywhere, or None."""
        if node in ops.COMPARISONS:
            return self._compare(node)
        numbers = [self.uniform_number(x, depth) for x in node.inputs]
        if is_op(node, "Where"):
            condition, if_true, if_false = numbers
            return None if condition is None else if_true if condition else if_false
        operands = [x for x in numbers if x is not None]
        return self._compute(node, operands) if len(operands) == len(numbers) else None

    def _compare(self, node: ir.Node) -> bool | None:
        """Return the result of a comparison if it is the same everywhere, or None."""
        first, second = node.inputs
        lhs, rhs = self.uniform_number(first), self.uniform_number(second)
        if lhs is not None and rhs is not None:
            return bool(BINARY_LAWS[node.op_type](lhs, rhs))
        for operand, limit, sign in ((first, rhs, 1), (second, lhs, -1)):
            if not isinstance(limit, int) or is_op(node, "Equal"):
                continue
            bound = interval_of(operand, self._look.view).low
            is_true = is_op(node, "Greater", "GreaterOrEqual") == (sign > 0)
            if bound > limit or (bound == limit and is_op(node, "Greater", "Less") != is_true):
                return is_true
        return None

    def _compute(self, node: ir.Node, numbers: Sequence[Number]) -> Number | None:
        """Return what an operator makes of numbers in the types of its tensors, or None."""
        if node in ops.LOGIC:
            return bool({**UNARY_LAWS, **BINARY_LAWS}[node.op_type](*numbers))
        dtype = self._look.view.shapes.dtype(node.outputs[0])
        operand_dtype = self._look.view.shapes.dtype(node.inputs[0])
        if dtype is None or operand_dtype is None:
            return None
        arrays = [np.array(x, operand_dtype.numpy()) for x in numbers]
        with np.errstate(all="ignore"):
            result = arrays[0] if is_op(node, "Cast") else BINARY_LAWS[node.op_type](*arrays)
            return uniform_number(np.asarray(result).astype(dtype.numpy()))

    # --- rules -------------------------------------------------------------------------------

    def drop_neutral(self, node: ir.Node, look: FoldView) -> Replacement | None:
        """Drop a sum with 0, a product with 1, and a Where that always takes the same side."""
        if not is_op(node, "Where", *_NEUTRAL_NUMBER) or node.outputs[0].is_graph_output():
            return None
        operand = self._deciding_operand(node)
        dims = look.dims(node.outputs[0])
        if (
            operand is None
            or dims is None
            or look.dims(operand) != dims
            or _is_norm_scale_or_bias(node, operand)
        ):
            return None
        return Replacement("what it adds or hides is nothing", lambda op: [operand])

    def _deciding_operand(self, node: ir.Node) -> ir.Value | None:
        """Return the one operand that all elements are taken from, or None."""
        if is_op(node, "Where"):
            decided = self.uniform_number(node.inputs[0])
            return None if decided is None else node.inputs[1 if decided else 2]
        for i in (0, 1):
            number = self.uniform_number(node.inputs[i])
            if number is not None and number == _NEUTRAL_NUMBER[node.op_type]:
                return node.inputs[1 - i]
        return None

    def scatter_to_where(self, node: ir.Node, look: FoldView) -> Replacement | None:
        """Turn one number written at the places of a mask, ``x[mask] = 0``, into a Where."""
        data, indices, updates = node.inputs[:3]
        mask = _mask_of_places(indices, look)
        number, dtype = self.uniform_number(updates), look.view.shapes.dtype(data)
        data_dims, dims = look.dims(data), look.dims(mask)
        if mask is None or data is None or number is None or dtype is None or not data_dims:
            return None
        if "reduction" in node.attributes or look.view.shapes.dtype(mask) != ir.DataType.BOOL:
            return None
        # A mask that is expanded to x has as many rows as x, or its indices would lie outside of x.
        expand = mask.producer()
        if is_op(expand, "Expand") and look.data(expand.inputs[1]) == data_dims:
            mask, dims = expand.inputs[0], data_dims
        if mask is None or not dims or dims != data_dims[: len(dims)]:
            return None
        fill, new_axes = np.array(number, dtype.numpy()), range(len(dims), len(data_dims))
        reason = "it writes one number where a mask is true"
        return Replacement(
            reason, lambda op: [op.Where(with_axes("Unsqueeze", mask, new_axes, op), fill, data)]
        )

    def drop_imaginary(self, node: ir.Node, look: FoldView) -> Replacement | None:
        """Drop the zero imaginary parts of the input of a DFT, as dynamo writes ``fft``."""
        concat = producer_of(node.inputs[0])
        if not is_op(concat, "Concat") or attr_int(node, "inverse", 0):
            return None
        parts, rank = concat.inputs, look.view.shapes.rank(node.inputs[0]) or 0
        sizes = [dims[-1] for x in parts if (dims := look.dims(x))]
        if sizes != [1, 1] or self.uniform_number(parts[1]) != 0:
            return None
        if axis_of(concat, rank, look.view.opset_of_node(concat)) != rank - 1:
            return None
        operands = (parts[0], *node.inputs[1:])
        return Replacement(
            "its imaginary parts are zeros", lambda op: [op.clone_node(node, *operands)]
        )

    def shrink(self, node: ir.Node, look: FoldView) -> Replacement | None:
        """Shrink a tensor that is expanded, or filled, where its readers would broadcast it."""
        if len(node.outputs) != 1 or node.graph is not look.view.model.graph:
            return None
        output, self._shrunk_dims = node.outputs[0], {}
        dims = look.dims(output)
        if dims is None or output.is_graph_output() or not output.uses():
            return None
        number = None if is_op(node, "Constant", "Identity") else self.uniform_number(output)
        if number is not None:
            return self._shrink_to_number(output, number, dims)
        return self._shrink_to_operand(node, dims)

    def _shrink_to_number(
        self, value: ir.Value, number: Number, dims: tuple[Key, ...]
    ) -> Replacement | None:
        """Replace a tensor of one number by a constant with the same rank and dims of 1."""
        dtype, unit_dims = self._look.view.shapes.dtype(value), (1,) * len(dims)
        if dtype is None or dims == unit_dims or not self._may_shrink(value, unit_dims):
            return None
        array = np.full(unit_dims, number, dtype.numpy())
        reason = "it is one number, and is broadcast anyway"
        return self._claim_shrunk(Replacement(reason, lambda op: [op.constant(array)]))

    def _shrink_to_operand(self, node: ir.Node, dims: tuple[Key, ...]) -> Replacement | None:
        """Replace an expanded tensor by the operand that readers can broadcast themselves."""
        operand = node.inputs[0] if is_op(node, "Expand", "Tile") else None
        if is_op(node, "And", "Or"):
            operand = self._deciding_operand(node)
        source = self._look.dims(operand)
        if operand is None or source is None or source == dims:
            return None
        if is_op(node, "Tile") and any(x not in (1, y) for x, y in zip(source, dims, strict=True)):
            return None  # it repeats an axis longer than 1
        if not self._may_shrink(node.outputs[0], source):
            return None
        return self._claim_shrunk(
            Replacement("those who use it can broadcast it themselves", lambda op: [operand])
        )

    def _claim_shrunk(self, replacement: Replacement) -> Replacement | None:
        """Return the replacement, unless another changed a shape that it relies on."""
        if not self.touched.isdisjoint(self._shrunk_dims):
            return None
        self.touched.update(self._shrunk_dims)
        return replacement

    def _may_shrink(self, value: ir.Value, dims: tuple[Key, ...], depth: int = _DEPTH) -> bool:
        """Return whether all readers give the same if ``value`` has only ``dims``."""
        if value.is_graph_output() or depth == 0:
            return False
        self._shrunk_dims[value] = dims
        return all(self._reader_may_shrink(use.node, value, dims, depth) for use in value.uses())

    def _reader_may_shrink(
        self, reader: ir.Node, value: ir.Value, dims: tuple[Key, ...], depth: int
    ) -> bool:
        """Return whether a reader gives the same, or something smaller that broadcasts, as well."""
        look = self._look
        if reader.graph is not look.view.model.graph or len(reader.outputs) != 1:
            return False
        if not self.touched.isdisjoint(x for x in reader.inputs if x is not None):
            return False
        (output,) = reader.outputs
        if is_op(reader, "Expand") and reader.inputs[0] is value:
            target = look.dims(output)
            return target is not None and look.data(reader.inputs[1]) == target
        shrunk = self._dims_behind(reader, value, dims)
        if shrunk is None:
            return False
        return shrunk == look.dims(output) or self._may_shrink(output, shrunk, depth - 1)

    def _dims_behind(
        self, reader: ir.Node, value: ir.Value, dims: tuple[Key, ...]
    ) -> tuple[Key, ...] | None:
        """Return the dims of a reader's output if ``value`` has only ``dims``, or None."""
        look, is_data = self._look, reader.inputs[0] is value
        if reader in ops.MAPS_ELEMENTS and is_data:
            return dims
        if is_op(reader, "Transpose") and len(perm := perm_of(reader, look)) == len(dims):
            return tuple(dims[i] for i in perm)
        if is_op(reader, "Gather") and not is_data:
            return self._gathered_dims(reader, dims)
        return self._broadcast_dims(reader)

    def _gathered_dims(self, gather: ir.Node, dims: tuple[Key, ...]) -> tuple[Key, ...] | None:
        """Return the dims of a Gather by indices that have only ``dims``, or None."""
        table = self._look.dims(gather.inputs[0])
        if table is None:
            return None
        axis = axis_of(gather, len(table), self._look.view.opset_of_node(gather))
        return None if axis is None else (*table[:axis], *dims, *table[axis + 1 :])

    def _broadcast_dims(self, node: ir.Node) -> tuple[Key, ...] | None:
        """Return what the inputs of a node broadcast to, or None if they do not."""
        look = self._look
        if node not in ops.BROADCASTS.at(look.view.opset_of_node(node)):
            return None
        # All shrunk inputs count at once: one tensor may reach the node by two ways.
        shapes = [self._shrunk_dims.get(x, look.dims(x)) if x else None for x in node.inputs]
        known_shapes = [x for x in shapes if x is not None]
        return broadcast_dims(known_shapes) if len(known_shapes) == len(shapes) else None


def _mask_of_places(indices: ir.Value | None, look: FoldView) -> ir.Value | None:
    """Return the mask whose true places are these indices: Transpose of NonZero; or None."""
    transpose = producer_of(indices)
    if not is_op(transpose, "Transpose") or perm_of(transpose, look) != (1, 0):
        return None
    nonzero = producer_of(transpose.inputs[0])
    return nonzero.inputs[0] if is_op(nonzero, "NonZero") else None


def _is_norm_scale_or_bias(node: ir.Node, operand: ir.Value) -> bool:
    """Return whether a node is the scale or the bias of a LayerNorm in pieces.

    ONNX Runtime makes one kernel of those that have both (optimizer/layer_norm_fusion.cc), also of
    ones and zeros, which a model has that was not trained.
    """
    return any(operand is norm["operand"] for norm in _NORM_SCALE_OR_BIAS.matches(node))


def broadcast_dims(shapes: Sequence[tuple[Key, ...]]) -> tuple[Key, ...] | None:
    """Return what shapes broadcast to if that is the same at every size, or None."""
    rank = max(map(len, shapes), default=0)
    result: list[Key] = []
    for dims in zip(*((1,) * (rank - len(x)) + x for x in shapes), strict=True):
        sizes = set(dims) - {1}
        if len(sizes) > 1:
            return None
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)
