"""Walks through a graph from a place in it."""

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

import onnx_ir as ir

T = TypeVar("T", bound=Hashable)


def reached(starts: Iterable[T | None], more: Callable[[T], Iterable[T | None]]) -> Iterator[T]:
    """``starts`` and all that ``more`` leads to from there, each once, the nearest first.

    None leads nowhere. Where to go on from is asked once the caller has seen what was reached.
    """
    found = list(dict.fromkeys(starts))
    seen = {None, *found}
    for top in found:
        if top is not None:
            yield top
            new = [x for x in dict.fromkeys(more(top)) if x not in seen]
            seen.update(new)
            found += new


def inputs_of(node: ir.Node | None, among: Container[str]) -> Sequence[ir.Value | None]:
    """The inputs of a node of one of these types; of another there are none."""
    return node.inputs if node is not None and node.op_type in among else ()
