"""Tensors of zeros and ones from which masks and addends are computed, element by element."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import onnx_ir as ir

from graphfix.facts.shapes import same_dim
from graphfix.facts.view import View
from graphfix.facts.zero_one import zero_one_sources
from graphfix.graph.constants import fill_value_of, scalar_of, uniform_number
from graphfix.graph.nodes import attr_int, is_op
from graphfix.graph.walks import reachable_from
from graphfix.ops.number_laws import BINARY_LAWS

from ...common.fills import fill_of
from .axis_layout import REGROUPS, Atom, Layout, regroup_atoms, size_of

Axes = tuple[tuple[Atom, ...], ...]


_POINTWISE = frozenset(
    {"Cast", "Identity", "Not", "And", "Or", "Equal", "Less", "LessOrEqual", "Greater"}
    | {"GreaterOrEqual", "Add", "Sub", "Mul", "Div", "Neg", "Where", "Expand", *REGROUPS}
)
_FIRST_ONLY = frozenset({"Cast", "Identity", "Expand", *REGROUPS})
_MAX_STEPS = 40


@dataclass(frozen=True)
class BitTensor:
    """A tensor of zeros and ones that determines an addend, element by element.

    Attributes:
        value: The tensor of zeros and ones.
        axes: The atoms of each of its axes.
        binary_inputs: The graph inputs that must hold only 0 and 1 for this to be true.
    """

    value: ir.Value
    axes: Axes
    binary_inputs: tuple[ir.Value, ...]

    @property
    def flat_atoms(self) -> tuple[Atom, ...]:
        """Return its atoms, in order."""
        return tuple(atom for axis in self.axes for atom in axis)


def bit_tensors_of(value: ir.Value, axes: Axes, view: View) -> list[BitTensor]:
    """Return the 0/1 tensors that alone determine ``value``, nearest first.

    Args:
        value: A tensor that is broadcast to ``axes``.
        axes: The axes of the tensor it is broadcast to.
        view: The model around it.
    """
    own_axes = align_axes(value, axes, view)
    if own_axes is None:
        return []
    bits: list[BitTensor] = []
    frontier: dict[ir.Value, Axes] = {value: own_axes}
    for _ in range(_MAX_STEPS):
        if len(frontier) == 1:
            top, node_axes = next(iter(frontier.items()))
            binary_inputs = zero_one_sources(top, view)
            if binary_inputs is not None:
                bits.append(BitTensor(top, node_axes, tuple(binary_inputs)))
        node = _last_producer(frontier)
        if node is None or node.op_type not in _POINTWISE or not is_op(node, node.op_type):
            break
        node_axes = frontier.pop(node.outputs[0])
        for source in _varying_inputs(node, view):
            source_axes = axes_before(node, source, node_axes, view)
            if source_axes is None or (source in frontier and frontier[source] != source_axes):
                return bits
            frontier[source] = source_axes
    return bits


def evaluate_for_bit(value: ir.Value, root: ir.Value, bit: float, view: View) -> float | None:
    """Return what ``value`` holds where ``root`` holds ``bit``, or None if that is no number."""
    try:
        return _evaluate(value, root, bit, view, {})
    except (ArithmeticError, LookupError, ValueError):
        return None


def align_axes(value: ir.Value, axes: Axes, view: View) -> Axes | None:
    """Return the axes of ``value``, which is broadcast to a tensor with ``axes``."""
    dims = view.shapes.dims(value)
    if dims is None or len(dims) > len(axes):
        return None
    own_axes: list[tuple[Atom, ...]] = []
    for dim, axis in zip(dims, axes[len(axes) - len(dims) :], strict=True):
        if dim == 1:
            own_axes.append(())
        elif axis and not same_dim(size_of(axis), dim):  # as far as is known, it may be 1
            own_axes.append((Atom(axis[0].role, dim),))
        else:
            own_axes.append(axis)
    return tuple(own_axes)


def is_always_true(value: ir.Value, view: View) -> bool:
    """Return whether a boolean is true everywhere: exporters compare indices with 0."""
    node = value.producer()
    if is_op(node, "And", *_FIRST_ONLY):
        return all(
            x is not None and (uniform_number_of(x) == 1 or is_always_true(x, view))
            for x in _element_inputs(node)
        )
    if not is_op(node, "GreaterOrEqual") or node.inputs[0] is None or node.inputs[1] is None:
        return False
    limit = uniform_number_of(node.inputs[1])
    return limit is not None and limit <= 0 and _is_nonnegative_index(node.inputs[0])


def _evaluate(
    value: ir.Value, root: ir.Value, bit: float, view: View, cache: dict[ir.Value, float]
) -> float:
    if value is root:
        return bit
    if value in cache:
        return cache[value]
    constant = uniform_number_of(value)
    if constant is not None:
        return constant
    node = value.producer()
    if node is None or not is_op(node, node.op_type):
        raise LookupError(value.name)
    if node.op_type == "And" and len(varying := _varying_inputs(node, view)) == 1:
        return _evaluate(varying[0], root, bit, view, cache)
    numbers = [_evaluate(x, root, bit, view, cache) for x in _element_inputs(node) if x is not None]
    cache[value] = _compute_op(node, numbers)
    return cache[value]


def _compute_op(node: ir.Node, operands: list[float]) -> float:
    if node.op_type == "Cast":
        target = ir.DataType(attr_int(node, "to", 0))
        return (
            float(operands[0] != 0)
            if target == ir.DataType.BOOL
            else float(target.numpy().type(operands[0]))
        )
    if node.op_type in _FIRST_ONLY:
        return operands[0]
    if node.op_type == "Where":
        return operands[1] if operands[0] else operands[2]
    if node.op_type in ("Not", "Neg"):
        return float(not operands[0]) if node.op_type == "Not" else -operands[0]
    a, b = operands
    if node.op_type == "Div":
        return a / b
    with np.errstate(invalid="ignore"):
        return float(BINARY_LAWS[node.op_type](a, b))


def uniform_number_of(value: ir.Value) -> float | None:
    """Return the number that all elements of ``value`` are, or None."""
    constant = scalar_of(value)
    node = value.producer()
    if constant is None and is_op(node, "ConstantOfShape"):
        array = fill_value_of(node)
        constant = None if array is None else uniform_number(array)
    if constant is not None:
        return float(constant)
    fill = fill_of(value)
    return None if fill is None else fill.number


def _varying_inputs(node: ir.Node, view: View) -> list[ir.Value]:
    """Return the inputs that determine a node's elements and are not one fixed number."""
    varying = [
        x
        for x in dict.fromkeys(_element_inputs(node))
        if x is not None and uniform_number_of(x) is None
    ]
    if node.op_type == "And" and len(varying) > 1:
        varying = [x for x in varying if not is_always_true(x, view)] or varying[:1]
    return varying


