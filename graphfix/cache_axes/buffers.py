"""Caches that one attention continues in a buffer of one size: what is in it, a count says.

Past and present of onnxruntime-genai's models are one buffer: an input of a fixed size, or of the
size of a window. How many entries are valid follows from a mask, or is an input, so that no dim of
a cache says how far a sequence has come.
"""

from collections.abc import Iterator

import onnx_ir as ir

from graphfix.facts.symbolic.expressions import Dim, replace_symbols
from graphfix.feeds.dim_names import ENTRIES
from graphfix.feeds.graph_uses import is_only_counted
from graphfix.feeds.input import single_symbol
from graphfix.feeds.signature import Signature
from graphfix.graph.nodes import input_at
from graphfix.graph.walks import reachable_from
from graphfix.ops.attention import attention_slots, cache_window


def fix_windows(model: ir.Model) -> None:
    """Give caches that hold a window its size, which the host of the model chooses."""
    sizes: dict[str, Dim] = {}
    for node, past in _cached_attentions(model):
        window, name = cache_window(node), single_symbol((past.shape or (0,) * 3)[2])
        if window is not None and name is not None:
            sizes[name] = max(window, _as_number(sizes.get(name)))
    if sizes:
        for value in (*model.graph.inputs, *model.graph.outputs):
            if value.shape is not None:
                value.shape = ir.Shape([replace_symbols(x, sizes) for x in value.shape])


def _as_number(size: Dim | None) -> int:
    return size if isinstance(size, int) else 0


def count_of_entries(signature: Signature) -> dict[str, Dim]:
    """Return the length of a mask that is only counted, as a sum of entries and new tokens.

    By the symbol of its dim; {} where dims of caches say how many entries there are.
    """
    model, fresh = signature.model, [x for x in signature.fresh if x not in signature.derived]
    counts = [x for node, _ in _fixed_attentions(model) if (x := _count_of(node)) is not None]
    if signature.past or not counts:
        return {}
    counted = {*reachable_from(counts, _values_above)}
    totals = {
        name: value
        for value in model.graph.inputs
        if value in counted and value.shape is not None and is_only_counted(value)
        if (name := single_symbol(value.shape[-1])) is not None
    }
    new = _dim_of_tokens(signature, fresh)
    if new is None or signature.symbol_of(ENTRIES) is not None:
        return {}
    return dict.fromkeys(totals, ir.SymbolicDim(ENTRIES) + ir.SymbolicDim(new))


def _dim_of_tokens(signature: Signature, fresh: list[str]) -> str | None:
    """Return the dim that the tokens have, or the data that is fed instead of them."""
    for kinds in (("tokens",), ("data",)):
        for item in signature.inputs:
            name = single_symbol(item.dims[item.time]) if item.time is not None else None
            if item.role.kind in kinds and name is not None and signature.group_of(name) in fresh:
                return signature.group_of(name)
    return None


def lengths_in_sums(signature: Signature) -> tuple[str, ...]:
    """Return the symbols that only sums have: no dim of an input is one by itself."""
    alone = {single_symbol(x) for item in signature.inputs for x in item.dims}
    return tuple(x for x in signature.symbols() if x not in alone)


def buffer_size(model: ir.Model) -> int | None:
    """Return how many entries the buffers of a model hold; None if it has none without a window."""
    pasts = [past for node, past in _fixed_attentions(model) if cache_window(node) is None]
    return min((_as_number(x.shape[2]) for x in pasts if x.shape is not None), default=None)


def _fixed_attentions(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Value]]:
    """Yield the attentions whose past has a fixed size, with it."""
    for node, past in _cached_attentions(model):
        if past.shape is not None and isinstance(past.shape[2], int):
            yield node, past


def _cached_attentions(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Value]]:
    """Yield the attentions whose past keys are an input [B, heads, P, D], with them."""
    for node in model.graph:
        slots = attention_slots(node)
        past = None if slots is None or slots.past_key is None else input_at(node, slots.past_key)
        if past is not None and past.is_graph_input() and len(past.shape or ()) == 4:
            yield node, past


def _count_of(node: ir.Node) -> ir.Value | None:
    slots = attention_slots(node)
    return None if slots is None or slots.mask is None else input_at(node, slots.mask)


def _values_above(value: ir.Value) -> list[ir.Value]:
    node = value.producer()
    return [] if node is None else [x for x in node.inputs if x is not None]
