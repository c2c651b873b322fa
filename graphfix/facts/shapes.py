"""Symbolic shapes of every tensor: onnx_shape_inference, with the rules of facts/symbolic.

Shapes are kept beside the model, never written into it: a file that no pass matches stays byte
for byte what it was. ``value_info`` of the file is not believed, since it is often stale (a shape
that contradicts the graph is itself a cause of 80070057); shapes are inferred from the inputs.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import sympy
from onnx_shape_inference import SYM_DATA_KEY, ShapeInferenceContext, registry

from graphfix.facts.symbolic import expressions, inference
from graphfix.facts.symbolic.expressions import Dim as Dim
from graphfix.facts.symbolic.expressions import expr_of, is_positive, positive_parts, symbols_of
from graphfix.facts.symbolic.inferred import Facts, collect_facts
from graphfix.facts.symbolic.overrides import register_rules
from graphfix.graph.constants import MAX_CONSTANT_ELEMENTS, ints_of
from graphfix.graph.dim_spelling import DimSpelling
from graphfix.graph.dims import GENERATED_SYMBOL, dim_names, is_nameless, without_placeholder_names
from graphfix.graph.model_state import state_of
from graphfix.graph.nodes import is_op, tensor_attributes
from graphfix.graph.walks import bodies_of, graphs_of, values_of

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Shapes:
    """Symbolic dims of the values of one model, and symbolic contents of its shape tensors.

    Use :func:`shapes_of`, which keeps one per model. Values inside local functions have no shape
    here: it would depend on the call.
    """

    _dims: dict[ir.Value, tuple[Dim, ...]]
    _dtypes: dict[ir.Value, ir.DataType]
    _data: dict[ir.Value, tuple[Dim, ...]]
    _never_empty: frozenset[str] = frozenset()
    _carried: Mapping[ir.Node, Sequence[tuple[Dim, Dim]]] = field(default_factory=dict)

    def dims(self, value: ir.Value | None) -> tuple[Dim, ...] | None:
        """Return the dims of ``value``, or None where they (or their number) are unknown."""
        if value is None:
            return None
        shape = self._dims.get(value)
        if shape is None and value.const_value is not None and value.is_initializer():
            # A pass has just made it: nothing inferred it yet.
            return None if value.is_graph_input() else tuple(value.const_value.shape.numpy())
        return shape

    def has_known_dims(self, value: ir.Value) -> bool:
        """Return whether all dims of ``value`` are numbers or follow from sizes of the inputs."""
        dims = self.dims(value)
        return dims is not None and all(map(is_in_input_sizes, dims))

    def rank(self, value: ir.Value | None) -> int | None:
        """Return the number of dims of ``value``, or None where it is unknown."""
        dims = self.dims(value)
        return None if dims is None else len(dims)

    def dtype(self, value: ir.Value | None) -> ir.DataType | None:
        """Return the element type of ``value``, inferred where the file does not say it."""
        return None if value is None else value.dtype or self._dtypes.get(value)

    def known_elements(self, value: ir.Value | None) -> tuple[Dim, ...] | None:
        """Return the elements of an integer tensor of rank 0 or 1, as dims; None where unknown."""
        return None if value is None else self._data.get(value)

    def is_never_empty(self, dim: Dim, beside: Dim = 1) -> bool:
        """Return whether a dim is at least 1 in each run that succeeds, if ``beside`` is."""
        return is_positive(dim, self._never_empty | positive_parts(expr_of(beside)))

    def carried_dims(self, loop: ir.Node) -> Sequence[tuple[Dim, Dim]]:
        """Return the dims of values that a Loop carries, where they change in its first round."""
        return self._carried.get(loop, ())

    def update_from(self, inferred: Shapes, is_own_symbol: Callable[[str], bool]) -> None:
        """Take over shapes; a dim with a symbol that ``is_own_symbol`` denies becomes unknown."""

        def mask_foreign_dims(dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
            return tuple(
                x if all(map(is_own_symbol, symbols_of(x))) else ir.SymbolicDim(None) for x in dims
            )

        self._dims.update(
            (value, mask_foreign_dims(dims)) for value, dims in inferred._dims.items()
        )
        self._data.update(
            (value, mask_foreign_dims(data)) for value, data in inferred._data.items()
        )
        self._dtypes.update(inferred._dtypes)

    def refine_from(self, inferred: Shapes, values: Iterable[ir.Value]) -> None:
        """Take over dims of these values that ``inferred`` has in sizes of the inputs alone."""
        for value in values:
            for mine, theirs in ((self._dims, inferred._dims), (self._data, inferred._data)):
                if (dims := theirs.get(value)) is not None and all(map(is_in_input_sizes, dims)):
                    mine[value] = dims

    def set_constant(self, value: ir.Value, array: npt.NDArray[np.generic]) -> None:
        """Set the dims of a constant, and its elements if it may be a shape."""
        self._dims[value] = array.shape
        if array.dtype.kind == "i" and array.ndim <= 1 and array.size <= MAX_CONSTANT_ELEMENTS:
            self._data[value] = tuple(int(x) for x in array.reshape(-1))

    def set_dims_and_dtype(
        self, value: ir.Value, dims: tuple[Dim, ...], dtype: ir.DataType | None
    ) -> None:
        """Set what a pass knows better than inference of a value that it made."""
        self._dims[value] = dims
        if dtype is not None:
            self._dtypes[value] = dtype

    def for_counterparts(self, counterparts: Mapping[ir.Value, ir.Value]) -> Shapes:
        """Return the same shapes for the values of another model that stand for these."""
        dims = {counterparts[x]: entry for x, entry in self._dims.items()}
        dtypes = {counterparts[x]: entry for x, entry in self._dtypes.items()}
        data = {counterparts[x]: entry for x, entry in self._data.items()}
        return Shapes(dims, dtypes, data, self._never_empty)

    def inherit_shape(self, new: ir.Value, old: ir.Value) -> None:
        """Give ``new``, which now computes what ``old`` did, the shape of ``old``."""
        for table in (self._dims, self._dtypes, self._data):
            if old in table:
                table[new] = table[old]  # type: ignore[assignment]


def is_in_input_sizes(dim: Dim) -> bool:
    """Return whether a dim is a number or follows from sizes of the inputs."""
    return isinstance(dim, int) or (
        dim.value is not None and not GENERATED_SYMBOL.search(dim.value)
    )


def is_known_dim(dim: Dim) -> bool:
    """Return whether a dim is a number or an expression in symbols, not merely unknown."""
    return isinstance(dim, int) or dim.value is not None


same_dim = expressions.equal_dims
"""Whether two dims are equal for every size of the model's inputs."""


