"""additive-mask: the manual is the docstring of the class."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.hidden_scores import HIDES, hides_score
from graphfix.facts.view import View
from graphfix.graph.constants import Array
from graphfix.graph.nodes import is_op
from graphfix.graph.text import node_label

from ..common.fills import Fill, fill_of
from ..common.guards import first_reason
from ..common.score_reach import Reach, reach_of
from .sites import where_masks
from .sites.whole_rows import why_hides_whole_rows

# Far below all scores, and far enough from float32's -3.4e38 to be added several times.
LOWEST = -1e9
# A score so low has a weight of 3e-7 beside one of 0: it is not hidden by more than rounding.
_SHOWS = -15


@dataclass(frozen=True)
class MaskSite(Match):
    """A Where that hides scores.

    Attributes:
        hidden: The boolean, and its value where a score is hidden.
        number: The value number of that boolean: equal numbers share one addend.
        scores: What is masked, or None where the Where itself makes an addend of 0 and the fill.
        floor: What is added where a score is hidden, with the rank and type of the fill.
    """

    hidden: where_masks.Condition
    number: int
    scores: ir.Value | None
    floor: Array


@dataclass(frozen=True)
class CompanionSite(Match):
    """A Where after the Softmax that sets the hidden weights to zero once more."""

    hidden: where_masks.Condition
    number: int
    weights: ir.Value
    dtype: np.dtype[np.generic]


@dataclass(frozen=True)
class AdditiveMask(NodePass[MaskSite | CompanionSite]):
    """Replaces the Where that masks scores before a Softmax with an Add of a shared mask.

    It is found through whatever lies between it and the Softmax (Add, Mul, Div, Cast, Reshape,
    Transpose, clamps), in both polarities, with any fill from -1e3 down to -inf. The addend is made
    from the boolean, once for all layers that compute the same boolean. The companion
    ``Where(mask, 0, softmax)`` becomes a Mul.

    Why:
        Two full-size Wheres a layer, each behind its own Equal, Cast and Unsqueeze chain, are two
        dispatches a layer and one more for each link of the chain; an addend that all layers share
        is one Add a layer. A score of -inf makes NaN of a row that is hidden whole, and the float
        minimum overflows to -inf when it is added twice or turned into float16; -1e4 does neither
        (both measured, in float32 and float16). Add and Where are both graph-capable on DirectML
        (OperatorRegistration.cpp), so nothing is claimed about fusion.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        sanm (float[B, 4, T, T] scores, int64[B, 1, 1, T] mask, float[B, 4, T, 8] v)
            => (float[B, 4, T, 8] context)
        <int64 zero = {0}, float minus_inf = {-inf}, float nought = {0.0}>
        {
            hidden = Equal (mask, zero)
            masked = Where (hidden, minus_inf, scores)
            weights = Softmax <axis = -1> (masked)
            kept = Where (hidden, nought, weights)
            context = MatMul (kept, v)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        sanm (float[B, 4, T, T] scores, int64[B, 1, 1, T] mask, float[B, 4, T, 8] v)
            => (float[B, 4, T, 8] context)
        <int64 zero = {0}, float floor = {-10000.0}>
        {
            hidden = Equal (mask, zero)
            as_float = Cast <to = 1> (hidden)
            addend = Mul (as_float, floor)
            masked = Add (scores, addend)
            weights = Softmax <axis = -1> (masked)
            visible = Not (hidden)
            keep = Cast <to = 1> (visible)
            kept = Mul (weights, keep)
            context = MatMul (kept, v)
        }

    Left alone:
        Scores that are ranked instead of weighed, "it hides scores from ArgMax":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        rank (float[B, T] scores, bool[B, T] mask) => (int64[B, N] y)
        <float inf = {-inf}>
        {
            masked = Where (mask, inf, scores)
            y = ArgMax <axis = 1> (masked)
        }

    Safety:
        Equal in every row of scores that has a key to look at, as long as the hidden scores are
        less than 1e4 above the best visible one: exp(-1e4 + 88) is 0 in float32. A row that is
        hidden whole was NaN (fill -inf; 0 behind a NaN guard) or uniform (fill float minimum) and
        becomes the Softmax of the raw scores, which the companion, if there is one, still sets to
        0. A NaN in a hidden score is no longer hidden.

    Options:
        floor: What is added to a hidden score; finite, at most -1000. -65504 and below are no
            numbers in float16.
    """

    safety = "valid-rows"
    advice = (
        "additive-mask: hidden scores may be higher than the floor is low; in float32 a lower one "
        "hides them: additive-mask:floor=-1e9"
    )
    anchors = ("Where",)

    floor: float = -1e4

    def __post_init__(self) -> None:
        if not (math.isfinite(self.floor) and hides_score(self.floor)):
            raise ValueError(f"floor={self.floor:g} must be a finite number, at most {HIDES:g}")

    def fallbacks(self) -> Iterator[AdditiveMask]:
        """Yield the pass with a floor that no float32 score exceeds."""
        if self.floor > LOWEST:
            yield replace(self, floor=LOWEST)

    def match(self, node: ir.Node, view: View) -> MaskSite | CompanionSite | Skip | None:
        """Return the site if the node masks scores, or weights after a Softmax."""
        select = where_masks.where_mask_of(node)
        if select is not None and hides_score(select.fill.number):
            return self._match_mask(select, view)
        if select is not None and select.fill.number == 0:
            return self._match_companion(select, view)
        return None

    def message(self, site: Match) -> str:
        """Describe the mask at a site."""
        if isinstance(site, CompanionSite):
            return "a full-size Where zeroes weights that a mask has hidden already"
        return "a full-size Where hides scores, where an Add of one mask for all layers would do"

    def _match_mask(self, select: where_masks.WhereMask, view: View) -> MaskSite | Skip | None:
        """Return the site of a Where that hides scores, or why it is skipped."""
        mask = _find_masked_scores(select, view)
        if not mask.reach.softmaxes:
            near_miss = mask.reach.near_miss
            other = f"it hides scores from {near_miss}, where adding a floor is not the same"
            return Skip(select.node, other) if near_miss else None
        if (reason := first_reason(_GUARDS, mask, view)) is not None:
            return Skip(select.node, reason)
        if select.fill.number * mask.reach.scale > _SHOWS:
            return Skip(select.node, "its fill is scaled to a score that a Softmax does not hide")
        floor = self._floor_array(select.fill, mask.rank_of_addend, mask.reach.scale)
        if not np.isfinite(floor.astype(np.float64)).all():
            number = self.floor / mask.reach.scale
            return Skip(select.node, f"floor={number:g} is no number in {select.fill.dtype}")
        if mask.becomes_addend and select.fill.number == floor.item(0):
            return Skip(select.node, "it is an addend: a Where of the floor and 0")
        scores = None if mask.becomes_addend else select.data
        larger = scores is not None and where_masks.keeps_shape(
            select.node.outputs[0], scores, view
        )
        hidden = where_masks.condition_of(
            select.condition, view, expands=larger, when=select.fill_when
        )
        number_of_root = view.numbering.number_of(hidden.root)
        return MaskSite(select.node, hidden, number_of_root, scores, floor)

    def _floor_array(self, fill: Fill, rank: int, scale: float) -> Array:
        """Return the floor with the rank and dtype of the fill."""
        # A factor below 1 on the way to the Softmax would raise the floor again.
        with np.errstate(over="ignore"):
            return np.full((1,) * rank, self.floor / min(scale, 1.0)).astype(fill.dtype)

    def _match_companion(
        self, select: where_masks.WhereMask, view: View
    ) -> CompanionSite | Skip | None:
        """Return the site of a Where that zeroes hidden weights, or why it is skipped."""
        node, weights = select.node, select.data
        softmax = where_masks.softmax_of(weights)
        larger = where_masks.keeps_shape(node.outputs[0], weights, view)
        hidden = where_masks.condition_of(
            select.condition, view, expands=larger, when=select.fill_when
        )
        if softmax is None or is_op(hidden.root.producer(), "IsNaN"):
            return None
        if select.fill.rank is None and not larger:
            return Skip(node, f"its zero may be larger than {weights.name!r}")
        number = view.numbering.number_of(hidden.root)
        for condition in self._masks_repaired_before(softmax, view):
            if condition.when == hidden.when and view.numbering.number_of(condition.root) == number:
                return CompanionSite(node, hidden, number, weights, select.fill.dtype)
        label = node_label(softmax)
        return Skip(node, f"it zeroes weights of {label!r} that no repaired mask before it hides")

    def _masks_repaired_before(
        self, softmax: ir.Node, view: View
    ) -> Iterator[where_masks.Condition]:
        """Yield the condition of each repaired mask before a Softmax."""
        for mask in where_masks.masks_before(softmax):
            if isinstance(mask, ir.Value):
                yield where_masks.condition_of(mask, view)
            elif isinstance(site := self.match(mask, view), MaskSite):
                yield site.hidden

    def rewrite(self, match: MaskSite | CompanionSite, op: Builder) -> ir.Value:
        """Build ``scores + hidden * floor``, or ``weights * (1 - hidden)`` after a Softmax."""
        # The first tensor that holds this boolean serves all; the chains of the others go.
        root = op.build_once(("root", match.number), lambda: match.hidden.root, match.hidden.root)
        when = match.hidden.when
        if isinstance(match, CompanionSite):
            return op.Mul(
                match.weights, _condition_as_float(match.number, root, not when, match.dtype, op)
            )
        key = ("addend", match.number, when, str(match.floor.dtype), match.floor.tobytes())

        def build_addend() -> ir.Value:
            return op.Mul(
                _condition_as_float(match.number, root, when, match.floor.dtype, op), match.floor
            )

        addend = op.build_once((*key, match.floor.ndim), build_addend, root)
        return addend if match.scores is None else op.Add(match.scores, addend)


@dataclass(frozen=True)
class _MaskedScores:
    """A Where with a very low fill.

    Attributes:
        select: The Where.
        reach: The Softmaxes behind it.
        hides_nothing_else: Whether it is 0 wherever it is not the fill: it makes an addend.
        becomes_addend: Whether a product of condition and floor has all its dims, then.
        rank_of_addend: The rank of the constants that it chooses between; 0 if not known.
    """

    select: where_masks.WhereMask
    reach: Reach
    hides_nothing_else: bool
    becomes_addend: bool
    rank_of_addend: int


def _find_masked_scores(select: where_masks.WhereMask, view: View) -> _MaskedScores:
    result, base = select.node.outputs[0], fill_of(select.data)
    # Where(x, fill, x) on a 0/1 mask x: what is not hidden is 0.
    is_addend = (base is not None and base.number == 0) or (
        select.fill_when and where_masks.is_truth_of(select.condition, select.data, view)
    )
    ranks = [fill.rank for fill in (select.fill, base) if fill is not None]
    has_all_dims = None not in ranks or where_masks.keeps_shape(result, select.condition, view)
    return _MaskedScores(
        select,
        reach_of(result, view, to_bool=is_addend),
        is_addend,
        is_addend and has_all_dims,
        max(rank or 0 for rank in ranks),
    )


def _why_floor_would_show(mask: _MaskedScores, _view: View) -> str | None:
    """Return what reads the masked scores beside a Softmax, or None."""
    return mask.reach.blocked


def _why_quantized(mask: _MaskedScores, _view: View) -> str | None:
    """Return that the scores are quantized, or None."""
    if is_op(mask.select.data.producer(), "DequantizeLinear"):
        return "its scores are quantised: a low floor would spoil their int8 range"
    return None


def _why_filter(mask: _MaskedScores, _view: View) -> str | None:
    """Return that the condition ranks the scores, or None: hidden ones may be one of many."""
    select = mask.select
    if not mask.hides_nothing_else and where_masks.ranks_scores(select.condition, select.data):
        return "its condition ranks the scores themselves: a filter, not a mask"
    return None


def _why_whole_rows(mask: _MaskedScores, view: View) -> str | None:
    """Return which Softmax has all keys of a row hidden or none, or None."""
    return why_hides_whole_rows(mask.select.condition, mask.reach, view)


def _why_larger_fill(mask: _MaskedScores, view: View) -> str | None:
    """Return that the fill may give the result a shape that the scores do not have, or None."""
    select = mask.select
    if mask.becomes_addend or select.fill.rank is not None:
        return None
    if where_masks.keeps_shape(select.node.outputs[0], select.data, view):
        return None
    return f"its fill may be larger than {select.data.name!r}"


_GUARDS = (_why_floor_would_show, _why_quantized, _why_filter, _why_whole_rows, _why_larger_fill)


def _condition_as_float(
    number: int, root: ir.Value, when: bool, dtype: np.dtype[np.generic], op: Builder
) -> ir.Value:
    """Build 1 where ``root`` is ``when`` and 0 elsewhere, in ``dtype``, once a mask."""

    def build_cast() -> ir.Value:
        return op.Cast(root if when else op.Not(root), to=ir.DataType.from_numpy(dtype))

    return op.build_once(("as-float", number, when, str(dtype)), build_cast, root)
