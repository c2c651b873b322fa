"""Where the axes of an attention lie in a tensor, through any chain of Reshapes and Transposes.

An axis of a tensor is a group of atoms: the last axis of ``[B, T, H * D]`` holds the heads and,
within each, the features. Reshape regroups the atoms, in order, and may split one; Transpose
permutes the axes. So a head split is recognised by what it does, however it was written.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from graphfix.facts.shapes import Dim, same
from graphfix.facts.symbolic.expressions import product, quotient
from graphfix.facts.view import View
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import attr_ints, input_at, is_op

from ...common.fusible import FLOATS

Role = Literal["batch", "query", "key", "feature"]

REGROUPS = ("Reshape", "Unsqueeze", "Squeeze", "Flatten")
_KEEPS = ("Identity", "Dropout")


@dataclass(frozen=True, eq=False)
class Atom:
    """A part of an axis that no Reshape on the way has split yet.

    Attributes:
        role: What the attention uses it for; heads are part of the batch until they are told apart.
        size: How long it is; never the number 1.
    """

    role: Role
    size: Dim


@dataclass(frozen=True)
class Layout:
    """What the axes of one tensor are.

    Attributes:
        axes: The atoms in each axis; none in an axis of size 1.
        order: The atoms as they lie in the operand of the product, from where the way began.
        repeated: Those of the batch that the tensor itself does not have: grouped heads.
    """

    axes: tuple[tuple[Atom, ...], ...]
    order: tuple[Atom, ...]
    repeated: frozenset[Atom] = frozenset()

    @property
    def batch(self) -> tuple[Atom, ...]:
        """The atoms of the batch, the heads among them."""
        return tuple(atom for atom in self.order if atom.role == "batch")

    def of(self, *roles: Role) -> tuple[Atom, ...]:
        """The atoms that the tensor has of these roles, as they lie in the operand."""
        return tuple(x for x in self.order if x.role in roles and x not in self.repeated)

    @property
    def in_order(self) -> bool:
        """Whether the atoms of each role follow each other as they do in the operand."""
        return all(
            [atom for atom in self.flat if atom.role == role] == list(self.of(role))
            for role in ("batch", "query", "key", "feature")
        )

    @property
    def flat(self) -> tuple[Atom, ...]:
        """The atoms in the order in which the elements lie in memory."""
        return tuple(atom for axis in self.axes for atom in axis)


def layout_of(dims: Sequence[Dim], roles: Sequence[Role], *, heads: Sequence[Dim] = ()) -> Layout:
    """The layout of an operand of a matrix product.

    Args:
        dims: Its dims.
        roles: What the product uses each axis for.
        heads: The dims of the product's result at the axes of the batch, in order: where the
            operand has 1 and the result a number, it is repeated.
    """
    axes: list[tuple[Atom, ...]] = []
    order: list[Atom] = []
    repeated: set[Atom] = set()
    results = iter(heads)
    for dim, role in zip(dims, roles, strict=True):
        wanted = next(results, dim) if role == "batch" else dim
        axis = () if wanted == 1 else (Atom(role, wanted),)
        order += axis
        if dim == 1 and axis:
            repeated.update(axis)
            axis = ()
        axes.append(axis)
    return Layout(tuple(axes), tuple(order), frozenset(repeated))


def before(node: ir.Node, layout: Layout, view: View) -> Layout | None:
    """The layout of the first input of ``node``, given that of its output; None if it mixes."""
    source = node.inputs[0] if node.inputs else None
    if keeps(node, view):
        return layout
    dims = view.shapes.dims(source)
    if dims is None:
        return None
    if is_op(node, "Transpose"):
        axes: list[tuple[Atom, ...]] = [()] * len(dims)
        for axis, place in zip(layout.axes, _perm(node, len(dims)), strict=True):
            axes[place] = axis
        return Layout(tuple(axes), layout.order, layout.repeated)
    if is_op(node, *REGROUPS):
        return regrouped(layout, dims)
    return _before_expand(layout, dims) if is_op(node, "Expand") else None


def after(node: ir.Node, layout: Layout, view: View) -> Layout | None:
    """The layout of the output of ``node``, given that of its first input; None if it mixes."""
    if keeps(node, view):
        return layout
    dims = view.shapes.dims(node.outputs[0])
    if dims is None:
        return None
    if is_op(node, "Transpose"):
        axes = tuple(layout.axes[place] for place in _perm(node, len(dims)))
        return Layout(axes, layout.order, layout.repeated)
    return regrouped(layout, dims) if is_op(node, *REGROUPS) else None


def keeps(node: ir.Node, view: View) -> bool:
    """Whether what leaves ``node`` is what entered, but perhaps for its float type."""
    if is_op(node, "Cast"):
        kinds = (view.shapes.dtype(node.inputs[0]), view.shapes.dtype(node.outputs[0]))
        return all(kind in FLOATS for kind in kinds)
    if is_op(node, "Dropout"):
        training = input_at(node, 2)
        return training is None or scalar_of(training) is False
    return is_op(node, *_KEEPS)


def regrouped(layout: Layout, dims: Sequence[Dim]) -> Layout | None:
    """The same elements in the same order, as a tensor of ``dims``; None if that is not seen."""
    pending = list(layout.flat)
    parts: dict[Atom, tuple[Atom, Atom]] = {}
    axes: list[tuple[Atom, ...]] = []
    for dim in dims:
        axis: list[Atom] = []
        left: Dim = dim
        while left != 1:
            if not pending:
                return None
            atom = pending.pop(0)
            rest = quotient(left, atom.size)
            if rest is None:
                rest = quotient(atom.size, left)
                if rest is None:
                    return None
                parts[atom] = Atom(atom.role, left), Atom(atom.role, rest)
                atom, second = parts[atom]
                pending.insert(0, second)
                rest = 1
            axis.append(atom)
            left = rest
        axes.append(tuple(axis))
    if pending:
        return None
    order = tuple(part for atom in layout.order for part in _parts(atom, parts))
    return Layout(tuple(axes), order, layout.repeated)


def size_of(atoms: Iterable[Atom]) -> Dim:
    """How many elements these atoms have together."""
    return product(atom.size for atom in atoms)


def _parts(atom: Atom, parts: dict[Atom, tuple[Atom, Atom]]) -> tuple[Atom, ...]:
    if atom not in parts:
        return (atom,)
    first, second = parts[atom]
    return (*_parts(first, parts), *_parts(second, parts))


def _before_expand(layout: Layout, dims: Sequence[Dim]) -> Layout | None:
    if len(dims) > len(layout.axes):
        return None
    padded = [1] * (len(layout.axes) - len(dims)) + list(dims)
    axes: list[tuple[Atom, ...]] = []
    repeated = set(layout.repeated)
    for axis, dim in zip(layout.axes, padded, strict=True):
        if axis and not (isinstance(dim, int) and dim == 1):
            if not same(size_of(axis), dim):
                return None
            axes.append(axis)
            continue
        if any(atom.role != "batch" or not isinstance(atom.size, int) for atom in axis):
            return None
        repeated.update(axis)
        axes.append(())
    return Layout(tuple(axes[len(padded) - len(dims) :]), layout.order, frozenset(repeated))


def _perm(node: ir.Node, rank: int) -> Sequence[int]:
    perm = attr_ints(node, "perm")
    return range(rank)[::-1] if perm is None else perm
