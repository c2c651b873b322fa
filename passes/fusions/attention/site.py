"""An attention: what the graph around two matrix products computes, if it is one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Match, Skip
from graphfix.facts.shapes import all_same, same
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op
from graphfix.graph.text import path_of
from graphfix.graph.walks import reached

from ...common.fusible import FLOATS
from .axis_layout import Atom, Layout, after, size_of
from .bit_tensors import Bit
from .hiding_addend import KeyMask, is_nothing, kept_by, key_mask_of
from .merged_heads import Fit, Groups, Undone, best, first_head, fits_of, undone
from .mha_inputs import Sizes, Term, cost_of_bias, term_of
from .operand_path import TracedTensor, heads_in, places_after, places_before
from .product import Product, not_a_product, product_of
from .scores import Scores, Weights, read_elsewhere, scores_of, weights_of


@dataclass(frozen=True)
class Attention(Match):
    """An attention that MultiHeadAttention computes.

    Attributes:
        product: The product of weights and values: what is made goes before it, so that what many
            attentions share stands before them all.
        operands: Queries, keys and values.
        out: The tensor that the operator's output takes the place of.
        scale: What the products of queries and keys are multiplied by.
        sizes: The sizes; the heads are those of keys and values.
        groups: The heads of queries that share one of those.
        keys: The mask of keys, if there is one.
        terms: What else is added to the scores.
        scored: The product of queries and keys.
    """

    product: ir.Node
    operands: tuple[Fit, Fit, Fit]
    out: Undone
    scale: float
    sizes: Sizes
    groups: Groups
    keys: KeyMask | None
    terms: tuple[Term, ...]
    scored: ir.Node


def measures_of(product: ir.Node, view: View) -> list[ir.Node]:
    """The Shapes that read the size of scores, which its operands tell as well."""
    dims = [view.shapes.dims(x) for x in (*product.inputs, product.outputs[0])]
    if not is_op(product, "MatMul") or not dims[0] or not dims[2] or len(dims[1] or ()) < 2:
        return []
    if not all_same(dims[0][:-1], dims[2][:-1]):
        return []
    users = [use.node for use in product.outputs[0].uses()]
    return [x for x in users if is_op(x, "Shape") and not x.attributes]


def attention_at(node: ir.Node, view: View) -> Attention | Skip | None:
    """The attention whose second product is ``node``; None if that has no Softmax."""
    weights = weights_of(node, view)
    if weights is None or isinstance(weights, Skip):
        return weights
    if view.in_function(node):
        return Skip(node, "its sizes depend on the calls of the local function it is in")
    context = product_of(node, view, queries=weights.input, inner="key")
    scores = scores_of(node, weights.softmax, view)
    if scores is None or isinstance(scores, Skip):
        return scores
    if context is None:
        return Skip(node, not_a_product(node, view))
    dtype = view.shapes.dtype(scores.product.left.value)
    if dtype not in FLOATS:
        has_not = dtype.name if dtype else "its type"
        return Skip(node, f"MultiHeadAttention has no kernel for {has_not}")
    inner = (scores.product.node, *scores.path, weights.softmax, *weights.path)
    elsewhere = read_elsewhere(inner, measures_of(scores.product.node, view))
    if elsewhere is not None:
        return Skip(node, elsewhere)
    kept = _unchanged(weights, scores, context, view)
    if isinstance(kept, str):
        return Skip(node, kept)
    found = _arranged(node, scores, context, kept, view)
    return Skip(node, found) if isinstance(found, str) else found


def _unchanged(weights: Weights, scores: Scores, context: Product, view: View) -> list[Bit] | str:
    """What decides about what the weights are multiplied by; or how they are not the Softmax's."""
    layout: Layout | None = scores.layout
    bits: list[Bit] = []
    for node in weights.path:
        if layout is None:
            break
        if not is_op(node, "Mul"):
            layout = after(node, layout, view)
            continue
        for keep in weights.keeps:
            if keep not in node.inputs:
                continue
            bit = kept_by(keep, layout.axes, scores.addends, view)
            if bit is None:
                return (
                    f"its weights are multiplied at {path_of(node)!r} by {keep.name}, which is not "
                    "seen to be 0 only where a mask hides a key"
                )
            bits.append(bit)
    wanted = context.left.layout
    found = None if layout is None else [_roles(x) for x in layout.axes]
    if layout is None or not layout.in_order or found != [_roles(x) for x in wanted.axes]:
        return f"how its weights are arranged for {path_of(context.node)!r} is not seen"
    return bits


