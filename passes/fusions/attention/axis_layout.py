"""Roles of the axes of attention tensors, tracked through Reshapes and Transposes.

An axis of a tensor is a group of atoms: the last axis of ``[B, T, H * D]`` holds the heads and,
within each, the features. Reshape regroups the atoms, in order, and may split one; Transpose
permutes the axes. So a head split is recognised by what it does, however it was written.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from graphfix import ops
from graphfix.facts.axis_factors import deal_factors
from graphfix.facts.shapes import Dim, same_dim
from graphfix.facts.symbolic.expressions import divide_dims, product_of_dims
from graphfix.facts.view import View
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import input_at, is_op
from graphfix.ops.axes import permutation_of

from ...common.fusible import FLOATS

Role = Literal["batch", "query", "key", "feature"]


@dataclass(frozen=True, eq=False)
class Atom:
    """A factor of an axis that no Reshape on the way has split further.

    Attributes:
        role: What the attention uses it for; heads count as batch until they are recognised.
        size: Its length; never the number 1.
    """

    role: Role
    size: Dim


@dataclass(frozen=True)
class Layout:
    """The roles of the axes of a tensor, as groups of atoms.

    Attributes:
        axes: The atoms of each axis; none for an axis of size 1.
        order: The atoms in the order of the product operand where the walk began.
        repeated: Batch atoms that the tensor itself lacks and is repeated along: grouped heads.
    """

    axes: tuple[tuple[Atom, ...], ...]
    order: tuple[Atom, ...]
    repeated: frozenset[Atom] = frozenset()

    @property
    def batch_atoms(self) -> tuple[Atom, ...]:
        """Return the atoms of the batch, including the heads."""
        return tuple(atom for atom in self.order if atom.role == "batch")

    def atoms_with_roles(self, *roles: Role) -> tuple[Atom, ...]:
        """Return the atoms that the tensor has of these roles, in operand order."""
        return tuple(x for x in self.order if x.role in roles and x not in self.repeated)

    @property
    def keeps_operand_order(self) -> bool:
        """Return whether the atoms of each role follow each other as in the operand."""
        return all(
            [atom for atom in self.flat_atoms if atom.role == role]
            == list(self.atoms_with_roles(role))
            for role in ("batch", "query", "key", "feature")
        )

    @property
    def flat_atoms(self) -> tuple[Atom, ...]:
        """Return the atoms in the order in which the elements lie in memory."""
        return tuple(atom for axis in self.axes for atom in axis)


def operand_layout(
    dims: Sequence[Dim], roles: Sequence[Role], *, batch_dims: Sequence[Dim] = ()
) -> Layout:
    """Return the layout of an operand of a matrix product.

    Args:
        dims: The dims of the operand.
        roles: The role of each axis in the product.
        batch_dims: The dims of the product's result along the batch axes, in order: where the
            operand has 1 and the result another size, it is repeated.
    """
    axes: list[tuple[Atom, ...]] = []
    order: list[Atom] = []
    repeated: set[Atom] = set()
    results = iter(batch_dims)
    for dim, role in zip(dims, roles, strict=True):
        size = next(results, dim) if role == "batch" else dim
        axis = () if size == 1 else (Atom(role, size),)
        order += axis
        if dim == 1 and axis:
            repeated.update(axis)
            axis = ()
        axes.append(axis)
    return Layout(tuple(axes), tuple(order), frozenset(repeated))


def layout_before(node: ir.Node, layout: Layout, view: View) -> Layout | None:
    """Return the layout of a node's first input, given that of its output, or None."""
    source = node.inputs[0] if node.inputs else None
    if passes_through(node, view):
        return layout
    dims = view.shapes.dims(source)
    if dims is None:
        return None
    if is_op(node, "Transpose"):
        axes: list[tuple[Atom, ...]] = [()] * len(dims)
        perm = permutation_of(node, len(dims))
        if len(perm) != len(layout.axes):
            return None
        for axis, source_axis in zip(layout.axes, perm, strict=True):
            axes[source_axis] = axis
        return Layout(tuple(axes), layout.order, layout.repeated)
    if node in ops.RESHAPES:
        return regroup_atoms(layout, dims)
    return _layout_before_expand(layout, dims) if is_op(node, "Expand") else None


def layout_after(node: ir.Node, layout: Layout, view: View) -> Layout | None:
    """Return the layout of a node's output, given that of its first input, or None."""
    if passes_through(node, view):
        return layout
    dims = view.shapes.dims(node.outputs[0])
    if dims is None:
        return None
    if is_op(node, "Transpose"):
        perm = permutation_of(node, len(dims))
        if len(perm) != len(layout.axes):
            return None
        moved_axes = tuple(layout.axes[source_axis] for source_axis in perm)
        return Layout(moved_axes, layout.order, layout.repeated)
    return regroup_atoms(layout, dims) if node in ops.RESHAPES else None


def passes_through(node: ir.Node, view: View) -> bool:
    """Return whether a node outputs its input unchanged, except for the float type."""
    if node in ops.CASTS:
        dtypes = (view.shapes.dtype(node.inputs[0]), view.shapes.dtype(node.outputs[0]))
        return all(dtype in FLOATS for dtype in dtypes)
    if is_op(node, "Dropout"):
        training = input_at(node, 2)
        return training is None or scalar_of(training) is False
    return node in ops.IDLE


def regroup_atoms(layout: Layout, dims: Sequence[Dim]) -> Layout | None:
    """Return the layout after a reshape to ``dims``, or None if the atoms do not fit."""
    atoms = layout.flat_atoms
    dealt = deal_factors(
        [atom.size for atom in atoms],
        dims,
        divide_dims,
        lambda part, size, _: divide_dims(part.size, size),
    )
    if dealt is None:
        return None
    pieces: dict[Atom, list[Atom]] = {}
    axes: list[tuple[Atom, ...]] = []
    for axis in dealt:
        own_pieces: list[Atom] = []
        for factor, size in axis:
            atom = atoms[factor]
            piece = atom if size == atom.size else Atom(atom.role, size)
            own_pieces.append(piece)
            pieces.setdefault(atom, []).append(piece)
        axes.append(tuple(own_pieces))
    order = tuple(piece for atom in layout.order for piece in pieces.get(atom, [atom]))
    return Layout(tuple(axes), order, layout.repeated)


def size_of(atoms: Iterable[Atom]) -> Dim:
    """Return how many elements these atoms span together."""
    return product_of_dims(atom.size for atom in atoms)


def _layout_before_expand(layout: Layout, dims: Sequence[Dim]) -> Layout | None:
    """Return the layout of the input of an Expand, of these dims, or None.

    Only atoms of the batch of a constant size are repeated: grouped heads.
    """
    if len(dims) > len(layout.axes):
        return None
    padded = [1] * (len(layout.axes) - len(dims)) + list(dims)
    axes: list[tuple[Atom, ...]] = []
    repeated = set(layout.repeated)
    for axis, dim in zip(layout.axes, padded, strict=True):
        if axis and dim != 1:
            if not same_dim(size_of(axis), dim):
                return None
            axes.append(axis)
            continue
        if any(atom.role != "batch" or not isinstance(atom.size, int) for atom in axis):
            return None
        repeated.update(axis)
        axes.append(())
    return Layout(tuple(axes[len(padded) - len(dims) :]), layout.order, frozenset(repeated))
