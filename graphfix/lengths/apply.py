"""The repairs of an analysis, made in the graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.errors import UsageError
from graphfix.lengths.length_input import LengthInput
from graphfix.lengths.length_nodes import OLDEST, Lengths
from graphfix.lengths.repairs import zeroed
from graphfix.lengths.tail_state import Time
from graphfix.model.dim_spelling import Spelling
from graphfix.model.text import line_of, path_of
from graphfix.model.view import View
from graphfix.spec.quoting import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphfix.lengths.analysis import Analysis
    from graphfix.lengths.tail_state import State

INPUT, OUTPUT = "ilens", "olens"


@dataclass(frozen=True)
class Made:
    """One repair that was made, as text.

    Attributes:
        at: The path of the repaired node.
        tensor: The tensor that it makes.
        removed: The nodes that went, as ONNX text.
        added: The nodes that came, as ONNX text.
        note: The leak, and what was done about it.
    """

    at: str
    tensor: str
    removed: tuple[str, ...]
    added: tuple[str, ...]
    note: str


def apply(
    model: ir.Model, analysis: Analysis, by: str, floor: float | None, *, zero: bool, olens: bool
) -> Iterator[Made]:
    """Make every repair, in the order of the graph.

    Args:
        model: The model, edited in place.
        analysis: What is to be repaired; it has no refusals.
        by: The name of the pass.
        floor: What is added to a score that is to weigh nothing; None for the least number.
        zero: Whether the outputs are to end in zeros.
        olens: Whether to add an output with the valid length of the first output that has one.

    Raises:
        UsageError: The opset is too old, or the name of a new input or output is taken.
    """
    source = analysis.source
    imports = model.graph.opset_imports
    opset = imports.get("", imports.get("ai.onnx", 1))
    if opset < OLDEST:
        raise UsageError(f"{by}: masks need opset {OLDEST}, the model has {opset}; export it again")
    for name in (*([] if source.given is not None else [INPUT]), *([OUTPUT] if olens else [])):
        _require_free(model, name)
    given = source.given if source.given is not None else _new_input(model, source.batch)
    builder = Builder(by, View(model))
    lengths = Lengths(builder, source, given, opset, floor)
    for repair in analysis.repairs:
        node = repair.node
        at, tensor, before = path_of(node), node.outputs[0].name or "", line_of(node)
        builder.start(node)
        new = repair.rewrite(builder, lengths)
        note = f"{repair.leak}: {repair.what}"
        if new is not None:
            removed, added = builder.commit(new)
            yield Made(at, tensor, removed, added, note)
        elif line_of(node) != before:
            yield Made(at, tensor, (before,), (*builder.finish(), line_of(node)), note)
        else:  # it reads another tensor under its old name
            yield Made(at, tensor, (), builder.finish(), note)
    timed = _timed_outputs(model, analysis)
    for value, state in timed if zero else ():
        yield _zero_output(builder, lengths, model, value, state)
    if olens and timed:
        yield _add_output(builder, lengths, model, *timed[0])
    LengthInput(given.name or "", source.spec, source.kind).note(model)


def _timed_outputs(model: ir.Model, analysis: Analysis) -> list[tuple[ir.Value, State]]:
    """The outputs that carry time, as they are now, with what is known of them."""
    known = {value.name: state for value, state in analysis.states.items()}
    pairs = ((value, known.get(value.name)) for value in model.graph.outputs)
    return [(value, state) for value, state in pairs if state is not None and state.timed]


def _zero_output(
    op: Builder, lengths: Lengths, model: ir.Model, value: ir.Value, state: State
) -> Made:
    node = model.graph[-1]
    name = value.name or ""

    def zero(tensor: ir.Value) -> ir.Value:
        for axis in state.timed:
            if not state.tail(axis).is_zero:
                axes = state.axes or ()
                tensor = zeroed(op, lengths, tensor, axes, axis, finite=state.is_finite)
        return tensor

    op.start(node)
    op.append(value, zero)
    return Made(name, name, (), op.finish(), "output: its tail is set to zero")


def _add_output(
    op: Builder, lengths: Lengths, model: ir.Model, value: ir.Value, state: State
) -> Made:
    time = next(x for x in state.at(state.timed[0]) if isinstance(x, Time))
    op.start(model.graph[-1])
    new = op.extend(lambda: op.Identity(lengths.rows(time.size)))
    new.name = OUTPUT
    new.type, new.shape = ir.TensorType(ir.DataType.INT64), _rows_shape(lengths, model)
    model.graph.outputs.append(new)
    note = f"output: the valid length of {value.name!r}"
    return Made(OUTPUT, OUTPUT, (), op.finish(), note)


def _rows_shape(lengths: Lengths, model: ir.Model) -> ir.Shape:
    batch = lengths.source.batch
    return ir.Shape([Spelling(model).name(batch) if batch is not None else 1])


def _require_free(model: ir.Model, name: str) -> None:
    taken = {x.name for x in model.graph.inputs} | set(model.graph.initializers)
    taken |= {x.name for node in model.graph for x in node.outputs}
    if name in taken:
        hint = f"; if it holds the valid lengths, take them from it: ilens-mask:from={quoted(name)}"
        raise UsageError(
            f"ilens-mask: the model has a tensor {name!r} already"
            + (hint if name == INPUT else "; rename it, or leave out olens=yes")
        )


def _new_input(model: ir.Model, batch: str | None) -> ir.Value:
    shape = ir.Shape([Spelling(model).name(batch) if batch is not None else 1])
    value = ir.Value(name=INPUT, shape=shape, type=ir.TensorType(ir.DataType.INT64))
    model.graph.inputs.append(value)
    return value
