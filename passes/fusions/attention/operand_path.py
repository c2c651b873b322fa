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
from graphfix.graph.nodes import is_op, producer_of
from graphfix.ops.axes import axis_of

from .axis_layout import Atom, Layout, layout_after, layout_before, size_of
from .element_math import compute_element, element_inputs
from .rotary import Rotation, rotation_of

_MAX_DEPTH = 16
# Biases of heads are added along these axes; larger ones are not read.
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
        # Behind a join with a past, a factor of the new keys alone is not a factor of all keys.
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
        # The nodes behind the Concat are removed with the attention, so nothing else may read them.
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
    users = [use.node for use in node.outputs[0].uses()]
    dims = _dims_joined_to_past(node, tensor.layout, view)
    if dims is None or users.count(reader) != 1 or tensor.rotation is not None or tensor.shifts:
        return None
    past, new = node.inputs
    if past is None or new is None:
        return None
    other_readers = tuple(x for x in users if x is not reader)
    layout = tensor.layout
    keys = () if dims[2] == 1 else (Atom("key", dims[2]),)
    axes = (*layout.axes[:2], keys, layout.axes[3])
    other_atoms = [atom for atom in layout.order if atom.role != "key"]
    return replace(
        tensor,
        value=new,
        layout=replace(layout, axes=axes, order=(*other_atoms, *keys)),
        past=Past(past, node, reader, other_readers, dims[1]),
        freed=tensor.freed + 1,
    )


def _dims_joined_to_past(node: ir.Node, layout: Layout, view: View) -> tuple[Dim, ...] | None:
    """Return the dims [B, H, T, D] that a Concat joins to a past [B, H, P, D], or None."""
    if not is_op(node, "Concat") or len(node.inputs) != 2 or len(layout.axes) != 4:
        return None
    roles = [{atom.role for atom in axis} for axis in layout.axes]
    if roles[2] != {"key"} or roles[3] - {"feature"} or (roles[0] | roles[1]) - {"batch"}:
        return None
    past_dims, new_dims = map(view.shapes.dims, node.inputs)
    if past_dims is None or new_dims is None or axis_of(node, 4, view.opset_of_node(node)) != 2:
        return None
    pairs = enumerate(zip(past_dims, new_dims, strict=True))
    return new_dims if all(same_dim(a, b) for i, (a, b) in pairs if i != 2) else None


def _shift_of(node: ir.Node, tensor: TracedTensor, view: View) -> tuple[ir.Value, Shift] | None:
    """Return what an Add adds a feature bias to, and the bias; None before a rotation."""
    if not is_op(node, "Add") or tensor.rotation is not None:
        return None
    for source, bias in (node.inputs, node.inputs[::-1]):
        array = _bias_values(bias, view)
        if array is None or source is None or source.producer() is None:
            continue
        # Rows with their bias stay as they are if something else reads them.
        is_separable = len(tensor.layout.axes) > 3 or is_read_once(node.outputs[0])
        shift = _shift_along_axes(array, tensor)
        if shift is None or not is_separable or not keeps_dims(node, source, view):
            return None
        return source, shift
    return None


def _shift_along_axes(array: Array, tensor: TracedTensor) -> Shift | None:
    """Return a constant that is added to a tensor as a bias of heads and features, or None."""
    pairs = zip(reversed(tensor.layout.axes), reversed(array.shape), strict=False)
    own = [axis for axis, size in pairs if size > 1]
    atoms = tuple(atom for axis in reversed(own) for atom in axis)
    sizes = [x.size for x in atoms if x.role in _BIAS_ROLES and isinstance(x.size, int)]
    if len(sizes) < len(atoms) or math.prod(sizes) != array.size:
        return None
    return Shift(array.reshape(sizes), atoms, tensor.factor)


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
    batch, own = tensor.layout.batch_atoms, _atoms_beside_features(tensor.layout)
    first = next((i for i, atom in enumerate(batch) if atom in own), None)
    size = size_of(batch[first:]) if first is not None else 1
    return size if isinstance(size, int) and size > 1 else None


def _atoms_beside_features(layout: Layout) -> list[Atom]:
    """Return the batch atoms of the last axis, of [.., T, .., H, D] those of the one before."""
    axes = [axis for axis in layout.axes if axis]
    if not axes or axes[-1][-1].role != "feature":
        return []
    own = [atom for atom in axes[-1] if atom.role == "batch"]
    roles = {atom.role for axis in axes[:-2] for atom in axis}
    if not own and roles & {"query", "key"}:
        own = [atom for atom in axes[-2] if atom.role == "batch"]
    return own


def _scalar_value(value: ir.Value | None, view: View, depth: int = _MAX_DEPTH) -> float | None:
    """Return the number that every element of a tensor is in each run, or None.

    A constant counts only with one element: one with more may have more dims.
    """
    if value is None or depth == 0:
        return None
    constant = scalar_of(value)
    if constant is not None:
        dims = view.shapes.dims(value)
        return None if dims is None or any(dim != 1 for dim in dims) else float(constant)
    data = view.shapes.known_elements(value)
    if data is not None and len(data) == 1 and isinstance(data[0], int):
        return float(data[0])
    node = value.producer()
    return None if node is None else _computed_scalar(node, view, depth - 1)


def _computed_scalar(node: ir.Node, view: View, depth: int) -> float | None:
    """Return the number that a node makes of operands that are one number each, or None."""
    numbers = [_scalar_value(x, view, depth) for x in element_inputs(node)]
    operands = [x for x in numbers if x is not None]
    if not operands or len(operands) < len(numbers):
        return None
    try:
        return compute_element(node, operands, view)
    except (ArithmeticError, LookupError, ValueError):
        return None
