"""The repairs of an analysis, made in the graph."""

import functools
from collections.abc import Iterator

import onnx_ir as ir

from graphfix.editing.builder import Builder, Texts
from graphfix.errors import UsageError
from graphfix.facts.view import View
from graphfix.graph.dim_spelling import Spelling
from graphfix.graph.text import path_of
from graphfix.graph.walks import opset_of, values_of
from graphfix.lengths.analysis import Analysis
from graphfix.lengths.length_input import LengthInput
from graphfix.lengths.length_nodes import OLDEST, Lengths
from graphfix.spec.quoting import quoted

INPUT = "ilens"


Made = tuple[str, str, Texts, str]
"""One repair that was made: the path of the repaired node, the tensor that it makes, the nodes that
went and came, and what the leak was and what was done about it."""


def apply(model: ir.Model, analysis: Analysis, by: str, floor: float | None) -> Iterator[Made]:
    """Make every repair, in the order of the graph.

    Args:
        model: The model, edited in place.
        analysis: What is to be repaired; it has no refusals.
        by: The name of the pass.
        floor: What is added to a score that is to weigh nothing; None for the least number.

    Raises:
        UsageError: The opset is too old, or the name of the new input is taken.
    """
    source = analysis.source
    opset = opset_of(model)
    if opset < OLDEST:
        raise UsageError(f"{by}: masks need opset {OLDEST}, the model has {opset}; export it again")
    given = source.given if source.given is not None else _new_input(model, source.batch)
    builder = Builder(by, View(model))
    lengths = Lengths(builder, source, given, opset, floor)
    for repair in analysis.repairs:
        at, tensor = path_of(repair.node), repair.node.outputs[0].name or ""
        texts = builder.repair(repair.node, functools.partial(repair.rewrite, builder, lengths))
        yield at, tensor, texts, f"{repair.leak}: {repair.what}"
    LengthInput(given.name or "", source.spec, source.kind).note(model)


def _new_input(model: ir.Model, batch: str | None) -> ir.Value:
    if INPUT in {x.name for x in values_of([model.graph])}:
        raise UsageError(
            f"ilens-mask: the model has a tensor {INPUT!r} already; if it holds the valid lengths, "
            f"take them from it: ilens-mask:from={quoted(INPUT)}"
        )
    shape = ir.Shape([Spelling(model).name(batch) if batch is not None else 1])
    value = ir.Value(name=INPUT, shape=shape, type=ir.TensorType(ir.DataType.INT64))
    model.graph.inputs.append(value)
    return value
