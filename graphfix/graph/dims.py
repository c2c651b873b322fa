"""What a user calls the dims of the inputs, and what is no name of one.

A dim is called by its name, or by its place, ``x.0``: axis 0 of the input ``x``. One without a name
is called after its place, ``x_0``. This is the one place that says so, for whoever prints a dim or
is given one.
"""

import re
from collections.abc import Container, Iterable, Sequence

import onnx_ir as ir

# What exporters write where they know no name; each stands for any size, not for one size.
_NO_NAMES = frozenset({"n/a", "none", "null", "nan", "unk", "unknown", "undefined"})
# What inference reads as one symbol.
_SYMBOL = re.compile(r"[^\W\d][\w.]*")
_LETTER = re.compile(r"[^\W\d]")

MINTED = re.compile(r"\b_d\d+\b")
"""Symbols of onnx-shape-inference for sizes that it cannot express in those of the inputs."""


def is_nameless(dim: int | ir.SymbolicDim) -> bool:
    """Whether a dim is of any size and has no name: none, ``?``, ``N/A``, ``*``, -1 or ``-1``."""
    if isinstance(dim, int):
        return dim < 0
    return not dim.value or not _LETTER.search(dim.value) or dim.value.lower() in _NO_NAMES


def numbers_in(dims: Sequence[object] | ir.Shape | None) -> list[int] | None:
    """A shape, or what a shape tensor holds, if all of it is known and numbers."""
    whole = [x for x in dims or () if isinstance(x, int)]
    return whole if dims is not None and len(whole) == len(dims) else None


def differs(declared: Sequence[object] | ir.Shape, inferred: Sequence[object] | ir.Shape) -> bool:
    """Whether the rank or a number is wrong at every size of the inputs."""
    return len(declared) != len(inferred) or any(
        isinstance(a, int) and isinstance(b, int) and a != b
        for a, b in zip(declared, inferred, strict=True)
    )


def without_no_names(shape: ir.Shape) -> ir.Shape:
    """``shape``, with no name in the place of what is none."""
    if not any(is_nameless(dim) for dim in shape):
        return shape
    return ir.Shape([ir.SymbolicDim(None) if is_nameless(dim) else dim for dim in shape])


def forget_no_names(values: Iterable[ir.Value]) -> None:
    """Take what is no name of a dim for none, where these values are declared with a shape."""
    for value in values:
        if value.shape is not None:
            value.shape = without_no_names(value.shape)


def dim_names(model: ir.Model) -> dict[tuple[str, int], str]:
    """What each symbolic dim of an input is called, by the input's name and the axis."""
    inputs = model.graph.inputs
    places = [(x.name, axis, dim) for x in inputs for axis, dim in enumerate(x.shape or ())]
    own = {str(dim) for _, _, dim in places if not is_nameless(dim)}
    found: dict[tuple[str, int], str] = {}
    for value, axis, dim in places:
        if isinstance(dim, int) and dim >= 0:
            continue
        name = identifier(f"{value}_{axis}") if is_nameless(dim) else str(dim)
        while is_nameless(dim) and name in own:  # of another input
            name += "_"
        own.add(name)
        found[value or "", axis] = name
    return found


def name_dims(model: ir.Model) -> None:
    """Give each dim of an input that has no name one, after its place."""
    names = dim_names(model)
    for value in model.graph.inputs:
        if value.shape is not None and any(map(is_nameless, value.shape)):
            value.shape = ir.Shape(
                ir.SymbolicDim(names[value.name or "", axis]) if is_nameless(dim) else dim
                for axis, dim in enumerate(value.shape)
            )


def place_of(model: ir.Model, name: str) -> tuple[ir.Value, int] | None:
    """The input and the axis that ``x.0`` stands for, if the model has it; ``x`` may have dots."""
    before, _, axis = name.rpartition(".")
    if not axis.isdecimal():
        return None
    for value in model.graph.inputs:
        if value.name == before and value.shape is not None and int(axis) < len(value.shape):
            return value, int(axis)
    return None


def fixed_since(before: ir.Model, after: ir.Model) -> dict[str, int]:
    """Sizes of dims that are symbols in ``before`` and numbers in ``after``, by the names there."""
    names = dim_names(before)
    plain = {x for x in names.values() if is_symbol(x)}
    shapes = {value.name: value.shape for value in after.graph.inputs}
    found: dict[str, int] = {}
    for value in before.graph.inputs:
        for axis, size in enumerate(shapes.get(value.name) or ()):
            name = names.get((value.name or "", axis), "")
            follows = not name or is_expression(ir.SymbolicDim(name), plain)
            if not follows and isinstance(size, int) and size >= 0:
                found[name] = size
    return found


def is_symbol(text: str) -> bool:
    """Whether inference reads the text of a dim as one symbol."""
    return _SYMBOL.fullmatch(text) is not None


def is_expression(dim: int | ir.SymbolicDim, names: Container[str]) -> bool:
    """Whether a dim is computed from others, which are called ``names``: ``past + 1`` of ``past``.

    Only the model's own names make it one: ``batch-size`` is a name.
    """
    if isinstance(dim, int) or not dim.value or is_symbol(dim.value):
        return False
    try:
        parts = dim.free_symbols()
    except ValueError:
        return False
    return bool(parts) and all(x in names for x in parts)


def identifier(name: str) -> str:
    """``name`` as an identifier."""
    clean = re.sub(r"\W", "_", name, flags=re.ASCII)
    return clean if clean.isidentifier() else f"d_{clean}"
