"""The tensors on the way to and from an attention, through layout, factors and rotations."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from graphfix.facts.shapes import Dim, all_same, same
from graphfix.facts.view import View
from graphfix.graph.constants import Array, const_of, scalar_of
from graphfix.graph.dims import numbers_in
from graphfix.graph.nodes import attr_int, is_op, maker_of

from .axis_layout import Atom, Layout, after, before, size_of
from .rotary import Rotation, rotation_of

_LAYOUT = ("Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape")
_DEEP = 16
# What a bias of heads is along, and how many elements of it are read.
_OWN = ("batch", "feature")
_LONG = 1 << 20


@dataclass(frozen=True)
class Past:
    """Keys or values of earlier runs, which come before those of this one.

    Attributes:
        value: They, as [B, H, P, D].
        node: The Concat, which makes those that the next run is given.
        reader: The node on the way that reads what it makes.
        others: What else reads it: a cache that the model cuts for the next run.
        heads: The number of heads.
    """

    value: ir.Value
    node: ir.Node
    reader: ir.Node
    others: tuple[ir.Node, ...]
    heads: Dim


@dataclass(frozen=True)
class Shift:
    """A constant that is added on the way, the same at all times.

    Attributes:
        array: It, without axes of 1.
        atoms: What those that it has are.
        factor: What the sum is multiplied by after it.
    """

    array: Array
    atoms: tuple[Atom, ...]
    factor: float

    def row(self, wanted: Sequence[Atom], factor: float) -> Array | None:
        """It as [H * D], for a tensor that is multiplied by ``factor`` in all."""
        sizes = {x: x.size for x in wanted if isinstance(x.size, int)}
        present = [x for x in wanted if x in self.atoms]
        if len(sizes) < len(wanted) or len(present) < len(self.atoms):
            return None
        moved = self.array.transpose([self.atoms.index(x) for x in present])
        spread = moved.reshape([sizes[x] if x in present else 1 for x in wanted])
        whole = np.broadcast_to(spread, list(sizes.values())).reshape(-1)
        return whole.astype(np.float64) * (self.factor / factor)


@dataclass(frozen=True)
class TracedTensor:
    """A tensor on the way to or from an attention.

    Attributes:
        value: The tensor.
        layout: What its axes are.
        factor: What it is multiplied by on the way.
        rotation: The rotary embedding on the way, if there is one.
        past: What comes before it in the operand, if anything does.
        shifts: What is added to it on the way.
        freed: How many kernels lie on the way.
    """

    value: ir.Value
    layout: Layout
    factor: float = 1.0
    rotation: Rotation | None = None
    past: Past | None = None
    shifts: tuple[Shift, ...] = ()
    freed: int = 0


def places_before(
    value: ir.Value, layout: Layout, product: ir.Node, view: View
) -> list[TracedTensor]:
    """The tensor and those that it is made from by layout and constant factors, nearest first.

    Args:
        value: The tensor.
        layout: What its axes are.
        product: The product that it is an operand of.
        view: The model around it.
    """
    found = [TracedTensor(value, layout)]
    while (node := found[-1].value.producer()) is not None:
        last = found[-1]
        # A factor before the past is joined is not one of all keys.
        scaled = scaling_of(node, view) if last.past is None else None
        if scaled is not None:
            source, factor = scaled
            factor *= last.factor
            found.append(replace(last, value=source, factor=factor, freed=last.freed + 1))
            continue
        rotation = rotation_of(node, last.layout, view) if last.rotation is None else None
        if rotation is not None:
            freed = last.freed + rotation.freed
            found.append(replace(last, value=rotation.source, rotation=rotation, freed=freed))
            continue
        # What reads keys on the way goes with the attention, unless others read what it makes.
        goes = last.past is None and all(only_user(x.value) for x in found[:-1])
        reader = found[-2].value.producer() if len(found) > 1 else product
        joined = _joined(node, last, reader, view) if goes and reader else None
        if joined is not None:
            found.append(joined)
            continue
        added = _shift_of(node, last, view)
        if added is not None:
            source, shift = added
            freed = last.freed + read_once(node.outputs[0])
            found.append(replace(last, value=source, shifts=(*last.shifts, shift), freed=freed))
            continue
        layout_there = before(node, last.layout, view)
        if layout_there is None or node.inputs[0] is None:
            break
        freed = last.freed + 1
        found.append(replace(last, value=node.inputs[0], layout=layout_there, freed=freed))
    return found


def _joined(node: ir.Node, place: TracedTensor, reader: ir.Node, view: View) -> TracedTensor | None:
    """The keys or values of this run, where a Concat joins them to those of earlier runs."""
    layout, users = place.layout, [use.node for use in node.outputs[0].uses()]
    dims = [view.shapes.dims(x) for x in node.inputs]
    if not is_op(node, "Concat") or len(dims) != 2 or users.count(reader) != 1:
        return None
    others = tuple(x for x in users if x is not reader)
    past, new = node.inputs
    if len(layout.axes) != 4 or past is None or new is None or dims[0] is None or dims[1] is None:
        return None
    roles = [{atom.role for atom in axis} for axis in layout.axes]
    if roles[2] != {"key"} or roles[3] - {"feature"} or (roles[0] | roles[1]) - {"batch"}:
        return None
    axis = attr_int(node, "axis", 0)
    if axis not in (2, -2) or place.rotation is not None or place.shifts:
        return None
    if any(not same(a, b) for i, (a, b) in enumerate(zip(*dims, strict=True)) if i != 2):
        return None
    keys = () if dims[1][2] == 1 else (Atom("key", dims[1][2]),)
    axes = (*layout.axes[:2], keys, layout.axes[3])
    joined = Past(past, node, reader, others, dims[1][1])
    kept = [atom for atom in layout.order if atom.role != "key"]
    layout = replace(layout, axes=axes, order=(*kept, *keys))
    return replace(place, value=new, layout=layout, past=joined, freed=place.freed + 1)


def _shift_of(node: ir.Node, place: TracedTensor, view: View) -> tuple[ir.Value, Shift] | None:
    """What an Add adds a bias of features to, and the bias; not before a rotation."""
    axes = place.layout.axes
    if not is_op(node, "Add") or place.rotation is not None:
        return None
    for source, bias in (node.inputs, node.inputs[::-1]):
        array = _held(bias, view)
        if array is None or source is None or source.producer() is None:
            continue
        # Rows that something else reads with their bias are had as they are.
        apart = len(axes) > 3 or read_once(node.outputs[0])
        if not apart or not keeps_dims(node, source, view):
            return None
        lying = zip(reversed(axes), reversed(array.shape), strict=False)
        own = [axis for axis, size in lying if size > 1]
        atoms = tuple(atom for axis in reversed(own) for atom in axis)
        sizes = [x.size for x in atoms if x.role in _OWN and isinstance(x.size, int)]
        if len(sizes) < len(atoms) or math.prod(sizes) != array.size:
            return None
        return source, Shift(array.reshape(sizes), atoms, place.factor)
    return None


def _held(bias: ir.Value | None, view: View) -> Array | None:
    """What a bias holds, in the file or as a part of a vector there, as torch parts three."""
    split, array = maker_of(bias), const_of(bias, limit=_LONG)
    whole = const_of(split.inputs[0], limit=_LONG) if is_op(split, "Split") else None
    if array is not None or split is None or bias is None or whole is None or whole.ndim > 1:
        return array
    ends = np.cumsum([(numbers_in(view.shapes.dims(x)) or [0])[0] for x in split.outputs])
    return np.split(whole, ends[:-1])[bias.index() or 0] if ends[-1] == whole.size else None


def places_after(value: ir.Value, layout: Layout, view: View) -> list[TracedTensor]:
    """The tensor and those made from it by layout alone, as long as nothing else reads them."""
    found = [TracedTensor(value, layout)]
    while (node := only_user(found[-1].value)) is not None:
        source = found[-1].value
        layout_there = after(node, found[-1].layout, view)
        if layout_there is None or node.inputs[0] is not source or node.graph is not source.graph:
            break
        found.append(TracedTensor(node.outputs[0], layout_there, freed=found[-1].freed + 1))
    return found


def only_user(value: ir.Value) -> ir.Node | None:
    """The one node that reads ``value``, once; None if there are others or it is an output."""
    uses = list(value.uses())
    return uses[0].node if len(uses) == 1 and not value.is_graph_output() else None


def read_once(value: ir.Value) -> bool:
    """Whether one node reads ``value``, beside those that read its size."""
    readers = [use.node for use in value.uses() if not is_op(use.node, "Shape")]
    return len(readers) < 2 and not value.is_graph_output()


def scaling_of(node: ir.Node, view: View) -> tuple[ir.Value, float] | None:
    """What a Mul or Div by a constant number scales, and by what; None if it is no such node."""
    if not is_op(node, "Mul", "Div"):
        return None
    for i, source in enumerate(node.inputs[: 1 if node.op_type == "Div" else 2]):
        number = _number_of(node.inputs[1 - i], view)
        if source is None or not number or not math.isfinite(number):
            continue
        if keeps_dims(node, source, view):
            return source, number if node.op_type == "Mul" else 1.0 / number
    return None


def keeps_dims(
    node: ir.Node, source: ir.Value, view: View, but: int = 0, *, lifts: bool = False
) -> bool:
    """Whether what ``node`` makes has the dims of this one of its inputs, except so many last.

    Where it ``lifts``, they may be behind dims of 1.
    """
    mine, theirs = view.shapes.dims(node.outputs[0]), view.shapes.dims(source)
    if mine is None or theirs is None:
        return False
    more = len(mine) - len(theirs) if lifts else 0
    return all_same(mine[: len(mine) - but], ((1,) * more + theirs)[: more + len(theirs) - but])


def heads_in(place: TracedTensor) -> int | None:
    """The number of heads that lie beside the features of this tensor, if that is seen."""
    axes = [axis for axis in place.layout.axes if axis]
    if not axes or axes[-1][-1].role != "feature":
        return None
    own = [atom for atom in axes[-1] if atom.role == "batch"]
    roles = {atom.role for axis in axes[:-2] for atom in axis}
    if not own and roles & {"query", "key"}:  # [.., T, .., H, D]
        own = [atom for atom in axes[-2] if atom.role == "batch"]
    first = next((i for i, atom in enumerate(place.layout.batch) if atom in own), None)
    size = size_of(place.layout.batch[first:]) if first is not None else 1
    return size if isinstance(size, int) and size > 1 else None


def _number_of(value: ir.Value | None, view: View, deep: int = _DEEP) -> float | None:
    """The number that a tensor of one element holds in each run; None if it is not seen."""
    if value is None or deep == 0:
        return None
    dims = view.shapes.dims(value)
    constant = scalar_of(value)
    if constant is not None:
        return None if dims is None or any(dim != 1 for dim in dims) else float(constant)
    data = view.shapes.data(value)
    if data is not None and len(data) == 1 and isinstance(data[0], int):
        return float(data[0])
    node = value.producer()
    if node is None or not is_op(node, node.op_type):
        return None
    sources = node.inputs[:1] if node.op_type in _LAYOUT else node.inputs
    numbers = [_number_of(x, view, deep - 1) for x in sources]
    known = [x for x in numbers if x is not None]
    return _applied(node.op_type, known) if known and len(known) == len(numbers) else None


def _applied(op_type: str, numbers: list[float]) -> float | None:
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
