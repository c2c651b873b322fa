"""What rounding one tensor costs, and the fewest tensors that must not be rounded.

A candidate in float32 gets a switch for each tensor that would be float16, weights among them, and
is loaded once. With one switch on, the outputs show what rounding that tensor alone costs, as a
share of the gate; the tensors in that order, the shortest list is searched without which all the
others may be rounded. What makes and what takes such a tensor stays in float32.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from graphfix.build import PASS_KEY
from graphfix.half.emulate import LAYOUT, SWITCHES, switched
from graphfix.half.reckoning import reckoned
from graphfix.half.trials import name_of
from graphfix.model.values import const_of, is_op
from graphfix.runtime.errors import RunError
from graphfix.runtime.randomness import draws, seeded
from graphfix.runtime.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy.typing as npt

    from graphfix.half.trials import Trials
    from graphfix.proof.compare import OutputDiff, Tolerance
    from graphfix.proof.verify import Original

    Mask = npt.NDArray[np.bool_]
    Cost = Callable[[Mask, int], float]

WHY = "rounding"
# How many of the cases that miss show what a tensor costs, how many the search has to hold.
_SHOWN, _HELD = 1, 3
# Seconds for the tensors one by one, as they are reckoned: by a clock another keep would be found
# where the machine is busy. More tensors than that allows go in groups, in their order.
_SECONDS = 40.0
# Roundings hold what the search says of them only nearly.
_AIM = 0.9
# How many groups of what was found are tried without.
_GIVEN_BACK = 12


def cost(diffs: Iterable[OutputDiff], tolerance: Tolerance) -> float:
    """The worst of some differences as a share of what is allowed."""
    worst = 0.0
    for diff in diffs:
        here = diff.max_abs / diff.allowed if diff.allowed else 0.0
        if not math.isnan(diff.cosine) and tolerance.cosine < 1:
            here = max(here, (1 - diff.cosine) / (1 - tolerance.cosine))
        if not diff.allowed and diff.compared:
            here = max(here, diff.differing / diff.compared / max(1 - tolerance.equal, 1e-9))
        if diff.nan_after > diff.nan_before or diff.inf_after > diff.inf_before:
            here = math.inf
        worst = max(worst, here if diff.ok else max(here, 1 + 1e-6))
    return worst


class Costs:
    """A candidate with switches, loaded.

    Args:
        trials: The model.
        candidate: What its pass makes of it so far.
        original: The model, run.
        tolerance: The gate.
        missed: The cases in which the candidate misses it, the worst first.
    """

    def __init__(
        self,
        trials: Trials,
        candidate: ir.Model,
        original: Original,
        tolerance: Tolerance,
        missed: Sequence[int],
    ) -> None:
        self._trials, self._candidate = trials, candidate
        self._original, self._tolerance = original, tolerance
        self._missed = missed[:_HELD]
        made = switched(candidate, _constants(trials.before))
        self.tensors = made.tensors
        model = seeded(made.model) if draws(made.model) is not None else made.model
        self._session = Session(model, optimize=False)

    def smallest(self) -> tuple[dict[str, str], set[str]]:
        """The nodes that must stay, with reasons, and the weights that must not be rounded."""
        alone = self.alone()
        order = np.argsort(-alone, kind="stable")
        low, high = 1, len(order)
        while low < high:
            middle = (low + high) // 2
            if self._holds(order[:middle]):
                high = middle
            else:
                low = middle + 1
        off = self._given_back(order[:high])
        reasons: dict[str, str] = {}
        weights: set[str] = set()
        values = _values(self._candidate)
        for i in off:
            tensor = self.tensors[i]
            name = _before(values.get(tensor), self._trials)
            if name not in self._trials.makers:
                weights.add(name)
            why = f"{WHY} {name!r} alone costs {alone[i]:.2g} of the gate"
            for node in _around(name, self._trials):
                reasons.setdefault(name_of(node), why)
        return reasons, weights

    def alone(self) -> npt.NDArray[np.float64]:
        """What rounding each tensor alone costs, as a share of the gate."""
        count = len(self.tensors)
        shown = self._missed[:_SHOWN]
        each = reckoned(self._trials.before, self._original.cases[shown[0]].feeds)
        size = max(1, math.ceil(count * len(shown) * each / _SECONDS))
        costs = np.zeros(count)
        for i in range(0, count, size):
            self._trials.tell(f"float16: what rounding costs, {i:,} of {count:,} tensors")
            on = np.zeros(count, np.bool_)
            on[i : i + size] = True
            costs[i : i + size] = max(self._cost(on, case) for case in shown)
        return costs

    def _holds(self, off: npt.NDArray[np.intp]) -> bool:
        on = np.ones(len(self.tensors), np.bool_)
        on[off] = False
        return all(self._cost(on, case) <= _AIM for case in self._missed)

    def _given_back(self, off: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Without what turns out not to be needed, from what costs least on."""
        size = max(1, math.ceil(len(off) / _GIVEN_BACK))
        for start in reversed(range(0, len(off), size)):
            fewer = np.delete(off, slice(start, start + size))
            if fewer.size and self._holds(fewer):
                off = fewer
        return off

    def _cost(self, on: Mask, case: int) -> float:
        try:
            diffs = self._original.diffs(self._session, case, {SWITCHES: on})
        except RunError:
            return math.inf
        return cost(diffs, self._tolerance)


def _constants(model: ir.Model) -> Mapping[str, ir.TensorProtocol]:
    found = {
        name: value.const_value
        for name, value in model.graph.initializers.items()
        if value.const_value is not None and value.const_value.dtype == ir.DataType.FLOAT
    }
    for node in model.graph:
        value = node.outputs[0] if node.op_type == "Constant" else None
        array = const_of(value)
        if value is not None and value.name and array is not None and array.dtype == np.float32:
            found[value.name] = ir.tensor(array)
    return found


def _values(model: ir.Model) -> dict[str, ir.Value]:
    found = {x.name: x for x in model.graph.inputs if x.name}
    found |= {name: x for name, x in model.graph.initializers.items() if name}
    for node in model.graph.all_nodes():
        found |= {x.name: x for x in node.outputs if x.name}
    return found


def _before(value: ir.Value | None, trials: Trials) -> str:
    """The name in the model before of what is rounded in a candidate."""
    while value is not None:
        node = value.producer()
        known = value.name in trials.makers or value.name in trials.takers
        if known and not _is_border(node):
            return value.name or ""
        if _is_border(node):
            assert node is not None
            value = node.inputs[0]
            continue
        # An output has lost its name to the Cast behind it.
        for use in value.uses():
            if _is_border(use.node):
                return use.node.outputs[0].name or ""
        return value.name or ""
    return ""


def _is_border(node: ir.Node | None) -> bool:
    """Whether a node is a Cast that the pass has put in."""
    return node is not None and is_op(node, "Cast") and PASS_KEY in node.metadata_props


def _around(name: str, trials: Trials) -> list[ir.Node]:
    """What makes a tensor and what takes it, through what only lays it out."""
    maker = trials.makers.get(name)
    found = [maker] if maker is not None else []
    pending = [name]
    while pending:
        for node in trials.takers.get(pending.pop(), ()):
            if node in found:
                continue
            found.append(node)
            if node.op_type in LAYOUT:
                pending += [x.name for x in node.outputs if x.name]
    return found