def _roles(axis: Sequence[Atom]) -> set[str]:
    return {atom.role for atom in axis}


def _arranged(
    node: ir.Node, scores: Scores, context: Product, kept: Sequence[Bit], view: View
) -> Attention | str:
    """The attention with the number of heads for which all its tensors can be had."""
    product = scores.product
    sources = ((product.left, product.node), (product.right, product.node), (context.right, node))
    operands = [places_before(x.value, x.layout, maker, view) for x, maker in sources]
    operands[2] = [place for place in operands[2] if place.factor == 1]
    after_ = places_after(context.result.value, context.result.layout, view)
    reason = "its queries, keys, values and result are not of one type"
    # Where all of it is computed in float, the type that it has before and after is tried first.
    types = dict.fromkeys(view.shapes.dtype(x.value) for x in reversed(after_))
    ways = ([_of_type(x, dtype, view) for x in (*operands, after_)] for dtype in types)
    for queries, keys, values, results in filter(all, ways):
        reason = "its queries, keys, values and result are not seen as [B, T, H * D] of equal heads"
        for heads in _heads([queries, keys, values, results]):
            outs = (undone(fit, view) for fit in fits_of(results, heads, view))
            out, query = best(x for x in outs if x is not None), best(fits_of(queries, heads, view))
            if query is None or out is None:
                continue
            for key, value in _keys_and_values(keys, values, heads, view):
                made = _made(node, (query, key, value), out, heads, scores, kept, view)
                if isinstance(made, Attention):
                    return made
                reason = made
    return reason


def _of_type(
    places: Sequence[TracedTensor], dtype: ir.DataType | None, view: View
) -> list[TracedTensor]:
    """Those of one type, which has all that an operator takes: also the tables of a rotation."""
    taken = ((x, (x.value, *(x.rotation.tables if x.rotation else ()))) for x in places)
    return [x for x, values in taken if all(view.shapes.dtype(y) == dtype for y in values)]


def _keys_and_values(
    keys: Sequence[TracedTensor], values: Sequence[TracedTensor], heads: int, view: View
) -> Iterator[tuple[Fit, Fit]]:
    """Both: with those of earlier runs apart, heads in groups first; then joined."""
    for apart, grouped in ((True, True), (True, False), (False, False)):
        fits = [fits_of(x, heads, view, grouped=grouped) for x in (keys, values)]
        key, value = (best(x for x in y if (x.place.past is not None) == apart) for y in fits)
        # A cache of another width for the values is what ONNX Runtime refuses.
        if key is None or value is None or (apart and not same(key.dims[2], value.dims[2])):
            continue
        yield key, value


