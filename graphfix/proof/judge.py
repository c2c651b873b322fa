"""How the outputs of a run are held to what the original made of the same inputs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from graphfix.core import Safety
from graphfix.feeds.case import ORDINARY, Array, Poison
from graphfix.proof.baseline import Ran
from graphfix.proof.compare import LeaveOut, Mask, OutputDiff, Tolerance, compare, held_in_padding
from graphfix.proof.content import Content
from graphfix.shipped.in_front import last


@dataclass
class Judge:
    """Compares what two models made of a case, in the elements that the promise is about.

    Attributes:
        content: What is content in the original's outputs.
        tolerance: What may differ.
        safety: What the repair promises to keep.
        caches: The axis of each output that is a cache, and is cut to its last entries by a repair.
        may_narrow: Whether outputs may be float16 where the original's are wider.
        notes: What could not be told apart, in order, each once.
    """

    content: Content
    tolerance: Tolerance
    safety: Safety
    caches: Mapping[str, int] = field(default_factory=dict)
    may_narrow: bool = False
    notes: dict[str, None] = field(default_factory=dict)

    @property
    def held(self) -> tuple[Poison, ...]:
        """What may lie in the padding and yet everything is the same."""
        return () if self.safety == "valid-rows" else ORDINARY

    def diffs(self, run: Ran, outputs: Mapping[str, Array]) -> Iterator[OutputDiff]:
        """Each output of the original beside the one of that name in ``outputs``."""
        for name, array in run.outputs.items():
            if name not in outputs:
                yield OutputDiff(name, run.case.name, ok=False, reason="is missing")
                continue
            yield self._diff(name, run, array, outputs[name])

    def _diff(self, name: str, run: Ran, before: Array, after: Array) -> OutputDiff:
        if self.may_narrow and after.dtype == np.float16:
            after = after.astype(before.dtype)
        where, leave_out, note = self._compared(name, run, before)
        if (axis := self.caches.get(name)) is not None and before.ndim == after.ndim:
            most = min(before.shape[axis], after.shape[axis])
            before, after = last(before, axis, most), last(after, axis, most)
            where = None if where is None else last(where, axis, most)
        gate, case = self.tolerance, run.case
        diff = compare(
            name, case.name, before, after, gate, where=where, leave_out=leave_out, note=note
        )
        if diff.ok and gate.whole and not case.poison:
            return held_in_padding(diff, before, after)
        return diff

    def _compared(self, name: str, run: Ran, before: Array) -> tuple[Mask | None, LeaveOut, str]:
        """Which elements are compared, None for all; what is left out of them; what to say."""
        case, content_only = run.case, self.safety == "valid-rows"
        leave_out: LeaveOut = "NaN" if content_only else ""
        where, note = None if case.poison in self.held else run.kept.get(name), ""
        if where is None and content_only and case.ragged:
            where = self.content.where(name, before.shape, case)
            if where is None and not case.empty_rows:
                leave_out = "not finite"
                note = f"the dims of {name!r} do not say which rows are content"
                note += ", so all its elements were compared"
                self.notes[note] = None
        if case.empty_rows and content_only and not case.poison:
            apart = run.apart.get(name, np.zeros(before.shape, np.bool_))
            where = apart if where is None else where & apart
            leave_out = "NaN"
        if where is not None and where.size:
            note = note or f"{int(where.sum()):,} of {where.size:,} elements were compared"
        return where, leave_out, note
