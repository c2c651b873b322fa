"""How much of each output is valid for a clip: dims as inference has them, held to what clips show.

Where inference leaves a size that only a run knows, what the exporter declared is tried, the
expression without what is not known, a multiple of the length, and what the model itself computes
of it, such as the end of a Slice; each counts only if every clip has shown it.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import onnx_ir as ir

from graphfix.errors import ModelError, UsageError
from graphfix.facts import shapes
from graphfix.facts.symbolic.expressions import Dim, without
from graphfix.feeds.case import Case, named
from graphfix.feeds.input import symbols
from graphfix.feeds.signature import Signature
from graphfix.probing.unpadded import Clip
from graphfix.proof.content import Content
from graphfix.shipped.dim_expression import size_of
from graphfix.shipped.manifest import Port

_WORD = re.compile(r"[A-Za-z_]\w*")
# Lengths that have to show a size that nothing says: two would lie on a line in any case.
_ENOUGH = 4
_ORT_TYPES = {ir.DataType.FLOAT: "float", ir.DataType.DOUBLE: "double"}


@dataclass(frozen=True)
class Sizing:
    """What is padded and fixed, in the names that containers have sizes for.

    Attributes:
        time: What is padded.
        batch: The batch; None if there is none.
        groups: All names.
        containers: The sizes of each container, the smallest first.
    """

    time: str
    batch: str | None
    groups: tuple[str, ...]
    containers: tuple[Mapping[str, int], ...]

    def alone(self, clip: Clip) -> dict[str, int]:
        """The sizes of a clip alone: one row, and its own length."""
        sizes = {**self.containers[0], self.time: clip.length}
        if self.batch is not None:
            sizes[self.batch] = 1
        return sizes


def outputs_of(
    model: ir.Model, signature: Signature, plan: Sizing, clips: Sequence[Clip]
) -> tuple[Port, ...]:
    """The outputs of a model, with what is valid of each.

    Raises:
        ModelError: The shape of an output cannot be inferred.
        UsageError: Containers have several rows, and an output has no axis for them.
    """
    users = {signature.user_name(s): s for s in signature.symbols()}
    declared = {
        x.name: tuple(_legible(d, users) for d in x.shape or ()) for x in model.graph.outputs
    }
    content = Content(signature)
    content.learn([(_case(signature, plan, clip), clip.outputs) for clip in clips])
    rows = max(size.get(plan.batch or "", 1) for size in plan.containers)
    rename = {s: signature.group(s) for s in signature.symbols()}
    found = []
    computed = functools.cache(lambda: _computed(model, signature))
    for value in model.graph.outputs:
        name = value.name or ""
        seen = _OutputShapes(name, plan, clips, rename, frozenset(rename), computed)
        dims = seen.dims(content.dims.get(name), declared[name])
        axis = signature.row_axis(dims)
        if rows > 1 and axis is None:
            raise UsageError(
                f"the output {name!r} has no axis of rows, so the clips of a container with "
                f"{rows} of them cannot be told apart; say B=1"
            )
        kind = type_of(value.dtype or ir.DataType.FLOAT)
        found.append(Port(name, kind, tuple(text_of(d, rename) for d in dims), axis))
    return tuple(found)


def type_of(dtype: ir.DataType) -> str:
    """An element type as ONNX Runtime writes it, such as ``tensor(float)``."""
    return f"tensor({_ORT_TYPES.get(dtype, dtype.name.lower())})"


def text_of(dim: Dim, rename: Mapping[str, str]) -> int | str:
    """A dim in the names that containers have sizes for."""
    if isinstance(dim, int):
        return dim
    return _WORD.sub(lambda word: rename.get(word[0], word[0]), str(dim.value))


@dataclass(frozen=True)
class _OutputShapes:
    """What clips have shown of an output."""

    name: str
    plan: Sizing
    clips: Sequence[Clip]
    rename: Mapping[str, str]
    known: frozenset[str]
    computed: Callable[[], tuple[Dim, ...]] = tuple

    def dims(self, inferred: Sequence[Dim] | None, declared: Sequence[Dim]) -> tuple[Dim, ...]:
        """The dims that every clip has shown.

        Raises:
            ModelError: There are none.
        """
        shapes = [self._shape(clip) for clip in self.clips]
        if len({len(shape) for shape in shapes}) != 1:
            raise ModelError(
                f"the output {self.name!r} has {sorted(map(len, shapes))} dims, which depends on "
                "the clip, so it is not known how much of it is valid"
            )
        found: list[Dim] = []
        for axis, sizes in enumerate(zip(*shapes, strict=True)):
            tried = list(self._tried(_at(inferred, axis), _at(declared, axis), sizes))
            more = () if len({x.length for x in self.clips}) < _ENOUGH else self.computed()
            fits = next((d for d in chain(tried, more) if self._sizes(d) == sizes), None)
            if fits is None:
                told = f" (tried {', '.join(map(str, tried))})" if tried else ""
                raise ModelError(
                    f"the shape of the output {self.name!r} follows no size of the inputs that "
                    f"could be told: axis {axis} is {_listed(sizes)} for clips of "
                    f"{_listed([x.length for x in self.clips])}{told}, so it is not known how "
                    "much of it is valid"
                )
            found.append(fits)
        return tuple(found)

    def _shape(self, clip: Clip) -> tuple[int, ...]:
        array = clip.outputs.get(self.name)
        if array is None:
            raise ModelError(f"the output {self.name!r} is no tensor, and only those are shipped")
        return array.shape

    def _tried(
        self, inferred: Dim | None, declared: Dim | None, sizes: Sequence[int]
    ) -> Iterator[Dim]:
        """What the dim could be, the surest first."""
        given = [d for d in (inferred, declared) if d is not None]
        yield from (d for d in given if symbols(d) <= self.known)
        if len(set(sizes)) == 1:
            yield sizes[0]
        yield from (without(d, symbols(d) - self.known) for d in given if symbols(d) & self.known)
        if (line := _line([x.length for x in self.clips], sizes)) is not None:
            yield ir.SymbolicDim(f"{line[0]}*{self.plan.time} + {line[1]}")

    def _sizes(self, dim: Dim) -> tuple[int | None, ...]:
        return tuple(self._size(dim, clip) for clip in self.clips)

    def _size(self, dim: Dim, clip: Clip) -> int | None:
        try:
            return size_of(text_of(dim, self.rename), self.plan.alone(clip))
        except ValueError:
            return None


def _computed(model: ir.Model, signature: Signature) -> tuple[Dim, ...]:
    """The sizes that the model computes of those of its inputs, the shortest first."""
    known, names = shapes.infer(model, usual=True), set(signature.symbols())
    held = (known.data(x) or () for node in model.graph for x in node.outputs)
    sizes = {str(x): x for each in held for x in each if not isinstance(x, int)}
    order = sorted(sizes, key=lambda x: (len(x), x))
    return tuple(sizes[x] for x in order if symbols(sizes[x]) <= names)


def _line(lengths: Sequence[int], sizes: Sequence[int]) -> tuple[int, int] | None:
    """``n * T + c`` of whole numbers, if clips of enough lengths have shown it."""
    pairs = sorted(set(zip(lengths, sizes, strict=True)))
    if len(pairs) < _ENOUGH:
        return None
    (first, low), (last, high) = pairs[0], pairs[-1]
    if first == last or high <= low or (high - low) % (last - first):
        return None
    n = (high - low) // (last - first)
    c = low - n * first
    return (n, c) if all(n * length + c == size for length, size in pairs) else None


def _legible(dim: Dim, users: Mapping[str, str]) -> Dim:
    """A declared dim under the name that inputs have it by, or none if none has."""
    if isinstance(dim, int) or dim.value is None:
        return dim
    if dim.value in users:
        return ir.SymbolicDim(users[dim.value])
    try:
        dim.free_symbols()
    except ValueError:  # it is a name such as x.2, of no input
        return ir.SymbolicDim(None)
    return dim


def _at(dims: Sequence[Dim] | None, axis: int) -> Dim | None:
    dim = dims[axis] if dims is not None and axis < len(dims) else None
    return None if isinstance(dim, ir.SymbolicDim) and not dim.value else dim


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:4])) + (", ..." if len(numbers) > 4 else "")


def _case(signature: Signature, plan: Sizing, clip: Clip) -> Case:
    sizes = named(signature, signature.sizes(plan.alone(clip)))
    return Case(f"{clip.length}", sizes, dict(clip.feeds))
