"""What users get: clips through a session of the shipped folder, against the original alone."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from graphfix.probing.unpadded import Clip
from graphfix.proof.compare import OutputDiff, Tolerance, compare
from graphfix.runtime.isolated_call import call
from graphfix.runtime.port import Feeds
from graphfix.runtime.run_errors import RunError
from graphfix.runtime.time_limits import run_seconds
from graphfix.wording import plural

# To make a session of a container, the first time that a clip needs it.
_SESSION_SECONDS = 600.0


@dataclass(frozen=True)
class SessionProof:
    """What came of running a session against the original.

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
        """What is furthest from the original, failed ones first."""
        return max(self.diffs, key=lambda d: (not d.ok, d.badness, d.max_abs), default=None)

    def to_json(self) -> dict[str, object]:
        """As plain data."""
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
        return f"the same for {plural(len({d.case for d in self.diffs}), self.of)}: {worst.told}"


@contextmanager
def session_apart(folder: Path) -> Iterator[Callable[[str, Feeds, str], Feeds]]:
    """What asks a session of a folder in another process; see :mod:`.isolated_session`."""

    def ask(verb: str, arrays: Feeds, doing: str) -> Feeds:
        function = f"graphfix.shipped.isolated_session:{verb}"
        seconds = _SESSION_SECONDS + run_seconds()
        return call(function, str(folder.resolve()), arrays, seconds, doing)

    try:
        yield ask
    finally:
        with suppress(RunError):
            ask("close", {}, "closing")


def end_to_end(folder: Path, clips: Sequence[Clip], tolerance: Tolerance) -> SessionProof:
    """Run clips through a session on the CPU, and compare what comes out, shapes and all."""
    diffs: list[OutputDiff] = []
    with session_apart(folder) as ask:
        for clip in clips:
            try:
                found = ask("run", clip.feeds, "running a clip")
            except RunError as error:
                told = f"a clip of {clip.length} does not run: {error}"
                return SessionProof(False, tuple(diffs), told)
            for name, array in found.items():
                case = f"clip of {clip.length}"
                diffs.append(compare(name, case, clip.outputs[name], array, tolerance))
    return SessionProof(bool(diffs) and all(d.ok for d in diffs), tuple(diffs))
