"""Few islands of float32 rather than many, with few Casts at their borders."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.model.values import bodies_of, is_op

from ._float16_constants import has_weights, is_constant

if TYPE_CHECKING:
    from ._float16_stay import Stay

_PLAIN = frozenset(
    {"Identity", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten", "Expand", "Tile"}
    | {"Slice", "Split", "Gather", "Concat", "Pad", "Neg", "Abs", "Where", "Dropout"}
)


# What computes much: a Cast is dearer than nothing, and cheaper than these in float32.
_HEAVY = frozenset(
    {"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "LSTM", "GRU", "RNN", "Attention"}
    | {"MultiHeadAttention", "GroupQueryAttention", "SkipLayerNormalization", "FusedMatMul"}
)
# An island has one Cast before it and one behind, or it is looked at.
_TWO = 2
# So many nodes are taken together to save a Cast.
_STEPS = 6
_WHY = "between others that stay"


def few_islands(stay: Stay) -> None:
    """Let stay what lies between two nodes of float32, and what saves Casts by it."""
    _between(stay)
    _Borders(stay).shorten()


class _Borders:
    """The Casts between what stays and what does not, one for each tensor that changes its type.

    Those at the inputs and outputs of the model are not counted: they are there either way.
    """

    def __init__(self, stay: Stay) -> None:
        self._stay = stay
        self._free = {x for x in stay.nodes if self._is_free(x)}

    def shorten(self) -> None:
        """Add what takes Casts away, some nodes at a time, beside islands of more than two.

        First where none of them adds a Cast on the way; then, where an island still has more than
        two, where one does, as the middle of a norm over what is valid.
        """
        self._widen(dips=False)
        self._widen(dips=True)

    def _widen(self, *, dips: bool) -> None:
        pending = [
            beside
            for island in self._islands()
            if self._casts(island) > _TWO
            for node in island
            for beside in self._beside(node)
            if beside in self._free
        ]
        while pending:
            node = pending.pop(0)
            if node in self._stay.reasons:
                continue
            found = self._growing(node, dips=dips)
            for one in found:
                self._stay.add(one, _WHY)
            for one in found:
                pending += [x for x in self._beside(one) if x in self._free]

    def _growing(self, start: ir.Node, *, dips: bool) -> list[ir.Node]:
        """Nodes from one on that save a Cast together; none if there are no such."""
        taken, saved = {start: None}, self._saved(start, set())
        least = 1 + dips  # a detour has to be worth it
        while saved < least and len(taken) < _STEPS:
            near = {
                x
                for node in taken
                for x in self._beside(node)
                if x in self._free and x not in taken and x not in self._stay.reasons
            }
            best = max(
                (x for x in self._stay_order(near)),
                key=lambda x: self._saved(x, set(taken)),
                default=None,
            )
            if best is None:
                return []
            gain = self._saved(best, set(taken))
            if gain < 0 and not dips:
                return []
            saved += gain
            taken[best] = None
        return [*taken] if saved >= least else []

    def _stay_order(self, nodes: set[ir.Node]) -> list[ir.Node]:
        return sorted(nodes, key=self._place.__getitem__)

    @cached_property
    def _place(self) -> dict[ir.Node, int]:
        return {node: i for i, node in enumerate(self._stay.nodes)}

    def _saved(self, node: ir.Node, others: set[ir.Node]) -> int:
        """How many Casts fewer there are if a node stays as well, beside ``others`` that do."""
        values = dict.fromkeys(
            x
            for x in (*node.inputs, *node.outputs)
            if x is not None and self._stay.types.is_float(x) and not is_constant(x)
        )
        before = sum(self._is_cast(x, others) for x in values)
        return before - sum(self._is_cast(x, {*others, node}) for x in values)

    def _is_cast(self, value: ir.Value, others: set[ir.Node]) -> bool:
        """Whether a tensor that a node makes changes its type on the way to another."""
        maker = value.producer()
        if maker is None or value.is_graph_output():
            return False
        kinds = {self._is_wide(x.node, others) for x in value.uses() if self._is_typed(x.node)}
        return bool(kinds - {self._is_wide(maker, others)})

    def _is_wide(self, node: ir.Node, others: set[ir.Node]) -> bool:
        return node in self._stay.reasons or node in others

    def _is_free(self, node: ir.Node) -> bool:
        heavy = node.op_type in _HEAVY or bodies_of(node) or has_weights(node)
        last = any(x.is_graph_output() for x in node.outputs)
        # A mask may be made float32 at once.
        mask = is_op(node, "Cast") and self._stay.types.of(node.inputs[0]) == ir.DataType.BOOL
        typed = self._is_typed(node) or mask
        return not heavy and not last and typed and self._stay.touches(node)

    def _is_typed(self, node: ir.Node) -> bool:
        """Whether it matters to a node what type it takes; a Cast of float32 to float32 is none."""
        if is_op(node, "Cast"):
            return all(map(self._stay.types.is_float, (node.inputs[0], node.outputs[0])))
        return not is_op(node, "Shape", "Size", "Constant")

    def _islands(self) -> list[list[ir.Node]]:
        """What stays, in groups that tensors of float32 connect."""
        found: list[list[ir.Node]] = []
        seen: set[ir.Node] = set()
        for node in self._stay.nodes:
            if node in seen or node not in self._stay.reasons:
                continue
            island = [node]
            seen.add(node)
            for one in island:
                new = [x for x in self._beside(one) if x in self._stay.reasons and x not in seen]
                seen.update(new)
                island += new
            found.append(island)
        return found

    def _casts(self, island: list[ir.Node]) -> int:
        """How many Casts there are around some of what stays."""
        values = dict.fromkeys(
            x
            for node in island
            for x in (*node.inputs, *node.outputs)
            if x is not None and self._stay.types.is_float(x) and not is_constant(x)
        )
        return sum(self._is_cast(x, set()) for x in values)

    def _beside(self, node: ir.Node) -> list[ir.Node]:
        """Who makes what a node takes, who takes it too, and who takes what it makes."""
        found: dict[ir.Node, None] = {}
        for value in node.inputs:
            if value is None or not self._stay.types.is_float(value) or is_constant(value):
                continue
            if (maker := value.producer()) is not None:
                found[maker] = None
                found.update(dict.fromkeys(x.node for x in value.uses()))
        for value in node.outputs:
            found.update(dict.fromkeys(x.node for x in value.uses()))
        found.pop(node, None)
        return [*found]


def _between(stay: Stay) -> None:
    """What lies between two nodes of float32 is not worth two Casts."""
    for _ in range(8):
        fore = _reached(stay)
        found = [x for x in stay.nodes if x in fore and (_joins(stay, x) or _leads_on(stay, x))]
        for node in found:
            stay.add(node, _WHY)
        if not found:
            return


def _reached(stay: Stay) -> set[ir.Node]:
    """Nodes that take nothing but what float32 nodes make, through what only lays it out."""
    found: set[ir.Node] = set()
    for node in stay.nodes:
        if node in stay.reasons or bodies_of(node) or is_op(node, "Cast", "Shape", "Size"):
            continue
        given = [x for x in node.inputs if stay.types.is_float(x) and not is_constant(x)]
        makers = [x.producer() for x in given if x is not None]
        if makers and all(
            x is not None and (x in stay.reasons or (x in found and is_op(x, *_PLAIN)))
            for x in makers
        ):
            found.add(node)
    return found


def _joins(stay: Stay, node: ir.Node) -> bool:
    """Whether one Cast behind a node stands for several before it."""
    if not is_op(node, *_PLAIN) or any(x.is_graph_output() for x in node.outputs):
        return False
    given = {x for x in node.inputs if stay.types.is_float(x) and not is_constant(x)}
    alone = all(x is not None and {use.node for use in x.uses()} == {node} for x in given)
    return len(given) > len(node.outputs) and alone


def _leads_on(stay: Stay, node: ir.Node) -> bool:
    """Whether nothing but nodes of float32 take what a node makes."""
    outputs = [x for x in node.outputs if stay.types.is_float(x)]
    if any(x.is_graph_output() for x in outputs):
        return False
    return all(
        use.node in stay.reasons or is_op(use.node, "Shape", "Size")
        for x in outputs
        for use in x.uses()
    )
