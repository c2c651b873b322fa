"""Inputs of the padded check: clips alone, and clips in containers.

A clip is one row of content at its own length. A container holds one or several clips at the
beginning of longer rows; behind them is padding of a chosen kind. Masks and lengths say where
content ends, and so does the input that ``ilens-mask`` has added.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np

from graphfix.errors import FeedError
from graphfix.facts.forced_sizes import forced_texts
from graphfix.feeds.arrays import CaseMaker
from graphfix.feeds.case import Array
from graphfix.feeds.case_search import requested_sizes
from graphfix.feeds.input import Input, single_symbol, symbols
from graphfix.feeds.runnable_sizes import REFLECTS, SizeLimits
from graphfix.feeds.signature import Signature
from graphfix.graph.text import node_label
from graphfix.lengths.length_input import KEY, LengthInput
from graphfix.runtime.port import Feeds

Fill = Literal["zero", "noise", "large", "nan", "inf"]
"""What padding holds: zeros; values like content; values of size 1e4; NaN; both infinities.
For token ids: id 0, other ids, and the largest id."""

# Inputs of these roles are made for the container, not joined from the clips.
_MADE_FOR_CONTAINER = ("mask", "lengths", "relative-lengths", "positions")
_LARGE = 1e4
# Default sizes of caches, which may be empty, and of other dims.
_PAST, _OTHER = 4, 7
_SEEDS_APART = 7919


def find_padded_group(
    signature: Signature,
    axis: str,
    dims: Mapping[str, Sequence[int]],
    length_input: LengthInput | None = None,
) -> str:
    """Return the group of dims that is padded.

    Args:
        signature: The inputs.
        axis: The name of a dim, or a place such as ``audio.2``; empty to find it.
        dims: The sizes that the user gives; a dim with sizes is meant before others are.
        length_input: What the model's metadata says of its lengths, which names an axis as well.

    Raises:
        FeedError: There is no such dim, or no one dim that must be meant.
    """
    if axis:
        return _group_of_named_axis(signature, axis)
    symbol = None if length_input is None else _symbol_at_place(signature, length_input.axis)
    if symbol is not None:
        return signature.group_of(symbol)
    sizes = requested_sizes(signature, dims)
    candidates = _groups_that_may_be_padded(signature, sizes)
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        names = [signature.user_name(t) for t in candidates]
        raise FeedError(
            f"several dims could be the one that is padded: {', '.join(names)}; "
            f"name one, such as --axis {names[0]}"
        )
    if signature.batch is not None and signature.batch in sizes:
        return signature.batch  # the one dim that the user names, though it comes first
    raise FeedError(_no_padded_dim_message(signature))


def _group_of_named_axis(signature: Signature, axis: str) -> str:
    """Return the group of the dim that the user names.

    Raises:
        FeedError: There is no such dim.
    """
    symbol = signature.symbol_of(axis) or _symbol_at_place(signature, axis)
    if symbol is None:
        raise FeedError(
            f"no input has a dim {axis!r} that could be padded; the symbolic dims are: "
            f"{_dim_names(signature)}"
        )
    return signature.group_of(symbol)


def _groups_that_may_be_padded(
    signature: Signature, sizes: Mapping[str, Sequence[int]]
) -> list[str]:
    """Return the times, no caches if there are others; those with sizes, or several, first."""
    sized_times = [t for t in sizes if t != signature.batch]
    several = [t for t in sized_times if len(sizes[t]) > 1]
    for times in (sized_times, several):
        if len(times) == 1:
            return times
    return [t for t in signature.fresh if t in sized_times] or signature.fresh


def _no_padded_dim_message(signature: Signature) -> str:
    for item in signature.inputs:
        if item.problem:
            return f"the input {item.name!r} cannot be padded: {item.problem}"
    batch = signature.batch and signature.user_name(signature.batch)
    hint = f"; if {batch} is no batch but time, name it: --axis {batch}" if batch else ""
    if signature.forced:
        forced = "; ".join(forced_texts(signature.forced))
        return f"the model has no dim that could be padded: {forced}{signature.thaw_hint}{hint}"
    return (
        "the model has no dim that could be padded; the symbolic dims are: "
        f"{_dim_names(signature)}. Export it with a dynamic time axis, or try "
        f"graphfix run -p thaw first{hint}"
    )


def _dim_names(signature: Signature) -> str:
    return ", ".join(signature.user_name(s) for s in signature.symbols()) or "none"


def _symbol_at_place(signature: Signature, axis: str) -> str | None:
    name, _, number = axis.rpartition(".")
    item = next((x for x in signature.inputs if x.name == name), None)
    if item is None or not number.isdecimal() or int(number) >= len(item.dims):
        return None
    return next(iter(sorted(symbols(item.dims[int(number)]))), None)


class ClipMaker:
    """Maker of the inputs of clips and of containers.

    Args:
        signature: The inputs of the model that runs the clips alone.
        time: The group of dims that is padded.
        dims: Sizes of the other groups; the first is used.
        seed: The same seed makes the same arrays.
        length_input: The input that takes the lengths, if the metadata of the model names one.
        extra: The inputs of the model that runs the containers, if that is another one.
        positive: Whether floats are above 0, for a graph that takes a logarithm.
    """

    def __init__(
        self,
        signature: Signature,
        time: str,
        dims: Mapping[str, Sequence[int]],
        seed: int = 0,
        length_input: LengthInput | None = None,
        extra: Signature | None = None,
        positive: bool = False,
    ) -> None:
        more = [] if extra is None else extra.inputs
        for item in (*signature.inputs, *more):
            if item.problem:
                raise FeedError(f"the input {item.name!r} cannot be made up: {item.problem}")
        self._signature, self._time, self._seed = signature, time, seed
        self._length_input = length_input
        self._other_sizes = {t: _PAST if t in signature.past else _OTHER for t in signature.times}
        requested = {t: sizes[0] for t, sizes in requested_sizes(signature, dims).items()}
        self._other_sizes |= requested
        self._requested = frozenset(requested)
        self._items = {x.name: x for x in signature.inputs}
        self._extra = extra
        self._limits = SizeLimits(signature)
        self._positive = positive
        items = (
            x for x in (*more, *signature.inputs) if length_input and x.name == length_input.input
        )
        self._length_item = next(items, None)

    @property
    def can_batch(self) -> bool:
        """Return whether several clips can share one container."""
        return self._signature.batch not in (None, self._time)

    @property
    def shares_one_length(self) -> bool:
        """Return whether one number gives the length of all clips in a container."""
        item = self._length_item
        if self._length_input is None or item is None or self._length_input.kind != "lengths":
            return False
        return not item.dims or item.dims[0] == 1

    def too_short_reason(self, length: int) -> str | None:
        """Return why a clip of this length is too short, or None if it is long enough.

        Raises:
            FeedError: A dim would have a negative size.
        """
        groups = self._group_sizes(self._signature, self._time, length, 1)
        if not self._limits.can_reflect_pads(groups):
            return REFLECTS
        node = self._limits.first_empty_window(groups)
        if node is None:
            return None
        return f"{node.op_type} {node_label(node)!r} has nothing to work on: too short"

    def make_clip(self, length: int, row: int, seed: int) -> dict[str, Array]:
        """Return the inputs of one clip at its own length.

        Args:
            length: How long it is.
            row: Which row of a container it will be: another row is another clip.
            seed: Another seed is another clip, too.

        Raises:
            FeedError: A dim would have a negative size, a Pad reflect more than there is, or a
                window have nothing to work on.
        """
        if (reason := self.too_short_reason(length)) is not None:
            raise FeedError(reason)
        feeds = self._make_feeds(self._signature, self._seed, seed, length, (length,))
        if row:  # inputs without rows are the same for all of them
            row_seed = self._seed + _SEEDS_APART * row
            row_feeds = self._make_feeds(self._signature, row_seed, seed, length, (length,))
            feeds |= {
                name: row_feeds[name] for name, item in self._items.items() if _has_rows(item)
            }
        return self._add_lengths(feeds, [feeds])

    def make_container(
        self, clips: Sequence[Feeds], container: int, fill: Fill, seed: int
    ) -> dict[str, Array]:
        """Return the inputs of a container that holds the given clips.

        Args:
            clips: The inputs of each row alone.
            container: How long the container is.
            fill: What the padding holds.
            seed: Another seed makes other padding.

        Raises:
            FeedError: A dim would have a negative size.
        """
        lengths = tuple(self._clip_length(clip) for clip in clips)
        feeds = self._make_feeds(self._signature, self._seed, seed, container, lengths)
        rng = np.random.default_rng([self._seed, seed, container, *lengths])
        for name, item in self._items.items():
            if self._is_made_for_container(item):
                continue
            array = feeds[name] = _make_padding(item, feeds[name].shape, fill, rng)
            for row, clip in enumerate(clips):
                content = clip[name]
                where = [slice(size) for size in content.shape]
                if len(clips) > 1 and _has_rows(item) and item.rows is not None:
                    where[item.rows] = slice(row, row + 1)
                array[tuple(where)] = content
        if self._extra is not None:
            feeds = {**self._make_feeds(self._extra, self._seed, seed, container, lengths), **feeds}
        return self._add_lengths(feeds, clips)

    def _is_made_for_container(self, item: Input) -> bool:
        """Return whether an input of a container is made for it, not joined from the clips.

        A model with a length input takes a share of the valid length, as for the clip alone.
        """
        is_share = item.role.kind == "relative-lengths" and self._length_input is not None
        return (
            item.role.kind in _MADE_FOR_CONTAINER
            and not is_share
            and self._signature.time_of(item) == self._time
        )

    def _clip_length(self, clip: Feeds) -> int:
        """Return the length of a clip, from the shapes of its arrays."""
        for item in self._items.values():
            for axis, dim in enumerate(item.dims):
                if single_symbol(dim) in self._signature.symbols_in(self._time):
                    return int(clip[item.name].shape[axis])
        raise FeedError("no input is as long as the dim that is padded")

    def _make_feeds(
        self, signature: Signature, seed: int, step: int, size: int, lengths: tuple[int, ...]
    ) -> dict[str, Array]:
        """Make every input at a size, with masks and lengths for content of the given lengths."""
        time = self._time
        if signature is not self._signature:  # its dims may have other names, or be numbers
            names = [signature.symbol_of(s) for s in self._signature.symbols_in(time)]
            time = next((signature.group_of(s) for s in names if s is not None), "")
        groups = self._group_sizes(signature, time, size, len(lengths))
        maker = CaseMaker(signature, seed, positive=self._positive)
        rows = maker.row_count(signature.symbol_sizes(groups))
        valid = {t: (n,) * rows for t, n in groups.items()}
        valid[time] = lengths if len(lengths) == rows else (lengths[0],) * rows
        return dict(maker.make_case(step, groups, valid).feeds)

    def _group_sizes(self, signature: Signature, time: str, size: int, rows: int) -> dict[str, int]:
        groups = {t: self._other_sizes.get(t, _OTHER) for t in signature.times}
        if signature.batch is not None:
            groups[signature.batch] = rows
        groups |= {time: size} if time else {}
        return signature.rules.fit(groups, {time, *self._requested})

    def _add_lengths(self, feeds: dict[str, Array], clips: Sequence[Feeds]) -> dict[str, Array]:
        """Add the length input that the model's metadata names, if it names one."""
        if self._length_input is None or self._length_item is None:
            return feeds
        name, axis = self._length_input.padded_place
        lengths = [clip[name].shape[axis] for clip in clips if axis < clip[name].ndim]
        return feed_length_input(feeds, self._length_input, self._length_item, lengths)


