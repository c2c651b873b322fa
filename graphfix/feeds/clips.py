"""Clips alone and in containers: the inputs of the padded check.

A clip is one row of content at its own length. In a container several clips, or one, lie at the
beginning of longer rows; what lies beyond is padding of a chosen kind. Masks and lengths say where
content ends, and so does the input that ``ilens-mask`` has added.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np

from graphfix.errors import FeedError
from graphfix.feeds.arrays import Maker
from graphfix.feeds.case import Array
from graphfix.feeds.case_search import wanted_sizes
from graphfix.feeds.input import Input, plain, symbols
from graphfix.feeds.runnable_sizes import REFLECTS, Limits
from graphfix.feeds.signature import Signature
from graphfix.graph.text import path_of
from graphfix.lengths.length_input import KEY, LengthInput
from graphfix.runtime.port import Feeds

Fill = Literal["zero", "noise", "large", "nan", "inf"]
"""What padding holds: zeros; values like content; values of size 1e4; NaN; both infinities.
For token ids: id 0, other ids, and the largest id."""

# What is made for the container, not joined from the clips.
_TELLS = ("mask", "lengths", "relative-lengths", "positions")
_LARGE = 1e4
# Sizes of dims that nobody names: caches, which may be empty, and others.
_PAST, _OTHER = 4, 7
_SEEDS_APART = 7919


def time_of(
    signature: Signature,
    axis: str,
    dims: Mapping[str, Sequence[int]],
    fed: LengthInput | None = None,
) -> str:
    """The group of dims that is padded.

    Args:
        signature: The inputs.
        axis: The name of a dim, or a place such as ``audio.2``; empty to find it.
        dims: The sizes that the user gives; a dim with sizes is meant before others are.
        fed: What the model's metadata says of its lengths, which names an axis as well.

    Raises:
        FeedError: There is no such dim, or no one dim that must be meant.
    """
    known = ", ".join(signature.user_name(s) for s in signature.symbols()) or "none"
    if axis:
        symbol = signature.symbol_of(axis) or _at_place(signature, axis)
        if symbol is None:
            raise FeedError(
                f"no input has a dim {axis!r} that could be padded; the symbolic dims are: {known}"
            )
        return signature.group(symbol)
    if fed is not None and (symbol := _at_place(signature, fed.axis)) is not None:
        return signature.group(symbol)
    given = [t for t in wanted_sizes(signature, dims) if t != signature.batch]
    fresh = [t for t in signature.fresh if t in given] or signature.fresh
    found = given if len(given) == 1 else fresh
    if not found and signature.batch in wanted_sizes(signature, dims) and signature.batch:
        return signature.batch  # the one dim that the user names, though it comes first
    if len(found) == 1:
        return found[0]
    if not found:
        batch = signature.batch and signature.user_name(signature.batch)
        named = f"; if {batch} is no batch but time, name it: --axis {batch}" if batch else ""
        raise FeedError(
            f"the model has no dim that could be padded; the symbolic dims are: {known}. Export "
            f"it with a dynamic time axis, or try graphfix run -p thaw first{named}"
        )
    names = [signature.user_name(t) for t in found]
    raise FeedError(
        f"several dims could be the one that is padded: {', '.join(names)}; "
        f"name one, such as --axis {names[0]}"
    )


def _at_place(signature: Signature, axis: str) -> str | None:
    name, _, number = axis.rpartition(".")
    item = next((x for x in signature.inputs if x.name == name), None)
    if item is None or not number.isdecimal() or int(number) >= len(item.dims):
        return None
    return next(iter(sorted(symbols(item.dims[int(number)]))), None)


class Clips:
    """Makes the inputs of clips and of containers.

    Args:
        signature: The inputs of the model that runs the clips alone.
        time: The group of dims that is padded.
        dims: Sizes of the other groups; the first is used.
        seed: The same seed makes the same arrays.
        fed: How the model is told the lengths, if its metadata says so.
        extra: The inputs of the model that runs the containers, if that is another one.
        positive: Whether floats are above 0, for a graph that takes a logarithm.
    """

    def __init__(
        self,
        signature: Signature,
        time: str,
        dims: Mapping[str, Sequence[int]],
        seed: int = 0,
        fed: LengthInput | None = None,
        extra: Signature | None = None,
        positive: bool = False,
    ) -> None:
        more = [] if extra is None else extra.inputs
        for item in (*signature.inputs, *more):
            if item.problem:
                raise FeedError(f"the input {item.name!r} cannot be made up: {item.problem}")
        self._signature, self._time, self._seed, self._fed = signature, time, seed, fed
        self._others = {t: _PAST if t in signature.past else _OTHER for t in signature.times}
        self._others |= {t: sizes[0] for t, sizes in wanted_sizes(signature, dims).items()}
        self._items = {x.name: x for x in signature.inputs}
        self._extra = extra
        self._limits = Limits(signature)
        self._positive = positive
        items = (x for x in (*more, *signature.inputs) if fed and x.name == fed.input)
        self._fed_item = next(items, None)

    @property
    def batched(self) -> bool:
        """Whether several clips can be put into one container."""
        return self._signature.batch not in (None, self._time)

    @property
    def one_length(self) -> bool:
        """Whether all clips in a container must be equally long: there is one number for all."""
        item = self._fed_item
        if self._fed is None or item is None or self._fed.kind != "lengths":
            return False
        return not item.dims or item.dims[0] == 1

    def refusal(self, length: int) -> str | None:
        """Why nothing so short is a clip; None for one that is long enough, as far as is known.

        Raises:
            FeedError: A dim would have a negative size.
        """
        groups = self._groups(self._signature, self._time, length, 1)
        if not self._limits.reflects(groups):
            return REFLECTS
        node = self._limits.emptied(groups)
        if node is None:
            return None
        return f"{node.op_type} {path_of(node)!r} has nothing to work on: too short"

    def alone(self, length: int, row: int, seed: int) -> dict[str, Array]:
        """The inputs of one clip at its own length.

        Args:
            length: How long it is.
            row: Which row of a container it will be: another row is another clip.
            seed: Another seed is another clip, too.

        Raises:
            FeedError: A dim would have a negative size, a Pad reflect more than there is, or a
                window have nothing to work on.
        """
        if (why := self.refusal(length)) is not None:
            raise FeedError(why)
        feeds = self._made(self._signature, self._seed, seed, length, (length,))
        if row:  # what has no rows is the same for all of them
            own = self._seed + _SEEDS_APART * row
            other = self._made(self._signature, own, seed, length, (length,))
            feeds |= {name: other[name] for name, item in self._items.items() if _has_rows(item)}
        return self._told(feeds, [feeds])

    def together(
        self, clips: Sequence[Feeds], container: int, fill: Fill, seed: int
    ) -> dict[str, Array]:
        """The inputs of a container.

        Args:
            clips: The inputs of each row alone.
            container: How long the container is.
            fill: What the padding holds.
            seed: Another seed makes other padding.

        Raises:
            FeedError: A dim would have a negative size.
        """
        lengths = tuple(self._length(clip) for clip in clips)
        feeds = self._made(self._signature, self._seed, seed, container, lengths)
        rng = np.random.default_rng([self._seed, seed, container, *lengths])
        for name, item in self._items.items():
            if self._is_made(item):
                continue
            array = feeds[name] = _padding(item, feeds[name].shape, fill, rng)
            for row, clip in enumerate(clips):
                content = clip[name]
                where = [slice(size) for size in content.shape]
                if len(clips) > 1 and _has_rows(item) and item.rows is not None:
                    where[item.rows] = slice(row, row + 1)
                array[tuple(where)] = content
        if self._extra is not None:
            feeds = {**self._made(self._extra, self._seed, seed, container, lengths), **feeds}
        return self._told(feeds, clips)

    def _is_made(self, item: Input) -> bool:
        """Whether an input of a container is made for it, not joined from the clips.

        A model that is told the valid lengths takes a share of them: that of the clip alone.
        """
        own = item.role.kind == "relative-lengths" and self._fed is not None
        return item.role.kind in _TELLS and not own and self._signature.time_of(item) == self._time

    def _length(self, clip: Feeds) -> int:
        """How long a clip is, told from its arrays."""
        for item in self._items.values():
            for axis, dim in enumerate(item.dims):
                if plain(dim) in self._signature.members(self._time):
                    return int(clip[item.name].shape[axis])
        raise FeedError("no input is as long as the dim that is padded")

    def _made(
        self, signature: Signature, seed: int, step: int, size: int, lengths: tuple[int, ...]
    ) -> dict[str, Array]:
        """Every input at a size, with masks and lengths for content of the given lengths."""
        time = self._time
        if signature is not self._signature:  # its dims may have other names, or be numbers
            names = [signature.symbol_of(s) for s in self._signature.members(time)]
            time = next((signature.group(s) for s in names if s is not None), "")
        groups = self._groups(signature, time, size, len(lengths))
        maker = Maker(signature, seed, positive=self._positive)
        rows = maker.rows(signature.sizes(groups))
        valid = {t: (n,) * rows for t, n in groups.items()}
        valid[time] = lengths if len(lengths) == rows else (lengths[0],) * rows
        return dict(maker.case(step, groups, valid).feeds)

    def _groups(self, signature: Signature, time: str, size: int, rows: int) -> dict[str, int]:
        groups = {t: self._others.get(t, _OTHER) for t in signature.times}
        if signature.batch is not None:
            groups[signature.batch] = rows
        return groups | ({time: size} if time else {})

    def _told(self, feeds: dict[str, Array], clips: Sequence[Feeds]) -> dict[str, Array]:
        """The inputs, with the one that the model's metadata names as it says."""
        if self._fed is None or self._fed_item is None:
            return feeds
        name, axis = self._fed.place
        lengths = [clip[name].shape[axis] for clip in clips if axis < clip[name].ndim]
        return told(feeds, self._fed, self._fed_item, lengths)


