"""The first half of fuse-norm: norms in pieces become one operator."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import Array
from graphfix.graph.nodes import is_op, maker_of

from ...common.fusible import FLOATS, only_user, used_elsewhere
from ...common.norm_site import Core, cores_of, fits_scale


@dataclass(frozen=True)
class NormSite(Match):
    """The last node of a norm in pieces.

    Attributes:
        core: The norm without scale and bias.
        scale: What it is multiplied with; ones if there is nothing; None for all but the batch.
        bias: What is added, or None.
    """

    core: Core
    scale: ir.Value | Array | None
    bias: ir.Value | None


@dataclass(frozen=True)
class NormPieces(NodePass[NormSite]):
    """LayerNorm and RMSNorm in pieces become LayerNormalization, SimplifiedLayerNormalization."""

    name = "fuse-norm"
    anchors = ("Div", "Mul", "Add")

    def match(self, node: ir.Node, view: View) -> NormSite | Skip | None:
        """The last node of a norm."""
        for maker in _makers(node):
            found = cores_of(maker, view)
            if isinstance(found, Skip):
                if maker is node:
                    return found
                continue
            sites = [_site(core, view) for core in found]
            site = next((x for x in sites if isinstance(x, NormSite)), None)
            if site is None and sites and maker is node:
                return sites[0]
            if site is not None and site.node is node:
                return site
        return None

    def message(self, site: Match) -> str:
        """What it is."""
        kind = "LayerNorm" if isinstance(site, NormSite) and site.core.centred else "RMSNorm"
        return f"a {kind} in pieces, each a kernel of its own"

    def rewrite(self, match: NormSite, op: Builder) -> ir.Value:
        """The one operator."""
        made = self._normed(match, op)
        return made if match.core.gain is None else op.Mul(made, match.core.gain)

    def _normed(self, match: NormSite, op: Builder) -> ir.Value:
        core, data = match.core, match.core.data
        if match.scale is None:  # all but the batch, of an image of one channel
            one = np.ones(1, (op.view.shapes.dtype(data) or ir.DataType.FLOAT).numpy())
            channel = np.array([1], np.int64)
            image = op.Unsqueeze(data, channel)
            made = op.InstanceNormalization(image, one, 0 * one, epsilon=core.epsilon)
            return op.Squeeze(made, channel)
        kind = "LayerNormalization" if core.centred else "SimplifiedLayerNormalization"
        factors = [x for x in (match.scale, match.bias) if x is not None]
        if not core.behind:
            return op.make(kind, data, *factors, axis=core.axes[0], epsilon=core.epsilon)
        axes, flat = list(range(op.view.shapes.rank(data) or 0)), np.array([-1], np.int64)
        order = axes.copy()
        order.append(order.pop(core.axes[0]))
        factors = [op.Reshape(x, flat) if isinstance(x, ir.Value) else x for x in factors]
        rows = op.Transpose(data, perm=order)
        made = op.make(kind, rows, *factors, axis=-1, epsilon=core.epsilon)
        return op.Transpose(made, perm=[order.index(x) for x in axes])


def _makers(node: ir.Node) -> Iterator[ir.Node]:
    """``node``, what makes its inputs, and what makes theirs: a bias and a scale may come after."""
    level = [node]
    for _ in range(3):
        yield from level
        makers = [maker_of(value) for x in level for value in x.inputs]
        level = [x for x in makers if is_op(x, "Div", "Mul")]


def _site(core: Core, view: View) -> NormSite | Skip:
    """The norm with the scale and bias that come after it, or why it cannot be one operator."""
    node, dtype = core.last, view.shapes.dtype(core.data)
    if dtype not in FLOATS:
        known = "is not known here" if dtype is None else f"is {dtype.name.lower()}"
        return Skip(node, f"the type of {core.data.name!r} {known}; it is fused in float, float16")
    if where := used_elsewhere(core.nodes, node):
        return Skip(node, where)
    scale, last = None, node
    if core.gain is None:
        scale, last = _operand_after(node, "Mul", core, view)
    elif fits_scale(core.gain, core.data, core.axes, view):
        scale, core = core.gain, replace(core, gain=None)
    # Behind a gain that is no scale a bias is none of the norm's.
    inside = core.centred and core.gain is None
    bias, last = _operand_after(last, "Add", core, view) if inside else (None, last)
    if scale is not None:
        return NormSite(last, core, scale, bias)
    dims = view.shapes.dims(core.data)
    size = [x for x in map(dims.__getitem__, core.axes) if isinstance(x, int)] if dims else []
    open_sizes = len(size) < len(core.axes)
    whole = core.centred and dims and 1 < len(core.axes) == len(dims) - 1 and bias is None
    if whole and (open_sizes or core.gain is not None):
        return NormSite(last, core, None, None)
    if open_sizes:
        return Skip(node, "it has no scale of its own dims, and how many ones to give is not known")
    return NormSite(last, core, np.ones(size, dtype.numpy()), bias)


def _operand_after(
    node: ir.Node, op_type: str, core: Core, view: View
) -> tuple[ir.Value | None, ir.Node]:
    """The scale or bias that the only user of ``node`` combines it with, and that user."""
    made, user = node.outputs[0], only_user(node)
    if not is_op(user, op_type):
        return None, node
    other = next((x for x in user.inputs if x is not made), None)
    return (other, user) if fits_scale(other, core.data, core.axes, view) else (None, node)
