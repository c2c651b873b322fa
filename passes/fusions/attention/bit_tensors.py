"""Tensors of zeros and ones that others are computed from, element by element."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import onnx_ir as ir

from graphfix.facts.shapes import same
from graphfix.facts.view import View
from graphfix.facts.zero_one import truth_of
from graphfix.graph.constants import filler_of, number_in, scalar_of
from graphfix.graph.nodes import attr_int, is_op
from graphfix.graph.walks import reached
from graphfix.ops.number_laws import OF_TWO

from ...masks.sites.where_masks import fill_of
from .axis_layout import REGROUPS, Atom, Layout, regrouped, size_of

Axes = tuple[tuple[Atom, ...], ...]


_POINTWISE = frozenset(
    {"Cast", "Identity", "Not", "And", "Or", "Equal", "Less", "LessOrEqual", "Greater"}
    | {"GreaterOrEqual", "Add", "Sub", "Mul", "Div", "Neg", "Where", "Expand", *REGROUPS}
)
_FIRST_ONLY = frozenset({"Cast", "Identity", "Expand", *REGROUPS})
_FAR = 40


@dataclass(frozen=True)
class Bit:
    """A tensor that decides about an addend, element by element.

    Attributes:
        value: Zeros and ones.
        axes: What its axes are.
        given: The inputs of the graph that it is 0 and 1 by, if they are so themselves.
    """

    value: ir.Value
    axes: Axes
    given: tuple[ir.Value, ...]

    @property
    def flat(self) -> tuple[Atom, ...]:
        """Its atoms, in order."""
        return tuple(atom for axis in self.axes for atom in axis)


def bits_of(value: ir.Value, axes: Axes, view: View) -> list[Bit]:
    """The tensors of zeros and ones that alone decide about ``value``, nearest first.

    Args:
        value: What is broadcast to a tensor with ``axes``.
        axes: Those axes.
        view: The model around it.
    """
    own = aligned(value, axes, view)
    if own is None:
        return []
    found: list[Bit] = []
    front: dict[ir.Value, Axes] = {value: own}
    for _ in range(_FAR):
        if len(front) == 1:
            top, there = next(iter(front.items()))
            given = truth_of(top, view)
            if given is not None:
                found.append(Bit(top, there, tuple(given)))
        node = _last_made(front)
        if node is None or node.op_type not in _POINTWISE or not is_op(node, node.op_type):
            break
        there = front.pop(node.outputs[0])
        for source in _varying(node, view):
            moved = axes_before(node, source, there, view)
            if moved is None or (source in front and front[source] != moved):
                return found
            front[source] = moved
    return found


def applied(value: ir.Value, root: ir.Value, bit: float, view: View) -> float | None:
    """What ``value`` holds where ``root`` holds ``bit``; None if that is not a number."""
    try:
        return _value(value, root, bit, view, {})
    except (ArithmeticError, LookupError, ValueError):
        return None


def aligned(value: ir.Value, axes: Axes, view: View) -> Axes | None:
    """What the axes of ``value`` are, which is broadcast to a tensor with ``axes``."""
    dims = view.shapes.dims(value)
    if dims is None or len(dims) > len(axes):
        return None
    found: list[tuple[Atom, ...]] = []
    for dim, axis in zip(dims, axes[len(axes) - len(dims) :], strict=True):
        if dim == 1:
            found.append(())
        elif axis and not same(size_of(axis), dim):  # as far as is known, it may be 1
            found.append((Atom(axis[0].role, dim),))
        else:
            found.append(axis)
    return tuple(found)


def is_always(value: ir.Value, view: View) -> bool:
    """Whether a boolean is true everywhere: exporters compare indices with 0."""
    node = value.producer()
    if is_op(node, "And", *_FIRST_ONLY):
        return all(
            x is not None and (only_number(x) == 1 or is_always(x, view)) for x in _sources(node)
        )
    if not is_op(node, "GreaterOrEqual") or node.inputs[0] is None or node.inputs[1] is None:
        return False
    limit = only_number(node.inputs[1])
    return limit is not None and limit <= 0 and _is_index(node.inputs[0])


def _value(
    value: ir.Value, root: ir.Value, bit: float, view: View, known: dict[ir.Value, float]
) -> float:
    if value is root:
        return bit
    if value in known:
        return known[value]
    constant = only_number(value)
    if constant is not None:
        return constant
    node = value.producer()
    if node is None or not is_op(node, node.op_type):
        raise LookupError(value.name)
    if node.op_type == "And" and len(varying := _varying(node, view)) == 1:
        return _value(varying[0], root, bit, view, known)
    numbers = [_value(x, root, bit, view, known) for x in _sources(node) if x is not None]
    known[value] = _computed(node, numbers)
    return known[value]


def _computed(node: ir.Node, x: list[float]) -> float:
    if node.op_type == "Cast":
        target = ir.DataType(attr_int(node, "to", 0))
        return float(x[0] != 0) if target == ir.DataType.BOOL else float(target.numpy().type(x[0]))
    if node.op_type in _FIRST_ONLY:
        return x[0]
    if node.op_type == "Where":
        return x[1] if x[0] else x[2]
    if node.op_type in ("Not", "Neg"):
        return float(not x[0]) if node.op_type == "Not" else -x[0]
    a, b = x
    if node.op_type == "Div":
        return a / b
    with np.errstate(invalid="ignore"):
        return float(OF_TWO[node.op_type](a, b))


def only_number(value: ir.Value) -> float | None:
    """Return the number that all elements of ``value`` are, or None."""
    constant = scalar_of(value)
    node = value.producer()
    if constant is None and is_op(node, "ConstantOfShape"):
        array = filler_of(node)
        constant = None if array is None else number_in(array)
    if constant is not None:
        return float(constant)
    fill = fill_of(value)
    return None if fill is None else fill.number


def _varying(node: ir.Node, view: View) -> list[ir.Value]:
    """The inputs that matter for the elements of what ``node`` makes."""
    varying = [x for x in dict.fromkeys(_sources(node)) if x is not None and only_number(x) is None]
    if node.op_type == "And" and len(varying) > 1:
        varying = [x for x in varying if not is_always(x, view)] or varying[:1]
    return varying


def _sources(node: ir.Node) -> Sequence[ir.Value | None]:
    """What its elements come from; where another input says a shape, the first alone."""
    return node.inputs[:1] if node.op_type in _FIRST_ONLY else node.inputs


def _is_index(value: ir.Value) -> bool:
    """Whether integers count from 0 on, by Range or by what the pass cumsum-index makes of it."""
    for _ in range(_FAR):
        node = value.producer()
        if is_op(node, "Cast", "Identity", "Expand", *REGROUPS) and node.inputs[0] is not None:
            value = node.inputs[0]
        elif is_op(node, "Range"):
            start, step = scalar_of(node.inputs[0]), scalar_of(node.inputs[2])
            return start is not None and start >= 0 and step is not None and step > 0
        elif is_op(node, "CumSum") and node.inputs[0] is not None:
            ones = only_number(node.inputs[0])
            return ones is not None and ones >= 0
        elif is_op(node, "Add", "Mul"):
            numbers = [scalar_of(x) for x in node.inputs]
            left = [x for x, n in zip(node.inputs, numbers, strict=True) if n is None]
            known = [n for n in numbers if n is not None]
            if len(left) != 1 or left[0] is None or not known or known[0] < 0:
                return False
            value = left[0]
        else:
            return False
    return False


def axes_before(node: ir.Node, source: ir.Value, axes: Axes, view: View) -> Axes | None:
    """What the axes of an input of ``node`` are, given those of its output."""
    dims = view.shapes.dims(source)
    if dims is None:
        return None
    if node.op_type in REGROUPS:
        moved = regrouped(Layout(axes, ()), dims)
        return None if moved is None else moved.axes
    return aligned(source, axes, view)


def _last_made(front: dict[ir.Value, Axes]) -> ir.Node | None:
    """The node that no other of the front depends on: the last one in its graph."""
    made = [node for x in front if (node := x.producer()) is not None]
    if len(made) < len(front):  # an input of the graph never becomes one with the others
        return None
    return next((x for x in made if not any(_needs(y, x) for y in made if y is not x)), None)


def _needs(node: ir.Node, other: ir.Node) -> bool:
    """Whether ``other`` is among the nodes nearest above ``node``."""
    return other in islice(reached([node], ir.Node.predecessors), _FAR)
