"""``graphfix bench --ship``: what a shipped folder gains over the original."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from graphfix.errors import FeedError, ModelError
from graphfix.runtime.python import Wanted, choose_provider, runner_for
from graphfix.runtime.run_errors import RunError
from graphfix.shipped.folder_files import open_folder
from graphfix.shipping import clip_stream, step_stream
from graphfix.shipping.end_to_end import SessionProof
from graphfix.shipping.stream_cost import (
    Of,
    Progress,
    StreamBenchmark,
    runnable_original,
    time_sides,
)

_COUNT = 30


def bench_stream(
    folder: str | Path,
    against: str | Path,
    *,
    ep: Wanted = "auto",
    lengths: Sequence[int] | None = None,
    clips: int = _COUNT,
    processes: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> StreamBenchmark:
    """Time a stream of clips, or of steps, on a model and on its shipped folder.

    Args:
        folder: What ``graphfix ship`` made.
        against: The model that takes any length: the original. Where it does not run, it is
            repaired for DirectML first, and a note says so.
        ep: Where; ``"auto"`` is DirectML if there is one, else the CPU.
        lengths: The length of each clip; drawn from a twelfth of the longest container on, if not
            given. Of a decoder, how many entries each step adds; by default a prompt, and then
            single ones.
        clips: How many clips are drawn, or how many single steps follow the prompt.
        processes: How many processes of each; no ratio comes of fewer than six.
        seed: The same seed draws the same clips and orders.
        progress: Called with a short text at each step.

    Raises:
        UsageError: The provider is unavailable, or a clip or step fits into no container.
        ModelError: A file cannot be read.
    """
    tell = progress or (lambda _: None)
    provider, note = choose_provider(ep)
    folder, source, runner = Path(folder), Path(against), runner_for(provider)
    manifest = open_folder(folder)
    of: Of = "clip" if manifest.stream is None else "step"
    with ExitStack() as stack:
        tell(f"making {of}s")
        if manifest.stream is None:
            counts = clip_stream.choose_lengths(manifest, lengths, clips, seed)
            clip_feeds = clip_stream.make_clips(source, manifest, counts, seed)
            runs, repaired = runnable_original(source, clip_feeds[0], runner, stack)
            tell("counting kernels")
            original = clip_stream.original_workload(runs, clip_feeds, counts, runner)
            shipped = clip_stream.shipped_workload(folder, manifest, clip_feeds, runner)
            compare = partial(
                clip_stream.compare_clips, source, folder, manifest, clip_feeds, provider
            )
        else:
            counts = step_stream.choose_counts(manifest, lengths, clips)
            steps = step_stream.TimedSteps(source, manifest, counts, seed)
            runs, repaired = runnable_original(
                source, {**steps.initial_feeds, **steps.feeds[0]}, runner, stack
            )
            tell("counting kernels")
            original = steps.original_workload(runs, runner)
            shipped = steps.shipped_workload(folder, runner)
            compare = partial(steps.compare, folder, provider)
        tell("comparing the outputs")
        proof = _compared(compare)
        sides, claims = time_sides(
            of,
            {str(source): original, str(folder): shipped},
            processes=processes,
            seed=seed,
            tell=lambda message: tell(f"timing: {message}"),
        )
    repair_note = f"the original does not run: {repaired}; it was repaired for DirectML"
    return StreamBenchmark(
        provider, note, counts, of, *sides, claims, proof, (repair_note,) if repaired else ()
    )


def _compared(compare: Callable[[], SessionProof]) -> SessionProof:
    """Return the comparison of the outputs; why there is none counts as a failure."""
    try:
        return compare()
    except (ModelError, RunError, FeedError) as error:
        return SessionProof(False, (), f"the outputs cannot be compared: {error}")
