"""Matrix products of two tensors, as MatMul or Einsum, and the roles of their axes."""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.facts.shapes import Dim, same_dim
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op
from graphfix.graph.text import node_label

from .axis_layout import Role, operand_layout
from .operand_path import TracedTensor

_ROLES: dict[tuple[bool, bool, bool], Role] = {
    (True, True, True): "batch",
    (True, False, True): "query",
    (False, True, True): "key",
    (True, True, False): "feature",
}
_EXCHANGED: dict[str, Role] = {"key": "feature", "feature": "key"}


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
    labels = einsum_labels(node, view)
    if labels is None:
        return None
    first, second = labels[query_operand], labels[1 - query_operand]
    lhs, rhs = node.inputs[query_operand], node.inputs[1 - query_operand]
    dims = [view.shapes.dims(x) for x in (lhs, rhs, node.outputs[0])]
    if lhs is None or rhs is None or dims[0] is None or dims[1] is None or dims[2] is None:
        return None
    roles: dict[str, Role] = {}
    for label in dict.fromkeys(first + second):
        role = _ROLES.get((label in first, label in second, label in labels[2]))
        if inner_role == "key":
            role = _EXCHANGED.get(role or "", role)
        if role is None or (role != "batch" and role in roles.values()):
            return None
        roles[label] = role
    if set(roles.values()) - {"batch"} != {"query", "key", "feature"}:
        return None
    sizes = dict(zip(labels[2], dims[2], strict=True))
    batch = [label for label in labels[2] if roles[label] == "batch"]
    operands: list[TracedTensor] = []
    for value, axis_labels, own_dims in ((lhs, first, dims[0]), (rhs, second, dims[1])):
        if not _has_batch_of_result(axis_labels, own_dims, sizes, batch):
            return None
        layout = operand_layout(
            own_dims, [roles[x] for x in axis_labels], batch_dims=[sizes[x] for x in batch]
        )
        operands.append(TracedTensor(value, layout))
    result = TracedTensor(node.outputs[0], operand_layout(dims[2], [roles[x] for x in labels[2]]))
    return Product(node, operands[0], operands[1], result)


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
    ranks = [view.shapes.rank(x) for x in node.inputs]
    if len(ranks) != 2 or None in ranks:
        return None
    if is_op(node, "MatMul"):
        batch = "".join(chr(ord("a") + i) for i in range((ranks[0] or 0) - 2))
        if ranks[0] != ranks[1] or (ranks[0] or 0) < 2 or len(batch) > 20:
            return None
        return f"{batch}xy", f"{batch}yz", f"{batch}xz"
    equation = node.attributes.get("equation")
    if not is_op(node, "Einsum") or equation is None or equation.is_ref():
        return None
    text = equation.as_string().replace(" ", "")
    if text.count("->") != 1 or text.count(",") != 1 or "." in text:
        return None
    operands, result = text.split("->")
    lhs, rhs = operands.split(",")
    labels = (lhs, rhs, result)
    plain = all(len(set(x)) == len(x) and x.isalpha() for x in labels)
    return labels if plain and [len(lhs), len(rhs)] == ranks else None


def _has_batch_of_result(
    labels: str, dims: Sequence[Dim], sizes: dict[str, Dim], batch: Sequence[str]
) -> bool:
    """Return whether the batch of an operand is that of the result, in its order, or 1."""
    own_labels = [label for label in labels if label in batch]
    if own_labels != list(batch):
        return False
    pairs = zip(labels, dims, strict=True)
    return all(x not in own_labels or dim == 1 or same_dim(dim, sizes[x]) for x, dim in pairs)
