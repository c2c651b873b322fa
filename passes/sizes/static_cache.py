"""static-cache: the manual is the docstring of the class."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.cache_axes.cache_input import CacheInput
from graphfix.cache_axes.growth import (
    find_growing_states,
    find_growing_states_by_shape,
    unify_dims,
)
from graphfix.core import Change, Match, Pass, Skip
from graphfix.editing.builder import Builder, is_as_exported
from graphfix.errors import PaddingError, UsageError
from graphfix.facts import shapes
from graphfix.facts.symbolic.expressions import replace_symbols, symbols_of
from graphfix.facts.symbolic.sums import window_limit
from graphfix.facts.view import View
from graphfix.graph.text import describe_node, node_label
from graphfix.graph.walks import opset_of
from graphfix.spec.options import Sizes
from graphfix.spec.quoting import quote_name
from graphfix.wording import did_you_mean

from .cache.cache_builder import CacheBuilder
from .cache.cache_effects import CacheEdit, CacheEffects
from .cache.length_dependence import LengthDependence

# A Range of integers, and a Slice whose ends are inputs.
_LEAST_OPSET = 11
_MAX_LISTED = 3
_PROFILE_HINT = ". What the profile makes plain may be analysed: -p directml,static-cache"


@dataclass(frozen=True)
class StaticCache(Pass):
    """Gives a growing cache one size, with its valid entries at the end.

    The dim that is the length of caches becomes a number, and what comes out is cut to the last so
    many entries, so that it can be fed as it is. What was counted from the length, positions and
    causal masks, counts the valid entries instead, which an input `valid_past` tells; entries in
    front of these are hidden in every attention that reads them.

    Why:
        With a growing cache each token is another shape, and DirectML compiles again for each: of a
        Llama of two layers 158 of 162 kernels, at every token (onnxruntime-directml 1.24.4). With
        caches of one size, and the other sizes fixed, a step is 1 kernel and none is compiled. In
        front, because what is new is then joined where it always was, and positions count on.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        step (float[B, S, 4] x, float[B, past, 4] past_keys) =>
             (float[B, S, 4] y, float[B, total, 4] present_keys)
        {
            present_keys = Concat <axis = 1> (past_keys, x)
            turned = Transpose <perm = [0, 2, 1]> (present_keys)
            scores = MatMul (x, turned)
            weights = Softmax <axis = -1> (scores)
            y = MatMul (weights, present_keys)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        step (float[B, S, 4] x, float[B, 3, 4] past_keys, int64[1] valid_past) =>
             (float[B, S, 4] y, float[B, 3, 4] present_keys)
        <int64[1] size = {3}, int64[1] steps = {1}, int64[0] scalar = {}, int64 nought = {0},
         int64 one = {1}, float least = {-3.4028234663852886e38}, float nothing = {0.0},
         int64[1] front = {-3}, int64[1] end = {9223372036854775807}>
        {
            joined = Concat <axis = 1> (past_keys, x)
            turned = Transpose <perm = [0, 2, 1]> (joined)
            scores = MatMul (x, turned)
            shape = Shape (x)
            new = Gather <axis = 0> (shape, steps)
            there = Add (size, new)
            count = Reshape (there, scalar)
            place = Range (nought, count, one)
            spare = Sub (size, valid_past)
            invalid = Less (place, spare)
            hide = Where (invalid, least, nothing)
            hidden = Add (scores, hide)
            weights = Softmax <axis = -1> (hidden)
            y = MatMul (weights, joined)
            present_keys = Slice (joined, front, end, steps)
        }

    Safety:
        Exact, up to rounding, as long as no more entries are valid than the size, and verified. All
        is repaired or nothing: an operator that mixes the entries of a cache, and has no rule, is
        an error that names the node. Where caches are full, the first entry is dropped for each
        that comes: the numbers are then those of the model with a window of that size. A model
        that cuts its own caches to a window takes that window as the size.
        Rows of a batch have caches of one length; a mask says what of them is padding.

    Options:
        dims: The size of each dim that is the length of caches, by the dim's own name, such as
            `static-cache:past_sequence_length=256`. Caches of an encoder's outputs, which do not
            grow, take a size in the same way, and are filled up in front.

    Spec:
        static-cache:past=3
    """

    may_change = frozenset({"dims", "inputs", "outputs"})

    dims: Sizes = ()

    def __post_init__(self) -> None:
        for name, size in self.dims:
            if size < 1:
                raise ValueError(f"{name}={size} is no size; it must be at least 1")

    def runs_at(self, model: ir.Model) -> Mapping[str, Sequence[int]]:
        """Return the lengths to compare at: full, half full, one entry and none."""
        input_dims = shapes.input_dim_names(model)
        return {x: tuple(sorted({0, 1, n // 2, n})) for x, n in self.dims if x in input_dims}

    def sites(self, model: ir.Model) -> Iterator[Match | Skip]:
        """Yield the nodes that change, and those that cannot be analysed."""
        if not self.dims and len(model.graph):
            copy = model.clone()
            unify_dims(copy)
            names = [
                x.dim for x in find_growing_states(copy, shapes.infer(copy, usual=True)) if x.dim
            ]
            reason = "no size is given; static-cache:" + ":".join(
                f"{quote_name(x)}=SIZE" for x in dict.fromkeys(names)
            )
            if names:
                yield Skip(model.graph[0], f"{reason} would give the caches one")
        for cache in self._unfixed_caches(model.clone()):
            yield from cache.sites()

    def message(self, site: Match) -> str:
        """Describe the change of a node."""
        return f"{site.node.op_type} {site.effect}" if isinstance(site, CacheEdit) else ""

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Give every cache its size, or none.

        Raises:
            PaddingError: A node cannot be analysed.
        """
        for name, size in self.dims:
            for cache in StaticCache(((name, size),))._unfixed_caches(model):
                yield from cache.fix_size()

    def _unfixed_caches(self, model: ir.Model) -> Iterator[_SharedLengthCaches]:
        """Yield the caches that have no fixed size yet."""
        fixed_dims = {x.dim for x in CacheInput.all_from_metadata(model)}
        for name, size in self.dims:
            if name not in fixed_dims:
                yield _SharedLengthCaches(model, name, size)


class _SharedLengthCaches:
    """The caches of one symbolic length, which gets a fixed size."""

    def __init__(self, model: ir.Model, name: str, size: int) -> None:
        self._model, self._size = model, size
        signature = unify_dims(model)
        symbol = signature.symbol_of(name)
        if symbol is None or symbol in signature.derived:
            dim_names = [signature.user_name(x) for x in signature.symbols()]
            raise UsageError(
                f"static-cache: no input has a dim named {name!r}{did_you_mean(name, dim_names)} "
                f"The symbolic dims are: {', '.join(dim_names) or 'none'}"
            )
        self.symbol = signature.group_of(symbol)
        fills = {x.name: x.role.padded for x in signature.inputs if x.role.kind == "mask"}
        self._shapes = shapes.infer(model, usual=True)
        states = find_growing_states(model, self._shapes)
        states += find_growing_states_by_shape(model, self._shapes, states)
        self._states = [x for x in states if x.dim == self.symbol]
        padded = []
        for value in model.graph.inputs:
            for axis, dim in enumerate(self._shapes.dims(value) or ()):
                if self.symbol in symbols_of(dim):
                    padded.append((value.name or "", axis, float(fills.get(value.name or "", 0.0))))
        self._padded = tuple(padded)

    def sites(self) -> Iterator[CacheEdit | Skip]:
        """Yield each node that changes, in order."""
        graph = self._model.graph
        if len(graph) and opset_of(self._model) < _LEAST_OPSET:
            yield Skip(graph[0], f"it takes opset {_LEAST_OPSET}: convert the model to it")
            return
        inputs_by_name = {x.name: x for x in graph.inputs}
        caches = [x for x in graph.inputs if x.name in {s.input for s in self._states}]
        masks = [
            inputs_by_name[x]
            for x, _, fill in self._padded
            if fill == 0 and inputs_by_name[x] not in caches
        ]
        lengths = LengthDependence(self._shapes, self.symbol, self._window_size())
        yield from CacheEffects(self._model, lengths, caches, masks).sites()

    def _window_size(self) -> int | None:
        """Return how many entries the model itself keeps, or None."""
        outputs = {x.name: self._shapes.dims(x) or () for x in self._model.graph.outputs}
        cuts = [window_limit(outputs[x.output][x.axis or 0], self.symbol) for x in self._states]
        return max((x[1] for x in cuts if x), default=0) if cuts and all(cuts) else None

    def fix_size(self) -> Iterator[Change | Skip]:
        """Edit the model so that the caches have one size."""
        sites = list(self.sites())
        if refused := [x for x in sites if isinstance(x, Skip)]:
            raise PaddingError(_refusal_message(self._model, self.symbol, refused))
        graph = self._model.graph
        order = {node: i for i, node in enumerate(graph)}
        edits = sorted((x for x in sites if isinstance(x, CacheEdit)), key=lambda x: order[x.node])
        builder = Builder(StaticCache.name, View(self._model))
        length_input = ir.Value(
            name=self._new_input_name(), shape=ir.Shape([1]), type=ir.TensorType(ir.DataType.INT64)
        )
        inputs = [(x, self._shapes.dims(x) or ()) for x in graph.inputs]
        makers = CacheBuilder(builder, length_input, self.symbol, self._size, inputs)
        if edits:
            graph.inputs.append(length_input)
        for edit in edits:
            yield _apply_edit(edit, builder, makers)
        yield from self._cut_outputs(builder)
        yield from self._write_sizes()
        CacheInput(
            length_input.name or "" if edits else "",
            self.symbol,
            self._size,
            self._padded,
            tuple((x.input, x.output, x.axis or 0) for x in self._states),
        ).write_metadata(self._model)

    def _cut_outputs(self, builder: Builder) -> Iterator[Change]:
        """Cut each output cache to its last entries."""
        outputs = {x.name: x for x in self._model.graph.outputs}
        for state in self._states:
            value, axis = outputs[state.output], state.axis or 0
            cut = window_limit((self._shapes.dims(value) or ())[axis], self.symbol)
            if cut is not None and cut[1] != self._size:
                raise UsageError(
                    f"static-cache: the model itself keeps {cut[1]} entries of {state.output}, so "
                    f"its cache has that size: static-cache:{self.symbol}={cut[1]}"
                )
            if cut is not None:
                continue
            builder.start_site(self._model.graph[-1])
            builder.wrap_output(value, functools.partial(_slice_last, builder, self._size, axis))
            description = f"{state.output} = the last {self._size} entries along axis {axis}"
            yield Change(StaticCache.name, state.output, state.output, (), (description,))

    def _write_sizes(self) -> Iterator[Change]:
        """Write the fixed size into the declared shapes."""
        graph = self._model.graph
        shapes.drop_shapes(self._model)
        for value in graph.inputs:
            name, before = value.name or "", f"{value.type}{value.shape} {value.name}"
            value.shape = ir.Shape(
                [replace_symbols(x, {self.symbol: self._size}) for x in value.shape or ()]
            )
            if (after := f"{value.type}{value.shape} {value.name}") != before:
                yield Change(StaticCache.name, name, name, (before,), (after,))
        new_shapes = shapes.shapes_of(self._model)
        names = set(shapes.input_dim_symbols(self._model))
        for value in (*graph.outputs, *(x for node in graph for x in node.outputs)):
            dims = new_shapes.dims(value)
            if value.shape is not None and dims is not None:
                value.shape = ir.Shape([x if symbols_of(x) <= names else None for x in dims])

    def _new_input_name(self) -> str:
        """Return an unused name for the input that counts valid entries."""
        name = f"valid_{self.symbol}"
        used_names = {x.name for x in self._model.graph.inputs}
        used_names |= {x.name for node in self._model.graph for x in node.outputs}
        while name in used_names:
            name += "_"
        return name


def _slice_last(builder: Builder, count: int, axis: int, value: ir.Value) -> ir.Value:
    """Build a Slice of the last ``count`` entries along an axis."""
    front, end = np.array([-count], np.int64), np.array([np.iinfo(np.int64).max], np.int64)
    return builder.Slice(value, front, end, np.array([axis], np.int64))


def _apply_edit(edit: CacheEdit, builder: Builder, makers: CacheBuilder) -> Change:
    """Apply one edit to its node and return the change."""
    node = edit.node
    at, tensor = node_label(node), node.outputs[0].name or ""

    def build_output() -> ir.Value | None:
        if edit.output is not None:
            return edit.output(makers, node.outputs[0])
        for place, make in edit.inputs.items():
            value = node.inputs[place]
            if value is not None:
                builder.set_input(place, make(makers, value))
        return None

    return Change(StaticCache.name, at, tensor, *builder.repair(node, build_output), edit.effect)


def _refusal_message(model: ir.Model, symbol: str, skips: Sequence[Skip]) -> str:
    """Return the error text that lists the nodes that cannot be analysed."""
    lines = [f"{describe_node(x.node)}: {x.reason}" for x in skips[:_MAX_LISTED]]
    more_text = f"; and {len(skips) - _MAX_LISTED} more" if len(skips) > _MAX_LISTED else ""
    return (
        f"static-cache cannot see what a cache of one size ({symbol}) does to this model, so it "
        "changes nothing: "
        f"{'; '.join(lines)}{more_text}{_PROFILE_HINT if is_as_exported(model) else ''}"
    )
