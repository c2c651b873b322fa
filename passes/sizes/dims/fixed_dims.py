"""Sizes put in place of symbolic dims, and the nodes that cannot have them."""

import math
from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from graphfix.core import Skip
from graphfix.errors import UsageError
from graphfix.facts.shapes import input_dim_names as input_dim_names
from graphfix.facts.symbolic.expressions import Dim
from graphfix.facts.symbolic.expressions import symbols_of as symbols_of
from graphfix.facts.view import View
from graphfix.graph import dims
from graphfix.graph.dim_spelling import DimSpelling
from graphfix.graph.nodes import attr_int, is_op
from graphfix.graph.text import node_label
from graphfix.ops.broadcast import BROADCAST
from graphfix.spec.quoting import quote_name
from graphfix.wording import did_you_mean

# Two sizes that tell apart what merely happens to be equal at one of them.
_TRIED = (3, 1009)


def with_sizes(dim: Dim, sizes: Mapping[str, int]) -> Dim:
    """Return a dim with sizes put in: ``2*T + 1`` is 1001 where T is 500."""
    if isinstance(dim, int) or dim.value is None:
        return dim
    if dim.value in sizes:
        return sizes[dim.value]
    return dim.evaluate(sizes) if symbols_of(dim) & sizes.keys() else dim


def sizes_by_name(model: ir.Model, sizes: Sequence[tuple[str, int]], by: str) -> dict[str, int]:
    """Return sizes by the names of dims; ``x.0`` means the name of the dim at that place.

    Raises:
        UsageError: A dim is given two sizes, or another than it has.
    """
    known_names, dim_names = input_dim_names(model), dims.dim_names(model)
    by_name: dict[str, int] = {}
    for name, size in sizes:
        at = None if name in known_names else dims.find_input_axis(model, name)
        if at is not None:
            value, axis = at
            dim = value.shape[axis] if value.shape is not None else size
            if isinstance(dim, int) and dim >= 0:
                if dim != size:
                    raise UsageError(f"{by}: axis {axis} of {value.name!r} is {dim} already")
                continue
            name = dim_names[value.name or "", axis]
        if by_name.setdefault(name, size) != size:
            raise UsageError(f"{by}: {name} is given two sizes, {by_name[name]} and {size}")
    return by_name


def require_dims(names: Sequence[str], dim_names: Sequence[str], by: str) -> None:
    """Raise UsageError if one of ``names`` is no dim of the model."""
    for name in names:
        if name not in dim_names:
            raise UsageError(
                f"{by}: no input has a dim named {name!r}{did_you_mean(name, dim_names)} "
                f"The symbolic dims are: {', '.join(map(quote_name, dim_names)) or 'none'}"
            )


def set_sizes(
    value: ir.Value, sizes: Mapping[str, int], inferred: Sequence[Dim] | None, spelling: DimSpelling
) -> bool:
    """Write sizes into the declared shape of a value; return whether it changed.

    Args:
        value: The value.
        sizes: Sizes by name.
        inferred: The dims that inference found.
        spelling: How the dims were spelled before any got a size.
    """
    if value.shape is None:
        return False
    shape = value.shape.copy()
    by_symbol = {spelling.symbol_of(name): size for name, size in sizes.items()}
    for i, dim in enumerate(shape):
        size = with_sizes(spelling.to_symbolic(dim), by_symbol)
        if not isinstance(size, int):
            size = dim if size == spelling.to_symbolic(dim) else spelling.to_declared(size)
        inferred_dim = inferred[i] if inferred is not None and len(inferred) == len(shape) else None
        if not isinstance(dim, int) and isinstance(inferred_dim, int):
            size = inferred_dim
        if size is not dim:
            shape[i] = size
    if shape == value.shape:
        return False
    value.shape = shape
    return True


def contradicts_shape(
    declared: ir.Shape, inferred: Sequence[Dim], names: frozenset[str], spelling: DimSpelling
) -> bool:
    """Return whether a declared shape is wrong at some size of the inputs."""
    declared = ir.Shape(map(spelling.to_symbolic, declared))
    return dims.contradicts_shape(declared, inferred) or any(
        contradicts_dim(a, b, names) for a, b in zip(declared, inferred, strict=True)
    )


