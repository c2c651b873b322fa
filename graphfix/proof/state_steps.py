"""A model with states is run step by step, its outputs fed back: errors that grow are seen so.

Both models keep their own states; all else that they are fed is the same.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from graphfix.errors import FeedError
from graphfix.feeds.arrays import Maker
from graphfix.feeds.case import Array, Case
from graphfix.feeds.input import plain, symbols_of
from graphfix.feeds.signature import Signature
from graphfix.feeds.states import State, carried, states_of
from graphfix.runtime.run_errors import RunError
from graphfix.wording import plural

Outputs = Mapping[str, Array]

STEPS = 4


@dataclass(frozen=True)
class Chain:
    """Steps of the original, one after the other.

    Attributes:
        states: What is fed back.
        cases: What each step was fed, states included.
        outputs: What the original made of each.
    """

    states: tuple[State, ...]
    cases: tuple[Case, ...]
    outputs: tuple[Outputs, ...]

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.states[:2])) + (", ..." if len(self.states) > 2 else "")
        fed = f"{plural(len(self.states), 'state')} fed back"
        return f"{len(self.cases)} steps with {fed} ({shown})"


def chains(
    model: ir.Model,
    signature: Signature,
    start: Mapping[str, int],
    run: Callable[[Case], Outputs],
    seed: int,
) -> Iterator[Chain]:
    """Run the original step by step, from empty caches if it has some, and from others.

    Args:
        model: Its graph.
        signature: Its inputs.
        start: The size of each group of symbols in the first step.
        run: Runs the original.
        seed: The same seed makes the same inputs.
    """
    states = states_of(model)
    if not states:
        return
    maker = Maker(signature, seed)
    empty = {**start, **dict.fromkeys(_lengths(signature, states), 0)}
    for first in (empty, start) if empty != start else (start,):
        groups, cases, made = dict(first), [], []
        kept: dict[str, Array] = {}
        for step in range(STEPS):
            try:
                rows = maker.rows(signature.sizes(groups))
                full = {time: (groups[time],) * rows for time in maker.governed}
                case = maker.case(step, groups, full)
                name = f"{case.name}, step {step + 1}"
                case = replace(case, feeds={**case.feeds, **kept}, name=name)
                outputs = run(case)
            except (FeedError, RunError):
                break
            cases.append(case)
            made.append(outputs)
            following = carried(states, model, outputs)
            if following is None:
                break
            kept = following
            groups |= _sizes(signature, kept)
        if len(cases) > 1:
            yield Chain(states, tuple(cases), tuple(made))


def _lengths(signature: Signature, states: tuple[State, ...]) -> set[str]:
    """The groups of symbols that are sizes of states and of nothing else: how long caches are."""
    names = {state.input for state in states}
    within = {s for x in signature.inputs if x.name in names for s in symbols_of([x])}
    beside = {s for x in signature.inputs if x.name not in names for s in symbols_of([x])}
    groups = {signature.group(s) for s in within} - {signature.group(s) for s in beside}
    return groups - {signature.batch}


def _sizes(signature: Signature, states: Mapping[str, Array]) -> dict[str, int]:
    """How long states are now, by the group of each dim of theirs."""
    found = {}
    for name, array in states.items():
        for dim, size in zip(signature.item(name).dims, array.shape, strict=True):
            symbol = plain(dim)
            if symbol is not None:
                found[signature.group(symbol)] = size
    return found
