"""The repairs of an analysis, made in the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.build import Builder
from graphfix.errors import UsageError
from graphfix.lengths.domain import size_of
from graphfix.lengths.lower import OLDEST, Lengths
from graphfix.lengths.repairs import ZeroOutput
from graphfix.lengths.site import Refused, Site, check_maskable
from graphfix.lengths.source import LengthInput
from graphfix.model.text import line_of, path_of
from graphfix.model.view import View

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphfix.lengths.analysis import Analysis
    from graphfix.lengths.repairs import Repair

NAME = "ilens"


def apply(
    model: ir.Model, analysis: Analysis, by: str, floor: float
) -> Iterator[tuple[Repair, str, str, tuple[str, ...], tuple[str, ...]]]:
    """Make every repair, in the order of the graph.

    Args:
        model: The model, edited in place.
        analysis: What is to be repaired; it has no refusals.
        by: The name of the pass.
        floor: What is added to a score that is to weigh nothing.

    Yields:
        The repair, the path of its node, the tensor, the nodes removed and added as ONNX text.

    Raises:
        UsageError: The opset is too old, or the name of the new input is taken.
    """
    source = analysis.source
    imports = model.graph.opset_imports
    opset = imports.get("", imports.get("ai.onnx", 1))
    if opset < OLDEST:
        raise UsageError(f"{by}: masks need opset {OLDEST}, the model has {opset}; export it anew")
    given = source.given
    if given is None:
        given = _new_input(model, source.batch)
    builder = Builder(by, View(model))
    lengths = Lengths(builder, source, given, opset, floor)
    for repair in analysis.repairs:
        node = repair.node
        at, tensor = path_of(node), node.outputs[0].name or ""
        before = line_of(node)
        builder.start(node)
        new = repair.rewrite(builder, lengths)
        if new is None:
            yield repair, at, tensor, (before,), (*builder.finish(), line_of(node))
        else:
            removed, added = builder.commit(new)
            yield repair, at, tensor, removed, added
    LengthInput(given.name or "", source.spec, source.kind).note(model)


def outputs_to_zero(model: ir.Model, analysis: Analysis) -> Iterator[Repair]:
    """A repair for each output that carries time and does not end in zeros."""
    for value in model.graph.outputs:
        state, node = analysis.states.get(value), value.producer()
        if state is None or node is None or all(x is None or x.is_zero for x in state.tails):
            continue
        for axis in state.timed:
            check_maskable(state.axes or (), axis, analysis.source)
        yield ZeroOutput(node, "output", value, state)


def _new_input(model: ir.Model, batch: str | None) -> ir.Value:
    taken = {x.name for x in model.graph.inputs} | set(model.graph.initializers)
    taken |= {x.name for node in model.graph for x in node.outputs}
    if NAME in taken:
        raise UsageError(
            f"ilens-mask: the model has a tensor {NAME!r} already; if it holds the valid lengths, "
            f"take them from it: ilens-mask:from={NAME}"
        )
    shape = ir.Shape([batch if batch is not None else 1])
    value = ir.Value(name=NAME, shape=shape, type=ir.TensorType(ir.DataType.INT64))
    model.graph.inputs.append(value)
    return value


__all__ = ["NAME", "Refused", "Site", "apply", "outputs_to_zero", "size_of"]