def same_dims(a: Sequence[Dim] | None, b: Sequence[Dim] | None) -> bool:
    """Return whether two shapes are known, and equal for every size of the model's inputs."""
    return a is not None and b is not None and len(a) == len(b) and all(map(same_dim, a, b))


def input_dim_names(model: ir.Model) -> list[str]:
    """Return the user's names of the symbolic dims of the inputs, in their order."""
    return [*map(DimSpelling(model).name_of, input_dim_symbols(model))]


def input_dim_symbols(model: ir.Model) -> list[str]:
    """Return the symbols that stand for the dims of the inputs in symbolic shapes, in order."""
    name_by_place, spelling = dim_names(model), DimSpelling(model)
    names: dict[str, None] = {}
    for value in model.graph.inputs:
        for axis, dim in enumerate(value.shape or ()):
            if is_nameless(dim):
                names[name_by_place[value.name or "", axis]] = None
            else:
                names.update(dict.fromkeys(sorted(symbols_of(spelling.to_symbolic(dim)))))
    return list(names)


def shapes_of(model: ir.Model) -> Shapes:
    """Return the shapes of ``model``: inferred once, then kept until :func:`drop_shapes`."""
    state = state_of(model)
    if not isinstance(state.shapes, Shapes):
        state.shapes = infer(model)
    return state.shapes


def drop_shapes(model: ir.Model) -> None:
    """Drop the shapes of ``model``, after an edit that did not keep them up to date."""
    state_of(model).shapes = None


def drop_incomplete_shapes(model: ir.Model) -> bool:
    """Drop the shapes of ``model`` if some are unknown; return whether they were dropped.

    A new inference may learn more of a graph that passes have edited, unless all is known already.
    """
    shapes = state_of(model).shapes
    if not isinstance(shapes, Shapes) or all(map(shapes.has_known_dims, _main_graph_values(model))):
        return False
    drop_shapes(model)
    return True


def copy_shapes(model: ir.Model, copy: ir.Model) -> None:
    """Give a clone of ``model``, in which nothing has changed yet, its shapes."""
    state_of(copy).shapes = shapes_of(model).for_counterparts(
        dict(zip(_main_graph_values(model), _main_graph_values(copy), strict=True))
    )


def add_constant(model: ir.Model, value: ir.Value, array: npt.NDArray[np.generic]) -> None:
    """Add a constant that a pass has made to the shapes that are kept, if any are."""
    shapes = state_of(model).shapes
    if isinstance(shapes, Shapes):
        shapes.set_constant(value, array)


