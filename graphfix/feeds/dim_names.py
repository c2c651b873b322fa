"""The symbolic dims of the inputs, renamed: each has a name, and it can be computed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from graphfix.model.symbolic import Dim

if TYPE_CHECKING:
    from collections.abc import Iterable


def dim_name(value: ir.Value, axis: int) -> str:
    """What a user calls a symbolic dim of an input; one without a name is called by its place."""
    dim = value.shape[axis] if value.shape is not None else None
    named = dim.value if isinstance(dim, ir.SymbolicDim) else None
    return named or _identifier(f"{value.name}_{axis}")


def scratch(model: ir.Model) -> ir.Model:
    """A copy to rename dims in, with local functions inlined; weights are shared, not copied."""
    copy = model.clone()
    if copy.functions:
        InlinePass()(copy)
    return copy


def rename_dims(model: ir.Model) -> dict[str, str]:
    """Give every symbolic dim of the inputs a name that is an identifier; new name -> old name.

    An expression such as ``past + 1`` stays one if its symbols are dims by themselves; a name
    such as ``batch-size`` only looks like one.
    """
    alone = {
        d.value
        for v in model.graph.inputs
        for d in v.shape or ()
        if isinstance(d, ir.SymbolicDim) and d.value and d.value.isidentifier()
    }
    names: dict[str, str] = {}
    for value in model.graph.inputs:
        if value.shape is None:
            continue
        dims = [_renamed(d, dim_name(value, a), alone, names) for a, d in enumerate(value.shape)]
        value.shape = ir.Shape(dims)
    return names


def _renamed(dim: Dim, fallback: str, alone: Iterable[str], names: dict[str, str]) -> Dim:
    if isinstance(dim, int):
        return dim
    if not dim.value:
        return ir.SymbolicDim(fallback)
    if dim.value.isidentifier():
        return dim
    try:
        parts = dim.free_symbols()
    except ValueError:
        parts = frozenset()
    if parts and parts <= set(alone):
        return dim
    new = _identifier(dim.value)
    names[new] = dim.value
    return ir.SymbolicDim(new)


def _identifier(name: str) -> str:
    clean = re.sub(r"\W", "_", name, flags=re.ASCII)
    return clean if clean.isidentifier() else f"d_{clean}"
