"""A symbolic shape for every tensor: onnx_shape_inference, with the rules of model/symbolic.

Shapes are kept beside the model, never written into it: a file that no pass matches stays byte
for byte what it was. ``value_info`` of the file is not believed, since it is often stale (a shape
that contradicts the graph is itself a cause of 80070057); shapes are inferred from the inputs.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import sympy
from onnx_shape_inference import SYM_DATA_KEY, ShapeInferenceContext, registry

from graphfix.facts.symbolic import expressions, inference
from graphfix.facts.symbolic.expressions import Dim as Dim
from graphfix.facts.symbolic.expressions import expr_of, is_positive, positive_parts, symbols_of
from graphfix.facts.symbolic.inferred import Facts, learning
from graphfix.facts.symbolic.overrides import register
from graphfix.graph.constants import SMALL, ints_of
from graphfix.graph.dim_spelling import Spelling
from graphfix.graph.dims import MINTED, dim_names, is_nameless, without_no_names
from graphfix.graph.nodes import held_in, is_op
from graphfix.graph.walks import bodies_of, graphs_of, values_of

log = logging.getLogger(__name__)

_META = "graphfix.shapes"


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

    def dims(self, value: ir.Value | None) -> tuple[Dim, ...] | None:
        """The dims of ``value``, or None where they (or their number) are unknown."""
        if value is None:
            return None
        known = self._dims.get(value)
        if known is None and value.const_value is not None and value.is_initializer():
            # A pass has just made it: nothing inferred it yet.
            return None if value.is_graph_input() else tuple(value.const_value.shape.numpy())
        return known

    def is_known(self, value: ir.Value) -> bool:
        """Whether all dims of ``value`` are numbers or said in the sizes of the inputs."""
        dims = self.dims(value)
        return dims is not None and all(map(_is_said, dims))

    def rank(self, value: ir.Value | None) -> int | None:
        """The number of dims of ``value``, or None where it is unknown."""
        dims = self.dims(value)
        return None if dims is None else len(dims)

    def dtype(self, value: ir.Value | None) -> ir.DataType | None:
        """The element type of ``value``, inferred where the file does not say it."""
        return None if value is None else value.dtype or self._dtypes.get(value)

    def data(self, value: ir.Value | None) -> tuple[Dim, ...] | None:
        """The elements of an integer tensor of rank 0 or 1, as dims; None where unknown."""
        return None if value is None else self._data.get(value)

    def never_empty(self, dim: Dim, beside: Dim = 1) -> bool:
        """Whether a dim is at least 1 in every run that succeeds and in which ``beside`` is."""
        return is_positive(dim, self._never_empty | positive_parts(expr_of(beside)))

    def update(self, other: Shapes, known: Callable[[str], bool]) -> None:
        """Take over what ``other`` has; a dim with a symbol that is not ``known`` is unknown."""

        def here(dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
            return tuple(
                x if all(map(known, symbols_of(x))) else ir.SymbolicDim(None) for x in dims
            )

        self._dims.update((value, here(dims)) for value, dims in other._dims.items())
        self._data.update((value, here(data)) for value, data in other._data.items())
        self._dtypes.update(other._dtypes)

    def narrow(self, other: Shapes, values: Iterable[ir.Value]) -> None:
        """Take over what ``other`` says of these values in sizes of the inputs alone."""
        for value in values:
            for mine, its in ((self._dims, other._dims), (self._data, other._data)):
                if (dims := its.get(value)) is not None and all(map(_is_said, dims)):
                    mine[value] = dims

    def know(self, value: ir.Value, array: npt.NDArray[np.generic]) -> None:
        """Take over what a constant is: its dims, and if it may be a shape, its elements."""
        self._dims[value] = array.shape
        if array.dtype.kind == "i" and array.ndim <= 1 and array.size <= SMALL:
            self._data[value] = tuple(int(x) for x in array.reshape(-1))

    def say(self, value: ir.Value, dims: tuple[Dim, ...], dtype: ir.DataType | None) -> None:
        """Let a value that a pass has made be what the pass knows better than inference."""
        self._dims[value] = dims
        if dtype is not None:
            self._dtypes[value] = dtype

    def of(self, same: Mapping[ir.Value, ir.Value]) -> Shapes:
        """The same for values that stand for those of this model in another."""
        dims = {same[x]: known for x, known in self._dims.items()}
        dtypes = {same[x]: known for x, known in self._dtypes.items()}
        data = {same[x]: known for x, known in self._data.items()}
        return Shapes(dims, dtypes, data, self._never_empty)

    def adopt(self, new: ir.Value, old: ir.Value) -> None:
        """Let ``new``, which now computes what ``old`` did, have its shape."""
        for known in (self._dims, self._dtypes, self._data):
            if old in known:
                known[new] = known[old]  # type: ignore[assignment]


def _is_said(dim: Dim) -> bool:
    """Whether a dim is a number or said in the sizes of the inputs."""
    return isinstance(dim, int) or (dim.value is not None and not MINTED.search(dim.value))


def is_named(dim: Dim) -> bool:
    """Whether a dim is a number or an expression in symbols, not merely unknown."""
    return isinstance(dim, int) or dim.value is not None


same = expressions.equal
"""Whether two dims are equal for every size of the model's inputs."""


