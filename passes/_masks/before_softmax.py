"""Which tensors may reach a Softmax: found once for all who ask, from the Softmaxes backwards."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import onnx_ir as ir

from graphfix.model.view import View

from .where_masks import LEADS_ON

_FOUND: WeakKeyDictionary[View, frozenset[ir.Value]] = WeakKeyDictionary()


def may_reach_softmax(value: ir.Value, view: View) -> bool:
    """Whether :func:`reach_of` may find a Softmax behind ``value``; if not, it finds none.

    A model has a thousand sums with a bias; whether one of them is a mask is in a file beside it,
    and nearly none leads to a Softmax before a MatMul ends the way.
    """
    if (found := _FOUND.get(view)) is None:
        found = _FOUND[view] = _before(view)
    return value in found


def _before(view: View) -> frozenset[ir.Value]:
    pending = [x for node in view.nodes("Softmax") for x in node.inputs if x is not None]
    found = set(pending)
    while pending:
        node = pending.pop().producer()
        for value in node.inputs if node is not None and node.op_type in LEADS_ON else ():
            if value is not None and value not in found:
                found.add(value)
                pending.append(value)
    return frozenset(found)
