"""The search for the smallest model that still fails: delta debugging over the parts of a graph."""

import bisect
import itertools
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from graphfix.errors import ModelError
from graphfix.proof.budget import SearchBudget, SpentError
from graphfix.providers.directml import hresult
from graphfix.reducing.candidate import Candidate, keep_nodes, keep_outputs
from graphfix.reducing.failure import Failure, Trial
from graphfix.reducing.simpler import simpler_candidates
from graphfix.runtime.port import Array
from graphfix.runtime.run_errors import RunError
from graphfix.wording import Tell

# In so many nodes at most every tensor is recorded at once.
_MOST_RECORDED = 400
_ROUNDS = 4


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
            if self._keep_named_node():
                self._simplify()
                return
            self._keep_one_output()
            self._cut_end()
            self._cut_start()
            for _ in range(_ROUNDS):
                before = self.best
                self._drop_nodes()
                self._keep_one_output()
                self._simplify()
                if self.best is before:
                    break

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
        whole, place = self.best, places[0]
        recorded = self._record(whole, range(place))
        return any(
            self._accepts(keep_nodes(whole, places, recorded, as_constants=as_constants))
            for as_constants in (False, True)
        )

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

    def _cut_start(self) -> None:
        """Keep the fewest last nodes that fail, with what they read as inputs, or as constants."""
        for as_constants in (False, True):
            whole = self.best
            count = whole.node_count

            def is_needed(first: int, whole: Candidate = whole, const: bool = as_constants) -> bool:
                nodes = range(first, whole.node_count)
                recorded = self._record(whole, range(first))
                return not self._accepts(keep_nodes(whole, nodes, recorded, as_constants=const))

            bisect.bisect_left(range(1, count), True, key=is_needed)

    def _drop_nodes(self) -> None:
        """Drop stretches of nodes, ever shorter, and then single nodes."""
        if self.best.node_count > _MOST_RECORDED:
            return
        size = max(1, self.best.node_count // 2)
        while size:
            for as_constants in (False, True):
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
            for candidate in itertools.islice(simpler_candidates(base), refused, None):
                if self._accepts(candidate):
                    break  # of the simpler model there are fewer simplifications
                refused += 1
            if self.best is base:
                return

    def _record(self, whole: Candidate, kept: Iterable[int]) -> dict[str, Array]:
        """Return what the reference computes of these nodes; nothing if it does not run them."""
        part = keep_nodes(whole, list(kept), {})
        return {} if part is None else self._reference_outputs(part)

    def _record_all(self, whole: Candidate) -> dict[str, Array]:
        """Return the values of all tensors, but of those of the last node if that cannot run."""
        for count in (whole.node_count, whole.node_count - 1):
            part = keep_nodes(whole, range(count), {})
            if part is None:
                continue
            outputs = [v for node in part.model.graph for v in node.outputs if v.name]
            named = {x.name for x in part.model.graph.outputs}
            part.model.graph.outputs.extend(x for x in outputs if x.name not in named)
            if recorded := self._reference_outputs(part):
                return recorded
        return {}

    def _reference_outputs(self, candidate: Candidate) -> dict[str, Array]:
        try:
            return self.trial.reference_outputs(candidate)
        except (ModelError, RunError):
            return {}
