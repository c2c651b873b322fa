"""LayerNorm and RMSNorm in pieces: their nodes, and the tensor that they normalise."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from graphfix.core import Skip
from graphfix.facts.shapes import same_dims
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op, producer_of
from graphfix.ops.axes import keeps_dims
from graphfix.ops.operands import read_ints

from .fusible import lies_along
from .polynomial import number_of


@dataclass(frozen=True)
class NormCore:
    """A tensor divided by the root of the mean of its squares.

    Attributes:
        last: The node that divides, or multiplies by the inverse.
        data: The tensor that is normalised; for a LayerNorm, before its mean is subtracted.
        centred: Whether its mean is subtracted: a LayerNorm.
        axes: The axes, counted from the end: the last ones, or one that others follow.
        epsilon: What is added to the mean of the squares.
        nodes: The nodes that compute it, without ``last``.
        gain: What it is multiplied by before it is divided, or None.
    """

    last: ir.Node
    data: ir.Value
    centred: bool
    axes: tuple[int, ...]
    epsilon: float
    nodes: frozenset[ir.Node]
    gain: ir.Value | None = None

    @property
    def trailing_axes(self) -> int:
        """Return how many axes follow them, as frames follow channels."""
        return -1 - self.axes[-1]


def norm_cores_of(node: ir.Node, view: View) -> list[NormCore] | Skip:
    """Return the norms, without scale and bias, that may end at ``node``, or a Skip.

    The largest comes first: a LayerNorm is also an RMSNorm of what its mean was subtracted from.
    """
    for data, inverse in _division_operands(node):
        root = _radicand_of(inverse)
        if root is None:
            continue
        inside, nodes = root
        cores = _cores_by_mean(node, data, inside, view)
        if isinstance(cores, Skip):
            return cores
        if cores:
            return [replace(x, nodes=x.nodes | {*nodes}) for x in cores]
    return []


def _division_operands(node: ir.Node) -> list[tuple[ir.Value, tuple[ir.Value, bool]]]:
    """Return what ``node`` may divide, with the divisor and whether that is an inverse."""
    if not is_op(node, "Div", "Mul"):
        return []
    a, b = node.inputs
    if a is None or b is None:
        return []
    return [(a, (b, False))] if is_op(node, "Div") else [(a, (b, True)), (b, (a, True))]


def _radicand_of(divisor: tuple[ir.Value, bool]) -> tuple[ir.Value, list[ir.Node]] | None:
    """Return the radicand of ``Sqrt(v)``, ``1 / Sqrt(v)``, ``Pow(v, -0.5)``, ..., or None."""
    value, inverse = divisor
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
            exponent = -0.5 if inverse else 0.5
            return (first, nodes) if number_of(node.inputs[1], 0) == exponent else None
        else:
            return None
    return None


def _cores_by_mean(
    node: ir.Node, data: ir.Value, inside: ir.Value, view: View
) -> list[NormCore] | Skip:
    """Return the norms if ``inside`` is an epsilon and the mean of squares of ``data``, or a Skip.

    An epsilon of 1e-8, as in Helium, is missing in exports: torch.onnx takes it for 0.
    """
    add, rank = inside.producer(), view.shapes.rank(data)
    if add is None:
        return []
    for epsilon, value, axes, mean_nodes in _means_plus_epsilon(inside, add, rank):
        if (operand_and_square := square_of(value)) is None:
            continue
        base, square = operand_and_square
        gain, inner, gain_nodes = _split_gain(data, base, view)
        if inner is not base and not _are_equal_differences(base, inner, view):
            continue
        if isinstance(axes, str):
            return Skip(node, axes)
        nodes = mean_nodes | gain_nodes | {add, square}
        plain = NormCore(node, inner, False, axes, epsilon, nodes, gain)
        cores = [plain] if base is inner else []
        centre = _centred_source(inner, base, axes, rank) if epsilon else None
        if centre is not None:
            source, centre_nodes = centre
            cores.insert(0, replace(plain, data=source, centred=True, nodes=nodes | centre_nodes))
        return cores
    return []


def _means_plus_epsilon(
    value: ir.Value, add: ir.Node, rank: int | None
) -> Iterator[tuple[float, ir.Value | None, tuple[int, ...] | str, frozenset[ir.Node]]]:
    """Yield an epsilon, and the operand, axes and nodes of a mean, that ``value`` may add up.

    Args:
        value: The radicand.
        add: The node that makes it.
        rank: The rank of the tensor that is normalised.
    """
    sums: list[tuple[float | None, ir.Value | None]] = [(0.0, value)]
    if is_op(add, "Add"):
        sums = [(number_of(add.inputs[i], rank), add.inputs[1 - i]) for i in (0, 1)]
    for epsilon, mean in sums:
        if epsilon is not None and epsilon >= 0:
            yield from ((epsilon, *x) for x in _mean_candidates(mean, rank))


def _split_gain(
    data: ir.Value, base: ir.Value, view: View
) -> tuple[ir.Value | None, ir.Value, frozenset[ir.Node]]:
    """Return the gain that is multiplied in before the division, the rest, and the node."""
    node = data.producer()
    if data is not base and is_op(node, "Mul"):
        for gain, inner in (node.inputs, node.inputs[::-1]):
            if inner is not None and (inner is base or _are_equal_differences(base, inner, view)):
                return gain, inner, frozenset({node})
    return None, data, frozenset()


def _mean_candidates(
    value: ir.Value | None, rank: int | None
) -> Iterator[tuple[ir.Value | None, tuple[int, ...] | str, frozenset[ir.Node]]]:
    """Yield the operand of a mean, its axes or a reason, and its nodes; also means of means."""
    all_axes: tuple[int, ...] = ()
    nodes: frozenset[ir.Node] = frozenset()
    while (node := producer_of(value)) is not None and is_op(node, "ReduceMean"):
        axes = _mean_axes(node, rank)
        nodes |= {node}
        value = node.inputs[0]
        if isinstance(axes, str):
            yield value, axes, nodes
            return
        all_axes = tuple(sorted({*all_axes, *axes}))
        at_end = len(all_axes) == 1 or all_axes == (*range(-len(all_axes), 0),)
        reason = f"its mean is over {[*all_axes]}: neither one axis nor the last ones"
        yield value, all_axes if at_end else reason, nodes


def _are_equal_differences(a: ir.Value, b: ir.Value, view: View) -> bool:
    """Return whether both are the same difference: TorchScript computes it for each use."""
    are_subs = is_op(a.producer(), "Sub") and is_op(b.producer(), "Sub")
    return are_subs and view.numbering.number_of(a) == view.numbering.number_of(b)


def _centred_source(
    data: ir.Value, base: ir.Value, axes: tuple[int, ...], rank: int | None
) -> tuple[ir.Value, frozenset[ir.Node]] | None:
    """Return the tensor whose mean over ``axes`` was subtracted, and the nodes, or None."""
    nodes: set[ir.Node] = set()
    for value in (data, base):
        node = value.producer()
        if not is_op(node, "Sub") or node.inputs[0] is None or node.inputs[1] is None:
            return None
        source = node.inputs[0]
        means = (x[2] for x in _mean_candidates(node.inputs[1], rank) if x[:2] == (source, axes))
        if (mean_nodes := next(means, None)) is None:
            return None
        nodes |= {node, *mean_nodes}
    return source, frozenset(nodes)


def square_of(value: ir.Value | None) -> tuple[ir.Value, ir.Node] | None:
    """Return the tensor that ``value`` is the square of, and the node, or None."""
    node = producer_of(value)
    if not is_op(node, "Pow", "Mul") or node.inputs[0] is None:
        return None
    if is_op(node, "Mul"):
        return (node.inputs[0], node) if node.inputs[0] is node.inputs[1] else None
    return (node.inputs[0], node) if number_of(node.inputs[1], 0) == 2 else None


def _mean_axes(reduce: ir.Node, rank: int | None) -> tuple[int, ...] | str:
    """Return the axes of a mean, counted from the end, or why they are not usable."""
    if not keeps_dims(reduce) or any(x.is_ref() for x in reduce.attributes.values()):
        return "its mean loses the axis it is taken over (keepdims=0)"
    axes = read_ints(reduce, 1, "axes")
    if not axes:
        return "the axes of its mean are not constant, or are all there are"
    if any(x >= 0 for x in axes):
        if rank is None:
            return "its rank is not known, and its axes are counted from the front"
        axes = tuple(x - rank if x >= 0 else x for x in axes)
    return axes


def fits_scale(value: ir.Value | None, data: ir.Value, axes: Sequence[int], view: View) -> bool:
    """Return whether ``value`` has just the dims of ``data`` along ``axes``, and its type."""
    dims, size = view.shapes.dims(data), view.shapes.dims(value)
    if value is None or dims is None or view.shapes.dtype(value) != view.shapes.dtype(data):
        return False
    if axes[-1] < -1:  # of one axis before others, as [C, 1] or [1, C, 1]
        (axis,) = axes
        return lies_along(value, dims[axis], -1 - axis, len(dims), view)
    if size is None and value.is_initializer() and value.shape is not None:
        size = tuple(value.shape)  # ones that the pass itself has written
    return size is not None and len(size) == len(axes) and same_dims(size, dims[axes[0] :])
