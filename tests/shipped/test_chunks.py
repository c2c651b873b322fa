"""How new tokens are split into the sizes that containers have."""

import pytest

from graphfix.errors import FeedError
from graphfix.shipped.chunks import Chunk, split_into_chunks


def test_the_first_chunk_is_filled_up_in_front() -> None:
    assert split_into_chunks(37, [1, 16], partial=True) == [
        Chunk(0, 5, 16),
        Chunk(5, 16, 16),
        Chunk(21, 16, 16),
    ]


def test_the_smallest_size_that_holds_the_first_chunk_is_taken() -> None:
    assert split_into_chunks(17, [1, 16], partial=True) == [Chunk(0, 1, 1), Chunk(1, 16, 16)]
    assert split_into_chunks(18, [1, 2, 16], partial=True) == [Chunk(0, 2, 2), Chunk(2, 16, 16)]


def test_a_multiple_of_the_largest_size_is_not_padded() -> None:
    assert split_into_chunks(32, [1, 16], partial=True) == [Chunk(0, 16, 16), Chunk(16, 16, 16)]


def test_without_padding_small_chunks_come_last() -> None:
    chunks = split_into_chunks(19, [1, 16], partial=False)
    assert chunks == [Chunk(0, 16, 16), *(Chunk(16 + i, 1, 1) for i in range(3))]


def test_a_model_whose_steps_cannot_be_split_takes_one_container() -> None:
    assert split_into_chunks(4, [1, 4], partial=False, joins=False) == [Chunk(0, 4, 4)]
    with pytest.raises(FeedError, match=r"as many at once as a container has \(1, 4\)"):
        split_into_chunks(5, [1, 4], partial=True, joins=False)


def test_no_sum_of_sizes_is_an_error() -> None:
    with pytest.raises(FeedError, match="no sum of the sizes"):
        split_into_chunks(7, [2, 4], partial=False)
