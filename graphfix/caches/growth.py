"""Which dims of a model are lengths of caches, and which states have them.

A state grows where its output is longer than its input along a dim that is the input's own:
``[B, heads, past, 64]`` comes out as ``[B, heads, past + seq, 64]``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.editing.local_functions import inline
from graphfix.facts import shapes
from graphfix.facts.shapes import Shapes
from graphfix.facts.symbolic.expressions import Dim, equal, replaced
from graphfix.feeds.dim_groups import Tie
from graphfix.feeds.input import plain, symbols
from graphfix.feeds.signature import Signature
from graphfix.feeds.states import State, states_of
from graphfix.graph.dims import name_dims


@dataclass(frozen=True)
class GrowingState:
    """A state, and where it grows.

    Attributes:
        input: The input that takes it.
        output: The output that gives it.
        axis: The axis that is longer in the output; None for a state of one size.
        dim: What the model calls that axis of the input; "" for a state of one size.
    """

    input: str
    output: str
    axis: int | None
    dim: str


def growing(model: ir.Model, known: Shapes, told: Sequence[State] = ()) -> tuple[GrowingState, ...]:
    """The states of a model, inferred from names and shapes, with the axis along which each grows.

    Args:
        model: The model, its dims as :func:`unify` leaves them.
        known: Its symbolic shapes in usual runs.
        told: States that the user names; the others are told from the graph.
    """
    named = {x.input for x in told} | {x.output for x in told}
    found = [x for x in states_of(model) if not {x.input, x.output} & named]
    dims = {x.name: known.dims(x) for x in (*model.graph.inputs, *model.graph.outputs)}
    order = [x.name for x in model.graph.inputs]
    states = sorted((*told, *found), key=lambda x: order.index(x.input))
    return tuple(_grown(x, dims[x.input], dims[x.output]) for x in states)


def _grown(state: State, before: Sequence[Dim] | None, after: Sequence[Dim] | None) -> GrowingState:
    for axis, (old, new) in enumerate(zip(before or (), after or (), strict=False)):
        if (name := plain(old)) is not None and not equal(old, new) and name in symbols(new):
            return GrowingState(state.input, state.output, axis, name)
    return GrowingState(state.input, state.output, None, "")


def unify(model: ir.Model, tie: Tie = "past") -> Signature:
    """Give equal dims of the inputs one name, and a mask as long as past and present their sum.

    Local functions are inlined, since they may read the sizes.

    Args:
        model: The model, which is changed.
        tie: How to tie dims that nothing in the graph relates.

    Returns:
        What it was told from.
    """
    name_dims(model)
    if model.functions:
        inline(model)
    signature = Signature(model, tie)
    derived = signature.derived
    own = (s for s in signature.symbols() if s not in derived)
    rename: dict[str, Dim] = {s: ir.SymbolicDim(signature.group(s)) for s in own}
    rename |= {s: replaced(dim, rename) for s, dim in derived.items()}
    for value in model.graph.inputs:
        item = next((x for x in signature.inputs if x.name == value.name), None)
        if item is not None and item.dims and value.shape is not None:
            value.shape = ir.Shape([_renamed(x, rename) for x in item.dims])
    shapes.forget(model)
    return signature


def _renamed(dim: Dim, rename: Mapping[str, Dim]) -> Dim:
    name = plain(dim)
    return rename.get(name, dim) if name is not None else replaced(dim, rename)
