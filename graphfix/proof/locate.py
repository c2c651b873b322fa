"""Where two models part: the first tensor, in the order of the graph, that both have and differ in.

The second may run on another execution provider, such as DirectML. Inner tensors are made outputs,
a chunk at a time. Of a graph with more tensors than a chunk, first an even sample is looked at,
then what its first unequal tensor comes from, up to equal ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from graphfix.errors import ModelError
from graphfix.proof.compare import Array, LeaveOut, Mask, OutputDiff, Tolerance, compare
from graphfix.runtime.errors import RunError
from graphfix.runtime.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from graphfix.runtime.provider import Ep
    from graphfix.runtime.source import Source

    Feeds = Mapping[str, Array]
    Content = Callable[[str, tuple[int, ...]], Mask | None]

# So many inner tensors are looked at in one run.
CHUNK = 256
# They make whole numbers, as do those that choose, compare and count, but of floats.
_WHOLE = ("Ceil", "Floor", "Round", "Sign")
# What is below this in both models takes its position out of a Softmax, in either way.
_FILL = -1e3


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


@dataclass(frozen=True)
class Side:
    """A model that takes part: what to load, its graph, what to feed it, and where it runs."""

    source: Source
    graph: ir.Model
    feeds: Feeds
    ep: Ep = "cpu"


def first_divergence(
    before: Side,
    after: Side,
    case: str,
    tolerance: Tolerance,
    content: Content | None = None,
    chunk: int = CHUNK,
) -> Divergence | None:
    """The first tensor that differs, or None if none that both have does.

    Args:
        before: The original.
        after: The repaired model.
        case: The name of the case, for the result.
        tolerance: What may differ.
        content: Says which elements of a tensor of a given name and shape are content; None where
            unknown. Only those are compared. Without it, all are.
        chunk: How many tensors to look at in one run.
    """
    candidates = _candidates(before.graph, after.graph)
    equal: set[str] = set()
    while candidates:
        sample = _sample(candidates, chunk)
        try:
            names = [name for name, _ in sample]
            ours, theirs = _peek(before, names), _peek(after, names)
        except (ModelError, RunError):
            return None  # the outputs were found to differ all the same
        found: Divergence | None = None
        for name, node in sample:
            if name not in ours or name not in theirs:
                continue  # a sequence, or an optional that is absent
            diff = _differ(name, case, ours[name], theirs[name], tolerance, content)
            if diff is not None:
                found = Divergence(name, node.name or "", node.op_type, diff)
                break
            equal.add(name)
        if found is None:
            return None
        above = _above(found.tensor, candidates, equal)
        if len(sample) == len(candidates) or len(above) == 1:
            whole = node.op_type in _WHOLE or ours[found.tensor].dtype.kind in "iub"
            given = _given(before, after, node, case, tolerance, content) if whole else None
            return replace(found, given=given)
        candidates = above
    return None


def _given(
    before: Side,
    after: Side,
    node: ir.Node,
    case: str,
    tolerance: Tolerance,
    content: Content | None,
) -> float | None:
    """How far apart the floats are that a node takes, if that is within what may differ."""
    made = dict(_candidates(before.graph, after.graph))
    names = [x.name for x in node.inputs if x is not None and x.name in made]
    apart = 0.0
    try:
        ours, theirs = _peek(before, names), _peek(after, names)
    except (ModelError, RunError):
        return None
    for name in names:
        if ours[name].dtype.kind != "f":
            continue
        if _differ(name, case, ours[name], theirs[name], tolerance, content) is not None:
            return None
        gap = np.abs(ours[name].astype(np.float64) - theirs[name])
        apart = max(apart, float(np.max(gap[np.isfinite(gap)], initial=0.0)))
    return apart or None


def _above(
    tensor: str, candidates: Sequence[tuple[str, ir.Node]], equal: set[str]
) -> list[tuple[str, ir.Node]]:
    """``tensor`` and those candidates that it comes from other than through equal tensors."""
    makers = dict(candidates)
    known = {tensor}
    pending = [makers[tensor]]
    while pending:
        for value in pending.pop().inputs:
            node = value.producer() if value is not None else None
            if value is None or node is None or value.name in known or value.name in equal:
                continue
            known.add(value.name or "")
            pending.append(node)
    return [item for item in candidates if item[0] in known]


def _candidates(before: ir.Model, after: ir.Model) -> list[tuple[str, ir.Node]]:
    """The tensors that nodes of both main graphs make, constants left out."""
    known = {v.name for node in after.graph for v in node.outputs if v.name}
    return [
        (value.name, node)
        for node in before.graph
        if node.op_type != "Constant"
        for value in node.outputs
        if value.name and value.name in known
    ]


def _sample(candidates: Sequence[tuple[str, ir.Node]], chunk: int) -> Sequence[tuple[str, ir.Node]]:
    """An even sample of the candidates, the last among them; all if they fit."""
    if len(candidates) <= chunk:
        return candidates
    picked = {round(i) for i in np.linspace(0, len(candidates) - 1, chunk)}
    return [item for i, item in enumerate(candidates) if i in picked]


def _peek(side: Side, names: Sequence[str]) -> dict[str, Array]:
    # On the CPU as written; elsewhere with all optimizations, as it was when it differed.
    optimize = side.ep != "cpu"
    with Session(side.source, ep=side.ep, extra_outputs=names, optimize=optimize) as session:
        return session.run(side.feeds, names)


def _differ(
    name: str,
    case: str,
    before: Array,
    after: Array,
    tolerance: Tolerance,
    content: Content | None,
) -> OutputDiff | None:
    if before.dtype.kind in "OUS":
        return None
    where: Mask | None = None
    leave_out: LeaveOut = ""
    if content is not None:
        where = content(name, before.shape)
        leave_out = "not finite" if where is None else "NaN"
    if before.shape != after.shape or before.dtype != after.dtype:
        # A repair may broadcast later, or count in another integer type, under the same name.
        try:
            before, after = np.broadcast_arrays(before, after)
        except ValueError:
            return compare(name, case, before, after, tolerance)
        before, after = before.astype(np.float64), after.astype(np.float64)
        where = where if where is not None and where.shape == before.shape else None
    if before.dtype.kind in "fV":
        with np.errstate(invalid="ignore"):
            masked = (before <= _FILL) & (after <= _FILL)
        if masked.any():
            where = ~masked if where is None else where & ~masked
    diff = compare(name, case, before, after, tolerance, where=where, leave_out=leave_out)
    return None if diff.ok else diff
