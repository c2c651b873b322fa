"""The windows that the mask of an attention cuts its sequence into."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from graphfix.core import Skip
from graphfix.model.values import attr_int, const_of, is_op, scalar_of

from .._attention.axis_layout import REGROUPS, layout_of
from .._attention.bit_tensors import (
    Bit,
    aligned,
    applied,
    axes_before,
    bits_of,
    is_always,
    only_number,
)
from .._attention.hiding_addend import KeyMask, key_mask_of
from .._attention.scores import Addend
from .._attention.site import is_of_keys
from .._masks.where_masks import HIDES, select_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from graphfix.model.view import View

    from .._attention.axis_layout import Role
    from .._attention.bit_tensors import Axes
    from .._attention.site import Attention

# A constant mask of 6,000 x 6,000 booleans takes 36 MB.
_LARGEST = 6000
_FAR = 24
_MOVES = ("Cast", "Identity", *REGROUPS)
# In float16 places are counted exactly up to 2,048 only.
_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
_INTEGERS = (ir.DataType.INT64, ir.DataType.INT32)
_OTHERWISE = (
    "its mask is computed from divided places, but not by whether query and key are in the same "
    "window"
)
_WITHIN = "what is added to its scores within a window differs by query"


@dataclass(frozen=True)
class Cut:
    """Windows that no score reaches beyond.

    Attributes:
        width: How long a window is; the last may be shorter.
        low: What is added to the score of a hidden key.
        keys: The masks of keys that hold within the windows.
    """

    width: int
    low: float
    keys: tuple[KeyMask, ...]


def cut_of(attention: Attention, view: View) -> Cut | Skip | None:
    """The windows of an attention; None if its mask is nothing like that."""
    parts = [part for addend in attention.addends for part in _summands(addend, view)]
    by_query = [part for part in parts if "query" in _roles(part.value, part.axes, view)]
    cuts = [_cut(part, view) for part in by_query]
    found = next((cut for cut in cuts if isinstance(cut, Cut)), None)
    if found is None:
        near = next((cut for cut in cuts if isinstance(cut, str)), None)
        return None if near is None else Skip(attention.node, near)
    if len(by_query) > 1:
        return Skip(attention.node, _WITHIN)
    masks = list(found.keys)
    for part in parts:
        if part is not by_query[0]:
            mask = key_mask_of(part, view)
            if mask is None:
                why = f"the addend {part.value.name} is not seen to be a mask of keys"
                return Skip(attention.node, why)
            masks.append(mask)
    for mask in masks:
        roles = [atom.role for atom in mask.bit.flat]
        if roles[-1:] != ["key"] or not is_of_keys(mask, attention.batch, attention.sizes):
            name = mask.bit.value.name
            why = f"its mask {name} is not seen to lie along the batch and the keys"
            return Skip(attention.node, why)
    low = max([found.low, *(mask.low for mask in masks)])
    return Cut(found.width, low, tuple(masks))


def hidden_windows(node: ir.Node, view: View) -> int | None:
    """The width of the windows that a Where before the Softmax behind ``node`` cuts, if any."""
    pending = [x for x in node.inputs[:1] if x is not None]
    for _ in range(_FAR):
        above = pending.pop().producer() if pending else None
        if above is None:
            continue
        select = select_of(above) if is_op(above, "Where") else None
        if select is None or select.fill.number > HIDES:
            pending += [x for x in above.inputs if x is not None]
            continue
        dims = view.shapes.dims(select.cond) or ()
        if len(dims) < 2:
            return None
        batch: list[Role] = ["batch" for _ in dims[2:]]
        axes = layout_of(dims, [*batch, "query", "key"]).axes
        conditions = _conditions(select.cond, not select.when, axes, view)
        cut = _read(conditions, HIDES, axes, view)
        return cut.width if isinstance(cut, Cut) else None
    return None


def _summands(addend: Addend, view: View) -> list[Addend]:
    """The addends that an addend is a sum of."""
    node = addend.value.producer()
    if not is_op(node, "Add") or const_of(addend.value) is not None:
        return [addend]
    parts = [
        replace(addend, value=x, bits=tuple(bits_of(x, addend.axes, view)))
        for x in node.inputs
        if x is not None
    ]
    return [each for part in parts for each in _summands(part, view)]


def _roles(value: ir.Value, axes: Axes, view: View) -> list[str]:
    own = aligned(value, axes, view)
    # How it lies is not known: it may differ by query.
    return ["query"] if own is None else [atom.role for axis in own for atom in axis]


def _cut(part: Addend, view: View) -> Cut | str | None:
    """The windows that an addend cuts by itself."""
    array = const_of(part.value, limit=_LARGEST**2)
    if array is not None:
        own = aligned(part.value, part.axes, view)
        added = array.astype(np.float64) * part.factor
        seen, hidden = added > HIDES, added[added <= HIDES]
        width = _width_of(seen) if own is not None and _is_square(own, part.axes) else None
        if width is not None and added[seen].any():
            return _WITHIN
        return None if width is None else Cut(width, float(hidden.max()), ())
    for bit in reversed(part.bits):
        numbers = [applied(part.value, bit.value, x, view) for x in (0, 1)]
        for when in (False, True):
            seen_as, hidden_as = numbers[when], numbers[not when]
            if bit.given or seen_as != 0 or hidden_as is None:
                continue
            low = hidden_as * part.factor
            found = None
            if low <= HIDES:
                conditions = _conditions(bit.value, when, bit.axes, view)
                found = _read(conditions, low, part.axes, view)
            if found is not None:
                return found
    return None


def _conditions(value: ir.Value, when: bool, axes: Axes, view: View) -> list[tuple[Bit, bool]]:
    """What has to hold all together for ``value`` to be ``when``, and of which value."""
    node, both = value.producer(), "And" if when else "Or"
    if is_op(node, "Cast") and view.shapes.dtype(node.inputs[0]) != ir.DataType.BOOL:
        node = None
    if not is_op(node, "Not", both, "Cast", "Identity", "Expand", *REGROUPS):
        return [] if when and is_always(value, view) else [(Bit(value, axes, ()), when)]
    found: list[tuple[Bit, bool]] = []
    for source in node.inputs if is_op(node, both) else node.inputs[:1]:
        moved = None if source is None else axes_before(node, source, axes, view)
        if source is None or moved is None:
            return [(Bit(value, axes, ()), when)]
        found += _conditions(source, when != is_op(node, "Not"), moved, view)
    return found


def _read(
    conditions: Sequence[tuple[Bit, bool]], low: float, axes: Axes, view: View
) -> Cut | str | None:
    """The windows that these conditions cut together, of scores with these axes."""
    keys: list[KeyMask] = []
    widths: set[int | None] = set()
    divided = False
    for bit, when in conditions:
        if any(atom.role == "query" for atom in bit.flat):
            widths.add(_window(bit, when, view) if _is_square(bit.axes, axes) else None)
            divided |= _divides(bit.value)
        else:
            keys.append(KeyMask(bit, when, low))
    width = next(iter(widths)) if len(widths) == 1 else None
    if width is not None:
        return Cut(width, low, tuple(keys))
    return _OTHERWISE if divided else None


def _window(bit: Bit, when: bool, view: View) -> int | None:
    """The width of the windows if the condition is that query and key are in the same one."""
    array = const_of(bit.value, limit=_LARGEST**2)
    if array is not None:
        return _width_of((array != 0) == when)
    node = bit.value.producer()
    if not when or not is_op(node, "Equal"):
        return None
    sides: list[Axes] = []
    widths: set[int | None] = set()
    for value in node.inputs:
        own = None if value is None else aligned(value, bit.axes, view)
        if value is None or own is None:
            return None
        sides.append(tuple(axis for axis in own if axis))
        widths.add(_divisor(value, view))
    query, key = ((axis,) for axis in bit.axes if axis)
    apart = sides in ([query, key], [key, query])
    return widths.pop() if apart and len(widths) == 1 else None


def _is_square(own: Axes, axes: Axes) -> bool:
    """Whether a tensor has the queries and the keys of scores with these axes, and no more."""
    roles = [{atom.role for atom in axis} for axis in axes[-2:]]
    return roles == [{"query"}, {"key"}] and [axis for axis in own if axis] == list(axes[-2:])


def _width_of(seen: NDArray[np.bool_]) -> int | None:
    """The width of the windows in which these scores [.., T, T] are seen, and no others."""
    size = seen.shape[-1] if seen.ndim > 1 else 0
    if size < 2 or seen.size != size * size or seen.shape[-2] != size:
        return None
    square = seen.reshape(size, size)
    width = int(np.argmin(square[0]))  # 0 also where all are seen
    if not width or not square[0, 0]:
        return None
    window = np.arange(size) // width
    return width if bool((square == (window[:, None] == window)).all()) else None


def _divisor(value: ir.Value, view: View) -> int | None:
    """W, if a tensor holds ``i // W`` at place i of its only axis; as exporters write that."""
    node = _moved(value, view).producer()
    if is_op(node, "Sub") and node.inputs[0] is not None and _is_never(node.inputs[1], view):
        node = node.inputs[0].producer()  # dynamo: less 1 where the place is negative
    elif is_op(node, "Where") and node.inputs[2] is not None and _is_never(node.inputs[0], view):
        node = node.inputs[2].producer()  # TorchScript
    floor = node if is_op(node, "Floor") else None
    if floor is not None and floor.inputs[0] is not None:
        node = floor.inputs[0].producer()
    if not is_op(node, "Div") or not _counts(node.inputs[0], view):
        return None
    dtype, width = view.shapes.dtype(node.inputs[0]), scalar_of(node.inputs[1])
    exact = dtype in _FLOATS if floor is not None else dtype is not None and dtype.is_integer()
    return int(width) if exact and width is not None and width >= 1 and width % 1 == 0 else None


