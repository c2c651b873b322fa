"""Coverage of a set of cases: the conditions their arrays met, and those they did not."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from graphfix.feeds.array_fill import is_image, selector_values
from graphfix.feeds.case import Array, Case
from graphfix.feeds.input import Input
from graphfix.feeds.roles import TELLS
from graphfix.feeds.signature import Signature
from graphfix.spec.quoting import quote_name

_NUMBERS = ("tokens", "positions", "int", "data")
_LARGE = 1e4
# An input that saw no more values, of more that it may have, says nothing.
_FEW = 2


@dataclass(frozen=True)
class Coverage:
    """Sizes and conditions that the cases met and missed, in words for a user.

    Attributes:
        covered: Sizes, and conditions that held in some case.
        missing: Sizes from where nothing is known, and conditions that held in none.
    """

    covered: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def measure_coverage(cases: Sequence[Case], signature: Signature) -> Coverage:
    """Return which conditions ``cases`` met, of all that these inputs can meet."""
    covered, missing = list[str](), list[str]()
    for condition, is_met in _check_conditions(cases, signature):
        (covered if is_met else missing).append(condition)
    for group in signature.groups:
        name = signature.user_name(group)
        sizes = sorted({case.dims[name] for case in cases if name in case.dims})
        if sizes:
            span = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else str(sizes[0])
            covered.append(f"{quote_name(name)} {span}")
            missing.append(f"{quote_name(name)} > {sizes[-1]}")
    return Coverage(tuple(covered), tuple(missing))


def _check_conditions(cases: Sequence[Case], signature: Signature) -> Iterator[tuple[str, bool]]:
    """Yield each condition that could hold, with whether it did."""
    plain = [case for case in cases if not case.poison]
    if any(x.role.kind in TELLS and x.role.sure for x in signature.inputs):
        yield from _check_row_conditions(plain, signature)
    for item in signature.inputs:
        yield from _check_input_conditions(item, plain, signature)
    for name in signature.defaults:
        yield f"another value of {name!r}", any(name in case.feeds for case in plain)


def _check_row_conditions(
    cases: Sequence[Case], signature: Signature
) -> Iterator[tuple[str, bool]]:
    valid = ((case, name, ends) for case in cases for name, ends in case.valid.items())
    rows = [(ends, x.dims[name], x) for x, name, ends in valid if x.dims.get(name, 0) > 1]
    if not rows:
        yield "padding", False
        return
    if any(len(ends) > 1 for ends, _, _ in rows):
        full = any(len(ends) > 1 and min(ends) == full_length for ends, full_length, _ in rows)
        yield "several full rows", full
        yield "a short first row", any(ends[0] < max(ends) for ends, _, _ in rows)
    yield "no full row", any(max(ends) < full_length for ends, full_length, _ in rows)
    yield "an empty row", any(min(ends) == 0 for ends, _, _ in rows)
    if any(x.role.kind == "mask" and x.time is not None for x in signature.inputs):
        has_left_padding = any(
            case.side == "left" and min(ends) < full_length for ends, full_length, case in rows
        )
        yield "padding on the left", has_left_padding


def _check_input_conditions(
    item: Input, cases: Sequence[Case], signature: Signature
) -> Iterator[tuple[str, bool]]:
    arrays = [case.feeds[item.name] for case in cases if case.feeds[item.name].size]
    name, role = item.name, item.role
    if options := selector_values(item):
        value_count = len({int(x) for array in arrays for x in np.unique(array)} & {*options})
        if value_count < len(options):
            yield f"{len(options) - value_count} of {len(options)} values of {name!r}", False
        else:
            yield f"every value of {name!r}", True
    elif role.kind in _NUMBERS and np.dtype(item.dtype).kind in "iu" and arrays:
        yield from _check_integers(item, np.unique(np.concatenate([a.reshape(-1) for a in arrays])))
    elif role.kind == "data" and np.dtype(item.dtype).kind in "fV" and role.span is None:
        most = max((float(np.abs(a.astype(np.float64)).max()) for a in arrays), default=0.0)
        span, least = ("from 0 to 255", 1.0) if is_image(item) else ("over 1e4", _LARGE)
        yield f"{name!r} {span}", most > least
    if role.kind == "tokens" and role.choices and item.time is not None:
        has_special_id = any(bool(np.isin(a, role.choices).any()) for a in arrays)
        yield f"an id in {name!r} that the graph asks for", has_special_id
    if not role.sure:
        mask_values = {role.valid, role.padded}
        has_other_value = any(
            not np.isin(a.astype(np.float64), [*mask_values]).all() for a in arrays
        )
        yield f"{name!r} as no {role.kind}", has_other_value
    if item.time is not None and role.kind == "data" and signature.time_of(item) in signature.past:
        yield "a cache over 8", max((a.shape[item.time] for a in arrays), default=0) > 8


def _check_integers(item: Input, values: Array) -> Iterator[tuple[str, bool]]:
    """Yield the conditions on which integers were fed."""
    role, low, high = item.role, int(values[0]), int(values[-1])
    most = _FEW + 1 if role.free or role.below or role.kind == "data" else role.high - role.low
    if most <= 1:
        return
    span = f"{low} to {high}" if high > low else str(low)
    if len(values) <= _FEW < most:
        yield f"values of {item.name!r} other than {span}", False
    else:
        yield f"{len(values):,} values of {item.name!r} ({span})", True
    if role.kind == "tokens" and not role.below and high < role.high - 1:
        yield f"the last id of {item.name!r}", False
