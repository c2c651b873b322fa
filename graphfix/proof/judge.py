"""Comparison of a run's outputs with what the original returns for the same inputs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from graphfix.core import Readings, Safety
from graphfix.feeds.case import ORDINARY, Array, Poison
from graphfix.proof.allowance import ChannelScales
from graphfix.proof.baseline import OriginalRun
from graphfix.proof.compare import (
    LeaveOut,
    Mask,
    OutputDiff,
    Tolerance,
    check_padding_finite,
    compare,
)
from graphfix.proof.content import ContentMasks
from graphfix.proof.interface import closest_name
from graphfix.proof.rankings import Ranking, settle_ties
from graphfix.shipped.in_front import last_entries


@dataclass
class OutputJudge:
    """Compares the outputs of two models for a case, in the elements the promise covers.

    Attributes:
        content: Masks of the content in the original's outputs.
        tolerance: The largest allowed difference; of outputs in float32.
        roundings: How many nodes round to float16 on the way to each output, where any do.
        safety: The promise of the repair.
        caches: The cache axis of each output that a repair cuts to the last entries.
        may_narrow: Whether outputs may be float16 where the original's are wider.
        rankings: The outputs of the original that rank scores.
        read_outputs: Returns the outputs of the original as those of the repaired model tell them.
        notes: Sentences for the reader of the verdict, in order, each once.
    """

    content: ContentMasks
    tolerance: Tolerance
    safety: Safety
    caches: Mapping[str, int] = field(default_factory=dict)
    may_narrow: bool = False
    rankings: tuple[Ranking, ...] = ()
    read_outputs: Callable[[Readings, Readings], Readings] = lambda new, _: new
    roundings: Mapping[str, int] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)

    @property
    def harmless_poisons(self) -> tuple[Poison, ...]:
        """Return the garbage in padding beside which every element must stay the same."""
        return () if self.safety == "valid-rows" else ORDINARY

    def compare_case(
        self,
        run: OriginalRun,
        outputs: Mapping[str, Array],
        channels: Mapping[str, ChannelScales] | None = None,
    ) -> Iterator[OutputDiff]:
        """Yield the difference of each output of the original from that name in ``outputs``.

        Args:
            run: The original's run.
            outputs: The repaired model's outputs for the same case.
            channels: The scales of the channels of each output, to hold each to its own, too.
        """
        readings = self.read_outputs(outputs, run.outputs)
        actual = {name: x for name, x in readings.items() if x is not None}
        actual = settle_ties(self.rankings, run.outputs, actual, self.tolerance)
        for name, array in run.outputs.items():
            if name in readings and name not in actual:
                self.notes[f"{name!r} is no output any more: a pass drops it"] = None
                continue
            if name not in actual:
                reason = f"is missing{closest_name(name, outputs)}"
                yield OutputDiff(name, run.case.name, ok=False, reason=reason)
                continue
            own = None if channels is None else channels.get(name)
            yield self._compare_output(name, run, array, actual[name], own)

    def _compare_output(
        self,
        name: str,
        run: OriginalRun,
        before: Array,
        after: Array,
        channels: ChannelScales | None,
    ) -> OutputDiff:
        if self.may_narrow and after.dtype == np.float16:
            after = after.astype(before.dtype)
        where, leave_out, note = self._elements_to_compare(name, run, before)
        if (axis := self.caches.get(name)) is not None and before.ndim == after.ndim:
            most = min(before.shape[axis], after.shape[axis])
            before, after = last_entries(before, axis, most), last_entries(after, axis, most)
            where = None if where is None else last_entries(where, axis, most)
        gate, case = self.tolerance.for_half(self.roundings.get(name, 0)), run.case
        diff = compare(
            name,
            case.name,
            before,
            after,
            gate,
            where=where,
            leave_out=leave_out,
            note=note,
            channels=channels,
        )
        if not diff.ok or case.poison:
            return diff
        if gate.whole:
            diff = check_padding_finite(diff, before, after)
        return diff if where is None else self._note_excluded(diff, run, before, after, ~where)

    def _note_excluded(
        self, diff: OutputDiff, run: OriginalRun, before: Array, after: Array, excluded: Mask
    ) -> OutputDiff:
        """Return ``diff`` with what was left out of it, if that differs too much."""
        if np.array_equal(before[excluded], after[excluded]):
            return diff
        rest = compare(
            diff.output,
            diff.case,
            before,
            after,
            self.tolerance.for_half(self.roundings.get(diff.output, 0)),
            where=excluded,
            leave_out="NaN",
        )
        if rest.ok:
            return diff
        kind = "rows of length 0" if run.case.empty_rows else "padded rows"
        return replace(diff, excluded=kind, excluded_abs=rest.max_abs)

    def _elements_to_compare(
        self, name: str, run: OriginalRun, before: Array
    ) -> tuple[Mask | None, LeaveOut, str]:
        """Return the mask of compared elements (None: all), what to leave out, and a note."""
        case, content_only = run.case, self.safety == "valid-rows"
        leave_out: LeaveOut = "NaN" if content_only else ""
        where = None if case.poison in self.harmless_poisons else run.clean_masks.get(name)
        note = ""
        if where is None and content_only and case.is_ragged:
            where = self.content.mask_of_output(name, before.shape, case)
            if where is None and not case.empty_rows:
                leave_out = "not finite"
                note = f"the dims of {name!r} do not say which rows are content"
                note += ", so all its elements were compared"
                self.notes[note] = None
        if case.empty_rows and content_only and not case.poison:
            isolated = run.isolated_masks.get(name, np.zeros(before.shape, np.bool_))
            where = isolated if where is None else where & isolated
            leave_out = "NaN"
        if where is not None and where.size:
            note = note or f"{int(where.sum()):,} of {where.size:,} elements were compared"
        return where, leave_out, note
