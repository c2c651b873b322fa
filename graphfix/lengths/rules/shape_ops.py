"""Sizes, and what is made to a size: these know nothing of what is in a tensor."""

import dataclasses

from graphfix.graph.constants import const_of
from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.rule_site import Rule, Site, Takes
from graphfix.lengths.tail_state import FINITE, State, Tail, sign_in, with_tails


def of_sizes(site: Site) -> State:
    """Sizes, arranged again: they count padding in if one of them does."""
    data = site.held(site.node.outputs[0])
    physical = data is None or any(site.grows(x) for x in data)
    known = data is not None and all(x.is_nonnegative for x in data)
    result = site.of_its_shape(fixed=not physical)
    return dataclasses.replace(result, physical=physical, sign=1 if known else 0)


def range_(site: Site) -> State:
    """Positions: the same from the first on, however long."""
    start, _, step = (site.contents(i) for i in range(3))
    state = with_tails(site.axes_of(), FINITE)
    physical = any(x is not None and x.physical for x in site.states)
    if not physical:
        state = site.without_time(fixed=all(x.fixed for x in site.states if x is not None))
    if start is not None and step is not None and start[0].is_Integer and step[0].is_Integer:
        first, by = int(start[0]), int(step[0])
        sign = sign_in(first) if by > 0 else 0
        state = dataclasses.replace(state, steps=(first, by), sign=sign)
    elif physical:
        array = const_of(site.node.inputs[0]), const_of(site.node.inputs[2])
        if any(x is None for x in array) or not state.timed:
            raise RefusedError("where it begins, or its step, depends on the padded length")
    return dataclasses.replace(state, fixed=True) if physical else state


def constant_of_shape(site: Site) -> State:
    """One number everywhere."""
    attribute = site.node.attributes.get("value")
    fill = 0.0 if attribute is None else float(attribute.as_tensor().numpy().reshape(-1)[0])
    state = with_tails(tuple(map(site.same_along, site.out_dims())), Tail("number", fill))
    return dataclasses.replace(state, fixed=True, fill=fill, sign=sign_in(fill))


def random(site: Site) -> State:
    """Numbers that no run repeats: there is nothing to keep."""
    return with_tails(site.axes_of(), FINITE)


RULES = {
    "ConstantOfShape": Rule(constant_of_shape, Takes.SIZES),
    **dict.fromkeys(("RandomNormal", "RandomNormalLike"), Rule(random)),
    **dict.fromkeys(("RandomUniform", "RandomUniformLike"), Rule(random)),
    "Range": Rule(range_, Takes.SIZES),
    "Shape": Rule(of_sizes, Takes.SIZES | Takes.SHRINKING | Takes.PLACES),
    "Size": Rule(of_sizes, Takes.SIZES | Takes.SHRINKING),
}
