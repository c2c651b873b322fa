"""Roles of graph inputs, inferred from how the graph uses them.

An input is followed through the graph, together with the results ``(f(0), f(1))`` for the numbers 0
and 1. The end of the trail says what the input is. Indices into a table are token ids. The
condition that puts -inf into scores is a mask, and the pair says which of 0 and 1 marks padding. A
number that is compared with positions is a length. Names count only where use says nothing.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.facts.shapes import Shapes, shapes_of
from graphfix.facts.symbolic.expressions import Dim, symbols_of
from graphfix.feeds.full_scale import FullScale, find_full_scale
from graphfix.feeds.graph_uses import cast_type
from graphfix.feeds.index_range import Dims, IndexRange, find_index_range
from graphfix.feeds.input_trace import Clues, collect_clues
from graphfix.feeds.number_uses import NO_USES, NumberUses, find_number_uses
from graphfix.graph.walks import reachable_from
from graphfix.lengths.length_input import LengthInput

Kind = Literal[
    "tokens",  # indices into a table; low <= x < high
    "positions",  # 0, 1, 2, ... along time
    "mask",  # `valid` where there is content, `padded` where there is padding
    "lengths",  # how much of each row is content
    "relative-lengths",  # the same, as a fraction of the longest
    "cu-lengths",  # where each of several joined clips begins and ends: 0, ..., T
    "choice",  # one of a few numbers that the graph asks about
    "int",  # some whole number, low <= x < high
    "data",  # anything
]
LENGTH_KINDS: tuple[Kind, ...] = ("mask", "lengths", "relative-lengths", "cu-lengths")
"""Inputs that say where content ends."""


@dataclass(frozen=True)
class Role:
    """What an input is for.

    Attributes:
        kind: The role.
        why: The use that it was recognised by, in words for a user.
        low: The smallest integer that may be fed.
        high: One more than the largest integer that may be fed.
        below: Symbolic sizes that the integers stay below, too.
        valid: What a mask has where there is content.
        padded: What a mask has where there is padding.
        choices: The numbers that the graph compares a ``choice`` with.
        span: The lowest and highest number to feed to an input that is compared with a table.
        full_scale: How large the numbers of a wave or a picture are, if the graph shows it.
        free: Whether any other integer may be fed, as nothing bounds it.
        writes: Whether something is written at these positions, so that none may come twice.
        wraps: Whether indices from ``high`` on, as many again, are brought into range by the graph.
        sure: Whether the use proves the role; a gain is multiplied with data as a 0/1 mask is.
        uses: What its numbers meet in the graph, element by element.
    """

    kind: Kind
    why: str
    low: int = 0
    high: int = 2
    below: tuple[ir.SymbolicDim, ...] = ()
    valid: float = 1.0
    padded: float = 0.0
    choices: tuple[int, ...] = ()
    span: tuple[float, float] | None = None
    full_scale: FullScale | None = None
    free: bool = False
    writes: bool = False
    wraps: bool = False
    sure: bool = True
    uses: NumberUses = NO_USES

    def with_uses(self, uses: NumberUses) -> "Role":
        """Return the role with the thresholds and ties of its numbers in another graph, too."""
        merged = replace(
            self.uses,
            thresholds=tuple(dict.fromkeys((*self.uses.thresholds, *uses.thresholds))),
            ties=self.uses.ties or uses.ties,
        )
        return replace(self, uses=merged)

    @property
    def is_addend(self) -> bool:
        """Return whether a mask is added to scores, rather than holding 0 and 1."""
        return self.kind == "mask" and {self.valid, self.padded} != {0.0, 1.0}


UNUSED = "unused"
"""The reason for the role of an input that nothing in the graph reads."""


def roles_of(model: ir.Model, shapes: Callable[[], Shapes] | None = None) -> dict[str, Role]:
    """Return the role of every input of ``model`` that has to be fed, by name.

    Local functions are not looked into: pass a model in which they are inlined.

    Args:
        model: The model.
        shapes: Returns its symbolic shapes; called if an input indexes a tensor of no fixed size.
    """

    def value_dims(value: ir.Value | None) -> Sequence[Dim] | None:
        if value is not None and value.const_value is not None:
            return [int(d) for d in value.const_value.shape]  # type: ignore[arg-type]
        return (shapes() if shapes is not None else shapes_of(model)).dims(value)

    inputs = [x for x in model.graph.inputs if not x.is_initializer()]
    length_value = _length_value(model, inputs)
    later = {x for value in inputs for dim in (value.shape or ())[1:] for x in symbols_of(dim)}
    roles = {
        value: _role_of(
            value, length_value, value_dims, counts_entries=bool(_first_symbols(value) & later)
        )
        for value in inputs
    }
    return {value.name or "": _with_number_uses(value, role) for value, role in roles.items()}


def _length_value(model: ir.Model, inputs: Sequence[ir.Value]) -> ir.Value | None:
    """Return the input that a repair added to say the valid lengths."""
    length_input = LengthInput.from_metadata(model)
    name = None if length_input is None else length_input.input
    return next((x for x in inputs if name is not None and x.name == name), None)


_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16)


def _first_symbols(value: ir.Value) -> frozenset[str]:
    return symbols_of(value.shape[0]) if value.shape else frozenset()


def _role_of(
    value: ir.Value, length_value: ir.Value | None, dims: Dims, *, counts_entries: bool
) -> Role:
    if not value.uses():
        return _role_of_unused(value)
    clues = collect_clues(value, None if value is length_value else length_value)
    if value.dtype == ir.DataType.BOOL:
        return _role_of_bool(value, clues)
    if value.dtype in _FLOATS:
        return _float_as_indices(value, clues, dims) or _role_of_float(value, clues)
    table = find_index_range(value, dims)
    return _role_of_int(value, clues, table, counts_entries=counts_entries)


def _with_number_uses(value: ir.Value, role: Role) -> Role:
    return role if role.why == UNUSED else replace(role, uses=find_number_uses(value))


def _rank_of(value: ir.Value) -> int:
    return len(value.shape) if value.shape is not None else 0


def _has_one_per_row(value: ir.Value) -> bool:
    """Return whether the shape is ``[]``, ``[B]`` or ``[B, 1]``."""
    return _rank_of(value) <= 1 or all(d == 1 for d in value.shape[1:])  # type: ignore[index]


def _has_one_element(value: ir.Value) -> bool:
    return value.shape is not None and all(d == 1 for d in value.shape)


def _mask_role(clues: Clues) -> Role | None:
    """Return a mask role with the polarity that most uses say, or None."""
    if not clues.masks:
        return None
    zeros = sum(padded == 0.0 for _, padded, _ in clues.masks)
    padded = 0.0 if 2 * zeros >= len(clues.masks) else 1.0
    node = next(node for _, p, node in clues.masks if p == padded)
    return Role("mask", f"masks at {node}", valid=1.0 - padded, padded=padded)


def _role_of_bool(value: ir.Value, clues: Clues) -> Role:
    # One bool for all is no mask of rows or positions, whatever it hides.
    if _has_one_element(value) and (clues.branch or not clues.masks or not _rank_of(value)):
        return Role("choice", "a flag", choices=(0, 1))
    return _mask_role(clues) or Role("mask", "a boolean input")


def _role_of_float(value: ir.Value, clues: Clues) -> Role:
    readings = (_float_as_addend, _float_as_condition, _float_as_lengths, _float_as_gate)
    roles = (read(value, clues) for read in readings)
    if (role := next((role for role in roles if role is not None), None)) is not None:
        return role
    span = clues.span if _has_one_per_row(value) else None
    return Role("data", "floating point", span=span, full_scale=find_full_scale(value))


def _float_as_indices(value: ir.Value, clues: Clues, dims: Dims) -> Role | None:
    """Return the role of ids that are fed as floats, which Keras exports so, or None.

    They are cast to integers before anything is computed with them: numbers that a graph scales
    and rounds into indices, such as a pitch, are data.
    """
    moved = reachable_from(
        [value], lambda x: (y.outputs[0] for y, _ in x.uses() if y in ops.MOVES_ELEMENTS)
    )
    types = {cast_type(y) for x in moved for y, _ in x.uses() if y in ops.CASTS}
    if not any(to is not None and to.is_integer() for to in types):
        return None
    table = find_index_range(value, dims)
    # A mask that chooses one of two rows is a mask.
    if table is None or (clues.masks and table.high <= 2):
        return None
    return _role_of_indices(value, clues, table)


def _float_as_addend(value: ir.Value, clues: Clues) -> Role | None:
    if not clues.added or _rank_of(value) < 2:
        return None
    return Role("mask", f"added to scores at {clues.added}", valid=0.0, padded=-1e4)


def _float_as_condition(value: ir.Value, clues: Clues) -> Role | None:
    return None if _has_one_element(value) else _mask_role(clues)


def _float_as_lengths(value: ir.Value, clues: Clues) -> Role | None:
    if not _has_one_per_row(value) or _rank_of(value) < 1:
        return None
    if clues.fraction and (clues.compared or clues.cut):
        return Role("relative-lengths", f"a share of the size at {clues.fraction}")
    if clues.compared:
        return Role("lengths", f"compared with positions at {clues.compared}")
    return None


def _float_as_gate(value: ir.Value, clues: Clues) -> Role | None:
    if value.shape is None or _rank_of(value) < 2:
        return None
    if clues.gates and any(d == 1 for d in value.shape[1:]):
        return Role("mask", f"multiplied with data at {clues.gates}", sure=False)
    return Role("mask", "its name", sure=False) if _name_matches(value, "mask") else None


def _role_of_int(
    value: ir.Value, clues: Clues, table: IndexRange | None, *, counts_entries: bool
) -> Role:
    # The length of a row is no angle.
    has_each_entry = counts_entries or clues.waves
    if has_each_entry and _rank_of(value) == 1 and not _has_one_element(value):
        role = _int_as_places(value, clues, table)
        if role is not None:
            return role
    role = _int_as_number_per_row(value, clues, table) if _has_one_per_row(value) else None
    if role is not None:
        return role
    if table is not None:
        return _role_of_indices(value, clues, table)
    readings = (
        _int_as_condition,
        _int_as_positions,
        _int_as_signal,
        _int_as_counted_mask,
        _int_as_size,
    )
    roles = (read(value, clues) for read in readings)
    return next(
        (role for role in roles if role is not None), Role("int", "a whole number", free=True)
    )


def _int_as_places(value: ir.Value, clues: Clues, table: IndexRange | None) -> Role | None:
    """Return the role of a vector that says at which place each entry is, or None."""
    if table is not None and (table.writes or _name_matches(value, "position")):
        reason = f"places at {table.node}"
        return Role(
            "positions",
            reason,
            low=table.low,
            high=table.high,
            below=table.below,
            writes=table.writes,
        )
    if clues.waves:
        return Role("positions", f"angles at {clues.waves}", high=1 << 30)
    if _name_matches(value, "position"):
        return Role("positions", "its name", high=1 << 30, sure=False)
    return None


def _int_as_number_per_row(value: ir.Value, clues: Clues, table: IndexRange | None) -> Role | None:
    if clues.neighbours or _name_matches(value, "cu_?seq|cu_?len"):
        return Role("cu-lengths", "differences of neighbours are lengths")
    counted = clues.compared or clues.limits
    # A number that only makes a shape is a size, not the length of a row.
    if clues.compared or (counted and _rank_of(value) >= 1):
        return Role("lengths", f"counted against positions at {counted}")
    if table is not None:
        return None
    if _has_one_element(value) and clues.compared_numbers:
        choices = tuple(sorted({*clues.compared_numbers}))
        return Role("choice", "compared with constants", choices=choices, free=True)
    if _rank_of(value) >= 1 and _name_matches(value, "len"):
        return Role("lengths", "its name", sure=False)
    return None


def _role_of_indices(value: ir.Value, clues: Clues, table: IndexRange) -> Role:
    low, high, reason = table.low, table.high, f"indices of {table.node}"
    # Ids that the graph asks about, such as a padding id, are not content.
    special_ids = tuple(sorted({x for x in clues.compared_numbers if low <= x < high}))
    role = Role("tokens", reason, low=low, high=high, below=table.below, wraps=table.wraps)
    if _name_matches(value, "position"):
        return replace(role, kind="positions", writes=table.writes)
    return replace(role, choices=special_ids)


def _int_as_condition(value: ir.Value, clues: Clues) -> Role | None:
    return None if _has_one_per_row(value) else _mask_role(clues)


def _int_as_positions(value: ir.Value, clues: Clues) -> Role | None:
    if clues.waves:
        return Role("positions", f"angles at {clues.waves}", high=1 << 30)
    if _name_matches(value, "position") and not _has_one_per_row(value):
        return Role("positions", "its name", high=1 << 30, sure=False)
    return None


def _int_as_counted_mask(value: ir.Value, clues: Clues) -> Role | None:
    counted = clues.summed or clues.gates or ("its name" if _name_matches(value, "mask") else "")
    if not counted or _has_one_per_row(value):
        return None
    return Role("mask", f"counted at {counted}", sure=False)


def _int_as_size(_value: ir.Value, clues: Clues) -> Role | None:
    is_size = clues.shape or clues.limits
    return Role("int", "a size", low=1, high=5) if is_size else None


def _int_as_signal(value: ir.Value, clues: Clues) -> Role | None:
    full_scale = find_full_scale(value)
    if full_scale is None or value.dtype is None or value.shape is None:
        return None
    if (clues.gates or clues.summed) and any(d == 1 for d in value.shape[1:]):
        return None  # more likely a mask that broadcasts
    info, usual = np.iinfo(value.dtype.numpy()), int(full_scale.usual)
    low, high = max(-usual, info.min), min(usual, info.max) + 1
    return Role("data", "samples or pixels", low=low, high=high, full_scale=full_scale)


def _role_of_unused(value: ir.Value) -> Role:
    if value.dtype == ir.DataType.BOOL:
        return Role("choice", UNUSED, choices=(0,))
    return Role("data", UNUSED) if value.dtype in _FLOATS else Role("int", UNUSED, high=1)


def _name_matches(value: ir.Value, pattern: str) -> bool:
    return re.search(pattern, value.name or "", re.IGNORECASE) is not None
