"""Sizes at which a model runs, or seems to, although what it computes there is not defined."""

from collections.abc import Mapping, Sequence
from functools import cache, cached_property

import onnx_ir as ir

from graphfix.errors import FeedError
from graphfix.facts.pads import pads_of
from graphfix.facts.symbolic.expressions import Dim
from graphfix.facts.view import View
from graphfix.feeds.signature import Signature
from graphfix.graph.nodes import attr_text, is_op

_POOLS = ("AveragePool", "LpPool", "MaxPool")
_WINDOWS = ("Conv", "STFT", *_POOLS)
REFLECTS = "a Pad reflects more than there is"
POOLS = "a pool has less than its window, of which ONNX Runtime may make a frame"


class Limits:
    """The sizes below which what a graph computes is not defined.

    Args:
        signature: The inputs; symbolic shapes are inferred only for a model with such nodes.
        frames: Whether a pool must make as many frames as the standard says, as a repair that
            counts frames takes it.
    """

    def __init__(self, signature: Signature, *, frames: bool = False) -> None:
        self._signature = signature
        self._frames = frames
        self._sliding = cache(self._that_slide)

    def undefined(self, groups: Mapping[str, int]) -> str:
        """Why what is computed at these sizes is not defined; "" if it is, as far as is known."""
        try:
            if not self.reflects(groups):
                return REFLECTS
            return POOLS if self._frames and self._first_empty(groups, _POOLS) else ""
        except FeedError:  # a dim such as T - 5 would be negative
            return ""

    def reflects(self, groups: Mapping[str, int]) -> bool:
        """Whether each Pad has as much as it reflects.

        Not every ONNX Runtime refuses the others: 1.24.1 runs them, and fills in nothing there.
        """
        sizes = self._signature.sizes(groups) if self._reflected else {}
        known = ((_size(dim, sizes), pad) for dim, pad in self._reflected)
        return all(size is None or size > pad for size, pad in known)

    def emptied(self, groups: Mapping[str, int]) -> ir.Node | None:
        """The first convolution or pooling that has nothing to work on, and makes nothing.

        ONNX Runtime runs that where nothing is to be computed, and a maximum of nothing is -inf.
        Of 3 samples, by a window of 4 and a stride of 2, its pools (1.32.0) make a frame where the
        standard has none: it rounds (3 - 4) / 2 to 0.
        """
        return self._first_empty(groups, _WINDOWS)

    def _first_empty(self, groups: Mapping[str, int], kinds: tuple[str, ...]) -> ir.Node | None:
        windows = self._sliding(kinds)
        sizes = self._signature.sizes(groups) if windows else {}
        for node, dims in windows:
            if any((size := _size(dim, sizes)) is not None and size < 1 for dim in dims):
                return node
        return None

    @cached_property
    def _reflected(self) -> list[tuple[Dim, int]]:
        """Each dim that a Pad reflects, and how much of it."""
        model, found = self._signature.model, []
        for node in model.graph:
            if not is_op(node, "Pad") or attr_text(node, "mode", "") != "reflect":
                continue
            given, pads = self._signature.shapes.dims(node.inputs[0]), pads_of(node, View(model))
            if given is not None and pads is not None and len(node.inputs) <= 3:
                pairs = zip((*given, *given), pads, strict=True)
                found += [(dim, pad) for dim, pad in pairs if isinstance(pad, int) and pad > 0]
        return found

    def _that_slide(self, kinds: tuple[str, ...]) -> list[tuple[ir.Node, Sequence[Dim]]]:
        """What slides over something, with the dims of what it makes where it slid."""
        nodes = [x for x in self._signature.model.graph if is_op(x, *kinds)]
        made = [(x, self._signature.shapes.dims(x.outputs[0]) or ()) for x in nodes]
        return [(x, dims[1 if is_op(x, "STFT") else 2 :]) for x, dims in made]


def _size(dim: Dim, sizes: Mapping[str, int]) -> int | None:
    """What a dim is at these sizes; None if that is not known."""
    size = dim if isinstance(dim, int) else dim.evaluate(sizes)
    return size if isinstance(size, int) else None
