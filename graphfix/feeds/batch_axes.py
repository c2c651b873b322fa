"""Which axis of an input is the batch, and which is time.

Exporters name dims at their own discretion, so a batch is known by its position: the first dim of
several inputs, and no other dim of any.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from graphfix.feeds.input import Input, all_symbols, single_symbol, symbols

# Two whole numbers a row may be codes of a frame of audio; more than this are a row of a batch.
_MOST_CODEBOOKS = 64


def find_batch(inputs: Sequence[Input], user_name: Callable[[str], str]) -> set[str]:
    """Return the symbols of the batch; none if there is no batch.

    Args:
        inputs: The inputs of a model, with their roles.
        user_name: Returns the model's own name of a symbol.
    """
    return _BatchSearch(inputs, user_name).run()


def says_batch(name: str) -> bool:
    """Return whether the name of a dim says that it is a batch."""
    return re.search(r"batch|^(b|bs|n)$", name, re.IGNORECASE) is not None


class _BatchSearch:
    def __init__(self, inputs: Sequence[Input], user_name: Callable[[str], str]) -> None:
        self._inputs, self._user_name = inputs, user_name
        self._later = {s for x in inputs for s in _later_symbols(x)}
        lengths = (x for x in inputs if x.role.kind in ("lengths", "relative-lengths"))
        self._of_lengths = {s for x in lengths if (s := _first_symbol(x))}
        # The nodes of a graph, which its edges name; but rows that are chosen again are a batch.
        self._indexed = {
            s for x in inputs for d in x.role.below for s in symbols(d) - {*all_symbols([x])}
        }

    def run(self) -> set[str]:
        firsts = {s for x in self._inputs if (s := _first_symbol(x)) and self._has_batch_first(x)}
        batch = self._of_lengths | firsts
        return batch | self._symbols_of_row_numbers() if batch else batch

    def _has_batch_first(self, item: Input) -> bool:
        """Return whether the first dim of an input is a batch."""
        first, later = _first_symbol(item), _later_symbols(item)
        if first is None or first in self._indexed or self._of_lengths & later:
            return False
        is_named_batch = says_batch(self._user_name(first))
        if first in self._later and not (is_named_batch and self._comes_second_in_states(first)):
            return False
        has_content_dims = len(item.dims) > 2 or (len(item.dims) == 2 and bool(later))
        return has_content_dims or is_named_batch or _is_text(item)

    def _comes_second_in_states(self, symbol: str) -> bool:
        """Return whether all inputs that have a first dim later too are ``[layers, B, H]``."""
        return all(
            len(x.dims) > 2 and isinstance(x.dims[0], int) and single_symbol(x.dims[1]) == symbol
            for x in self._inputs
            if symbol in _later_symbols(x)
        )

    def _symbols_of_row_numbers(self) -> set[str]:
        """Return the first dims of inputs with one number or one vector a row."""
        items = (x for x in self._inputs if x.role.kind != "data" and len(x.dims) in (1, 2))
        firsts = {s for x in items if not _later_symbols(x) and (s := _first_symbol(x))}
        return firsts - self._later


def with_axes(item: Input, batch: set[str]) -> Input:
    """Return an input with its batch and time axes, given the symbols of the batch."""
    rows = _row_axis(item, batch)
    return replace(item, rows=rows, time=_time_axis(item, rows, batch))


def _row_axis(item: Input, batch: set[str]) -> int | None:
    axes = [a for a, d in enumerate(item.dims) if single_symbol(d) in batch]
    if axes:
        return axes[-1]
    return 0 if item.dims and _has_fixed_batch(item) else None


def _time_axis(item: Input, rows: int | None, batch: set[str]) -> int | None:
    symbolic = [a for a, d in enumerate(item.dims) if a != rows and not symbols(d) <= batch]
    if item.role.kind == "mask":
        fixed = [a for a, d in enumerate(item.dims) if a != rows and d != 1]
        candidates = symbolic or fixed
        return candidates[-1] if candidates else None
    if item.role.kind in ("data", "tokens", "positions") and symbolic:
        return symbolic[0]
    return None


def _has_fixed_batch(item: Input) -> bool:
    """Return whether a first dim that is a number is a batch of fixed size."""
    return isinstance(item.dims[0], int) and (len(item.dims) > 1 or item.dims[0] == 1)


def _first_symbol(item: Input) -> str | None:
    return single_symbol(item.dims[0]) if item.dims else None


def _later_symbols(item: Input) -> set[str]:
    return {s for d in item.dims[1:] for s in symbols(d)}


def _is_text(item: Input) -> bool:
    """Return whether each row is a text of whole numbers, more than one frame has."""
    if item.role.kind not in ("int", "tokens") or len(item.dims) != 2:
        return False
    return isinstance(item.dims[1], int) and item.dims[1] > _MOST_CODEBOOKS
