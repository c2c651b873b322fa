"""Source of valid lengths: a time axis, and the input that says how much of it is valid."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.errors import UsageError
from graphfix.facts.shapes import Shapes, infer
from graphfix.facts.symbolic.expressions import Dim, symbols_of
from graphfix.lengths.dim_aliases import DimAliases, single_symbol
from graphfix.lengths.length_input import Kind, LengthInput
from graphfix.lengths.padded_axis import (
    Place,
    find_input,
    find_time_axis,
    parse_axes,
    symbolic_axes,
)


@dataclass(frozen=True)
class LengthSource:
    """The padded dim of a model, and the input that says how much of it is valid.

    Attributes:
        value: The input that is padded.
        axis: The axis of it that carries time.
        symbol: The name of that dim in symbolic shapes.
        batch: The name of the batch dim, if there is one that is not fixed.
        length_input: The input that the model has for it already, if it is to be used.
        kind: Whether that one (or the new one) holds lengths or a mask.
        shapes: The symbolic shapes of the model, in which dims that must be equal have one name.
        inputs: The inputs of the model.
    """

    value: ir.Value
    axis: int
    symbol: str
    batch: str | None
    length_input: ir.Value | None
    kind: Kind
    shapes: Shapes
    inputs: tuple[ir.Value, ...]

    @functools.cached_property
    def symbols(self) -> frozenset[str]:
        """Return every symbol in the dims of the inputs."""
        dims = [d for x in self.inputs for d in self.shapes.dims(x) or ()]
        return frozenset(name for dim in dims for name in symbols_of(dim))

    @property
    def axis_spec(self) -> str:
        """Return the axis as a user names it, ``audio.2``."""
        return f"{self.value.name}.{self.axis}"


def find_length_source(model: ir.Model, axis: str = "", source: str = "") -> LengthSource:
    """Find the time axis that ``axis`` names, or else the only possible one.

    Args:
        model: The model; it is only read.
        axis: ``input.axis`` such as ``audio.2``, or ``audio.2+mask.1`` for several of one size; ""
            to find it.
        source: The mask or length input to take valid lengths from; "" for a new one, or for the
            one that an earlier repair has added.

    Raises:
        UsageError: There is no such input or axis, or none can be inferred from the others.
    """
    previous = LengthInput.from_metadata(model)
    if previous is not None:
        axis, source = axis or previous.axis, source or previous.input
    length_input = find_input(model, source, "from") if source else None
    shapes = infer(model, usual=True)
    aliases = DimAliases(model, shapes)
    places = (
        parse_axes(model, axis) if axis else [find_time_axis(model, shapes, length_input, aliases)]
    )
    value, index = places[0]
    dims = shapes.dims(value) or ()
    symbol = _require_dynamic_axis(dims[index], f"{value.name}.{index}")
    batch = _batch_symbol(dims, index)
    kind: Kind = previous.kind if previous is not None and previous.input == source else "lengths"
    renames = _graph_renames(model, shapes, aliases, symbol, batch)
    renames |= _user_renames(places, shapes, symbol, batch)
    if length_input is not None:
        length_dims = _check_length_dims(length_input, shapes.dims(length_input) or ())
        kind = "mask" if len(length_dims) > 1 else "lengths"
        renames |= _length_input_renames(length_dims, kind, symbol, batch)
    if renames:
        shapes = infer(model, renames, usual=True)
    inputs = tuple(x for x in model.graph.inputs if not x.is_initializer())
    return LengthSource(value, index, symbol, batch, length_input, kind, shapes, inputs)


def _require_dynamic_axis(dim: Dim, where: str) -> str:
    """Return the symbol of a dim that may be padded."""
    if isinstance(dim, int):
        raise UsageError(
            f"ilens-mask: {where} is fixed at {dim}; only an axis whose size "
            "may vary can be padded. Export it with a dynamic axis, or try -p thaw first"
        )
    return _require_symbol(dim, where)


def _check_length_dims(length_input: ir.Value, dims: Sequence[Dim]) -> Sequence[Dim]:
    """Return the dims of lengths [B] or of a mask [B, T], without dims of 1 between."""
    if len(dims) <= 2:
        return dims
    own_dims = (dims[0], *(x for x in dims[1:] if x != 1))
    if len(own_dims) != 2:
        raise UsageError(
            f"ilens-mask: from={length_input.name}: it has {len(own_dims)} dims that are not 1; "
            "valid lengths are taken from lengths [B] or a mask [B, T], with dims of 1 between"
        )
    return own_dims


def _length_input_renames(
    dims: Sequence[Dim], kind: Kind, symbol: str, batch: str | None
) -> dict[str, str]:
    """Return how to rename the dims of the length input, which exporters name again."""
    targets = (batch, symbol) if kind == "mask" else (batch,)
    pairs = ((single_symbol(a), b) for a, b in zip(dims, targets, strict=False))
    return {a: b for a, b in pairs if a and b and a != b}


def _user_renames(
    places: Sequence[Place], shapes: Shapes, symbol: str, batch: str | None
) -> dict[str, str]:
    """Return how to rename axes that a user says are of one size, and their batches."""
    renames: dict[str, str] = {}
    for value, axis in places[1:]:
        dims = shapes.dims(value) or ()
        renames[_require_symbol(dims[axis], f"{value.name}.{axis}")] = symbol
        own = _batch_symbol(dims, axis)
        if batch is not None and own is not None:
            renames[own] = batch
    return {a: b for a, b in renames.items() if a != b}


def _batch_symbol(dims: Sequence[Dim], axis: int) -> str | None:
    """Return the dim before time that is not fixed, or the one behind it if time is first."""
    if axis and dims[0] == 1:  # one clip: the next dim is no batch
        return None
    return next(
        filter(None, map(single_symbol, (x for i, x in enumerate(dims[:2]) if i != axis))), None
    )


def _graph_renames(
    model: ir.Model, shapes: Shapes, aliases: DimAliases, symbol: str, batch: str | None
) -> dict[str, str]:
    """Return how to rename batch and time of other inputs that the graph shows to be the same."""
    renames: dict[str, str] = {}
    for name, value, i in symbolic_axes(model, shapes, None):
        own = symbol if i else batch
        if own is None or name in (symbol, batch):
            continue
        if aliases.are_equal(name, own) and (shapes.rank(value) or 0) > 1:
            renames.setdefault(name, own)
    return renames


def _require_symbol(dim: Dim, where: str) -> str:
    name = single_symbol(dim)
    if not name:
        raise UsageError(f"ilens-mask: the size of {where} is {dim}, which is no symbol of its own")
    return name
