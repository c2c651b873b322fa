"""Time files beside each other in one process, by the processor time of one thread.

    python bench/clock.py feeds EXPORT.onnx FEEDS.npz
    python bench/clock.py runs FEEDS.npz SEED FILE.onnx ...

``feeds`` makes the inputs that ``graphfix bench`` would time the export at: five seconds of audio
or a sentence. ``runs`` opens a session for each file, runs each once, then all of them alternately
in random order, and prints the seconds of each run as JSON, a list for each file. It counts what
one thread computes, so other processes on the machine change little. A file may be named twice:
its second time says what the clock is worth.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort

SECONDS = 0.15
"""Processor time of each file's runs together, at which a process ends."""
FEWEST, MOST = 2, 100
"""Runs of each file in a process."""


def make_feeds(export: Path, target: Path) -> None:
    """Write inputs of a usual size for an export as an .npz file."""
    from graphfix.benchmark.candidate import Entrant
    from graphfix.benchmark.timing_plan import plan_setups
    from graphfix.files import io

    entrant = Entrant(io.load(export), export, dict)
    (_, case, _), *_ = plan_setups(export, [entrant], None, None, fixed=False, seed=0)
    np.savez(target, allow_pickle=False, **case.feeds)  # type: ignore[arg-type]


def run_alternately(feeds: Path, files: list[str], seed: int) -> list[list[float]]:
    """Return the processor time of each run of each file, in seconds."""
    with np.load(feeds) as arrays:
        given = dict(arrays)
    runners = [_runner(path, given) for path in files]
    for run in runners:
        run()
    shuffle = np.random.default_rng(seed)
    seconds: list[list[float]] = [[] for _ in files]
    while len(seconds[0]) < FEWEST or (
        len(seconds[0]) < MOST and sum(map(sum, seconds)) < SECONDS * len(files)
    ):
        for i in shuffle.permutation(len(files)):
            start = time.process_time()
            runners[i]()
            seconds[i].append(time.process_time() - start)
    return seconds


def _runner(path: str, arrays: dict[str, np.ndarray]):  # noqa: ANN202  (a closure)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds = {x.name: arrays[x.name] for x in session.get_inputs()}
    return lambda: session.run(None, feeds)


def main(action: str, *arguments: str) -> None:
    """The command line."""
    if action == "feeds":
        export, target = map(Path, arguments)
        make_feeds(export, target)
        return
    feeds, seed, *files = arguments
    print(json.dumps(run_alternately(Path(feeds), files, int(seed))))


if __name__ == "__main__":
    main(*sys.argv[1:])
