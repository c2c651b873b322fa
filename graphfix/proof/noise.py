"""How far a model differs from itself: the noise of each channel of its outputs.

Any repair adds up in another order, and so does ONNX Runtime when it optimizes. So the original is
run with other last bits of inputs, weights and results, and in the sessions that users open.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx_ir as ir

from graphfix.errors import ModelError
from graphfix.proof.allowance import ChannelScales, Floats
from graphfix.proof.compare import Array
from graphfix.proof.other_roundings import change_last_bits, change_results, change_weights
from graphfix.providers.table import Ep
from graphfix.runtime.local_session import Session
from graphfix.runtime.model_source import Source
from graphfix.runtime.port import Feeds
from graphfix.runtime.run_errors import RunError

Outputs = Mapping[str, Array]
# For each output of floats, the absolute differences in each of several runs.
Noise = dict[str, list[Floats]]
# Runs the steps of a case in a session, each array that is fed changed, and yields their outputs.
Play = Callable[[Callable[[Feeds], Outputs], Callable[[Array], Array]], Iterable[Outputs]]

# How many samples of the noise of a channel are enough, and how many runs at least and at most.
_SAMPLES, _RUNS = 12, (3, 8)


@dataclass(frozen=True)
class NoiseSource:
    """The model whose noise is measured, and where.

    Attributes:
        source: The original, to load.
        graph: Its graph.
        ep: Where the repaired model runs; the original is run there, too.
        in_half: Whether last bits are those of float16, even where the original has float32.
        as_used: Whether it is also run with all optimizations.
    """

    source: Source
    graph: ir.Model
    ep: Ep = "cpu"
    in_half: bool = False
    as_used: bool = True

    def measure_steps(
        self, play: Play, expected: Sequence[Outputs], runs: int, seconds: float
    ) -> list[Noise]:
        """Run steps in other ways that compute the same, and return how far each is off.

        Args:
            play: Runs the steps.
            expected: What the original returns in each step without optimizations.
            runs: How often they are run with other last bits.
            seconds: After how long no other session begins.

        Returns:
            The noise of each step; a difference is NaN where that is no number, and a run that
            fails or has other shapes is left out.
        """
        end = time.monotonic() + seconds
        noise: list[Noise] = [{} for _ in expected]
        for variant in self._iter_variants(runs):
            if time.monotonic() > end:
                break
            with (
                contextlib.suppress(ModelError, RunError),
                Session(variant.model, ep=variant.ep, optimize=variant.optimize) as session,
            ):
                steps = play(session.run, variant.change)
                for step, own, outputs in zip(noise, expected, steps, strict=False):
                    add_differences(step, own, outputs)
        return noise

    def measure_case(
        self, feeds: Feeds, expected: Outputs, scales: Mapping[str, ChannelScales], seconds: float
    ) -> Noise:
        """Return the noise of one case, run often enough for samples of each channel."""
        runs = count_runs(scales, expected)
        (noise,) = self.measure_steps(partial(_play_case, feeds), [expected], runs, seconds)
        return noise

    def _iter_variants(self, runs: int) -> Iterator["_Variant"]:
        for seed in range(runs):
            copy, change = change_copy(self.graph, seed, in_half=self.in_half)
            yield _Variant(copy, "cpu", change, optimize=False)
        if self.as_used:
            for ep in dict.fromkeys(("cpu", self.ep)):
                yield _Variant(self.source, ep, lambda array: array, optimize=True)


@dataclass(frozen=True)
class _Variant:
    """Another way to compute the same.

    Attributes:
        model: What to load.
        ep: Where.
        change: Changes an array that is fed.
        optimize: Whether with all optimizations.
    """

    model: Source
    ep: Ep
    change: Callable[[Array], Array]
    optimize: bool


def change_copy(
    graph: ir.Model, seed: int, *, in_half: bool = False
) -> tuple[ir.Model, Callable[[Array], Array]]:
    """Return a copy of a model with other last bits, and what changes those of its inputs."""
    rng = np.random.default_rng(seed)
    copy = change_weights(graph, rng, in_half=in_half)
    change_results(graph, copy, rng, in_half=in_half)
    return copy, partial(change_last_bits, rng=rng, in_half=in_half)


def count_runs(scales: Mapping[str, ChannelScales], outputs: Outputs) -> int:
    """Return how often to run something for enough samples of noise in each channel."""
    samples = (x.samples_in(outputs[n].shape) for n, x in scales.items() if n in outputs)
    least = min((x for x in samples if x), default=1)
    return min(max(_SAMPLES // least, _RUNS[0]), _RUNS[1])


def _play_case(
    feeds: Feeds, run: Callable[[Feeds], Outputs], change: Callable[[Array], Array]
) -> Iterator[Outputs]:
    yield run({name: change(array) for name, array in feeds.items()})


def add_differences(noise: Noise, expected: Outputs, actual: Outputs) -> None:
    """Add to ``noise`` how far one more run is off; outputs of other shapes are left out."""
    for name, array in expected.items():
        if array.dtype.kind in "fV" and name in actual and actual[name].shape == array.shape:
            noise.setdefault(name, []).append(absolute_difference(array, actual[name]))


def absolute_difference(expected: Array, actual: Array) -> Floats:
    """Return the absolute differences as float64."""
    with np.errstate(invalid="ignore"):
        difference: Floats = np.abs(expected.astype(np.float64) - actual.astype(np.float64))
    return difference
