"""turn-back: the manual is the docstring of the class."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.facts.shapes import all_same
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_ints, attr_text, is_op
from graphfix.graph.walks import reached

from ..common.reshape_targets import with_axes
from ..common.rows import rows_of

# Steps between which no Transposes are spared: one that looks from another end finds the same.
_FAILED: WeakKeyDictionary[View, set[ir.Node]] = WeakKeyDictionary()


@dataclass(frozen=True)
class RowsOut:
    """A tensor that steps make and others read.

    Attributes:
        value: The tensor.
        step: What makes it.
        turns: The Transpose that undoes the one before the steps, if there is one.
        sums: Einsums, whose equation can name the axes in another order.
        kept: Whether something reads it as it is.
    """

    value: ir.Value
    step: ir.Node
    turns: list[ir.Node]
    sums: list[ir.Node]
    kept: bool


@dataclass(frozen=True)
class TurnedSite(Match):
    """What computes row by row between Transposes of the rows.

    Attributes:
        lead: How the first axes lie there: axis i is axis ``lead[i]`` of what the Transposes turn.
        back: The order that undoes it.
        steps: The nodes between them in the order of the graph, each with its inputs of rows.
    """

    lead: tuple[int, ...]
    back: tuple[int, ...]
    steps: dict[ir.Node, tuple[int, ...]] = field(hash=False)

    def source(self, value: ir.Value, view: View) -> ir.Value | None:
        """What a Transpose before the steps turns; None if it is none."""
        node = value.producer()
        source = node.inputs[0] if node is not None and _lead(node, view) == self.lead else None
        return None if source is None or source.producer() in self.steps else source

    def takes(self, node: ir.Node, place: int) -> bool:
        """Whether a step takes rows there."""
        return place in self.steps.get(node, ())

    def rows_in(self) -> list[ir.Value]:
        """What the steps take that none of them makes."""
        taken = (node.inputs[i] for node, places in self.steps.items() for i in places)
        return list(
            dict.fromkeys(x for x in taken if x is not None and x.producer() not in self.steps)
        )

    def rows_out(self, view: View) -> Iterator[RowsOut]:
        """What the steps make that others read."""
        for step, value in ((node, x) for node in self.steps for x in node.outputs):
            near = [x for x in value.uses() if not self.takes(*x) and x.node.graph is value.graph]
            turns = [x.node for x in near if _lead(x.node, view) == self.back][:1]
            sums = list(dict.fromkeys(x.node for x in near if _has_letters(x.node)))
            left = [x for x in value.uses() if not self.takes(*x) and x.node not in (*turns, *sums)]
            yield RowsOut(value, step, turns, sums, bool(left) or value.is_graph_output())

    def spared(self, view: View) -> int:
        """How many Transposes go, less those that come."""
        gain = 0
        for value in self.rows_in():
            if value in view.fixed:
                continue
            if self.source(value, view) is None:
                gain -= 1
            elif all(self.takes(*x) for x in value.uses()) and not value.is_graph_output():
                gain += 1
        return gain + sum(len(x.turns) - x.kept for x in self.rows_out(view))


@dataclass(frozen=True)
class TurnBack(NodePass[TurnedSite]):
    """Removes Transposes around what computes each row by itself, in whichever order rows lie.

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

    Safety:
        Exact, except that a kernel may round another way at another layout: each row is computed
        of the same row by the same sums. What others read in the order as it was gets a Transpose
        back, an Einsum names its axes in the other order. Left as they are: Transposes that move
        the last axis, and whatever mixes rows.
    """

    anchors = ("Transpose", "Reshape")
    sentence = "Transposes around what computes each row by itself, in whichever order rows lie"

    def match(self, node: ir.Node, view: View) -> TurnedSite | None:
        """A Transpose behind what computes row by row, if more of them go than come."""
        back = _lead(node, view)
        lead = tuple(sorted(range(len(back)), key=back.__getitem__))
        read = node.outputs[0].uses() or node.outputs[0].is_graph_output()
        if not lead or len(lead) == view.shapes.rank(node.inputs[0]) or not read:
            return None
        steps: dict[ir.Node, tuple[int, ...]] = {}

        def joins(near: ir.Node | None) -> bool:
            if near is None or near.graph is not node.graph:
                return False
            places = steps.get(near) or rows_of(near, len(lead), view)
            steps.update({near: places} if places else {})
            return bool(places)

        def around(near: ir.Node) -> Iterator[ir.Node | None]:
            rows = [x for i in steps[near] if (x := near.inputs[i]) is not None]
            yield from (x for x in map(ir.Value.producer, rows) if joins(x))
            yield from (x.node for y in near.outputs for x in y.uses() if joins(x.node))
            # What reads the same rows, and is turned as well: one Transpose does for both.
            turned = (x.node for y in rows for x in y.uses() if _turns(x.node, back, view))
            yield from (x for x in turned if joins(x))

        maker = node.inputs[0].producer() if node.inputs[0] is not None else None
        failed = _FAILED.setdefault(view, set())
        if maker in failed or not joins(maker):
            return None
        list(reached([maker], around))
        site = TurnedSite(node, lead, back, {x: steps[x] for x in node.graph or () if x in steps})
        if site.spared(view) > 0:
            return site
        failed.update(steps)
        return None

    def rewrite(self, match: TurnedSite, op: Builder) -> ir.Value:
        """The same steps in the order that the Transposes turn."""
        made: dict[ir.Value, ir.Value] = {}
        read = list(match.rows_out(op.view))
        for node, places in match.steps.items():
            inputs = list(node.inputs)
            ranks = {i: op.view.shapes.rank(inputs[i]) or 0 for i in places}
            full = max(ranks.values())
            with op.placed(node):
                for i, rank in ranks.items():
                    if (rows := inputs[i]) is None:
                        continue
                    if rank < full:  # turned when the model is loaded
                        ones = with_axes("Unsqueeze", rows, range(full - rank), op)
                        inputs[i] = _turned(ones, full, match.back, op)
                        continue
                    if rows not in made:
                        source = match.source(rows, op.view)
                        made[rows] = source or _turned(rows, full, match.back, op)
                    inputs[i] = made[rows]
                made.update(zip(node.outputs, op.again_all(node, *inputs), strict=True))
        for node in dict.fromkeys(x for out in read for x in out.sums):
            with op.placed(node):
                _put(node, _renamed(node, made, match.back, op), op)
        for out in read:
            for turn in out.turns:
                _put(turn, made[out.value], op)
            if out.kept:
                with op.placed(out.step):
                    axes = op.view.shapes.rank(out.value) or 0
                    back = _turned(made[out.value], axes, match.lead, op)
                op.replace(out.value, back, keep=[*match.steps])
        for node in reversed(match.steps):
            for value in node.outputs:
                op.drop(value)
        rows = match.node.inputs[0]
        return made[rows] if rows is not None else match.node.outputs[0]


def _put(node: ir.Node, value: ir.Value, op: Builder) -> None:
    """Let ``value`` be what ``node`` makes, which goes."""
    op.replace(node.outputs[0], value)
    if node is not op.site:
        op.drop(node.outputs[0])


def _turned(value: ir.Value, rank: int, lead: Sequence[int], op: Builder) -> ir.Value:
    """A tensor with its first axes in this order."""
    return op.Transpose(value, perm=[*lead, *range(len(lead), rank)])


def _renamed(
    node: ir.Node, made: dict[ir.Value, ir.Value], back: Sequence[int], op: Builder
) -> ir.Value:
    """An Einsum of what was made of its operands, with the first axes in this order."""
    terms, arrow, out = attr_text(node, "equation", "").replace(" ", "").partition("->")
    letters, inputs = terms.split(","), list(node.inputs)
    for i, value in enumerate(inputs):
        if value in made:
            letters[i] = "".join(letters[i][x] for x in back) + letters[i][len(back) :]
            inputs[i] = made[value]
    return op.Einsum(*inputs, equation=",".join(letters) + arrow + out)


def _has_letters(node: ir.Node) -> bool:
    """Whether it is an Einsum that names each axis."""
    return is_op(node, "Einsum") and "." not in attr_text(node, "equation", ".")


def _lead(node: ir.Node, view: View) -> tuple[int, ...]:
    """Where a Transpose takes the first axes from, up to the last one that it moves.

    A Reshape may be one: of a batch of 1, [T, 1, D] to [1, T, D].
    """
    if is_op(node, "Reshape"):
        given, made = (view.shapes.dims(x) or () for x in (node.inputs[0], node.outputs[0]))
        thin = len(given) > 2 and 1 in given[:2]
        return (1, 0) if thin and all_same((given[1], given[0], *given[2:]), made) else ()
    perm = list((is_op(node, "Transpose") and attr_ints(node, "perm")) or ())
    while perm and perm[-1] == len(perm) - 1:
        del perm[-1]
    return tuple(perm)


def _turns(node: ir.Node, lead: tuple[int, ...], view: View) -> bool:
    """Whether what it makes goes into such a Transpose."""
    return any(_lead(x.node, view) == lead for value in node.outputs for x in value.uses())
