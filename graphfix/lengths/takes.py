"""Frames picked out of a tensor by an index that each row of the batch has for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphfix.lengths.domain import Rows

if TYPE_CHECKING:
    import onnx_ir as ir

    from graphfix.build import Builder
    from graphfix.lengths.domain import State
    from graphfix.lengths.lower import Lengths


def take_rows(
    op: Builder, lengths: Lengths, x: ir.Value, index: ir.Value, state: State, axis: int
) -> ir.Value:
    """``x`` with the frames that ``index`` names on one axis.

    Args:
        op: The builder.
        lengths: The lengths of the model.
        x: Any tensor.
        index: int64 [B, N], or [1, N] where there is no batch; none of it negative.
        state: What is known of ``x``; at most one axis carries the batch, and nothing else.
        axis: The axis to pick from.

    Returns:
        A tensor like ``x``, of size N on that axis.
    """
    rows = next((i for i, a in enumerate(state.axes or ()) if a and isinstance(a[0], Rows)), None)
    if rows is None:
        return op.Gather(x, op.Reshape(index, np.array([-1], np.int64)), axis=axis)
    if (rows, axis) == (0, 1):
        return op.GatherND(x, lengths.unsqueeze(index, [2]), batch_dims=1)
    # GatherElements wants an index in the shape of the result.
    if rows > axis:
        index = op.Transpose(index, perm=[1, 0])
    others = [i for i in range(state.rank) if i not in (rows, axis)]
    index = lengths.unsqueeze(index, others)
    sizes = op.Shape(x)
    here = np.array([i == axis for i in range(state.rank)])
    target = op.Where(here, np.ones(state.rank, np.int64), sizes)
    return op.GatherElements(x, op.Expand(index, target), axis=axis)
