"""Search for the first tensor, in graph order, that both models have and that differs.

The second may run on another execution provider, such as DirectML.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.errors import ModelError
from graphfix.facts.hidden_scores import HIDES
from graphfix.proof.allowance import ChannelScales, Floats
from graphfix.proof.compare import Array, LeaveOut, Mask, OutputDiff, Tolerance, compare
from graphfix.proof.inner_tensors import ModelRun, TensorPairs
from graphfix.proof.noise import absolute_difference, change_copy
from graphfix.runtime.run_errors import RunError

Content = Callable[[str, tuple[int, ...]], Mask | None]
Differ = Callable[[str, Array, Array], OutputDiff | None]

# How often a tensor is computed with other last bits, and how many tensors at once.
_CHANGES, _GROUP = 3, 32


@dataclass(frozen=True)
class Divergence:
    """The first tensor whose values differ, in the order of the original graph.

    Attributes:
        tensor: Its name, which both graphs have.
        node: The name of the node that makes it in the original.
        op: The operator of that node.
        diff: Its difference.
        given: The largest difference of the inputs of its node, if that is within the tolerance and
            the node makes integers, so that rounding may decide the result; None otherwise.
    """

    tensor: str
    node: str
    op: str
    diff: OutputDiff
    given: float | None = None

    def __str__(self) -> str:
        node = f"{self.op} {self.node!r}" if self.node else self.op
        text = f"The first tensor to differ is {self.tensor!r} ({node})."
        if self.given is None:
            return text
        input_gap = f"What it is given differs by {self.given:.3g} at most"
        return f"{text} {input_gap}: there rounding decides."


def find_divergence(
    before: ModelRun,
    after: ModelRun,
    case: str,
    tolerance: Tolerance,
    content: Content | None = None,
    half: Collection[str] = (),
) -> Divergence | None:
    """Return the first tensor that differs, or None if all that both models have agree.

    A tensor that only the scales of its channels refuse differs if the original, with other last
    bits, is not as far off there.

    Args:
        before: The original.
        after: The repaired model.
        case: The name of the case, for the result.
        tolerance: What may differ.
        content: Says which elements of a tensor of a given name and shape are content; None where
            unknown. Only those are compared. Without it, all are.
        half: The names of tensors that were rounded to float16 on the way.
    """
    comparison = _TensorComparison(case, tolerance, content, half)
    makers = _shared_producers(before.graph, after.graph)
    first: tuple[str, Array, OutputDiff] | None = None
    suspects: list[str] = []
    for name, ours, theirs in TensorPairs(before, after, lambda _: None).iter_pairs(list(makers)):
        if (diff := comparison.find_difference(name, ours, theirs)) is None:
            continue
        if comparison.find_difference(name, ours, theirs, by_channel=False) is None:
            suspects.append(name)
            continue
        first = name, ours, diff
        break
    first = _first_beyond_noise(before, after, suspects, comparison) or first
    if first is None:
        return None
    name, ours, diff = first
    node = makers[name]
    makes_integers = node in ops.MAKES_WHOLE_NUMBERS or ours.dtype.kind in "iub"
    names = [x.name for x in node.inputs if x is not None and x.name in makers]
    input_gap = (
        _largest_input_gap(
            before, after, names, partial(comparison.find_difference, by_channel=False)
        )
        if makes_integers
        else None
    )
    return Divergence(name, node.name or "", node.op_type, diff, input_gap)


def _first_beyond_noise(
    before: ModelRun, after: ModelRun, names: Sequence[str], comparison: "_TensorComparison"
) -> tuple[str, Array, OutputDiff] | None:
    """Return the first of some tensors that is further off than the original is by itself."""
    for start in range(0, len(names), _GROUP):
        group = names[start : start + _GROUP]
        noise: dict[str, list[Floats]] = {}
        for seed in range(_CHANGES):
            copy, change = change_copy(before.graph, seed)
            feeds = {name: change(array) for name, array in before.feeds.items()}
            pairs = TensorPairs(before, ModelRun(copy, copy, feeds), lambda _: None)
            for name, ours, other in pairs.iter_pairs(group):
                if ours.shape == other.shape:
                    noise.setdefault(name, []).append(absolute_difference(ours, other))
        for name, ours, theirs in TensorPairs(before, after, lambda _: None).iter_pairs(group):
            diff = comparison.find_difference(name, ours, theirs, noise.get(name, ()))
            if diff is not None:
                return name, ours, diff
    return None


def _largest_input_gap(
    before: ModelRun, after: ModelRun, names: list[str], differ: Differ
) -> float | None:
    """Return the largest float difference in these tensors, or None if one exceeds tolerance."""
    largest = 0.0
    try:
        ours, theirs = before.read_tensors(names), after.read_tensors(names)
    except (ModelError, RunError):
        return None  # the outputs were found to differ all the same
    for name in names:
        if ours[name].dtype.kind != "f":
            continue
        if differ(name, ours[name], theirs[name]) is not None:
            return None
        gap = np.abs(ours[name].astype(np.float64) - theirs[name])
        largest = max(largest, float(np.max(gap[np.isfinite(gap)], initial=0.0)))
    return largest or None


def broadcast_pair(before: Array, after: Array) -> tuple[Array, Array]:
    """Return both arrays in one shape and dtype, as repairs may change either.

    Raises:
        ValueError: Their shapes do not broadcast.
    """
    if before.shape == after.shape and before.dtype == after.dtype:
        return before, after
    before, after = np.broadcast_arrays(before, after)
    return before.astype(np.float64), after.astype(np.float64)


def unmasked_elements(before: Array, after: Array) -> Mask | None:
    """Return which elements are not a mask's fill in both; None where none is a fill."""
    if before.dtype.kind not in "fV":
        return None
    with np.errstate(invalid="ignore"):
        masked = (before <= HIDES) & (after <= HIDES)
    return ~masked if masked.any() else None


