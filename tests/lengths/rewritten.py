"""One node of a model in ONNX text, rewritten with nodes for valid lengths, and run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.walks import opset_of
from graphfix.lengths.length_nodes import LengthNodes
from graphfix.lengths.length_source import find_length_source
from graphfix.lengths.repairs.repair import Repair
from graphfix.lengths.rule_site import RuleSite
from graphfix.lengths.tail_state import FINITE, Tail, TensorState, state_with_tail

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


@dataclass(frozen=True)
class Site:
    """The last node of a model whose time is an axis of ``x``, before it is rewritten.

    Attributes:
        model: The model.
        op: Builds nodes before that node.
        lengths: Builds valid lengths, those of the input ``ilens``.
    """

    model: ir.Model
    op: Builder
    lengths: LengthNodes

    @property
    def node(self) -> ir.Node:
        """Return the node."""
        return self.model.graph[-1]

    def state(self, index: int = 0, tail: Tail = FINITE) -> TensorState:
        """Return what is known of an input whose tails are all of one kind."""
        site = RuleSite(self.node, [], self.lengths.source, opset_of(self.model))
        dims = site.dims_of(self.node.inputs[index]) or ()
        return state_with_tail([site.axis_of_size(x) for x in dims], tail)

    def value(self, name: str) -> ir.Value:
        """Return the value of that name."""
        return next(x for x in self.values() if x.name == name)

    def values(self) -> list[ir.Value]:
        """Return the inputs, the constants, and what nodes make."""
        graph = self.model.graph
        made = [x for node in graph for x in node.outputs]
        return [*graph.inputs, *graph.initializers.values(), *made]


def site_before(
    node: str = "y = Identity (x)",
    *,
    inputs: str = "float[B, T, 4] x, int64[B] ilens",
    constants: str = "",
    opset: int = 17,
    axis: str = "x.1",
    source: str = "",
    floor: float | None = None,
) -> Site:
    """Return the site of the last node of a model.

    Args:
        node: The node, perhaps behind others; it makes ``y``.
        inputs: Of the model, one of them ``ilens``.
        constants: Of the model.
        opset: Of the model.
        axis: Where time is.
        source: The input that holds lengths or a mask, if the model has had it before.
        floor: What is added to hidden scores.
    """
    values = f"<{constants}>" if constants else ""
    head = f'<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>'
    model = ir.from_onnx_text(f"{head} g ({inputs}) => (y) {values} {{ {node} }}")
    lengths_input = next(x for x in model.graph.inputs if x.name == "ilens")
    builder = Builder("test", View(model))
    found = find_length_source(model, axis, source)
    return Site(model, builder, LengthNodes(builder, found, lengths_input, opset, floor))


def rewrite(site: Site, build: Callable[[], ir.Value | None]) -> ir.Model:
    """Put what is built in the place of the node, and return the model."""
    site.op.repair(site.node, build)
    return site.model


def repair(site: Site, change: Repair) -> ir.Model:
    """Make a repair of the node, and return the model."""
    return rewrite(site, lambda: change.rewrite(site.op, site.lengths))


def repaired_input(site: Site, change: Repair, index: int, **feeds: object) -> Array:
    """Make a repair, and return what the node reads then in one of its inputs."""
    repair(site, change)
    value = site.node.inputs[index]
    assert value is not None
    site.model.graph.outputs[:] = [value]
    site.model.graph.remove(site.node)
    return run(site.model, **feeds)


def run(model: ir.Model, **feeds: object) -> Array:
    """Return ``y`` of the model; feeds that no node reads are left out."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), options)
    result: Array = session.run(None, {x.name: feeds[x.name] for x in session.get_inputs()})[0]
    return result


def operators(model: ir.Model) -> list[str]:
    """Return the operators of the main graph, in their order."""
    return [node.op_type for node in model.graph]
