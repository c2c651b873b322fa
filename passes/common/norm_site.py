"""LayerNorm and RMSNorm in pieces: which nodes they are, and what they are taken of."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from graphfix.core import Skip
from graphfix.facts.shapes import all_same
from graphfix.facts.view import View
from graphfix.graph.constants import axes_of
from graphfix.graph.nodes import attr_int, is_op, maker_of

from .fusible import lies_along
from .polynomial import number_of


@dataclass(frozen=True)
class Core:
    """A tensor divided by the root of the mean of its squares.

    Attributes:
        last: The node that divides, or multiplies with the inverse.
        data: What is normed; of a LayerNorm, before its mean was subtracted.
        centred: Whether its mean is subtracted: a LayerNorm.
        axes: The axes, counted from the end: the last ones, or one that others follow.
        epsilon: What is added to the mean of the squares.
        nodes: What computes it, ``last`` left out.
        gain: What it was multiplied with before it was divided.
    """

    last: ir.Node
    data: ir.Value
    centred: bool
    axes: tuple[int, ...]
    epsilon: float
    nodes: frozenset[ir.Node]
    gain: ir.Value | None = None

    @property
    def behind(self) -> int:
        """How many axes follow them, as frames follow channels."""
        return -1 - self.axes[-1]


def cores_of(node: ir.Node, view: View) -> list[Core] | Skip:
    """The norms, without scale and bias, that ``node`` may be the last node of, the largest first.

    A LayerNorm is an RMSNorm of what its mean was subtracted from as well.
    """
    for data, inverse in _factors(node):
        root = _under_root(inverse)
        if root is None:
            continue
        inside, nodes = root
        found = _means_of_squares(node, data, inside, view)
        if isinstance(found, Skip):
            return found
        if found:
            return [replace(x, nodes=x.nodes | {*nodes}) for x in found]
    return []


def _factors(node: ir.Node) -> list[tuple[ir.Value, tuple[ir.Value, bool]]]:
    """What ``node`` may divide by what: the second with whether it is the inverse already."""
    if not is_op(node, "Div", "Mul"):
        return []
    a, b = node.inputs
    if a is None or b is None:
        return []
    return [(a, (b, False))] if is_op(node, "Div") else [(a, (b, True)), (b, (a, True))]


def _under_root(given: tuple[ir.Value, bool]) -> tuple[ir.Value, list[ir.Node]] | None:
    """What the root is taken of: from ``Sqrt(v)``, ``1 / Sqrt(v)``, ``Pow(v, -0.5)``, ..."""
    value, inverse = given
    nodes: list[ir.Node] = []
    while (node := value.producer()) is not None:
        nodes.append(node)
        first = node.inputs[0] if node.inputs else None
        if is_op(node, "Sqrt") and first is not None:
            return None if inverse else (first, nodes)
        if is_op(node, "Reciprocal") and first is not None:
            value, inverse = first, not inverse
        elif is_op(node, "Div") and number_of(first, 0) == 1 and node.inputs[1] is not None:
            value, inverse = node.inputs[1], not inverse
        elif is_op(node, "Pow") and first is not None:
            wanted = -0.5 if inverse else 0.5
            return (first, nodes) if number_of(node.inputs[1], 0) == wanted else None
        else:
            return None
    return None


def _means_of_squares(
    node: ir.Node, data: ir.Value, inside: ir.Value, view: View
) -> list[Core] | Skip:
    """The norms by ``inside``, if it is the mean of the squares of ``data`` and an epsilon.

    An epsilon of 1e-8, as Helium has it, is none any more: torch.onnx takes it for 0.
    """
    add, rank = inside.producer(), view.shapes.rank(data)
    if add is None:
        return []
    sums: list[tuple[float | None, ir.Value | None]] = [(0.0, inside)]
    if is_op(add, "Add"):
        sums = [(number_of(add.inputs[i], rank), add.inputs[1 - i]) for i in (0, 1)]
    ways = [(e, *x) for e, mean in sums if e is not None and e >= 0 for x in _means(mean, rank)]
    for epsilon, value, axes, taken in ways:
        if (found_square := squared(value)) is None:
            continue
        base, square = found_square
        gain, inner, by = _gained(data, base, view)
        if inner is not base and not _equal_differences(base, inner, view):
            continue
        if isinstance(axes, str):
            return Skip(node, axes)
        nodes = taken | by | {add, square}
        plain = Core(node, inner, False, axes, epsilon, nodes, gain)
        found = [plain] if base is inner else []
        centre = _centre(inner, base, axes, rank) if epsilon else None
        if centre is not None:
            source, more = centre
            found.insert(0, replace(plain, data=source, centred=True, nodes=nodes | more))
        return found
    return []


def _gained(
    data: ir.Value, base: ir.Value, view: View
) -> tuple[ir.Value | None, ir.Value, frozenset[ir.Node]]:
    """What is multiplied with what is normed before it is divided, that, and the node that does."""
    node = data.producer()
    if data is not base and is_op(node, "Mul"):
        for gain, inner in (node.inputs, node.inputs[::-1]):
            if inner is not None and (inner is base or _equal_differences(base, inner, view)):
                return gain, inner, frozenset({node})
    return None, data, frozenset()


def _means(
    value: ir.Value | None, rank: int | None
) -> Iterator[tuple[ir.Value | None, tuple[int, ...] | str, frozenset[ir.Node]]]:
    """What it is the mean of, over which axes, by which nodes: also as a mean of means."""
    all_axes: tuple[int, ...] = ()
    nodes: frozenset[ir.Node] = frozenset()
    while (node := maker_of(value)) is not None and is_op(node, "ReduceMean"):
        axes = _axes(node, rank)
        nodes |= {node}
        value = node.inputs[0]
        if isinstance(axes, str):
            yield value, axes, nodes
            return
        all_axes = tuple(sorted({*all_axes, *axes}))
        at_end = len(all_axes) == 1 or all_axes == (*range(-len(all_axes), 0),)
        reason = f"its mean is over {[*all_axes]}: neither one axis nor the last ones"
        yield value, all_axes if at_end else reason, nodes


def _equal_differences(a: ir.Value, b: ir.Value, view: View) -> bool:
    """Whether both are the same difference: TorchScript computes it for each of its uses."""
    both = is_op(a.producer(), "Sub") and is_op(b.producer(), "Sub")
    return both and view.numbering.of(a) == view.numbering.of(b)


def _centre(
    data: ir.Value, base: ir.Value, axes: tuple[int, ...], rank: int | None
) -> tuple[ir.Value, frozenset[ir.Node]] | None:
    """What ``data`` is the difference of and its mean over the same axes, and the nodes of it."""
    nodes: set[ir.Node] = set()
    for value in (data, base):
        node = value.producer()
        if not is_op(node, "Sub") or node.inputs[0] is None or node.inputs[1] is None:
            return None
        source = node.inputs[0]
        means = (x[2] for x in _means(node.inputs[1], rank) if x[:2] == (source, axes))
        if (found := next(means, None)) is None:
            return None
        nodes |= {node, *found}
    return source, frozenset(nodes)


def squared(value: ir.Value | None) -> tuple[ir.Value, ir.Node] | None:
    """What ``value`` is the square of."""
    node = maker_of(value)
    if not is_op(node, "Pow", "Mul") or node.inputs[0] is None:
        return None
    if is_op(node, "Mul"):
        return (node.inputs[0], node) if node.inputs[0] is node.inputs[1] else None
    return (node.inputs[0], node) if number_of(node.inputs[1], 0) == 2 else None


def _axes(reduce: ir.Node, rank: int | None) -> tuple[int, ...] | str:
    """The axes that are averaged over, from the end."""
    if attr_int(reduce, "keepdims", 1) != 1 or any(x.is_ref() for x in reduce.attributes.values()):
        return "its mean loses the axis it is taken over (keepdims=0)"
    axes = axes_of(reduce)
    if not axes:
        return "the axes of its mean are not constant, or are all there are"
    if any(x >= 0 for x in axes):
        if rank is None:
            return "its rank is not known, and its axes are counted from the front"
        axes = tuple(x - rank if x >= 0 else x for x in axes)
    return axes


def fits_scale(value: ir.Value | None, data: ir.Value, axes: Sequence[int], view: View) -> bool:
    """Whether ``value`` has just the dims of ``data`` along ``axes``, and its type."""
    dims, size = view.shapes.dims(data), view.shapes.dims(value)
    if value is None or dims is None or view.shapes.dtype(value) != view.shapes.dtype(data):
        return False
    if axes[-1] < -1:  # as [C, 1] or [1, C, 1]
        return lies_along(value, dims[axes[0]], -1 - axes[-1], len(dims), view)
    if size is None and value.is_initializer() and value.shape is not None:
        size = tuple(value.shape)  # ones that this pass has made
    return size is not None and len(size) == len(axes) and all_same(size, dims[axes[0] :])
