"""Where two models part: the first tensor, in the order of the graph, that both have and differ in.

The second may run on another execution provider, such as DirectML.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.errors import ModelError
from graphfix.feeds.input_trace import FILL
from graphfix.proof.compare import Array, LeaveOut, Mask, OutputDiff, Tolerance, compare
from graphfix.proof.inner_tensors import Run, Stream
from graphfix.runtime.run_errors import RunError

Content = Callable[[str, tuple[int, ...]], Mask | None]
Differ = Callable[[str, Array, Array], OutputDiff | None]

# They make whole numbers, as do those that choose, compare and count, but of floats.
_WHOLE = ("Ceil", "Floor", "Round", "Sign")


@dataclass(frozen=True)
class Divergence:
    """The first tensor whose values part, in the order of the original graph.

    Attributes:
        tensor: Its name, which both graphs have.
        node: The name of the node that makes it in the original.
        op: The operator of that node.
        diff: How far apart it is.
        given: How far apart what it is given is at most, where that is within what may differ, and
            the least difference may decide what it makes: which element is the largest, whether a
            number is above another; None otherwise.
    """

    tensor: str
    node: str
    op: str
    diff: OutputDiff
    given: float | None = None

    def __str__(self) -> str:
        node = f"{self.op} {self.node!r}" if self.node else self.op
        text = f"The first tensor to part is {self.tensor!r} ({node})."
        if self.given is None:
            return text
        given = f"What it is given differs by {self.given:.3g} at most"
        return f"{text} {given}: there rounding decides."


def first_divergence(
    before: Run, after: Run, case: str, tolerance: Tolerance, content: Content | None = None
) -> Divergence | None:
    """The first tensor that differs, or None if none that both have does.

    Args:
        before: The original.
        after: The repaired model.
        case: The name of the case, for the result.
        tolerance: What may differ.
        content: Says which elements of a tensor of a given name and shape are content; None where
            unknown. Only those are compared. Without it, all are.
    """

    def differ(name: str, ours: Array, theirs: Array) -> OutputDiff | None:
        return _differ(name, case, ours, theirs, tolerance, content)

    makers = _makers(before.graph, after.graph)
    for name, ours, theirs in Stream(before, after, lambda _: None).pairs(list(makers)):
        if (diff := differ(name, ours, theirs)) is not None:
            node = makers[name]
            whole = node.op_type in _WHOLE or ours.dtype.kind in "iub"
            names = [x.name for x in node.inputs if x is not None and x.name in makers]
            given = _apart(before, after, names, differ) if whole else None
            return Divergence(name, node.name or "", node.op_type, diff, given)
    return None


def _apart(before: Run, after: Run, names: list[str], differ: Differ) -> float | None:
    """How far apart the floats of these names are, if that is within what may differ."""
    apart = 0.0
    try:
        ours, theirs = before.peek(names), after.peek(names)
    except (ModelError, RunError):
        return None  # the outputs were found to differ all the same
    for name in names:
        if ours[name].dtype.kind != "f":
            continue
        if differ(name, ours[name], theirs[name]) is not None:
            return None
        gap = np.abs(ours[name].astype(np.float64) - theirs[name])
        apart = max(apart, float(np.max(gap[np.isfinite(gap)], initial=0.0)))
    return apart or None


def alike(before: Array, after: Array) -> tuple[Array, Array]:
    """Both in one shape and type: a repair may broadcast later, or count in another integer type.

    Raises:
        ValueError: Their shapes do not broadcast.
    """
    if before.shape == after.shape and before.dtype == after.dtype:
        return before, after
    before, after = np.broadcast_arrays(before, after)
    return before.astype(np.float64), after.astype(np.float64)


def unfilled(before: Array, after: Array) -> Mask | None:
    """The elements that are not the fill of a mask in both; None where no element is."""
    if before.dtype.kind not in "fV":
        return None
    with np.errstate(invalid="ignore"):
        masked = (before <= FILL) & (after <= FILL)
    return ~masked if masked.any() else None


def _makers(before: ir.Model, after: ir.Model) -> dict[str, ir.Node]:
    """The tensors that nodes of both main graphs make, constants left out, with their nodes."""
    known = {v.name for node in after.graph for v in node.outputs if v.name}
    nodes = (node for node in before.graph if node.op_type != "Constant")
    made = ((value.name, node) for node in nodes for value in node.outputs)
    return {name: node for name, node in made if name and name in known}


def _differ(
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
        before, after = alike(before, after)
    except ValueError:
        return compare(name, case, before, after, tolerance)
    where = where if where is not None and where.shape == before.shape else None
    free = unfilled(before, after)
    if free is not None:
        where = free if where is None else where & free
    diff = compare(name, case, before, after, tolerance, where=where, leave_out=leave_out)
    return None if diff.ok else diff
