"""Matrix products of two tensors, as MatMul or Einsum, and the roles of their axes."""

from dataclasses import dataclass

import onnx_ir as ir

from graphfix.facts.shapes import Dim, same_dim
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op
from graphfix.graph.text import node_label
from graphfix.ops.einsums import equation_of

from .axis_layout import Role, operand_layout
from .operand_path import TracedTensor

_ROLES: dict[tuple[bool, bool, bool], Role] = {
    (True, True, True): "batch",
    (True, False, True): "query",
    (False, True, True): "key",
    (True, True, False): "feature",
}
_EXCHANGED: dict[str, Role] = {"key": "feature", "feature": "key"}

# Labels a to t are for the batch of a MatMul, x, y and z for the other axes.
_MAX_BATCH_AXES = 20


@dataclass(frozen=True)
class Product:
    """A batched matrix product of two tensors.

    Attributes:
        node: The MatMul or Einsum.
        left: The operand whose own axis is the query axis.
        right: The other operand.
        result: The result.
    """

    node: ir.Node
    left: TracedTensor
    right: TracedTensor
    result: TracedTensor


def product_of(
    node: ir.Node, view: View, *, query_operand: int = 0, inner_role: Role = "feature"
) -> Product | None:
    """Return a node as a product of two batches of matrices, or None.

    Args:
        node: A MatMul or an Einsum.
        view: The model around it.
        query_operand: The index of the operand with the query axis.
        inner_role: The role of the axis summed over: "feature" for queries and keys, "key" for
            weights and values.
    """
    labels, result_dims = einsum_labels(node, view), view.shapes.dims(node.outputs[0])
    if labels is None or result_dims is None:
        return None
    *operand_labels, result_labels = labels
    places = (query_operand, 1 - query_operand)
    first, second = (operand_labels[i] for i in places)
    roles = _roles_by_label(first, second, result_labels, inner_role)
    if roles is None:
        return None
    sizes = zip(result_labels, result_dims, strict=True)
    batch = {label: size for label, size in sizes if roles[label] == "batch"}
    operands = [_operand_of(node.inputs[i], operand_labels[i], roles, batch, view) for i in places]
    query, other = operands
    if query is None or other is None:
        return None
    layout = operand_layout(result_dims, [roles[label] for label in result_labels])
    return Product(node, query, other, TracedTensor(node.outputs[0], layout))


def _roles_by_label(
    first: str, second: str, result: str, inner_role: Role
) -> dict[str, Role] | None:
    """Return the role of each axis of a product by its label, or None if it is another product.

    Args:
        first: The labels of the operand with the query axis.
        second: Those of the other operand.
        result: Those of the result.
        inner_role: The role of the axis summed over.
    """
    roles: dict[str, Role] = {}
    for label in dict.fromkeys(first + second):
        role = _ROLES.get((label in first, label in second, label in result))
        if inner_role == "key":
            role = _EXCHANGED.get(role or "", role)
        if role is None or (role != "batch" and role in roles.values()):
            return None
        roles[label] = role
    return roles if {*roles.values()} - {"batch"} == {"query", "key", "feature"} else None


def _operand_of(
    value: ir.Value | None, labels: str, roles: dict[str, Role], batch: dict[str, Dim], view: View
) -> TracedTensor | None:
    """Return an operand with its layout, or None if its batch is not that of the result or 1."""
    dims = view.shapes.dims(value)
    if value is None or dims is None:
        return None
    own_labels = [label for label in labels if label in batch]
    if own_labels != list(batch):
        return None
    for label, dim in zip(labels, dims, strict=True):
        if label in batch and dim != 1 and not same_dim(dim, batch[label]):
            return None
    layout = operand_layout(dims, [roles[x] for x in labels], batch_dims=[*batch.values()])
    return TracedTensor(value, layout)


def why_not_product(node: ir.Node, view: View) -> str:
    """Return why a node is no product of two batches of matrices."""
    dims = [view.shapes.dims(x) for x in node.inputs]
    shown = ["of unknown shape" if x is None else f"[{', '.join(map(str, x))}]" for x in dims]
    operands = " and ".join(shown)
    return (
        f"the operands of {node_label(node)!r} are {operands}: not seen to be batches of "
        "the same size"
    )


def einsum_labels(node: ir.Node, view: View) -> tuple[str, str, str] | None:
    """Return the axes of both operands of a product and of its result as Einsum labels."""
    ranks = [rank for x in node.inputs if (rank := view.shapes.rank(x)) is not None]
    if len(ranks) != 2 or len(node.inputs) != 2:
        return None
    if is_op(node, "MatMul"):
        return _matmul_labels(*ranks)
    equation = equation_of(node) if is_op(node, "Einsum") else None
    if equation is None or [len(term) for term in equation.terms] != ranks:
        return None
    if equation.has_ellipsis or not equation.has_distinct_labels:
        return None
    lhs, rhs = equation.terms
    return lhs, rhs, equation.result


def _matmul_labels(lhs_rank: int, rhs_rank: int) -> tuple[str, str, str] | None:
    """Return the labels of a MatMul of two batches of matrices of one rank, or None."""
    batch = "".join(chr(ord("a") + i) for i in range(lhs_rank - 2))
    if lhs_rank != rhs_rank or lhs_rank < 2 or len(batch) > _MAX_BATCH_AXES:
        return None
    return f"{batch}xy", f"{batch}yz", f"{batch}xz"
