"""The first half of fuse-norm: replaces norms in pieces by one operator."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import Array
from graphfix.graph.nodes import is_op, producer_of

from ...common.fusible import FLOATS, only_user, why_used_elsewhere
from ...common.norm_site import NormCore, fits_scale, norm_cores_of


@dataclass(frozen=True)
class NormSite(Match):
    """The last node of a norm in pieces.

    Attributes:
        core: The norm without scale and bias.
        scale: What it is multiplied by, ones if nothing; None for a norm of all axes but the
            batch.
        bias: What is added, or None.
    """

    core: NormCore
    scale: ir.Value | Array | None
    bias: ir.Value | None


@dataclass(frozen=True)
class NormPieces(NodePass[NormSite]):
    """Replaces LayerNorm and RMSNorm in pieces by (Simplified)LayerNormalization."""

    name = "fuse-norm"
    anchors = ("Div", "Mul", "Add")

    def match(self, node: ir.Node, view: View) -> NormSite | Skip | None:
        """Return the norm that ends at ``node``, a Skip, or None."""
        for maker in _possible_last_nodes(node):
            cores = norm_cores_of(maker, view)
            if isinstance(cores, Skip):
                if maker is node:
                    return cores
                continue
            sites = [_site_of_core(core, view) for core in cores]
            site = next((x for x in sites if isinstance(x, NormSite)), None)
            if site is None and sites and maker is node:
                return sites[0]
            if site is not None and site.node is node:
                return site
        return None

    def message(self, site: Match) -> str:
        """Return which norm it is, as a sentence."""
        kind = "LayerNorm" if isinstance(site, NormSite) and site.core.centred else "RMSNorm"
        return f"a {kind} in pieces, each a kernel of its own"

    def rewrite(self, match: NormSite, op: Builder) -> ir.Value:
        """Build the one operator."""
        normed = self._build_norm(match, op)
        return normed if match.core.gain is None else op.Mul(normed, match.core.gain)

    def _build_norm(self, match: NormSite, op: Builder) -> ir.Value:
        """Build the norm of the rows, which are transposed first if their axis is not the last."""
        core, data = match.core, match.core.data
        if match.scale is None:  # all but the batch, of an image of one channel
            unit = np.ones(1, (op.view.shapes.dtype(data) or ir.DataType.FLOAT).numpy())
            channel = np.array([1], np.int64)
            image = op.Unsqueeze(data, channel)
            result = op.InstanceNormalization(image, unit, 0 * unit, epsilon=core.epsilon)
            return op.Squeeze(result, channel)
        kind = "LayerNormalization" if core.centred else "SimplifiedLayerNormalization"
        factors = [x for x in (match.scale, match.bias) if x is not None]
        if not core.trailing_axes:
            return op.make(kind, data, *factors, axis=core.axes[0], epsilon=core.epsilon)
        axes, flat = list(range(op.view.shapes.rank(data) or 0)), np.array([-1], np.int64)
        order = axes.copy()
        order.append(order.pop(core.axes[0]))
        factors = [op.Reshape(x, flat) if isinstance(x, ir.Value) else x for x in factors]
        rows = op.Transpose(data, perm=order)
        result = op.make(kind, rows, *factors, axis=-1, epsilon=core.epsilon)
        return op.Transpose(result, perm=[order.index(x) for x in axes])


def _possible_last_nodes(node: ir.Node) -> Iterator[ir.Node]:
    """Yield ``node`` and two levels of producers: bias and scale may follow the norm."""
    level = [node]
    for _ in range(3):
        yield from level
        makers = [producer_of(value) for x in level for value in x.inputs]
        level = [x for x in makers if is_op(x, "Div", "Mul")]


def _site_of_core(core: NormCore, view: View) -> NormSite | Skip:
    """Return the norm with the scale and bias after it, or a Skip if it cannot be fused."""
    node, dtype = core.last, view.shapes.dtype(core.data)
    if dtype not in FLOATS:
        type_text = "is not known here" if dtype is None else f"is {dtype.name.lower()}"
        return Skip(
            node, f"the type of {core.data.name!r} {type_text}; it is fused in float, float16"
        )
    if where := why_used_elsewhere(core.nodes, node):
        return Skip(node, where)
    scale, last = None, node
    if core.gain is None:
        scale, last = _scale_or_bias_after(node, "Mul", core, view)
    elif fits_scale(core.gain, core.data, core.axes, view):
        scale, core = core.gain, replace(core, gain=None)
    # Behind a gain that is no scale a bias is none of the norm's.
    has_bias = core.centred and core.gain is None
    bias, last = _scale_or_bias_after(last, "Add", core, view) if has_bias else (None, last)
    site = NormSite(last, core, scale, bias)
    return site if scale is not None else _add_scale_of_ones(site, dtype, view)


def _add_scale_of_ones(site: NormSite, dtype: ir.DataType, view: View) -> NormSite | Skip:
    """Return a norm without scale as one that the operator can have, or a Skip.

    A norm of all axes but the batch needs no scale of their sizes, as an InstanceNormalization.
    """
    core, dims = site.core, view.shapes.dims(site.core.data)
    sizes = [x for x in map(dims.__getitem__, core.axes) if isinstance(x, int)] if dims else []
    are_known = len(sizes) == len(core.axes)
    takes_all_axes = dims is not None and 1 < len(core.axes) == len(dims) - 1
    is_instance_norm = core.centred and takes_all_axes and site.bias is None
    if is_instance_norm and (core.gain is not None or not are_known):
        return site
    if not are_known:
        return Skip(
            core.last,
            "it has no scale of its own dims, and how many ones to give is not known",
        )
    return replace(site, scale=np.ones(sizes, dtype.numpy()))


def _scale_or_bias_after(
    node: ir.Node, op_type: str, core: NormCore, view: View
) -> tuple[ir.Value | None, ir.Node]:
    """Return the operand that the only user combines ``node`` with, and that user."""
    output, user = node.outputs[0], only_user(node)
    if not is_op(user, op_type):
        return None, node
    operand = next((x for x in user.inputs if x is not output), None)
    return (operand, user) if fits_scale(operand, core.data, core.axes, view) else (None, node)
