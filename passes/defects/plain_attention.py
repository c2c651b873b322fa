"""plain-attention: the manual is the docstring of the class."""

import math
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import PASS_KEY, Builder
from graphfix.facts.shapes import Shapes
from graphfix.facts.view import View
from graphfix.graph.dims import contradicts_shape
from graphfix.graph.nodes import attr_float, attr_int, input_at
from graphfix.lengths.dim_nodes import build_axis_size
from graphfix.ops.attention import attention_slots, cache_window
from graphfix.ops.op_set import qualified_name

from ..common.fusible import FLOATS
from ..common.reductions import build_reduction
from ._attention_parts import (
    build_scores,
    causal_addend,
    join_heads,
    repeat_heads,
    softmax_beside_sink,
    split_heads,
)

# Trilu.
_LEAST_OPSET = 14
_SCALAR = np.array([], np.int64)


@dataclass(frozen=True)
class PlainAttention(NodePass[Match]):
    """Writes an attention with a cache, of com.microsoft, as the operators that it consists of.

    GroupQueryAttention, MultiHeadAttention and Attention become Concats of their caches, products,
    a causal mask and a Softmax, and the rotary embedding becomes RotaryEmbedding. Where past and
    present of a GroupQueryAttention are declared as one buffer of a fixed size, new entries are
    written into their place; where they hold a window alone (`sliding_window_cache`), what falls
    out of it is dropped.

    Why:
        DirectML loses the past of a GroupQueryAttention unless past and present are one buffer (see
        `lost-past`; run on onnxruntime-directml 1.24.4, off by up to 1.3e4). And what is in one
        node cannot be hidden from it: static-cache gives caches one size, and hides entries that
        are not valid, in plain operators alone. `graphfix ship` runs this pass before it, and fuses
        the attention again: a step of a Llama as onnxruntime-genai's builder writes it is 1 kernel,
        and none is compiled, where it was 27, of which 26 are compiled at each token (predicted).

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17, "com.microsoft" : 1]
        >
        step (float[B, S, 8] q, float[B, S, 8] k, float[B, S, 8] v, float[B, 2, P, 4] pk,
              float[B, 2, P, 4] pv) =>
             (float[B, S, 8] y, float[B, 2, Q, 4] nk, float[B, 2, Q, 4] nv)
        {
            y, nk, nv = com.microsoft.MultiHeadAttention <num_heads = 2>
                (q, k, v, , , , pk, pv)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17, "com.microsoft" : 1]
        >
        step (float[B, S, 8] q, float[B, S, 8] k, float[B, S, 8] v, float[B, 2, P, 4] pk,
              float[B, 2, P, 4] pv) =>
             (float[B, S, 8] y, float[B, 2, Q, 4] nk, float[B, 2, Q, 4] nv)
        <int64[4] apart = {0, 0, 2, 4}, int64[3] joined = {0, 0, -1}, float half = {0.5}>
        {
            rows = Reshape (q, apart)
            queries = Transpose <perm = [0, 2, 1, 3]> (rows)
            key_rows = Reshape (k, apart)
            new_keys = Transpose <perm = [0, 2, 1, 3]> (key_rows)
            value_rows = Reshape (v, apart)
            new_values = Transpose <perm = [0, 2, 1, 3]> (value_rows)
            keys = Concat <axis = 2> (pk, new_keys)
            values = Concat <axis = 2> (pv, new_values)
            columns = Transpose <perm = [0, 1, 3, 2]> (keys)
            products = MatMul (queries, columns)
            scores = Mul (products, half)
            weights = Softmax <axis = -1> (scores)
            heads = MatMul (weights, values)
            moved = Transpose <perm = [0, 2, 1, 3]> (heads)
            y = Reshape (moved, joined)
            nk = Identity (keys)
            nv = Identity (values)
        }

    Left alone:
        An attention of bfloat16, "it is not of float32 or float16":
        <
            ir_version: 8,
            opset_import: ["" : 17, "com.microsoft" : 1]
        >
        step (bfloat16[B, S, 8] q, bfloat16[B, 2, P, 4] pk, bfloat16[B, 2, P, 4] pv) =>
             (bfloat16[B, S, 8] y, bfloat16[B, 2, Q, 4] nk, bfloat16[B, 2, Q, 4] nv)
        {
            y, nk, nv = com.microsoft.MultiHeadAttention <num_heads = 2>
                (q, q, q, , , , pk, pv)
        }

    Safety:
        Exact, up to rounding, where each row of a GroupQueryAttention has as many entries as there
        are, so that its `seqlens_k` is the past and all new tokens less one: rows of a batch that
        are padded are another thing there, since new entries are then written over the padding.
        Refused, with the reason: other types, packed inputs of rank 5, caches of integers,
        attributes and inputs that a newer version of the operator has, and a past that is a buffer
        with room of a MultiHeadAttention.
    """

    safety = "conditional"
    anchors = (
        "com.microsoft.Attention",
        "com.microsoft.GroupQueryAttention",
        "com.microsoft.MultiHeadAttention",
    )

    def match(self, node: ir.Node, view: View) -> Match | Skip | None:
        """Return the site if an attention has a cache."""
        slots, recipe = attention_slots(node), _RECIPES[qualified_name(node)]
        if slots is None or not any(input_at(node, x) is not None for x in slots.pasts):
            return None
        if PASS_KEY in node.metadata_props:
            return None  # fused here
        if view.opset_of_node(node) < _LEAST_OPSET:
            return Skip(node, f"it takes opset {_LEAST_OPSET}: convert the model to it")
        if view.shapes.dtype(node.inputs[0]) not in FLOATS:
            return Skip(node, "it is not of float32 or float16")
        if any(x.is_ref() or name not in recipe.attributes for name, x in node.attributes.items()):
            return Skip(node, "it has an attribute that this pass does not know")
        used = {i for i, x in enumerate(node.inputs) if x is not None}
        if used - recipe.inputs:
            return Skip(node, f"it has an input that this pass does not know: {max(used)}")
        if any(x.uses() or x.is_graph_output() for x in node.outputs[recipe.outputs :]):
            return Skip(node, "it gives its scores as well")
        reason = recipe.reason_against(node, view.shapes)
        return Match(node) if reason is None else Skip(node, reason)

    def message(self, site: Match) -> str:
        """Describe the node."""
        return f"{site.node.op_type} has a cache: what is not valid cannot be hidden from it"

    def rewrite(self, match: Match, op: Builder) -> ir.Value | tuple[ir.Value, ...]:
        """Build the parts."""
        return _RECIPES[qualified_name(match.node)].build(match.node, op)


