"""Check that a repaired model has the inputs and outputs of the original.

They keep their names, order, dtypes and ranks, symbolic dims stay symbolic, and inputs with a
default keep it, unless it is a pass's job to change that.
"""

from collections.abc import Collection, Iterator, Mapping

import onnx_ir as ir

from graphfix.core import Interface
from graphfix.facts.fixed_inputs import fixed_input_texts
from graphfix.lengths.length_input import LengthInput

Values = Collection[ir.Value]


def list_interface_changes(
    before: ir.Model,
    after: ir.Model,
    may_change: Collection[Interface] = (),
    output_ranks: Mapping[str, int] | None = None,
) -> list[str]:
    """Return the changes of inputs and outputs, as sentences without a subject.

    Args:
        before: The original.
        after: The repaired model. An input that its ``graphfix.lengths`` metadata names may be new,
            and those for which ``graphfix.inputs`` has a value may be gone.
        may_change: Parts of the interface that are not compared.
        output_ranks: How many dims the outputs of the original have in a run, if it was run. A
            repair may correct a wrong declaration.
    """
    changes: list[str] = []
    if "outputs" not in may_change:
        changes += _compare_order(
            "output", _names_of(before.graph.outputs), _names_of(after.graph.outputs)
        )
        changes += _compare_values(
            "output", before.graph.outputs, after.graph.outputs, output_ranks or {}
        )
    if "inputs" not in may_change:
        length_input = LengthInput.from_metadata(after)
        new = {length_input.input} if length_input is not None else set()
        removed = fixed_input_texts(after).keys() - fixed_input_texts(before).keys()
        remaining = [x for x in _names_of(before.graph.inputs) if x not in removed]
        current = [x for x in _names_of(after.graph.inputs) if x in remaining or x not in new]
        changes += _compare_order("input", remaining, current)
        dims = "dims" not in may_change
        changes += _compare_values("input", before.graph.inputs, after.graph.inputs, {}, dims=dims)
        changes += _find_lost_defaults(before, after)
    return changes


def _names_of(values: Values) -> list[str]:
    return [x.name or "" for x in values]


def _compare_order(kind: str, old: list[str], new: list[str]) -> Iterator[str]:
    yield from (f"has no {kind} {name!r} any more" for name in old if name not in new)
    yield from (f"has a new {kind} {name!r}" for name in new if name not in old)
    common = [x for x in new if x in old]
    if common != (remaining := [x for x in old if x in new]):
        yield (
            f"has its {kind}s in another order: {', '.join(common)} instead of "
            f"{', '.join(remaining)}"
        )


def _compare_values(
    kind: str, before: Values, after: Values, output_ranks: Mapping[str, int], *, dims: bool = False
) -> Iterator[str]:
    after_by_name = {x.name: x for x in after}
    for old in before:
        new = after_by_name.get(old.name)
        if new is None:
            continue
        subject = f"{kind} {old.name!r}"
        if old.type != new.type and old.type is not None and new.type is not None:
            yield f"has the {subject} as {_type_text(new)} instead of {_type_text(old)}"
        if old.shape is None or new.shape is None:
            continue
        if len(old.shape) == len(new.shape):
            yield from _newly_fixed_axes(subject, old.shape, new.shape) if dims else ()
        elif output_ranks.get(old.name or "") != len(new.shape):
            yield f"has the {subject} with {len(new.shape)} dims instead of {len(old.shape)}"


def _newly_fixed_axes(subject: str, before: ir.Shape, after: ir.Shape) -> Iterator[str]:
    for axis, (old, new) in enumerate(zip(before, after, strict=True)):
        if isinstance(new, int) and new != old:
            old_size = str(old) if isinstance(old, int) else old.value or "free"
            yield f"has axis {axis} of the {subject} fixed at {new} instead of {old_size}"


def _type_text(value: ir.Value) -> str:
    inner = value.dtype.name.lower() if value.dtype is not None else ""
    kind = type(value.type).__name__.removesuffix("Type").lower()
    return inner if kind == "tensor" else f"a {kind} of {inner}"


def _find_lost_defaults(before: ir.Model, after: ir.Model) -> Iterator[str]:
    old = {x.name for x in before.graph.inputs if x.is_initializer()}
    for value in after.graph.inputs:
        if value.name in old and not value.is_initializer():
            yield f"has no default for the input {value.name!r} any more"
