"""The figures that models are compared by, each before and after the repair.

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
    "crashes": "crashes on the device",
    "worst": "worst difference",
    "padding": "difference by padding",
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
    """One figure of one model; None where it is unknown, with the reason in ``why``.

    A noisy figure has the ``interval`` that it lies in, after the repair.
    """

    before: float | None
    after: float | None
    why: str
    interval: NotRequired[tuple[float, float]]


def merge_figures(stages: Mapping[str, Mapping[str, Any]]) -> dict[str, Figure]:
    """Return the figures of all stages; what a later one knows overrules an earlier one."""
    merged = {name: make_figure(None, None, "it was not measured") for name in FIGURES}
    for result in stages.values():
        for name, new in result.get("figures", {}).items():
            if not is_known(merged[name]) or is_known(new):
                merged[name] = new
    return merged


def is_known(values: Figure) -> bool:
    """Return whether a figure is known before the repair or after it."""
    return values["before"] is not None or values["after"] is not None


def make_figure(before: float | None, after: float | None, why: str = "") -> Figure:
    """Return a figure; ``why`` is kept only where one of the two numbers is None."""
    return {"before": before, "after": after, "why": why if None in (before, after) else ""}


def count_mask_wheres(model: ir.Model) -> int:
    """Count the Wheres that hide scores from a Softmax, refused ones included.

    The places of that pass, except a Where that sets hidden weights to zero after the Softmax.
    """
    return sum(
        not any(value is not None and is_op(value.producer(), "Softmax") for value in x.node.inputs)
        for x in registry.get_pass("additive-mask").sites(model)
    )


def count_dynamic_reshapes(model: ir.Model) -> int:
    """Count the Reshapes whose shape is computed when the model runs."""
    shapes = (x.inputs[1:2] for x in model.graph.all_nodes() if is_op(x, "Reshape"))
    return sum(const_of(x) is None for shape_inputs in shapes for x in shape_inputs)
