"""Col2Im: blocks laid side by side, or over one another, and added (``F.fold``, overlap-add)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphfix.lengths.joint_axes import RefusedError, check_apart
from graphfix.lengths.rule_site import Rule, Site, Takes
from graphfix.lengths.tail_state import ANY, FINITE, carries_time, time_of, with_tails
from graphfix.model.values import attr_ints

if TYPE_CHECKING:
    import sympy

    from graphfix.lengths.tail_state import State


def col2im(site: Site) -> State:
    """What a block adds behind the valid length must be nothing: the last ones reach there."""
    state = site.state()
    if state.axes is None or state.rank != 3:
        raise RefusedError("its blocks are not [batch, channels, blocks]")
    if any(x is not None and x.timed for x in site.states[1:]) or carries_time(state.at(1)):
        raise RefusedError("what it adds to a block carries time")
    check_apart(state, (1, 2))
    image, block, out = site.contents(1), site.ints(2), site.out_dims()
    if image is None or block is None:
        raise RefusedError("how large the image and its blocks are is not known")
    grown = [i for i, x in enumerate(image) if site.grows(x)]
    if carries_time(state.at(2)):
        if len(grown) != 1 or time_of(state.at(2)) is None:
            raise RefusedError("its blocks do not lie along time alone")
        others = [i for i in range(len(image)) if i not in grown]
        if not all(_is_one_block(site, i, image[i], block[i]) for i in others):
            raise RefusedError("its blocks lie along another axis, too")
        state = site.need_zero(0, 2, "boundary leak")
    elif grown:
        raise RefusedError("its result grows with the padding, and its blocks do not")
    axes = [state.at(0), *map(site.axis_of, out[1:])]
    tail = FINITE if state.is_finite else ANY
    return with_tails(axes, tail)


def _is_one_block(site: Site, place: int, size: sympy.Expr, block: int) -> bool:
    """Whether there is a single block along an axis of the image."""
    count = len(site.ints(2) or ())
    pads = attr_ints(site.node, "pads") or (0,) * (2 * count)
    dilation = (attr_ints(site.node, "dilations") or (1,) * count)[place]
    stride = (attr_ints(site.node, "strides") or (1,) * count)[place]
    spare = size + pads[place] + pads[count + place] - dilation * (block - 1) - 1
    return bool(spare.is_Integer and spare < stride)


RULES = {"Col2Im": Rule(col2im, Takes.SIZES_BEHIND)}
