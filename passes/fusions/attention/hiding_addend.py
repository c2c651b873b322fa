"""Addends of scores that hide keys, and nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.facts.view import View

from ...masks.sites.where_masks import HIDES
from .bit_tensors import Axes, Bit, applied, bits_of, is_always
from .scores import Addend


@dataclass(frozen=True)
class KeyMask:
    """An addend that hides keys, the same for each query and head.

    Attributes:
        bit: What decides.
        visible: The value of that bit for which a key is seen.
        low: What is added where it is not.
    """

    bit: Bit
    visible: bool
    low: float


def key_mask_of(addend: Addend, view: View) -> KeyMask | None:
    """An addend as a mask of keys; None if it is anything else."""
    best: KeyMask | None = None
    for bit in addend.bits:
        roles = [atom.role for atom in bit.flat]
        if not roles or roles.pop() != "key" or any(role != "batch" for role in roles):
            continue
        if any(len({atom.role for atom in axis}) > 1 for axis in bit.axes):
            continue  # [B, n * W], of which a Reshape makes n windows: no mask of [B * n, W] yet
        found = _mask_by(addend, bit, view)
        # A boolean needs no faith; of those that do not, the one nearest to the input.
        if found is not None and (best is None or best.bit.given or not bit.given):
            best = found
    return best


def is_nothing(addend: Addend, view: View) -> bool:
    """Whether an addend is 0 everywhere: the mask of a model that was exported without one."""
    return any(
        is_always(bit.value, view) and applied(addend.value, bit.value, 1, view) == 0
        for bit in addend.bits
    )


def kept_by(value: ir.Value, axes: Axes, addends: Sequence[Addend], view: View) -> Bit | None:
    """What decides that ``value`` is 0 where one of the addends hides, and 1 elsewhere."""
    mine = {_key(bit, view): bit for bit in bits_of(value, axes, view)}
    for addend in addends:
        for theirs in addend.bits:
            bit = mine.get(_key(theirs, view))
            found = None if bit is None else _mask_by(addend, theirs, view)
            if bit is None or found is None:
                continue
            weights = [applied(value, bit.value, x, view) for x in (0, 1)]
            if weights[found.visible] == 1 and weights[not found.visible] == 0:
                return bit
    return None


def _is_integer(value: ir.Value, view: View) -> bool:
    dtype = view.shapes.dtype(value)
    return dtype is not None and dtype.is_integer()


def _key(bit: Bit, view: View) -> object:
    axes = tuple(tuple((atom.role, str(atom.size)) for atom in axis) for axis in bit.axes)
    return view.numbering.of(bit.value), axes


def _mask_by(addend: Addend, bit: Bit, view: View) -> KeyMask | None:
    if any(not x.is_graph_input() or not _is_integer(x, view) for x in bit.given):
        return None  # what is computed may be anything, and a float half a mask
    numbers = [applied(addend.value, bit.value, x, view) for x in (0, 1)]
    for visible in (False, True):
        seen, hidden = numbers[visible], numbers[not visible]
        low = None if hidden is None else hidden * addend.factor
        if seen == 0 and low is not None and HIDES >= low > -np.inf:
            return KeyMask(bit, visible, float(low))
    return None
