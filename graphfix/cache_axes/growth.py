"""Dims of a model that are lengths of caches, and the states that have them.

A state grows where its output is longer than its input along a dim that is the input's own:
``[B, heads, past, 64]`` comes out as ``[B, heads, past + seq, 64]``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.cache_axes.buffers import count_of_entries, fix_windows
from graphfix.editing.local_functions import inline_functions
from graphfix.facts import shapes
from graphfix.facts.shapes import Shapes
from graphfix.facts.symbolic.expressions import Dim, equal_dims, replace_symbols
from graphfix.feeds.dim_groups import Tie
from graphfix.feeds.input import single_symbol, symbols
from graphfix.feeds.signature import Signature
from graphfix.feeds.states import StatePair, find_states, find_states_by_shape
from graphfix.graph.dims import name_dims


@dataclass(frozen=True)
class GrowingState:
    """A state of a model, and the axis along which it grows.

    Attributes:
        input: The name of its input.
        output: The name of its output.
        axis: The axis that is longer in the output; None for a state of fixed size.
        dim: The name of that dim of the input; "" for a state of fixed size.
    """

    input: str
    output: str
    axis: int | None
    dim: str


def find_growing_states(
    model: ir.Model, usual_shapes: Shapes, user_states: Sequence[StatePair] = ()
) -> tuple[GrowingState, ...]:
    """Find the states of a model by names and shapes, and the axis along which each grows.

    Args:
        model: The model, its dims as :func:`unify_dims` leaves them.
        usual_shapes: Its symbolic shapes in usual runs.
        user_states: States that the user names; the others are inferred from the graph.
    """
    user_ports = {x.input for x in user_states} | {x.output for x in user_states}
    other_states = [x for x in find_states(model) if not {x.input, x.output} & user_ports]
    return _growing_states_of((*user_states, *other_states), model, usual_shapes)


def find_growing_states_by_shape(
    model: ir.Model, usual_shapes: Shapes, states: Sequence[GrowingState]
) -> tuple[GrowingState, ...]:
    """Find the states that order and shape tell, where names do not.

    Args:
        model: The model, its dims as :func:`unify_dims` leaves them.
        usual_shapes: Its symbolic shapes in usual runs.
        states: The states that are known.
    """
    known = [StatePair(x.input, x.output) for x in states]
    outputs = [_with_inferred_dims(x, usual_shapes) for x in model.graph.outputs]
    pairs = find_states_by_shape(model, known, outputs)
    return _growing_states_of(pairs, model, usual_shapes)


def _with_inferred_dims(value: ir.Value, shapes: Shapes) -> ir.Value:
    dims = shapes.dims(value)
    shape = None if dims is None else ir.Shape(dims)
    return ir.Value(name=value.name, type=value.type, shape=shape)


def _growing_states_of(
    states: Sequence[StatePair], model: ir.Model, usual_shapes: Shapes
) -> tuple[GrowingState, ...]:
    """Return states in the order of the inputs, with the axis along which each grows."""
    dims = {x.name: usual_shapes.dims(x) for x in (*model.graph.inputs, *model.graph.outputs)}
    order = [x.name for x in model.graph.inputs]
    ordered = sorted(states, key=lambda x: order.index(x.input))
    return tuple(_growing_state(x, dims[x.input], dims[x.output]) for x in ordered)


def _growing_state(
    state: StatePair, before: Sequence[Dim] | None, after: Sequence[Dim] | None
) -> GrowingState:
    for axis, (old, new) in enumerate(zip(before or (), after or (), strict=False)):
        if (
            (name := single_symbol(old)) is not None
            and not equal_dims(old, new)
            and name in symbols(new)
        ):
            return GrowingState(state.input, state.output, axis, name)
    return GrowingState(state.input, state.output, None, "")


def unify_dims(model: ir.Model, tie: Tie = "past") -> Signature:
    """Give equal dims of the inputs one name; a mask over past and present gets their sum.

    Local functions are inlined, since they may read the sizes. Caches that hold a window get its
    size. Where caches are buffers, a mask that is counted is as long as entries that no other dim
    is, and the new ones.

    Args:
        model: The model, which is changed.
        tie: How to tie dims that nothing in the graph relates.

    Returns:
        The signature that the names were inferred from.
    """
    name_dims(model)
    if model.functions:
        inline_functions(model)
    fix_windows(model)
    signature = Signature(model, tie)
    derived: dict[str, Dim] = {**signature.derived}
    if tie == "past":
        derived |= count_of_entries(signature)
    own = (s for s in signature.symbols() if s not in derived)
    rename: dict[str, Dim] = {s: ir.SymbolicDim(signature.group_of(s)) for s in own}
    rename |= {s: replace_symbols(dim, rename) for s, dim in derived.items()}
    for value in model.graph.inputs:
        item = next((x for x in signature.inputs if x.name == value.name), None)
        if item is not None and item.dims and value.shape is not None:
            value.shape = ir.Shape([_rename_dim(x, rename) for x in item.dims])
    shapes.drop_shapes(model)
    return signature


def _rename_dim(dim: Dim, rename: Mapping[str, Dim]) -> Dim:
    name = single_symbol(dim)
    return rename.get(name, dim) if name is not None else replace_symbols(dim, rename)
