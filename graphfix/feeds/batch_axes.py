"""Which axis of an input is the batch, and which is time.

Exporters name dims at their own discretion, so a batch is known by its position: the first dim of
several inputs, and no other dim of any.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

import onnx_ir as ir

from graphfix import ops
from graphfix.facts.shapes import Shapes
from graphfix.facts.symbolic.expressions import Dim
from graphfix.feeds.input import Input, all_symbols, single_symbol, symbols
from graphfix.graph.nodes import input_at
from graphfix.ops.recurrent import INITIAL_STATES, row_axis_of

# Two whole numbers a row may be codes of a frame of audio; more than this are a row of a batch.
_MOST_CODEBOOKS = 64


def find_batch(
    inputs: Sequence[Input], user_name: Callable[[str], str], known: AbstractSet[str] = frozenset()
) -> set[str]:
    """Return the symbols of the batch; none if there is no batch.

    Args:
        inputs: The inputs of a model, with their roles.
        user_name: Returns the model's own name of a symbol.
        known: Symbols that an operator says are the batch, see :func:`rows_of_recurrences`.
    """
    return _BatchSearch(inputs, user_name, known).run()


def rows_of_recurrences(model: ir.Model, shapes: Callable[[], Shapes]) -> set[str]:
    """Return the dims that recurrences whose states are inputs of the model take as rows.

    An LSTM has as many rows in ``x`` [T, B, F] as in its state [layers, N, H]: B and N are the
    batch, whatever their names. A recurrence over another axis, as over the bands of each frame,
    has no state that a user keeps.

    Args:
        model: The model.
        shapes: Returns its symbolic shapes; called only if it has such a recurrence.
    """
    rows: set[str] = set()
    for node in model.graph:
        if node not in ops.RECURRENT:
            continue
        states = [x for i in INITIAL_STATES if (x := input_at(node, i)) is not None]
        for value in (node.inputs[0], *states) if any(map(_is_moved_input, states)) else ():
            dims = shapes().dims(value)
            symbol = single_symbol(dims[row_axis_of(node)]) if dims and len(dims) == 3 else None
            rows |= set() if symbol is None else {symbol}
    return rows


def _is_moved_input(value: ir.Value) -> bool:
    """Return whether a value is an input of the graph, or a part of one, moved."""
    while (node := value.producer()) is not None:
        if node not in ops.MOVES_ELEMENTS or node.inputs[0] is None:
            return False
        value = node.inputs[0]
    return value.is_graph_input() and not value.is_initializer()


def says_batch(name: str) -> bool:
    """Return whether the name of a dim says that it is a batch."""
    return re.search(r"batch|^(b|bs|n)$", name, re.IGNORECASE) is not None


class _BatchSearch:
    def __init__(
        self,
        inputs: Sequence[Input],
        user_name: Callable[[str], str],
        known: AbstractSet[str],
    ) -> None:
        self._inputs, self._user_name = inputs, user_name
        self._later = {s for x in inputs for s in _later_symbols(x)}
        lengths = (x for x in inputs if x.role.kind in ("lengths", "relative-lengths"))
        # As many as there are lengths, or as a recurrence has rows: surely the batch.
        self._sure = {s for x in lengths if (s := _first_symbol(x))}
        self._sure |= known & {*all_symbols(inputs)}
        # The nodes of a graph, which its edges name; but rows that are chosen again are a batch.
        self._indexed = {
            s for x in inputs for d in x.role.below for s in symbols(d) - {*all_symbols([x])}
        }

    def run(self) -> set[str]:
        firsts = {s for x in self._inputs if (s := _first_symbol(x)) and self._has_batch_first(x)}
        batch = self._sure | firsts
        return batch | self._symbols_of_row_numbers() if batch else batch

    def _has_batch_first(self, item: Input) -> bool:
        """Return whether the first dim of an input is a batch."""
        first, later = _first_symbol(item), _later_symbols(item)
        if first is None or first in self._indexed or self._sure & later:
            return False
        is_named_batch = says_batch(self._user_name(first))
        recurs = [_first_symbol(x) for x in self._inputs].count(first) > 1
        may_be_moved = (is_named_batch or recurs) and self._is_behind_numbers(first)
        if first in self._later and not may_be_moved:
            return False
        has_content_dims = len(item.dims) > 2 or (len(item.dims) == 2 and bool(later))
        return has_content_dims or is_named_batch or _is_text(item)

    def _is_behind_numbers(self, symbol: str) -> bool:
        """Return whether all inputs that have a dim later are as ``[layers, B, H]``."""
        return all(
            symbol not in symbols(x.dims[-1])
            and all(isinstance(d, int) for d in _dims_before(x, symbol))
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


def _dims_before(item: Input, symbol: str) -> Iterator[Dim]:
    """Yield the dims in front of the one that has a symbol."""
    return itertools.takewhile(lambda dim: symbol not in symbols(dim), item.dims)


def _later_symbols(item: Input) -> set[str]:
    return {s for d in item.dims[1:] for s in symbols(d)}


def _is_text(item: Input) -> bool:
    """Return whether each row is a text of whole numbers, more than one frame has."""
    if item.role.kind not in ("int", "tokens") or len(item.dims) != 2:
        return False
    return isinstance(item.dims[1], int) and item.dims[1] > _MOST_CODEBOOKS
