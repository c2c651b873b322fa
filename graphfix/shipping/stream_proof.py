"""The proof of a stream: step by step against the original, whose caches grow."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from graphfix.errors import FeedError
from graphfix.proof.compare import OutputDiff, Tolerance, compare
from graphfix.runtime.compared_session import open_session
from graphfix.runtime.port import Feeds
from graphfix.runtime.provider import LABELS, Ep
from graphfix.runtime.run_errors import RunError
from graphfix.shipped.remote_runs import RemoteRunner
from graphfix.shipped.stream import Stream
from graphfix.shipping.end_to_end import SessionProof, open_isolated_session
from graphfix.shipping.stream_steps import StepSequence


def prove(folder: Path, steps: Sequence[StepSequence], tolerance: Tolerance) -> SessionProof:
    """Run the sequences through a stream of a session on the CPU, and compare the outputs."""
    with open_isolated_session(folder) as ask:

        def play_sequence(sequence: StepSequence) -> Feeds:
            arrays = {f"states/{k}": x for k, x in sequence.states.items()}
            arrays |= {f"beyond/{k}": x for k, x in sequence.overflow_feeds.items()}
            for index, feeds in enumerate(sequence.feeds):
                arrays |= {f"{index}/{k}": x for k, x in feeds.items()}
            return ask("play", arrays, f"running {sequence.name}")

        return _compare_sequences(steps, play_sequence, tolerance)


def prove_on_provider(
    folder: Path, steps: Sequence[StepSequence], tolerance: Tolerance, ep: Ep
) -> SessionProof:
    """Run the sequences on another provider, and compare the outputs."""
    with RemoteRunner(folder, lambda path: open_session(path, ep)) as runner:

        def play_sequence(sequence: StepSequence) -> Feeds:
            return {
                **Stream(runner, sequence.states or None).play(sequence.feeds),
                "refused": np.array(True),
            }

        proof = _compare_sequences(steps, play_sequence, tolerance)
    return replace(proof, reason=proof.reason and f"on {LABELS[ep]}, {proof.reason}")


def _compare_sequences(
    steps: Sequence[StepSequence], play: Callable[[StepSequence], Feeds], tolerance: Tolerance
) -> SessionProof:
    diffs: list[OutputDiff] = []
    for sequence in steps:
        try:
            actual = play(sequence)
        except (RunError, FeedError) as error:
            return SessionProof(False, tuple(diffs), f"{sequence.name}: {error}", "step")
        for index, outputs in enumerate(sequence.outputs):
            case = f"step {index + 1} of {sequence.name}"
            for name, array in outputs.items():
                pair = array, actual[f"{index}/{name}"]
                if sequence.padded_entries and not index and array.ndim > 1:
                    pair = (
                        pair[0][:, sequence.padded_entries :],
                        pair[1][:, sequence.padded_entries :],
                    )
                diffs.append(compare(name, case, *pair, tolerance))
        if not actual["refused"]:
            reason = "a step behind full caches is run, and what falls out of them is seen"
            return SessionProof(False, tuple(diffs), reason, "step")
    return SessionProof(bool(diffs) and all(d.ok for d in diffs), tuple(diffs), of="step")
