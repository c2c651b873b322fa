"""A tensor that was compared, and a node at which two runs part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["same", "parted", "skipped"]


@dataclass(frozen=True, slots=True)
class Inner:
    """One tensor of both runs.

    Attributes:
        tensor: Its name.
        state: Whether it is the same in both, has parted, or could not be compared.
        reason: Why not, if so.
        max_abs: The largest absolute difference of the compared elements.
        cosine: Their cosine.
        scale: The largest absolute value in the first run.
        allowed: The largest difference that counts as the same; 0 for integers.
        shape: Its shape in the first run.
        other: Its shape in the second run.
    """

    tensor: str
    state: State
    reason: str = ""
    max_abs: float = 0.0
    cosine: float = 1.0
    scale: float = 0.0
    allowed: float = 0.0
    shape: tuple[int, ...] = ()
    other: tuple[int, ...] = ()

    @property
    def relative(self) -> float:
        """The largest difference as a share of the scale; 1 if one of them is not a number."""
        if self.state == "parted" and not (self.scale and self.max_abs):
            return 1.0
        return self.max_abs / self.scale if self.scale else 0.0


@dataclass(frozen=True)
class PartingNode:
    """A node that takes what is the same in both runs and makes what is not.

    Attributes:
        tensor: The tensor that parts there.
        node: The node, in the user's names.
        op: Its operator.
        module: The module it belongs to, as far as the exporter says.
        max_abs: How far the tensor is apart.
        cosine: The cosine of its two versions.
        scale: Its largest absolute value in the first run.
    """

    tensor: str
    node: str
    op: str
    module: str
    max_abs: float
    cosine: float
    scale: float


@dataclass(frozen=True)
class ComparedTensor:
    """A tensor that was compared, with where it is made."""

    inner: Inner
    node: str
    op: str
    module: tuple[str, ...]
    reached: bool
    """Whether its difference leads to an output that parts."""
