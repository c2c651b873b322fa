"""How bad it is that a pass finds something: on DirectML, and on the other providers.

A pass finds what it can repair, and does not know where the model will run. Here stands what each
finding means there: an error is what the real EP (onnxruntime-directml 1.24.4) was seen to crash
on or to compute wrongly; see the Why of the pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.directml import facts
from graphfix.model.values import const_of, is_op

from .base import PROVIDERS, Provider, is_folded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from graphfix.core import Match, Severity
    from graphfix.model.view import View

CODES: Mapping[str, tuple[str, ...]] = {
    "reshape-allowzero": ("80070057", "8007023E", "re-use buffer"),
    "convtranspose-2d": ("80070057",),
    "slice-start": ("80070057",),
    "fresh-shapes": ("80070057", "re-use buffer", "existing shape"),
    "thaw": ("8007023E", "re-use buffer"),
    "float-conv-input": ("existing type",),
}
"""The errors that what a pass finds has been seen to end in."""

_DML: tuple[Provider, ...] = ("dml",)
_ONLY_ON: Mapping[str, tuple[Provider, ...]] = {
    **dict.fromkeys(("reshape-allowzero", "convtranspose-2d", "bool-cast", "cumsum-index"), _DML),
    **dict.fromkeys(("gather-int64", "slice-start"), _DML),
    "opset-ceiling": ("dml", "cuda"),
}

# What passes on the elements of a shape tensor, one by one.
_LAYOUT = frozenset(
    {"Concat", "Cast", "Unsqueeze", "Squeeze", "Reshape", "Identity", "Slice", "Gather", "Where"}
)


_SAME_NUMBERS = frozenset(
    {"Cast", "Mul", "Expand", "Tile", "Unsqueeze", "Squeeze", "Reshape", "Transpose"}
    | {"Slice", "Gather", "Concat", "Identity", "Flatten"}
)


def providers(name: str) -> tuple[Provider, ...]:
    """Where it matters what the pass ``name`` finds, at least a little; asked for, it is told."""
    return _ONLY_ON.get(name, PROVIDERS)


def severity(name: str, site: Match, view: View, provider: Provider) -> Severity:
    """How bad a site of the pass ``name`` is on a provider."""
    if name == "float-conv-input":
        return "error"  # ONNX Runtime refuses the model, whatever the provider
    if provider != "dml":
        return "warning" if name in ("thaw", "fresh-shapes") else "note"
    judge = _JUDGES.get(name)
    return "warning" if judge is None else judge(site, view)


def _unless_folded(site: Match, _: View) -> Severity:
    return "note" if is_folded(site.node) else "error"


def _bool_cast(site: Match, view: View) -> Severity:
    """Wrong for any number but 0 and 1 and those above; a mask of 0 and 1 survives."""
    if is_folded(site.node):
        return "note"
    return "warning" if _is_mask(site.node.inputs[0], view) else "error"


def _is_mask(value: ir.Value | None, view: View) -> bool:
    """Whether a value comes from integers, bools and inputs by ``1 - x`` and layout alone.

    The caller may give a mask of other numbers than 0 and 1, but none is seen to.
    """
    pending, seen = [value], set[ir.Value]()
    while pending:
        top = pending.pop()
        if top is None or top in seen:
            continue
        seen.add(top)
        array, node, dtype = const_of(top), top.producer(), view.shapes.dtype(top)
        if array is not None:
            if not bool(((array == 0) | (array == 1)).all()):
                return False
        elif node is None or (dtype is not None and not dtype.is_floating_point()):
            continue
        elif is_op(node, "Sub"):
            one = const_of(node.inputs[0])
            if one is None or not bool((one == 1).all()):
                return False
            pending.append(node.inputs[1])
        elif is_op(node, *_SAME_NUMBERS):
            pending += [x for x in node.inputs if view.shapes.dtype(x) == dtype]
            if is_op(node, "Cast"):
                pending.append(node.inputs[0])
        else:
            return False
    return True


def _allowzero(site: Match, view: View) -> Severity:
    """Only a -1 is read wrongly, and only by DirectML's kernel: it has none from opset 23 on."""
    since = facts.since_version("Reshape", "", view.opset(site.node))
    if is_folded(site.node) or since is None or facts.kernel_for("Reshape", "", since) is None:
        return "note"
    return "error" if _may_hold_minus_one(site.node.inputs[1]) else "note"


def _stale(site: Match, _: View) -> Severity:
    """A number where the size follows the inputs ends in 80070057; another is inferred over."""
    value, inferred = getattr(site, "value", None), getattr(site, "inferred", ())
    declared = value.shape if isinstance(value, ir.Value) else None
    if declared is None or len(declared) != len(inferred):
        return "warning"
    pairs = zip(declared, inferred, strict=True)
    fails = any(isinstance(a, int) and not isinstance(b, int) for a, b in pairs)
    return "error" if fails else "warning"


def _may_hold_minus_one(value: ir.Value | None) -> bool:
    """Whether an element of a shape tensor may be -1, as far as the graph tells."""
    pending, seen = [value], set[ir.Value]()
    while pending:
        top = pending.pop()
        if top is None or top in seen:
            continue
        seen.add(top)
        array, node = const_of(top), top.producer()
        if array is not None:
            if bool((array == -1).any()):
                return True
        elif node is None:
            return True  # the caller gives it
        elif is_op(node, *_LAYOUT):
            pending += node.inputs[1:] if node.op_type == "Where" else _elements(node)
    return False


def _elements(node: ir.Node) -> list[ir.Value | None]:
    """The inputs whose elements a node passes on: not its axes, indices or ends."""
    return list(node.inputs) if node.op_type == "Concat" else [node.inputs[0]]


_JUDGES: dict[str, Callable[[Match, View], Severity]] = {
    "reshape-allowzero": _allowzero,
    "convtranspose-2d": _unless_folded,
    "slice-start": _unless_folded,
    "bool-cast": _bool_cast,
    "fresh-shapes": _stale,
}
