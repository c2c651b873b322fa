"""A matrix product of two tensors, as MatMul or Einsum, and what its axes are."""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.facts.shapes import Dim, same
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op
from graphfix.graph.text import path_of

from .axis_layout import Role, layout_of
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
    """A sum over one axis of the products of two tensors, for each element of the batch.

    Attributes:
        node: The MatMul or Einsum.
        left: The operand whose own axis is called the query.
        right: The other.
        result: What comes out.
    """

    node: ir.Node
    left: TracedTensor
    right: TracedTensor
    result: TracedTensor


def product_of(
    node: ir.Node, view: View, *, queries: int = 0, inner: Role = "feature"
) -> Product | None:
    """``node`` as a product of two tensors; None if it is none, or one of another kind.

    Args:
        node: A MatMul or an Einsum.
        view: The model around it.
        queries: Which operand has the axis that is called the query.
        inner: What the axis is that is summed over: the features of queries and keys, or the keys
            of weights and values.
    """
    labels = labels_of(node, view)
    if labels is None:
        return None
    first, second = labels[queries], labels[1 - queries]
    left, right = node.inputs[queries], node.inputs[1 - queries]
    dims = [view.shapes.dims(x) for x in (left, right, node.outputs[0])]
    if left is None or right is None or dims[0] is None or dims[1] is None or dims[2] is None:
        return None
    roles: dict[str, Role] = {}
    for label in dict.fromkeys(first + second):
        role = _ROLES.get((label in first, label in second, label in labels[2]))
        if inner == "key":
            role = _EXCHANGED.get(role or "", role)
        if role is None or (role != "batch" and role in roles.values()):
            return None
        roles[label] = role
    if set(roles.values()) - {"batch"} != {"query", "key", "feature"}:
        return None
    sizes = dict(zip(labels[2], dims[2], strict=True))
    batch = [label for label in labels[2] if roles[label] == "batch"]
    places: list[TracedTensor] = []
    for value, text, own in ((left, first, dims[0]), (right, second, dims[1])):
        if not _broadcasts(text, own, sizes, batch):
            return None
        layout = layout_of(own, [roles[x] for x in text], heads=[sizes[x] for x in batch])
        places.append(TracedTensor(value, layout))
    result = TracedTensor(node.outputs[0], layout_of(dims[2], [roles[x] for x in labels[2]]))
    return Product(node, places[0], places[1], result)


def not_a_product(node: ir.Node, view: View) -> str:
    """Why ``node`` is no product of two batches of matrices."""
    dims = [view.shapes.dims(x) for x in node.inputs]
    shown = ["of unknown shape" if x is None else f"[{', '.join(map(str, x))}]" for x in dims]
    both = " and ".join(shown)
    return f"the operands of {path_of(node)!r} are {both}: not seen to be batches of the same size"


def labels_of(node: ir.Node, view: View) -> tuple[str, str, str] | None:
    """The axes of both operands of a product and of its result, as Einsum writes them."""
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
    left, right = operands.split(",")
    found = (left, right, result)
    plain = all(len(set(x)) == len(x) and x.isalpha() for x in found)
    return found if plain and [len(left), len(right)] == ranks else None


def _broadcasts(
    labels: str, dims: Sequence[Dim], sizes: dict[str, Dim], batch: Sequence[str]
) -> bool:
    """Whether the batch of an operand is that of the result, in its order, or 1."""
    own = [label for label in labels if label in batch]
    if own != list(batch):
        return False
    pairs = zip(labels, dims, strict=True)
    return all(x not in own or dim == 1 or same(dim, sizes[x]) for x, dim in pairs)
