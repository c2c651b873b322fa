"""Positions that are computed of a size, ``size - 1 - i + j``, as numbers at one size of a trial.

``torch.arange(n - 1, -n, -1)`` is a Range, whose numbers are followed as they are. Where passes
have made it of a CumSum and what is added to that, its numbers are found here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphfix.model.values import attr_ints, is_op

if TYPE_CHECKING:
    import onnx_ir as ir

    from graphfix.lengths.domain import Ids, State
    from graphfix.lengths.trial import Trial

NUMBERS = 100_000
"""Cells of what is known as a number begin here."""
_DEEP = 8
_MOVES = ("Flatten", "Reshape", "Squeeze", "Tile", "Transpose", "Unsqueeze")
_DOES = {"Add": np.add, "Mul": np.multiply, "Sub": np.subtract}


def numbers_of(trial: Trial, value: ir.Value | None, depth: int = _DEEP) -> Ids | None:
    """What an integer tensor holds in a run, of 1 along each axis that it is the same along.

    Args:
        trial: The run.
        value: The tensor.
        depth: How many operators back to look.
    """
    node = None if value is None else value.producer()
    if value is None or not depth:
        return None
    state = trial.site.known(value)
    if state is not None and (plain := _plain(trial, value, state)) is not None:
        return plain
    if is_op(node, "Cast", "Identity", "Expand"):
        found = numbers_of(trial, node.inputs[0], depth - 1)
        more = 0 if found is None or state is None else state.rank - found.ndim
        return found if found is None else found.reshape((1,) * more + found.shape)
    if is_op(node, *_MOVES):
        return _moved(trial, node, value, depth - 1)
    if is_op(node, "Range"):
        ends = [trial.site.held(x) for x in node.inputs]
        if any(x is None or len(x) != 1 for x in ends):
            return None
        return np.arange(*(trial.number(x[0]) for x in ends if x), dtype=np.int64)
    if not is_op(node, *_DOES):
        return None
    sides = [numbers_of(trial, x, depth - 1) for x in node.inputs]
    if sides[0] is None or sides[1] is None:
        return None
    made: Ids = _DOES[node.op_type](sides[0], sides[1])
    return made


def _moved(trial: Trial, node: ir.Node, value: ir.Value, depth: int) -> Ids | None:
    """What a node makes that copies or lays out anew, each number on its own."""
    found, dims = numbers_of(trial, node.inputs[0], depth), trial.site.dims(node.inputs[0])
    made = trial.site.dims(value)
    if found is None or dims is None or made is None:
        return None
    whole = np.broadcast_to(found, [trial.number(x) for x in dims])
    if node.op_type == "Tile":
        repeats = trial.site.held(node.inputs[1])
        return None if repeats is None else np.tile(whole, [trial.number(x) for x in repeats])
    if node.op_type == "Transpose":
        return np.transpose(whole, attr_ints(node, "perm"))
    return whole.reshape([trial.number(x) for x in made])


def _plain(trial: Trial, value: ir.Value, state: State) -> Ids | None:
    """Those of one number, of a size, and of what counts along an axis."""
    if state.axes is None:
        return None
    ones = (1,) * state.rank
    if state.physical:
        held = trial.site.held(value)
        if held is None or len(held) != 1:
            return None
        return np.full(ones, trial.number(held[0]), np.int64)
    if state.fill is not None:
        whole = float(state.fill).is_integer()
        return np.full(ones, int(state.fill), np.int64) if whole else None
    dims = trial.site.dims(value)
    if state.steps is None or len(state.timed) != 1 or dims is None:
        return None
    axis, (start, step) = state.timed[0], state.steps
    at = start + step * np.arange(trial.number(dims[axis]), dtype=np.int64)
    return at.reshape([-1 if i == axis else 1 for i in range(state.rank)])
