"""The proof of a stream: step by step against the original, whose caches grow."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

from graphfix.errors import FeedError, ModelError
from graphfix.files import io
from graphfix.proof.between_roundings import rounds_somewhere
from graphfix.proof.by_channel import ChannelRule, MeasureNoise, OutputPair, Scales, scales_of
from graphfix.proof.compare import Tolerance
from graphfix.proof.noise import Noise, add_differences, change_copy, count_runs
from graphfix.proof.own_rounding import OwnRounding
from graphfix.providers.table import PROVIDERS, Ep
from graphfix.runtime.compared_session import open_session
from graphfix.runtime.port import Feeds
from graphfix.runtime.run_errors import RunError
from graphfix.shipped.stream import Stream
from graphfix.shipping.end_to_end import SessionProof, compare_outputs, open_isolated_session
from graphfix.shipping.remote_runs import RemoteRunner
from graphfix.shipping.stream_steps import StepSequence

# How many copies of the original with other last bits are run.
_CHANGES = 2

# Runs the sequences on a copy of the original.
Rerun = Callable[[ir.Model], Sequence[StepSequence]]
# Returns how far the original differs from itself in the same steps; None if it has no reason to.
Measure = Callable[[], OwnRounding | None]


def prove(
    folder: Path,
    steps: Sequence[StepSequence],
    rule: ChannelRule,
    measure: Measure = lambda: None,
) -> SessionProof:
    """Run the sequences through a stream of a session on the CPU, and compare the outputs.

    Args:
        folder: What is shipped.
        steps: The sequences, with the original's outputs.
        rule: What may differ; the keys of its noise are the names of the sequences' steps.
        measure: Asked only if something differs.
    """
    with open_isolated_session(folder) as ask:

        def play_sequence(sequence: StepSequence) -> Feeds:
            arrays = {f"states/{k}": x for k, x in sequence.states.items()}
            arrays |= {f"beyond/{k}": x for k, x in sequence.overflow_feeds.items()}
            for index, feeds in enumerate(sequence.feeds):
                arrays |= {f"{index}/{k}": x for k, x in feeds.items()}
            return ask("play", arrays, f"running {sequence.name}")

        return _compare_sequences(steps, play_sequence, rule, measure)


def prove_on_provider(
    folder: Path,
    steps: Sequence[StepSequence],
    rule: ChannelRule,
    ep: Ep,
    measure: Measure = lambda: None,
) -> SessionProof:
    """Run the sequences on another provider, and compare the outputs."""
    with RemoteRunner(folder, lambda path: open_session(path, ep)) as runner:

        def play_sequence(sequence: StepSequence) -> Feeds:
            return {
                **Stream(runner, sequence.states or None).play(sequence.feeds),
                "refused": np.array(True),
            }

        proof = _compare_sequences(steps, play_sequence, rule, measure)
    return replace(proof, reason=proof.reason and f"on {PROVIDERS[ep].label}, {proof.reason}")


def measure_own_rounding(
    source: Path, expected: Sequence[StepSequence], tolerance: Tolerance, run: Rerun
) -> OwnRounding | None:
    """Return how far the original is off in the same steps with other last bits.

    Tokens and quantized weights have none, so those of results are others, too. Of a quantized
    model a step rounds a number the other way, and all later ones see that in their caches.

    Args:
        source: The original.
        expected: The sequences, with its outputs.
        tolerance: The usual tolerance.
        run: Runs the sequences on a copy.
    """
    model = io.load(source)
    if not rounds_somewhere(model):
        return None
    own = OwnRounding()
    cause = "other last bits of its weights and results"
    scales = scales_of(x for y in expected for outputs in y.outputs for x in outputs.items())
    for seed in range(_CHANGES):
        changed = run(change_copy(model, seed)[0])
        for sequence, other in zip(expected, changed, strict=True):
            for outputs, other_outputs in zip(sequence.outputs, other.outputs, strict=True):
                own.compare_run(cause, outputs, other_outputs, tolerance, scales)
    return own


def noise_of_steps(source: Path, expected: Sequence[StepSequence], run: Rerun) -> MeasureNoise:
    """Return what measures how far the original differs from itself in a step of a sequence.

    All sequences are run again, with other last bits of its weights and results, when the first
    step is asked for.

    Args:
        source: The original.
        expected: The sequences, with its outputs.
        run: Runs the sequences on a copy.
    """
    noise: dict[str, Noise] = {}

    def measure_step(step: str, scales: Scales) -> Noise:
        if not noise:
            model = io.load(source)
            for seed in range(count_runs(scales, expected[0].outputs[0])):
                copy, _ = change_copy(model, seed)
                with contextlib.suppress(FeedError, ModelError, RunError):
                    for sequence, other in zip(expected, run(copy), strict=False):
                        _add_noise(noise, sequence, other)
        return noise.get(step, {})

    return measure_step


def _add_noise(noise: dict[str, Noise], sequence: StepSequence, other: StepSequence) -> None:
    for index, steps in enumerate(zip(sequence.outputs, other.outputs, strict=False)):
        outputs, other_outputs = (
            {name: x[_valid_part(sequence, index, x.ndim)] for name, x in step.items()}
            for step in steps
        )
        step_noise = noise.setdefault(_step_name(sequence, index), {})
        add_differences(step_noise, outputs, other_outputs)


def _compare_sequences(
    steps: Sequence[StepSequence],
    play: Callable[[StepSequence], Feeds],
    rule: ChannelRule,
    measure: Measure,
) -> SessionProof:
    pairs: list[OutputPair] = []
    for sequence in steps:
        try:
            actual = play(sequence)
        except (RunError, FeedError) as error:
            reason = f"{sequence.name}: {error}"
            return SessionProof(False, rule.compare_pairs(pairs), reason, "step")
        pairs += _paired_outputs(sequence, actual)
        if not actual["refused"]:
            reason = "a step behind full caches is run, and what falls out of them is seen"
            return SessionProof(False, rule.compare_pairs(pairs), reason, "step")
    return compare_outputs(pairs, rule, measure, "step")


def _paired_outputs(sequence: StepSequence, actual: Feeds) -> Iterator[OutputPair]:
    """Yield each output of each step beside the original's, without what padding gives."""
    for index, outputs in enumerate(sequence.outputs):
        case = _step_name(sequence, index)
        for name, array in outputs.items():
            valid = _valid_part(sequence, index, array.ndim)
            yield OutputPair(name, case, array[valid], actual[f"{index}/{name}"][valid], case)


def _step_name(sequence: StepSequence, index: int) -> str:
    return f"step {index + 1} of {sequence.name}"


def _valid_part(sequence: StepSequence, index: int, rank: int) -> tuple[slice, ...]:
    """Return what of an output does not come from padding in front."""
    padding = sequence.padded_entries if not index and rank > 1 else 0
    return (slice(None), slice(padding, None)) if padding else ()