def told(feeds: Feeds, fed: LengthInput, item: Input, lengths: Sequence[int]) -> dict[str, Array]:
    """Inputs together with the one that says how long the content of each row is.

    Args:
        feeds: The other inputs.
        fed: What the model's metadata says of that input.
        item: That input.
        lengths: How long the content of each row is, in units of the axis that the metadata names.

    Raises:
        FeedError: The metadata names an axis that there is not.
    """
    name, axis = fed.place
    if name not in feeds or axis >= feeds[name].ndim:
        raise FeedError(f"the model's {KEY} names {fed.axis}, which is no axis")
    ends, whole, rank = np.asarray(lengths), feeds[name].shape[axis], len(item.dims)
    array: Array
    if fed.kind == "mask":
        inside = np.arange(whole) < ends[:, None]
        array = inside.reshape((len(ends), *[1] * (rank - 2), whole)[-max(rank, 1) :])
    elif not item.dims:
        array = ends[0]
    else:
        rows = item.dims[0] if isinstance(item.dims[0], int) else len(ends)
        array = np.resize(ends, rows).reshape([-1] + [1] * (rank - 1))
    return {**feeds, item.name: np.asarray(array).astype(item.dtype)}


def _has_rows(item: Input) -> bool:
    """Whether an input has as many rows as there are clips in a container."""
    return item.rows is not None and not isinstance(item.dims[item.rows], int)


def _padding(item: Input, shape: tuple[int, ...], fill: Fill, rng: np.random.Generator) -> Array:
    dtype, role = np.dtype(item.dtype), item.at({}).role
    if dtype.kind not in "fV":
        low, high = (0, 2) if dtype.kind == "b" or role.kind == "data" else (role.low, role.high)
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
    # Of a scalar numpy gives the number itself, into which nothing can be put.
    noise = np.asarray(rng.standard_normal(shape))
    return np.asarray((scale * noise).clip(-6e4, 6e4)).astype(dtype)


FILLS: tuple[Fill, ...] = get_args(Fill)[:3]
"""What padding is filled with if nobody says otherwise."""
