"""How much of each output is valid for a clip: inferred dims, checked against clips.

Where inference leaves a size that only a run knows, these are tried: the exporter's own dim, the
expression without the unknown part, a multiple of the length, and what the model itself computes,
such as the end of a Slice; each counts only if every clip confirms it.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import onnx_ir as ir

from graphfix.errors import ModelError, UsageError
from graphfix.facts import shapes
from graphfix.facts.symbolic.expressions import Dim, with_zero_sizes
from graphfix.feeds.case import Case, key_by_user_name
from graphfix.feeds.input import symbols
from graphfix.feeds.signature import Signature
from graphfix.probing.unpadded import Clip
from graphfix.proof.content import ContentMasks
from graphfix.shipped.manifest import Port
from graphfix.shipping.dim_expression import size_of

_WORD = re.compile(r"[A-Za-z_]\w*")
# Lengths that have to show a size that nothing says: two would lie on a line in any case.
_ENOUGH = 4
_ORT_TYPES = {ir.DataType.FLOAT: "float", ir.DataType.DOUBLE: "double"}


@dataclass(frozen=True)
class Sizing:
    """Which dims are padded and which are fixed, by the names that containers use.

    Attributes:
        time: The padded dim.
        batch: The batch; None if there is none.
        groups: All names.
        containers: The sizes of each container, the smallest first.
    """

    time: str
    batch: str | None
    groups: tuple[str, ...]
    containers: tuple[Mapping[str, int], ...]

    def clip_sizes(self, clip: Clip) -> dict[str, int]:
        """Return the sizes of a single clip: one row, and its own length."""
        sizes = {**self.containers[0], self.time: clip.length}
        if self.batch is not None:
            sizes[self.batch] = 1
        return sizes


def output_ports_of(
    model: ir.Model, signature: Signature, plan: Sizing, clips: Sequence[Clip]
) -> tuple[Port, ...]:
    """Return the outputs of a model, with the valid part of each.

    Raises:
        ModelError: The shape of an output cannot be inferred.
        UsageError: Containers have several rows, and an output has no axis for them.
    """
    users = {signature.user_name(s): s for s in signature.symbols()}
    declared = {
        x.name: tuple(_use_input_name(d, users) for d in x.shape or ()) for x in model.graph.outputs
    }
    content = ContentMasks(signature)
    content.learn_dims([(_case_of(signature, plan, clip), clip.outputs) for clip in clips])
    rows = max(size.get(plan.batch or "", 1) for size in plan.containers)
    rename = {s: signature.group_of(s) for s in signature.symbols()}
    ports = []
    computed = functools.cache(lambda: _computed_sizes(model, signature))
    for value in model.graph.outputs:
        name = value.name or ""
        output_shapes = _OutputShapes(name, plan, clips, rename, frozenset(rename), computed)
        dims = output_shapes.find_dims(content.dims.get(name), declared[name])
        axis = signature.row_axis(dims)
        if rows > 1 and axis is None:
            raise UsageError(
                f"the output {name!r} has no axis of rows, so the clips of a container with "
                f"{rows} of them cannot be told apart; say B=1"
            )
        kind = ort_type_of(value.dtype or ir.DataType.FLOAT)
        ports.append(Port(name, kind, tuple(dim_text(d, rename) for d in dims), axis))
    return tuple(ports)


def ort_type_of(dtype: ir.DataType) -> str:
    """Return an element type as ONNX Runtime writes it, such as ``tensor(float)``."""
    return f"tensor({_ORT_TYPES.get(dtype, dtype.name.lower())})"


def dim_text(dim: Dim, rename: Mapping[str, str]) -> int | str:
    """Return a dim as text, in the names that containers use."""
    if isinstance(dim, int):
        return dim
    return _WORD.sub(lambda word: rename.get(word[0], word[0]), str(dim.value))


_NEXT = (
    "Where the graph predicts it, as a voice predicts durations, no container fits: repair the "
    "model at its dynamic sizes, graphfix run MODEL -p fast, or cut it before that "
    "(onnx.utils.extract_model) and ship the parts"
)


@dataclass(frozen=True)
class _OutputShapes:
    """The shapes of one output over all clips."""

    name: str
    plan: Sizing
    clips: Sequence[Clip]
    rename: Mapping[str, str]
    input_dims: frozenset[str]
    computed: Callable[[], tuple[Dim, ...]] = tuple

    def find_dims(self, inferred: Sequence[Dim] | None, declared: Sequence[Dim]) -> tuple[Dim, ...]:
        """Return the dims that agree with every clip.

        Raises:
            ModelError: There are none.
        """
        observed = [self._shape_in(clip) for clip in self.clips]
        if len({len(shape) for shape in observed}) != 1:
            raise ModelError(
                f"the output {self.name!r} has {sorted(map(len, observed))} dims, which depends on "
                "the clip, so it is not known how much of it is valid"
            )
        dims: list[Dim] = []
        for axis, sizes in enumerate(zip(*observed, strict=True)):
            candidates = list(
                self._dim_candidates(_dim_at(inferred, axis), _dim_at(declared, axis), sizes)
            )
            more = () if len({x.length for x in self.clips}) < _ENOUGH else self.computed()
            fits = next(
                (d for d in chain(candidates, more) if self._sizes_in_clips(d) == sizes), None
            )
            if fits is None:
                tries = f" (tried {', '.join(map(str, candidates))})" if candidates else ""
                raise ModelError(
                    f"the shape of the output {self.name!r} follows no size of the inputs that "
                    f"could be told: axis {axis} is {_join_first(sizes)} for clips of "
                    f"{_join_first([x.length for x in self.clips])}{tries}, so it is not known how "
                    f"much of it is valid. {_NEXT}"
                )
            dims.append(fits)
        return tuple(dims)

    def _shape_in(self, clip: Clip) -> tuple[int, ...]:
        array = clip.outputs.get(self.name)
        if array is None:
            raise ModelError(f"the output {self.name!r} is no tensor, and only those are shipped")
        return array.shape

    def _dim_candidates(
        self, inferred: Dim | None, declared: Dim | None, sizes: Sequence[int]
    ) -> Iterator[Dim]:
        """Yield what the dim could be, the surest first."""
        known_dims = [d for d in (inferred, declared) if d is not None]
        yield from (d for d in known_dims if symbols(d) <= self.input_dims)
        if len(set(sizes)) == 1:
            yield sizes[0]
        yield from (
            with_zero_sizes(d, symbols(d) - self.input_dims)
            for d in known_dims
            if symbols(d) & self.input_dims
        )
        if (line := _fit_line([x.length for x in self.clips], sizes)) is not None:
            yield ir.SymbolicDim(f"{line[0]}*{self.plan.time} + {line[1]}")

    def _sizes_in_clips(self, dim: Dim) -> tuple[int | None, ...]:
        return tuple(self._size_in_clip(dim, clip) for clip in self.clips)

    def _size_in_clip(self, dim: Dim, clip: Clip) -> int | None:
        try:
            return size_of(dim_text(dim, self.rename), self.plan.clip_sizes(clip))
        except ValueError:
            return None


def _computed_sizes(model: ir.Model, signature: Signature) -> tuple[Dim, ...]:
    """Return the sizes that the model computes from those of its inputs, the shortest first."""
    inferred, names = shapes.infer(model, usual=True), set(signature.symbols())
    shape_data = (inferred.known_elements(x) or () for node in model.graph for x in node.outputs)
    sizes = {str(x): x for each in shape_data for x in each if not isinstance(x, int)}
    order = sorted(sizes, key=lambda x: (len(x), x))
    return tuple(sizes[x] for x in order if symbols(sizes[x]) <= names)


def _fit_line(lengths: Sequence[int], sizes: Sequence[int]) -> tuple[int, int] | None:
    """Return ``(n, c)`` of ``n * T + c`` in whole numbers, if clips of enough lengths agree."""
    pairs = sorted(set(zip(lengths, sizes, strict=True)))
    if len(pairs) < _ENOUGH:
        return None
    (first, low), (last, high) = pairs[0], pairs[-1]
    if first == last or high <= low or (high - low) % (last - first):
        return None
    n = (high - low) // (last - first)
    c = low - n * first
    return (n, c) if all(n * length + c == size for length, size in pairs) else None


def _use_input_name(dim: Dim, users: Mapping[str, str]) -> Dim:
    """Return a declared dim under the name that inputs use, or without a name."""
    if isinstance(dim, int) or dim.value is None:
        return dim
    if dim.value in users:
        return ir.SymbolicDim(users[dim.value])
    try:
        dim.free_symbols()
    except ValueError:  # it is a name such as x.2, of no input
        return ir.SymbolicDim(None)
    return dim


def _dim_at(dims: Sequence[Dim] | None, axis: int) -> Dim | None:
    dim = dims[axis] if dims is not None and axis < len(dims) else None
    return None if isinstance(dim, ir.SymbolicDim) and not dim.value else dim


def _join_first(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:4])) + (", ..." if len(numbers) > 4 else "")


def _case_of(signature: Signature, plan: Sizing, clip: Clip) -> Case:
    sizes = key_by_user_name(signature, signature.symbol_sizes(plan.clip_sizes(clip)))
    return Case(f"{clip.length}", sizes, dict(clip.feeds))
