"""Check that a model is safe to pad: compare clips alone with the same clips in containers.

DirectML is fast at one shape, so clips are padded to one container. If padding leaks, a clip in a
container gives other numbers than the clip alone; this check measures by how much.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from graphfix.facts.forced_sizes import ForcedSize
from graphfix.feeds.case import DroppedCase
from graphfix.feeds.clips import FILLS, Fill
from graphfix.files.model_input import (
    ModelLike,
    as_path_or_model,
    require_valid_choices,
    sizes_by_dim,
)
from graphfix.json_types import to_plain_record
from graphfix.lengths.length_input import LengthInput
from graphfix.probing.containers import PaddedCheck
from graphfix.probing.in_container import PaddedDiff
from graphfix.proof.budget import Budget
from graphfix.proof.compare import Tolerance
from graphfix.proof.own_rounding import OwnRounding, measure_own_rounding
from graphfix.providers.table import EVERYWHERE, Ep
from graphfix.runtime.own_errors import raises_own_errors
from graphfix.runtime.python import require_provider
from graphfix.wording import Proof, Tell

__all__ = ["PaddedDiff", "PaddedVerdict", "padded"]


@dataclass(frozen=True, repr=False)
class PaddedVerdict(Proof):
    """Verdict of the padded check.

    Attributes:
        ok: Whether every output of every clip is within the gates.
        checks: The difference of each output of each clip in each container, by each padding.
        axis: The name of the dim that is padded.
        fed: The input that takes the lengths, if the metadata of the model names one.
        told: The inputs that say where content ends.
        tolerance: The gates.
        dropped: Lengths and containers that the model cannot run without padding.
        reason: Why a container gave nothing to compare; empty if all did.
        notes: Sentences for the reader.
        forced: The dims of the inputs that a weight gives one size only, by name.
    """

    ok: bool
    checks: tuple[PaddedDiff, ...]
    axis: str
    fed: LengthInput | None
    told: tuple[str, ...]
    tolerance: Tolerance
    dropped: tuple[DroppedCase, ...] = ()
    reason: str = ""
    notes: tuple[str, ...] = ()
    forced: Mapping[str, ForcedSize] = field(default_factory=dict)

    @property
    def worst(self) -> PaddedDiff | None:
        """Return the output furthest from the clip alone, failed ones first; None without any."""
        checks = self.checks
        return max(
            checks, key=lambda c: (not c.ok, c.diff.excess_ratio, c.diff.max_abs), default=None
        )

    def to_json(self) -> dict[str, object]:
        """Return the verdict as plain data for ``json``; NaN and infinity become text."""
        worst = self.worst
        data = {
            "ok": self.ok,
            "summary": str(self),
            "reason": self.reason,
            "axis": self.axis,
            "lengths": self.fed,
            "told": self.told,
            "max_abs": self.tolerance.max_abs,
            "cosine": self.tolerance.cosine,
            "worst": None if worst is None else _check_to_json(worst),
            "checks": [_check_to_json(check) for check in self.checks],
            "dropped": [{"name": x.name, "reason": x.reason} for x in self.dropped],
            "notes": self.notes,
            "forced": self.forced,
        }
        return to_plain_record(data)

    def __str__(self) -> str:
        if self.reason:
            return self.reason
        worst = self.worst
        if worst is None:
            return "nothing was compared"
        diff = worst.diff
        if not self.ok:
            bad = sum(not check.ok for check in self.checks)
            text = f"output {diff.output!r} {diff.reason}, for a clip of {worst}"
            return f"{text}; {bad:,} of {len(self.checks):,} comparisons failed."
        text = f"the same in all {len(self.checks):,} comparisons: "
        if diff.max_abs == 0:
            return text + "not one number differs."
        return f"{text}{diff.difference_text}, for a clip of {worst}."


@raises_own_errors
def padded(
    model: ModelLike,
    *,
    dims: Mapping[str, int | Sequence[int]] | None = None,
    container: int | Sequence[int] | None = None,
    axis: str = "",
    original: ModelLike | None = None,
    fills: Sequence[Fill] = FILLS,
    tolerance: Tolerance | None = None,
    seeds: int | None = None,
    ep: Ep = "cpu",
    progress: Tell | None = None,
) -> PaddedVerdict:
    """Run clips alone and in containers, and compare every output on the valid prefix.

    The valid prefix of an output has the shape that it has for the clip alone. Clips alone run on
    the CPU without ONNX Runtime's own graph optimizations. Masks and lengths say where content
    ends: those that the model has by itself, and the one named by its ``graphfix.lengths``
    metadata. A model that has neither is run as it is.

    Args:
        model: The model; its containers are run.
        dims: Sizes of the symbolic dims by name: those of the time axis are the clips. A batch of
            more than one puts clips of different lengths into one container.
        container: One or more lengths to pad to; by default 1.5 and 12 times each clip.
        axis: The dim that is padded, by name or place (``audio.2``), if several could be.
        original: The model that runs the clips alone; by default ``model`` itself.
        fills: What to put into the padding.
        tolerance: The gates, :class:`Tolerance` by default; then a model that computes in float16
            may differ a hundred times more, and one that was repaired from a quantized original as
            far as that differs from itself.
        seeds: How many different contents to try; by default one, or several if there are outputs
            that are whole numbers, which show a leak in some contents only.
        ep: Where the containers run: on the CPU, or on another provider with all optimizations.
        progress: Called with a short text at each step.

    Raises:
        ModelError: The model cannot be read, or ONNX Runtime rejects it.
        FeedError: There is no such dim, a container is too short, or no clip or container runs.
        UsageError: The provider is unavailable.
    """
    require_valid_choices(ep=(ep, EVERYWHERE))
    require_provider(ep)
    containers = [*sizes_by_dim({"container": container or ()})["container"]]
    model = as_path_or_model(model)
    original = None if original is None else as_path_or_model(original)
    sizes, tell = sizes_by_dim(dims), progress or (lambda _: None)

    def run_check(allowed: Tolerance | None) -> PaddedCheck:
        job = PaddedCheck(
            model, original, sizes, containers, axis, tuple(fills), allowed, seeds, ep
        )
        job.run(tell)
        return job

    job, notes = run_check(tolerance), list[str]()
    if original is not None and tolerance is None and not job.ok:
        own = _measure_own_rounding(job)
        if own is not None and (wide_job := run_check(own.widen(job.tolerance))).ok:
            job, notes = wide_job, [str(own)]
    ok = job.ok
    return PaddedVerdict(
        ok=ok,
        checks=tuple(job.checks),
        axis=job.clip_runs.dim_name,
        fed=job.clip_runs.length_input,
        told=job.length_inputs,
        tolerance=job.tolerance,
        dropped=tuple(job.clip_runs.dropped),
        reason=job.reason,
        notes=(*notes, *job.run_notes(ok)),
        forced=job.clip_runs.signature.forced,
    )


def _measure_own_rounding(job: PaddedCheck) -> OwnRounding | None:
    """Return how far an original that rounds differs from itself; None if it does not round."""
    runs = [(clip.feeds, clip.outputs) for clip in job.clips_alone]
    seconds = Budget().part
    return measure_own_rounding(
        job.native_source, job.native, runs, job.tolerance, seconds, optimize=False
    )


def _check_to_json(check: PaddedDiff) -> dict[str, object]:
    head = asdict(check)
    diff = head.pop("diff")
    return head | {name: value for name, value in diff.items() if name != "case"}
