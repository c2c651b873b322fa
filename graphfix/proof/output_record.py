"""Faults and notes about one output over all cases: whether it was ever really compared."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from graphfix.proof.compare import Array, OutputDiff
from graphfix.wording import group_pairs

# Below this an output is told from rounding by what it is in all cases, and by a share of that.
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
    """Yield why a verdict is not ok although each comparison was, in sentences."""
    by_output = _group_by_output(cases)
    if by_output and not any(d.total for diffs in by_output.values() for d in diffs):
        yield "nothing was compared: every output is empty in every case"
    for name, diffs in by_output.items():
        if not any(d.total for d in diffs):
            continue
        scale = max(d.scale for d in diffs)
        gap = max(d.max_abs for d in diffs)
        if not any(d.finite for d in diffs):
            yield (
                f"output {name!r} has no finite number in any case, so nothing is known of it; "
                "give inputs with --feeds file.npz"
            )
        elif scale < _SMALL and gap > _SHARE * scale and all(d.allowed for d in diffs if d.finite):
            was = f"never more than {scale:.3g}" if scale else "always 0"
            yield f"output {name!r} differs by {gap:.3g}, and is {was} in the original"


def find_notes(cases: Mapping[str, Sequence[OutputDiff]]) -> Iterator[str]:
    """Yield notes on outputs that say little."""
    for name, diffs in _group_by_output(cases).items():
        if not any(d.total for d in diffs):
            yield f"{name!r} is empty in every case, so nothing is known of it"
        elif all(d.zero for d in diffs if d.finite) and any(d.finite for d in diffs):
            yield f"{name!r} is 0 in every case, which says little of it"


def _group_by_output(cases: Mapping[str, Sequence[OutputDiff]]) -> dict[str, list[OutputDiff]]:
    return group_pairs((diff.output, diff) for diffs in cases.values() for diff in diffs)