def feed_length_input(
    feeds: Feeds, length_input: LengthInput, item: Input, lengths: Sequence[int]
) -> dict[str, Array]:
    """Add the input that says how long the content of each row is.

    Args:
        feeds: The other inputs.
        length_input: What the model's metadata says of that input.
        item: That input.
        lengths: How long the content of each row is, in units of the axis that the metadata names.

    Raises:
        FeedError: The metadata names an axis that there is not.
    """
    name, axis = length_input.padded_place
    if name not in feeds or axis >= feeds[name].ndim:
        raise FeedError(f"the model's {KEY} names {length_input.axis}, which is no axis")
    ends, full_length, rank = np.asarray(lengths), feeds[name].shape[axis], len(item.dims)
    array: Array
    if length_input.kind == "mask":
        inside = np.arange(full_length) < ends[:, None]
        time = max((i for i in range(rank) if item.dims[i] != 1), default=rank - 1)
        shape = [full_length if i == time else 1 for i in range(rank)]
        array = inside.reshape([len(ends), *shape[1:]] if rank > 1 else shape)
    elif not item.dims:
        array = ends[0]
    else:
        rows = item.dims[0] if isinstance(item.dims[0], int) else len(ends)
        array = np.resize(ends, rows).reshape([-1] + [1] * (rank - 1))
    return {**feeds, item.name: np.asarray(array).astype(item.dtype)}