def _shared_producers(before: ir.Model, after: ir.Model) -> dict[str, ir.Node]:
    """Return the tensors that nodes of both main graphs make, with the original's nodes."""
    after_names = {v.name for node in after.graph for v in node.outputs if v.name}
    nodes = (node for node in before.graph if node.op_type != "Constant")
    outputs = ((value.name, node) for node in nodes for value in node.outputs)
    return {name: node for name, node in outputs if name and name in after_names}


@dataclass(frozen=True)
class _TensorComparison:
    """Compares inner tensors of two models in one case.

    Attributes:
        case: The name of the case.
        tolerance: What may differ in a tensor that is computed in float32.
        content: Says which elements are content.
        half: The names of tensors that were rounded to float16 on the way.
    """

    case: str
    tolerance: Tolerance
    content: Content | None
    half: Collection[str]

    def find_difference(
        self,
        name: str,
        before: Array,
        after: Array,
        noise: Sequence[Floats] = (),
        *,
        by_channel: bool = True,
    ) -> OutputDiff | None:
        """Return how a tensor differs by more than it may; None if it does not.

        Args:
            name: Its name.
            before: Its array in the original.
            after: Its array in the repaired model.
            noise: How far the original differs from itself in several runs.
            by_channel: Whether each channel is held to its own scale, too.
        """
        if before.dtype.kind in "OUS":
            return None
        where: Mask | None = None
        leave_out: LeaveOut = ""
        tolerance = self.tolerance.for_half() if name in self.half else self.tolerance
        if self.content is not None:
            where = self.content(name, before.shape)
            leave_out = "not finite" if where is None else "NaN"
        try:
            before, after = broadcast_pair(before, after)
        except ValueError:
            return compare(name, self.case, before, after, tolerance)
        where = where if where is not None and where.shape == before.shape else None
        free = unmasked_elements(before, after)
        if free is not None:
            where = free if where is None else where & free
        channels = None
        if by_channel and before.dtype.kind in "fV":
            channels = ChannelScales.of_output([(before, where)]).with_noise(noise)
        diff = compare(
            name,
            self.case,
            before,
            after,
            tolerance,
            where=where,
            leave_out=leave_out,
            channels=channels,
        )
        return None if diff.ok else diff