@dataclass(frozen=True)
class _Recipe:
    """How one operator is written as its parts.

    Attributes:
        attributes: The attributes that ``build`` reads or may ignore.
        inputs: The inputs that it reads.
        outputs: How many outputs it builds.
        reason_against: Returns why a node is kept, or None.
        build: Builds the parts.
    """

    attributes: AbstractSet[str]
    inputs: AbstractSet[int]
    outputs: int
    reason_against: Callable[[ir.Node, Shapes], str | None]
    build: Callable[[ir.Node, Builder], tuple[ir.Value, ...]]


@dataclass(frozen=True)
class _Heads:
    """The heads of an attention.

    Attributes:
        queries: How many heads the queries have.
        keys: How many the keys and values have.
        features: The features of each head of queries and keys.
        value_features: The features of each head of the values.
    """

    queries: int
    keys: int
    features: int
    value_features: int


def _float_type(node: ir.Node, op: Builder) -> ir.DataType:
    return op.view.shapes.dtype(node.inputs[0]) or ir.DataType.FLOAT


def _scale_of(node: ir.Node, features: int) -> float:
    """Return what scores are scaled by; 0 stands for the usual."""
    return attr_float(node, "scale", 0.0) or 1 / math.sqrt(features)


# GroupQueryAttention


def _grouped_heads(node: ir.Node, known: Shapes) -> _Heads | None:
    """Return the heads of a GroupQueryAttention; None if their width is not known."""
    queries, keys = (attr_int(node, x, 0) for x in ("num_heads", "kv_num_heads"))
    dims = known.dims(node.inputs[0])
    if not dims or len(dims) != 3 or not isinstance(dims[2], int) or not queries or not keys:
        return None
    parts = queries if input_at(node, 1) is not None else queries + 2 * keys
    features, rest = divmod(dims[2], parts)
    return None if rest else _Heads(queries, keys, features, features)


def _is_buffer(node: ir.Node, known: Shapes) -> bool:
    """Return whether past and present are one buffer of a fixed size.

    What is inferred of the present depends on a number that is fed; what is declared tells whether
    it grows.
    """
    past, present = (known.dims(x) for x in (input_at(node, 3), node.outputs[1]))
    if not past or not present or not isinstance(past[2], int):
        return False
    declared = node.outputs[1].shape
    return declared is None or not contradicts_shape(past, declared)


