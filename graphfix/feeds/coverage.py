"""Coverage of a set of cases: the conditions their arrays met, and those they did not."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from graphfix.feeds.array_fill import is_image, is_wave, selector_values
from graphfix.feeds.case import Array, Case
from graphfix.feeds.case_style import Side
from graphfix.feeds.input import Input
from graphfix.feeds.roles import LENGTH_KINDS, Role
from graphfix.feeds.signature import Signature
from graphfix.spec.quoting import quote_name

_NUMBERS = ("tokens", "positions", "int", "data")
_LARGE = 1e4
# An input that was fed no more values than this, of more that it may have, was hardly tried.
_FEW = 2
# Sizes are of one kind from here on, below it they are odd or even, as kernels tell them apart.
_LONG = 64
# So many pairs of sizes are named.
_MOST_PAIRS = 3


@dataclass(frozen=True)
class Coverage:
    """Sizes and conditions that the cases met and missed, in words for a user.

    Attributes:
        covered: Sizes that were tried, and conditions that some case met.
        missing: Sizes beyond those that were tried, and conditions that no case met.
    """

    covered: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def measure_coverage(cases: Sequence[Case], signature: Signature) -> Coverage:
    """Return which conditions ``cases`` met, of all that these inputs can meet."""
    covered, missing = list[str](), list[str]()
    sizes_by_name: dict[str, list[int]] = {}
    open_ended: dict[str, list[int]] = {}
    for group in signature.groups:
        name = signature.user_name(group)
        if sizes := sorted({case.dims[name] for case in cases if name in case.dims}):
            sizes_by_name[name] = sizes
            if signature.rules.allows_more(group, sizes[-1]):
                open_ended[name] = sizes
                missing.append(f"{quote_name(name)} > {sizes[-1]}")
    missing += _untried_remainders({k: x for k, x in open_ended.items() if len(x) > 1})
    pairs = _untried_pairs(cases, signature)
    missing += pairs[:_MOST_PAIRS]
    if len(pairs) > _MOST_PAIRS:
        missing.append(f"{len(pairs) - _MOST_PAIRS} more pairs of sizes")
    # Graphs that need more than one element have no size of 0 either.
    if any(x[0] == 1 for x in sizes_by_name.values()):
        missing.append("sizes of 0")
    for condition, is_met in _check_conditions(cases, signature):
        (covered if is_met else missing).append(condition)
    for name, sizes in sizes_by_name.items():
        span = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else str(sizes[0])
        covered.append(f"{quote_name(name)} {span}")
    return Coverage(tuple(covered), tuple(missing))


def _untried_remainders(sizes_by_name: Mapping[str, Sequence[int]]) -> list[str]:
    """Return modulo which numbers some remainder is that of no size, in words.

    Several dims share one sentence, which holds for one of them at least.
    """
    if not sizes_by_name:
        return []
    gaps, beyond = set[int](), list[int]()
    for sizes in sizes_by_name.values():
        whole = [x for x in range(1, len(sizes) + 1) if len({n % x for n in sizes}) == x]
        gaps |= {x for x in range(2, whole[-1]) if x not in whole}
        beyond.append(whole[-1] + 1)
    names = [quote_name(x) for x in sizes_by_name]
    subject = names[0] if len(names) == 1 else "sizes"
    moduli = [*(str(x) for x in sorted(gaps) if x < min(beyond)), f"{min(beyond)} and more"]
    return [f"some remainders of {subject} modulo {', '.join(moduli)}"]


def _untried_pairs(cases: Sequence[Case], signature: Signature) -> list[str]:
    """Return the kinds of sizes that were tried, of two dims, but never in one case."""
    names = [signature.user_name(group) for group in signature.groups]
    kinds = [
        {name: _size_kind(case.dims[name]) for name in names if name in case.dims} for case in cases
    ]
    untried = []
    for one, other in itertools.combinations(names, 2):
        met = {(x[one], x[other]) for x in kinds if one in x and other in x}
        firsts, seconds = (sorted({pair[k] for pair in met}) for k in (0, 1))
        untried += [
            f"{quote_name(one)} {a} with {quote_name(other)} {b}"
            for a, b in itertools.product(firsts, seconds)
            if (a, b) not in met
        ]
    return untried


def _size_kind(size: int) -> str:
    if size < 2:
        return str(size)
    if size > _LONG:
        return f"over {_LONG}"
    return "odd" if size % 2 else "even"


def _check_conditions(cases: Sequence[Case], signature: Signature) -> Iterator[tuple[str, bool]]:
    """Yield each condition that could hold, with whether it did."""
    plain = [case for case in cases if not case.poison]
    if any(x.role.kind in LENGTH_KINDS and x.role.sure for x in signature.inputs):
        yield from _check_row_conditions(plain, signature)
    for item in signature.inputs:
        yield from _check_input_conditions(item, plain, signature)
        yield from _check_number_uses(item, cases)
    for name in signature.defaults:
        yield f"another value of {name!r}", any(name in case.feeds for case in plain)


def _check_row_conditions(
    cases: Sequence[Case], signature: Signature
) -> Iterator[tuple[str, bool]]:
    padded = [x for case in cases for x in _PaddedRows.all_of(case)]
    if not padded:
        yield "padding", False
        return
    batches = [x for x in padded if len(x.ends) > 1]
    if batches:
        yield "several full rows", any(min(x.ends) == x.full_length for x in batches)
        yield "a short first row", any(x.ends[0] < max(x.ends) for x in batches)
    yield "no full row", any(max(x.ends) < x.full_length for x in padded)
    yield "an empty row", any(min(x.ends) == 0 for x in padded)
    if _has_mask_along_time(signature):
        on_the_left = (x for x in padded if x.side == "left")
        yield "padding on the left", any(min(x.ends) < x.full_length for x in on_the_left)


def _has_mask_along_time(signature: Signature) -> bool:
    return any(x.role.kind == "mask" and x.time is not None for x in signature.inputs)


class _PaddedRows(NamedTuple):
    """How much of each row of a case is content, along one dim of more than one element."""

    ends: tuple[int, ...]
    full_length: int
    side: Side

    @classmethod
    def all_of(cls, case: Case) -> list[Self]:
        """Return those of a case, one for each dim that a mask or a length governs."""
        sizes = {name: case.dims.get(name, 0) for name in case.valid}
        return [
            cls(ends, sizes[name], case.side)
            for name, ends in case.valid.items()
            if sizes[name] > 1
        ]


def _check_input_conditions(
    item: Input, cases: Sequence[Case], signature: Signature
) -> Iterator[tuple[str, bool]]:
    arrays = [case.feeds[item.name] for case in cases if case.feeds[item.name].size]
    yield from _check_values(item, arrays)
    if item.role.kind == "tokens" and item.role.choices and item.time is not None:
        has_special_id = any(bool(np.isin(a, item.role.choices).any()) for a in arrays)
        yield f"an id in {item.name!r} that the graph asks for", has_special_id
    if not item.role.sure:
        yield f"{item.name!r} as no {item.role.kind}", _has_other_values(arrays, item.role)
    if _is_cache(item, signature):
        longest = max((a.shape[item.time or 0] for a in arrays), default=0)
        yield "a cache over 8", longest > 8


def _check_values(item: Input, arrays: Sequence[Array]) -> Iterator[tuple[str, bool]]:
    """Yield the conditions on the values that were fed, by what the input takes."""
    kind = np.dtype(item.dtype).kind
    if options := selector_values(item):
        yield _check_options(item, arrays, options)
    elif item.role.kind in _NUMBERS and kind in "iu" and arrays:
        yield from _check_integers(item, np.unique(np.concatenate([a.reshape(-1) for a in arrays])))
    elif item.role.kind == "data" and kind in "fV" and item.role.span is None:
        sizes = (np.abs(a.astype(np.float64)) for a in arrays)
        largest = max((float(x[np.isfinite(x)].max(initial=0.0)) for x in sizes), default=0.0)
        span, least = ("from 0 to 255", 1.0) if is_image(item) else ("over 1e4", _LARGE)
        if item.role.full_scale is not None and is_wave(item):
            full_scale = item.role.full_scale.largest
            span, least = f"at full scale ({full_scale:,.0f})", full_scale / 2
        yield f"{item.name!r} {span}", largest > least
        if arrays:
            yield f"{item.name!r} beyond {math.ceil(largest):,}", False


def _check_number_uses(item: Input, cases: Sequence[Case]) -> Iterator[tuple[str, bool]]:
    """Yield the conditions on numbers that are seldom met by chance, where they may matter."""
    uses, kind = item.role.uses, np.dtype(item.dtype).kind
    arrays = [array for case in cases if (array := case.feeds.get(item.name)) is not None]
    if item.role.kind == "data" and kind in "fV":
        if uses.ties:
            yield f"halves and equal elements of {item.name!r}", any(map(_has_ties, arrays))
        yield from _check_odd_floats(item.name, cases)
    elif item.role.kind == "int" and item.role.free and np.dtype(item.dtype).itemsize > 2:
        largest = max((int(np.abs(x).max(initial=0)) for x in arrays), default=0)
        power = 31 if np.dtype(item.dtype).itemsize > 4 else 24
        yield f"{item.name!r} over 2^{power}", largest > 2**power
    elif item.role.kind == "mask" and item.role.sure and kind in "iuf" and not item.role.is_addend:
        yield f"{item.name!r} other than 0 and 1", _has_other_values(arrays, item.role)


def _check_odd_floats(name: str, cases: Sequence[Case]) -> Iterator[tuple[str, bool]]:
    """Yield whether NaN and infinity were fed, other than as garbage in padding."""
    counted = (x.feeds.get(name) for x in cases if x.poison in ("", "guarded numbers"))
    arrays = [x for x in counted if x is not None]
    has_nan = any(np.isnan(x).any() for x in arrays)
    has_infinity = any(np.isinf(x).any() for x in arrays)
    if has_nan == has_infinity:
        yield f"NaN or infinity in {name!r}", has_nan
        return
    yield f"NaN in {name!r}", has_nan
    yield f"infinity in {name!r}", has_infinity


def _has_ties(array: Array) -> bool:
    """Return whether an array has halves, and equal elements other than 0."""
    doubled = 2 * array.astype(np.float64).reshape(-1)
    doubled = doubled[np.isfinite(doubled) & (doubled != 0)]
    return bool((doubled % 2 == 1).any()) and len(np.unique(doubled)) < len(doubled)


def _has_other_values(arrays: Sequence[Array], role: Role) -> bool:
    """Return whether something was fed that a mask would not hold."""
    mask_values = [role.valid, role.padded]
    return any(not np.isin(a.astype(np.float64), mask_values).all() for a in arrays)


def _is_cache(item: Input, signature: Signature) -> bool:
    is_data = item.time is not None and item.role.kind == "data"
    return is_data and signature.time_of(item) in signature.past


def _check_options(
    item: Input, arrays: Sequence[Array], options: Sequence[int]
) -> tuple[str, bool]:
    fed = {int(x) for array in arrays for x in np.unique(array)}
    unfed = len({*options} - fed)
    if unfed:
        return f"{unfed} of {len(options)} values of {item.name!r}", False
    return f"every value of {item.name!r}", True


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
    info = np.iinfo(item.dtype)
    if role.free and (low, high) != (info.min, info.max):
        yield f"{item.name!r} beyond {low:,} to {high:,}", False
    if role.kind == "tokens" and not role.below and high < role.high - 1:
        yield f"the last id of {item.name!r}", False