def _element_inputs(node: ir.Node) -> Sequence[ir.Value | None]:
    """Return the inputs a node's elements come from, without inputs that only give a shape."""
    return node.inputs[:1] if node.op_type in _FIRST_ONLY else node.inputs


def _is_nonnegative_index(value: ir.Value) -> bool:
    """Return whether integers count from 0, by Range or by the CumSum of pass cumsum-index."""
    for _ in range(_MAX_STEPS):
        node = value.producer()
        if is_op(node, "Cast", "Identity", "Expand", *REGROUPS) and node.inputs[0] is not None:
            value = node.inputs[0]
        elif is_op(node, "Range"):
            start, step = scalar_of(node.inputs[0]), scalar_of(node.inputs[2])
            return start is not None and start >= 0 and step is not None and step > 0
        elif is_op(node, "CumSum") and node.inputs[0] is not None:
            addend = uniform_number_of(node.inputs[0])
            return addend is not None and addend >= 0
        elif is_op(node, "Add", "Mul"):
            numbers = [scalar_of(x) for x in node.inputs]
            variables = [x for x, n in zip(node.inputs, numbers, strict=True) if n is None]
            constants = [n for n in numbers if n is not None]
            if len(variables) != 1 or variables[0] is None or not constants or constants[0] < 0:
                return False
            value = variables[0]
        else:
            return False
    return False


def axes_before(node: ir.Node, source: ir.Value, axes: Axes, view: View) -> Axes | None:
    """Return the axes of an input of ``node``, given those of its output."""
    dims = view.shapes.dims(source)
    if dims is None:
        return None
    if node.op_type in REGROUPS:
        layout = regroup_atoms(Layout(axes, ()), dims)
        return None if layout is None else layout.axes
    return align_axes(source, axes, view)


def _last_producer(frontier: dict[ir.Value, Axes]) -> ir.Node | None:
    """Return the producer that no other tensor of the frontier depends on, or None."""
    producers = [node for x in frontier if (node := x.producer()) is not None]
    if len(producers) < len(frontier):  # an input of the graph never becomes one with the others
        return None
    return next(
        (x for x in producers if not any(_depends_on(y, x) for y in producers if y is not x)), None
    )


def _depends_on(node: ir.Node, ancestor: ir.Node) -> bool:
    """Return whether ``ancestor`` is among the nodes nearest above ``node``."""
    return ancestor in islice(reachable_from([node], ir.Node.predecessors), _MAX_STEPS)
