"""What the original computed, kept from one verdict for the next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

    from graphfix.proof.baseline import Baseline


@dataclass
class Held:
    """What the original made of its inputs, kept for verdicts on other models made of it.

    They have to be fed in the same way: the same input sizes are fixed in all, the same inputs
    added. Nothing is kept of an original that draws random numbers.

    Attributes:
        original: The original's cases, run.
        failed: The names of cases in which a model was found to differ: the next that is only to
            be told apart begins with them.
    """

    original: Baseline | None = None
    failed: list[str] = field(default_factory=list)

    @property
    def graph(self) -> ir.Model | None:
        """The original, as it was read to be run; not to be changed."""
        return None if self.original is None else self.original.graph
