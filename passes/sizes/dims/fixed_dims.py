"""Put sizes in place of symbolic dims, and find the nodes that cannot run at them."""

import math
from collections.abc import Container, Iterator, Mapping, Sequence

import onnx_ir as ir

from graphfix import ops
from graphfix.core import Skip
from graphfix.errors import UsageError
from graphfix.facts.shapes import input_dim_names
from graphfix.facts.symbolic.expressions import Dim, symbols_of
from graphfix.facts.view import View
from graphfix.feeds.signature import Signature
from graphfix.graph import dims
from graphfix.graph.dim_spelling import DimSpelling
from graphfix.graph.nodes import is_op
from graphfix.graph.text import node_label
from graphfix.ops.axes import axis_of
from graphfix.ops.reshapes import copies_zeros, reshape_target, reshaped_dims
from graphfix.spec.quoting import quote_name
from graphfix.wording import did_you_mean

# Two expressions that are equal at both sizes are taken for equal.
_TRIAL_SIZES = (3, 1009)
SHORT_NAMES = frozenset({"B", "batch", "T"})
"""What every verb calls the batch and the dim that grows."""


def with_sizes(dim: Dim, sizes: Mapping[str, int]) -> Dim:
    """Return a dim with sizes put in: ``2*T + 1`` is 1001 where T is 500."""
    if isinstance(dim, int) or dim.value is None:
        return dim
    if dim.value in sizes:
        return sizes[dim.value]
    return dim.evaluate(sizes) if symbols_of(dim) & sizes.keys() else dim


def sizes_by_name(
    model: ir.Model,
    sizes: Sequence[tuple[str, int]],
    by: str,
    fixed_before: Container[str] = frozenset(),
) -> dict[str, int]:
    """Return sizes by the names of dims.

    ``x.0`` means the name of the dim at that place. Where no dim has or had that name, ``B`` is the
    batch and ``T`` the only other dim that varies, as in ``--dims``.

    Args:
        model: The model.
        sizes: The sizes, by what a user calls the dims.
        by: Who asks, for the message.
        fixed_before: The names of dims that had a size before.

    Raises:
        UsageError: A dim is given two sizes, or another than it has.
    """
    known_names, dim_names = input_dim_names(model), dims.dim_names(model)
    by_name: dict[str, int] = {}
    signature: Signature | None = None  # of a copy with inferred shapes: only if it is needed
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
        elif name in SHORT_NAMES and name not in known_names and name not in fixed_before:
            signature = signature or Signature(model)
            name = _full_dim_name(signature, name)
        if by_name.setdefault(name, size) != size:
            raise UsageError(f"{by}: {name} is given two sizes, {by_name[name]} and {size}")
    return by_name


def _full_dim_name(signature: Signature, short_name: str) -> str:
    """Return the model's own name of the dim that ``B`` or ``T`` stands for, if there is one."""
    symbol = signature.symbol_of(short_name)
    return short_name if symbol is None else signature.user_name(symbol)


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
        sizes = (dict.fromkeys(symbols_of(inferred), n) for n in _TRIAL_SIZES)
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
    """Return why a node must fail with the shapes of its inputs, or None."""
    if is_op(node, "Reshape"):
        return _reshape_conflict(node, view)
    if is_op(node, "Expand") or node in ops.BROADCASTS.at(view.opset_of_node(node)):
        return _broadcast_conflict(node, view)
    if is_op(node, "MatMul"):
        return _product_conflict(node, view)
    return _concat_conflict(node, view) if is_op(node, "Concat") else None


def _product_conflict(node: ir.Node, view: View) -> str | None:
    a, b = (dims.static_dims(view.shapes.dims(x)) for x in node.inputs)
    fits = not a or not b or a[-1] == b[max(len(b) - 2, 0)]
    return None if fits else f"{a} is multiplied by {b}"


def _concat_conflict(node: ir.Node, view: View) -> str | None:
    shapes = [x for x in (dims.static_dims(view.shapes.dims(v)) for v in node.inputs) if x]
    axis = axis_of(node, len(shapes[0]), view.opset_of_node(node)) if shapes else None
    if axis is None or len({(*x[:axis], *x[axis + 1 :]) for x in shapes}) == 1:
        return None
    return f"{' and '.join(map(str, shapes))} are joined on axis {axis}"


def _reshape_conflict(node: ir.Node, view: View) -> str | None:
    source = dims.static_dims(view.shapes.dims(node.inputs[0]))
    target = reshape_target(node, lambda x: dims.static_dims(view.shapes.known_elements(x)))
    if source is None or target is None or 0 in source:
        return None
    if reshaped_dims(node, source, target) is not None:
        return None
    copied = source if copies_zeros(node) else ()
    sizes = [copied[i] if x == 0 and i < len(copied) else x for i, x in enumerate(target)]
    return f"{source} has {math.prod(source)} elements and is reshaped to {sizes}"


def _broadcast_conflict(node: ir.Node, view: View) -> str | None:
    shapes = [dims.static_dims(view.shapes.dims(x)) for x in node.inputs if x is not None]
    if is_op(node, "Expand"):
        shapes[1] = dims.static_dims(view.shapes.known_elements(node.inputs[1]))
    known_shapes = [x for x in shapes if x is not None]
    for i in range(1, max(map(len, known_shapes), default=0) + 1):
        if len({x[-i] for x in known_shapes if len(x) >= i} - {1}) > 1:
            return f"{' and '.join(map(str, known_shapes))} do not go together"
    return None
