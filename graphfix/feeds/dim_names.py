"""The symbolic dims of the inputs, renamed: each has a name, and it can be computed."""

import keyword

import onnx_ir as ir

from graphfix.editing.local_functions import inline
from graphfix.errors import ModelError
from graphfix.facts.symbolic.expressions import Dim
from graphfix.files.prepare import plain_name
from graphfix.graph.dims import dim_names, identifier, is_expression, is_nameless


def scratch(model: ir.Model) -> ir.Model:
    """A copy to rename dims in, with local functions inlined; weights are shared, not copied.

    Functions stay that are written for another opset than the model.

    Raises:
        ModelError: There is no copy of it.
    """
    copy = model.clone()
    if copy.functions:
        try:
            inline(copy)
        except ModelError:
            copy = model.clone()
    plain_name(copy)
    return copy


def rename_dims(model: ir.Model) -> dict[str, str]:
    """Give every symbolic dim of the inputs a name that is an identifier; new name -> old name.

    An expression such as ``past + 1`` stays one if its symbols are dims by themselves; a name
    such as ``batch-size`` only looks like one. What Python reads in its own way, ``lambda`` and
    letters that it takes for others, is no name in an expression either.
    """
    dims = [d for v in model.graph.inputs for d in v.shape or () if not is_nameless(d)]
    alone = {str(d) for d in dims if _is_plain(str(d))}
    names: dict[str, str] = {}
    called = dim_names(model)
    for value in model.graph.inputs:
        if value.shape is None:
            continue
        value.shape = ir.Shape(
            _renamed(d, called.get((value.name or "", axis), ""), alone, names)
            for axis, d in enumerate(value.shape)
        )
    return names


def _renamed(dim: Dim, fallback: str, alone: set[str], names: dict[str, str]) -> Dim:
    if is_nameless(dim):
        return ir.SymbolicDim(fallback)
    if isinstance(dim, int) or dim.value is None or _is_plain(dim.value):
        return dim
    if is_expression(dim, alone):
        return dim
    new = identifier(dim.value)
    if not _is_plain(new):
        new = f"d_{new}"
    while new in alone or names.get(new, dim.value) != dim.value:  # "a-b" beside "a_b"
        new += "_"
    names[new] = dim.value
    return ir.SymbolicDim(new)


def _is_plain(name: str) -> bool:
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
