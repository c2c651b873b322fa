"""The proof through a session: clips in the shipped folder against the original."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from graphfix.probing.unpadded import Clip
from graphfix.proof.by_channel import ChannelRule, OutputPair
from graphfix.proof.compare import OutputDiff
from graphfix.proof.own_rounding import OwnRounding
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
        allowance: How it came about that a quantized model may differ by more than the tolerance;
            "" if it was held to that.
    """

    ok: bool
    diffs: tuple[OutputDiff, ...]
    reason: str = ""
    of: str = "clip"
    allowance: str = ""

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
            "allowance": self.allowance,
        }

    def __str__(self) -> str:
        worst = self.worst
        if self.reason or worst is None:
            return self.reason or "nothing was compared"
        if not worst.ok:
            return f"output {worst.output!r} {worst.reason}, for a {worst.case}"
        text = f"the same for {plural(len({d.case for d in self.diffs}), self.of)}: "
        text += worst.difference_text
        return f"{text}; {self.allowance}" if self.allowance else text


@contextmanager
def open_isolated_session(folder: Path) -> Iterator[Callable[[str, Feeds, str], Feeds]]:
    """Yield a function that calls a session in another process.

    What it may call there is in :mod:`graphfix.shipped.isolated_session`.
    """

    def call_session(verb: str, arrays: Feeds, doing: str) -> Feeds:
        function = f"graphfix.shipped.isolated_session:{verb}"
        seconds = _SESSION_SECONDS + run_seconds()
        return call_in_worker(function, str(folder.resolve()), arrays, seconds, doing)

    try:
        yield call_session
    finally:
        with suppress(RunError):
            call_session("close", {}, "closing")


def prove_end_to_end(
    folder: Path,
    clips: Sequence[Clip],
    rule: ChannelRule,
    measure: Callable[[], OwnRounding | None] = lambda: None,
) -> SessionProof:
    """Run clips through a session on the CPU, and compare the outputs, shapes included.

    Args:
        folder: What is shipped.
        clips: The clips, and what the original gives for them.
        rule: What may differ; the keys of its noise are the numbers of the clips.
        measure: Returns how far the original differs from itself; asked if something differs.
    """
    pairs: list[OutputPair] = []
    with open_isolated_session(folder) as ask:
        for number, clip in enumerate(clips):
            try:
                outputs = ask("run", clip.feeds, "running a clip")
            except RunError as error:
                reason = f"a clip of {clip.length} does not run: {error}"
                return SessionProof(False, rule.compare_pairs(pairs), reason)
            case = f"clip of {clip.length}"
            pairs += [
                OutputPair(name, case, clip.outputs[name], x, str(number))
                for name, x in outputs.items()
            ]
    return compare_outputs(pairs, rule, measure)


def compare_outputs(
    pairs: Sequence[OutputPair],
    rule: ChannelRule,
    measure: Callable[[], OwnRounding | None] = lambda: None,
    of: str = "clip",
) -> SessionProof:
    """Compare all outputs; a quantized model may differ as far as the original from itself.

    Args:
        pairs: The outputs.
        rule: What may differ.
        measure: Returns how far the original differs from itself; asked if something differs.
        of: What was run, a clip or a step.
    """
    diffs = rule.compare_pairs(pairs)
    ok = bool(diffs) and all(x.ok for x in diffs)
    if ok or not diffs or (own := measure()) is None:
        return SessionProof(ok, diffs, of=of)
    wide_diffs = rule.with_tolerance(own.widen(rule.tolerance)).compare_pairs(pairs)
    ok = all(x.ok for x in wide_diffs)
    return SessionProof(ok, wide_diffs, of=of, allowance=str(own) if ok else "")
