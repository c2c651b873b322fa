"""Where valid lengths come from: a time axis, and the input that says how much of it is valid."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.errors import UsageError
from graphfix.facts.shapes import Shapes, infer
from graphfix.facts.symbolic.expressions import Dim, symbols_of
from graphfix.lengths.length_input import Kind, LengthInput
from graphfix.lengths.padded_axis import Place, chosen, input_named, named, symbolic
from graphfix.lengths.same_size import OneSize, plain


@dataclass(frozen=True)
class Source:
    """The padded dim of a model, and what says how much of it is valid.

    Attributes:
        value: The input that is padded.
        axis: The axis of it that carries time.
        symbol: The name of that dim in symbolic shapes.
        batch: The name of the batch dim, if there is one that is not fixed.
        given: The input that the model has for it already, if it is to be used.
        kind: Whether that one (or the new one) holds lengths or a mask.
        shapes: The symbolic shapes of the model, in which dims that must be equal have one name.
        inputs: The inputs of the model.
    """

    value: ir.Value
    axis: int
    symbol: str
    batch: str | None
    given: ir.Value | None
    kind: Kind
    shapes: Shapes
    inputs: tuple[ir.Value, ...]

    @functools.cached_property
    def symbols(self) -> frozenset[str]:
        """Every symbol in the dims of the inputs."""
        dims = [d for x in self.inputs for d in self.shapes.dims(x) or ()]
        return frozenset(name for dim in dims for name in symbols_of(dim))

    @property
    def spec(self) -> str:
        """The axis as a user names it, ``audio.2``."""
        return f"{self.value.name}.{self.axis}"


def find(model: ir.Model, axis: str = "", source: str = "") -> Source:
    """The time axis that ``axis`` names, or the only one that it can be.

    Args:
        model: The model; it is only read.
        axis: ``input.axis`` such as ``audio.2``, or ``audio.2+mask.1`` for several of one size; ""
            to find it.
        source: The mask or length input to take valid lengths from; "" for a new one, or for the
            one that an earlier repair has added.

    Raises:
        UsageError: There is no such input or axis, or none can be inferred from the others.
    """
    known = LengthInput.of(model)
    if known is not None:
        axis, source = axis or known.axis, source or known.input
    given = input_named(model, source, "from") if source else None
    shapes = infer(model, usual=True)
    one = OneSize(model, shapes)
    places = named(model, axis) if axis else [chosen(model, shapes, given, one)]
    value, index = places[0]
    dims = shapes.dims(value) or ()
    if isinstance(dims[index], int):
        raise UsageError(
            f"ilens-mask: {value.name}.{index} is fixed at {dims[index]}; only an axis whose size "
            "may vary can be padded. Export it with a dynamic axis, or try -p thaw first"
        )
    symbol = _symbol(dims[index], f"{value.name}.{index}")
    batch = _batch_of(dims, index)
    kind: Kind = known.kind if known is not None and known.input == source else "lengths"
    renamed = _other_names(model, shapes, one, symbol, batch) | _said(places, shapes, symbol, batch)
    if given is not None:
        held = shapes.dims(given) or ()
        kind = "mask" if len(held) > 1 else "lengths"
        if len(held) > 2:  # [B, 1, T]: what broadcasting needs is no size
            held = (held[0], *(x for x in held[1:] if x != 1))
            if len(held) != 2:
                raise UsageError(
                    f"ilens-mask: from={given.name}: it has {len(held)} dims that are not 1; valid "
                    "lengths are taken from lengths [B] or a mask [B, T], with dims of 1 between"
                )
        renamed |= _same_names(held, kind, symbol, batch)
    if renamed:
        shapes = infer(model, renamed, usual=True)
    inputs = tuple(x for x in model.graph.inputs if not x.is_initializer())
    return Source(value, index, symbol, batch, given, kind, shapes, inputs)


def _same_names(dims: Sequence[Dim], kind: Kind, symbol: str, batch: str | None) -> dict[str, str]:
    """Exporters name the dims of each input again; these two are the same."""
    wanted = (batch, symbol) if kind == "mask" else (batch,)
    pairs = ((plain(a), b) for a, b in zip(dims, wanted, strict=False))
    return {a: b for a, b in pairs if a and b and a != b}


def _said(
    places: Sequence[Place], shapes: Shapes, symbol: str, batch: str | None
) -> dict[str, str]:
    """What a user says to be of one size: these axes, and the batch of each of these inputs."""
    found: dict[str, str] = {}
    for value, axis in places[1:]:
        dims = shapes.dims(value) or ()
        found[_symbol(dims[axis], f"{value.name}.{axis}")] = symbol
        own = _batch_of(dims, axis)
        if batch is not None and own is not None:
            found[own] = batch
    return {a: b for a, b in found.items() if a != b}


def _batch_of(dims: Sequence[Dim], axis: int) -> str | None:
    """The dim before time that is not fixed, or the one behind it where time comes first."""
    if axis and dims[0] == 1:  # one clip: what comes next is no batch
        return None
    return next(filter(None, map(plain, (x for i, x in enumerate(dims[:2]) if i != axis))), None)


def _other_names(
    model: ir.Model, shapes: Shapes, one: OneSize, symbol: str, batch: str | None
) -> dict[str, str]:
    """What other inputs call the batch and the time, where the graph puts the two side by side."""
    found: dict[str, str] = {}
    for name, value, i in symbolic(model, shapes, None):
        own = symbol if i else batch
        if own is None or name in (symbol, batch):
            continue
        if one.are_one(name, own) and (shapes.rank(value) or 0) > 1:
            found.setdefault(name, own)
    return found


def _symbol(dim: Dim, where: str) -> str:
    name = plain(dim)
    if not name:
        raise UsageError(f"ilens-mask: the size of {where} is {dim}, which is no symbol of its own")
    return name
