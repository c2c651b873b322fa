"""The proof of a stream: step by step against the original, whose caches grow."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

from graphfix.errors import FeedError
from graphfix.files import io
from graphfix.proof.between_roundings import rounds_somewhere
from graphfix.proof.compare import OutputDiff, Tolerance, compare
from graphfix.proof.other_roundings import change_weights
from graphfix.proof.own_rounding import OwnRounding
from graphfix.providers.table import PROVIDERS, Ep
from graphfix.runtime.compared_session import open_session
from graphfix.runtime.port import Array, Feeds
from graphfix.runtime.run_errors import RunError
from graphfix.shipped.stream import Stream
from graphfix.shipping.end_to_end import SessionProof, open_isolated_session
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
    tolerance: Tolerance,
    measure: Measure = lambda: None,
) -> SessionProof:
    """Run the sequences through a stream of a session on the CPU, and compare the outputs.

    Args:
        folder: What is shipped.
        steps: The sequences, with the original's outputs.
        tolerance: What may differ.
        measure: Asked only if something differs.
    """
    with open_isolated_session(folder) as ask:

        def play_sequence(sequence: StepSequence) -> Feeds:
            arrays = {f"states/{k}": x for k, x in sequence.states.items()}
            arrays |= {f"beyond/{k}": x for k, x in sequence.overflow_feeds.items()}
            for index, feeds in enumerate(sequence.feeds):
                arrays |= {f"{index}/{k}": x for k, x in feeds.items()}
            return ask("play", arrays, f"running {sequence.name}")

        return _compare_sequences(steps, play_sequence, tolerance, measure)


def prove_on_provider(
    folder: Path,
    steps: Sequence[StepSequence],
    tolerance: Tolerance,
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

        proof = _compare_sequences(steps, play_sequence, tolerance, measure)
    return replace(proof, reason=proof.reason and f"on {PROVIDERS[ep].label}, {proof.reason}")


def measure_own_rounding(
    source: Path, expected: Sequence[StepSequence], tolerance: Tolerance, run: Rerun
) -> OwnRounding | None:
    """Return how far the original is off in the same steps with other last bits of its weights.

    Of a quantized model a step rounds a number the other way, and all later ones see that in their
    caches.

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
    for seed in range(_CHANGES):
        changed = run(change_weights(model, np.random.default_rng(seed)))
        for sequence, other in zip(expected, changed, strict=True):
            for outputs, other_outputs in zip(sequence.outputs, other.outputs, strict=True):
                diffs = [compare(k, "", x, other_outputs[k], tolerance) for k, x in outputs.items()]
                own.add_run("other last bits of its weights", diffs, tolerance)
    return own


def _compare_sequences(
    steps: Sequence[StepSequence],
    play: Callable[[StepSequence], Feeds],
    tolerance: Tolerance,
    measure: Measure,
) -> SessionProof:
    pairs: list[tuple[str, str, Array, Array]] = []
    for sequence in steps:
        try:
            actual = play(sequence)
        except (RunError, FeedError) as error:
            reason = f"{sequence.name}: {error}"
            return SessionProof(False, _compare_pairs(pairs, tolerance), reason, "step")
        pairs += _paired_outputs(sequence, actual)
        if not actual["refused"]:
            reason = "a step behind full caches is run, and what falls out of them is seen"
            return SessionProof(False, _compare_pairs(pairs, tolerance), reason, "step")
    diffs = _compare_pairs(pairs, tolerance)
    ok = bool(diffs) and all(x.ok for x in diffs)
    if ok or not diffs or (own := measure()) is None:
        return SessionProof(ok, diffs, of="step")
    wide_diffs = _compare_pairs(pairs, own.widen(tolerance))
    ok = all(x.ok for x in wide_diffs)
    return SessionProof(ok, wide_diffs, of="step", allowance=str(own) if ok else "")


def _paired_outputs(
    sequence: StepSequence, actual: Feeds
) -> Iterator[tuple[str, str, Array, Array]]:
    """Yield each output of each step beside the original's, without what padding gives."""
    for index, outputs in enumerate(sequence.outputs):
        case = f"step {index + 1} of {sequence.name}"
        for name, array in outputs.items():
            padding = sequence.padded_entries if not index and array.ndim > 1 else 0
            valid = (slice(None), slice(padding, None)) if padding else ()
            yield name, case, array[valid], actual[f"{index}/{name}"][valid]


def _compare_pairs(
    pairs: Sequence[tuple[str, str, Array, Array]], tolerance: Tolerance
) -> tuple[OutputDiff, ...]:
    return tuple(compare(*pair, tolerance) for pair in pairs)
