"""Sizes put in the place of symbolic dims, and the nodes that cannot have them."""

import math
from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from graphfix.core import Skip
from graphfix.errors import UsageError
from graphfix.facts.shapes import input_names as input_names
from graphfix.facts.symbolic.expressions import Dim
from graphfix.facts.symbolic.expressions import symbols_of as symbols_of
from graphfix.facts.view import View
from graphfix.graph import dims
from graphfix.graph.dim_spelling import Spelling
from graphfix.graph.nodes import attr_int, is_op
from graphfix.graph.text import path_of
from graphfix.ops.broadcast import BROADCAST
from graphfix.spec.quoting import quoted
from graphfix.wording import did_you_mean

# Two sizes that tell apart what merely happens to be equal at one of them.
_TRIED = (3, 1009)


def with_sizes(dim: Dim, sizes: Mapping[str, int]) -> Dim:
    """``2*T + 1`` as 1001 where T is 500."""
    if isinstance(dim, int) or dim.value is None:
        return dim
    if dim.value in sizes:
        return sizes[dim.value]
    return dim.evaluate(sizes) if symbols_of(dim) & sizes.keys() else dim


def named(model: ir.Model, sizes: Sequence[tuple[str, int]], by: str) -> dict[str, int]:
    """Sizes by the names of dims; one given by its place, ``x.0``, by the name of the dim there.

    Raises:
        UsageError: A dim is given two sizes, or another than it has.
    """
    known, called = input_names(model), dims.dim_names(model)
    found: dict[str, int] = {}
    for name, size in sizes:
        at = None if name in known else dims.place_of(model, name)
        if at is not None:
            value, axis = at
            dim = value.shape[axis] if value.shape is not None else size
            if isinstance(dim, int) and dim >= 0:
                if dim != size:
                    raise UsageError(f"{by}: axis {axis} of {value.name!r} is {dim} already")
                continue
            name = called[value.name or "", axis]
        if found.setdefault(name, size) != size:
            raise UsageError(f"{by}: {name} is given two sizes, {found[name]} and {size}")
    return found


def require_known(names: Sequence[str], known: Sequence[str], by: str) -> None:
    """Raise UsageError if one of ``names`` is no dim of the model."""
    for name in names:
        if name not in known:
            raise UsageError(
                f"{by}: no input has a dim named {name!r}{did_you_mean(name, known)} "
                f"The symbolic dims are: {', '.join(map(quoted, known)) or 'none'}"
            )


def set_sizes(
    value: ir.Value, sizes: Mapping[str, int], inferred: Sequence[Dim] | None, spelling: Spelling
) -> bool:
    """Write the sizes into what a value declares of its shape; whether anything changed.

    Args:
        value: The value.
        sizes: Sizes by name.
        inferred: What inference has found of its shape.
        spelling: How the dims were spelled before any got a size.
    """
    if value.shape is None:
        return False
    shape = value.shape.copy()
    by_symbol = {spelling.symbol(name): size for name, size in sizes.items()}
    for i, dim in enumerate(shape):
        size = with_sizes(spelling.read(dim), by_symbol)
        if not isinstance(size, int):
            size = dim if size == spelling.read(dim) else spelling.write(size)
        known = inferred[i] if inferred is not None and len(inferred) == len(shape) else None
        if not isinstance(dim, int) and isinstance(known, int):
            size = known
        if size is not dim:
            shape[i] = size
    if shape == value.shape:
        return False
    value.shape = shape
    return True


def contradicts(
    declared: ir.Shape, inferred: Sequence[Dim], names: frozenset[str], spelling: Spelling
) -> bool:
    """Whether a declared shape is wrong at some size of the inputs."""
    declared = ir.Shape(map(spelling.read, declared))
    return dims.differs(declared, inferred) or any(
        overstates(a, b, names) for a, b in zip(declared, inferred, strict=True)
    )


def overstates(declared: Dim, inferred: Dim, names: frozenset[str]) -> bool:
    """Whether a dim is wrong at some size: a frozen number, or the name of another dim."""
    if isinstance(inferred, int):
        return not isinstance(declared, int) and declared.value in names
    if not symbols_of(inferred) or not symbols_of(inferred) <= names:
        return False
    if isinstance(declared, int):
        sizes = (dict.fromkeys(symbols_of(inferred), n) for n in _TRIED)
        return any(inferred.evaluate(x) != declared for x in sizes)
    return declared.value in names and inferred.value in names and declared != inferred


def renewed(
    declared: ir.Shape | None, inferred: Sequence[Dim], names: frozenset[str], spelling: Spelling
) -> ir.Shape:
    """The declared dims, except those that contradict."""
    here = (x if isinstance(x, int) or symbols_of(x) <= names else None for x in inferred)
    fresh = [None if x is None else spelling.write(x) for x in here]
    if declared is None or len(declared) != len(inferred):
        return ir.Shape(fresh)
    shape: ir.Shape = declared.copy()
    for i, (old, new) in enumerate(zip(declared, inferred, strict=True)):
        if dims.differs([old], [new]) or overstates(spelling.read(old), new, names):
            shape[i] = fresh[i]
    return shape


def conflicts(view: View) -> Iterator[Skip]:
    """The nodes of the main graph that must fail with the shapes that the inputs now have."""
    for node in view.model.graph:
        reason = _conflict(node, view)
        if reason is not None:
            yield Skip(node, f"{path_of(node)!r} cannot run at these sizes: {reason}")


def _conflict(node: ir.Node, view: View) -> str | None:
    if is_op(node, "Reshape"):
        return _reshape(node, view)
    if is_op(node, *BROADCAST, "Expand"):
        return _broadcast(node, view)
    if is_op(node, "MatMul"):
        a, b = (dims.numbers_in(view.shapes.dims(x)) for x in node.inputs)
        if a and b and a[-1] != b[max(len(b) - 2, 0)]:
            return f"{a} is multiplied by {b}"
    if is_op(node, "Concat"):
        known = [x for x in (dims.numbers_in(view.shapes.dims(v)) for v in node.inputs) if x]
        axis = attr_int(node, "axis", 0)
        if len({(*x[:axis], *x[axis:][1:]) for x in known}) > 1:
            return f"{' and '.join(map(str, known))} are joined on axis {axis}"
    return None


def _reshape(node: ir.Node, view: View) -> str | None:
    given = dims.numbers_in(view.shapes.dims(node.inputs[0]))
    target = dims.numbers_in(view.shapes.data(node.inputs[1]))
    if given is None or target is None:
        return None
    copies = attr_int(node, "allowzero", 0) == 0
    if copies and any(x == 0 and i >= len(given) for i, x in enumerate(target)):
        return None
    wanted = [given[i] if x == 0 and copies else x for i, x in enumerate(target)]
    have, want = math.prod(given), math.prod(x for x in wanted if x != -1)
    fits = want != 0 and have % want == 0 if -1 in wanted else have == want
    return None if fits or have == 0 else f"{given} has {have} elements and is reshaped to {wanted}"


def _broadcast(node: ir.Node, view: View) -> str | None:
    shapes = [dims.numbers_in(view.shapes.dims(x)) for x in node.inputs if x is not None]
    if is_op(node, "Expand"):
        shapes[1] = dims.numbers_in(view.shapes.data(node.inputs[1]))
    known = [x for x in shapes if x is not None]
    for i in range(1, max(map(len, known), default=0) + 1):
        if len({x[-i] for x in known if len(x) >= i} - {1}) > 1:
            return f"{' and '.join(map(str, known))} do not go together"
    return None
