"""Which tensors of two runs part, and at which nodes: those that take equals and make unequals.

A tensor parts if its difference is more than rounding: more than a share of its own scale, and
more than the rounding of what it is computed from. Of those, the ones that count lead to an output
that parts; a tensor that parts on a way where all is equal again later does no harm.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from graphfix.feeds.input_trace import FILL
from graphfix.model.values import captured, is_op
from graphfix.probing.compared import Inner, State
from graphfix.probing.in_container import cropped
from graphfix.proof.compare import Array, Tolerance, compare
from graphfix.proof.first_difference import alike, unfilled

if TYPE_CHECKING:
    from collections.abc import Iterator


# Any finite difference passes; what is left to find are NaN, infinities and unequal integers.
_ANY = Tolerance(max_abs=math.inf, cosine=-2.0, half=1.0)
# The inside is held to a tenth of what outputs are: a leak is small where it begins.
_INSIDE = 0.1
# Where sums cancel, the rounding of what was cancelled remains: so many times its scale.
_ROUNDING = 2e-6
_ADDS = ("Add", "Sub", "Sum", "Mean", "ReduceSum", "ReduceMean", "CumSum")
_MERGED = "its axes mix time with others"
# One element is computed from many others: what comes out wrong went in wrong, or is their doing.
_MIXES = frozenset(
    {"ArgMax", "ArgMin", "Attention", "AveragePool", "BatchNormalization", "Conv", "ConvInteger"}
    | {"ConvTranspose", "CumSum", "DFT", "DynamicQuantizeLinear", "Einsum", "GRU", "Gemm"}
    | {"GlobalAveragePool", "GlobalMaxPool", "GroupNormalization", "InstanceNormalization", "LSTM"}
    | {"LayerNormalization", "LogSoftmax", "LpNormalization", "MatMul", "MatMulInteger", "MaxPool"}
    | {"MeanVarianceNormalization", "QLinearConv", "QLinearMatMul", "RNN", "ReduceL1", "ReduceL2"}
    | {"ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"}
    | {"ReduceSumSquare", "STFT", "Softmax", "TopK"}
)


class Parting:
    """Judges pairs of tensors in the order of the graph, then walks back from the outputs.

    Args:
        graph: The graph of the second run.
        tolerance: What outputs may differ.
        carries: Whether a value is computed from the contents of an input, not from sizes alone.
    """

    def __init__(
        self, graph: ir.Model, tolerance: Tolerance, *, carries: frozenset[ir.Value]
    ) -> None:
        self._tolerance, self._carries = tolerance, carries
        self._values = {
            v.name: v for node in graph.graph for v in node.outputs if v.name is not None
        }
        self._order = {node: i for i, node in enumerate(graph.graph)}
        self._outputs = {v.name or "" for v in graph.graph.outputs}
        self._captured = {node: tuple(captured(node)) for node in graph.graph}
        self.inner: dict[str, Inner] = {}
        self.failed: dict[str, str] = {}
        """Outputs past the tolerance, with what is wrong."""

    def carries(self, value: ir.Value) -> bool:
        """Whether a value is to be compared."""
        return value in self._carries

    def take(self, name: str, before: Array, after: Array) -> None:
        """Judge a tensor; those that it is computed from have been judged before."""
        self.inner[name] = self._judge(name, before, after)
        if name in self._outputs:
            verdict = self._compare(name, before, after, self._tolerance)
            if wrong := verdict if isinstance(verdict, str) else verdict[0]:
                self.failed[name] = wrong
            elif _never_finite(before) and _never_finite(after):
                self.failed[name] = "has no finite number, so nothing is known of it"

    def feed(self, name: str, before: Array, after: Array) -> None:
        """Know an input."""
        self.inner[name] = self._judge(name, before, after)

    def skip(self, name: str, reason: str) -> None:
        """Note that a tensor cannot be compared."""
        self.inner[name] = Inner(name, "skipped", reason)

    def _judge(self, name: str, before: Array, after: Array) -> Inner:
        shapes = {"shape": before.shape, "other": after.shape}
        value = self._values.get(name)
        node = value.producer() if value is not None else None
        above = [self.inner[x.name] for x in self._inputs(node) if x.name in self.inner]
        if is_op(node, "Reshape", "Flatten") and self._merged(node, before, after):
            return Inner(name, "skipped", _MERGED, **shapes)  # type: ignore[arg-type]
        found = self._compare(name, before, after, _ANY)
        if isinstance(found, str):
            return Inner(name, "skipped", found, **shapes)  # type: ignore[arg-type]
        reason, max_abs, cosine, scale = found
        allowed = 0.0
        if before.dtype.kind in "fV":
            share = _INSIDE * self._tolerance.max_abs
            from_above = max((x.scale for x in above if is_op(node, *_ADDS)), default=0.0)
            rounding = _ROUNDING * max(1.0, self._tolerance.max_abs / 1e-4)
            allowed = max(share * scale, rounding * from_above)
        state: State = "parted" if reason or max_abs > allowed else "same"
        if state == "parted" and node is not None and node.op_type not in _MIXES:
            states = {x.state for x in above}
            if "skipped" in states and "parted" not in states:
                state, reason = "skipped", "it is made of what could not be compared"
        return Inner(
            name, state, reason, max_abs, cosine, scale, allowed, before.shape, after.shape
        )

    def _compare(
        self, name: str, before: Array, after: Array, tolerance: Tolerance
    ) -> tuple[str, float, float, float] | str:
        """What is wrong, the difference, the cosine and the scale; or why it is not compared."""
        if before.dtype.kind in "OUS" or after.dtype.kind in "OUS":
            return "it holds text"
        if before.shape != after.shape:
            found = cropped(after, before)
            if isinstance(found, str):
                return found
            after = found
        if before.dtype == after.dtype and np.array_equal(before, after):
            return "", 0.0, 1.0, _scale(before)  # most tensors, and at a tenth of the cost
        before, after = alike(before, after)
        diff = compare(name, "", before, after, tolerance, where=unfilled(before, after))
        reason = diff.reason
        if before.dtype.kind not in "fV":  # equal or not; how far is told as of other numbers
            wide = (before.astype(np.float64), after.astype(np.float64))
            diff = compare(name, "", *wide, _ANY)
        return reason, diff.max_abs, diff.cosine, diff.scale

    def _merged(self, node: ir.Node, before: Array, after: Array) -> bool:
        """Whether a Reshape of the prefix is not the prefix of the Reshape.

        One that takes apart what another has merged is compared all the same.
        """
        source = node.inputs[0]
        known = self.inner.get((source.name if source is not None else None) or "")
        if known is None or known.state == "skipped" or not (known.shape or known.other):
            return False
        return not _commutes(known.shape, known.other, before.shape, after.shape)

    def _inputs(self, node: ir.Node | None) -> Iterator[ir.Value]:
        """What a node computes with, values that its subgraphs capture among them."""
        if node is not None:
            for value in (*node.inputs, *self._captured[node]):
                if value is not None and value in self._carries:
                    yield value

    # Back from the outputs

    def sites(self) -> tuple[list[str], set[str]]:
        """Where the runs part.

        Returns:
            The parted tensors whose node takes only what is the same, in the order of the graph,
            one of each node; and every parted tensor that leads from there to an output past the
            tolerance.
        """
        pending = [name for name in self.failed if name in self._values]
        reached, found = set(pending), set()
        while pending:
            name = pending.pop()
            above = self._parted_above(self._values[name])
            if not above:
                found.add(name)
            pending.extend(above - reached)
            reached |= above
        each: dict[ir.Node | None, str] = {}
        for name in self.inner:  # in the order of the graph
            if name in found:
                each.setdefault(self.node_of(name), name)
        return sorted(each.values(), key=self.place), reached

    def _parted_above(self, value: ir.Value) -> set[str]:
        """The nearest parted tensors that ``value`` is computed from, past what is not compared."""
        found: set[str] = set()
        pending, seen = [value], {value}
        while pending:
            for source in self._inputs(pending.pop().producer()):
                if source in seen or source.producer() is None:
                    continue
                seen.add(source)
                inner = self.inner.get(source.name or "")
                if inner is not None and inner.state == "parted":
                    found.add(source.name or "")
                elif inner is None or inner.state == "skipped":
                    pending.append(source)
        return found

    def node_of(self, name: str) -> ir.Node | None:
        """The node that makes a tensor, in the second run's graph."""
        value = self._values.get(name)
        return value.producer() if value is not None else None

    def place(self, name: str) -> int:
        """Where a tensor is in the order of the graph."""
        node = self.node_of(name)
        return -1 if node is None else self._order.get(node, -1)


