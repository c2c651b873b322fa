"""Sizes at which a model seems to run although its result is undefined."""

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


class SizeLimits:
    """The sizes below which the result of a graph is undefined.

    Args:
        signature: The inputs; symbolic shapes are inferred only for a model with such nodes.
        frames: Whether a pool must make as many frames as the standard says, as a repair that
            counts frames takes it.
    """

    def __init__(self, signature: Signature, *, frames: bool = False) -> None:
        self._signature = signature
        self._frames = frames
        self._sliding = cache(self._window_nodes)

    def undefined_reason(self, groups: Mapping[str, int]) -> str:
        """Return why the result is undefined at these sizes, or an empty string."""
        try:
            if not self.can_reflect_pads(groups):
                return REFLECTS
            return POOLS if self._frames and self._first_empty_node(groups, _POOLS) else ""
        except FeedError:  # a dim such as T - 5 would be negative
            return ""

    def can_reflect_pads(self, groups: Mapping[str, int]) -> bool:
        """Return whether each reflecting Pad has as much as it reflects.

        Not every ONNX Runtime refuses the others: 1.24.1 runs them, and fills in nothing there.
        """
        sizes = self._signature.symbol_sizes(groups) if self._reflected_dims else {}
        padded_sizes = ((_eval_dim(dim, sizes), pad) for dim, pad in self._reflected_dims)
        return all(size is None or size > pad for size, pad in padded_sizes)

    def first_empty_window(self, groups: Mapping[str, int]) -> ir.Node | None:
        """Return the first convolution or pooling that has less than its window, or None.

        ONNX Runtime runs that where nothing is to be computed, and a maximum of nothing is -inf.
        Of 3 samples, by a window of 4 and a stride of 2, its pools (1.32.0) make a frame where the
        standard has none: it rounds (3 - 4) / 2 to 0.
        """
        return self._first_empty_node(groups, _WINDOWS)

    def _first_empty_node(
        self, groups: Mapping[str, int], kinds: tuple[str, ...]
    ) -> ir.Node | None:
        windows = self._sliding(kinds)
        sizes = self._signature.symbol_sizes(groups) if windows else {}
        for node, dims in windows:
            if any((size := _eval_dim(dim, sizes)) is not None and size < 1 for dim in dims):
                return node
        return None

    @cached_property
    def _reflected_dims(self) -> list[tuple[Dim, int]]:
        """Return each dim that a Pad reflects, and how much of it."""
        model, reflections = self._signature.model, []
        for node in model.graph:
            if not is_op(node, "Pad") or attr_text(node, "mode", "") != "reflect":
                continue
            input_dims, pads = (
                self._signature.shapes.dims(node.inputs[0]),
                pads_of(node, View(model)),
            )
            if input_dims is not None and pads is not None and len(node.inputs) <= 3:
                pairs = zip((*input_dims, *input_dims), pads, strict=True)
                reflections += [
                    (dim, pad) for dim, pad in pairs if isinstance(pad, int) and pad > 0
                ]
        return reflections

    def _window_nodes(self, kinds: tuple[str, ...]) -> list[tuple[ir.Node, Sequence[Dim]]]:
        """Return the nodes that slide a window, with their output dims along the window's axes."""
        nodes = [x for x in self._signature.model.graph if is_op(x, *kinds)]
        nodes_and_dims = [(x, self._signature.shapes.dims(x.outputs[0]) or ()) for x in nodes]
        return [(x, dims[1 if is_op(x, "STFT") else 2 :]) for x, dims in nodes_and_dims]


def _eval_dim(dim: Dim, sizes: Mapping[str, int]) -> int | None:
    """Return the size of a dim at these sizes, or None if it is unknown."""
    size = dim if isinstance(dim, int) else dim.evaluate(sizes)
    return size if isinstance(size, int) else None
