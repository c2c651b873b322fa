"""A tensor that was compared, and a node at which two runs part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphfix.probing.parting import Inner


@dataclass(frozen=True)
class Site:
    """A node that takes what is the same in both runs and makes what is not.

    Attributes:
        tensor: The tensor that parts there.
        node: The node, in the user's names.
        op: Its operator.
        module: The module it belongs to, as far as the exporter says.
        kind: What is suspected, in a word or two; see :class:`graphfix.probing.causes.Cause`.
        cause: The same in a sentence.
        max_abs: How far the tensor is apart.
        cosine: The cosine of its two versions.
        scale: Its largest absolute value in the first run.
    """

    tensor: str
    node: str
    op: str
    module: str
    kind: str
    cause: str
    max_abs: float
    cosine: float
    scale: float


@dataclass(frozen=True)
class Place:
    """A tensor that was compared, with where it is made."""

    inner: Inner
    node: str
    op: str
    module: tuple[str, ...]
    reached: bool
    """Whether its difference leads to an output that parts."""
