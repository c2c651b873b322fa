"""fresh-shapes: the manual is the docstring of the class."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import onnx_ir as ir

from graphfix.core import Change, Match, Pass
from graphfix.facts.forced_sizes import ForcedSize, forced_sizes_of
from graphfix.facts.shapes import Dim, input_dim_symbols
from graphfix.facts.view import View
from graphfix.graph.dim_spelling import DimSpelling
from graphfix.graph.nodes import input_at, is_op
from graphfix.graph.text import node_label
from graphfix.graph.walks import nodes_of

from .dims.fixed_dims import contradicts_shape, renew_shape


@dataclass(frozen=True)
class StaleSite(Match):
    """A tensor whose declared shape contradicts the one that follows from the inputs.

    Attributes:
        value: The tensor.
        inferred: What its shape is; None if not even its rank is the same in all runs.
    """

    value: ir.Value
    inferred: tuple[Dim, ...] | None


@dataclass(frozen=True)
class FreshShapes(Pass):
    """Replaces a declared shape that contradicts the graph with the inferred one.

    A dim contradicts if it is another number, a number where the inferred one follows a symbolic
    dim of the inputs, or the name of an input's dim that it is not. Only such dims are written
    again; a shape of another rank is written as a whole. Dims that cannot be inferred are left
    without a name.

    Why:
        Run on the real EP (onnxruntime-directml 1.24.4): a tensor declared as [B, 200, 8] that is
        [B, 6, 8] at this run ends it in 80070057, as the EP holds what is declared against what is
        (MLOperatorAuthorImpl.cpp 2920-2936); the CPU runs the same model. A false width does no
        harm there, since ONNX Runtime infers over it, but it stops quantizers and others that
        infer shapes strictly ("Inferred shape and existing shape differ in dimension 2: (896) vs
        (3584)"), and of two real models with one false width each, ONNX Runtime 1.31 did not load
        one ("Incompatible dimensions for matrix multiplication").

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        split (float[B, T, 8] x) => (float[B, T, 2, 4] y)
        <int64[4] heads = {0, 0, 2, 4}, float[B, 100, 16] r>
        {
            r = Relu (x)
            y = Reshape (r, heads)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        split (float[B, T, 8] x) => (float[B, T, 2, 4] y)
        <int64[4] heads = {0, 0, 2, 4}, float[B, T, 8] r>
        {
            r = Relu (x)
            y = Reshape (r, heads)
        }

    Left alone:
        A name of its own for a dim that inference does not know:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        found (float[N] x) => (int64[1, M] y)
        <int64[1, count] places>
        {
            places = NonZero (x)
            y = Neg (places)
        }

        The name of a dim that the graph lets be that number only:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        forced (float[N, 64] x) => (float[N, 64] y)
        <int64[2] row = {1, 64}>
        {
            y = Reshape (x, row)
        }

    Safety:
        Exact: no node changes, only what the file says of shapes, outputs included: a false number
        in the shape of an output is that same 80070057. A name stays where the graph lets that dim
        be the inferred number only: N of a Reshape to [1, 64] is 1. Where inference knows nothing
        of a dim, what is declared stays. Behind a Squeeze without axes, which drops the batch where
        it is 1, the rank is that of the run: a shape that is declared there is dropped (speechmos'
        PLCMOS declares a scalar, and ends in 80070057 at two clips). Shapes in local functions are
        not looked at.
    """

    keeps_shapes = True  # they are inferred without what is declared

    def sites(self, model: ir.Model) -> Iterator[StaleSite]:
        """Yield every tensor whose declared shape contradicts the inferred one."""
        view, names, spelling = View(model), frozenset(input_dim_symbols(model)), DimSpelling(model)
        forced = cache(lambda: forced_sizes_of(model))
        open_ranks: set[ir.Value | None] = set()
        for node in nodes_of(model.graph):
            is_open = _squeezes_all_ones(node) or not open_ranks.isdisjoint(node.inputs)
            for value in node.outputs:
                inferred = view.shapes.dims(value)
                if inferred is None and is_open:
                    open_ranks.add(value)
                    if value.shape is not None:
                        yield StaleSite(node, value, None)
                if value.shape is None:
                    continue
                if inferred is None or not contradicts_shape(
                    value.shape, inferred, names, spelling
                ):
                    continue
                named = _with_names_of_forced_dims(value.shape, inferred, forced(), spelling)
                if contradicts_shape(value.shape, named, names, spelling):
                    yield StaleSite(node, value, named)

    def repair(self, model: ir.Model) -> Iterator[Change]:
        """Write the inferred dims where the declared ones contradict them."""
        names, spelling = frozenset(input_dim_symbols(model)), DimSpelling(model)
        for site in list(self.sites(model)):
            value = site.value
            before = f"{value.type}{value.shape} {value.name}"
            if site.inferred is None:
                value.shape = None
            else:
                value.shape = renew_shape(value.shape, site.inferred, names, spelling)
            after = f"{value.type}{value.shape or ''} {value.name}"
            yield Change(self.name, node_label(site.node), value.name or "", (before,), (after,))

    def message(self, site: Match) -> str:
        """Describe the declared and the inferred shape."""
        assert isinstance(site, StaleSite)
        actual = "of another rank in each run" if site.inferred is None else ir.Shape(site.inferred)
        return f"{site.value.name!r} is declared as {site.value.shape} and is {actual}"


def _with_names_of_forced_dims(
    declared: ir.Shape,
    inferred: tuple[Dim, ...],
    forced: Mapping[str, ForcedSize],
    spelling: DimSpelling,
) -> tuple[Dim, ...]:
    """Return inferred dims, with the declared name of a dim that may only have that number."""
    if len(declared) != len(inferred):
        return inferred
    sizes = [None if isinstance(x, int) else forced.get(x.value or "") for x in declared]
    return tuple(
        spelling.to_symbolic(name) if size is not None and size.size == dim else dim
        for name, size, dim in zip(declared, sizes, inferred, strict=True)
    )


def _squeezes_all_ones(node: ir.Node) -> bool:
    """Return whether a Squeeze drops every dim that is 1 in a run."""
    return is_op(node, "Squeeze") and input_at(node, 1) is None and "axes" not in node.attributes
