"""Outputs that rank scores: which elements are the largest, and how large they are.

Elements that are equal, or nearly, may be ranked either way, so places are not compared as numbers:
what counts is the score at each place.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from graphfix.graph.nodes import is_op, value_before
from graphfix.proof.compare import Array, Tolerance

Ints = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Ranking:
    """Two outputs of a TopK.

    Attributes:
        values: The output of the values, in their order.
        indices: The output of the places.
        axis: The axis along which they are ranked; it may be negative.
    """

    values: str
    indices: str
    axis: int


def rankings_of(model: ir.Model) -> tuple[Ranking, ...]:
    """Return the outputs of a model that are the values and the places of one TopK."""
    sources = [(x.name or "", value_before(x, "Cast", "Identity")) for x in model.graph.outputs]
    rankings = []
    for indices, place in sources:
        node = None if place is None else place.producer()
        if node is None or not is_op(node, "TopK") or place is not node.outputs[1]:
            continue
        values = next((name for name, x in sources if x is node.outputs[0]), None)
        if values is not None:
            rankings.append(Ranking(values, indices, node.attributes.get_int("axis", -1)))
    return tuple(rankings)


def settle_ties(
    rankings: tuple[Ranking, ...],
    before: Mapping[str, Array],
    after: Mapping[str, Array],
    tolerance: Tolerance,
) -> dict[str, Array]:
    """Return the outputs of a repaired model with near ties ranked as in the original.

    A place differs for no other reason where its value is within the tolerance, and so is the value
    that the original has at this place, or the least that it has, if it does not have the place.
    Ties of the same bits in both are not settled: there another element is another rule.

    Args:
        rankings: The outputs that rank scores.
        before: The outputs of the original.
        after: The outputs of the repaired model, which are not changed.
        tolerance: What may differ.
    """
    settled = dict(after)
    for ranking in rankings:
        pairs = [(x.get(ranking.values), x.get(ranking.indices)) for x in (before, after)]
        (old_values, old_places), (new_values, new_places) = pairs
        if old_values is None or old_places is None or new_values is None or new_places is None:
            continue
        arrays = (old_values, old_places, new_values, new_places)
        if len({x.shape for x in arrays}) > 1 or not old_values.ndim:
            continue
        rows = [np.moveaxis(x, ranking.axis, -1) for x in arrays]
        finite = old_values[np.isfinite(old_values)] if old_values.dtype.kind == "f" else old_values
        scale = float(np.max(np.abs(finite.astype(np.float64)), initial=0.0))
        allowed = tolerance.max_abs * max(tolerance.least, scale)
        settled_rows = rows[3].copy()
        for row in np.ndindex(*settled_rows.shape[:-1]):
            if not np.array_equal(rows[1][row], rows[3][row]):
                old, old_at, new, new_at = (x[row] for x in rows)
                settled_rows[row] = _settle_row(old, old_at, new, new_at, allowed)
        settled[ranking.indices] = np.moveaxis(settled_rows, -1, ranking.axis)
    return settled


def _settle_row(
    old_values: Array, old_places: Array, new_values: Array, new_places: Array, allowed: float
) -> Array:
    """Return the places of one vector, with those of near ties as in the original."""
    if len(np.unique(new_places)) < len(new_places):
        return new_places
    old, new = old_values.astype(np.float64), new_values.astype(np.float64)
    in_old, in_new = _positions(new_places, old_places), _positions(old_places, new_places)
    ties = _are_near(old[in_old], new, allowed) & _are_near(old, new, allowed)
    # Of elements that are equal, a TopK takes the first: no rounding makes it another.
    is_exact = (old[in_old] == old) & (new[in_new] == new) & (old == new)
    return np.where(ties & ~is_exact, old_places, new_places)


def _positions(places: Array, others: Array) -> npt.NDArray[np.int64]:
    """Return where each place stands among others; the last position if it does not."""
    position = {place: i for i, place in enumerate(others.tolist())}
    last = len(others) - 1
    return np.array([position.get(x, last) for x in places.tolist()], np.int64)


def _are_near(
    old: npt.NDArray[np.float64], new: npt.NDArray[np.float64], allowed: float
) -> npt.NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):
        near: npt.NDArray[np.bool_] = np.abs(old - new) <= allowed
    near |= (old == new) | (np.isnan(old) & np.isnan(new))
    return near


def restore_scores(scores: Array, places: Array, values: Array | None, axis: int) -> Array:
    """Return the scores that a ranking tells, which are ``scores`` if it is theirs.

    Each place has the value that the ranking gives it, and what it does not name is at most as
    large as the least of these. What cannot be, such as a place that is named twice, is NaN, or
    another number where the scores are integers.

    Args:
        scores: What was ranked.
        places: The places of the largest along ``axis``, the largest first.
        values: The scores there; None: they are those of ``scores``.
        axis: The axis; it may be negative.

    Returns:
        An array of the shape of ``scores``; ``places`` if theirs does not fit, which then differs.
    """
    rows, row_places = np.moveaxis(scores, axis, -1), np.moveaxis(places, axis, -1)
    if row_places.shape[:-1] != rows.shape[:-1] or places.dtype.kind not in "iu":
        return places
    size = rows.shape[-1]
    outside = (row_places < 0) | (row_places >= size)
    clipped = np.clip(row_places, 0, max(size - 1, 0)).astype(np.int64)
    if not clipped.size:
        return scores
    own = np.take_along_axis(rows, clipped, -1)
    ranked = own if values is None else np.moveaxis(values, axis, -1)
    if ranked.shape != own.shape or ranked.dtype.kind != own.dtype.kind:
        return places if values is None else values
    ranked = _in_descending_order(ranked.astype(scores.dtype))
    least = ranked[..., -1:]
    with np.errstate(invalid="ignore"):
        restored = np.where(rows > least, least, rows)
    np.put_along_axis(restored, clipped, ranked, -1)
    ordered = np.sort(clipped, axis=-1)
    twice = (ordered[..., 1:] == ordered[..., :-1]).any(axis=-1, keepdims=True)
    impossible = rows + 1 if rows.dtype.kind in "iu" else np.full_like(rows, np.nan)
    restored = np.where(twice | outside.any(axis=-1, keepdims=True), impossible, restored)
    return np.moveaxis(restored, -1, axis)


def _in_descending_order(values: Array) -> Array:
    """Return values along the last axis, those behind a smaller one as small as that."""
    if values.dtype.kind in "iu":
        in_order: Array = np.minimum.accumulate(values, axis=-1)
        return in_order
    return np.where(np.isnan(values), values, np.fmin.accumulate(values, axis=-1))
