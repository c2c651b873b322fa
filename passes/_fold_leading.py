"""Leading dims of 1 that broadcasting gives a tensor anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphfix.model.broadcast import is_broadcast
from graphfix.model.values import is_op

from ._fold_look import VIEWS, Found

if TYPE_CHECKING:
    import onnx_ir as ir

    from ._fold_look import Look


class Leading:
    """Takes from what is broadcast the dims of 1 that were put in front of it, in one walk.

    A mask has thousands of users, of which each would ask all others.
    """

    def __init__(self) -> None:
        self._spared: dict[ir.Value, bool] = {}

    def __call__(self, node: ir.Node, look: Look) -> Found | None:
        """``x + Unsqueeze(row, 0)``, where x has as many dims as the sum: the row does as well.

        An Unsqueeze that something else needs stays, and then nothing is won.
        """
        if not is_broadcast(node, look.view.opset(node)):
            return None
        given = [self._stripped(x, look) for x in node.inputs]
        if all(x is None for x in given):
            return None
        inputs = [old if new is None else new for old, new in zip(node.inputs, given, strict=True)]
        return Found(
            "the dims of 1 in front come by themselves", lambda op: [op.again(node, *inputs)]
        )

    def _stripped(self, value: ir.Value | None, look: Look) -> ir.Value | None:
        """What an input is without the dims of 1 in front that were put there for it."""
        maker = value.producer() if value is not None else None
        if value is None or not is_op(maker, *VIEWS) or value.is_graph_output():
            return None
        source = maker.inputs[0]
        before, after = look.dims(source), look.dims(value)
        if before is None or after is None or len(before) >= len(after) or len(after) < 2:
            return None  # one dim is that of a size, of which all are planned at once
        if after != (1,) * (len(after) - len(before)) + before:
            return None
        if value not in self._spared:
            uses = value.uses()
            self._spared[value] = all(_keeps_rank(x.node, x.idx, len(after), look) for x in uses)
        return source if self._spared[value] else None


def _keeps_rank(node: ir.Node, index: int, rank: int, look: Look) -> bool:
    """Whether another input of ``node`` has as many dims, and is none that loses them as well."""
    if not is_broadcast(node, look.view.opset(node)):
        return False
    others = [x for i, x in enumerate(node.inputs) if i != index and x is not node.inputs[index]]
    ranks = (look.view.shapes.rank(x) for x in others if x is not None and not _is_view(x))
    return any(x is not None and x >= rank for x in ranks)


def _is_view(value: ir.Value) -> bool:
    return is_op(value.producer(), *VIEWS)
