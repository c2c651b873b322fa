"""How far a quantized model differs from itself: what a repair of it may change.

A repair that is right to the last bits moves a few numbers across the border between two integers,
and what follows from them by a hundredth. So does anything else: ONNX Runtime's optimizations, or a
change of the last bit of a weight or an input. What those do to the original is measured, and a
repaired model may do as much.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from graphfix.errors import ModelError
from graphfix.files.model_input import PathOrModel
from graphfix.graph.walks import all_graphs
from graphfix.proof.between_roundings import rounds_somewhere
from graphfix.proof.compare import Array, OutputDiff, Tolerance, compare
from graphfix.runtime.local_session import Session
from graphfix.runtime.port import Feeds
from graphfix.runtime.run_errors import RunError
from graphfix.wording import plural

Run = tuple[Feeds, Mapping[str, Array]]

# How many cases are run again, how often each, and by how many units the last bits are changed.
_MOST_CASES, _CHANGES, _MOST_UNITS = 8, 2, 4
# Another run of the same dice may throw higher: how many times the largest measured is allowed.
_FACTOR, _RMS_FACTOR = 2.0, 1.5
# A model that differs from itself by more is noise: nobody could tell a repair that is wrong.
_MOST_DIFFERENCE, _MOST_RMS = 0.1, 0.05
# Larger weights stay: they are slow to read, and small ones change all that follows.
_MOST_ELEMENTS = 1 << 16
# A number of at least this size is a fill, and not computed with.
_FILL = 1e30


@dataclass
class OwnRounding:
    """How far a quantized model differs from itself.

    Attributes:
        largest: The largest difference, as a share of the numbers around it, by what was changed.
        rms: The largest root mean square of the differences of a case, as a share of the output's.
        unequal: The largest share of elements that differ in an output of whole numbers.
        runs: How many runs were compared.
    """

    largest: dict[str, float] = field(default_factory=dict)
    rms: float = 0.0
    unequal: float = 0.0
    runs: int = 0

    def add_run(self, cause: str, diffs: Sequence[OutputDiff], tolerance: Tolerance) -> None:
        """Count a run.

        Args:
            cause: What was changed, in words.
            diffs: How far its outputs are off.
            tolerance: The one that they were compared with.
        """
        self.runs += 1
        self.largest[cause] = max(self.largest.get(cause, 0.0), _largest_share(diffs, tolerance))
        for diff in diffs:
            if np.isfinite(diff.rms):
                self.rms = max(self.rms, diff.rms)
            if not diff.allowed and diff.compared:
                self.unequal = max(self.unequal, diff.differing / diff.compared)

    def widen(self, tolerance: Tolerance) -> Tolerance:
        """Return a tolerance within which the model itself would be found to be the same."""
        largest = max(self.largest.values(), default=0.0)
        rms = min(_RMS_FACTOR * self.rms, _MOST_RMS)
        return replace(
            tolerance,
            max_abs=max(tolerance.max_abs, min(_FACTOR * largest, _MOST_DIFFERENCE)),
            cosine=min(tolerance.cosine, 1.0 - rms**2),
            rms=max(tolerance.max_abs, rms),
            equal=min(tolerance.equal, 1.0 - min(_FACTOR * self.unequal, _MOST_DIFFERENCE)),
        )

    def __str__(self) -> str:
        causes = " and ".join(f"by {x:.2g} with {cause}" for cause, x in self.largest.items())
        return (
            "the original rounds to integers, and differs from itself in "
            f"{plural(self.runs, 'run')}, as a share of the numbers around, {causes}: a repaired "
            "model may differ by twice that"
        )


def measure_own_rounding(
    source: PathOrModel,
    graph: ir.Model,
    runs: Sequence[Run],
    tolerance: Tolerance,
    seconds: float,
    *,
    optimize: bool,
) -> OwnRounding | None:
    """Run the original in other ways that compute the same, and return how far it is off.

    None of a model that does not round: it has no reason to differ from itself.

    Args:
        source: The original, to load.
        graph: Its graph.
        runs: Feeds, and what the original returns for them without optimizations.
        tolerance: The usual tolerance.
        seconds: After how long no other run begins.
        optimize: Whether it is about sessions with ONNX Runtime's optimizations.
    """
    if not rounds_somewhere(graph):
        return None
    end = time.monotonic() + seconds
    own = OwnRounding()
    runs = runs[:_MOST_CASES]
    if optimize:
        reruns = list(_rerun(source, [x for x, _ in runs], end, optimize=True))
        for (_, outputs), rerun in zip(runs, reruns, strict=False):
            diffs = _compare_outputs(outputs, rerun, tolerance)
            own.add_run("ONNX Runtime's optimizations", diffs, tolerance)
        runs = [(x, rerun) for (x, _), rerun in zip(runs, reruns, strict=False)]
    for seed in range(_CHANGES):
        rng = np.random.default_rng(seed)
        feeds = [{name: _change_last_bits(x, rng) for name, x in y.items()} for y, _ in runs]
        changed = _rerun(change_weights(graph, rng), feeds, end, optimize=optimize)
        for (_, outputs), rerun in zip(runs, changed, strict=False):
            diffs = _compare_outputs(outputs, rerun, tolerance)
            own.add_run("other last bits of its weights and inputs", diffs, tolerance)
    return own


def _rerun(
    model: PathOrModel, feeds: Sequence[Feeds], end: float, *, optimize: bool
) -> Iterator[Mapping[str, Array]]:
    """Yield the outputs for each feeds, until the time has passed or a run fails."""
    with (
        contextlib.suppress(ModelError, RunError),
        Session(model, optimize=optimize) as session,
    ):
        for case_feeds in feeds:
            if time.monotonic() > end:
                return
            yield session.run(case_feeds)


def _compare_outputs(
    expected: Mapping[str, Array], actual: Mapping[str, Array], tolerance: Tolerance
) -> list[OutputDiff]:
    return [compare(name, "", x, actual[name], tolerance) for name, x in expected.items()]


def _largest_share(diffs: Sequence[OutputDiff], tolerance: Tolerance) -> float:
    """Return the largest difference as a share of the numbers around the worst element."""
    finite = (x for x in diffs if x.allowed and np.isfinite(x.excess_ratio))
    return max((x.max_abs / x.allowed * tolerance.max_abs for x in finite), default=0.0)


def change_weights(graph: ir.Model, rng: np.random.Generator) -> ir.Model:
    """Return a copy of a model in which the last bits of small float weights are others."""
    model = graph.clone()
    for inner in all_graphs(model):
        for value in inner.initializers.values():
            tensor = value.const_value
            if tensor is None or not 1 < tensor.size <= _MOST_ELEMENTS:
                continue
            if tensor.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE):
                changed = _change_last_bits(tensor.numpy(), rng)
                value.const_value = ir.tensor(changed, name=tensor.name)
    return model


def _change_last_bits(array: Array, rng: np.random.Generator) -> Array:
    """Return floats that are off by a few units in the last place; zeros and fills stay."""
    if array.dtype.kind != "f" or not (np.abs(array) < _FILL).all():
        return array
    steps = rng.integers(-_MOST_UNITS, _MOST_UNITS + 1, array.shape).astype(array.dtype)
    changed: Array = (array * (1 + steps * np.finfo(array.dtype).eps)).astype(array.dtype)
    return changed