def _moved(value: ir.Value, view: View) -> ir.Value:
    """What ``value`` was made from by casts and axes of 1 that come or go."""
    size = _sizes(value, view)
    while is_op(node := value.producer(), *_MOVES):
        source = node.inputs[0]
        if source is None or len(size) > 1 or _sizes(source, view) != size:
            break
        if is_op(node, "Cast") and view.shapes.dtype(value) not in (*_FLOATS, *_INTEGERS):
            break
        value = source
    return value


def _sizes(value: ir.Value, view: View) -> list[str]:
    dims = view.shapes.dims(value)
    return ["?", "?"] if dims is None else [str(dim) for dim in dims if dim != 1]


def _counts(value: ir.Value | None, view: View) -> bool:
    """Whether a tensor counts 0, 1, 2, ...: by Range or by what cumsum-index makes of it."""
    node = None if value is None else _moved(value, view).producer()
    if is_op(node, "Range"):
        return (scalar_of(node.inputs[0]), scalar_of(node.inputs[2])) == (0, 1)
    if not is_op(node, "CumSum") or node.inputs[0] is None or attr_int(node, "reverse", 0):
        return False
    dims, axis = view.shapes.dims(node.outputs[0]), scalar_of(node.inputs[1])
    along = dims is not None and axis is not None and dims[int(axis)] != 1
    return along and attr_int(node, "exclusive", 0) == 1 and only_number(node.inputs[0]) == 1


