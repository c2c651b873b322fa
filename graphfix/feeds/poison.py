"""Garbage in the padding of a case, which must not reach the content."""

import zlib
from dataclasses import replace

import numpy as np

from graphfix.feeds.array_fill import Mask, draw_token_ids, padding_mask
from graphfix.feeds.case import Array, Case, Poison
from graphfix.feeds.input import Input
from graphfix.feeds.roles import Role
from graphfix.feeds.signature import Signature

_LARGE = 1e4


def poison_padding(
    case: Case,
    signature: Signature,
    seed: int = 0,
    kinds: tuple[Poison, ...] = ("NaN", "large values"),
) -> list[Case]:
    """Return copies of ``case`` with garbage in its padding, one for each kind.

    Only inputs whose time axis is governed by a mask or a length are changed, beyond the valid
    length, or before it if the padding is on the left; token ids there become other valid ids. No
    case comes back if there is no padding.
    """
    governed = [x for x in signature.inputs if x.role.kind in ("data", "tokens")]
    padding = [(x, _padding_of_input(x, case, signature)) for x in governed]
    padded = [(x, beyond) for x, beyond in padding if beyond is not None]
    if not padded:
        return []
    sizes = signature.key_by_symbol(case.dims)
    rng = np.random.default_rng([seed, zlib.crc32(case.name.encode())])
    if not any(case.feeds[x.name].dtype.kind == "f" for x, _ in padded):
        kinds = ("other ids",)
    cases = []
    for kind in kinds:
        feeds = dict(case.feeds)
        for item, beyond in padded:
            feeds[item.name] = fill_garbage(
                feeds[item.name], beyond, item.bounded_by_sizes(sizes).role, kind, rng
            )
        name = f"{case.name}, {kind} in the padding"
        cases.append(replace(case, name=name, feeds=feeds, poison=kind, base=case.name))
    return cases


def _padding_of_input(item: Input, case: Case, signature: Signature) -> Mask | None:
    """Return where one input of a case has padding, or None if it has none."""
    time = signature.time_of(item)
    valid = case.valid.get(signature.user_name(time)) if time is not None else None
    if valid is None:
        return None
    beyond = padding_mask(item, case.feeds[item.name].shape, valid, case.side)
    return beyond if beyond is not None and beyond.any() else None


def fill_garbage(
    array: Array, beyond: Mask, role: Role, kind: Poison, rng: np.random.Generator
) -> Array:
    """Return a copy of an input with garbage of a kind at some places; of ids, other ids."""
    array = array.copy()
    if role.kind == "tokens":
        array[beyond] = draw_token_ids(rng, role, array.shape)[beyond]
    elif array.dtype.kind != "f":  # it holds no NaN
        array[beyond] = rng.integers(0, 2, array.shape)[beyond]
    elif kind == "NaN":
        array[beyond] = np.nan
    elif kind == "other numbers":
        array[beyond] = rng.standard_normal(array.shape)[beyond]
    else:
        array[beyond] = (_LARGE * rng.uniform(-1, 1, array.shape))[beyond]
    return array
