"""resize-4d: the manual is the docstring of the class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder, Operand
from graphfix.facts.shapes import Dim, same_dim
from graphfix.facts.symbolic.expressions import multiply_dims
from graphfix.facts.view import View
from graphfix.graph.nodes import input_at
from graphfix.ops.resizes import Resize, read_resize, scales_input
from graphfix.providers.directml.operator_facts import MOST_DIMS
from graphfix.providers.directml.placement import PlacementRules
from graphfix.providers.directml.support_queries import refusal_reason

from ..common.reshape_targets import ReshapeTarget, build_reshape, reshape_target_of

_MOST_RESIZED = 3


@dataclass(frozen=True)
class WideResize(Match):
    """A Resize of more dims than DirectML takes.

    Attributes:
        data: What is resized.
        resize: How it is resized.
        kept: How many dims at the front keep their size; they become one.
    """

    data: ir.Value
    resize: Resize
    kept: int


@dataclass(frozen=True)
class Resize4d(NodePass[WideResize]):
    """Merges the batch and the channels of a Resize of five dims.

    Why:
        A video or a volume is [B, C, D, H, W]. Run on onnxruntime-directml 1.24.4, nearest and
        linear: a Resize of five dims that are not 1 ends in 80070057 (DML_RESAMPLE_OPERATOR_DESC),
        although two of them keep their size; with a batch of 1 it runs.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        larger (float[B, 4, 8, 6, 6] x) => (float[B, 4, 16, 12, 12] y)
        <float[5] scales = {1, 1, 2, 2, 2}>
        {
            y = Resize <mode = "linear"> (x, , scales)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        larger (float[B, 4, 8, 6, 6] x) => (float[B, 4, 16, 12, 12] y)
        <
            int64[5] merged = {1, -1, 8, 6, 6}, float[5] scales = {1, 1, 2, 2, 2},
            int64[5] back = {-1, 4, 16, 12, 12}
        >
        {
            rows = Reshape (x, merged)
            large = Resize <mode = "linear"> (rows, , scales)
            y = Reshape (large, back)
        }

    Left alone:
        Five dims of which four are resized, "4 of its dims are resized":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        larger (float[2, 3, 4, 4, 4] x) => (float[2, 6, 8, 8, 8] y)
        <float[5] scales = {1, 2, 2, 2, 2}>
        {
            y = Resize <mode = "nearest"> (x, , scales)
        }

    Safety:
        Exact: no dim that is merged is resized. Where a size that is not a number may be 0, the
        Reshapes have all sizes computed and allowzero=1. Refused, with the reason: more than three
        dims that are resized, and tf_crop_and_resize.
    """

    name = "resize-4d"
    sentence = "a Resize of five dims that are not 1: DirectML refuses it with 80070057"
    anchors = ("Resize",)

    def match(self, node: ir.Node, view: View) -> WideResize | Skip | None:
        """Return the site if DirectML refuses the Resize for its dims."""
        data = input_at(node, 0)
        dims, new_dims = view.shapes.dims(data), view.shapes.dims(node.outputs[0])
        if data is None or dims is None:
            return None
        resize = read_resize(node, len(dims), view.opset_of_node(node))
        kernel = PlacementRules(view.model.graph.opset_imports, view.shapes).kernel_of(node)
        if kernel is None or refusal_reason(node, kernel, view.shapes) or resize is None:
            return None
        changes = [not _keeps_size(resize, i, dims, new_dims) for i in range(len(dims))]
        counted = sum(change or size != 1 for change, size in zip(changes, dims, strict=True))
        if counted <= MOST_DIMS["Resize"]:
            return None
        kept = next((i for i, change in enumerate(changes) if change), len(dims))
        if len(dims) - kept > _MOST_RESIZED:
            return Skip(node, f"{len(dims) - kept} of its dims are resized, or lie between others")
        if resize.coordinates == "tf_crop_and_resize" or resize.aspect != "stretch":
            return Skip(node, "it crops or keeps an aspect ratio, which DirectML does otherwise")
        return WideResize(node, data, resize, kept)

    def rewrite(self, match: WideResize, op: Builder) -> ir.Value:
        """Build the same Resize between two Reshapes."""
        shapes, kept = op.view.shapes, match.kept
        dims = shapes.dims(match.data) or ()
        one, lead = np.array([1], np.int64), list(dims[:kept])
        merged_dims = [1, reduce(multiply_dims, lead), *dims[kept:]]
        lead_axes, rest_axes = range(kept), range(kept, len(dims))

        def build_lead() -> ir.Value:
            return op.Gather(op.Shape(match.data), np.array(lead_axes, np.int64))

        rows = _reshape(
            match.data, dims, merged_dims, op,
            lambda: op.Concat(
                one, op.ReduceProd(build_lead()), _sizes_of(match.data, rest_axes, op), axis=0
            ),
        )  # fmt: skip
        large = _clone_resize(match, rows, op)
        new_dims = shapes.dims(match.node.outputs[0]) or ()
        large_dims = [*merged_dims[:2], *new_dims[kept:]] if new_dims else []
        behind = range(2, 2 + len(rest_axes))
        return _reshape(
            large, large_dims, [*lead, *new_dims[kept:]], op,
            lambda: op.Concat(build_lead(), _sizes_of(large, behind, op), axis=0),
        )  # fmt: skip


def _keeps_size(
    resize: Resize, axis: int, dims: Sequence[Dim], new_dims: Sequence[Dim] | None
) -> bool:
    """Return whether an axis is not resized: neither longer nor read at other places."""
    scale = resize.scale_along(axis)
    if scale is not None:
        return scale == 1.0
    is_given = axis in resize.axes
    return not is_given or (new_dims is not None and same_dim(dims[axis], new_dims[axis]))


def _sizes_of(value: ir.Value, axes: range, op: Builder) -> ir.Value:
    """Build the sizes of these axes, int64."""
    return op.Gather(op.Shape(value), np.array(axes, np.int64))


def _reshape(
    value: ir.Value,
    dims: Sequence[Dim],
    new_dims: Sequence[Dim],
    op: Builder,
    build_sizes: Callable[[], ir.Value],
) -> ir.Value:
    """Build a value of other dims, by a constant if one says them, else by computed sizes."""
    target = reshape_target_of(dims, new_dims, op.view.shapes) if dims else ""
    if isinstance(target, ReshapeTarget) and not (target.before or target.after):
        return target.build(value, op)
    return build_reshape(value, build_sizes(), op)


def _clone_resize(match: WideResize, rows: ir.Value, op: Builder) -> ir.Value:
    """Build the Resize of ``[1, kept dims, others]``."""
    node, resize, opset = match.node, match.resize, op.view.opset_of_node(op.site)
    rank = len(op.view.shapes.dims(match.data) or ())
    others = range(match.kept, rank)
    inputs: list[Operand] = [rows, *node.inputs[1:]]
    if resize.scales is not None:
        factors = [1.0, 1.0, *(resize.scale_along(axis) or 1.0 for axis in others)]
        inputs[scales_input(node, opset) or 0] = np.array(factors, np.float32)
    else:
        places = np.array([resize.axes.index(axis) for axis in others], np.int64)
        sizes = op.Gather(inputs[3], places)
        lead = op.Gather(op.Shape(rows), np.array([0, 1], np.int64))
        inputs[3] = op.Concat(lead, sizes, axis=0)
    attributes = {name: x.value for name, x in node.attributes.items() if name != "axes"}
    return op.Resize(*inputs, **attributes)
