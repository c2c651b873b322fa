"""The proof through a session: clips in the shipped folder against the original."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from graphfix.probing.unpadded import Clip
from graphfix.proof.compare import OutputDiff, Tolerance, compare
from graphfix.runtime.isolated_call import call_in_worker
from graphfix.runtime.port import Feeds
from graphfix.runtime.run_errors import RunError
from graphfix.runtime.time_limits import run_seconds
from graphfix.wording import plural

# To make a session of a container, the first time that a clip needs it.
_SESSION_SECONDS = 600.0


@dataclass(frozen=True)
class SessionProof:
    """The result of comparing a session with the original.

    Attributes:
        ok: Whether every output of every clip is within the tolerance.
        diffs: How far each output of each clip is from the original's.
        reason: Why nothing could be compared; empty if it could.
        of: What was run, a clip or a step.
    """

    ok: bool
    diffs: tuple[OutputDiff, ...]
    reason: str = ""
    of: str = "clip"

    @property
    def worst(self) -> OutputDiff | None:
        """Return the output furthest from the original, failed ones first."""
        return max(self.diffs, key=lambda d: (not d.ok, d.excess_ratio, d.max_abs), default=None)

    def to_json(self) -> dict[str, object]:
        """Return the result as plain data for JSON."""
        worst = self.worst
        return {
            "ok": self.ok,
            "summary": str(self),
            "clips": len({d.case for d in self.diffs}),
            "max_abs": None if worst is None else worst.max_abs,
        }

    def __str__(self) -> str:
        worst = self.worst
        if self.reason or worst is None:
            return self.reason or "nothing was compared"
        if not worst.ok:
            return f"output {worst.output!r} {worst.reason}, for a {worst.case}"
        return (
            f"the same for {plural(len({d.case for d in self.diffs}), self.of)}: "
            f"{worst.difference_text}"
        )


@contextmanager
def open_isolated_session(folder: Path) -> Iterator[Callable[[str, Feeds, str], Feeds]]:
    """Yield a function that calls a session in another process; see :mod:`.isolated_session`."""

    def call_session(verb: str, arrays: Feeds, doing: str) -> Feeds:
        function = f"graphfix.shipped.isolated_session:{verb}"
        seconds = _SESSION_SECONDS + run_seconds()
        return call_in_worker(function, str(folder.resolve()), arrays, seconds, doing)

    try:
        yield call_session
    finally:
        with suppress(RunError):
            call_session("close", {}, "closing")


def prove_end_to_end(folder: Path, clips: Sequence[Clip], tolerance: Tolerance) -> SessionProof:
    """Run clips through a session on the CPU, and compare the outputs, shapes included."""
    diffs: list[OutputDiff] = []
    with open_isolated_session(folder) as ask:
        for clip in clips:
            try:
                outputs = ask("run", clip.feeds, "running a clip")
            except RunError as error:
                reason = f"a clip of {clip.length} does not run: {error}"
                return SessionProof(False, tuple(diffs), reason)
            for name, array in outputs.items():
                case = f"clip of {clip.length}"
                diffs.append(compare(name, case, clip.outputs[name], array, tolerance))
    return SessionProof(bool(diffs) and all(d.ok for d in diffs), tuple(diffs))
