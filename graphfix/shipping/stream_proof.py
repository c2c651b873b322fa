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
from graphfix.shipped.remote_runs import RemoteRuns
from graphfix.shipped.stream import Stream
from graphfix.shipping.end_to_end import SessionProof, session_apart
from graphfix.shipping.stream_steps import Steps


def prove(folder: Path, steps: Sequence[Steps], tolerance: Tolerance) -> SessionProof:
    """Run the sequences through a stream of a session on the CPU, and compare what comes out."""
    with session_apart(folder) as ask:

        def play(one: Steps) -> Feeds:
            arrays = {f"states/{k}": x for k, x in one.states.items()}
            arrays |= {f"beyond/{k}": x for k, x in one.beyond.items()}
            for place, feeds in enumerate(one.feeds):
                arrays |= {f"{place}/{k}": x for k, x in feeds.items()}
            return ask("play", arrays, f"running {one.name}")

        return _compared(steps, play, tolerance)


def prove_on(folder: Path, steps: Sequence[Steps], tolerance: Tolerance, ep: Ep) -> SessionProof:
    """The same on another provider."""
    with RemoteRuns(folder, lambda path: open_session(path, ep)) as runner:

        def play(one: Steps) -> Feeds:
            return {**Stream(runner, one.states or None).play(one.feeds), "refused": np.array(True)}

        found = _compared(steps, play, tolerance)
    return replace(found, reason=found.reason and f"on {LABELS[ep]}, {found.reason}")


def _compared(
    steps: Sequence[Steps], play: Callable[[Steps], Feeds], tolerance: Tolerance
) -> SessionProof:
    diffs: list[OutputDiff] = []
    for one in steps:
        try:
            made = play(one)
        except (RunError, FeedError) as error:
            return SessionProof(False, tuple(diffs), f"{one.name}: {error}", "step")
        for place, outputs in enumerate(one.outputs):
            case = f"step {place + 1} of {one.name}"
            for name, array in outputs.items():
                pair = array, made[f"{place}/{name}"]
                if one.skipped and not place and array.ndim > 1:
                    pair = pair[0][:, one.skipped :], pair[1][:, one.skipped :]
                diffs.append(compare(name, case, *pair, tolerance))
        if not made["refused"]:
            told = "a step behind full caches is run, and what falls out of them is seen"
            return SessionProof(False, tuple(diffs), told, "step")
    return SessionProof(bool(diffs) and all(d.ok for d in diffs), tuple(diffs), of="step")
