"""Faults and notes about one output over all cases, such as that it is empty or 0 in each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from graphfix.proof.compare import Array, OutputDiff
from graphfix.wording import group_pairs

# An output that stays below this in all cases may differ by a share of its largest element.
_SMALL, _SHARE = 1e-6, 1e-2


def find_silent_outputs(runs: Iterable[Mapping[str, Array]]) -> list[str]:
    """Return float outputs without a finite number in most runs in which they are not empty."""
    named_arrays = (x for outputs in runs for x in outputs.items())
    floats = (
        (name, array) for name, array in named_arrays if array.dtype.kind in "fV" and array.size
    )
    finite_by_output = group_pairs((name, bool(np.isfinite(array).any())) for name, array in floats)
    return [name for name, finite in finite_by_output.items() if 2 * sum(finite) < len(finite)]


def positive_inputs_note(silent: Sequence[str]) -> str:
    """Return a note that inputs are above 0, because of ``silent`` outputs."""
    return f"inputs are above 0: with others {silent[0]!r} is not a finite number"


def find_faults(cases: Mapping[str, Sequence[OutputDiff]]) -> Iterator[str]:
    """Yield sentences on why a verdict is bad although each comparison is within tolerance."""
    diffs_by_output = _group_by_output(cases)
    filled = {n: diffs for n, diffs in diffs_by_output.items() if any(d.total for d in diffs)}
    if diffs_by_output and not filled:
        yield "nothing was compared: every output is empty in every case"
    for name, diffs in filled.items():
        if not any(d.finite for d in diffs):
            yield (
                f"output {name!r} has no finite number in any case, so nothing is known of it; "
                "give inputs with --feeds file.npz"
            )
        elif fault := _fault_of_small_output(diffs):
            yield f"output {name!r} {fault}"


def _fault_of_small_output(diffs: Sequence[OutputDiff]) -> str:
    """Return why an output that is never larger than rounding differs too much, or ""."""
    scale, gap = max(d.scale for d in diffs), max(d.max_abs for d in diffs)
    are_floats = all(d.allowed for d in diffs if d.finite)
    if scale >= _SMALL or gap <= _SHARE * scale or not are_floats:
        return ""
    size = f"never more than {scale:.3g}" if scale else "always 0"
    return f"differs by {gap:.3g}, and is {size} in the original"


def find_notes(cases: Mapping[str, Sequence[OutputDiff]]) -> Iterator[str]:
    """Yield notes on outputs that prove little: those that are empty or 0 in every case."""
    for name, diffs in _group_by_output(cases).items():
        if not any(d.total for d in diffs):
            yield f"{name!r} is empty in every case, so nothing is known of it"
        elif all(d.zero for d in diffs if d.finite) and any(d.finite for d in diffs):
            yield f"{name!r} is 0 in every case, which says little of it"


def _group_by_output(cases: Mapping[str, Sequence[OutputDiff]]) -> dict[str, list[OutputDiff]]:
    return group_pairs((diff.output, diff) for diffs in cases.values() for diff in diffs)