def _reason_against_grouped(node: ir.Node, known: Shapes) -> str | None:
    """Return why a GroupQueryAttention is kept, or None."""
    if _grouped_heads(node, known) is None:
        return "the number of its heads, or of their features, is not known"
    if len(node.outputs) < 3 or input_at(node, 4) is None:
        return "it gives no caches"
    if known.dtype(input_at(node, 3)) != known.dtype(node.inputs[0]):
        return "its caches are of another type"
    if attr_int(node, "do_rotary", 0) and input_at(node, 8) is None:
        return "its rotary embedding has no table"
    return _reason_against_window(node, known)


def _reason_against_window(node: ir.Node, known: Shapes) -> str | None:
    """Return why a node whose caches hold a window alone is kept, or None."""
    window, past = cache_window(node), known.dims(input_at(node, 3))
    if window is None:
        return None
    if not past or not isinstance(past[2], int):
        return "its caches hold a window, and their size is not fixed"
    if past[2] < window:
        return f"its caches hold {past[2]} entries, less than its window of {window}"
    return None if input_at(node, 10) is None else "its addend has a column for what it dropped"


def _build_grouped(node: ir.Node, op: Builder) -> tuple[ir.Value, ...]:
    """Build a GroupQueryAttention: causal, with its caches."""
    known, dtype = op.view.shapes, _float_type(node, op)
    number = dtype.numpy()
    heads = _grouped_heads(node, known) or _Heads(1, 1, 1, 1)
    window, rotates = cache_window(node), bool(attr_int(node, "do_rotary", 0))
    is_buffer = window is None and _is_buffer(node, known)
    first = node.inputs[0]
    assert first is not None
    has_places = is_buffer or rotates or window is not None
    places = _positions_of_new(node, first, op) if has_places else first
    positions = (input_at(node, 9) or places) if rotates else None
    query, key, value = _grouped_inputs(node, heads, positions, op)
    query = split_heads(query, heads.queries, heads.features, op)
    new = [split_heads(x, heads.keys, heads.features, op) for x in (key, value)]
    pasts = [x for x in (input_at(node, 3), input_at(node, 4)) if x is not None]
    low, seen = np.array(-np.inf, number), max(0, attr_int(node, "local_window_size", -1))
    if is_buffer:
        place = _Place.of(pasts[0], places, op)
        caches = [place.write(x, y, dtype) for x, y in zip(pasts, new, strict=True)]
        hidden = place.addend(low, seen)
        read = caches
    else:
        read = [op.Concat(x, y, axis=2) for x, y in zip(pasts, new, strict=True)]
        caches = read
        if window is None:
            hidden = causal_addend(query, read[0], pasts[0], op, low=low, window=seen)
        else:
            kept = _WindowCache.of(pasts[0], places, window, op)
            caches = [kept.keep(x, heads.keys, heads.features) for x in read]
            hidden = kept.place.addend(low, seen)
    keys, values = (repeat_heads(x, heads.keys, heads.queries, heads.features, op) for x in read)
    scale = np.array(_scale_of(node, heads.features), number)
    softcap = attr_float(node, "softcap", 0.0)
    scores = build_scores(query, keys, op, scale=scale, softcap=softcap)
    if (addend := input_at(node, 10)) is not None:
        scores = op.Add(scores, addend)
    scores = op.Add(scores, hidden)
    sink: ir.Value | np.ndarray | None = input_at(node, 11)
    if sink is None and attr_int(node, "smooth_softmax", 0) == 1:
        sink = np.zeros(heads.queries, number)
    if sink is None:
        weights = op.Softmax(scores, axis=-1)
    else:
        weights = softmax_beside_sink(scores, query, sink, np.array(0, number), op)
    return (join_heads(op.MatMul(weights, values), op), *caches)


