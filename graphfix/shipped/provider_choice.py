"""Which execution provider runs a shipped folder fastest on this machine, for ``"auto"``.

Each provider runs one container, one provider after the other, and the fastest run of each counts:
what else a machine does only ever makes a run longer. What is not measured is not claimed: where
time ran out, the session keeps the provider that it has by default.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from graphfix.providers.table import PROVIDERS, ep_called
from graphfix.runtime.port import Array
from graphfix.runtime.run_errors import reason_of

T = TypeVar("T")

SECONDS = 2.0
"""After so long, no further provider is tried."""
_LEAST = 0.5  # seconds for the runs of a session that is there, as it has cost most of the time
Run = Callable[[], Sequence[Array]]
"""Runs a container once, and returns its outputs."""

_CPU = PROVIDERS["cpu"].ort_name
_FEWEST, _MOST = 2, 20  # runs that are timed
# As far as these two are apart in a few runs, the clock of a busy machine cannot tell.
_NO_DIFFERENCE = 1.1
# A provider that is this far off computes something else; float16 rounds to a tenth of it.
_MOST_APART = 0.02

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProviderChoice:
    """What ``providers="auto"`` runs on, and why.

    Attributes:
        provider: ONNX Runtime's name of the provider.
        seconds: The fastest run of each provider that was measured; empty if none was.
        reasons: Of each other provider of this ONNX Runtime, why it was not measured, or why its
            time does not count.
        container: The file of the container that was run.
        failed: Those of them that raised an error, or computed something else than the CPU.
        remembered: Whether this was measured by an earlier session.
    """

    provider: str
    seconds: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    container: str = ""
    failed: Sequence[str] = ()
    remembered: bool = False

    def __str__(self) -> str:
        if not self.seconds and not self.reasons:
            return f"{_label(self.provider)}: no other provider is here, so nothing was measured"
        times = [f"{_label(x)} {s * 1e3:.3g} ms" for x, s in self.seconds.items()]
        reasons = [f"{_label(x)}: {reason}" for x, reason in self.reasons.items()]
        when = "measured by an earlier session" if self.remembered else "measured now"
        about = f"{when}, a run of {self.container}: " if self.container else ""
        return f"{_label(self.provider)} ({about}{'; '.join([*times, *reasons])})"


@dataclass(frozen=True)
class _Measured:
    """What one provider did with the container."""

    seconds: float
    outputs: Sequence[Array]
    repeats: bool  # whether a second run gives the same, which random numbers do not


class _TimeoutError(Exception):
    """The time is over that a provider has."""


def measure_providers(
    openers: Mapping[str, Callable[[], Run]],
    default: Sequence[str],
    *,
    container: str = "",
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> ProviderChoice:
    """Measure providers one after the other, and choose the fastest.

    Args:
        openers: By ONNX Runtime's name of a provider, what makes a session on it; the CPU first,
            with which outputs are compared. An opener may raise whatever ONNX Runtime raises.
        default: The providers that are taken where nothing was measured, the preferred one first.
        container: The file that is run.
        seconds: How long all of it may take. ONNX Runtime holds Python's lock while it makes a
            session, so one that has begun is waited for. Runs that take longer end in a thread of
            their own, which is not waited for; nothing is measured beside them.
        clock: Returns the time in seconds.
    """
    measured: dict[str, _Measured] = {}
    reasons: dict[str, str] = {}
    failed: list[str] = []
    end = clock() + seconds
    for i, (name, opener) in enumerate(openers.items()):
        until = clock() + (end - clock()) / (len(openers) - i)
        try:
            if clock() >= end:
                raise _TimeoutError
            run = opener()
            share = max(_LEAST, until - clock())
            result = _call_within(share, _timer(run, clock() + share, clock))
        except _TimeoutError:
            late = [x for x in openers if x not in measured and x not in reasons]
            reasons |= dict.fromkeys(late, f"not measured within {seconds:g} s")
            break
        except Exception as error:  # onnxruntime raises a dozen unrelated types
            reasons[name] = f"does not run this folder: {reason_of(error)}"
            failed.append(name)
            log.warning("%s %s", _label(name), reasons[name])
            continue
        if (off := _difference_from_cpu(result, measured.get(_CPU))) > _MOST_APART:
            reasons[name] = f"computes something else than the CPU, off by {off:.2g} of the largest"
            failed.append(name)
            log.warning("%s %s", _label(name), reasons[name])
            continue
        measured[name] = result
    times = {name: x.seconds for name, x in measured.items()}
    usual = next((x for x in default if x not in failed), _CPU)
    return ProviderChoice(_faster_than(usual, times), times, reasons, container, failed)


def _faster_than(usual: str, seconds: Mapping[str, float]) -> str:
    """Return the fastest provider if it is measurably faster than the usual one, else that."""
    if usual not in seconds:
        return usual
    fastest = min(seconds, key=lambda x: seconds[x])
    return fastest if seconds[fastest] * _NO_DIFFERENCE < seconds[usual] else usual


def _timer(run: Run, end: float, clock: Callable[[], float]) -> Callable[[], _Measured]:
    """Return what times runs until ``end``."""

    def run_once() -> Sequence[Array]:
        if clock() >= end:  # nobody waits for it any more
            raise _TimeoutError
        return run()

    def measure() -> _Measured:
        outputs = run_once()  # providers compile in the first run
        repeats = _largest_difference(run_once(), outputs) == 0
        times: list[float] = []
        while len(times) < _FEWEST or (len(times) < _MOST and clock() < end):
            start = clock()
            run_once()
            times.append(clock() - start)
        return _Measured(min(times), outputs, repeats)

    return measure


def _call_within(seconds: float, work: Callable[[], T]) -> T:
    """Return what a call returns; after so many seconds, raise and let it end by itself."""
    executor = ThreadPoolExecutor(1, "graphfix")
    try:
        return executor.submit(work).result(seconds)
    except TimeoutError as error:
        raise _TimeoutError from error
    finally:
        executor.shutdown(wait=False)


def _difference_from_cpu(result: _Measured, cpu: _Measured | None) -> float:
    """Return how far a provider's outputs are from the CPU's; 0 if that is not known."""
    if cpu is None or not cpu.repeats:
        return 0.0
    return _largest_difference(result.outputs, cpu.outputs)


def _largest_difference(outputs: Sequence[Array], expected: Sequence[Array]) -> float:
    """Return the largest difference of floating-point outputs, as a share of the largest element.

    Other outputs, such as the best of several scores, may be another where two are as good.
    """
    pairs = zip(outputs, expected, strict=True)
    return max((_difference(a, b) for a, b in pairs if b.dtype.kind == "f"), default=0.0)


def _difference(array: Array, expected: Array) -> float:
    if array.shape != expected.shape:
        return float("inf")
    a, b = (x.astype(np.float64) for x in (array, expected))
    finite = np.isfinite(b)
    if (np.isfinite(a) != finite).any():
        return float("inf")
    scale = max(1.0, float(np.abs(b[finite]).max(initial=0.0)))
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0)) / scale


def _label(provider: str) -> str:
    return PROVIDERS[ep_called(provider)].short_label
