"""Which tensors may reach a Softmax: found once for all who ask, from the Softmaxes backwards."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import onnx_ir as ir

from graphfix.model.view import View
from graphfix.model.walks import inputs_of, reached

from .where_masks import LEADS_ON

_FOUND: WeakKeyDictionary[View, frozenset[ir.Value]] = WeakKeyDictionary()


def may_reach_softmax(value: ir.Value, view: View) -> bool:
    """Whether :func:`reach_of` may find a Softmax behind ``value``; if not, it finds none.

    A model has a thousand sums with a bias; whether one of them is a mask is in a file beside it,
    and nearly none leads to a Softmax before a MatMul ends the way.
    """
    if (found := _FOUND.get(view)) is None:
        scores = (x for node in view.nodes("Softmax") for x in node.inputs)
        before = reached(scores, lambda x: inputs_of(x.producer(), LEADS_ON))
        found = _FOUND[view] = frozenset(before)
    return value in found
