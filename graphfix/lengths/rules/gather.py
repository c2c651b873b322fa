"""Gather, Scatter and their kin: an index that is valid alone reads what is valid."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from graphfix.facts.mask_lookups import looked_up, own_rows
from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import attr_int, before, is_op, maker_of
from graphfix.graph.walks import reached
from graphfix.lengths import tail_state as facts
from graphfix.lengths.joint_axes import RefusedError, check_apart, join, only_time
from graphfix.lengths.number_effects import MANY, UNARY
from graphfix.lengths.rule_site import Rule, Site, Takes
from graphfix.lengths.rules.result_tail import hidden
from graphfix.lengths.rules.shape_ops import of_sizes

_HANDS_ON = frozenset({"Concat", "Expand", "Flatten", "Gather", "Reshape", "Slice", "Squeeze"})
_HANDS_ON |= {"Tile", "Transpose", "Unsqueeze", *UNARY, *MANY}


def gather(site: Site) -> facts.State:
    """Along time an index that is not negative; from the end, the end of what is valid."""
    if site.state(0).physical:
        return of_sizes(site)
    data, index = site.state(0), _in_range(site)
    if data.axes is None or index.axes is None:
        return site.without_time()
    axis = attr_int(site.node, "axis", 0) % data.rank
    if facts.carries_time(data.at(axis)):
        return _along_time(site, data, index, axis)
    if index.physical:
        raise RefusedError("it reads a table at the padded length")
    if data.timed and facts.holds_rows(data.at(axis)):
        raise RefusedError("it picks rows of the batch")
    return _joined(data, index, axis)


def _in_range(site: Site) -> facts.State:
    """An index that reads nowhere outside: where padding may be any number, there is a 0."""
    index = site.state(1)
    if index.timed and _strays(site.node.inputs[1], site):
        for axis in index.timed:
            if site.state(1).tail(axis).kind not in ("number", "last"):
                site.need_zero(1, axis, "stray index")
    return site.state(1)


def _strays(value: ir.Value | None, site: Site) -> bool:
    """Whether an integer behind what is valid was a float there: any number, or none at all.

    What a user pads an input of integers with is a number that the model takes, and so is what is
    computed from it. Outside a table the whole run ends.
    """

    def may_stray(value: ir.Value) -> bool:
        state = site.known(value)
        if state is None or state.fixed:
            return False
        return any(state.tail(i).kind not in ("number", "last") for i in state.timed)

    def behind(value: ir.Value) -> Sequence[ir.Value | None]:
        node, dtype = value.producer(), site.source.shapes.dtype(value)
        asks = dtype == ir.DataType.BOOL  # what is asked is 0 or 1
        if asks or not is_op(node, *_HANDS_ON) or not may_stray(value):
            return ()
        return node.inputs[1:] if is_op(node, "Where") else node.inputs

    types = (site.source.shapes.dtype(x) for x in reached([value], behind) if may_stray(x))
    return any(x is not None and x.is_floating_point() for x in types)


def _joined(data: facts.State, index: facts.State, axis: int) -> facts.State:
    before, after = (data.axes or ())[:axis], (data.axes or ())[axis + 1 :]
    axes = (*before, *(index.axes or ()), *after)
    picked = (x and (x if x.kind == "last" else data.made) for x in index.tails)
    tails = (*data.tails[:axis], *picked, *data.tails[axis + 1 :])
    fixed = data.fixed and index.fixed
    return facts.State(axes, tails, fixed=fixed, sign=data.sign, fill=data.fill, inside=data.inside)


def _along_time(site: Site, data: facts.State, index: facts.State, axis: int) -> facts.State:
    if index.stride is not None:
        return _by_row(data, index, axis)
    time = only_time(data.at(axis), "it reads an axis that")
    array = site.array(1)
    contents = site.contents(1)
    offsets: tuple[int, ...] | None = None
    if array is not None and np.less(array, 0).all() and array.size:
        offsets = tuple(int(x) for x in array.reshape(-1))
    elif contents is not None and index.physical:
        gaps = [x - time.size for x in contents]
        if all(x.is_Integer and x < 0 for x in gaps):
            offsets = tuple(int(x) for x in gaps)
    if offsets is not None and index.rank <= 1:
        site.read_last(data, axis, offsets, drop=index.rank == 0)
        # The last entry of a running count of what is valid is the length.
        length = time.size if data.length is not None and offsets == (-1,) else None
        return dataclasses.replace(_joined(data, facts.plain(index.axes), axis), length=length)
    if index.physical:
        raise RefusedError("it reads at a place that depends on the padded length")
    if index.sign < 1 and not (array is not None and np.greater_equal(array, 0).all()):
        raise RefusedError("it reads along time at an index that may count from the end")
    return _joined(data, index, axis)


def _by_row(data: facts.State, index: facts.State, axis: int) -> facts.State:
    """``x[row, position]``, where [B, T] was made one axis."""
    factors = data.at(axis)
    moved = [i for i in index.timed if index.at(i) == factors[1:]]
    rows = (
        len(factors) == 2
        and isinstance(factors[0], facts.Rows)
        and isinstance(factors[1], facts.Time)
    )
    if not rows or factors[1].size != index.stride or len(moved) != 1 or index.steps is None:
        raise RefusedError("it reads rows of another size than those it was made of")
    result = dataclasses.replace(_joined(data, index, axis), length=data.length)
    return result.with_tail(axis + moved[0], data.tail(axis))


def gather_elements(site: Site) -> facts.State:
    """An index for each element: valid where the index is, which natively was in range."""
    data, index = site.state(0), _in_range(site)
    if data.axes is None or index.axes is None:
        return site.without_time()
    axis = attr_int(site.node, "axis", 0) % data.rank
    if index.physical or data.physical:
        raise RefusedError("it reads at a place that depends on the padded length")
    if data.timed and facts.holds_rows(data.at(axis)):
        raise RefusedError("it picks rows of the batch")
    _check_places(data, index, (axis,))
    axes = tuple(
        index.at(i) if i == axis else join([data.at(i), index.at(i)]) for i in range(data.rank)
    )
    return dataclasses.replace(facts.with_tails(axes, data.made), sign=data.sign)


def _check_places(data: facts.State, index: facts.State, axes: Iterable[int]) -> None:
    """Refuse places along time that do not count from its beginning."""
    for axis in axes:
        if facts.carries_time(data.at(axis)):
            if index.sign < 1:
                raise RefusedError("it reads along time at an index that may count from the end")
            only_time(data.at(axis), "it reads an axis that")


def gather_nd(site: Site) -> facts.State:
    """An index of several axes at once."""
    data, index = site.state(0), _in_range(site)
    batch = attr_int(site.node, "batch_dims", 0)
    if data.axes is None or index.axes is None or data.physical or index.physical:
        raise RefusedError("it reads at a place that depends on the padded length")
    own = _in_place(site, data, index)
    if own is not None:
        return own
    depth = index.at(index.rank - 1)
    count = 1 if not depth else int(depth[0].size) if depth[0].size.is_Integer else 0
    if not count:
        raise RefusedError("how many axes it reads is not known")
    read = range(batch, batch + count)
    rows = [i for i in read if facts.holds_rows(data.at(i))]
    if data.timed and not all(_reads_own_rows(site, index, i - batch) for i in rows):
        raise RefusedError("it picks rows of the batch")
    _check_places(data, index, read)
    places = [join([data.at(i), index.at(i)]) for i in range(batch)]
    axes = (*places, *(index.axes[batch:-1]), *data.axes[batch + count :])
    return dataclasses.replace(facts.with_tails(axes, data.made), sign=data.sign)


def _reads_own_rows(site: Site, index: facts.State, at: int) -> bool:
    """Whether one of the indices is the row of the batch that the result is of."""
    place = own_rows(site.node, site.source.shapes, at)
    return place is not None and facts.holds_rows(index.at(place))


def _in_place(site: Site, data: facts.State, index: facts.State) -> facts.State | None:
    """A lookup of every element in its own place: the table, its axes elsewhere."""
    found = looked_up(site.node, site.source.shapes)
    if found is None or data.axes is None or index.axes is None:
        return None
    axes, tails = (
        list(index.axes[:-1]),
        [None if x is None else facts.FINITE for x in index.tails[:-1]],
    )
    try:
        for i, place in enumerate(found.at):
            if not facts.same_size(
                facts.size_of(data.at(i)), facts.size_of(axes[place])
            ):  # only the first of them
                return None
            axes[place] = join([data.at(i), axes[place]])
            tails[place] = data.tails[i]
    except RefusedError:  # it counts something else than what it reads
        return None
    if any(facts.carries_time(x) and t is None for x, t in zip(axes, tails, strict=True)):
        return None
    return dataclasses.replace(data, axes=tuple(axes), tails=tuple(tails), steps=None, stride=None)


def scatter(site: Site) -> facts.State:
    """Writes at valid places; where it writes a constant at all places of a mask, it is a Where."""
    data, index = site.state(0), site.state(1)
    if index.places is not None:
        return _masked(data, index.places, written(site.node))
    updates = site.state(2)
    if index.physical or updates.physical or index.timed:
        raise RefusedError("where it writes depends on the padding")
    if updates.timed and any(x is not None for x in updates.tails):
        raise RefusedError("what it writes carries time")
    _check_written(site, data, index)
    # Natively it wrote at valid places; the tail stays what it was.
    result = data.of_others(data.tails, min(data.sign, updates.sign))
    return dataclasses.replace(result, fixed=False)


def _check_written(site: Site, data: facts.State, index: facts.State) -> None:
    """Refuse places that count from the end, and those of single rows of the batch."""
    if data.axes is None or index.axes is None:
        raise RefusedError("the rank of one of its inputs is not known")
    array = site.array(1)
    if array is None and not index.fixed:
        return  # natively it wrote at valid places
    if site.node.op_type == "ScatterND":
        depth = index.at(index.rank - 1)
        axes = range(int(depth[0].size) if depth and depth[0].size.is_Integer else len(depth) or 1)
        places = [None if array is None else array[..., i] for i in axes]
    else:
        axes = range(attr_int(site.node, "axis", 0) % data.rank, data.rank)[:1]
        places = [array]
    for axis, place in zip(axes, places, strict=True):
        counts_back = index.sign < 1 and (place is None or bool(np.less(place, 0).any()))
        if facts.carries_time(data.at(axis)):
            only_time(data.at(axis), "it writes to an axis that")
            if counts_back:
                raise RefusedError("it writes along time at an index that may count from the end")
        if place is not None:
            check_apart(data, (axis,))


def written(node: ir.Node) -> float | None:
    """The number that a ScatterND puts at each place of a mask, if it is one and the same.

    How often it is repeated depends on the mask; the graph around that need not be looked at.
    """
    value = node.inputs[2] if is_op(node, "ScatterND") else None
    if value is None or not is_op(maker_of(node.inputs[1], "Transpose", "Cast"), "NonZero"):
        return None
    number = scalar_of(before(value, "Expand", "Reshape", "Cast", "Identity"))
    return None if number is None else float(number)


def _masked(data: facts.State, places: facts.State, number: float | None) -> facts.State:
    """``x[mask] = number``."""
    if number is None:
        raise RefusedError("it writes different numbers at the places of a mask")
    tails: list[facts.Tail | None] = []
    for i, tail in enumerate(data.tails):
        mask = places.tails[i] if i < places.rank else None
        if tail is None:
            tails.append(None)
        elif mask is not None and mask.kind == "number":
            tails.append(hidden(number, True, places.level) if mask.value else tail)
        else:
            tails.append(tail if tail == facts.Tail("number", number) else tail.recomputed)
    return facts.State(data.axes, tuple(tails), sign=min(data.sign, facts.sign_in(number)))


RULES = {
    "Gather": Rule(gather, Takes.SIZES),
    "GatherElements": Rule(gather_elements),
    "GatherND": Rule(gather_nd, Takes.PLACES),
    # The places of a mask: no tensor of frames, but a Scatter may put numbers there.
    "NonZero": Rule(lambda site: facts.State((), (), places=site.state()), Takes.PLACES),
    "ScatterElements": Rule(scatter),
    "ScatterND": Rule(scatter, Takes.PLACES),
}
