"""Renaming of the inputs' symbolic dims to identifiers that can be computed with."""

import keyword

import onnx_ir as ir

from graphfix.editing.local_functions import inline_functions
from graphfix.errors import ModelError
from graphfix.facts.symbolic.expressions import Dim
from graphfix.files.prepare import normalize_domain
from graphfix.graph.dims import as_identifier, dim_names, is_expression, is_nameless

ENTRIES = "entries"
"""What the number of valid entries of a buffer is called, which no dim is by itself."""


def clone_for_renaming(model: ir.Model) -> ir.Model:
    """Return a copy to rename dims in, with local functions inlined and weights shared.

    Functions stay that are written for another opset than the model.

    Raises:
        ModelError: There is no copy of it.
    """
    copy = model.clone()
    if copy.functions:
        try:
            inline_functions(copy)
        except ModelError:
            copy = model.clone()
    normalize_domain(copy)
    return copy


def rename_dims(model: ir.Model) -> dict[str, str]:
    """Rename every symbolic dim of the inputs to an identifier; return new name -> old name.

    An expression such as ``past + 1`` stays one if its symbols are dims by themselves, or the
    entries of a buffer; a name such as ``batch-size`` only looks like one. Keywords of Python, such
    as ``lambda``, and letters outside ASCII are no names in an expression either.
    """
    dims = [d for v in model.graph.inputs for d in v.shape or () if not is_nameless(d)]
    plain_names = {str(d) for d in dims if _is_plain(str(d))}
    names: dict[str, str] = {}
    fallback_names = dim_names(model)
    for value in model.graph.inputs:
        if value.shape is None:
            continue
        value.shape = ir.Shape(
            _rename_dim(d, fallback_names.get((value.name or "", axis), ""), plain_names, names)
            for axis, d in enumerate(value.shape)
        )
    return names


def _rename_dim(dim: Dim, fallback: str, plain_names: set[str], names: dict[str, str]) -> Dim:
    if is_nameless(dim):
        return ir.SymbolicDim(fallback)
    if isinstance(dim, int) or dim.value is None or _is_plain(dim.value):
        return dim
    if is_expression(dim, {*plain_names, ENTRIES}):
        return dim
    new = as_identifier(dim.value)
    if not _is_plain(new):
        new = f"d_{new}"
    while new in plain_names or names.get(new, dim.value) != dim.value:  # "a-b" beside "a_b"
        new += "_"
    names[new] = dim.value
    return ir.SymbolicDim(new)


def _is_plain(name: str) -> bool:
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
