"""The figures that models are compared by: of each, what it is before and after the repair.

Stages measure them; the page has a column for each, and a recipe may set the most that one may be
after the repair, as a gate. Of all of them, less is better.
"""

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

import onnx_ir as ir

from graphfix.engine import registry
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import is_op

Json = dict[str, Any]
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
    """How many Wheres hide scores from a Softmax, those that additive-mask refuses among them.

    The places of that pass, except a Where that sets hidden weights to zero after the Softmax.
    """
    return sum(
        not any(value is not None and is_op(value.producer(), "Softmax") for value in x.node.inputs)
        for x in registry.get_pass("additive-mask").sites(model)
    )


def dynamic_reshapes(model: ir.Model) -> int:
    """How many Reshapes have a shape that is computed when the model runs."""
    shapes = (x.inputs[1:2] for x in model.graph.all_nodes() if is_op(x, "Reshape"))
    return sum(const_of(x) is None for given in shapes for x in given)
