"""Writes the repairs of an analysis into the graph."""

import functools
from collections.abc import Iterator

import onnx_ir as ir

from graphfix.editing.builder import Builder, Texts
from graphfix.errors import UsageError
from graphfix.facts.view import View
from graphfix.graph.dim_spelling import DimSpelling
from graphfix.graph.text import node_label
from graphfix.graph.walks import opset_of, values_of
from graphfix.lengths.analysis import Analysis
from graphfix.lengths.length_input import LengthInput
from graphfix.lengths.length_nodes import OLDEST, LengthNodes
from graphfix.spec.quoting import quote_name

INPUT = "ilens"


AppliedRepair = tuple[str, str, Texts, str]
"""Path of the repaired node, its output, nodes removed and added, and leak and remedy in words."""


def apply_repairs(
    model: ir.Model, analysis: Analysis, pass_name: str, floor: float | None
) -> Iterator[AppliedRepair]:
    """Apply every repair in the order of the graph, and yield a record of each.

    Args:
        model: The model, edited in place.
        analysis: The repairs; it has no refusals.
        pass_name: The name of the pass.
        floor: The number added to hidden scores; None for the least of their type.

    Raises:
        UsageError: The opset is too old, or the name of the new input is taken.
    """
    source = analysis.source
    opset = opset_of(model)
    if opset < OLDEST:
        raise UsageError(
            f"{pass_name}: masks need opset {OLDEST}, the model has {opset}; export it again"
        )
    length_input = (
        source.length_input
        if source.length_input is not None
        else _add_length_input(model, source.batch)
    )
    builder = Builder(pass_name, View(model))
    lengths = LengthNodes(builder, source, length_input, opset, floor)
    for repair in analysis.repairs:
        at, tensor = node_label(repair.node), repair.node.outputs[0].name or ""
        texts = builder.repair(repair.node, functools.partial(repair.rewrite, builder, lengths))
        yield at, tensor, texts, f"{repair.leak}: {repair.remedy}"
    LengthInput(length_input.name or "", source.axis_spec, source.kind).write_metadata(model)


def _add_length_input(model: ir.Model, batch: str | None) -> ir.Value:
    if INPUT in {x.name for x in values_of([model.graph])}:
        raise UsageError(
            f"ilens-mask: the model has a tensor {INPUT!r} already; if it holds the valid lengths, "
            f"take them from it: ilens-mask:from={quote_name(INPUT)}"
        )
    shape = ir.Shape([DimSpelling(model).name_of(batch) if batch is not None else 1])
    value = ir.Value(name=INPUT, shape=shape, type=ir.TensorType(ir.DataType.INT64))
    model.graph.inputs.append(value)
    return value
