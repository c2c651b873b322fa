"""How far a model differs from itself: what a repair of it may change.

In a quantized model, a repair that is right to the last bits moves a few numbers across the border
between two integers, and what follows from them by a hundredth. So does anything else: ONNX
Runtime's optimizations, or a change of the last bit of a weight or an input. What those do to the
original is measured, and a repaired model may do as much.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from graphfix.errors import ModelError
from graphfix.files.model_input import PathOrModel
from graphfix.proof.allowance import ChannelScales
from graphfix.proof.between_roundings import rounds_somewhere
from graphfix.proof.by_channel import scales_of
from graphfix.proof.compare import Array, OutputDiff, Tolerance, compare
from graphfix.proof.other_roundings import change_last_bits, change_weights
from graphfix.runtime.local_session import Session
from graphfix.runtime.port import Feeds
from graphfix.runtime.run_errors import RunError
from graphfix.wording import plural

Run = tuple[Feeds, Mapping[str, Array]]

# How many cases are run again, and how often each.
_MOST_CASES, _CHANGES = 8, 2
# Another run of the same dice may throw higher: how many times the largest measured is allowed.
_FACTOR, _RMS_FACTOR = 2.0, 1.5
# A model that differs from itself by more is noise: nobody could tell a repair that is wrong.
_MOST_DIFFERENCE, _MOST_RMS = 0.1, 0.05


@dataclass
class OwnRounding:
    """How far a quantized model differs from itself.

    Attributes:
        largest: The largest difference, as a share of the numbers around it, by what was changed.
        rms: The largest root mean square of the differences of a case, as a share of the output's.
        channel: The largest difference of an element in units of what its channel allows.
        unequal: The largest share of elements that differ in an output of whole numbers.
        runs: How many runs were compared.
    """

    largest: dict[str, float] = field(default_factory=dict)
    rms: float = 0.0
    channel: float = 0.0
    unequal: float = 0.0
    runs: int = 0

    def compare_run(
        self,
        cause: str,
        outputs: Mapping[str, Array],
        rerun: Mapping[str, Array],
        tolerance: Tolerance,
        channels: Mapping[str, ChannelScales],
    ) -> None:
        """Compare a run with another that computes the same, and count it.

        Args:
            cause: What was changed, in words.
            outputs: What the original returns.
            rerun: What it returns with the change.
            tolerance: The usual tolerance.
            channels: The scales of the channels of each output.
        """
        diffs, channel_diffs = (
            [
                compare(name, "", x, rerun[name], tolerance, channels=scales.get(name))
                for name, x in outputs.items()
            ]
            for scales in (dict[str, ChannelScales](), channels)
        )
        self.add_run(cause, diffs, tolerance, channel_diffs)

    def add_run(
        self,
        cause: str,
        diffs: Sequence[OutputDiff],
        tolerance: Tolerance,
        channel_diffs: Sequence[OutputDiff] = (),
    ) -> None:
        """Count a run.

        Args:
            cause: What was changed, in words.
            diffs: How far its outputs are off.
            tolerance: The one that they were compared with.
            channel_diffs: The same, compared with what their channels allow.
        """
        self.runs += 1
        ratios = (x.excess_ratio for x in channel_diffs if x.allowed)
        self.channel = max([self.channel, *filter(np.isfinite, ratios)])
        self.largest[cause] = max(self.largest.get(cause, 0.0), _largest_share(diffs, tolerance))
        for diff in diffs:
            if np.isfinite(diff.rms):
                self.rms = max(self.rms, diff.rms)
            if not diff.allowed and diff.compared:
                self.unequal = max(self.unequal, diff.differing / diff.compared)

    def widen(self, tolerance: Tolerance) -> Tolerance:
        """Return a tolerance within which the model itself would be found to be the same."""
        largest = max(self.largest.values(), default=0.0)
        rms = min(_RMS_FACTOR * self.rms, _MOST_RMS)
        return replace(
            tolerance,
            max_abs=max(tolerance.max_abs, min(_FACTOR * largest, _MOST_DIFFERENCE)),
            channel=tolerance.channel * max(1.0, _FACTOR * self.channel),
            cosine=min(tolerance.cosine, 1.0 - rms**2),
            rms=max(tolerance.max_abs, rms),
            equal=min(tolerance.equal, 1.0 - min(_FACTOR * self.unequal, _MOST_DIFFERENCE)),
        )

    def __str__(self) -> str:
        causes = " and ".join(f"by {x:.2g} with {cause}" for cause, x in self.largest.items())
        return (
            "the original rounds to integers, and differs from itself in "
            f"{plural(self.runs, 'run')}, as a share of the numbers around, {causes}: a repaired "
            "model may differ by twice that"
        )


def measure_own_rounding(
    source: PathOrModel,
    graph: ir.Model,
    runs: Sequence[Run],
    tolerance: Tolerance,
    seconds: float,
    *,
    optimize: bool,
    channels: Mapping[str, ChannelScales] | None = None,
) -> OwnRounding | None:
    """Run the original in other ways that compute the same, and return how far it is off.

    None of a model that does not round: it has no reason to differ from itself.

    Args:
        source: The original, to load.
        graph: Its graph.
        runs: Feeds, and what the original returns for them without optimizations.
        tolerance: The usual tolerance.
        seconds: After how long no other run begins.
        optimize: Whether it is about sessions with ONNX Runtime's optimizations.
        channels: The scales of the channels of each output; by default those of the runs.
    """
    if not rounds_somewhere(graph):
        return None
    end = time.monotonic() + seconds
    own = OwnRounding()
    if channels is None:
        channels = scales_of(x for _, outputs in runs for x in outputs.items())
    runs = runs[:_MOST_CASES]
    if optimize:
        reruns = list(_rerun(source, [x for x, _ in runs], end, optimize=True))
        for (_, outputs), rerun in zip(runs, reruns, strict=False):
            own.compare_run("ONNX Runtime's optimizations", outputs, rerun, tolerance, channels)
        runs = [(x, rerun) for (x, _), rerun in zip(runs, reruns, strict=False)]
    changed = _rerun_changed(graph, runs, _CHANGES, end, optimize=optimize)
    cause = "other last bits of its weights and inputs"
    for outputs, rerun in changed:
        own.compare_run(cause, outputs, rerun, tolerance, channels)
    return own


def _rerun_changed(
    graph: ir.Model,
    runs: Sequence[Run],
    changes: int,
    end: float,
    *,
    optimize: bool,
) -> Iterator[tuple[Mapping[str, Array], Mapping[str, Array]]]:
    """Yield the outputs of runs, each with what other last bits of weights and inputs make."""
    for seed in range(changes):
        rng = np.random.default_rng(seed)
        feeds = [{name: change_last_bits(x, rng) for name, x in y.items()} for y, _ in runs]
        copy = change_weights(graph, rng)
        reruns = _rerun(copy, feeds, end, optimize=optimize)
        yield from zip((outputs for _, outputs in runs), reruns, strict=False)


def _rerun(
    model: PathOrModel, feeds: Sequence[Feeds], end: float, *, optimize: bool
) -> Iterator[Mapping[str, Array]]:
    """Yield the outputs for each feeds, until the time has passed or a run fails."""
    with (
        contextlib.suppress(ModelError, RunError),
        Session(model, optimize=optimize) as session,
    ):
        for case_feeds in feeds:
            if time.monotonic() > end:
                return
            yield session.run(case_feeds)


def _largest_share(diffs: Sequence[OutputDiff], tolerance: Tolerance) -> float:
    """Return the largest difference as a share of the numbers around the worst element."""
    finite = (x for x in diffs if x.allowed and np.isfinite(x.excess_ratio))
    return max((x.excess_ratio * tolerance.max_abs for x in finite), default=0.0)
