"""The search for the smallest model that still fails: delta debugging over the parts of a graph."""

import bisect
import itertools
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from graphfix.errors import ModelError
from graphfix.proof.budget import SearchBudget, SpentError
from graphfix.providers.directml import hresult
from graphfix.reducing.candidate import (
    Candidate,
    expose,
    keep_nodes,
    keep_outputs,
    names_read_from_outside,
    nearest_before,
    tensors_before,
)
from graphfix.reducing.failure import Failure, Trial
from graphfix.reducing.simpler import simpler_candidates, simpler_feeds
from graphfix.runtime.port import Array
from graphfix.runtime.run_errors import RunError
from graphfix.wording import Tell

# In so many nodes at most every tensor is recorded at once.
_MOST_RECORDED = 400
_ROUNDS = 4
# So many tensors are held to the reference's in one session; DirectML dies of some hundred outputs.
_MOST_COMPARED = 32
# So many of the first tensors that differ are tried, each with so many nodes at most: where
# neither fails alone, the graph is cut by halves.
_MOST_SUSPECTS = 2
_MOST_BACK = 8


@dataclass
class ReductionSearch:
    """A search, which keeps the smallest model found so far.

    Attributes:
        trial: How a model is tried.
        best: The smallest model that fails as the first one does.
        failure: How it fails.
        budget: What may be spent.
        tell: Called with a short text at each step.
    """

    trial: Trial
    best: Candidate
    failure: Failure
    budget: SearchBudget
    tell: Tell

    def run(self) -> None:
        """Reduce the model as far as the budget goes; Ctrl-C ends it, too."""
        with suppress(SpentError):
            if not (self._keep_named_node() or self._keep_first_difference()):
                self._keep_one_output()
                self._cut_end()
                self._keep_back_from(self.best.node_count - 1)
            for _ in range(_ROUNDS):
                before = self.best
                self._drop_nodes()
                self._keep_one_output()
                self._simplify()
                if self.best is before:
                    break

    @property
    def _ways_to_cut(self) -> tuple[bool, ...]:
        """Return whether what is read of dropped nodes is an input or, too, a constant."""
        return (False,) if self.trial.original is not None else (False, True)

    def _accepts(self, candidate: Candidate | None) -> bool:
        """Try a model, and keep it if it fails in the same way.

        Raises:
            SpentError: No other model may be tried.
        """
        if candidate is None:
            return False
        self.budget.take_try()
        self.tell(f"try {self.budget.tries}: {self.best.node_count} nodes")
        failure = self.trial.observe(candidate)
        if failure is None or not self.trial.is_same(self.failure, failure):
            return False
        self.best, self.failure = candidate, failure
        return True

    def _keep_named_node(self) -> bool:
        """Keep the node alone that the error names, with what it reads as inputs or constants."""
        name = hresult.node_named_in(self.failure.text)
        places = [i for i, x in enumerate(self.best.model.graph) if name and x.name == name]
        if len(places) != 1 or self.best.node_count == 1:
            return False
        return self._keep_back_from(places[0], most=1)

    def _keep_first_difference(self) -> bool:
        """Keep the nodes that make the first tensor that differs from the reference's."""
        if self.failure.kind != "differs":
            return False
        graph = self.best.model.graph
        places = {x.name: i for i, node in enumerate(graph) for x in node.outputs if x.name}
        try:
            first = self._first_differing([*places])
        except (ModelError, RunError):
            return False
        return any(self._keep_back_from(places[x], most=_MOST_BACK) for x in first)

    def _first_differing(self, suspects: Sequence[str]) -> list[str]:
        """Return the first tensors that differ.

        Some are compared, spread over the graph; then some of those that the first one to differ
        depends on and that none depends on that is right; and so on.

        Raises:
            ModelError: With these tensors as outputs, the model does not load.
            RunError: It does not run.
        """
        while True:
            step = -(-len(suspects) // _MOST_COMPARED)
            ends = {*suspects[step - 1 :: step], *(x.name for x in self.best.model.graph.outputs)}
            differs = self.trial.differing_tensors(self.best, [x for x in suspects if x in ends])
            first = [x for x, is_wrong in differs.items() if is_wrong]
            right = [x for x, is_wrong in differs.items() if not is_wrong]
            before = tensors_before(self.best, first[:1]) - tensors_before(self.best, right)
            narrower = [x for x in suspects if x in before]
            if step == 1 or not first or len(narrower) in (0, len(suspects)):
                return first[:_MOST_SUSPECTS]
            suspects = narrower

    def _keep_back_from(self, place: int, most: int = 1 << 30) -> bool:
        """Keep a node with as few of those before it as fail, nearest first, ``most`` in all.

        What they read of others is an input, or a constant.

        Args:
            place: The place of the node in the graph.
            most: How many nodes are kept at most.
        """
        whole, size, known = self.best, 1, self.trial.known_tensors()
        while size <= most and size < whole.node_count:
            kept = nearest_before(whole, place, size, known)
            names = names_read_from_outside(whole, kept)
            recorded = self._record(whole, place, names)
            for as_constants in self._ways_to_cut[: 1 + bool(names)]:
                part = keep_nodes(whole, kept, recorded, as_constants=as_constants)
                if self._accepts(part):
                    return True
            if len(kept) < size:
                return False
            size *= 2
        return False

    def _keep_one_output(self) -> None:
        """Keep the first output with which alone the model fails."""
        names = [x.name or "" for x in self.best.model.graph.outputs]
        if len(names) > 1:
            any(self._accepts(keep_outputs(self.best, [name])) for name in names)

    def _cut_end(self) -> None:
        """Keep the fewest first nodes that fail; more of them fail as well, in most models."""
        whole = self.best
        counts = range(1, whole.node_count)
        bisect.bisect_left(
            counts, True, key=lambda count: self._accepts(keep_nodes(whole, range(count), {}))
        )

    def _drop_nodes(self) -> None:
        """Drop stretches of nodes, ever shorter, and then single nodes."""
        if self.best.node_count > _MOST_RECORDED:
            return
        size = max(1, self.best.node_count // 2)
        while size:
            for as_constants in self._ways_to_cut:
                self._drop_stretches(size, as_constants=as_constants)
            size //= 2

    def _drop_stretches(self, size: int, *, as_constants: bool) -> None:
        recorded = self._record_all(self.best)
        start = self.best.node_count - size
        while start >= 0 and self.best.node_count > 1:
            kept = [i for i in range(self.best.node_count) if not start <= i < start + size]
            part = keep_nodes(self.best, kept, recorded, as_constants=as_constants)
            self._accepts(part)
            start = min(start, self.best.node_count) - size

    def _simplify(self) -> None:
        """Take each simplification that leaves the failure; what was refused is not tried again."""
        refused = 0
        while True:
            base = self.best
            # An original would have to be simplified, too, in the same way.
            simpler = simpler_feeds if self.trial.original is not None else simpler_candidates
            for candidate in itertools.islice(simpler(base), refused, None):
                if self._accepts(candidate):
                    break  # of the simpler model there are fewer simplifications
                refused += 1
            if self.best is base:
                return

    def _record(self, whole: Candidate, count: int, names: Collection[str]) -> dict[str, Array]:
        """Return what the reference computes of tensors of the first nodes; nothing if it fails."""
        part = keep_nodes(whole, range(count), {}) if names else None
        return {} if part is None else self._reference_outputs(expose(part, names))

    def _record_all(self, whole: Candidate) -> dict[str, Array]:
        """Return the values of all tensors, but of those of the last node if that cannot run."""
        for count in (whole.node_count, whole.node_count - 1):
            part = keep_nodes(whole, range(count), {})
            if part is None:
                continue
            names = {x.name for node in part.model.graph for x in node.outputs if x.name}
            if recorded := self._reference_outputs(expose(part, names)):
                return recorded
        return {}

    def _reference_outputs(self, candidate: Candidate) -> dict[str, Array]:
        try:
            return self.trial.reference_outputs(candidate)
        except (ModelError, RunError):
            return {}