def _grouped_inputs(
    node: ir.Node, heads: _Heads, positions: ir.Value | None, op: Builder
) -> tuple[ir.Value, ...]:
    """Build queries, keys and values, [B, T, heads * features], rotated if there are positions.

    Packed ones are rotated before they are cut apart: DirectML reads a RotaryEmbedding of a later
    part of a Split from the first part on.
    """
    counts = (heads.queries, heads.keys)
    widths = np.array([*counts, heads.keys], np.int64) * heads.features
    apart = [x for i in range(3) if (x := input_at(node, i)) is not None]
    if len(apart) < 3 and positions is None:
        return tuple(op.make_outputs("Split", (True, True, True), apart[0], widths, axis=2))
    if positions is None:
        return tuple(apart)
    if len(apart) == 3:
        rotated = (
            _rotate(node, x, count, heads.features, positions, op)
            for x, count in zip(apart[:2], counts, strict=True)
        )
        return (*rotated, apart[2])
    ends = np.array([widths[:2].sum(), widths[2]], np.int64)
    turning, value = op.make_outputs("Split", (True, True), apart[0], ends, axis=2)
    turned = _rotate(node, turning, sum(counts), heads.features, positions, op)
    return (*op.make_outputs("Split", (True, True), turned, widths[:2], axis=2), value)


def _positions_of_new(node: ir.Node, query: ir.Value, op: Builder) -> ir.Value:
    """Build the positions of the new entries, int64 [B, T]: the last is seqlens_k."""
    new_count = op.Reshape(build_axis_size(query, 1, op), _SCALAR)
    one = np.array(1, np.int64)
    steps = op.Range(op.Sub(one, new_count), one, one)
    last = op.Cast(input_at(node, 5), to=ir.DataType.INT64)
    positions = op.Add(op.Reshape(last, np.array([-1, 1], np.int64)), steps)
    return op.Max(positions, np.array(0, np.int64))  # of padding in front of a prompt


def _rotate(
    node: ir.Node, value: ir.Value, heads: int, features: int, positions: ir.Value, op: Builder
) -> ir.Value:
    """Build the rotary embedding of queries or keys, [B, T, heads * features]."""
    cos, sin = input_at(node, 7), input_at(node, 8)
    dims = op.view.shapes.dims(cos)
    rotated = 2 * dims[-1] if dims and isinstance(dims[-1], int) else features
    return op.make(
        "com.microsoft.RotaryEmbedding",
        value,
        positions,
        cos,
        sin,
        interleaved=attr_int(node, "rotary_interleaved", 0),
        num_heads=heads,
        rotary_embedding_dim=rotated if rotated < features else 0,
    )