def contradicts_dim(declared: Dim, inferred: Dim, names: frozenset[str]) -> bool:
    """Return whether a declared dim is wrong at some size: a number, or another dim."""
    if isinstance(inferred, int):
        return not isinstance(declared, int) and declared.value in names
    if not symbols_of(inferred) or not symbols_of(inferred) <= names:
        return False
    if isinstance(declared, int):
        sizes = (dict.fromkeys(symbols_of(inferred), n) for n in _TRIED)
        return any(inferred.evaluate(x) != declared for x in sizes)
    return declared.value in names and inferred.value in names and declared != inferred


def renew_shape(
    declared: ir.Shape | None, inferred: Sequence[Dim], names: frozenset[str], spelling: DimSpelling
) -> ir.Shape:
    """Return the declared dims, with inferred ones in place of those that contradict."""
    expressible = (x if isinstance(x, int) or symbols_of(x) <= names else None for x in inferred)
    fresh = [None if x is None else spelling.to_declared(x) for x in expressible]
    if declared is None or len(declared) != len(inferred):
        return ir.Shape(fresh)
    shape: ir.Shape = declared.copy()
    for i, (old, new) in enumerate(zip(declared, inferred, strict=True)):
        if dims.contradicts_shape([old], [new]) or contradicts_dim(
            spelling.to_symbolic(old), new, names
        ):
            shape[i] = fresh[i]
    return shape


def find_conflicts(view: View) -> Iterator[Skip]:
    """Yield the nodes of the main graph that must fail with the shapes of the inputs."""
    for node in view.model.graph:
        reason = _conflict_reason(node, view)
        if reason is not None:
            yield Skip(node, f"{node_label(node)!r} cannot run at these sizes: {reason}")


def _conflict_reason(node: ir.Node, view: View) -> str | None:
    if is_op(node, "Reshape"):
        return _reshape_conflict(node, view)
    if is_op(node, *BROADCAST, "Expand"):
        return _broadcast_conflict(node, view)
    if is_op(node, "MatMul"):
        a, b = (dims.static_dims(view.shapes.dims(x)) for x in node.inputs)
        if a and b and a[-1] != b[max(len(b) - 2, 0)]:
            return f"{a} is multiplied by {b}"
    if is_op(node, "Concat"):
        shapes = [x for x in (dims.static_dims(view.shapes.dims(v)) for v in node.inputs) if x]
        axis = attr_int(node, "axis", 0)
        if len({(*x[:axis], *x[axis:][1:]) for x in shapes}) > 1:
            return f"{' and '.join(map(str, shapes))} are joined on axis {axis}"
    return None


def _reshape_conflict(node: ir.Node, view: View) -> str | None:
    source = dims.static_dims(view.shapes.dims(node.inputs[0]))
    target = dims.static_dims(view.shapes.known_elements(node.inputs[1]))
    if source is None or target is None:
        return None
    copies = attr_int(node, "allowzero", 0) == 0
    if copies and any(x == 0 and i >= len(source) for i, x in enumerate(target)):
        return None
    sizes = [source[i] if x == 0 and copies else x for i, x in enumerate(target)]
    source_size, target_size = math.prod(source), math.prod(x for x in sizes if x != -1)
    fits = (
        target_size != 0 and source_size % target_size == 0
        if -1 in sizes
        else source_size == target_size
    )
    return (
        None
        if fits or source_size == 0
        else f"{source} has {source_size} elements and is reshaped to {sizes}"
    )


def _broadcast_conflict(node: ir.Node, view: View) -> str | None:
    shapes = [dims.static_dims(view.shapes.dims(x)) for x in node.inputs if x is not None]
    if is_op(node, "Expand"):
        shapes[1] = dims.static_dims(view.shapes.known_elements(node.inputs[1]))
    known_shapes = [x for x in shapes if x is not None]
    for i in range(1, max(map(len, known_shapes), default=0) + 1):
        if len({x[-i] for x in known_shapes if len(x) >= i} - {1}) > 1:
            return f"{' and '.join(map(str, known_shapes))} do not go together"
    return None