def _groups_of(query: Fit, key: Fit, heads: int) -> Groups | None:
    """How many heads of queries share one of keys; None if they cannot be laid out for that."""
    if key.place.past is None or not isinstance(kv := key.place.past.heads, int) or kv == heads:
        return Groups(heads)
    width = query.dims[2]
    if query.place.rotation is not None or not isinstance(width, int):
        return None
    return Groups(kv, heads // kv, width // heads)


def _heads(places: Sequence[Sequence[TracedTensor]]) -> Iterator[int]:
    """Numbers of heads to try: those seen in a tensor, that of the batch's last axis, 1."""
    seen = [heads_in(place) for each in places for place in reversed(each)]
    batch = places[0][0].layout.batch
    last = batch[-1].size if batch else 1
    guess = last if isinstance(last, int) and len(batch) > 1 else 1
    yield from dict.fromkeys([*(x for x in seen if x is not None), guess, 1])


def _made(
    node: ir.Node,
    operands: tuple[Fit, Fit, Fit],
    out: Undone,
    heads: int,
    scores: Scores,
    kept: Sequence[Bit],
    view: View,
) -> Attention | str:
    query, key, value = operands
    reason = _as_many(key, value, node, scores, view)
    if reason is not None:
        return reason
    site = out.value.producer()
    if site is None:
        return "its result is made by no node"
    pasts = [x.place.past for x in (key, value) if x.place.past is not None]
    others = [x for past in pasts for x in past.others]
    if any(x.graph is not node.graph for x in others) or site in reached(
        others, ir.Node.successors
    ):
        return "what its keys are joined from is read by what it takes as well"
    total = size_of(scores.layout.axes[-1]) if key.place.past is not None else key.dims[1]
    groups = _groups_of(query, key, heads)
    if groups is None:
        return "its heads of queries that share one of keys cannot be laid out as more queries"
    sizes = Sizes(query.dims[0], groups.heads, query.dims[1], total, key.dims[2])
    start = first_head(scores.layout.batch, heads)
    split = 0 if start is None else start
    batch, own = scores.layout.batch[:split], scores.layout.batch[split:]
    mask, terms = None, list[Term]()
    addends = [addend for addend in scores.addends if not is_nothing(addend, view)]
    # Beside a bias DirectML does not add the mask of keys (run on the real provider); with a past
    # it is [B, P + T] on the CPU and [B, T] on DirectML.
    alone = len(addends) == 1 and key.place.past is None
    for addend in addends:
        found = key_mask_of(addend, view) if alone else None
        if found is not None and is_of_keys(found, batch, sizes):
            mask = found
            continue
        term = term_of(addend, batch, own, sizes, view)
        if term is None:
            return f"the addend {addend.value.name} does not lie as [B, H, S, T]"
        if groups.each > 1 and term.dims[1] != 1:
            return f"the addend {addend.value.name} is another for each head"
        terms.append(term)
    if any(view.shapes.dtype(x.value) != view.shapes.dtype(out.value) for x in terms):
        return "what is added to its scores is of another type than what it makes"
    ways: tuple[Fit | Undone, ...] = (*operands, out)
    # Two products and a Softmax become one kernel.
    saved = sum(way.freed - way.cost for way in ways) + len(scores.path) + 2 - groups.cost
    # What other attentions add as well is paid by all.
    shared = min((len(x.value.uses()) for x in scores.addends), default=1)
    if saved * max(shared, 1) < cost_of_bias(terms, sizes):
        return "to lay out what it takes, makes and adds takes more kernels than it saves"
    factor = scores.factor * query.place.factor * key.place.factor
    bits, empty = [*kept, *([] if mask is None else [mask.bit])], ""
    if groups.each > 1 and not view.shapes.never_empty(sizes.batch):
        empty = f"takes it that {sizes.batch} is not 0"
    return Attention(
        site,
        node,
        operands,
        out,
        factor,
        sizes,
        groups,
        mask,
        tuple(terms),
        scores.product.node,
        note=" and ".join(filter(None, (note_of(bits), empty))),
    )


def _as_many(key: Fit, value: Fit, node: ir.Node, scores: Scores, view: View) -> str | None:
    """Why there may be more keys than values; None if there are not."""
    # A MatMul of the weights and the values runs only if they are as many, all of them.
    demanded = is_op(node, "MatMul") and not scores.open
    pairs = [(key.dims[1], value.dims[1])]
    before = [x.place.past.value for x in (key, value) if x.place.past is not None]
    if demanded and not before:
        return None
    if not demanded and before:
        lengths = [x[2] for x in map(view.shapes.dims, before) if x is not None]
        pairs.append((lengths[0], lengths[-1]))
    for a, b in pairs:
        if not same(a, b):
            return f"{a} keys and {b} values: not proved to be as many"
    return None


def is_of_keys(mask: KeyMask, batch: Sequence[Atom], sizes: Sizes) -> bool:
    """Whether a mask is the same for all heads, and for all or none of the batch."""
    mine = mask.bit.flat[:-1]
    if not mine or list(mine) == list(batch):
        return True
    # Of a batch that was merged with the heads: told apart by its size.
    parted = not batch and len(mine) == 1 and not isinstance(sizes.batch, int)
    return parted and same(mine[0].size, sizes.batch)


def note_of(bits: Sequence[Bit]) -> str:
    """What an attention rests on whose masks are these: inputs that hold only 0 and 1."""
    names = sorted({str(x.name) for bit in bits for x in bit.given})
    return f"{' and '.join(names)} {'hold' if len(names) > 1 else 'holds'} only 0 and 1" * bool(
        names
    )
