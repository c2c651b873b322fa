"""turn-back: the manual is the docstring of the class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from graphfix.core import Match, NodePass
from graphfix.editing.builder import Builder
from graphfix.model.values import attr_ints, is_op
from graphfix.model.view import View

from ._shared.fusible import only_user


@dataclass(frozen=True)
class TurnedSite(Match):
    """Two Transposes that cancel, around what computes row by row.

    Attributes:
        source: What the first turns.
        steps: What lies between, nearest to it first, each with the place of the rows.
    """

    source: ir.Value
    steps: tuple[tuple[ir.Node, int], ...]


@dataclass(frozen=True)
class TurnBack(NodePass[TurnedSite]):
    """Removes a Transpose and the one that undoes it around a product with a weight.

    torch's MultiheadAttention works on [T, B, D], and turns what it is given as [B, T, D] there and
    back. Once `fuse-attention` has made one operator of the heads, only the product of the output
    and its bias lie between.

    Why:
        Two kernels less in each layer of such a model: by `graphfix plan`, 27 kernels of a
        torch.nn.TransformerEncoder of three layers are left on the device without it and 21 with
        it. It runs before `fuse-norm`, which then takes the bias of the product.

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
        of the same row by the same sums. Left as they are: Transposes that move the last axis, and
        steps that something else reads.
    """

    name: ClassVar[str] = "turn-back"
    anchors: ClassVar[tuple[str, ...]] = ("Transpose",)

    def match(self, node: ir.Node, view: View) -> TurnedSite | None:
        """A Transpose that undoes another one before a product with a weight."""
        perm = attr_ints(node, "perm")
        if not perm or perm[-1] != len(perm) - 1:
            return None
        steps: list[tuple[ir.Node, int]] = []
        last, maker = node, _maker(node, 0)
        while maker is not None and only_user(maker) is last:
            place = _rows_of(maker, view)
            if place is None:
                break
            steps.insert(0, (maker, place))
            last, maker = maker, _maker(maker, place)
        first = attr_ints(maker, "perm") if is_op(maker, "Transpose") else None
        if maker is None or not steps or not first or len(first) != len(perm):
            return None
        source = maker.inputs[0]
        undone = [first[x] for x in perm] == [*range(len(perm))]
        return TurnedSite(node, source, tuple(steps)) if undone and source is not None else None

    def message(self, site: Match) -> str:
        """What it is."""
        return "two Transposes that cancel, around a product of rows"

    def rewrite(self, match: TurnedSite, op: Builder) -> ir.Value:
        """The same steps without them."""
        made = match.source
        for step, place in match.steps:
            inputs = list(step.inputs)
            inputs[place] = made
            made = op.again(step, *inputs)
        return made


def _maker(node: ir.Node, place: int) -> ir.Node | None:
    value = node.inputs[place]
    return None if value is None else value.producer()


def _rows_of(node: ir.Node, view: View) -> int | None:
    """Which input of a product or a sum has rows, each of which is computed by itself."""
    ranks = [view.shapes.rank(x) for x in node.inputs]
    if is_op(node, "MatMul"):
        return 0 if node.inputs[1] in view.fixed and ranks[1] == 2 else None
    if not is_op(node, "Add"):
        return None
    biases = [i for i, x in enumerate(node.inputs) if x in view.fixed and ranks[i] in (0, 1)]
    return 1 - biases[0] if len(biases) == 1 else None
