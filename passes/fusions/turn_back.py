"""turn-back: the manual is the docstring of the class."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import same_dims
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_text, is_op
from graphfix.graph.walks import reachable_from
from graphfix.ops.axes import inverse_permutation, permutation_of

from ..common.reshape_targets import with_axes
from ..common.rows import row_inputs_of

# Steps around which no Transposes are spared: a search from another end finds the same ones.
_FAILED: WeakKeyDictionary[View, set[ir.Node]] = WeakKeyDictionary()


@dataclass(frozen=True)
class StepOutput:
    """A tensor that steps make and others read.

    Attributes:
        value: The tensor.
        step: The node that makes it.
        transposes: The Transpose that undoes the one before the steps, if there is one.
        einsums: Einsums, whose equation can name the axes in another order.
        has_other_readers: Whether anything else reads it.
    """

    value: ir.Value
    step: ir.Node
    transposes: list[ir.Node]
    einsums: list[ir.Node]
    has_other_readers: bool


@dataclass(frozen=True)
class RowStepsSite(Match):
    """Row-wise nodes between Transposes of the rows.

    Attributes:
        lead: The order of the first axes there: axis i is axis ``lead[i]`` before the Transposes.
        back: The order that undoes it.
        steps: The nodes between them in the order of the graph, each with its inputs of rows.
    """

    lead: tuple[int, ...]
    back: tuple[int, ...]
    steps: dict[ir.Node, tuple[int, ...]] = field(hash=False)

    def source_of(self, value: ir.Value, view: View) -> ir.Value | None:
        """Return the tensor that a Transpose before the steps reorders, or None."""
        node = value.producer()
        if node is None or _leading_perm(node, view) != self.lead:
            return None
        source = node.inputs[0]
        return None if source is None or source.producer() in self.steps else source

    def takes_rows(self, node: ir.Node, place: int) -> bool:
        """Return whether a step takes rows at this input."""
        return place in self.steps.get(node, ())

    def step_inputs(self) -> list[ir.Value]:
        """Return the rows that the steps take and none of them makes."""
        inputs = (node.inputs[i] for node, places in self.steps.items() for i in places)
        return list(
            dict.fromkeys(x for x in inputs if x is not None and x.producer() not in self.steps)
        )

    def step_outputs(self, view: View) -> Iterator[StepOutput]:
        """Yield the tensors that the steps make and others read."""
        for step, value in ((node, x) for node in self.steps for x in node.outputs):
            uses = [
                x for x in value.uses() if not self.takes_rows(*x) and x.node.graph is value.graph
            ]
            transposes = [x.node for x in uses if _leading_perm(x.node, view) == self.back][:1]
            einsums = list(dict.fromkeys(x.node for x in uses if _names_all_axes(x.node)))
            other_uses = [
                x
                for x in value.uses()
                if not self.takes_rows(*x) and x.node not in (*transposes, *einsums)
            ]
            yield StepOutput(
                value, step, transposes, einsums, bool(other_uses) or value.is_graph_output()
            )

    def count_spared_transposes(self, view: View) -> int:
        """Return how many Transposes are removed, less those that are added."""
        gain = 0
        for value in self.step_inputs():
            if value in view.constant_values:
                continue
            if self.source_of(value, view) is None:
                gain -= 1
            elif all(self.takes_rows(*x) for x in value.uses()) and not value.is_graph_output():
                gain += 1
        return gain + sum(len(x.transposes) - x.has_other_readers for x in self.step_outputs(view))


@dataclass(frozen=True)
class TurnBack(NodePass[RowStepsSite]):
    """Removes Transposes around row-wise operators, which work in either order of the axes.

    torch's TransformerEncoder works on [T, B, D] unless it is told otherwise, and so does XLNet,
    while an attention takes [B, T, D]. Norms, sums, activations and products with a weight compute
    each row by itself. So they compute with the batch first, and the Transposes between go. This is
    done where more Transposes go than come. Of a batch of 1 a Reshape may stand for one.

    Why:
        Each is a kernel that copies all rows. By `graphfix plan`, 79 kernels of an XLNet of three
        layers are left on the device where 87 were, 205 of twelve where 231 were, and 23 of a
        torch.nn.TransformerEncoder of three layers with time first where 33 were; of one with a
        batch of 1, by dynamo, 23 where 43 were while no Reshape counted. It runs before
        `fuse-norm`, which then takes the biases of products.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        rows (float[B, T, 2] x) => (float[B, T, 2] y)
        <float[2, 2] w = {1, 2, 3, 4}, float[2] b = {1, 2}>
        {
            there = Transpose <perm = [1, 0, 2]> (x)
            product = MatMul (there, w)
            sum = Add (product, b)
            y = Transpose <perm = [1, 0, 2]> (sum)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        rows (float[B, T, 2] x) => (float[B, T, 2] y)
        <float[2, 2] w = {1, 2, 3, 4}, float[2] b = {1, 2}>
        {
            same = MatMul (x, w)
            y = Add (same, b)
        }

    Left alone:
        A Softmax over all axes but the first, as before opset 13:
        <
            ir_version: 8,
            opset_import: ["" : 12]
        >
        rows (float[B, T, 4] x) => (float[B, T, 4] y)
        {
            t = Transpose <perm = [1, 0, 2]> (x)
            h = Softmax <axis = 1> (t)
            y = Transpose <perm = [1, 0, 2]> (h)
        }

    Safety:
        Exact, except that a kernel may round another way at another layout: each row is computed
        of the same row by the same sums. What others read in the order as it was gets a Transpose
        back, an Einsum names its axes in the other order. Left as they are: Transposes that move
        the last axis, and whatever mixes rows.
    """

    anchors = ("Transpose", "Reshape")
    sentence = "Transposes around what computes each row by itself, in whichever order rows lie"

    def match(self, node: ir.Node, view: View) -> RowStepsSite | None:
        """Return the site if more Transposes around row-wise nodes go than come."""
        back = _leading_perm(node, view)
        is_read = node.outputs[0].uses() or node.outputs[0].is_graph_output()
        if not back or len(back) == view.shapes.rank(node.inputs[0]) or not is_read:
            return None
        maker = node.inputs[0].producer() if node.inputs[0] is not None else None
        failed = _FAILED.setdefault(view, set())
        if maker is None or maker in failed:
            return None
        steps = _RowStepSearch(node, back, view).steps_around(maker)
        if not steps:
            return None
        ordered = {x: steps[x] for x in node.graph or () if x in steps}
        site = RowStepsSite(node, inverse_permutation(back), back, ordered)
        if site.count_spared_transposes(view) > 0:
            return site
        failed.update(steps)
        return None

    def rewrite(self, match: RowStepsSite, op: Builder) -> ir.Value:
        """Build the same steps in the order before the Transposes."""
        reordered: dict[ir.Value, ir.Value] = {}
        outputs = list(match.step_outputs(op.view))
        for node in match.steps:
            with op.inserting_before(node):
                inputs = _reorder_inputs(node, match, reordered, op)
                reordered.update(zip(node.outputs, op.clone_outputs(node, *inputs), strict=True))
        for node in dict.fromkeys(x for out in outputs for x in out.einsums):
            with op.inserting_before(node):
                _replace_output(node, _reorder_einsum(node, reordered, match.back, op), op)
        for out in outputs:
            for transpose in out.transposes:
                _replace_output(transpose, reordered[out.value], op)
            if out.has_other_readers:
                with op.inserting_before(out.step):
                    axes = op.view.shapes.rank(out.value) or 0
                    back = _transpose_rows(reordered[out.value], axes, match.lead, op)
                op.replace_value(out.value, back, keep=[*match.steps])
        for node in reversed(match.steps):
            for value in node.outputs:
                op.remove_unread(value)
        rows = match.node.inputs[0]
        return reordered[rows] if rows is not None else match.node.outputs[0]


class _RowStepSearch:
    """A search for the row-wise nodes that a Transpose of the rows could be moved past.

    Args:
        node: The Transpose behind them.
        back: The order of its first axes.
        view: The model around it.
    """

    def __init__(self, node: ir.Node, back: tuple[int, ...], view: View) -> None:
        self._graph, self._back, self._view = node.graph, back, view
        self._steps: dict[ir.Node, tuple[int, ...]] = {}

    def steps_around(self, start: ir.Node) -> dict[ir.Node, tuple[int, ...]]:
        """Return the row-wise nodes that are connected to one, each with its inputs of rows."""
        if self._is_step(start):
            list(reachable_from([start], self._neighbours))
        return self._steps

    def _is_step(self, near: ir.Node | None) -> bool:
        """Return whether a node is row-wise; it is remembered then."""
        if near is None or near.graph is not self._graph:
            return False
        places = self._steps.get(near) or row_inputs_of(near, len(self._back), self._view)
        if places:
            self._steps[near] = places
        return bool(places)

    def _neighbours(self, step: ir.Node) -> Iterator[ir.Node]:
        """Yield the row-wise nodes next to a step."""
        rows = [x for i in self._steps[step] if (x := step.inputs[i]) is not None]
        makers = (x.producer() for x in rows)
        readers = (x.node for y in step.outputs for x in y.uses())
        # Another reader of the rows that is transposed as well: one Transpose serves both.
        siblings = (x.node for y in rows for x in y.uses() if self._feeds_transpose(x.node))
        for near in itertools.chain(makers, readers, siblings):
            if near is not None and self._is_step(near):
                yield near

    def _feeds_transpose(self, node: ir.Node) -> bool:
        """Return whether an output goes into a Transpose like the one behind the steps."""
        readers = (x.node for value in node.outputs for x in value.uses())
        return any(_leading_perm(x, self._view) == self._back for x in readers)


def _reorder_inputs(
    node: ir.Node, match: RowStepsSite, reordered: dict[ir.Value, ir.Value], op: Builder
) -> list[ir.Value | None]:
    """Return the inputs of a step with its rows in the order before the Transposes.

    Rows that no step makes are added to ``reordered``.
    """
    inputs = list(node.inputs)
    ranks = {i: op.view.shapes.rank(inputs[i]) or 0 for i in match.steps[node]}
    full = max(ranks.values())
    for i, rank in ranks.items():
        rows = inputs[i]
        if rows is None:
            continue
        if rank < full:  # a constant, which ONNX Runtime transposes when it loads the model
            unsqueezed = with_axes("Unsqueeze", rows, range(full - rank), op)
            inputs[i] = _transpose_rows(unsqueezed, full, match.back, op)
            continue
        if rows not in reordered:
            source = match.source_of(rows, op.view)
            reordered[rows] = source or _transpose_rows(rows, full, match.back, op)
        inputs[i] = reordered[rows]
    return inputs


def _replace_output(node: ir.Node, value: ir.Value, op: Builder) -> None:
    """Replace the output of ``node`` with ``value``, and remove the node."""
    op.replace_value(node.outputs[0], value)
    if node is not op.site:
        op.remove_unread(node.outputs[0])


def _transpose_rows(value: ir.Value, rank: int, lead: Sequence[int], op: Builder) -> ir.Value:
    """Build a tensor with its first axes in this order."""
    return op.Transpose(value, perm=[*lead, *range(len(lead), rank)])


def _reorder_einsum(
    node: ir.Node, reordered: dict[ir.Value, ir.Value], back: Sequence[int], op: Builder
) -> ir.Value:
    """Build an Einsum of the reordered operands, with the axes in this order."""
    terms, arrow, out = attr_text(node, "equation", "").replace(" ", "").partition("->")
    letters, inputs = terms.split(","), list(node.inputs)
    for i, value in enumerate(inputs):
        if value in reordered:
            letters[i] = "".join(letters[i][x] for x in back) + letters[i][len(back) :]
            inputs[i] = reordered[value]
    return op.Einsum(*inputs, equation=",".join(letters) + arrow + out)


def _names_all_axes(node: ir.Node) -> bool:
    """Return whether the node is an Einsum that names each axis."""
    return is_op(node, "Einsum") and "." not in attr_text(node, "equation", ".")


def _leading_perm(node: ir.Node, view: View) -> tuple[int, ...]:
    """Return the order of a Transpose's first axes, up to the last that it moves.

    A Reshape may be one: of a batch of 1, [T, 1, D] to [1, T, D].
    """
    if is_op(node, "Reshape"):
        in_dims, out_dims = (view.shapes.dims(x) or () for x in (node.inputs[0], node.outputs[0]))
        if len(in_dims) < 3 or 1 not in in_dims[:2]:
            return ()
        return (1, 0) if same_dims((in_dims[1], in_dims[0], *in_dims[2:]), out_dims) else ()
    rank = view.shapes.rank(node.inputs[0]) if is_op(node, "Transpose") else None
    perm = [] if rank is None else [*permutation_of(node, rank)]
    while perm and perm[-1] == len(perm) - 1:
        del perm[-1]
    return tuple(perm)
