"""The second half of fuse-norm: replaces a sum and its norm by one operator."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import same_dims
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int, is_op, producer_of
from graphfix.ops.axes import axis_of
from graphfix.ops.norms import epsilon_of

from ...common.fusible import FLOATS, MICROSOFT
from ...common.guards import first_reason
from ...common.norm_site import fits_scale
from ...common.pattern import own, shared

# One part of a sum, what is added to it first, the other part, and the bias.
Parts = tuple[ir.Value | None, ir.Value | None, ir.Value | None, ir.Value | None]

# The operator of com.microsoft that adds before it normalizes.
_SKIP = {
    "LayerNormalization": "SkipLayerNormalization",
    "SimplifiedLayerNormalization": "SkipSimplifiedLayerNormalization",
}

# A sum of two tensors or three and a bias, which is added to one of them or last.
_BIASED_SUM = (
    shared.Add(own.Add("data", "bias"), "skip")
    | shared.Add(own.Add("data", "skip"), "bias")
    | shared.Add(own.Add(own.Add("data", "bias"), "addend"), "skip")
)


@dataclass(frozen=True)
class ResidualSite(Match):
    """A norm of a residual sum.

    Attributes:
        total: The sum.
        data: One of its parts.
        addend: What is added to that part first, or None.
        skip: The other part.
        bias: The bias that is in the sum as well, or None.
        is_sum_used: Whether the sum has other readers.
    """

    total: ir.Value
    data: ir.Value
    addend: ir.Value | None
    skip: ir.Value
    bias: ir.Value | None
    is_sum_used: bool


@dataclass(frozen=True)
class NormResidual(NodePass[ResidualSite]):
    """Replaces a residual sum, its bias and the norm after it by a Skip norm."""

    name = "fuse-norm"
    sentence = "a norm and the sum before it, each a kernel of its own"
    anchors = ("LayerNormalization", "SimplifiedLayerNormalization")

    def match(self, node: ir.Node, view: View) -> ResidualSite | Skip | None:
        """Return a norm over the last axis of a sum of two tensors of one shape, or a Skip."""
        total = node.inputs[0]
        add = producer_of(total)
        if total is None or not is_op(add, "Add") or add.graph is not node.graph:
            return None
        all_parts = _sum_parts(add, node)
        parts = next((x for x in all_parts if _have_fitting_shapes(x, total, view)), None)
        if parts is None:
            if any((view.shapes.rank(x) or 0) < 2 for x in add.inputs):
                return None  # a bias, or not known
            shown = " and ".join(_shape_text(x, view) for x in add.inputs)
            return Skip(node, f"it is of a sum of {shown}; both parts need the shape of the sum")
        is_sum_used = total.is_graph_output() or any(use.node is not node for use in total.uses())
        site = ResidualSite(node, total, *parts, is_sum_used)
        reason = first_reason(_GUARDS, site, view)
        return Skip(node, reason) if reason else site

    def rewrite(self, match: ResidualSite, op: Builder) -> ir.Value:
        """Build the one operator, with the sum as fourth output where it is used elsewhere."""
        node = match.node
        add = match.total.producer()
        if match.is_sum_used and add is not None:
            op.insert_before(add)  # its other users may come before the norm
        data = match.data if match.addend is None else op.Add(match.data, match.addend)
        inputs: list[ir.Value | None] = [data, match.skip, *node.inputs[1:]]
        if match.bias is not None:
            inputs += [None] * (4 - len(inputs)) + [match.bias]
        outputs = op.make_outputs(
            f"{MICROSOFT}.{_SKIP[node.op_type]}",
            (True, False, False, True) if match.is_sum_used else (True,),
            *inputs,
            epsilon=epsilon_of(node),
        )
        if match.is_sum_used:
            op.replace_value(match.total, outputs[3])
        return outputs[0]


def _sum_parts(add: ir.Node, norm: ir.Node) -> Iterator[Parts]:
    """Yield one part of a sum, what is added to it first, the other part, and the bias."""
    # DirectML reads the bias of a SkipSimplifiedLayerNormalization as if it were a SkipLayer...'s.
    for parts in _BIASED_SUM.matches(add) if norm.op_type == "LayerNormalization" else ():
        yield parts["data"], parts.get("addend"), parts["skip"], parts["bias"]
    a, b = add.inputs
    yield a, None, b, None


def _have_fitting_shapes(
    parts: Parts, total: ir.Value, view: View
) -> TypeGuard[tuple[ir.Value, ir.Value | None, ir.Value, ir.Value | None]]:
    """Return whether the parts have the shape of the sum, and the bias that of its last axis."""
    data, addend, skip, bias = parts
    if bias is not None and not fits_scale(bias, total, (-1,), view):
        return False
    dims, tensors = view.shapes.dims(total), (data, skip, *([] if addend is None else [addend]))
    return all(same_dims(view.shapes.dims(x), dims) for x in tensors)


def _why_statistics(site: ResidualSite, _view: View) -> str | None:
    if any(x.name and (x.uses() or x.is_graph_output()) for x in site.node.outputs[1:]):
        return "its mean or deviation is used as well"
    return None


def _why_parameters(site: ResidualSite, _view: View) -> str | None:
    if any(x.is_ref() for x in site.node.attributes.values()):
        return "its attributes are parameters of the local function it is in"
    return None


def _why_negative_epsilon(site: ResidualSite, _view: View) -> str | None:
    epsilon = epsilon_of(site.node)
    return f"its epsilon is {epsilon:g}: a Skip norm takes none below 0" if epsilon < 0 else None


def _why_other_type(site: ResidualSite, view: View) -> str | None:
    dtype = view.shapes.dtype(site.total)
    if dtype not in FLOATS:
        return f"it is in {dtype.name.lower() if dtype else 'a type that is not known'}"
    if attr_int(site.node, "stash_type", 1) != 1:
        return "it computes in another type than float (stash_type)"
    return None


def _why_other_axes(site: ResidualSite, view: View) -> str | None:
    rank = view.shapes.rank(site.total) or 0
    if axis_of(site.node, rank, view.opset_of_node(site.node)) != rank - 1:
        return "it is not taken over the last axis alone"
    if rank not in (2, 3):
        return f"its tensor has {rank} dims, and the operator that has the sum takes 2 or 3"
    return None


def _why_other_scale(site: ResidualSite, view: View) -> str | None:
    factors = [x for x in site.node.inputs[1:] if x is not None]
    if not all(fits_scale(x, site.total, (-1,), view) for x in factors):
        return "its scale or bias has another shape than the last axis"
    if site.is_sum_used and any(x.producer() is not None for x in factors):
        return "its scale is computed, and the sum is used before that may be"
    return None


_GUARDS = (
    _why_statistics,
    _why_parameters,
    _why_negative_epsilon,
    _why_other_type,
    _why_other_axes,
    _why_other_scale,
)


def _shape_text(value: ir.Value | None, view: View) -> str:
    dims = view.shapes.dims(value)
    return "?" if dims is None else f"[{', '.join(map(str, dims))}]"
