"""The second half of fuse-norm: a sum and the norm of it become one operator."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import all_same
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_float, attr_int, is_op, maker_of

from ...common.fusible import FLOATS, MICROSOFT, only_user
from ...common.norm_site import fits_scale

# One part of a sum, what is added to it first, the other part, and the bias.
Parts = tuple[ir.Value | None, ir.Value | None, ir.Value | None, ir.Value | None]

_SKIP = {
    "LayerNormalization": "SkipLayerNormalization",
    "SimplifiedLayerNormalization": "SkipSimplifiedLayerNormalization",
}


@dataclass(frozen=True)
class ResidualSite(Match):
    """A norm of a sum.

    Attributes:
        total: The sum.
        data: One of its parts.
        more: What is added to that first, if it is in the sum as well.
        skip: The other part.
        bias: The bias that is in the sum as well, or None.
        kept: Whether the sum is used elsewhere too.
    """

    total: ir.Value
    data: ir.Value
    more: ir.Value | None
    skip: ir.Value
    bias: ir.Value | None
    kept: bool


@dataclass(frozen=True)
class NormResidual(NodePass[ResidualSite]):
    """A residual sum, the bias in it and the norm after it become a Skip norm of com.microsoft."""

    name = "fuse-norm"
    sentence = "a norm and the sum before it, each a kernel of its own"
    anchors = ("LayerNormalization", "SimplifiedLayerNormalization")

    def match(self, node: ir.Node, view: View) -> ResidualSite | Skip | None:
        """A norm over the last axis, of a sum of two tensors of one shape."""
        total = node.inputs[0]
        add = maker_of(total)
        if total is None or not is_op(add, "Add") or add.graph is not node.graph:
            return None
        found = next((x for x in _sums(add, node) if _fits(x, total, view)), None)
        if found is None:
            if any((view.shapes.rank(x) or 0) < 2 for x in add.inputs):
                return None  # a bias, or not known
            shown = " and ".join(_shown(x, view) for x in add.inputs)
            return Skip(node, f"it is of a sum of {shown}; both parts need the shape of the sum")
        kept = total.is_graph_output() or any(use.node is not node for use in total.uses())
        reason = _refused(node, total, kept, view)
        return Skip(node, reason) if reason else ResidualSite(node, total, *found, kept)

    def rewrite(self, match: ResidualSite, op: Builder) -> ir.Value:
        """The one operator; where the sum is used elsewhere, it is the fourth output."""
        node = match.node
        add = match.total.producer()
        if match.kept and add is not None:
            op.at(add)  # its other users may come before the norm
        data = match.data if match.more is None else op.Add(match.data, match.more)
        given: list[ir.Value | None] = [data, match.skip, *node.inputs[1:]]
        if match.bias is not None:
            given += [None] * (4 - len(given)) + [match.bias]
        made = op.make_all(
            f"{MICROSOFT}.{_SKIP[node.op_type]}",
            (True, False, False, True) if match.kept else (True,),
            *given,
            epsilon=attr_float(node, "epsilon", 1e-5),
        )
        if match.kept:
            op.replace(match.total, made[3])
        return made[0]


def _sums(add: ir.Node, norm: ir.Node) -> Iterator[Parts]:
    """The parts of a sum, in each way they may be: one, what is added to it first, the other, bias.

    The sum may be of three tensors and a bias, which is then added last instead of first.
    """
    a, b = add.inputs
    # DirectML reads the bias of a SkipSimplifiedLayerNormalization as if it were a SkipLayer...'s.
    for data, other in ((a, b), (b, a)) if norm.op_type == "LayerNormalization" else ():
        inner = _alone(data, add)
        if inner is None:
            continue
        x, y = inner.inputs
        yield from ((x, None, other, y), (y, None, other, x), (x, None, y, other))
        for one, two in ((x, y), (y, x)):
            biased = _alone(one, inner)
            if biased is not None:
                p, q = biased.inputs
                yield from ((p, two, other, q), (q, two, other, p))
    yield a, None, b, None


def _alone(value: ir.Value | None, user: ir.Node) -> ir.Node | None:
    """The sum that makes ``value``, if only ``user`` uses it."""
    node = maker_of(value)
    if not is_op(node, "Add") or node.graph is not user.graph:
        return None
    return node if only_user(node) is user else None


def _fits(
    parts: Parts, total: ir.Value, view: View
) -> TypeGuard[tuple[ir.Value, ir.Value | None, ir.Value, ir.Value | None]]:
    """Whether the parts have the shape of the sum, and the bias that of its last axis."""
    data, more, skip, bias = parts
    if bias is not None and not fits_scale(bias, total, (-1,), view):
        return False
    dims, given = view.shapes.dims(total), (data, skip, *([] if more is None else [more]))
    return all(all_same(view.shapes.dims(x), dims) for x in given)


def _refused(node: ir.Node, total: ir.Value, kept: bool, view: View) -> str | None:
    """Why a norm of a residual sum stays as it is."""
    rank, dtype = view.shapes.rank(total) or 0, view.shapes.dtype(total)
    if any(x.name and (x.uses() or x.is_graph_output()) for x in node.outputs[1:]):
        return "its mean or deviation is used as well"
    if any(x.is_ref() for x in node.attributes.values()):
        return "its attributes are parameters of the local function it is in"
    if dtype not in FLOATS:
        return f"it is in {dtype.name.lower() if dtype else 'a type that is not known'}"
    if attr_int(node, "stash_type", 1) != 1:
        return "it computes in another type than float (stash_type)"
    if attr_int(node, "axis", -1) not in (-1, rank - 1):
        return "it is not taken over the last axis alone"
    if rank not in (2, 3):
        return f"its tensor has {rank} dims, and the operator that has the sum takes 2 or 3"
    if not all(fits_scale(x, total, (-1,), view) for x in node.inputs[1:] if x is not None):
        return "its scale or bias has another shape than the last axis"
    if kept and any(x is not None and x.producer() is not None for x in node.inputs[1:]):
        return "its scale is computed, and the sum is used before that may be"
    return None


def _shown(value: ir.Value | None, view: View) -> str:
    dims = view.shapes.dims(value)
    return "?" if dims is None else f"[{', '.join(map(str, dims))}]"
