"""The figures that models are compared by: of each, what it is before and after the repair.

Stages measure them; the page has a column for each, and a recipe may set the most that one may be
after the repair, as a gate. Of all of them, less is better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import numpy as np
import onnx_ir as ir

from graphfix.model.values import const_of, is_op

if TYPE_CHECKING:
    from collections.abc import Mapping

FIGURES = {
    "crashes": "crashes on DirectML",
    "worst": "worst difference",
    "padding": "padding changes it by",
    "mask-wheres": "mask Wheres",
    "dynamic-reshapes": "dynamic Reshapes",
    "fused-graphs": "fused graphs",
    "copies": "copies",
    "cpu-nodes": "nodes on the CPU",
    "ratio": "latency ratio",
    "findings": "findings",
    "nodes": "nodes",
}
"""The name of each figure, and the head of its column."""

PLACED = ("fused-graphs", "copies", "cpu-nodes")
"""Those that say what runs where."""

CANNOT_TELL = "cannot tell"
"""How ``why`` begins where a figure was measured, and too noisily to say anything."""

# What scores pass on their way to a Softmax.
_THROUGH = frozenset(
    {"Add", "Sub", "Mul", "Div", "Cast", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Expand"}
    | {"Identity", "Min", "Max", "Clip", "Slice", "Concat", "Flatten", "Where"}
)
_LOW = -1e3


class Figure(TypedDict):
    """One figure of one model; None where it is not known, and then ``why`` says why not.

    One that is measured with some noise has the ``interval`` that it lies in, after the repair.
    """

    before: float | None
    after: float | None
    why: str
    interval: NotRequired[tuple[float, float]]


def gather(stages: Mapping[str, Mapping[str, Any]]) -> dict[str, Figure]:
    """The figures that stages have measured; what a later one knows overrules an earlier one."""
    found = {name: figure(None, None, "it was not measured") for name in FIGURES}
    for result in stages.values():
        for name, new in result.get("figures", {}).items():
            if not is_known(found[name]) or is_known(new):
                found[name] = new
    return found


def is_known(one: Figure) -> bool:
    """Whether it is known before the repair or after it."""
    return one["before"] is not None or one["after"] is not None


def figure(before: float | None, after: float | None, why: str = "") -> Figure:
    """A figure; ``why`` says why one of the two is None, and is dropped where neither is."""
    return {"before": before, "after": after, "why": why if None in (before, after) else ""}


def mask_wheres(model: ir.Model) -> int:
    """How many Wheres with a very low fill, such as -inf or -10000, reach a Softmax."""
    return sum(
        any(_is_low(value) for value in node.inputs[1:]) and _reaches_softmax(node)
        for node in model.graph.all_nodes()
        if is_op(node, "Where")
    )


def dynamic_reshapes(model: ir.Model) -> int:
    """How many Reshapes have a shape that is computed when the model runs."""
    return sum(
        len(node.inputs) > 1 and const_of(node.inputs[1]) is None
        for node in model.graph.all_nodes()
        if is_op(node, "Reshape")
    )


def _is_low(value: ir.Value | None) -> bool:
    array = const_of(value)
    node = value.producer() if value is not None else None
    if array is None and is_op(node, "Expand", "Unsqueeze", "ConstantOfShape"):
        if not is_op(node, "ConstantOfShape"):
            return _is_low(node.inputs[0])
        fill = node.attributes.get("value")
        array = fill.as_tensor().numpy() if fill is not None else None
    if array is None or not array.size or array.dtype.kind not in "fV":
        return False
    return bool((array.astype(np.float64) <= _LOW).all())


def _reaches_softmax(node: ir.Node) -> bool:
    pending, seen = [node], {node}
    while pending:
        for value in pending.pop().outputs:
            for user in value.consumers():
                if is_op(user, "Softmax"):
                    return True
                if user.op_type in _THROUGH and user not in seen:
                    seen.add(user)
                    pending.append(user)
    return False
