"""thaw: the manual is the docstring of the class."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.core import Change, Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts import shapes
from graphfix.facts.forced_sizes import solve_sizes
from graphfix.facts.shapes import Dim, input_dim_symbols
from graphfix.facts.size_relations import relations_of
from graphfix.facts.symbolic.expressions import symbols_of
from graphfix.facts.view import View
from graphfix.graph.constants import ints_of
from graphfix.graph.dim_spelling import DimSpelling
from graphfix.graph.dims import is_nameless
from graphfix.graph.nodes import input_at, is_op
from graphfix.graph.walks import opset_of
from graphfix.ops.reshapes import copies_zeros
from graphfix.spec.quoting import quote_name

from .dims.fixed_dims import renew_shape
from .dims.frozen import ThawedTarget, dims_text, thaw_target, why_pinned


@dataclass(frozen=True)
class FrozenSite(Match):
    """A Reshape that fits at one size only.

    Attributes:
        data: What is reshaped.
        thawed: The target that fits at every size.
    """

    data: ir.Value
    thawed: ThawedTarget


@dataclass(frozen=True)
class Thaw(NodePass[FrozenSite]):
    """Restores the dynamic length in a Reshape that tracing fixed.

    The entry that stands for a symbolic dim is found by counting elements, never by names; it
    becomes 0, or -1 where the dim is at another place. Shapes are inferred again after each round,
    since a frozen Reshape hides the dim from those behind it, and declared shapes that held the
    frozen size are written again.

    Why:
        A size that Python computed while tracing is a constant in the file: the model says that its
        input is [B, T, C] and runs at one T only. Run on the real EP (onnxruntime-directml 1.24.4),
        the example below, frozen at 7: 5 frames end in 8007023E, and of 9 frames the last two are
        dropped in silence, where the CPU refuses both. Thawed, both run and are right. Two encoders
        frozen at one length (HuBERT and wav2vec2 of the zoo) compute after it what the open
        originals do.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        heads (float[1, T, 8] x) => (float[1, 4, T, 2] y)
        <int64[4] split = {1, 7, 4, 2}>
        {
            s = Reshape (x, split)
            y = Transpose <perm = [0, 2, 1, 3]> (s)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        heads (float[1, T, 8] x) => (float[1, 4, T, 2] y)
        <int64[4] split = {1, 0, 4, 2}>
        {
            s = Reshape (x, split)
            y = Transpose <perm = [0, 2, 1, 3]> (s)
        }

    Left alone:
        A batch of 1 that the target takes, "runs only where B is 1":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        rows (float[B, 8] x) => (float[1, 8] y)
        <int64[2] target = {1, 8}>
        {
            y = Reshape (x, target)
        }

    Safety:
        Exact at the one size at which the original runs; at the others it failed, and now gives
        what element counts force: each entry is a whole number times a power of the dim, and the
        target holds the frozen size exactly as often as the data hold the dim. A 1 follows a batch
        at its place if an output declares that batch where it would be 1. Skipped, with
        the numbers: a target in which two entries could stand for the dim, as in [8, 8] of [T, 8];
        one that two different dims go into, such as a batch and a length; a -1 beside a frozen
        length; an Expand or a tensor of fixed size, such as positions, that is broadcast against
        a symbolic dim: it runs at two sizes, 1 and its own, and nobody can extend its numbers; a
        node that fits at one size because of pads or slices, which Python computed from it. A Slice
        is never taken for frozen: it may be meant.
    """

    anchors = ("Reshape", "Expand", *sorted(ops.BROADCASTS))
    keeps_shapes = False

    def match(self, node: ir.Node, view: View) -> FrozenSite | Skip | None:
        """Return the site of a Reshape, or a Skip of a broadcast, that fits at one size only."""
        if is_op(node, "Reshape"):
            return self._match_reshape(node, view)
        expands = is_op(node, "Expand")  # its data, to the contents of its shape
        pairs = permutations(node.inputs, 2)
        for fixed, data in [(node.inputs[1], node.inputs[0])] if expands else pairs:
            if fixed is None or data is None or data is fixed:
                continue
            frozen = ints_of(fixed) if expands else view.shapes.dims(fixed)
            dims = self._traceable_dims(data, view)
            pinned = None if frozen is None or dims is None else why_pinned(frozen, dims)
            if frozen is not None and dims is not None and pinned is not None:
                meeting = (
                    f"{fixed.name!r} {dims_text(frozen)} meets {data.name!r} {dims_text(dims)}"
                )
                return Skip(node, f"{meeting}, which runs only where {pinned}")
        return None

    def _match_reshape(self, node: ir.Node, view: View) -> FrozenSite | Skip | None:
        """Return the site of a Reshape that fits at one size only, or None."""
        data, target = node.inputs[0], ints_of(input_at(node, 1))
        dims = self._traceable_dims(data, view)
        if data is None or dims is None or target is None:
            return None
        if 0 in target and not copies_zeros(node):
            return None
        thawed = thaw_target(dims, target)
        if isinstance(thawed, str) and 1 in target:
            thawed = thaw_target(dims, target, _promised_symbols(view))
        if isinstance(thawed, str):
            return Skip(node, thawed)
        return None if thawed is None else FrozenSite(node, data, thawed)

    def _traceable_dims(self, value: ir.Value | None, view: View) -> Sequence[Dim] | None:
        """Return the dims if each is a number or follows the dims of the inputs."""
        dims = view.shapes.dims(value)
        if dims is None:
            return None
        follow = (
            isinstance(x, int) or (x.value and symbols_of(x) <= view.dim_symbols) for x in dims
        )
        return dims if all(follow) else None

    def sites(self, model: ir.Model) -> Iterator[FrozenSite | Skip]:
        """Yield the sites and near misses, and then what else dictates the size of a dim."""
        told, thawed = set[ir.Node](), set[str]()
        for site in super().sites(model):
            told.add(site.node)
            if isinstance(site, FrozenSite):
                thawed |= symbols_of(site.thawed.dim)
            yield site
        for skip, dim in _baked_elsewhere(model):
            if skip.node not in told and dim not in thawed:
                yield skip

    def rewrite(self, match: FrozenSite, op: Builder) -> ir.Value:
        """Build the same Reshape with a target that fits at every size."""
        return op.Reshape(match.data, np.array(match.thawed.target, np.int64))

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Thaw until nothing more follows, then write the declared shapes again."""
        before = {x.name: dims for x, dims in _outputs_with_dims(model)}
        changed = False
        while True:
            events = list(super().repair(model))
            changes = [x for x in events if isinstance(x, Change)]
            yield from changes
            if not changes:
                yield from events
                told = {x.node for x in events if isinstance(x, Skip)}
                yield from (x for x, _ in _baked_elsewhere(model) if x.node not in told)
                break
            changed = True
            shapes.drop_shapes(model)
        names, spelling = frozenset(input_dim_symbols(model)), DimSpelling(model)
        for value, dims in _outputs_with_dims(model) if changed else ():
            if value.shape is not None and before.get(value.name) != dims:
                value.shape = renew_shape(value.shape, dims, names, spelling)

    def runs_at(self, model: ir.Model) -> Mapping[str, Sequence[int]]:
        """Return the size that each dim was frozen at: the original runs at no other."""
        targets = [x.thawed for x in self.sites(model) if isinstance(x, FrozenSite)]
        names, spelling = input_dim_symbols(model), DimSpelling(model)
        return {spelling.name_of(str(x.dim)): (x.size,) for x in targets if str(x.dim) in names}

    def message(self, site: Match) -> str:
        """Describe the dim and the size that it was frozen at."""
        assert isinstance(site, FrozenSite)
        return f"its target is frozen at {site.thawed.dim} = {site.thawed.size}"


def _promised_symbols(view: View) -> set[str]:
    """Return the symbols that the declared shapes of outputs have where inference gives 1."""
    spelling, promised = DimSpelling(view.model), set[str]()
    for output in view.model.graph.outputs:
        dims = view.shapes.dims(output) or ()
        for declared, inferred in zip(output.shape or (), dims, strict=False):
            if inferred == 1 and not is_nameless(declared):
                promised |= symbols_of(spelling.to_symbolic(declared))
    return promised


def _baked_elsewhere(model: ir.Model) -> Iterator[tuple[Skip, str]]:
    """Yield nodes that run at one size of a dim although no weight wants it, and the dim.

    Constants hold that size where only Python computed with it, as in the pads and slices of a
    relative position; nothing in the graph says which of them follow the dim.
    """
    symbols = input_dim_symbols(model)
    if not symbols:
        return
    relations = relations_of(model.graph, shapes.shapes_of(model), opset_of(model))
    nodes = {x.source: x for x in reversed(relations.always) if not x.is_of_weight}
    for symbol, forced in solve_sizes(relations, symbols).forced.items():
        if (relation := nodes.get(forced.source)) is not None:
            name = DimSpelling(model).name_of(symbol)
            reason = (
                f"it wants {relation.a} = {relation.b}, which runs only where {name} is "
                f"{forced.size}: constants before it hold this size, and none of them is an entry "
                f"of a shape; export the model with a dynamic {name}, or run fix-dims:"
                f"{quote_name(name)}={forced.size}"
            )
            yield Skip(relation.node, reason), symbol


def _outputs_with_dims(model: ir.Model) -> list[tuple[ir.Value, tuple[Dim, ...]]]:
    """Return all node outputs whose dims are known, with the dims."""
    view = View(model)
    outputs = (x for node in model.graph.all_nodes() for x in node.outputs)
    return [(x, dims) for x in outputs if (dims := view.shapes.dims(x)) is not None]
