"""Addends of scores that hide keys and do nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.facts.hidden_scores import hides_score
from graphfix.facts.view import View

from .bit_tensors import Axes, BitTensor, bit_tensors_of, evaluate_for_bit, is_always_true
from .scores import Addend


@dataclass(frozen=True)
class KeyMask:
    """An addend that hides keys, the same for each query and head.

    Attributes:
        bit: The 0/1 tensor that decides which keys are hidden.
        visible: The value of that tensor for a visible key.
        low: What is added to the scores of hidden keys.
    """

    bit: BitTensor
    visible: bool
    low: float


def key_mask_of(addend: Addend, view: View) -> KeyMask | None:
    """Return an addend as a mask of keys, or None if it is anything else."""
    best: KeyMask | None = None
    for bit in addend.bits:
        roles = [atom.role for atom in bit.flat_atoms]
        if not roles or roles.pop() != "key" or any(role != "batch" for role in roles):
            continue
        if any(len({atom.role for atom in axis}) > 1 for axis in bit.axes):
            continue  # [B, n * W] is reshaped to n windows later: no mask of [B * n, W] yet
        mask = _mask_from_bit(addend, bit, view)
        # A boolean is proved to be 0 or 1: it is preferred, and of several the nearest to an input.
        if mask is not None and (best is None or best.bit.binary_inputs or not bit.binary_inputs):
            best = mask
    return best


def is_always_zero(addend: Addend, view: View) -> bool:
    """Return whether an addend is 0 everywhere: a model was exported without a mask."""
    return any(
        is_always_true(bit.value, view) and evaluate_for_bit(addend.value, bit.value, 1, view) == 0
        for bit in addend.bits
    )


def find_hiding_bit(
    value: ir.Value, axes: Axes, addends: Sequence[Addend], view: View
) -> BitTensor | None:
    """Return the bit that makes ``value`` 0 where an addend hides and 1 elsewhere, or None."""
    own_bits = {_bit_key(bit, view): bit for bit in bit_tensors_of(value, axes, view)}
    for addend in addends:
        for addend_bit in addend.bits:
            bit = own_bits.get(_bit_key(addend_bit, view))
            mask = None if bit is None else _mask_from_bit(addend, addend_bit, view)
            if bit is None or mask is None:
                continue
            weights = [evaluate_for_bit(value, bit.value, x, view) for x in (0, 1)]
            if weights[mask.visible] == 1 and weights[not mask.visible] == 0:
                return bit
    return None


def _is_integer(value: ir.Value, view: View) -> bool:
    dtype = view.shapes.dtype(value)
    return dtype is not None and dtype.is_integer()


def _bit_key(bit: BitTensor, view: View) -> object:
    axes = tuple(tuple((atom.role, str(atom.size)) for atom in axis) for axis in bit.axes)
    return view.numbering.number_of(bit.value), axes


def _mask_from_bit(addend: Addend, bit: BitTensor, view: View) -> KeyMask | None:
    if any(not x.is_graph_input() or not _is_integer(x, view) for x in bit.binary_inputs):
        return None  # a computed tensor may hold other numbers, and a float 0.5
    numbers = [evaluate_for_bit(addend.value, bit.value, x, view) for x in (0, 1)]
    for visible in (False, True):
        shown, hidden = numbers[visible], numbers[not visible]
        low = None if hidden is None else hidden * addend.factor
        if shown == 0 and low is not None and hides_score(low) and low > -np.inf:
            return KeyMask(bit, visible, float(low))
    return None