def _has_rows(item: Input) -> bool:
    """Return whether an input has one row for each clip in a container."""
    return item.rows is not None and not isinstance(item.dims[item.rows], int)


def _make_padding(
    item: Input, shape: tuple[int, ...], fill: Fill, rng: np.random.Generator
) -> Array:
    dtype, role = np.dtype(item.dtype), item.bounded_by_sizes({}).role
    if dtype.kind not in "fV":
        low, high = (0, 2) if dtype.kind == "b" else (role.low, role.high)
        if fill == "zero":
            return np.full(shape, min(max(low, 0), high - 1)).astype(dtype)
        if fill == "large":
            return np.full(shape, high - 1).astype(dtype)
        return np.asarray(rng.integers(low, high, shape)).astype(dtype)
    if fill == "zero":
        return np.zeros(shape, dtype)
    if fill == "nan":
        return np.full(shape, np.nan).astype(dtype)
    if fill == "inf":
        return np.where(rng.integers(0, 2, shape) == 1, np.inf, -np.inf).astype(dtype)
    scale = _LARGE if fill == "large" else 1.0
    # numpy returns a plain number for an empty shape; elements are assigned to an array only.
    noise = np.asarray(rng.standard_normal(shape))
    return np.asarray((scale * noise).clip(-6e4, 6e4)).astype(dtype)


FILLS: tuple[Fill, ...] = get_args(Fill)[:3]
"""What padding is filled with by default."""