def all_same(a: Sequence[Dim] | None, b: Sequence[Dim] | None) -> bool:
    """Whether two shapes are known, and equal for every size of the model's inputs."""
    return a is not None and b is not None and len(a) == len(b) and all(map(same, a, b))


def input_names(model: ir.Model) -> list[str]:
    """What a user calls the symbolic dims of the inputs, in their order."""
    return [*map(Spelling(model).name, input_symbols(model))]


def input_symbols(model: ir.Model) -> list[str]:
    """What stands for the symbolic dims of the inputs in symbolic shapes, in their order."""
    called, spelling = dim_names(model), Spelling(model)
    names: dict[str, None] = {}
    for value in model.graph.inputs:
        for axis, dim in enumerate(value.shape or ()):
            if is_nameless(dim):
                names[called[value.name or "", axis]] = None
            else:
                names.update(dict.fromkeys(sorted(symbols_of(spelling.read(dim)))))
    return list(names)


def shapes_of(model: ir.Model) -> Shapes:
    """The shapes of ``model``: inferred once, then kept until :func:`forget`."""
    shapes = model.meta.get(_META)
    if not isinstance(shapes, Shapes):
        shapes = model.meta[_META] = infer(model)
    return shapes


def forget(model: ir.Model) -> None:
    """Drop what is known of ``model``'s shapes, after an edit that did not keep it up to date."""
    model.meta.pop(_META, None)


def renew(model: ir.Model) -> bool:
    """Drop what is known if some of it is not; whether it was dropped.

    What passes have made may tell more than they could keep up to date; an inference of a graph of
    which all is known already would be for nothing.
    """
    shapes = model.meta.get(_META)
    if not isinstance(shapes, Shapes) or all(map(shapes.is_known, _values(model))):
        return False
    forget(model)
    return True


def carry(model: ir.Model, copy: ir.Model) -> None:
    """Let a clone of ``model``, in which nothing has changed yet, have its shapes."""
    copy.meta[_META] = shapes_of(model).of(dict(zip(_values(model), _values(copy), strict=True)))


def note(model: ir.Model, value: ir.Value, array: npt.NDArray[np.generic]) -> None:
    """Add a constant that a pass has made to the shapes that are kept, if any are."""
    shapes = model.meta.get(_META)
    if isinstance(shapes, Shapes):
        shapes.know(value, array)


def extend(model: ir.Model, nodes: Sequence[ir.Node]) -> None:
    """Add what a pass has made to the shapes that are kept, from what is known of its inputs.

    Args:
        model: The model; if none of its shapes are kept, nothing is done.
        nodes: New nodes of the main graph or of graphs inside it, each after those it depends on.
            A node that took over the shape of another keeps that.
    """
    shapes = model.meta.get(_META)
    if not isinstance(shapes, Shapes):
        return
    new = [x for x in nodes if shapes.dims(x.outputs[0]) is None and not bodies_of(x)]
    made = [value for node in new for value in node.outputs]
    given = [x for x in dict.fromkeys(x for n in new for x in n.inputs if x) if x not in made]
    with _kept([*given, *made]), learning(model.graph) as facts:
        context = ShapeInferenceContext(model.opset_imports)
        for value in given:
            dims = (*(shapes.dims(value) or ()), *(shapes.data(value) or ()))
            context.reserve_symbol_names(x for dim in dims for x in symbols_of(dim))
        for value in given:
            _tell(context, shapes, value)
        for node in new:
            _forget_claims(node)
            version = context.get_opset_version(node.domain)
            rule = registry.get(node.domain, node.op_type, version=version)
            if rule is not None:
                try:
                    rule(context, node)
                except (ValueError, RuntimeError) as error:
                    log.warning("the shape of %s is not known: %s", node.name, error)
        shapes.update(_read(made, facts), lambda name: not context.is_generated_symbol(name))


def _tell(context: ShapeInferenceContext, shapes: Shapes, value: ir.Value) -> None:
    """Let inference find what is known of ``value``."""
    dims, dtype, data = shapes.dims(value), shapes.dtype(value), shapes.data(value)
    if value.is_graph_input():
        value.const_value = None  # a caller may override it
    if dims is not None:
        value.shape = ir.Shape(dims)
    elif value.shape is not None:  # what the file calls its sizes is no name of ours
        value.shape = ir.Shape([x if isinstance(x, int) else None for x in value.shape])
    context.name_anonymous_dims(value)
    if dtype is not None and value.dtype != dtype:
        value.dtype = dtype
    if data is not None and value.shape is not None and all(is_named(x) for x in data):
        context.set_symbolic_value(value, list(data))