def infer_new_nodes(model: ir.Model, nodes: Sequence[ir.Node]) -> None:
    """Infer the shapes of nodes that a pass made, and add them to those that are kept.

    Args:
        model: The model; if none of its shapes are kept, nothing is done.
        nodes: New nodes of the main graph or of graphs inside it, each after those it depends on.
            A node that took over the shape of another keeps that.
    """
    shapes = state_of(model).shapes
    if not isinstance(shapes, Shapes):
        return
    new = [x for x in nodes if shapes.dims(x.outputs[0]) is None and not bodies_of(x)]
    outputs = [value for node in new for value in node.outputs]
    sources = [x for x in dict.fromkeys(x for n in new for x in n.inputs if x) if x not in outputs]
    with _restoring_values([*sources, *outputs]), collect_facts(model.graph) as facts:
        context = _seeded_context(model, shapes, sources)
        for node in new:
            _forget_claims(node)
            _apply_rule(context, node)
        shapes.update_from(
            _collect_shapes(outputs, facts), lambda name: not context.is_generated_symbol(name)
        )


def _seeded_context(
    model: ir.Model, shapes: Shapes, sources: Sequence[ir.Value]
) -> ShapeInferenceContext:
    """Return a context of inference, seeded with the shapes of these values."""
    context = ShapeInferenceContext(model.opset_imports)
    for value in sources:
        dims = (*(shapes.dims(value) or ()), *(shapes.known_elements(value) or ()))
        context.reserve_symbol_names(x for dim in dims for x in symbols_of(dim))
    for value in sources:
        _seed_inference(context, shapes, value)
    return context


def _apply_rule(context: ShapeInferenceContext, node: ir.Node) -> None:
    """Infer the shapes of one node; a node that cannot be inferred has none."""
    version = context.get_opset_version(node.domain)
    rule = registry.get(node.domain, node.op_type, version=version)
    if rule is not None:
        try:
            rule(context, node)
        except (ValueError, RuntimeError) as error:
            log.warning("the shape of %s is not known: %s", node.name, error)


def _seed_inference(context: ShapeInferenceContext, shapes: Shapes, value: ir.Value) -> None:
    """Seed inference with what is known of ``value``."""
    dims, dtype, data = shapes.dims(value), shapes.dtype(value), shapes.known_elements(value)
    if value.is_graph_input():
        value.const_value = None  # a caller may override it
    if dims is not None:
        value.shape = ir.Shape(dims)
    elif value.shape is not None:  # what the file calls its sizes is no name of ours
        value.shape = ir.Shape([x if isinstance(x, int) else None for x in value.shape])
    context.name_anonymous_dims(value)
    if dtype is not None and value.dtype != dtype:
        value.dtype = dtype
    if data is not None and value.shape is not None and all(is_known_dim(x) for x in data):
        context.set_symbolic_value(value, list(data))


def infer(
    model: ir.Model, renamed: Mapping[str, str] | None = None, *, usual: bool = False
) -> Shapes:
    """Infer the shapes of ``model``, without keeping them.

    Args:
        model: The model; it is as it was afterwards.
        renamed: Symbols of the inputs' dims that are to have another name: exporters name the same
            size again for each input.
        usual: Whether only usual runs count: no size is 0 or over a million, no table is read past
            its end.
    """
    shapes, facts = _infer_until_settled(model, renamed or {}, usual=usual)
    if facts.undecided:
        for graph in facts.inner_graphs:  # a branch: in what it computes, what it says holds
            branch_shapes, _ = _infer_until_settled(model, renamed or {}, graph, usual=usual)
            shapes.refine_from(branch_shapes, values_of(graphs_of(graph)))
    return shapes


def _infer_until_settled(
    model: ir.Model,
    renamed: Mapping[str, str],
    *inner: ir.Graph,
    positive: Sequence[sympy.Expr] = (),
    usual: bool,
) -> tuple[Shapes, Facts]:
    register_rules()
    graphs = list(graphs_of(model.graph))
    nodes = [node for graph in graphs for node in graph]
    values = list(values_of(graphs))
    with (
        _without_claims(model, nodes, values, renamed),
        collect_facts(model.graph, *inner, positive=positive, usual=usual) as facts,
    ):
        try:
            inference.infer_shapes(model, facts, bodies=len(graphs) > 1)
        except (ValueError, RuntimeError) as error:
            # What was inferred before the malformed node is still right.
            log.warning("shapes are known only in part: %s", error)
        lasting_facts = facts.lasting_positives
        if not facts.undecided or len(lasting_facts) == len(positive):
            return _collect_shapes(values, facts), facts
    return _infer_until_settled(model, renamed, *inner, positive=lasting_facts, usual=usual)


