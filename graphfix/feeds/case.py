"""A case: one set of inputs for a model, and which part of them is content."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from graphfix.feeds.case_style import Side
from graphfix.feeds.roles import Role
from graphfix.feeds.signature import Signature
from graphfix.runtime.port import Array as Array

T = TypeVar("T")
# A number for each row of the batch, by the name of a dim or of an input.
PerRow = Mapping[str, tuple[int, ...]]
Poison = Literal["", "NaN", "large values", "other numbers", "other ids", "guarded numbers"]
# Padding that could be content: unless only valid rows are promised, no element may change.
ORDINARY: tuple[Poison, ...] = ("other numbers", "other ids")


@dataclass(frozen=True)
class Case:
    """One set of inputs.

    Attributes:
        name: What it is, for a user: ``batch=2 frames=23 lengths 23,11``.
        dims: The size of every symbolic dim of the inputs, by the model's own names.
        feeds: An array for each input.
        valid: For each symbol that a mask or length input governs, how much of it is content in
            each row of the batch. Empty if the model has no such input.
        poison: What lies beyond the valid length of the data: nothing special, NaN, 1e4, or
            numbers and ids as there are in content. Or NaN and infinity in the content itself,
            where the graph guards against them.
        side: On which side the padding lies.
        holes: For each symbol, where its content has holes, as rows of times.
        base: For a poisoned case, the name of the case that it is otherwise equal to.
        large_caches: Whether caches hold numbers far larger than those that the model puts into
            them; such cases do not count for float16.
        full_scale: Whether waves are as loud as they can be, or pictures have white in them.
    """

    name: str
    dims: dict[str, int]
    feeds: dict[str, Array]
    valid: dict[str, tuple[int, ...]] = field(default_factory=dict)
    poison: Poison = ""
    base: str = ""
    side: Side = "right"
    holes: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    large_caches: bool = False
    full_scale: bool = False

    @property
    def is_ragged(self) -> bool:
        """Return whether some row is shorter than its array."""
        return any(length < self.dims[s] for s, rows in self.valid.items() for length in rows)

    @property
    def element_count(self) -> int:
        """Return the number of elements fed."""
        return sum(array.size for array in self.feeds.values())

    @property
    def empty_rows(self) -> frozenset[int]:
        """Return the rows without any content."""
        return frozenset(
            row for rows in self.valid.values() for row, length in enumerate(rows) if not length
        )


@dataclass(frozen=True)
class DroppedCase:
    """A case that was tried and that the original cannot run.

    Attributes:
        name: What it is.
        reason: Why not.
        has_inputs: Whether its inputs could be made: if so, the reason is ONNX Runtime's.
    """

    name: str
    reason: str
    has_inputs: bool = True


class Cases(list[Case]):
    """The cases that run, the dropped ones, and the role of each input.

    Attributes:
        dropped: Cases that the model as given cannot run, with ONNX Runtime's reason.
        signature: The inputs, their roles and their symbols.
        left_out: Sizes that would have cost too much.
        unmet: Sizes at which a graph decides and that no case has.
    """

    def __init__(
        self,
        cases: Iterable[Case],
        dropped: Iterable[DroppedCase],
        signature: Signature,
        left_out: Iterable[str] = (),
        unmet: Iterable[str] = (),
    ) -> None:
        super().__init__(cases)
        self.dropped = list(dropped)
        self.signature = signature
        self.left_out = list(left_out)
        self.unmet = list(unmet)

    @property
    def input_roles(self) -> dict[str, Role]:
        """Return the role of each input, by name."""
        return {x.name: x.role for x in self.signature.inputs}


def key_by_user_name(signature: Signature, by_symbol: Mapping[str, T]) -> dict[str, T]:
    """Return a mapping by symbol, keyed by the model's own dim names instead."""
    return {signature.user_name(s): v for s, v in by_symbol.items()}
