"""Whether a repaired model is fed and read as the original is.

Its inputs and outputs keep their names, order, dtypes and ranks, a symbolic dim stays one, and what
could be left out or overridden still can be, unless it is a pass's job to change that.
"""

from collections.abc import Collection, Iterator, Mapping

import onnx_ir as ir

from graphfix.core import Interface
from graphfix.facts.fixed_inputs import texts_of
from graphfix.lengths.length_input import LengthInput

Values = Collection[ir.Value]


def interface_changes(
    before: ir.Model,
    after: ir.Model,
    may_change: Collection[Interface] = (),
    made: Mapping[str, int] | None = None,
) -> list[str]:
    """What is different from outside, in sentences without a subject.

    Args:
        before: The original.
        after: The repaired model. An input that its ``graphfix.lengths`` metadata names may be new,
            and those for which ``graphfix.inputs`` has a value may be gone.
        may_change: What is not looked at.
        made: How many dims the outputs of the original have in a run, if it was run. One that is
            declared with others by mistake may be set right.
    """
    found: list[str] = []
    if "outputs" not in may_change:
        found += _order("output", _names(before.graph.outputs), _names(after.graph.outputs))
        found += _values("output", before.graph.outputs, after.graph.outputs, made or {})
    if "inputs" not in may_change:
        told = LengthInput.of(after)
        new = {told.input} if told is not None else set()
        gone = texts_of(after).keys() - texts_of(before).keys()
        old = [x for x in _names(before.graph.inputs) if x not in gone]
        now = [x for x in _names(after.graph.inputs) if x in old or x not in new]
        found += _order("input", old, now)
        dims = "dims" not in may_change
        found += _values("input", before.graph.inputs, after.graph.inputs, {}, dims=dims)
        found += _defaults(before, after)
    return found


def _names(values: Values) -> list[str]:
    return [x.name or "" for x in values]


def _order(kind: str, old: list[str], new: list[str]) -> Iterator[str]:
    yield from (f"has no {kind} {name!r} any more" for name in old if name not in new)
    yield from (f"has a new {kind} {name!r}" for name in new if name not in old)
    common = [x for x in new if x in old]
    if common != (kept := [x for x in old if x in new]):
        yield f"has its {kind}s in another order: {', '.join(common)} instead of {', '.join(kept)}"


def _values(
    kind: str, before: Values, after: Values, made: Mapping[str, int], *, dims: bool = False
) -> Iterator[str]:
    known = {x.name: x for x in after}
    for old in before:
        new = known.get(old.name)
        if new is None:
            continue
        what = f"{kind} {old.name!r}"
        if old.type != new.type and old.type is not None and new.type is not None:
            yield f"has the {what} as {_type(new)} instead of {_type(old)}"
        if old.shape is None or new.shape is None:
            continue
        if len(old.shape) != len(new.shape):
            if made.get(old.name or "") == len(new.shape):
                continue
            yield f"has the {what} with {len(new.shape)} dims instead of {len(old.shape)}"
            continue
        for axis, (was, now) in enumerate(zip(old.shape, new.shape, strict=True)):
            if not dims or not isinstance(now, int) or now == was:
                continue
            old_size = str(was) if isinstance(was, int) else was.value or "free"
            yield f"has axis {axis} of the {what} fixed at {now} instead of {old_size}"


def _type(value: ir.Value) -> str:
    inner = value.dtype.name.lower() if value.dtype is not None else ""
    kind = type(value.type).__name__.removesuffix("Type").lower()
    return inner if kind == "tensor" else f"a {kind} of {inner}"


def _defaults(before: ir.Model, after: ir.Model) -> Iterator[str]:
    old = {x.name for x in before.graph.inputs if x.is_initializer()}
    for value in after.graph.inputs:
        if value.name in old and not value.is_initializer():
            yield f"has no default for the input {value.name!r} any more"
