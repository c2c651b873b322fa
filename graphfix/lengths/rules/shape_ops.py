"""Rules for sizes, and for what is made to a size: these know nothing of a tensor's contents."""

import dataclasses

from graphfix.graph.constants import const_of
from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.rule_site import AcceptedInputs, PaddingRule, RuleSite
from graphfix.lengths.tail_state import FINITE, Tail, TensorState, sign_of_number, state_with_tail


def infer_sizes(site: RuleSite) -> TensorState:
    """Infer sizes that are arranged again: they count padding in if one of them does."""
    data = site.contents_of(site.node.outputs[0])
    physical = data is None or any(site.grows_with_padding(x) for x in data)
    is_nonnegative = data is not None and all(x.is_nonnegative for x in data)
    result = site.output_of_shape(fixed=not physical)
    return dataclasses.replace(result, counts_padding=physical, sign=1 if is_nonnegative else 0)


def infer_range(site: RuleSite) -> TensorState:
    """Infer positions: the same from the first on, however long."""
    start, _, step = (site.input_contents(i) for i in range(3))
    state = state_with_tail(site.output_axes(), FINITE)
    physical = any(x is not None and x.counts_padding for x in site.states)
    if not physical:
        state = site.output_without_time(fixed=all(x.fixed for x in site.states if x is not None))
    if start is not None and step is not None and start[0].is_Integer and step[0].is_Integer:
        first, by = int(start[0]), int(step[0])
        sign = sign_of_number(first) if by > 0 else 0
        state = dataclasses.replace(state, steps=(first, by), sign=sign)
    elif physical:
        array = const_of(site.node.inputs[0]), const_of(site.node.inputs[2])
        if any(x is None for x in array) or not state.time_axes:
            raise RefusedError("where it begins, or its step, depends on the padded length")
    return dataclasses.replace(state, fixed=True) if physical else state


def infer_constant_of_shape(site: RuleSite) -> TensorState:
    """Infer one number everywhere."""
    attribute = site.node.attributes.get("value")
    fill = 0.0 if attribute is None else float(attribute.as_tensor().numpy().reshape(-1)[0])
    state = state_with_tail(
        tuple(map(site.axis_of_repeats, site.output_dims())), Tail("number", fill)
    )
    return dataclasses.replace(state, fixed=True, fill=fill, sign=sign_of_number(fill))


def infer_random(site: RuleSite) -> TensorState:
    """Infer numbers that no run repeats: there is nothing to keep."""
    return state_with_tail(site.output_axes(), FINITE)


RULES = {
    "ConstantOfShape": PaddingRule(infer_constant_of_shape, AcceptedInputs.SIZES),
    **dict.fromkeys(("RandomNormal", "RandomNormalLike"), PaddingRule(infer_random)),
    **dict.fromkeys(("RandomUniform", "RandomUniformLike"), PaddingRule(infer_random)),
    "Range": PaddingRule(infer_range, AcceptedInputs.SIZES),
    "Shape": PaddingRule(
        infer_sizes, AcceptedInputs.SIZES | AcceptedInputs.SHRINKING | AcceptedInputs.PLACES
    ),
    "Size": PaddingRule(infer_sizes, AcceptedInputs.SIZES | AcceptedInputs.SHRINKING),
}
