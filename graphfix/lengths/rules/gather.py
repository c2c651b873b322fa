"""Rules for Gather, Scatter and their kin: an index that is itself valid reads what is valid."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir
import sympy

from graphfix import ops
from graphfix.facts.mask_lookups import counting_axis, identity_lookup
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import attr_int, is_op, producer_of, value_before
from graphfix.graph.walks import reachable_from
from graphfix.lengths import tail_state as facts
from graphfix.lengths.joint_axes import (
    RefusedError,
    check_rows_unmixed,
    join_axes,
    require_sole_time,
)
from graphfix.lengths.rule_site import AcceptedInputs, Numbers, PaddingRule, RuleSite
from graphfix.lengths.rules.result_tail import masked_number_tail
from graphfix.lengths.rules.shape_ops import infer_sizes

_PASSES_ON = ops.MOVES_ELEMENTS | ops.ELEMENTWISE
"""A number that strays in an input of these may stray in the result."""


def infer_gather(site: RuleSite) -> facts.TensorState:
    """Infer a Gather: along time at an index that is not negative, or from the valid end."""
    if site.input_state(0).counts_padding:
        return infer_sizes(site)
    data, index = site.input_state(0), _index_in_range(site)
    if data.axes is None or index.axes is None:
        return site.output_without_time()
    axis = site.axis_attribute(data.rank)
    if facts.carries_time(data.factors_of(axis)):
        return _gather_along_time(site, data, index, axis)
    if index.counts_padding:
        raise RefusedError("it reads a table at the padded length")
    if data.time_axes and facts.holds_rows(data.factors_of(axis)):
        raise _rows_refusal(site)
    return _gather_result(data, index, axis)


def _rows_refusal(site: RuleSite) -> RefusedError:
    """Return the refusal of a node that picks rows of the batch."""
    rows = site.input_array(1)
    is_later = rows is not None and bool(np.greater(rows, 0).any())  # a batch of 1 has no such row
    advice = "export the model for one clip" if is_later else site.batch_advice()
    return RefusedError(f"it picks rows of the batch, and each has its own length: {advice}")


def _index_in_range(site: RuleSite) -> facts.TensorState:
    """Request an index that stays in range: 0 where the padding may be any number."""
    index = site.input_state(1)
    if index.time_axes and _index_may_stray(site.node.inputs[1], site):
        for axis in index.time_axes:
            if site.input_state(1).tail_along(axis).kind not in ("number", "last"):
                site.require_zero_tail(1, axis, "stray index")
    return site.input_state(1)


def _index_may_stray(value: ir.Value | None, site: RuleSite) -> bool:
    """Return whether an index may be out of range in its tail, since it is computed from floats.

    A user pads an input of integers with numbers that the model takes. A float of the tail may be
    anything, and an index out of range ends the whole run.
    """

    def may_stray(value: ir.Value) -> bool:
        state = site.state_of(value)
        if state is None or state.fixed:
            return False
        return any(state.tail_along(i).kind not in ("number", "last") for i in state.time_axes)

    def sources_of(value: ir.Value) -> Sequence[ir.Value | None]:
        node, dtype = value.producer(), site.source.shapes.dtype(value)
        is_truth = dtype == ir.DataType.BOOL  # a comparison gives 0 or 1, whatever it compares
        if is_truth or not _PASSES_ON.has(node) or not may_stray(value):
            return ()
        return node.inputs[1:] if is_op(node, "Where") else node.inputs

    types = (
        site.source.shapes.dtype(x) for x in reachable_from([value], sources_of) if may_stray(x)
    )
    return any(x is not None and x.is_floating_point() for x in types)


def _gather_result(
    data: facts.TensorState, index: facts.TensorState, axis: int
) -> facts.TensorState:
    leading, trailing = (data.axes or ())[:axis], (data.axes or ())[axis + 1 :]
    axes = (*leading, *(index.axes or ()), *trailing)
    picked = (x and (x if x.kind == "last" else data.mixed_tail) for x in index.tails)
    tails = (*data.tails[:axis], *picked, *data.tails[axis + 1 :])
    fixed = data.fixed and index.fixed
    return facts.TensorState(
        axes, tails, fixed=fixed, sign=data.sign, fill=data.fill, valid_fill=data.valid_fill
    )


def _gather_along_time(
    site: RuleSite, data: facts.TensorState, index: facts.TensorState, axis: int
) -> facts.TensorState:
    if index.stride is not None:
        return _gather_by_row(data, index, axis)
    time = require_sole_time(data.factors_of(axis), "it reads an axis that")
    offsets = _offsets_from_end(site, index, time.size)
    if offsets is not None and index.rank <= 1:
        site.request_last_frames(data, axis, offsets, drop=index.rank == 0)
        # The last entry of a running count of what is valid is the length.
        length = time.size if data.length is not None and offsets == (-1,) else None
        return dataclasses.replace(
            _gather_result(data, facts.state_without_time(index.axes), axis), length=length
        )
    if index.counts_padding:
        raise RefusedError("it reads at a place that depends on the padded length")
    if index.sign < 1 and not _is_never_negative(site.input_array(1)):
        raise RefusedError("it reads along time at an index that may count from the end")
    return _gather_result(data, index, axis)


def _offsets_from_end(
    site: RuleSite, index: facts.TensorState, size: sympy.Expr
) -> tuple[int, ...] | None:
    """Return where an index reads if it counts from the end of time: -1 is the last frame."""
    array, contents = site.input_array(1), site.input_contents(1)
    if array is not None and array.size and np.less(array, 0).all():
        return tuple(int(x) for x in array.reshape(-1))
    if contents is None or not index.counts_padding:
        return None
    gaps = [x - size for x in contents]
    return tuple(map(int, gaps)) if all(x.is_Integer and x < 0 for x in gaps) else None


def _is_never_negative(array: Numbers | None) -> bool:
    """Return whether an index is known, and counts from the beginning."""
    return array is not None and bool(np.greater_equal(array, 0).all())


def _gather_by_row(
    data: facts.TensorState, index: facts.TensorState, axis: int
) -> facts.TensorState:
    """Infer ``x[row, position]`` where [B, T] is one axis."""
    factors = data.factors_of(axis)
    time_axes = [i for i in index.time_axes if index.factors_of(i) == factors[1:]]
    rows = (
        len(factors) == 2
        and isinstance(factors[0], facts.BatchFactor)
        and isinstance(factors[1], facts.TimeFactor)
    )
    if not rows or factors[1].size != index.stride or len(time_axes) != 1 or index.steps is None:
        raise RefusedError("it reads rows of another size than those it was made of")
    result = dataclasses.replace(_gather_result(data, index, axis), length=data.length)
    return result.with_tail(axis + time_axes[0], data.tail_along(axis))


def infer_gather_elements(site: RuleSite) -> facts.TensorState:
    """Infer a GatherElements: the result is valid where the index is."""
    data, index = site.input_state(0), _index_in_range(site)
    if data.axes is None or index.axes is None:
        return site.output_without_time()
    axis = site.axis_attribute(data.rank)
    if index.counts_padding or data.counts_padding:
        raise RefusedError("it reads at a place that depends on the padded length")
    if data.time_axes and facts.holds_rows(data.factors_of(axis)):
        raise _rows_refusal(site)
    _check_places(data, index, (axis,))
    axes = tuple(
        index.factors_of(i) if i == axis else join_axes([data.factors_of(i), index.factors_of(i)])
        for i in range(data.rank)
    )
    return dataclasses.replace(facts.state_with_tail(axes, data.mixed_tail), sign=data.sign)


def _check_places(data: facts.TensorState, index: facts.TensorState, axes: Iterable[int]) -> None:
    """Refuse an index along time that may count from the end."""
    for axis in axes:
        if facts.carries_time(data.factors_of(axis)):
            if index.sign < 1:
                raise RefusedError("it reads along time at an index that may count from the end")
            require_sole_time(data.factors_of(axis), "it reads an axis that")


def _number_of_axes_read(index: facts.TensorState) -> int:
    """Return how many axes a GatherND reads at: the size of the last axis of its index.

    Raises:
        RefusedError: It is not known; of a NonZero not even the rank may be.
    """
    depth = index.factors_of(index.rank - 1) if index.axes else ()
    count = 1 if not depth else int(depth[0].size) if depth[0].size.is_Integer else 0
    if not count or not index.axes:
        raise RefusedError("how many axes it reads is not known")
    return count


def infer_gather_nd(site: RuleSite) -> facts.TensorState:
    """Infer a GatherND, which indexes several axes at once."""
    data, index = site.input_state(0), _index_in_range(site)
    batch = attr_int(site.node, "batch_dims", 0)
    if data.axes is None or index.axes is None or data.counts_padding or index.counts_padding:
        raise RefusedError("it reads at a place that depends on the padded length")
    own = _lookup_in_place(site, data, index)
    if own is not None:
        return own
    count = _number_of_axes_read(index)
    read = range(batch, batch + count)
    rows = [i for i in read if facts.holds_rows(data.factors_of(i))]
    if data.time_axes and not all(_reads_own_rows(site, index, i - batch) for i in rows):
        raise _rows_refusal(site)
    _check_places(data, index, read)
    places = [join_axes([data.factors_of(i), index.factors_of(i)]) for i in range(batch)]
    axes = (*places, *(index.axes[batch:-1]), *data.axes[batch + count :])
    return dataclasses.replace(facts.state_with_tail(axes, data.mixed_tail), sign=data.sign)


def _reads_own_rows(site: RuleSite, index: facts.TensorState, at: int) -> bool:
    """Return whether an index along the batch is the row that the result belongs to."""
    place = counting_axis(site.node, site.source.shapes, at)
    return place is not None and facts.holds_rows(index.factors_of(place))


def _lookup_in_place(
    site: RuleSite, data: facts.TensorState, index: facts.TensorState
) -> facts.TensorState | None:
    """Infer a lookup of every element at its own place, which is a transpose; or None."""
    lookup = identity_lookup(site.node, site.source.shapes)
    if lookup is None or data.axes is None or index.axes is None:
        return None
    axes, tails = (
        list(index.axes[:-1]),
        [None if x is None else facts.FINITE for x in index.tails[:-1]],
    )
    try:
        for i, place in enumerate(lookup.index_axes):
            looked_up, size = facts.size_of(data.factors_of(i)), facts.size_of(axes[place])
            if not facts.same_size(looked_up, size):  # only the first of them
                return None
            axes[place] = join_axes([data.factors_of(i), axes[place]])
            tails[place] = data.tails[i]
    except RefusedError:  # it counts something else than what it reads
        return None
    if any(facts.carries_time(x) and t is None for x, t in zip(axes, tails, strict=True)):
        return None
    return dataclasses.replace(data, axes=tuple(axes), tails=tuple(tails), steps=None, stride=None)


def infer_scatter(site: RuleSite) -> facts.TensorState:
    """Infer a scatter to valid places, or of one number to all places of a mask."""
    data, index = site.input_state(0), site.input_state(1)
    if index.places is not None:
        return _write_at_mask(data, index.places, scattered_number(site.node))
    updates = site.input_state(2)
    if index.counts_padding or updates.counts_padding or index.time_axes:
        raise RefusedError("where it writes depends on the padding")
    if updates.time_axes and any(x is not None for x in updates.tails):
        raise RefusedError("what it writes carries time")
    _check_scatter_places(site, data, index)
    # Natively it wrote at valid places; the tail stays what it was.
    result = data.with_other_numbers(data.tails, min(data.sign, updates.sign))
    return dataclasses.replace(result, fixed=False)


def _check_scatter_places(
    site: RuleSite, data: facts.TensorState, index: facts.TensorState
) -> None:
    """Refuse places that count from the end, and those of single rows of the batch."""
    if data.axes is None or index.axes is None:
        raise RefusedError("the rank of one of its inputs is not known")
    if site.input_array(1) is None and not index.fixed:
        return  # natively it wrote at valid places
    for axis, places in _scatter_places(site, data, index).items():
        counts_back = index.sign < 1 and not _is_never_negative(places)
        if facts.carries_time(data.factors_of(axis)):
            require_sole_time(data.factors_of(axis), "it writes to an axis that")
            if counts_back:
                raise RefusedError("it writes along time at an index that may count from the end")
        if places is not None:
            check_rows_unmixed(data, (axis,))


def _scatter_places(
    site: RuleSite, data: facts.TensorState, index: facts.TensorState
) -> dict[int, Numbers | None]:
    """Return where a scatter writes along each axis that it indexes; None where not known."""
    array = site.input_array(1)
    if not is_op(site.node, "ScatterND"):
        return {site.axis_attribute(data.rank): array}
    depth = index.factors_of(index.rank - 1)
    count = int(depth[0].size) if depth and depth[0].size.is_Integer else len(depth) or 1
    return {i: None if array is None else array[..., i] for i in range(count)}


def scattered_number(node: ir.Node) -> float | None:
    """Return the one number that a ScatterND puts at all places of a mask, or None.

    The nodes that repeat it as often as the mask has places need no analysis.
    """
    value = node.inputs[2] if is_op(node, "ScatterND") else None
    if value is None or not is_op(producer_of(node.inputs[1], "Transpose", "Cast"), "NonZero"):
        return None
    number = scalar_of(value_before(value, "Expand", "Reshape", "Cast", "Identity"))
    return None if number is None else float(number)


def _write_at_mask(
    data: facts.TensorState, places: facts.TensorState, number: float | None
) -> facts.TensorState:
    """Infer ``x[mask] = number``."""
    if number is None:
        raise RefusedError("it writes different numbers at the places of a mask")
    tails: list[facts.Tail | None] = []
    for i, tail in enumerate(data.tails):
        mask = places.tails[i] if i < places.rank else None
        if tail is None:
            tails.append(None)
        elif mask is not None and mask.kind == "number":
            tails.append(
                masked_number_tail(number, True, places.valid_value) if mask.value else tail
            )
        else:
            tails.append(tail if tail == facts.Tail("number", number) else tail.after_arithmetic)
    return facts.TensorState(
        data.axes, tuple(tails), sign=min(data.sign, facts.sign_of_number(number))
    )


RULES = {
    "Gather": PaddingRule(infer_gather, AcceptedInputs.SIZES),
    "GatherElements": PaddingRule(infer_gather_elements),
    "GatherND": PaddingRule(infer_gather_nd, AcceptedInputs.PLACES),
    # The places of a mask are no tensor of frames, but a ScatterND may write there.
    "NonZero": PaddingRule(
        lambda site: facts.TensorState((), (), places=site.input_state()), AcceptedInputs.PLACES
    ),
    "ScatterElements": PaddingRule(infer_scatter),
    "ScatterND": PaddingRule(infer_scatter, AcceptedInputs.PLACES),
}
