"""finite-mask: the manual is the docstring of the class."""

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import PASS_KEY, Builder
from graphfix.facts.hidden_scores import HIDES, hides_score
from graphfix.facts.view import View
from graphfix.facts.zero_one import is_all_ones, zero_one_sources
from graphfix.graph.nodes import is_op

from ..common.fills import fill_of
from ..common.score_reach import Reach, may_reach_softmax, reach_of
from .sites.floors import clamp_mask, has_fixed_attributes, lowest_of
from .sites.whole_rows import why_hides_whole_rows


@dataclass(frozen=True)
class LowSite(Match):
    """A constant that hides scores and is too low.

    Attributes:
        index: Which input of the node it is.
        floor: The limit for its elements: at least this, or at most if positive.
    """

    index: int
    floor: float


@dataclass(frozen=True)
class FiniteMask(NodePass[LowSite]):
    """Replaces -inf and the float minimum in additive masks with -1e4.

    Found are the products of a 0/1 mask with such a number, ``(1 - mask) * -3.4e38`` and
    ``(mask - 1) * 1e9``, and constant masks, such as the upper triangle of -inf, that are added to
    scores, sliced or otherwise laid out first. Masks that a Where makes are additive-mask's.

    Why:
        Run on onnxruntime-directml 1.24.4: a row whose keys are all hidden is NaN in float32 if a
        mask of the float minimum is added twice, and in float16 if -65504 is added once, to scores
        below -16. On the CPU the second shows nothing, since it computes float16 in float32. With
        -1e4 all of them are numbers, and exp(-1e4) is 0 in both types. Converters also make -inf of
        such a mask when they turn a model to float16. transformers 4.41 writes (1 - mask) *
        -3.4e38, which is no Where.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        bert (float[B, 4, T, T] scores, int64[B, 1, 1, T] mask) => (float[B, 4, T, T] weights)
        <float one = {1.0}, float lowest = {-3.4e38}>
        {
            visible = Cast <to = 1> (mask)
            hidden = Sub (one, visible)
            addend = Mul (hidden, lowest)
            masked = Add (scores, addend)
            weights = Softmax <axis = -1> (masked)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        bert (float[B, 4, T, T] scores, int64[B, 1, 1, T] mask) => (float[B, 4, T, T] weights)
        <float one = {1.0}, float floor = {-10000.0}>
        {
            visible = Cast <to = 1> (mask)
            hidden = Sub (one, visible)
            addend = Mul (hidden, floor)
            masked = Add (scores, addend)
            weights = Softmax <axis = -1> (masked)
        }

    Left alone:
        A mask of 1 that adds a large number instead of taking it off, "it adds 1e+09 where 'kept'
        is not 0":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        weigh (float[B, 2, 4, 4] scores, int64[B, 1, 1, 4] mask) => (float[B, 2, 4, 4] weights)
        <float large = {1e9}>
        {
            kept = Cast <to = 1> (mask)
            addend = Mul (kept, large)
            masked = Add (scores, addend)
            weights = Softmax <axis = -1> (masked)
        }

    Safety:
        Equal in every row of scores that has a key to look at, as long as the hidden scores are
        less than 1e4 above the best visible one. A row that is hidden whole was NaN (-inf) or
        uniform (float minimum) and becomes the Softmax of the raw scores. A mask that the caller
        gives is taken to hold 0 and 1; the change says so in its note. Refused, with the reason:
        masks that also go elsewhere than to a Softmax, products with what is not a mask, and masks
        that hide all keys of a row or none.

    Options:
        floor: What is added to a hidden score; finite, at most -1000. -65504 and below are no
            numbers in float16.
    """

    safety = "valid-rows"
    anchors = ("Mul", "Add")

    floor: float = -1e4

    def __post_init__(self) -> None:
        if not (math.isfinite(self.floor) and hides_score(self.floor)):
            raise ValueError(f"floor={self.floor:g} must be a finite number, at most {HIDES:g}")

    def match(self, node: ir.Node, view: View) -> LowSite | Skip | None:
        """Return the site if a product or sum masks scores with a too low constant."""
        if not may_reach_softmax(node.outputs[0], view):
            return None
        if is_op(node, "Mul"):
            # What a pass has made is in order, and its floor may be another.
            return None if PASS_KEY in node.metadata_props else self._match_product(node, view)
        return self._match_sum(node, view)

    def _match_product(self, node: ir.Node, view: View) -> LowSite | Skip | None:
        """Return the site of a 0/1 mask times a too low number, or why it is skipped."""
        for index, factor in enumerate(node.inputs):
            fill, mask = fill_of(factor), node.inputs[1 - index]
            if fill is None or mask is None or not has_fixed_attributes(factor):
                continue
            # A floor is never nearer to 0 than this; few products need to be followed.
            if abs(fill.number) <= abs(self.floor):
                return None
            sign, truths = _sign_and_truths(mask, view)
            reach = reach_of(node.outputs[0], view, to_bool=True)
            floor = math.copysign(self.floor / min(reach.scale, 1.0), fill.number)
            if not reach.softmaxes or abs(fill.number) <= abs(floor):
                return None
            if truths is None:
                unknown = f"{mask.name!r} is not known to be a mask of 0 and 1"
                return Skip(node, unknown) if fill.number < 0 else None
            if (reason := reach.blocked or why_hides_whole_rows(mask, reach, view)) is not None:
                return Skip(node, reason)
            if fill.number * sign > 0:
                return Skip(node, f"it adds {abs(fill.number):g} where {mask.name!r} is not 0")
            names = " and ".join(repr(x.name) for x in truths)
            note = f"takes it that {names} holds only 0 and 1" if truths else ""
            return self._make_site(node, index, floor, fill.dtype, note)
        return None

    def _match_sum(self, node: ir.Node, view: View) -> LowSite | Skip | None:
        """Return the site of a sum with a too low constant mask, or why it is skipped."""
        masks = [(index, lowest_of(value)) for index, value in enumerate(node.inputs)]
        # Few sums have one, and only those are followed: a residual reaches all later layers.
        low = [(index, x) for index, x in masks if x is not None and x.number < self.floor]
        reach = reach_of(node.outputs[0], view, to_bool=False) if low else Reach()
        if not reach.softmaxes:
            return None
        floor = self.floor / min(reach.scale, 1.0)
        for index, lowest in low:
            if lowest.number < floor:
                reason = reach.blocked or why_hides_whole_rows(node.inputs[index], reach, view)
                site = self._make_site(node, index, floor, lowest.dtype)
                return site if reason is None else Skip(node, reason)
        return None

    def _make_site(
        self, node: ir.Node, index: int, floor: float, dtype: np.dtype[np.generic], note: str = ""
    ) -> LowSite | Skip:
        """Return the site, or why its floor does not fit the dtype."""
        with np.errstate(over="ignore"):
            if not np.isfinite(np.float64(floor).astype(dtype).astype(np.float64)):
                return Skip(node, f"floor={floor:g} is no number in {dtype}")
        return LowSite(node, index, floor, note=note)

    def rewrite(self, match: LowSite, op: Builder) -> ir.Value:
        """Build the same node with the floor as its constant."""
        inputs = list(match.node.inputs)
        inputs[match.index] = clamp_mask(inputs[match.index], match.floor, op)
        return op.make(match.node.op_type, *inputs)


def _sign_and_truths(mask: ir.Value, view: View) -> tuple[int, list[ir.Value] | None]:
    """Return the nonzero value of ``mask``, 1 or -1, and the tensors that must be 0/1.

    The tensors are None if the values of the mask are unknown.
    """
    node = mask.producer()
    if is_op(node, "Sub") and is_all_ones(node.inputs[1]) and node.inputs[0] is not None:
        return -1, zero_one_sources(node.inputs[0], view)
    return 1, zero_one_sources(mask, view)
