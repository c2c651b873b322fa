"""Check that a repaired model has the inputs and outputs of the original.

They keep their names, order, dtypes and ranks, symbolic dims stay symbolic, and inputs with a
default keep it, unless it is a pass's job to change that.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np
import onnx_ir as ir

from graphfix.core import Interface
from graphfix.facts.fixed_inputs import fixed_input_texts
from graphfix.lengths.length_input import LengthInput
from graphfix.proof.compare import Array
from graphfix.wording import did_you_mean

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


def list_unfit_feeds(model: ir.Model, feeds: Mapping[str, Array]) -> list[str]:
    """Return how arrays are other inputs than a model takes, as sentences without a subject.

    Args:
        model: The model, which ONNX Runtime did not run on them.
        feeds: An array for each input.
    """
    inputs = {x.name or "": x for x in model.graph.inputs}
    faults: list[str] = []
    for name in feeds.keys() - inputs.keys():
        faults.append(f"has no input {name!r}{closest_name(name, inputs)}")
    for name, value in inputs.items():
        if name in feeds:
            if isinstance(value.type, ir.TensorType) and isinstance(feeds[name], np.ndarray):
                faults += _list_unfit_array(name, value, feeds[name])
        elif not value.is_initializer():
            faults.append(f"needs an input {name!r}, {_input_text(value)}")
    return sorted(faults)


def closest_name(name: str, names: Iterable[str]) -> str:
    """Return the question whether a name like ``name`` was meant, as text to append, or ""."""
    question = did_you_mean(name, names).strip(";. ")
    return f" ({question})" if question else ""


def _list_unfit_array(name: str, value: ir.Value, array: Array) -> Iterator[str]:
    texts = value.dtype == ir.DataType.STRING  # of several types in numpy
    if value.dtype is not None and not texts and array.dtype != value.dtype.numpy():
        yield f"takes the input {name!r} as {value.dtype.numpy()} instead of {array.dtype}"
    if value.shape is None:
        return
    if len(value.shape) != array.ndim:
        yield f"takes the input {name!r} with {len(value.shape)} dims instead of {array.ndim}"
        return
    for axis, (dim, size) in enumerate(zip(value.shape, array.shape, strict=True)):
        if isinstance(dim, int) and dim != size:
            yield f"takes {dim} in axis {axis} of the input {name!r} instead of {size}"


def _input_text(value: ir.Value) -> str:
    """Return the dtype and the dims of an input, such as ``float [B, T]``."""
    if value.shape is None:
        return _type_text(value)
    dims = (str(x) if isinstance(x, int) else x.value or "?" for x in value.shape)
    return f"{_type_text(value)} [{', '.join(dims)}]"


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
