"""Tracing tensors to and from an attention, through layout, factors, biases and rotations."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from graphfix.facts.shapes import Dim, same_dim, same_dims
from graphfix.facts.view import View
from graphfix.graph.constants import Array, const_of, scalar_of
from graphfix.graph.dims import static_dims
from graphfix.graph.nodes import attr_int, is_op, producer_of

from .axis_layout import Atom, Layout, layout_after, layout_before, size_of
from .rotary import Rotation, rotation_of

_LAYOUT = ("Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape")
_MAX_DEPTH = 16
# What a bias of heads is along, and how many elements of it are read.
_BIAS_ROLES = ("batch", "feature")
_MAX_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class Past:
    """Keys or values of earlier runs, joined in front of those of this run.

    Attributes:
        value: The past tensor, [B, H, P, D].
        node: The Concat, whose result is fed to the next run.
        reader: The node on the path that reads the result.
        other_readers: The other nodes that read it: a cache that the model cuts for the next
            run.
        heads: The number of heads.
    """

    value: ir.Value
    node: ir.Node
    reader: ir.Node
    other_readers: tuple[ir.Node, ...]
    heads: Dim


@dataclass(frozen=True)
class Shift:
    """A constant that is added on the path, the same for all positions.

    Attributes:
        array: The constant, without axes of size 1.
        atoms: The atoms of its axes.
        factor: What the sum is multiplied by afterwards.
    """

    array: Array
    atoms: tuple[Atom, ...]
    factor: float

    def as_row(self, atoms: Sequence[Atom], factor: float) -> Array | None:
        """Return it as [H * D] for a tensor multiplied by ``factor`` in all, or None."""
        sizes = {x: x.size for x in atoms if isinstance(x.size, int)}
        present = [x for x in atoms if x in self.atoms]
        if len(sizes) < len(atoms) or len(present) < len(self.atoms):
            return None
        ordered = self.array.transpose([self.atoms.index(x) for x in present])
        spread = ordered.reshape([sizes[x] if x in present else 1 for x in atoms])
        row = np.broadcast_to(spread, list(sizes.values())).reshape(-1)
        return row.astype(np.float64) * (self.factor / factor)


@dataclass(frozen=True)
class TracedTensor:
    """A tensor on the path to or from an attention.

    Attributes:
        value: The tensor.
        layout: The roles of its axes.
        factor: What it is multiplied by on the path.
        rotation: The rotary embedding on the path, if there is one.
        past: The cache joined in front of it in the operand, if any.
        shifts: The constants added to it on the path.
        freed: How many kernels lie on the path.
    """

    value: ir.Value
    layout: Layout
    factor: float = 1.0
    rotation: Rotation | None = None
    past: Past | None = None
    shifts: tuple[Shift, ...] = ()
    freed: int = 0


def trace_back(value: ir.Value, layout: Layout, product: ir.Node, view: View) -> list[TracedTensor]:
    """Return the tensor and what it is computed from by layout, factors etc., nearest first.

    Args:
        value: The tensor.
        layout: The roles of its axes.
        product: The product whose operand it is.
        view: The model around it.
    """
    traced = [TracedTensor(value, layout)]
    while (node := traced[-1].value.producer()) is not None:
        last = traced[-1]
        # A factor before the past is joined is not one of all keys.
        scaled = scaling_of(node, view) if last.past is None else None
        if scaled is not None:
            source, factor = scaled
            factor *= last.factor
            traced.append(replace(last, value=source, factor=factor, freed=last.freed + 1))
            continue
        rotation = rotation_of(node, last.layout, view) if last.rotation is None else None
        if rotation is not None:
            freed = last.freed + rotation.saved_kernels
            traced.append(replace(last, value=rotation.source, rotation=rotation, freed=freed))
            continue
        # What reads keys on the way goes with the attention, unless others read what it makes.
        is_removable = last.past is None and all(only_reader(x.value) for x in traced[:-1])
        reader = traced[-2].value.producer() if len(traced) > 1 else product
        joined = _trace_past(node, last, reader, view) if is_removable and reader else None
        if joined is not None:
            traced.append(joined)
            continue
        added = _shift_of(node, last, view)
        if added is not None:
            source, shift = added
            freed = last.freed + is_read_once(node.outputs[0])
            traced.append(replace(last, value=source, shifts=(*last.shifts, shift), freed=freed))
            continue
        source_layout = layout_before(node, last.layout, view)
        if source_layout is None or node.inputs[0] is None:
            break
        freed = last.freed + 1
        traced.append(replace(last, value=node.inputs[0], layout=source_layout, freed=freed))
    return traced


def _trace_past(
    node: ir.Node, tensor: TracedTensor, reader: ir.Node, view: View
) -> TracedTensor | None:
    """Return the keys or values of this run where a Concat joins them to a past, or None."""
    layout, users = tensor.layout, [use.node for use in node.outputs[0].uses()]
    dims = [view.shapes.dims(x) for x in node.inputs]
    if not is_op(node, "Concat") or len(dims) != 2 or users.count(reader) != 1:
        return None
    other_readers = tuple(x for x in users if x is not reader)
    past, new = node.inputs
    if len(layout.axes) != 4 or past is None or new is None or dims[0] is None or dims[1] is None:
        return None
    roles = [{atom.role for atom in axis} for axis in layout.axes]
    if roles[2] != {"key"} or roles[3] - {"feature"} or (roles[0] | roles[1]) - {"batch"}:
        return None
    axis = attr_int(node, "axis", 0)
    if axis not in (2, -2) or tensor.rotation is not None or tensor.shifts:
        return None
    if any(not same_dim(a, b) for i, (a, b) in enumerate(zip(*dims, strict=True)) if i != 2):
        return None
    keys = () if dims[1][2] == 1 else (Atom("key", dims[1][2]),)
    axes = (*layout.axes[:2], keys, layout.axes[3])
    past_state = Past(past, node, reader, other_readers, dims[1][1])
    other_atoms = [atom for atom in layout.order if atom.role != "key"]
    layout = replace(layout, axes=axes, order=(*other_atoms, *keys))
    return replace(tensor, value=new, layout=layout, past=past_state, freed=tensor.freed + 1)


def _shift_of(node: ir.Node, tensor: TracedTensor, view: View) -> tuple[ir.Value, Shift] | None:
    """Return what an Add adds a feature bias to, and the bias; None before a rotation."""
    axes = tensor.layout.axes
    if not is_op(node, "Add") or tensor.rotation is not None:
        return None
    for source, bias in (node.inputs, node.inputs[::-1]):
        array = _bias_values(bias, view)
        if array is None or source is None or source.producer() is None:
            continue
        # Rows that something else reads with their bias are had as they are.
        is_separable = len(axes) > 3 or is_read_once(node.outputs[0])
        if not is_separable or not keeps_dims(node, source, view):
            return None
        pairs = zip(reversed(axes), reversed(array.shape), strict=False)
        own = [axis for axis, size in pairs if size > 1]
        atoms = tuple(atom for axis in reversed(own) for atom in axis)
        sizes = [x.size for x in atoms if x.role in _BIAS_ROLES and isinstance(x.size, int)]
        if len(sizes) < len(atoms) or math.prod(sizes) != array.size:
            return None
        return source, Shift(array.reshape(sizes), atoms, tensor.factor)
    return None


def _bias_values(bias: ir.Value | None, view: View) -> Array | None:
    """Return the values of a constant bias, also as a Split part of a vector, or None."""
    split, array = producer_of(bias), const_of(bias, limit=_MAX_ELEMENTS)
    vector = const_of(split.inputs[0], limit=_MAX_ELEMENTS) if is_op(split, "Split") else None
    if array is not None or split is None or bias is None or vector is None or vector.ndim > 1:
        return array
    ends = np.cumsum([(static_dims(view.shapes.dims(x)) or [0])[0] for x in split.outputs])
    return np.split(vector, ends[:-1])[bias.index() or 0] if ends[-1] == vector.size else None


def trace_forward(value: ir.Value, layout: Layout, view: View) -> list[TracedTensor]:
    """Return the tensor and what is made of it by layout alone, while nothing else reads it."""
    traced = [TracedTensor(value, layout)]
    while (node := only_reader(traced[-1].value)) is not None:
        source = traced[-1].value
        output_layout = layout_after(node, traced[-1].layout, view)
        if output_layout is None or node.inputs[0] is not source or node.graph is not source.graph:
            break
        traced.append(TracedTensor(node.outputs[0], output_layout, freed=traced[-1].freed + 1))
    return traced


def only_reader(value: ir.Value) -> ir.Node | None:
    """Return the one node that reads ``value``, once, or None if it is also an output."""
    uses = list(value.uses())
    return uses[0].node if len(uses) == 1 and not value.is_graph_output() else None


def is_read_once(value: ir.Value) -> bool:
    """Return whether one node reads ``value``, not counting those that read its size."""
    readers = [use.node for use in value.uses() if not is_op(use.node, "Shape")]
    return len(readers) < 2 and not value.is_graph_output()


def scaling_of(node: ir.Node, view: View) -> tuple[ir.Value, float] | None:
    """Return what a Mul or Div by a constant number scales, and the factor, or None."""
    if not is_op(node, "Mul", "Div"):
        return None
    for i, source in enumerate(node.inputs[: 1 if node.op_type == "Div" else 2]):
        number = _scalar_value(node.inputs[1 - i], view)
        if source is None or not number or not math.isfinite(number):
            continue
        if keeps_dims(node, source, view):
            return source, number if node.op_type == "Mul" else 1.0 / number
    return None


def keeps_dims(
    node: ir.Node, source: ir.Value, view: View, except_last: int = 0, *, may_add_dims: bool = False
) -> bool:
    """Return whether a node's output has the dims of this input, except the last ``except_last``.

    With ``may_add_dims``, dims of 1 may come in front of them.
    """
    mine, theirs = view.shapes.dims(node.outputs[0]), view.shapes.dims(source)
    if mine is None or theirs is None:
        return False
    more = len(mine) - len(theirs) if may_add_dims else 0
    return same_dims(
        mine[: len(mine) - except_last], ((1,) * more + theirs)[: more + len(theirs) - except_last]
    )


def heads_in(tensor: TracedTensor) -> int | None:
    """Return the number of heads that lie beside the features of a tensor, or None."""
    axes = [axis for axis in tensor.layout.axes if axis]
    if not axes or axes[-1][-1].role != "feature":
        return None
    own = [atom for atom in axes[-1] if atom.role == "batch"]
    roles = {atom.role for axis in axes[:-2] for atom in axis}
    if not own and roles & {"query", "key"}:  # [.., T, .., H, D]
        own = [atom for atom in axes[-2] if atom.role == "batch"]
    first = next((i for i, atom in enumerate(tensor.layout.batch_atoms) if atom in own), None)
    size = size_of(tensor.layout.batch_atoms[first:]) if first is not None else 1
    return size if isinstance(size, int) and size > 1 else None


def _scalar_value(value: ir.Value | None, view: View, depth: int = _MAX_DEPTH) -> float | None:
    """Return the number that a tensor of one element holds in each run, or None."""
    if value is None or depth == 0:
        return None
    dims = view.shapes.dims(value)
    constant = scalar_of(value)
    if constant is not None:
        return None if dims is None or any(dim != 1 for dim in dims) else float(constant)
    data = view.shapes.known_elements(value)
    if data is not None and len(data) == 1 and isinstance(data[0], int):
        return float(data[0])
    node = value.producer()
    if node is None or not is_op(node, node.op_type):
        return None
    sources = node.inputs[:1] if node.op_type in _LAYOUT else node.inputs
    numbers = [_scalar_value(x, view, depth - 1) for x in sources]
    operands = [x for x in numbers if x is not None]
    return (
        _apply_scalar_op(node.op_type, operands)
        if operands and len(operands) == len(numbers)
        else None
    )


def _apply_scalar_op(op_type: str, numbers: list[float]) -> float | None:
    first = numbers[0]
    if op_type in _LAYOUT:
        return first
    if op_type == "Sqrt":
        return math.sqrt(first) if first >= 0 else None
    if op_type == "Reciprocal":
        return 1 / first if first else None
    if len(numbers) != 2:
        return None
    second = numbers[1]
    if op_type == "Mul":
        return first * second
    if op_type == "Div":
        return first / second if second else None
    return first**second if op_type == "Pow" and first > 0 else None