def _scale(array: Array) -> float:
    """The largest absolute value that is no fill."""
    if array.dtype.kind not in "fV" or not array.size:
        return 0.0
    wide = array if array.dtype.kind == "f" else array.astype(np.float32)
    high, low = float(wide.max()), float(wide.min(initial=0.0, where=wide > FILL))
    return max(abs(high), abs(low)) if math.isfinite(high) else 0.0


def _commutes(
    source: tuple[int, ...], longer: tuple[int, ...], made: tuple[int, ...], other: tuple[int, ...]
) -> bool:
    """Whether cropping after a Reshape picks the elements that cropping before it does.

    Args:
        source: The shape of what is reshaped, of the clip alone.
        longer: The same in the container.
        made: The shape that it is given, of the clip alone.
        other: The same in the container.
    """
    if len(source) != len(longer) or len(made) != len(other):
        return False
    # Axes that are the same everywhere at either end take no part, and make the rest small.
    ends = [list(source), list(longer), list(made), list(other)]
    for side in (-1, 0):
        while all(ends) and len({shape[side] for shape in ends}) == 1:
            for shape in ends:
                shape.pop(side)
    a, b, c, d = ends
    fits = all(x <= y for x, y in (*zip(a, b, strict=True), *zip(c, d, strict=True)))
    if not fits or math.prod(a) != math.prod(c) or math.prod(b) != math.prod(d):
        return False
    index = np.arange(math.prod(b))
    before = index.reshape(b)[tuple(slice(n) for n in a)]
    after = index.reshape(d)[tuple(slice(n) for n in c)]
    return bool(np.array_equal(before.ravel(), after.ravel()))


def _never_finite(array: Array) -> bool:
    return array.dtype.kind in "fV" and array.size > 0 and not np.isfinite(array).any()
