"""fix-dims: the manual is the docstring of the class."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Change, Match, Pass, Skip, ValueMatch
from graphfix.editing.builder import Builder
from graphfix.errors import UsageError
from graphfix.facts import shapes
from graphfix.facts.shapes import input_dim_names
from graphfix.facts.symbolic.expressions import symbols_of
from graphfix.facts.view import View
from graphfix.graph.dim_spelling import DimSpelling
from graphfix.graph.dims import dim_names, is_nameless, name_dims
from graphfix.spec.options import Sizes
from graphfix.spec.quoting import (
    partition_outside_quotes,
    quote_name,
    split_outside_quotes,
    unquote_name,
)

from ..common.fold_view import FoldView
from .dims.fixed_dims import SHORT_NAMES, find_conflicts, require_dims, set_sizes, sizes_by_name
from .fold_rules.constants import arrays_from_sizes

KEY = "graphfix.dims"


@dataclass(frozen=True)
class FixDims(Pass):
    """Gives symbolic dims of the inputs a size, and folds what was computed from them.

    The sizes are written wherever the model declares a shape: inputs, outputs, intermediate
    tensors, also in the graphs inside it. Shape arithmetic that became constant, index vectors and
    small masks become initializers, and what only they needed goes. Weights are not read.

    Why:
        DirectML fuses a graph only where every shape is static and every CPU input an initializer
        (GraphPartitioner.cpp 145-245); one symbolic dim, and each operator behind it is a dispatch
        of its own, created again for each run at another size than the first
        (MLOperatorAuthorImpl.cpp 2511-2691). Run on the real EP (onnxruntime-directml 1.24.4), from
        dynamic to fixed, the kernels of one run: BERT 115 and 1, DistilBERT 87 and 1, a Whisper
        encoder 77 and 1, SANM 123 and 5, wav2vec2 with a mask, whose lengths are data, 212 and 17.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        heads (float[B, T, 4] x) => (float[B, T, 2, 2] y, bool[T] late)
        <int64 zero = {0}, int64 one = {1}, int64[2] head = {2, 2}, int64 half = {2}>
        {
            size = Shape <start = 0, end = 2> (x)
            target = Concat <axis = 0> (size, head)
            y = Reshape (x, target)
            time = Shape <start = 1, end = 2> (x)
            t = Squeeze (time)
            index = Range (zero, t, one)
            middle = Div (t, half)
            late = GreaterOrEqual (index, middle)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 18]
        >
        heads (float[B, 6, 4] x) => (float[B, 6, 2, 2] y, bool[6] late)
        <int64[2] head = {2, 2}>
        {
            size = Shape <start = 0, end = 2> (x)
            target = Concat <axis = 0> (size, head)
            y = Reshape (x, target)
            late_now = Constant <value = bool[6] {0, 0, 0, 1, 1, 1}> ()
            late = Identity (late_now)
        }

    Left alone:
        A Reshape to a length of its export, which "cannot run at these sizes":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        frozen (float[1, T, 4] x) => (float[1, 5, 4] y)
        <int64[3] frozen = {1, 5, 4}>
        {
            y = Reshape (x, frozen)
        }

    Safety:
        Exact at the given sizes, at which it is verified; the model runs at no others. Only
        integers, booleans and what moves data are folded, and float32 and float64 arithmetic that
        rounds the same everywhere (no Sin, Exp or Pow), up to 4096 elements; nothing in local
        functions. Refused as a whole if a node must fail at these sizes: a Reshape to a length
        frozen at export, a broadcast, a MatMul or a Concat that does not fit. A name that no input
        has is an error, and so is another size for a dim that is fixed already.

    Options:
        dims: The size of each dim, by the dim's own name: `fix-dims:T=500:B=1`, or with a comma
            between them. Unnamed dims are addressed by position: axis 0 of the input `x` is
            `x.0`, or `x_0` as it is printed. Where no dim is called so, `B` is the batch and `T`
            the only other dim that varies. Dims that are not named stay symbolic.
            Models of several sizes, with one file of weights, are made by `graphfix ship`.

    Spec:
        fix-dims:T=6
    """

    may_change = frozenset({"dims"})

    dims: Sizes = ()

    def __post_init__(self) -> None:
        for name, size in self.dims:
            if size < 1:
                raise ValueError(f"{name}={size} is no size; it must be at least 1")

    def runs_at(self, model: ir.Model) -> Mapping[str, Sequence[int]]:
        """Return the given sizes: the models are compared at no others."""
        input_dims, sizes = input_dim_names(model), self._sizes(model)
        return {name: (size,) for name, size in sizes.items() if name in input_dims}

    def sites(self, model: ir.Model) -> Iterator[ValueMatch | Skip]:
        """Yield the inputs that would be fixed, or nodes that cannot run at these sizes."""
        yield from self._find_sites(model, self._sizes(model))

    def _find_sites(self, model: ir.Model, sizes: Mapping[str, int]) -> Iterator[ValueMatch | Skip]:
        """Yield what :meth:`sites` does, for sizes by the model's names of its dims."""
        input_sites = list(self._find_inputs(model, sizes))
        if not self.dims and (names := input_dim_names(model)) and len(model.graph):
            example = ":".join(f"{quote_name(x)}=SIZE" for x in names)
            yield Skip(model.graph[0], f"no size is given; fix-dims:{example} would fix them all")
        if input_sites:
            fixed = model.clone()
            name_dims(fixed)
            spelling = DimSpelling(fixed)
            for value in fixed.graph.inputs:
                set_sizes(value, sizes, None, spelling)
            originals = dict(zip(fixed.graph, model.graph, strict=True))
            blocked = [Skip(originals[x.node], x.reason) for x in find_conflicts(View(fixed))]
            yield from blocked
            if not blocked:
                yield from input_sites

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Write the sizes, infer again, fold what became constant."""
        sizes = self._sizes(model)
        sites = list(self._find_sites(model, sizes))
        yield from (x for x in sites if isinstance(x, Skip))
        if not sites or any(isinstance(x, Skip) for x in sites):
            return
        self._name_dims(model, sizes)
        spelling = DimSpelling(model)
        yield from self._set_input_sizes(model, sizes, spelling)
        shapes.drop_shapes(model)
        view = View(model)
        for graph in (model.graph, *model.graph.subgraphs()):
            for value in (*graph.inputs, *(x for node in graph for x in node.outputs)):
                set_sizes(value, sizes, view.shapes.dims(value), spelling)
        _write_missing_shapes(view)
        yield from self._fold_sizes(view)
        short_names = {name: size for name, size in self.dims if name in SHORT_NAMES}
        fixed_sizes = _sizes_fixed_before(model) | sizes | short_names
        model.metadata_props[KEY] = ":".join(
            f"{quote_name(k)}={fixed_sizes[k]}" for k in sorted(fixed_sizes)
        )

    def _set_input_sizes(
        self, model: ir.Model, sizes: Mapping[str, int], spelling: DimSpelling
    ) -> Iterator[Change]:
        """Write the sizes of the model's inputs."""
        for value in model.graph.inputs:
            before = f"{value.type}{value.shape} {value.name}"
            if set_sizes(value, sizes, None, spelling):
                after = f"{value.type}{value.shape} {value.name}"
                yield Change(self.name, value.name or "", value.name or "", (before,), (after,))

    def message(self, site: Match) -> str:
        """Describe the input and the dims that would be fixed."""
        assert isinstance(site, ValueMatch)
        return f"input {site.value.name!r} {site.value.shape} would be fixed at {self.spec()[9:]}"

    def _sizes(self, model: ir.Model) -> dict[str, int]:
        """Return the sizes by the model's names of its dims."""
        return sizes_by_name(model, self.dims, self.name, _sizes_fixed_before(model))

    def _find_inputs(self, model: ir.Model, sizes: Mapping[str, int]) -> Iterator[ValueMatch]:
        """Yield the inputs with a dim that gets a size."""
        fixed_sizes = _sizes_fixed_before(model)
        for name, size in sizes.items():
            if fixed_sizes.get(name, size) != size:
                raise UsageError(f"{self.name}: {name} is fixed at {fixed_sizes[name]} already")
        new_names = sizes.keys() - fixed_sizes.keys()
        require_dims(sorted(new_names), input_dim_names(model), self.name)
        names_by_place, spelling = dim_names(model), DimSpelling(model)
        symbols = set(map(spelling.symbol_of, new_names))
        for value in model.graph.inputs:
            places = [(value.name or "", axis) for axis in range(len(value.shape or ()))]
            if any(
                symbols_of(spelling.to_symbolic(dim)) & symbols for dim in value.shape or ()
            ) or any(names_by_place.get(place) in new_names for place in places):
                users = [use.node for use in value.uses()] or list(model.graph)
                if users:
                    yield ValueMatch(users[0], value)

    def _name_dims(self, model: ir.Model, sizes: Mapping[str, int]) -> None:
        """Name the nameless dims that get a size."""
        names_by_place = dim_names(model)
        for value in model.graph.inputs:
            for axis, dim in enumerate(value.shape or ()):
                name = names_by_place.get((value.name or "", axis), "")
                if is_nameless(dim) and name in sizes and value.shape is not None:
                    value.shape = value.shape.copy()
                    value.shape[axis] = name

    def _fold_sizes(self, view: View) -> Iterator[Change]:
        """Replace what became constant with initializers."""
        builder, constants = Builder(self.name, view), arrays_from_sizes(FoldView(view))
        for value, array in constants.items():
            node = value.producer()
            if node is None or node.graph is None:  # what used it went with an earlier one
                continue
            users = (x for use in value.uses() for x in use.node.outputs[:1])
            if not value.is_graph_output() and all(x in constants for x in users):
                continue
            at, tensor = node.name or node.op_type, node.outputs[0].name or ""
            builder.start_site(node)
            constant = builder.constant(array)
            removed, added = builder.replace_site_as_text(constant)
            line = f"{constant.name} = {array.dtype}{list(array.shape)}"
            yield Change(self.name, at, tensor, removed, (line, *added))


def _write_missing_shapes(view: View) -> None:
    """Write the shapes that ONNX Runtime does not infer: DirectML fuses nothing behind them.

    Below opset 16 LessOrEqual and GreaterOrEqual are functions without shape inference.
    """
    for node in view.nodes("LessOrEqual", "GreaterOrEqual"):
        value, dims = node.outputs[0], view.shapes.dims(node.outputs[0])
        if view.opset_of_node(node) < 16 and value.shape is None and dims is not None:
            value.shape = ir.Shape([x if isinstance(x, int) else None for x in dims])
            value.dtype = ir.DataType.BOOL


def _sizes_fixed_before(model: ir.Model) -> dict[str, int]:
    """Return the sizes that earlier runs of the pass fixed, from the metadata."""
    pairs = (
        partition_outside_quotes(text, "=")
        for text in split_outside_quotes(model.metadata_props.get(KEY, ""), ":")
        if text
    )
    return {unquote_name(name): int(size) for name, _, size in pairs}