def _collect_shapes(values: Sequence[ir.Value], facts: Facts) -> Shapes:
    dims: dict[ir.Value, tuple[Dim, ...]] = {}
    data: dict[ir.Value, tuple[Dim, ...]] = {}
    # Many values share one shape object, and many contents one text.
    by_shape: dict[int, tuple[Dim, ...]] = {}
    by_text: dict[str, tuple[Dim, ...]] = {}
    for value in values:
        shape = value.shape
        if shape is not None:
            if (key := id(shape)) not in by_shape:
                by_shape[key] = tuple(map(facts.resolve_dim, shape))
            dims[value] = by_shape[key]
        text = value.metadata_props.get(SYM_DATA_KEY)
        if text is not None and shape is not None and len(shape) <= 1:
            if text not in by_text:
                by_text[text] = tuple(map(facts.resolve_dim, _parse_elements(text)))
            data[value] = by_text[text]
        elif (ints := _constant_ints(value, facts)) is not None:
            data[value] = ints
    dtypes = {x: dtype for x in values if (dtype := x.dtype) is not None}
    sizes = (expr_of(facts.resolve_dim(ir.SymbolicDim(x))) for x in facts.never_empty)
    never_empty = frozenset(x for expr in sizes for x in positive_parts(expr))
    return Shapes(dims, dtypes, data, never_empty, facts.carried)


def _parse_elements(text: str) -> list[Dim]:
    """Return the elements that the library has noted of a shape tensor."""
    return [x if isinstance(x, int) else ir.SymbolicDim(x) for x in json.loads(text)]


@contextlib.contextmanager
def _without_claims(
    model: ir.Model,
    nodes: Sequence[ir.Node],
    values: Sequence[ir.Value],
    renamed: Mapping[str, str],
) -> Iterator[None]:
    """Show inference the model without the file's claims; restore it afterwards.

    Dropped are what the file says of shapes, and constants that a caller may override. A clone of
    the model would do as well, and takes a third as long as inference itself.
    """
    spelling = DimSpelling(model)
    with _restoring_values(values):
        for value in values:
            if value.shape is not None and value.producer() is None:
                shape = without_placeholder_names(value.shape.copy())
                value.shape = (
                    ir.Shape(map(spelling.to_symbolic, shape)) if spelling.symbols else shape
                )
        for value in model.graph.inputs:
            value.const_value = None
            if renamed and value.shape is not None:
                value.shape = ir.Shape([renamed.get(str(x), x) for x in value.shape])
        for node in nodes:
            _forget_claims(node)
        yield


@contextlib.contextmanager
def _restoring_values(values: Sequence[ir.Value]) -> Iterator[None]:
    """Let inference write into these values; restore them afterwards."""
    saved = [(x.type, x.dtype, x.shape, x.const_value, _pop_contents(x)) for x in values]
    try:
        yield
    finally:
        for value, (type_, dtype, shape, const, contents) in zip(values, saved, strict=True):
            value.type, value.shape, value.const_value = type_, shape, const
            if dtype is not None and value.dtype != dtype:
                value.dtype = dtype
            _pop_contents(value)
            if contents is not None:
                value.metadata_props[SYM_DATA_KEY] = contents


def _pop_contents(value: ir.Value) -> str | None:
    """Remove and return what an inference has noted of the elements of ``value``."""
    return value.metadata_props.pop(SYM_DATA_KEY, None)


def _forget_claims(node: ir.Node) -> None:
    for value in node.outputs:
        value.shape = None
    if node.op_type in ("Loop", "Scan") and "body" in node.attributes:
        for value in node.attributes["body"].as_graph().inputs[2 * (node.op_type == "Loop") :]:
            value.shape = None
    if is_op(node, "Constant"):
        # Left to itself inference asks onnx-ir's get_const_tensor for each use, which is slow and
        # writes the name of the node's output into the tensor.
        for _, tensor in tensor_attributes(node):
            node.outputs[0].const_value = tensor


def _constant_ints(value: ir.Value, facts: Facts) -> tuple[int, ...] | None:
    """Return what a constant holds if that may be a shape, read once at most."""
    node = value.producer()
    if node is not None and node.op_type not in ("Constant", "Identity"):
        return None
    return facts.constant_ints[value] if value in facts.constant_ints else ints_of(value)


def _main_graph_values(model: ir.Model) -> Iterator[ir.Value]:
    """Yield every value of the main graph and of the graphs inside it."""
    return values_of(graphs_of(model.graph))
