"""Inner tensors of two runs, side by side, without all of them in memory.

Inner tensors become outputs, as many at a time as fit a budget, and both models are run once for
each group. Sizes are predicted from symbolic shapes; if these are unknown, from the tensors already
read.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from graphfix.errors import FeedError, ModelError
from graphfix.feeds.input import size_of_dim
from graphfix.feeds.signature import Signature
from graphfix.files.model_input import PathOrModel
from graphfix.proof.compare import Array
from graphfix.providers.table import Ep
from graphfix.runtime.compared_session import open_session
from graphfix.runtime.run_errors import RunError

# How many tensors, and bytes of them in both runs together, are outputs at once.
MOST = 1024
BUDGET = 1 << 28
# The assumed bytes of a tensor until one has been read: a million float32.
_UNSEEN = 1 << 22
_ITEM = 4  # bytes of an element, for sizes that are only estimates


@dataclass(frozen=True)
class ModelRun:
    """A model and its feeds.

    Attributes:
        source: What to load.
        graph: Its graph.
        feeds: An array for each input.
        ep: Where it runs.
    """

    source: PathOrModel
    graph: ir.Model
    feeds: Mapping[str, Array]
    ep: Ep = "cpu"

    def read_tensors(self, names: Sequence[str]) -> dict[str, Array]:
        """Run the model with inner tensors as outputs, and return these.

        Raises:
            ModelError: ONNX Runtime rejects the model with these outputs.
            RunError: An operator failed.
        """
        with open_session(self.source, self.ep, names, repeatable=False) as session:
            return session.run(self.feeds)


@dataclass
class TensorPairs:
    """Pairs of tensors of two runs.

    Attributes:
        before: One run.
        after: The other.
        bytes_of: How many bytes a tensor will have in both runs together; None if unknown.
        budget: How many bytes of inner tensors to hold at once.
        most: How many inner tensors to hold at once.
        runs: How often both models have been run.
        peak: The most bytes of tensors that were in memory at once.
        failed: Why a tensor could not be read, by its name.
    """

    before: ModelRun
    after: ModelRun
    bytes_of: Callable[[str], int | None]
    budget: int = BUDGET
    most: int = MOST
    runs: int = 0
    peak: int = 0
    failed: dict[str, str] = field(default_factory=dict)

    def iter_pairs(self, names: Sequence[str]) -> Iterator[tuple[str, Array, Array]]:
        """Yield each tensor with its arrays in both runs, in the given order.

        Tensors without an array in both runs, such as sequences, are skipped. Tensors that cannot
        become outputs are skipped too, and :attr:`failed` says why.
        """
        totals = (0, 0)  # bytes, tensors
        pending = list(names)
        while pending:
            count, expected = 0, 0
            typical = math.ceil(totals[0] / totals[1]) if totals[1] else _UNSEEN
            while count < min(len(pending), self.most):
                size = self.bytes_of(pending[count])
                expected += typical if size is None else size
                if count and expected > self.budget:
                    break
                count += 1
            group, pending = pending[:count], pending[count:]
            for name, ours, theirs in self._read_both(group):
                totals = (totals[0] + ours.nbytes + theirs.nbytes, totals[1] + 1)
                yield name, ours, theirs

    def _read_both(self, names: Sequence[str]) -> Iterator[tuple[str, Array, Array]]:
        self.runs += 1
        try:
            ours, theirs = self.before.read_tensors(names), self.after.read_tensors(names)
        except (ModelError, RunError) as error:
            if len(names) == 1:
                self.failed[names[0]] = str(error)
                return
            half = len(names) // 2
            yield from self._read_both(names[:half])
            yield from self._read_both(names[half:])
            return
        self.peak = max(self.peak, sum(x.nbytes for side in (ours, theirs) for x in side.values()))
        for name in names:
            if name in ours and name in theirs:
                # Popped, so that each pair is freed as soon as the caller is done with it.
                yield name, ours.pop(name), theirs.pop(name)


class TensorSizes:
    """The bytes of a tensor in both runs, from its symbolic shape."""

    def __init__(self, signature: Signature, sizes: Mapping[str, int]) -> None:
        self._dims = signature.value_dims()
        self._sizes = signature.key_by_symbol(sizes)

    def __call__(self, name: str) -> int | None:
        """Return the bytes of one tensor in both runs, or None where its shape is unknown."""
        dims = self._dims.get(name)
        if dims is None:
            return None
        try:
            return 2 * _ITEM * math.prod(size_of_dim(d, self._sizes) for d in dims)
        except (FeedError, ValueError):
            return None