@dataclass(frozen=True)
class _Place:
    """Where new entries go in a buffer of a fixed size.

    Attributes:
        op: The builder.
        distances: How far each entry of the buffer is behind each new one, int64 [B, 1, T, N].
    """

    op: Builder
    distances: ir.Value

    @classmethod
    def of(cls, past: ir.Value, positions: ir.Value, op: Builder) -> "_Place":
        """Build where the entries with these positions [B, T] go in a buffer [B, H, N, D]."""
        (_, _, size, _) = op.view.shapes.dims(past) or (1, 1, 1, 1)
        assert isinstance(size, int)
        rows = op.Unsqueeze(positions, np.array([1, 3], np.int64))
        return cls(op, op.Sub(op.constant(np.arange(size, dtype=np.int64)), rows))

    def write(self, past: ir.Value, new: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Build the buffer with the new entries [B, H, T, D] in their places."""
        op, zero = self.op, np.array(0, np.int64)
        is_there = op.Cast(op.Equal(self.distances, zero), to=dtype)
        columns = op.Transpose(is_there, perm=[0, 1, 3, 2])  # [B, 1, N, T]
        is_new = build_reduction("ReduceMax", columns, [3], op)
        return op.Where(op.Cast(is_new, to=ir.DataType.BOOL), op.MatMul(columns, new), past)

    def addend(self, low: np.ndarray, window: int) -> ir.Value:
        """Build what hides entries behind each new one, and those before its window."""
        op, zero = self.op, np.array(0, low.dtype)
        hidden = op.Greater(self.distances, np.array(0, np.int64))
        if window:
            before = op.Less(self.distances, np.array(1 - window, np.int64))
            hidden = op.Or(hidden, before)
        return op.Where(hidden, low, zero)


@dataclass(frozen=True)
class _WindowCache:
    """Where entries are in a cache that holds a window alone, with the newest ones behind it.

    Attributes:
        place: How far each entry is behind each new one.
        rows: Which entry goes to each row of the next cache, int64 [B, 1, N, 1].
    """

    place: _Place
    rows: ir.Value

    @classmethod
    def of(cls, past: ir.Value, positions: ir.Value, window: int, op: Builder) -> "_WindowCache":
        """Build where entries are, for a cache [B, H, N, D] and new ones at positions [B, T]."""
        (_, _, size, _) = op.view.shapes.dims(past) or (1, 1, 1, 1)
        assert isinstance(size, int)
        one, axis = np.array([1], np.int64), np.array([1], np.int64)
        end = np.array([np.iinfo(np.int64).max], np.int64)
        first = op.Slice(positions, np.array([0], np.int64), one, axis)
        total = op.Add(op.Slice(positions, -one, end, axis), one)
        places = op.constant(np.arange(size, dtype=np.int64))
        earlier = op.Add(_first_kept(first, size, window, op), places)
        is_there = op.Less(earlier, first)
        earlier = op.Where(is_there, earlier, np.array(-(1 << 30), np.int64))
        known = op.Concat(earlier, positions, axis=1)
        queries = op.Unsqueeze(positions, np.array([1, 3], np.int64))
        distances = op.Sub(op.Unsqueeze(known, np.array([1, 2], np.int64)), queries)
        kept = op.Add(_first_kept(total, size, window, op), places)
        from_past = op.Sub(kept, _first_kept(first, size, window, op))
        from_new = op.Add(op.Sub(kept, first), np.array(size, np.int64))
        rows = op.Where(op.Less(kept, first), from_past, from_new)
        # Rows that nothing is in yet are read from the last entry, and overwritten.
        last = op.Sub(op.Add(op.Sub(total, first), np.array(size, np.int64)), one)
        rows = op.Min(rows, last)
        return cls(_Place(op, distances), op.Unsqueeze(rows, np.array([1, 3], np.int64)))

    def keep(self, joined: ir.Value, heads: int, features: int) -> ir.Value:
        """Build the next cache from the past with the new entries behind it, [B, H, N + T, D]."""
        op = self.place.op
        spread = op.Expand(self.rows, np.array([1, heads, 1, features], np.int64))
        return op.GatherElements(joined, spread, axis=2)


def _first_kept(total: ir.Value, size: int, window: int, op: Builder) -> ir.Value:
    """Build the position of the first entry in a cache of a size after so many, int64 [B, 1].

    Where it is full, it drops as many at once as the window needs not.
    """
    above = op.Max(op.Sub(total, np.array(size, np.int64)), np.array(0, np.int64))
    if size == window:
        return above
    step = np.array(size - window + 1, np.int64)
    times = op.Div(op.Add(above, np.array(size - window, np.int64)), step)
    return op.Mul(times, step)


# MultiHeadAttention, and Attention with the weights of its projections


def _multi_heads(node: ir.Node, known: Shapes) -> _Heads | None:
    """Return the heads of a MultiHeadAttention; None if their width is not known."""
    count = attr_int(node, "num_heads", 0)
    widths = [(known.dims(input_at(node, i)) or (None,))[-1] for i in (0, 2)]
    if not count or not all(isinstance(x, int) and not x % count for x in widths):
        return None
    features, value_features = (x // count for x in widths if isinstance(x, int))
    return _Heads(count, count, features, value_features)


def _reason_against_multi(node: ir.Node, known: Shapes) -> str | None:
    """Return why a MultiHeadAttention is kept, or None."""
    if not all(known.rank(input_at(node, i)) == 3 for i in range(3)):
        return "its queries, keys and values are not seen to have three axes"
    if _multi_heads(node, known) is None:
        return "the number of its heads, or of their features, is not known"
    if len(node.outputs) < 3 or input_at(node, 7) is None:
        return "it gives no caches"
    mask = input_at(node, 4)
    return None if mask is None or known.rank(mask) == 2 else "its mask counts keys"


def _build_multi(node: ir.Node, op: Builder) -> tuple[ir.Value, ...]:
    """Build a MultiHeadAttention with its caches."""
    known = op.view.shapes
    heads = _multi_heads(node, known) or _Heads(1, 1, 1, 1)
    inputs = [x for i in range(3) if (x := input_at(node, i)) is not None]
    if (bias := input_at(node, 3)) is not None:
        widths = [heads.features, heads.features, heads.value_features]
        cuts = np.array(widths, np.int64) * heads.queries
        biases = op.make_outputs("Split", (True, True, True), bias, cuts, axis=0)
        inputs = [op.Add(x, y) for x, y in zip(inputs, biases, strict=True)]
    pasts = [x for x in (input_at(node, 6), input_at(node, 7)) if x is not None]
    return _build_ungrouped(node, heads, inputs, pasts, (4, 5), op)


def _build_ungrouped(
    node: ir.Node,
    heads: _Heads,
    inputs: list[ir.Value],
    pasts: list[ir.Value],
    masks: tuple[int, int],
    op: Builder,
) -> tuple[ir.Value, ...]:
    """Build an attention of queries, keys and values [B, T, heads * features], and its caches.

    Args:
        node: The node.
        heads: Its heads.
        inputs: Queries, keys and values.
        pasts: Their caches, [B, heads, P, features].
        masks: The places of the mask of keys and of the addend among the node's inputs.
        op: The builder.
    """
    number = _float_type(node, op).numpy()
    widths = (heads.features, heads.features, heads.value_features)
    query, key, value = (
        split_heads(x, heads.queries, width, op) for x, width in zip(inputs, widths, strict=True)
    )
    caches = [op.Concat(x, y, axis=2) for x, y in zip(pasts, (key, value), strict=True)]
    scale = np.array(_scale_of(node, heads.features), number)
    scores = build_scores(query, caches[0], op, scale=scale)
    mask, addend = (input_at(node, x) for x in masks)
    low = np.array(attr_float(node, "mask_filter_value", -10000.0), number)
    if addend is not None:
        scores = op.Add(scores, addend)
    if mask is not None:
        shown = op.Cast(op.Unsqueeze(mask, np.array([1, 2], np.int64)), to=ir.DataType.BOOL)
        scores = op.Add(scores, op.Where(shown, np.array(0, number), low))
    if attr_int(node, "unidirectional", 0):
        lowest = np.array(-np.inf, number)
        scores = op.Add(scores, causal_addend(query, caches[0], pasts[0], op, low=lowest))
    weights = op.Softmax(scores, axis=-1)
    return (join_heads(op.MatMul(weights, caches[1]), op), *caches)


def _projected_heads(node: ir.Node, known: Shapes) -> _Heads | None:
    """Return the heads of an Attention with weights; None if their width is not known."""
    count, dims = attr_int(node, "num_heads", 0), known.dims(input_at(node, 1))
    width = dims[-1] if dims else None
    if not count or not isinstance(width, int) or width % (3 * count):
        return None
    return _Heads(count, count, width // (3 * count), width // (3 * count))


def _reason_against_projected(node: ir.Node, known: Shapes) -> str | None:
    """Return why an Attention with weights is kept, or None."""
    if _projected_heads(node, known) is None:
        return "the number of its heads, or of their features, is not known"
    if len(node.outputs) < 2:
        return "it gives no cache"
    mask = input_at(node, 3)
    return None if mask is None or known.rank(mask) == 2 else "its mask counts keys"


def _build_projected(node: ir.Node, op: Builder) -> tuple[ir.Value, ...]:
    """Build an Attention with the weights of its projections, and its cache [2, B, H, P, D]."""
    heads = _projected_heads(node, op.view.shapes) or _Heads(1, 1, 1, 1)
    product = op.MatMul(node.inputs[0], node.inputs[1])
    if (bias := input_at(node, 2)) is not None:
        product = op.Add(product, bias)
    widths = np.full(3, heads.queries * heads.features, np.int64)
    inputs = list(op.make_outputs("Split", (True, True, True), product, widths, axis=2))
    past = input_at(node, 4)
    pasts = [op.Gather(past, np.array(x, np.int64), axis=0) for x in range(2)]
    result, *caches = _build_ungrouped(node, heads, inputs, pasts, (3, 5), op)
    first_axis = np.array([0], np.int64)
    return result, op.Concat(*(op.Unsqueeze(x, first_axis) for x in caches), axis=0)


_RECIPES = {
    "com.microsoft.GroupQueryAttention": _Recipe(
        {"num_heads", "kv_num_heads", "scale", "local_window_size", "softcap", "smooth_softmax"}
        | {"do_rotary", "rotary_interleaved", "sliding_window_cache"},
        {*range(12)},
        3,
        _reason_against_grouped,
        _build_grouped,
    ),
    "com.microsoft.MultiHeadAttention": _Recipe(
        {"num_heads", "scale", "mask_filter_value", "unidirectional"},
        {*range(8)},
        3,
        _reason_against_multi,
        _build_multi,
    ),
    "com.microsoft.Attention": _Recipe(
        {"num_heads", "scale", "mask_filter_value", "unidirectional"},
        {*range(6)},
        2,
        _reason_against_projected,
        _build_projected,
    ),
}