def infer(
    model: ir.Model, renamed: Mapping[str, str] | None = None, *, usual: bool = False
) -> Shapes:
    """The shapes of ``model``, inferred again and not kept.

    Args:
        model: The model; it is as it was afterwards.
        renamed: Symbols of the inputs' dims that are to have another name: exporters name the same
            size again for each input.
        usual: Whether only usual runs count: no size is 0 or over a million, no table is read past
            its end.
    """
    shapes, facts = _infer(model, renamed or {}, usual=usual)
    if facts.undecided:
        for graph in facts.elsewhere:  # a branch: in what it computes, what it says holds
            inside, _ = _infer(model, renamed or {}, graph, usual=usual)
            shapes.narrow(inside, values_of(graphs_of(graph)))
    return shapes


def _infer(
    model: ir.Model,
    renamed: Mapping[str, str],
    *inner: ir.Graph,
    known: Sequence[sympy.Expr] = (),
    usual: bool,
) -> tuple[Shapes, Facts]:
    register()
    graphs = list(graphs_of(model.graph))
    nodes = [node for graph in graphs for node in graph]
    values = list(values_of(graphs))
    with (
        _without_claims(model, nodes, values, renamed),
        learning(model.graph, *inner, known=known, usual=usual) as facts,
    ):
        try:
            inference.infer(model, facts, bodies=len(graphs) > 1)
        except (ValueError, RuntimeError) as error:
            # What was inferred before the malformed node is still right.
            log.warning("shapes are known only in part: %s", error)
        told = facts.lasting
        if not facts.undecided or len(told) == len(known):
            return _read(values, facts), facts
    return _infer(model, renamed, *inner, known=told, usual=usual)


def _read(values: Sequence[ir.Value], facts: Facts) -> Shapes:
    dims: dict[ir.Value, tuple[Dim, ...]] = {}
    dtypes: dict[ir.Value, ir.DataType] = {}
    data: dict[ir.Value, tuple[Dim, ...]] = {}
    # One shape stands for many values, and one text for what many hold.
    by_shape: dict[int, tuple[Dim, ...]] = {}
    by_text: dict[str, tuple[Dim, ...]] = {}
    for value in values:
        shape, dtype = value.shape, value.dtype
        if shape is not None:
            known = by_shape.get(id(shape))
            if known is None:
                known = by_shape[id(shape)] = tuple(facts.resolve(dim) for dim in shape)
            dims[value] = known
        if dtype is not None:
            dtypes[value] = dtype
        text = value.metadata_props.get(SYM_DATA_KEY)
        if text is not None and shape is not None and len(shape) <= 1:
            held = by_text.get(text)
            if held is None:
                told = (x if isinstance(x, int) else ir.SymbolicDim(x) for x in json.loads(text))
                held = by_text[text] = tuple(map(facts.resolve, told))
            data[value] = held
        elif (ints := _ints(value, facts)) is not None:
            data[value] = ints
    sizes = (expr_of(facts.resolve(ir.SymbolicDim(x))) for x in facts.never_empty)
    return Shapes(dims, dtypes, data, frozenset(x for expr in sizes for x in positive_parts(expr)))


@contextlib.contextmanager
def _without_claims(
    model: ir.Model,
    nodes: Sequence[ir.Node],
    values: Sequence[ir.Value],
    renamed: Mapping[str, str],
) -> Iterator[None]:
    """A model as inference is to see it, which writes into it; afterwards it is as it was.

    Dropped are what the file says of shapes, and constants that a caller may override. A clone of
    the model would do as well, and takes a third as long as inference itself.
    """
    spelling = Spelling(model)
    with _kept(values):
        for value in values:
            if value.shape is not None and value.producer() is None:
                shape = without_no_names(value.shape.copy())
                value.shape = ir.Shape(map(spelling.read, shape)) if spelling.symbols else shape
        for value in model.graph.inputs:
            value.const_value = None
            if renamed and value.shape is not None:
                value.shape = ir.Shape([renamed.get(str(x), x) for x in value.shape])
        for node in nodes:
            _forget_claims(node)
        yield


@contextlib.contextmanager
def _kept(values: Sequence[ir.Value]) -> Iterator[None]:
    """Let inference write into these values; afterwards they are as they were."""
    kept = [(x.type, x.dtype, x.shape, x.const_value, _pop_contents(x)) for x in values]
    try:
        yield
    finally:
        for value, (type_, dtype, shape, const, contents) in zip(values, kept, strict=True):
            value.type, value.shape, value.const_value = type_, shape, const
            if dtype is not None and value.dtype != dtype:
                value.dtype = dtype
            _pop_contents(value)
            if contents is not None:
                value.metadata_props[SYM_DATA_KEY] = contents


def _pop_contents(value: ir.Value) -> str | None:
    """What an inference has noted of the elements of ``value``, which is forgotten with this."""
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
        for _, tensor in held_in(node):
            node.outputs[0].const_value = tensor


def _ints(value: ir.Value, facts: Facts) -> tuple[int, ...] | None:
    """What a constant holds if that may be a shape, read once at most."""
    node = value.producer()
    if node is not None and node.op_type not in ("Constant", "Identity"):
        return None
    return facts.ints[value] if value in facts.ints else ints_of(value)


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """Every value of the main graph and of the graphs inside it."""
    return values_of(graphs_of(model.graph))
