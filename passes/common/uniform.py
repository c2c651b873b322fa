"""Tensors filled with one number: masks that hide nothing, and what is larger than it need be.

A bidirectional mask leaves transformers as ``index >= 0``, expanded to the size of the scores: true
everywhere. What is known to be one number needs no size of its own where it is broadcast anyway.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from graphfix.graph.constants import fill_value_of, scalar_of, uniform_number
from graphfix.graph.nodes import attr_int, is_op, producer_of
from graphfix.ops.broadcast import BY_ELEMENT, broadcasts_inputs
from graphfix.ops.number_laws import BINARY_LAWS, COMPARISONS, UNARY_LAWS

from .lookup import VIEWS, FoldView, Key, Replacement, constant_of, perm_of
from .reshape_targets import with_axes

Number = float | int | bool

_TAKEN = ("Slice", "Gather", "GatherElements")
_MOVES = (*VIEWS, *_TAKEN, "Expand", "Tile", "Identity", "Transpose")
_LOGIC = ("And", "Or", "Not")
_NOTHING: Mapping[str, Number] = {"Add": 0, "Mul": 1, "And": True, "Or": False}
NEUTRAL = frozenset({"Where", *_NOTHING})
"""The operators that :meth:`Uniform.neutral` looks at."""
_ARITHMETIC = ("Add", "Sub", "Mul")
SHRUNK = frozenset(
    {"ConstantOfShape", "Where", "Cast", *_MOVES, *COMPARISONS, *_LOGIC, *_ARITHMETIC}
)
"""The operators that :meth:`Uniform.smaller` looks at."""
# Index arithmetic is a handful of nodes deep; what lies deeper is taken as unknown.
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

    def lower_bound(self, value: ir.Value | None, depth: int = _DEPTH) -> Number | None:
        """Return a number that no element of an integer tensor is below, or None."""
        array = constant_of(value, 1024)
        if array is not None:
            return array.min().item() if array.size and array.dtype.kind in "iu" else None
        node = producer_of(value)
        if node is None or depth == 0:
            return None
        if is_op(node, *_MOVES):
            return self.lower_bound(node.inputs[0], depth - 1)
        if is_op(node, "Range"):
            start, step = scalar_of(node.inputs[0]), scalar_of(node.inputs[2])
            return start if step is not None and step > 0 else None
        if is_op(node, "CumSum"):
            step = self.uniform_number(node.inputs[0])
            if step is None or step < 0 or isinstance(step, float):
                return None
            return 0 if attr_int(node, "exclusive", 0) else step
        if is_op(node, "Add"):
            least = [self.lower_bound(x, depth - 1) for x in node.inputs]
            return None if least[0] is None or least[1] is None else least[0] + least[1]
        return None

    def _find_number(self, value: ir.Value, depth: int) -> Number | None:
        node = value.producer()
        if node is None or node.op_type in ("Constant", "Identity"):
            array = constant_of(value, 1024)
            if array is not None:
                return uniform_number(array)
        if node is None or node.op_type not in SHRUNK:
            return None
        if is_op(node, "ConstantOfShape"):
            filler = fill_value_of(node)
            return None if filler is None else uniform_number(filler)
        if is_op(node, *_MOVES):
            return self.uniform_number(node.inputs[0], depth)
        if is_op(node, *COMPARISONS) and (truth := self._compare(node)) is not None:
            return truth
        if not is_op(node, "Where", "Cast", *_LOGIC, *_ARITHMETIC):
            return None
        numbers = [self.uniform_number(x, depth) for x in node.inputs]
        if is_op(node, "Where") and numbers[0] is not None:
            return numbers[1 if numbers[0] else 2]
        operands = [x for x in numbers if x is not None]
        if len(operands) != len(numbers) or is_op(node, "Where"):
            return None
        return self._compute(node, operands)

    def _compare(self, node: ir.Node) -> bool | None:
        """Return the result of a comparison if it is the same everywhere, or None."""
        first, second = node.inputs
        lhs, rhs = self.uniform_number(first), self.uniform_number(second)
        if lhs is not None and rhs is not None:
            return bool(BINARY_LAWS[node.op_type](lhs, rhs))
        for operand, limit, sign in ((first, rhs, 1), (second, lhs, -1)):
            bound = self.lower_bound(operand) if isinstance(limit, int) else None
            if bound is None or limit is None or is_op(node, "Equal"):
                continue
            is_true = is_op(node, "Greater", "GreaterOrEqual") == (sign > 0)
            if bound > limit or (bound == limit and is_op(node, "Greater", "Less") != is_true):
                return is_true
        return None

    def _compute(self, node: ir.Node, numbers: Sequence[Number]) -> Number | None:
        if is_op(node, *_LOGIC):
            return bool((UNARY_LAWS | BINARY_LAWS)[node.op_type](*numbers))
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
        """Drop an operator that adds nothing, or a Where whose mask hides nothing."""
        if not is_op(node, "Where", *_NOTHING) or node.outputs[0].is_graph_output():
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
            if number is not None and number == _NOTHING[node.op_type]:
                return node.inputs[1 - i]
        return None

    def scatter_to_where(self, node: ir.Node, look: FoldView) -> Replacement | None:
        """Turn one number written at the places of a mask, ``x[mask] = 0``, into a Where."""
        data, indices = node.inputs[:2]
        transpose = producer_of(indices)
        if not is_op(transpose, "Transpose") or perm_of(transpose, look) != (1, 0):
            return None
        nonzero = producer_of(transpose.inputs[0])
        mask = nonzero.inputs[0] if is_op(nonzero, "NonZero") else None
        number, dtype = self.uniform_number(node.inputs[2]), look.view.shapes.dtype(data)
        data_dims, dims = look.dims(data), look.dims(mask)
        if mask is None or data is None or number is None or dtype is None or not data_dims:
            return None
        if "reduction" in node.attributes or look.view.shapes.dtype(mask) != ir.DataType.BOOL:
            return None
        # Rows of a mask that are expanded to those of x are as many, or the indices are none of x.
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
        parts = (
            concat.inputs if is_op(concat, "Concat") and not attr_int(node, "inverse", 0) else ()
        )
        sizes = [dims[-1] for x in parts if (dims := look.dims(x))]
        if concat is None or sizes != [1, 1] or self.uniform_number(parts[1]) != 0:
            return None
        if attr_int(concat, "axis", 0) not in (-1, (look.view.shapes.rank(parts[0]) or 0) - 1):
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
            dtype = look.view.shapes.dtype(output)
            unit_dims = (1,) * len(dims)
            if dtype is None or dims == unit_dims or not self._may_shrink(output, unit_dims):
                return None
            scalar_array = np.full(unit_dims, number, dtype.numpy())
            reason = "it is one number, and is broadcast anyway"
            return self._claim_shrunk(Replacement(reason, lambda op: [op.constant(scalar_array)]))
        operand = node.inputs[0] if is_op(node, "Expand", "Tile") else None
        if is_op(node, "And", "Or"):
            operand = self._deciding_operand(node)
        source = look.dims(operand)
        if operand is None or source is None or source == dims:
            return None
        if is_op(node, "Tile") and any(x not in (1, y) for x, y in zip(source, dims, strict=True)):
            return None  # it repeats what is more than one
        if not self._may_shrink(output, source):
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
        """Return whether no reader notices if ``value`` has only ``dims``, which broadcast."""
        if value.is_graph_output() or depth == 0:
            return False
        self._shrunk_dims[value] = dims
        return all(self._reader_may_shrink(use.node, value, dims, depth) for use in value.uses())

    def _reader_may_shrink(
        self, reader: ir.Node, value: ir.Value, dims: tuple[Key, ...], depth: int
    ) -> bool:
        look = self._look
        if reader.graph is not look.view.model.graph or len(reader.outputs) != 1:
            return False
        if not self.touched.isdisjoint(x for x in reader.inputs if x is not None):
            return False
        output = reader.outputs[0]
        if is_op(reader, "Expand") and reader.inputs[0] is value:
            target = look.dims(output)
            return target is not None and look.data(reader.inputs[1]) == target
        if is_op(reader, *BY_ELEMENT) and reader.inputs[0] is value:
            return self._may_shrink(output, dims, depth - 1)
        if is_op(reader, "Transpose") and len(perm := perm_of(reader, look)) == len(dims):
            return self._may_shrink(output, tuple(dims[i] for i in perm), depth - 1)
        if is_op(reader, "Gather") and reader.inputs[0] is not value:
            table, axis = look.dims(reader.inputs[0]), attr_int(reader, "axis", 0)
            if table is None:
                return False
            row = (*table[: axis % len(table)], *dims, *table[axis % len(table) + 1 :])
            return self._may_shrink(output, row, depth - 1)
        if not broadcasts_inputs(reader, look.view.opset_of_node(reader)):
            return False
        # As it is when all of them are small: it may take the same by another way.
        shapes = [self._shrunk_dims.get(x, look.dims(x)) if x else None for x in reader.inputs]
        known_shapes = [x for x in shapes if x is not None]
        target = look.dims(output)
        if len(known_shapes) != len(shapes) or target is None:
            return False
        size = broadcast_dims(known_shapes)
        return size is not None and (size == target or self._may_shrink(output, size, depth - 1))


def _is_norm_scale_or_bias(node: ir.Node, operand: ir.Value) -> bool:
    """Return whether a node is the scale or the bias of a LayerNorm in pieces.

    ONNX Runtime makes one kernel of those that have both (optimizer/layer_norm_fusion.cc), also of
    ones and zeros, which a model has that was not trained.
    """
    maker = operand.producer()
    if is_op(node, "Add") and is_op(maker, "Mul"):
        return any(x is not None and _ends_normalization(x.producer()) for x in maker.inputs)
    return is_op(node, "Mul") and _ends_normalization(maker)


def _ends_normalization(node: ir.Node | None) -> bool:
    """Return whether a node divides what a mean was subtracted from by a root."""
    if not is_op(node, "Div"):
        return False
    makers = [producer_of(x) for x in node.inputs]
    return is_op(makers[0], "Sub") and is_op(makers[1], "Sqrt")


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
