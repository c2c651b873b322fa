"""Names that a user has for the dims of the inputs.

A dim is called by its name, or by its place, ``x.0``: axis 0 of the input ``x``. One without a name
is called after its place, ``x_0``. Whatever prints or reads the name of a dim uses this
module.
"""

import re
from collections.abc import Container, Iterable, Sequence

import onnx_ir as ir

# What exporters write where they know no name; each stands for any size, not for one size.
_NO_NAMES = frozenset({"n/a", "none", "null", "nan", "unk", "unknown", "undefined"})
# What inference reads as one symbol.
_SYMBOL = re.compile(r"[^\W\d][\w.]*")
_LETTER = re.compile(r"[^\W\d]")

GENERATED_SYMBOL = re.compile(r"\b_d\d+\b")
"""Symbols of onnx-shape-inference for sizes that it cannot express in those of the inputs."""


def is_nameless(dim: int | ir.SymbolicDim) -> bool:
    """Return whether a dim has any size and no name: none, ``?``, ``N/A``, ``*``, -1 or ``-1``."""
    if isinstance(dim, int):
        return dim < 0
    return not dim.value or not _LETTER.search(dim.value) or dim.value.lower() in _NO_NAMES


def static_dims(dims: Sequence[object] | ir.Shape | None) -> list[int] | None:
    """Return a shape, or the contents of a shape tensor, if all of it is numbers, else None."""
    numbers = [x for x in dims or () if isinstance(x, int)]
    return numbers if dims is not None and len(numbers) == len(dims) else None


def contradicts_shape(
    declared: Sequence[object] | ir.Shape, inferred: Sequence[object] | ir.Shape
) -> bool:
    """Return whether the declared rank or a number is wrong at every size of the inputs."""
    return len(declared) != len(inferred) or any(
        isinstance(a, int) and isinstance(b, int) and a != b
        for a, b in zip(declared, inferred, strict=True)
    )


def without_placeholder_names(shape: ir.Shape) -> ir.Shape:
    """Return ``shape`` with placeholders such as ``N/A`` replaced by no name."""
    if not any(is_nameless(dim) for dim in shape):
        return shape
    return ir.Shape([ir.SymbolicDim(None) if is_nameless(dim) else dim for dim in shape])


def drop_placeholder_names(values: Iterable[ir.Value]) -> None:
    """Replace placeholder dim names by no name in the declared shapes of these values."""
    for value in values:
        if value.shape is not None:
            value.shape = without_placeholder_names(value.shape)


def dim_names(model: ir.Model) -> dict[tuple[str, int], str]:
    """Return the name of each symbolic dim of the inputs, by input name and axis."""
    inputs = model.graph.inputs
    places = [(x.name, axis, dim) for x in inputs for axis, dim in enumerate(x.shape or ())]
    own = {str(dim) for _, _, dim in places if not is_nameless(dim)}
    name_by_place: dict[tuple[str, int], str] = {}
    for value, axis, dim in places:
        if isinstance(dim, int) and dim >= 0:
            continue
        name = as_identifier(f"{value}_{axis}") if is_nameless(dim) else str(dim)
        while is_nameless(dim) and name in own:  # of another input
            name += "_"
        own.add(name)
        name_by_place[value or "", axis] = name
    return name_by_place


def name_dims(model: ir.Model) -> None:
    """Name each nameless dim of an input after its place."""
    names = dim_names(model)
    for value in model.graph.inputs:
        if value.shape is not None and any(map(is_nameless, value.shape)):
            value.shape = ir.Shape(
                ir.SymbolicDim(names[value.name or "", axis]) if is_nameless(dim) else dim
                for axis, dim in enumerate(value.shape)
            )


def find_input_axis(model: ir.Model, name: str) -> tuple[ir.Value, int] | None:
    """Return the input and axis that ``x.0`` stands for, or None; ``x`` may have dots."""
    input_name, _, axis = name.rpartition(".")
    if not axis.isdecimal():
        return None
    for value in model.graph.inputs:
        if value.name == input_name and value.shape is not None and int(axis) < len(value.shape):
            return value, int(axis)
    return None


def newly_fixed_dims(before: ir.Model, after: ir.Model) -> dict[str, int]:
    """Return sizes of dims that are symbols in ``before`` and numbers in ``after``, by name."""
    names = dim_names(before)
    symbols = {x for x in names.values() if is_symbol(x)}
    shapes = {value.name: value.shape for value in after.graph.inputs}
    sizes: dict[str, int] = {}
    for value in before.graph.inputs:
        for axis, size in enumerate(shapes.get(value.name) or ()):
            name = names.get((value.name or "", axis), "")
            follows = not name or is_expression(ir.SymbolicDim(name), symbols)
            if not follows and isinstance(size, int) and size >= 0:
                sizes[name] = size
    return sizes


def is_symbol(text: str) -> bool:
    """Return whether inference reads the text of a dim as one symbol."""
    return _SYMBOL.fullmatch(text) is not None


def is_expression(dim: int | ir.SymbolicDim, names: Container[str]) -> bool:
    """Return whether a dim is computed from those called ``names``: ``past + 1`` of ``past``.

    Only the model's own names make it one: ``batch-size`` is a name.
    """
    if isinstance(dim, int) or not dim.value or is_symbol(dim.value):
        return False
    try:
        parts = dim.free_symbols()
    except ValueError:
        return False
    return bool(parts) and all(x in names for x in parts)


def as_identifier(name: str) -> str:
    """Return ``name`` as an identifier."""
    clean = re.sub(r"\W", "_", name, flags=re.ASCII)
    return clean if clean.isidentifier() else f"d_{clean}"


def is_static(value: ir.Value | None) -> bool:
    """Return whether every size of a value is known when the session is made."""
    if value is None or not value.name:
        return True
    return value.shape is not None and all(isinstance(x, int) for x in value.shape)