def _is_never(value: ir.Value | None, view: View) -> bool:
    """Whether nothing is true: the sign of a place, which floor divisions ask for."""
    node = None if value is None else value.producer()
    if is_op(node, "And"):
        return any(_is_never(x, view) for x in node.inputs)
    if is_op(node, "Cast", "Identity"):
        return _is_never(node.inputs[0], view)
    if is_op(node, "Equal", "Xor"):
        same_as = scalar_of(node.inputs[1]) == is_op(node, "Equal")
        return same_as and _is_never(node.inputs[0], view)
    limit = scalar_of(node.inputs[1]) if is_op(node, "Less") else None
    return node is not None and limit is not None and limit <= 0 and _counts(node.inputs[0], view)


def _divides(value: ir.Value) -> bool:
    """Whether places are divided on the way to ``value``."""
    return any(
        is_op(above, "Range", "CumSum")
        for node in _behind(value)
        if is_op(node, "Div", "Mod") and node.inputs[0] is not None
        for above in _behind(node.inputs[0])
    )


def _behind(value: ir.Value) -> Iterator[ir.Node]:
    pending, seen = [value], set[ir.Node]()
    while pending and len(seen) < _FAR:
        node = pending.pop(0).producer()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            pending += [x for x in node.inputs if x is not None]
