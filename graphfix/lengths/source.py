"""Where valid lengths come from: a time axis, and the input that says how much of it is valid."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir
import sympy

from graphfix.errors import UsageError
from graphfix.lengths.given import Kind, LengthInput
from graphfix.model.shapes import infer
from graphfix.model.symbolic import expr_of, symbols_of
from graphfix.model.values import is_op
from graphfix.quoting import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphfix.model.shapes import Shapes
    from graphfix.model.symbolic import Dim

# Operators that take their inputs side by side, dim by dim.
_TOGETHER = ("Add", "Sub", "Mul", "Div", "Where", "And", "Or")


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
        axis: ``input.axis`` such as ``audio.2``; "" to find it.
        source: The mask or length input to take valid lengths from; "" for a new one, or for the
            one that an earlier repair has added.

    Raises:
        UsageError: There is no such input or axis, or none can be told from the others.
    """
    known = LengthInput.of(model)
    if known is not None:
        axis, source = axis or known.axis, source or known.input
    given = _input(model, source, "from") if source else None
    shapes = infer(model, usual=True)
    beside = _Beside(model, shapes)
    value, index = _named(model, axis) if axis else _only(model, shapes, given, beside)
    dims = shapes.dims(value) or ()
    if isinstance(dims[index], int):
        raise UsageError(
            f"ilens-mask: {value.name}.{index} is fixed at {dims[index]}; only an axis whose size "
            "may vary can be padded. Export it with a dynamic axis, or try -p thaw first"
        )
    symbol = _symbol(dims[index], f"{value.name}.{index}")
    batch = next((_plain(x) for i, x in enumerate(dims) if i != index and _plain(x)), None)
    kind: Kind = known.kind if known is not None and known.input == source else "lengths"
    renamed = _other_names(model, shapes, beside, symbol, batch)
    if given is not None:
        kind = "mask" if len(shapes.dims(given) or ()) == 2 else "lengths"
        renamed |= _same_names(shapes.dims(given) or (), kind, symbol, batch)
    if renamed:
        shapes = infer(model, renamed, usual=True)
    inputs = tuple(x for x in model.graph.inputs if not x.is_initializer())
    return Source(value, index, symbol, batch, given, kind, shapes, inputs)


def _same_names(
    dims: tuple[Dim, ...], kind: Kind, symbol: str, batch: str | None
) -> dict[str, str]:
    """Exporters name the dims of each input anew; these two are the same."""
    wanted = (batch, symbol) if kind == "mask" else (batch,)
    pairs = ((_plain(a), b) for a, b in zip(dims, wanted, strict=False))
    return {a: b for a, b in pairs if a and b and a != b}


def _other_names(
    model: ir.Model, shapes: Shapes, beside: _Beside, symbol: str, batch: str | None
) -> dict[str, str]:
    """What other inputs call the batch and the time, where the graph puts the two side by side."""
    found: dict[str, str] = {}
    for name, value, i in _symbolic(model, shapes, None):
        own = symbol if i else batch
        if own is None or name in (symbol, batch):
            continue
        if beside.are_one(name, own) and (shapes.rank(value) or 0) > 1:
            found.setdefault(name, own)
    return found


class _Beside:
    """Dims of inputs that some node takes side by side: they are equal, or one of them is 1."""

    def __init__(self, model: ir.Model, shapes: Shapes) -> None:
        self._model, self._shapes = model, shapes

    def are_one(self, a: str, b: str) -> bool:
        """Whether two names stand for one size."""
        return a == b or frozenset((a, b)) in self._pairs

    @functools.cached_property
    def _pairs(self) -> set[frozenset[str]]:
        found: set[frozenset[str]] = set()
        for node in self._model.graph:
            if is_op(node, *_TOGETHER):
                dims = ((self._shapes.dims(x) or ())[::-1] for x in node.inputs)
                for together in zip(*dims, strict=False):
                    found.update(_pairs_of(together))
        return found


def _pairs_of(dims: tuple[Dim, ...]) -> Iterator[frozenset[str]]:
    """Names that stand side by side, or one in a least size that stands beside another."""
    for own in filter(None, map(_plain, dims)):
        for dim in dims:
            least = expr_of(dim)
            cut = isinstance(least, sympy.Min) and own in map(str, least.args)  # Min(B, C) is B
            names = least.args if cut else (least,)
            yield from (frozenset((own, str(x))) for x in names if x.is_Symbol)


def _only(
    model: ir.Model, shapes: Shapes, given: ir.Value | None, beside: _Beside
) -> tuple[ir.Value, int]:
    places = list(_symbolic(model, shapes, given))
    # A matrix with one symbolic dim is frames by features; a batch comes with more axes.
    alone = len({name for name, _, _ in places}) == 1
    batch = {
        name
        for name, value, i in places
        if i == 0 and (shapes.rank(value) or 0) > (2 if alone else 1)
    }
    left: dict[str, tuple[ir.Value, int]] = {}
    for name, value, i in places:
        if name not in batch:
            left.setdefault(name, (value, i))
    first = next(iter(left), "")
    if left and all(beside.are_one(first, name) for name in left):
        return left[first]
    if not places:
        raise UsageError(
            "ilens-mask: every dim of every input is fixed, so nothing can be padded. Export the "
            "model with a dynamic time axis, or try -p thaw first"
        )
    choices = ", ".join(f"axis={quoted(f'{value.name}.{i}')} ({name})" for name, value, i in places)
    what = "several dims may be time" if left else "no dim besides batch is symbolic"
    raise UsageError(f"ilens-mask: {what}; name the one to pad: {choices}")


def _symbolic(
    model: ir.Model, shapes: Shapes, given: ir.Value | None
) -> Iterator[tuple[str, ir.Value, int]]:
    for value in model.graph.inputs:
        # A mask or a length follows the input that it speaks of.
        if value is given or value.is_initializer():
            continue
        for i, dim in enumerate(shapes.dims(value) or ()):
            if name := _plain(dim):
                yield name, value, i


def _named(model: ir.Model, text: str) -> tuple[ir.Value, int]:
    name, dot, number = text.rpartition(".")
    if not dot or not number.lstrip("-").isdigit():
        raise UsageError(f"ilens-mask: axis={text} names no axis; write INPUT.AXIS, as in audio.2")
    value = _input(model, name, "axis")
    rank = len(value.shape) if value.shape is not None else 0
    if not -rank <= int(number) < rank:
        raise UsageError(f"ilens-mask: input {name!r} has {rank} axes, there is no axis {number}")
    return value, int(number) % rank


def _input(model: ir.Model, name: str, option: str) -> ir.Value:
    found = next((x for x in model.graph.inputs if x.name == name), None)
    if found is None:
        have = ", ".join(repr(x.name) for x in model.graph.inputs)
        raise UsageError(f"ilens-mask: {option}={name}: the model has no such input; it has {have}")
    return found


def _plain(dim: Dim) -> str:
    """The symbol that a dim is, if it is nothing else."""
    names = symbols_of(dim)
    return next(iter(names)) if len(names) == 1 and str(dim) in names else ""


def _symbol(dim: Dim, where: str) -> str:
    name = _plain(dim)
    if not name:
        raise UsageError(f"ilens-mask: the size of {where} is {dim}, which is no symbol of its own")
    return name
