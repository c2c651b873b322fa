"""Recognition of an attention in the graph around two matrix products."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Match, Skip
from graphfix.facts.shapes import same_dim, same_dims
from graphfix.facts.view import View
from graphfix.graph.nodes import is_op
from graphfix.graph.text import node_label
from graphfix.graph.walks import reachable_from

from ...common.fusible import FLOATS
from .axis_layout import Atom, Layout, layout_after, size_of
from .bit_tensors import BitTensor
from .hiding_addend import KeyMask, find_hiding_bit, is_always_zero, key_mask_of
from .merged_heads import (
    HeadGroups,
    MergePlan,
    SplitPlan,
    cheapest_plan,
    heads_start,
    invert_plan,
    merge_plans,
)
from .mha_inputs import AttentionSizes, BiasTerm, bias_term_of, cost_of_bias
from .operand_path import Past, TracedTensor, heads_in, trace_back, trace_forward
from .product import Product, product_of, why_not_product
from .scores import Scores, Weights, scores_of, weights_of, why_read_elsewhere


@dataclass(frozen=True)
class Attention(Match):
    """An attention that MultiHeadAttention computes.

    Attributes:
        product: The product of weights and values; new nodes go before it, so that what
            attentions share precedes them all.
        operands: Queries, keys and values.
        result: The tensor that the operator's output replaces.
        scale: What the products of queries and keys are multiplied by.
        sizes: The sizes; heads are those of keys and values.
        groups: The query heads that share a key head.
        key_mask: The mask of keys, if there is one.
        bias_terms: The other addends of the scores.
        scores_node: The product of queries and keys.
    """

    product: ir.Node
    operands: tuple[MergePlan, MergePlan, MergePlan]
    result: SplitPlan
    scale: float
    sizes: AttentionSizes
    groups: HeadGroups
    key_mask: KeyMask | None
    bias_terms: tuple[BiasTerm, ...]
    scores_node: ir.Node


def shape_readers_of(product: ir.Node, view: View) -> list[ir.Node]:
    """Return the Shapes of a product whose sizes its operands give as well."""
    dims = [view.shapes.dims(x) for x in (*product.inputs, product.outputs[0])]
    if not is_op(product, "MatMul") or not dims[0] or not dims[2] or len(dims[1] or ()) < 2:
        return []
    if not same_dims(dims[0][:-1], dims[2][:-1]):
        return []
    users = [use.node for use in product.outputs[0].uses()]
    return [x for x in users if is_op(x, "Shape") and not x.attributes]


def attention_at(node: ir.Node, view: View) -> Attention | Skip | None:
    """Return the attention whose second product is ``node``, a Skip, or None without Softmax."""
    weights = weights_of(node, view)
    if weights is None or isinstance(weights, Skip):
        return weights
    if view.in_function(node):
        return Skip(node, "its sizes depend on the calls of the local function it is in")
    context = product_of(node, view, query_operand=weights.operand, inner_role="key")
    scores = scores_of(node, weights.softmax, view)
    if scores is None or isinstance(scores, Skip):
        return scores
    if context is None:
        return Skip(node, why_not_product(node, view))
    dtype = view.shapes.dtype(scores.product.left.value)
    if dtype not in FLOATS:
        type_name = dtype.name if dtype else "its type"
        return Skip(node, f"MultiHeadAttention has no kernel for {type_name}")
    inner = (scores.product.node, *scores.path, weights.softmax, *weights.path)
    reason = why_read_elsewhere(inner, shape_readers_of(scores.product.node, view))
    if reason is not None:
        return Skip(node, reason)
    weight_bits = _weight_bits(weights, scores, context, view)
    if isinstance(weight_bits, str):
        return Skip(node, weight_bits)
    attention = _find_arrangement(node, scores, context, weight_bits, view)
    return Skip(node, attention) if isinstance(attention, str) else attention


def _weight_bits(
    weights: Weights, scores: Scores, context: Product, view: View
) -> list[BitTensor] | str:
    """Return the bits that mask the weights, or why they are not those of the Softmax."""
    layout: Layout | None = scores.layout
    bits: list[BitTensor] = []
    for node in weights.path:
        if layout is None:
            break
        if not is_op(node, "Mul"):
            layout = layout_after(node, layout, view)
            continue
        for keep_mask in weights.keep_masks:
            if keep_mask not in node.inputs:
                continue
            bit = find_hiding_bit(keep_mask, layout.axes, scores.addends, view)
            if bit is None:
                return (
                    f"its weights are multiplied at {node_label(node)!r} by "
                    f"{keep_mask.name}, which is not "
                    "seen to be 0 only where a mask hides a key"
                )
            bits.append(bit)
    operand_layout = context.left.layout
    roles = None if layout is None else [_roles_of(x) for x in layout.axes]
    if (
        layout is None
        or not layout.keeps_operand_order
        or roles != [_roles_of(x) for x in operand_layout.axes]
    ):
        return f"how its weights are arranged for {node_label(context.node)!r} is not seen"
    return bits


def _roles_of(axis: Sequence[Atom]) -> set[str]:
    """Return the roles of the atoms of an axis."""
    return {atom.role for atom in axis}


def _find_arrangement(
    node: ir.Node, scores: Scores, context: Product, weight_bits: Sequence[BitTensor], view: View
) -> Attention | str:
    """Return the attention for the head count at which all tensors fit, or why none does."""
    product = scores.product
    sources = ((product.left, product.node), (product.right, product.node), (context.right, node))
    operands = [trace_back(x.value, x.layout, reader, view) for x, reader in sources]
    operands[2] = [tensor for tensor in operands[2] if tensor.factor == 1]
    outputs = trace_forward(context.result.value, context.result.layout, view)
    reason = "its queries, keys, values and result are not of one type"
    # Between Casts to float and back, the type outside of them is tried first.
    types = dict.fromkeys(view.shapes.dtype(x.value) for x in reversed(outputs))
    typed_tensors = (
        [_tensors_of_type(x, dtype, view) for x in (*operands, outputs)] for dtype in types
    )
    for queries, keys, values, results in filter(all, typed_tensors):
        reason = "its queries, keys, values and result are not seen as [B, T, H * D] of equal heads"
        for arrangement in _arrangements(queries, keys, values, results, view):
            attention = _build_attention(node, arrangement, scores, weight_bits, view)
            if isinstance(attention, Attention):
                return attention
            reason = attention
    return reason


@dataclass(frozen=True)
class _Arrangement:
    """How the tensors of an attention become [B, T, H * D], and its result is made from that.

    Attributes:
        query: The plan of the queries.
        key: The plan of the keys.
        value: The plan of the values.
        result: The plan of the result.
        heads: The number of heads of the queries.
    """

    query: MergePlan
    key: MergePlan
    value: MergePlan
    result: SplitPlan
    heads: int

    @property
    def pasts(self) -> list[Past]:
        """Return the pasts of keys and values, if they have any."""
        return [x.tensor.past for x in (self.key, self.value) if x.tensor.past is not None]

    @property
    def saved_kernels(self) -> int:
        """Return how many kernels fewer it takes to lay out the tensors; negative if more."""
        plans: tuple[MergePlan | SplitPlan, ...] = (self.query, self.key, self.value, self.result)
        return sum(plan.saved_kernels - plan.cost for plan in plans)


def _arrangements(
    queries: Sequence[TracedTensor],
    keys: Sequence[TracedTensor],
    values: Sequence[TracedTensor],
    results: Sequence[TracedTensor],
    view: View,
) -> Iterator[_Arrangement]:
    """Yield the cheapest arrangements for each head count at which all tensors fit."""
    for heads in _candidate_heads([queries, keys, values, results]):
        split_plans = (invert_plan(plan, view) for plan in merge_plans(results, heads, view))
        result = cheapest_plan(x for x in split_plans if x is not None)
        query = cheapest_plan(merge_plans(queries, heads, view))
        if query is None or result is None:
            continue
        for key, value in _key_value_plans(keys, values, heads, view):
            yield _Arrangement(query, key, value, result, heads)


def _tensors_of_type(
    tensors: Sequence[TracedTensor], dtype: ir.DataType | None, view: View
) -> list[TracedTensor]:
    """Return the tensors of one type, including the tables of their rotations."""
    with_tables = ((x, (x.value, *(x.rotation.tables if x.rotation else ()))) for x in tensors)
    return [x for x, values in with_tables if all(view.shapes.dtype(y) == dtype for y in values)]


def _key_value_plans(
    keys: Sequence[TracedTensor], values: Sequence[TracedTensor], heads: int, view: View
) -> Iterator[tuple[MergePlan, MergePlan]]:
    """Yield plans for keys and values: with past first, grouped heads first."""
    for with_past, grouped in ((True, True), (True, False), (False, False)):
        plans = [merge_plans(x, heads, view, grouped=grouped) for x in (keys, values)]
        key, value = (
            cheapest_plan(x for x in y if (x.tensor.past is not None) == with_past) for y in plans
        )
        # ONNX Runtime refuses a cache of values of another width than that of the keys.
        if key is None or value is None or (with_past and not same_dim(key.dims[2], value.dims[2])):
            continue
        yield key, value


def _head_groups_of(arrangement: _Arrangement) -> HeadGroups | None:
    """Return how many query heads share a key head, or None if they cannot be grouped."""
    past, query, heads = arrangement.key.tensor.past, arrangement.query, arrangement.heads
    key_heads = heads if past is None else past.heads
    if not isinstance(key_heads, int) or key_heads == heads:
        return HeadGroups(heads)
    width = query.dims[2]
    if query.tensor.rotation is not None or not isinstance(width, int):
        return None
    return HeadGroups(key_heads, heads // key_heads, width // heads)


def _candidate_heads(tensors: Sequence[Sequence[TracedTensor]]) -> Iterator[int]:
    """Yield head counts to try: those seen in a tensor, the last batch axis, 1."""
    counts = [heads_in(tensor) for group in tensors for tensor in reversed(group)]
    batch = tensors[0][0].layout.batch_atoms
    last = batch[-1].size if len(batch) > 1 else 1
    guess = last if isinstance(last, int) else 1
    yield from dict.fromkeys([*(x for x in counts if x is not None), guess, 1])


def _build_attention(
    node: ir.Node,
    arrangement: _Arrangement,
    scores: Scores,
    weight_bits: Sequence[BitTensor],
    view: View,
) -> Attention | str:
    """Return the attention with this arrangement, or why it is none."""
    query, key, value = arrangement.query, arrangement.key, arrangement.value
    site = arrangement.result.value.producer()
    reason = _key_count_mismatch(arrangement, node, scores, view)
    if reason is not None:
        return reason
    if site is None:
        return "its result is made by no node"
    if _pasts_depend_on(site, arrangement):
        return "what its keys are joined from is read by what it takes as well"
    groups = _head_groups_of(arrangement)
    if groups is None:
        return "its heads of queries that share one of keys cannot be laid out as more queries"
    key_count = size_of(scores.layout.axes[-1]) if key.tensor.past is not None else key.dims[1]
    sizes = AttentionSizes(query.dims[0], groups.heads, query.dims[1], key_count, key.dims[2])
    masking = _masking_of(scores, arrangement, groups, sizes, view)
    if isinstance(masking, str):
        return masking
    key_mask, terms = masking
    result_type = view.shapes.dtype(arrangement.result.value)
    if any(view.shapes.dtype(x.value) != result_type for x in terms):
        return "what is added to its scores is of another type than what it makes"
    # Two products and a Softmax become one kernel.
    saved = arrangement.saved_kernels + len(scores.path) + 2 - groups.cost
    # A bias that other attentions add too is laid out once for all of them.
    shared = min((len(x.value.uses()) for x in scores.addends), default=1)
    if saved * max(shared, 1) < cost_of_bias(terms, sizes):
        return "to lay out what it takes, makes and adds takes more kernels than it saves"
    bits = [*weight_bits, *([] if key_mask is None else [key_mask.bit])]
    return Attention(
        site,
        node,
        (query, key, value),
        arrangement.result,
        scores.factor * query.tensor.factor * key.tensor.factor,
        sizes,
        groups,
        key_mask,
        terms,
        scores.product.node,
        note=_assumptions(bits, groups, sizes, view),
    )


def _pasts_depend_on(site: ir.Node, arrangement: _Arrangement) -> bool:
    """Return whether another reader of keys with their past lies before the site."""
    readers = [x for past in arrangement.pasts for x in past.other_readers]
    if any(x.graph is not site.graph for x in readers):
        return True
    return site in reachable_from(readers, ir.Node.successors)


def _masking_of(
    scores: Scores,
    arrangement: _Arrangement,
    groups: HeadGroups,
    sizes: AttentionSizes,
    view: View,
) -> tuple[KeyMask | None, tuple[BiasTerm, ...]] | str:
    """Return the key mask and the bias terms that the addends become, or why one cannot."""
    batch_atoms = scores.layout.batch_atoms
    start = heads_start(batch_atoms, arrangement.heads) or 0
    batch, head_atoms = batch_atoms[:start], batch_atoms[start:]
    addends = [addend for addend in scores.addends if not is_always_zero(addend, view)]
    # Beside a bias DirectML does not add the mask of keys (run on the real provider); with a past
    # it is [B, P + T] on the CPU and [B, T] on DirectML.
    if len(addends) == 1 and arrangement.key.tensor.past is None:
        key_mask = key_mask_of(addends[0], view)
        if key_mask is not None and is_same_for_heads(key_mask, batch, sizes):
            return key_mask, ()
    terms: list[BiasTerm] = []
    for addend in addends:
        term = bias_term_of(addend, batch, head_atoms, sizes, view)
        if term is None:
            return f"the addend {addend.value.name} does not lie as [B, H, S, T]"
        if groups.group_size > 1 and term.dims[1] != 1:
            return f"the addend {addend.value.name} is another for each head"
        terms.append(term)
    return None, tuple(terms)


def _assumptions(
    bits: Sequence[BitTensor], groups: HeadGroups, sizes: AttentionSizes, view: View
) -> str:
    """Return the note on what inputs must hold, and which size may not be 0; "" for nothing."""
    notes = [binary_note(bits)]
    if groups.group_size > 1 and not view.shapes.is_never_empty(sizes.batch):
        notes.append(f"takes it that {sizes.batch} is not 0")
    return " and ".join(filter(None, notes))


def _key_count_mismatch(
    arrangement: _Arrangement, node: ir.Node, scores: Scores, view: View
) -> str | None:
    """Return why there may be more keys than values, or None if there are not."""
    # A MatMul of weights and values fails at run time unless there are as many keys as values.
    is_enforced = is_op(node, "MatMul") and not scores.may_add_keys
    pairs = [(arrangement.key.dims[1], arrangement.value.dims[1])]
    pasts = arrangement.pasts
    if is_enforced and not pasts:
        return None
    if not is_enforced and pasts:
        lengths = [x[2] for past in pasts if (x := view.shapes.dims(past.value)) is not None]
        pairs.append((lengths[0], lengths[-1]))
    for a, b in pairs:
        if not same_dim(a, b):
            return f"{a} keys and {b} values: not proved to be as many"
    return None


def is_same_for_heads(mask: KeyMask, batch: Sequence[Atom], sizes: AttentionSizes) -> bool:
    """Return whether a mask is the same for all heads, and for all or none of the batch."""
    own_atoms = mask.bit.flat_atoms[:-1]
    if not own_atoms or list(own_atoms) == list(batch):
        return True
    # A batch that was merged with the heads is recognised by its size.
    is_split = not batch and len(own_atoms) == 1 and not isinstance(sizes.batch, int)
    return is_split and same_dim(own_atoms[0].size, sizes.batch)


def binary_note(bits: Sequence[BitTensor]) -> str:
    """Return the note that the inputs behind these masks must hold only 0 and 1."""
    names = sorted({str(x.name) for bit in bits for x in bit.binary_inputs})
    if not names:
        return ""
    return f"{' and '.join(names)} {'hold' if len(names) > 1 else 'holds'} only 0 and 1"
