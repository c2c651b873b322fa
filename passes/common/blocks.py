"""Weights in blocks of few bits: how they are packed, and their columns sorted by block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def unpack_bits(rows: npt.NDArray[np.generic], bits: int) -> Ints:
    """Return the elements of packed bytes ``[N, bytes]``, of 4 or 8 bits, the low half first."""
    stored = rows.astype(np.int64)
    if bits == 8:
        return stored
    return np.stack([stored & 15, stored >> 4], axis=-1).reshape(len(rows), -1)


def pack_bits(elements: Ints, bits: int) -> npt.NDArray[np.uint8]:
    """Pack elements ``[N, count]`` of 4 or 8 bits; a row of an odd count ends in half a byte."""
    if bits == 8:
        return elements.astype(np.uint8)
    padded = np.pad(elements, ((0, 0), (0, elements.shape[1] % 2)))
    return (padded[:, 0::2] | (padded[:, 1::2] << 4)).astype(np.uint8)


@dataclass(frozen=True)
class BlockOrder:
    """Columns in the order of their blocks.

    Attributes:
        columns: For each column, the column that it was; of a filler, any.
        is_filler: Which of them only fill their block up.
        groups: For each block, the group of which it has the scale.
        block_size: How many columns a block has.
    """

    columns: Ints
    is_filler: npt.NDArray[np.bool_]
    groups: Ints
    block_size: int

    @classmethod
    def as_stored(cls, count: int, block_size: int) -> BlockOrder:
        """Return so many columns as they lie."""
        nothing = np.zeros(count, np.bool_)
        return cls(np.arange(count), nothing, np.arange(count // block_size), block_size)

    @classmethod
    def of_groups(cls, groups: npt.NDArray[np.generic], block_size: int) -> BlockOrder:
        """Return columns sorted by the group of each, as many blocks for a group as it needs."""
        group_of_column = groups.reshape(-1).astype(np.int64)
        columns: list[int] = []
        fillers: list[bool] = []
        blocks: list[int] = []
        for group in np.unique(group_of_column):
            own = [int(x) for x in np.flatnonzero(group_of_column == group)]
            missing = -len(own) % block_size
            columns += own + own[:1] * missing
            fillers += [False] * len(own) + [True] * missing
            blocks += [int(group)] * ((len(own) + missing) // block_size)
        return cls(
            np.array(columns, np.int64), np.array(fillers), np.array(blocks, np.int64), block_size
        )

    def indicator(self) -> npt.NDArray[np.float32]:
        """Return the matrix ``[columns, blocks]`` that sums the columns of each block."""
        block_of_column = np.arange(len(self.columns)) // self.block_size
        sums = np.zeros((len(self.columns), len(self.groups)), np.float32)
        sums[np.arange(len(self.columns)), block_of_column] = ~self.is_filler
        return sums
