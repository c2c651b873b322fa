"""Search for the first tensor, in graph order, that both models have and that differs.

The second may run on another execution provider, such as DirectML.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix import ops
from graphfix.errors import ModelError
from graphfix.feeds.input_trace import FILL
from graphfix.proof.compare import Array, LeaveOut, Mask, OutputDiff, Tolerance, compare
from graphfix.proof.inner_tensors import ModelRun, TensorPairs
from graphfix.runtime.run_errors import RunError

Content = Callable[[str, tuple[int, ...]], Mask | None]
Differ = Callable[[str, Array, Array], OutputDiff | None]


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
) -> Divergence | None:
    """Return the first tensor that differs, or None if all that both models have agree.

    Args:
        before: The original.
        after: The repaired model.
        case: The name of the case, for the result.
        tolerance: What may differ.
        content: Says which elements of a tensor of a given name and shape are content; None where
            unknown. Only those are compared. Without it, all are.
    """

    def compare_tensors(name: str, ours: Array, theirs: Array) -> OutputDiff | None:
        return _compare_content(name, case, ours, theirs, tolerance, content)

    makers = _shared_producers(before.graph, after.graph)
    for name, ours, theirs in TensorPairs(before, after, lambda _: None).iter_pairs(list(makers)):
        if (diff := compare_tensors(name, ours, theirs)) is not None:
            node = makers[name]
            makes_integers = node in ops.MAKES_WHOLE_NUMBERS or ours.dtype.kind in "iub"
            names = [x.name for x in node.inputs if x is not None and x.name in makers]
            input_gap = (
                _largest_input_gap(before, after, names, compare_tensors)
                if makes_integers
                else None
            )
            return Divergence(name, node.name or "", node.op_type, diff, input_gap)
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
        masked = (before <= FILL) & (after <= FILL)
    return ~masked if masked.any() else None


def _shared_producers(before: ir.Model, after: ir.Model) -> dict[str, ir.Node]:
    """Return the tensors that nodes of both main graphs make, with the original's nodes."""
    after_names = {v.name for node in after.graph for v in node.outputs if v.name}
    nodes = (node for node in before.graph if node.op_type != "Constant")
    outputs = ((value.name, node) for node in nodes for value in node.outputs)
    return {name: node for name, node in outputs if name and name in after_names}


def _compare_content(
    name: str, case: str, before: Array, after: Array, tolerance: Tolerance, content: Content | None
) -> OutputDiff | None:
    if before.dtype.kind in "OUS":
        return None
    where: Mask | None = None
    leave_out: LeaveOut = ""
    if content is not None:
        where = content(name, before.shape)
        leave_out = "not finite" if where is None else "NaN"
    try:
        before, after = broadcast_pair(before, after)
    except ValueError:
        return compare(name, case, before, after, tolerance)
    where = where if where is not None and where.shape == before.shape else None
    free = unmasked_elements(before, after)
    if free is not None:
        where = free if where is None else where & free
    diff = compare(name, case, before, after, tolerance, where=where, leave_out=leave_out)
    return None if diff.ok else diff
