"""A tensor that is split into a sequence, of which single parts are taken: a Split.

So torch's ``split`` is exported where nothing has optimized it; no shape goes through a sequence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphfix.model.values import attr_int, is_op

from ._fold_look import Found, constant_of

if TYPE_CHECKING:
    import numpy.typing as npt
    import onnx_ir as ir

    from graphfix.build import Builder

    from ._fold_look import Look


def taken(node: ir.Node, source: ir.Value, look: Look) -> Found | None:
    """SequenceAt of a SplitToSequence with the size of each part, or of all but the last."""
    split = source.producer()
    if not is_op(split, "SplitToSequence") or look.view.opset(node) < 13:
        return None
    data, axis, at = split.inputs[0], attr_int(split, "axis", 0), constant_of(node.inputs[1])
    parts = _parts(split, axis, look)
    if data is None or parts is None or at is None or at.size != 1:
        return None
    place = int(at.item())
    if not -parts.size <= place < parts.size:
        return None

    def first(op: Builder) -> ir.Value:
        return op.make_all("Split", [True] * parts.size, data, parts, axis=axis)[0]

    def build(op: Builder) -> list[ir.Value]:
        made = op.once((split, "parts"), lambda: first(op), data).producer()
        assert made is not None
        return [made.outputs[place % parts.size]]

    return Found("it is a part of a Split", build)


def _parts(split: ir.Node, axis: int, look: Look) -> npt.NDArray[np.int64] | None:
    """How long each part is."""
    sizes = constant_of(split.inputs[1]) if len(split.inputs) > 1 else None
    dims = look.dims(split.inputs[0])
    if sizes is None or sizes.size == 0:
        return None
    if sizes.ndim == 1:
        return sizes.astype(np.int64)
    whole, size = dims[axis] if dims is not None else None, int(sizes.item())
    if not isinstance(whole, int) or size < 1:
        return None
    rest = [whole % size] if whole % size else []
    return np.array([size] * (whole // size) + rest, np.int64)
