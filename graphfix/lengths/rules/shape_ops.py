"""Rules for sizes, and for tensors made to a size, whose contents come from no other tensor."""

import dataclasses

from graphfix import ops
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import input_at
from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.rule_site import AcceptedInputs, PaddingRule, RuleSite
from graphfix.lengths.tail_state import FINITE, Tail, TensorState, sign_of_number, state_with_tail


def infer_sizes(site: RuleSite) -> TensorState:
    """Infer sizes that are moved or computed: they count padding in if one of them does."""
    data = site.contents_of(site.node.outputs[0])
    physical = data is None or any(site.grows_with_padding(x) for x in data)
    is_nonnegative = data is not None and all(x.is_nonnegative for x in data)
    result = site.output_of_shape(fixed=not physical)
    return dataclasses.replace(result, counts_padding=physical, sign=1 if is_nonnegative else 0)


def infer_range(site: RuleSite) -> TensorState:
    """Infer positions, which start the same at any length."""
    states = site.present_states()
    if not any(x.counts_padding for x in states):
        unpadded = site.output_without_time(fixed=all(x.fixed for x in states))
        return _with_steps(site, unpadded) or unpadded
    state = dataclasses.replace(state_with_tail(site.output_axes(), FINITE), fixed=True)
    counted = _with_steps(site, state)
    if counted is not None:
        return counted
    # The first number and the step may be floats.
    are_constant = all(const_of(input_at(site.node, i)) is not None for i in (0, 2))
    if not are_constant or not state.time_axes:
        raise RefusedError("where it begins, or its step, depends on the padded length")
    return state


def _with_steps(site: RuleSite, state: TensorState) -> TensorState | None:
    """Add where a Range starts and its step; None if they are not known integers."""
    start, step = site.input_contents(0), site.input_contents(2)
    if not start or not step or not start[0].is_Integer or not step[0].is_Integer:
        return None
    first, by = int(start[0]), int(step[0])
    return dataclasses.replace(
        state, steps=(first, by), sign=sign_of_number(first) if by > 0 else 0
    )


def infer_constant_of_shape(site: RuleSite) -> TensorState:
    """Infer one number everywhere."""
    attribute = site.node.attributes.get("value")
    fill = 0.0 if attribute is None else float(attribute.as_tensor().numpy().reshape(-1)[0])
    state = state_with_tail(
        tuple(map(site.axis_of_repeats, site.output_dims())), Tail("number", fill)
    )
    return dataclasses.replace(state, fixed=True, fill=fill, sign=sign_of_number(fill))


def infer_random(site: RuleSite) -> TensorState:
    """Infer random numbers: there is nothing to keep."""
    return state_with_tail(site.output_axes(), FINITE)


RULES = {
    "ConstantOfShape": PaddingRule(infer_constant_of_shape, AcceptedInputs.SIZES),
    # A Bernoulli and a Multinomial draw by what their input holds.
    **dict.fromkeys(ops.RANDOM - ops.named("Bernoulli Multinomial"), PaddingRule(infer_random)),
    "Range": PaddingRule(infer_range, AcceptedInputs.SIZES),
    "Shape": PaddingRule(
        infer_sizes, AcceptedInputs.SIZES | AcceptedInputs.SHRINKING | AcceptedInputs.PLACES
    ),
    "Size": PaddingRule(infer_sizes, AcceptedInputs.SIZES | AcceptedInputs.SHRINKING),
}
