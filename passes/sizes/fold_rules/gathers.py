"""Gathers that take every element in its own place, as lookups of masks do at a fixed size."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from graphfix.graph.nodes import attr_int, is_op
from graphfix.ops.axes import axis_of

from ...common.fold_view import FoldView, Replacement, constant_of, forward_value
from .views import view_by_constant, view_by_unit_axes

Places = np.ndarray[Any, np.dtype[np.int64]]
Sizes = Sequence[int | None]

# So many indices are compared with the places at most.
_MOST = 1 << 20


def simplify_full_gather(node: ir.Node, source: ir.Value, look: FoldView) -> Replacement | None:
    """Turn a gather by constants that takes all elements in order into a view of them."""
    dims, new_dims = (look.view.shapes.dims(x) for x in (source, node.outputs[0]))
    array = constant_of(node.inputs[1], _MOST)
    if array is None or dims is None or new_dims is None or not array.size:
        return None
    index: Places = array.astype(np.int64)
    sizes = [x if isinstance(x, int) else None for x in dims]
    places = _places_nd(node, index, sizes) if is_op(node, "GatherND") else None
    if is_op(node, "Gather"):
        places = _places(node, index, sizes, look)
    if places is None or not np.array_equal(places, np.arange(places.size)):
        return None
    if dims == new_dims:
        return forward_value(source, node)
    view = view_by_unit_axes(dims, new_dims) or view_by_constant(dims, new_dims, None, look)
    if view is None:
        return None
    build = partial(view, source)
    return Replacement("it takes every element in its place", lambda op: [build(op)])


def _places(node: ir.Node, index: Places, sizes: Sizes, look: FoldView) -> Places | None:
    """Return the places along the axis of a Gather, in order; None if they are not all of it."""
    axis = axis_of(node, len(sizes), look.view.opset_of_node(node))
    size = sizes[axis] if axis is not None and sizes else None
    if size is None or index.size != size:
        return None
    return np.where(index < 0, index + size, index).reshape(-1)


def _places_nd(node: ir.Node, index: Places, sizes: Sizes) -> Places | None:
    """Return the places of a GatherND in a flat table, in order; None if they are not all of it."""
    if attr_int(node, "batch_dims", 0) or index.ndim == 0 or index.shape[-1] != len(sizes):
        return None
    known = np.array([x for x in sizes if x is not None], np.int64)
    if len(known) != len(sizes) or index.size != known.prod() * len(sizes):
        return None
    strides = np.append(np.cumprod(known[:0:-1])[::-1], 1)
    places: Places = (np.where(index < 0, index + known, index) * strides).sum(axis=-1)
    return places.reshape(-1)
