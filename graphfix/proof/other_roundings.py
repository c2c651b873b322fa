"""Copies of a model, and of its inputs, that differ in the last bits: as if rounded otherwise.

A whole number stays as it is. Zeros and ones are masks, and numbers that count are exact.
"""

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from graphfix import ops
from graphfix.facts.shapes import Shapes, shapes_of
from graphfix.graph.constants import const_of
from graphfix.graph.walks import all_graphs
from graphfix.proof.compare import Array

# By how many units in the last place weights and inputs are changed, and results lowered.
_MOST_UNITS, _MOST_LOWERED = 4, 2
# Larger weights stay: they are slow to read, and small ones change all that follows.
_MOST_ELEMENTS = 1 << 16
# A number of at least this size is a fill, and not computed with.
_FILL = 1e30
_EXACT = ops.EXACT | ops.MOVES_ELEMENTS | ops.CASTS | ops.MAKES_WHOLE_NUMBERS
_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)


def change_weights(graph: ir.Model, rng: np.random.Generator, *, in_half: bool = False) -> ir.Model:
    """Return a copy of a model in which the last bits of small float weights are others."""
    model = graph.clone()
    for inner in all_graphs(model):
        for value in inner.initializers.values():
            tensor = value.const_value
            if tensor is None or not 1 < tensor.size <= _MOST_ELEMENTS:
                continue
            if tensor.dtype in _FLOATS:
                changed = change_last_bits(tensor.numpy(), rng, in_half=in_half)
                value.const_value = ir.tensor(changed, name=tensor.name)
    return model


def change_last_bits(array: Array, rng: np.random.Generator, *, in_half: bool = False) -> Array:
    """Return floats off by a few units in the last place; whole numbers and fills stay."""
    if array.dtype.kind != "f" or not (np.abs(array) < np.float64(_FILL)).all():
        return array
    most = 1 if in_half else _MOST_UNITS
    steps = rng.integers(-most, most + 1, array.shape).astype(array.dtype)
    changed: Array = (array * (1 + steps * _unit_of(array.dtype, in_half))).astype(array.dtype)
    counted: Array = np.where(array == np.rint(array), array, changed)
    return counted


def change_results(
    graph: ir.Model, copy: ir.Model, rng: np.random.Generator, *, in_half: bool = False
) -> None:
    """Lower what each node of the main graph computes by a unit or two in the last place.

    By other units for each place along the last axis, if its size is known. Lower, as the largest
    float must not become infinite. Vectors and scalars stay, sizes are computed from them, and so
    does what is exact.

    Args:
        graph: The original.
        copy: A copy of it; it is changed.
        rng: Draws the units.
        in_half: Whether units are those of float16 where the model has float32.
    """
    shapes = shapes_of(graph)
    for node, counterpart in zip(list(graph.graph), list(copy.graph), strict=True):
        if node in _EXACT or not any(_is_computed_float(x, shapes) for x in node.inputs):
            continue
        for value, result in zip(node.outputs, counterpart.outputs, strict=True):
            dims, dtype = shapes.dims(value), shapes.dtype(value)
            if dims is not None and len(dims) > 1 and dtype in _FLOATS:
                size = dims[-1] if isinstance(dims[-1], int) else 1
                steps = rng.integers(0, _MOST_LOWERED + 1, size)
                unit = _unit_of(dtype.numpy(), in_half)
                _multiply(copy.graph, result, 1 - steps * unit, dtype)


def _unit_of(dtype: npt.DTypeLike, in_half: bool) -> float:
    """Return a unit in the last place as a share of a number."""
    return float(np.finfo(np.dtype(np.float16 if in_half else dtype)).eps)


def _is_computed_float(value: ir.Value | None, shapes: Shapes) -> bool:
    return value is not None and const_of(value) is None and shapes.dtype(value) in _FLOATS


def _multiply(
    graph: ir.Graph, value: ir.Value, factors: npt.NDArray[np.floating], dtype: ir.DataType
) -> None:
    """Multiply ``value`` for all its readers; the product takes over its name."""
    name, node = value.name, value.producer()
    if node is None:
        return
    product = ir.Value(name=name, type=value.type, shape=value.shape)
    value.replace_all_uses_with(product, replace_graph_outputs=True)
    value.name = f"graphfix.proof.{name}.raw"
    weight = ir.Value(name=f"graphfix.proof.{name}.factors")
    weight.const_value = ir.tensor(factors.astype(dtype.numpy()), name=weight.name)
    graph.register_initializer(weight)
    multiply = ir.node("Mul", [value, weight], outputs=[product], name=f"graphfix.proof.{name}")
    graph.insert_after(node, multiply)
