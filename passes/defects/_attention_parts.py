"""The parts of an attention: heads, caches, what hides later keys, scores, and their Softmax."""

import numpy as np
import onnx_ir as ir

from graphfix.editing.builder import Builder
from graphfix.lengths.dim_nodes import build_axis_size

_SCALAR = np.array([], np.int64)


def split_heads(value: ir.Value, heads: int, features: int, op: Builder) -> ir.Value:
    """Build [B, heads, T, features] from [B, T, heads * features]."""
    apart = op.Reshape(value, np.array([0, 0, heads, features], np.int64))
    return op.Transpose(apart, perm=[0, 2, 1, 3])


def join_heads(value: ir.Value, op: Builder) -> ir.Value:
    """Build [B, T, heads * features] from [B, heads, T, features]."""
    flat = np.array([0, 0, -1], np.int64)
    return op.Reshape(op.Transpose(value, perm=[0, 2, 1, 3]), flat)


def repeat_heads(
    value: ir.Value, own_heads: int, heads: int, features: int, op: Builder
) -> ir.Value:
    """Build keys or values with as many heads as the queries."""
    if heads == own_heads:
        return value
    unsqueezed = op.Unsqueeze(value, np.array([2], np.int64))
    expanded = op.Expand(unsqueezed, np.array([1, 1, heads // own_heads, 1, 1], np.int64))
    return op.Reshape(expanded, np.array([0, heads, -1, features], np.int64))


def causal_addend(
    query: ir.Value,
    keys: ir.Value,
    past: ir.Value | None,
    op: Builder,
    *,
    low: np.ndarray,
    window: int = 0,
) -> ir.Value:
    """Build what hides keys behind each query, [T, P + T]; what is cached is before all queries.

    Args:
        query: The queries, [B, heads, T, features].
        keys: The keys with those of the past, [B, heads, P + T, features].
        past: The cache, [B, heads, P, features].
        op: The builder.
        low: The addend of what is hidden.
        window: How many keys a query sees, its own among them; 0 for all.
    """
    sizes = op.Concat(build_axis_size(query, 2, op), build_axis_size(keys, 2, op), axis=0)
    hidden = op.ConstantOfShape(sizes, value=ir.tensor(low.reshape(1)))
    addend = op.Trilu(hidden, _diagonal_behind(past, 1, op), upper=1)
    if not window:
        return addend
    return op.Add(addend, op.Trilu(hidden, _diagonal_behind(past, -window, op), upper=0))


def _diagonal_behind(past: ir.Value | None, first: int, op: Builder) -> ir.Value | np.ndarray:
    """Build the number of a diagonal, counted from the first key behind a cache."""
    if past is None:
        return np.array(first, np.int64)
    behind = op.Add(build_axis_size(past, 2, op), np.array([first], np.int64))
    return op.Reshape(behind, _SCALAR)


def build_scores(
    query: ir.Value, keys: ir.Value, op: Builder, *, scale: np.ndarray, softcap: float = 0.0
) -> ir.Value:
    """Build the scores of queries and keys, [B, heads, T, keys].

    Args:
        query: The queries, [B, heads, T, features].
        keys: The keys, with as many heads.
        op: The builder.
        scale: What the products are scaled by.
        softcap: The bound of a score, by a tanh; 0 for none.
    """
    scores = op.MatMul(query, op.Transpose(keys, perm=[0, 1, 3, 2]))
    if scale != 1:
        scores = op.Mul(scores, scale)
    if not softcap:
        return scores
    cap = np.array(softcap, scale.dtype)
    return op.Mul(op.Tanh(op.Div(scores, cap)), cap)


def softmax_beside_sink(
    scores: ir.Value, query: ir.Value, sink: ir.Value | np.ndarray, zero: np.ndarray, op: Builder
) -> ir.Value:
    """Build the Softmax of scores beside one more score for each head, which has no value.

    Args:
        scores: The scores, [B, heads, T, keys].
        query: The queries, [B, heads, T, features].
        sink: A score for each head, [heads].
        zero: A zero of their type.
        op: The builder.
    """
    first_feature = (np.array([x], np.int64) for x in (0, 1, 3))
    column = op.Mul(op.Slice(query, *first_feature), zero)
    column = op.Add(column, op.Reshape(sink, np.array([-1, 1, 1], np.int64)))
    weights = op.Softmax(op.Concat(scores, column, axis=-1), axis=-1)
    return op.Slice(weights, *(np.array([x], np.int64) for x in (0, -1, 3)))
