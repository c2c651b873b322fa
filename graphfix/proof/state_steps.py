"""Steps of a model with states, its outputs fed back, so that errors that grow are seen.

Both models keep their own states; all other inputs are the same.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from graphfix.errors import FeedError
from graphfix.feeds.arrays import CaseMaker
from graphfix.feeds.case import Array, Case
from graphfix.feeds.input import Input, all_symbols, single_symbol
from graphfix.feeds.signature import Signature
from graphfix.feeds.states import StatePair, carry_states, find_states
from graphfix.runtime.port import Feeds
from graphfix.runtime.run_errors import RunError
from graphfix.wording import plural

Outputs = Mapping[str, Array]

STEPS = 4
# Steps before a counter wraps, and how many numbers at which one does are tried.
_BEFORE_WRAP, _MOST_WRAPS = 2, 2


@dataclass(frozen=True)
class StepChain:
    """Consecutive steps of the original.

    Attributes:
        states: The states that are fed back.
        cases: The inputs of each step, states included.
        outputs: The original's outputs of each step.
    """

    states: tuple[StatePair, ...]
    cases: tuple[Case, ...]
    outputs: tuple[Outputs, ...]

    def play(
        self, model: ir.Model, run: Callable[[Feeds], Outputs], change: Callable[[Array], Array]
    ) -> Iterator[Outputs]:
        """Run the steps again, with the states that come of it, and yield the outputs of each.

        Args:
            model: The graph of the original.
            run: Runs a model that computes the same.
            change: Changes an array that is fed, states aside that a step has returned.
        """
        states: Feeds = {}
        for case in self.cases:
            fed = {name: x for name, x in case.feeds.items() if name not in states}
            outputs = run({**{name: change(x) for name, x in fed.items()}, **states})
            yield outputs
            states = carry_states(self.states, model, outputs) or {}

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.states[:2])) + (", ..." if len(self.states) > 2 else "")
        fed = f"{plural(len(self.states), 'state')} fed back"
        return f"{len(self.cases)} steps with {fed} ({shown})"


def run_chains(
    model: ir.Model,
    signature: Signature,
    start: Mapping[str, int],
    run: Callable[[Case], Outputs],
    seed: int,
) -> Iterator[StepChain]:
    """Run the original step by step, once from empty caches and once from filled ones.

    And from where a counter among the states is about to wrap, as that of a ring of ten does in its
    tenth step.

    Args:
        model: The graph of the original.
        signature: The inputs of the original.
        start: The size of each group of symbols in the first step.
        run: Runs the original.
        seed: The same seed makes the same inputs.
    """
    states = find_states(model)
    if not states:
        return
    maker = CaseMaker(signature, seed)
    empty = {**start, **dict.fromkeys(_cache_length_groups(signature, states), 0)}
    firsts = [(x, dict[str, int]()) for x in ((empty, start) if empty != start else (start,))]
    firsts += [(start, counts) for counts in _counts_before_wraps(signature, states)]
    for first, counts in firsts:
        groups, cases, step_outputs = dict(first), [], []
        fed_states: dict[str, Array] = {}
        for step in range(STEPS):
            try:
                rows = maker.row_count(signature.symbol_sizes(groups))
                full = {time: (groups[time],) * rows for time in maker.governed_times}
                case = maker.make_case(step, groups, full)
                if not step:
                    fed_states = {n: np.full_like(case.feeds[n], x) for n, x in counts.items()}
                name = ", ".join(
                    [case.name, *(f"{n} from {x}" for n, x in counts.items()), f"step {step + 1}"]
                )
                case = replace(case, feeds={**case.feeds, **fed_states}, name=name)
                outputs = run(case)
            except (FeedError, RunError):
                break
            cases.append(case)
            step_outputs.append(outputs)
            following = carry_states(states, model, outputs)
            if following is None:
                break
            fed_states = following
            groups |= _state_sizes(signature, fed_states)
        if len(cases) > 1:
            yield StepChain(states, tuple(cases), tuple(step_outputs))


def _numbers_before_wraps(item: Input) -> list[int]:
    """Return the numbers shortly before those at which a counter may wrap; [] of no counter."""
    role = item.role
    if np.dtype(item.dtype).kind not in "iu" or role.kind == "mask":
        return []
    numbers = {int(x) for x in role.uses.thresholds if x == int(x)}
    if role.kind in ("tokens", "positions") and not role.below:
        numbers.add(role.high)
    return sorted(x - _BEFORE_WRAP for x in numbers if x > _BEFORE_WRAP)


def _counts_before_wraps(
    signature: Signature, states: tuple[StatePair, ...]
) -> list[dict[str, int]]:
    """Return what to set counters to, by name, so that they wrap within a few steps."""
    names = {state.input for state in states}
    wraps = {x.name: _numbers_before_wraps(x) for x in signature.inputs if x.name in names}
    wraps = {name: numbers for name, numbers in wraps.items() if numbers}
    count = min(max(map(len, wraps.values()), default=0), _MOST_WRAPS)
    return [{name: x[min(k, len(x) - 1)] for name, x in wraps.items()} for k in range(count)]


def _cache_length_groups(signature: Signature, states: tuple[StatePair, ...]) -> set[str]:
    """Return the groups of symbols that are sizes of states only: the lengths of caches."""
    names = {state.input for state in states}
    within = {s for x in signature.inputs if x.name in names for s in all_symbols([x])}
    beside = {s for x in signature.inputs if x.name not in names for s in all_symbols([x])}
    groups = {signature.group_of(s) for s in within} - {signature.group_of(s) for s in beside}
    return groups - {signature.batch}


def _state_sizes(signature: Signature, states: Mapping[str, Array]) -> dict[str, int]:
    """Return the current sizes of states, by the group of each dim."""
    sizes = {}
    for name, array in states.items():
        for dim, size in zip(signature.input_named(name).dims, array.shape, strict=True):
            symbol = single_symbol(dim)
            if symbol is not None:
                sizes[signature.group_of(symbol)] = size
    return sizes
