"""Sizes at which a model seems to run although its result is undefined."""

from collections.abc import Mapping, Sequence
from functools import cache, cached_property

import onnx_ir as ir

from graphfix import ops
from graphfix.errors import FeedError
from graphfix.facts.symbolic.expressions import Dim
from graphfix.feeds.signature import Signature
from graphfix.graph.constants import ints_of
from graphfix.graph.nodes import is_op
from graphfix.ops.pads import pad_mode, pads_by_axis

# The result of a ConvTranspose is never empty.
_WINDOWS = (ops.CONVOLVES - ops.named("ConvTranspose")) | ops.POOLS | ops.named("STFT")
REFLECTS = "a Pad reflects more than there is"
SHORT_POOL = "a pool has less than its window, of which ONNX Runtime may make a frame"


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
            return SHORT_POOL if self._frames and self._first_empty_node(groups, ops.POOLS) else ""
        except FeedError:  # a dim such as T - 5 would be negative
            return ""

    def can_reflect_pads(self, groups: Mapping[str, int]) -> bool:
        """Return whether each reflecting Pad has as much as it reflects.

        ONNX Runtime 1.24.1 does not refuse the others: it leaves memory uninitialized there.
        """
        sizes = self._signature.symbol_sizes(groups) if self._reflected_dims else {}
        padded_sizes = ((_eval_dim(dim, sizes), pad) for dim, pad in self._reflected_dims)
        return all(size is None or size > pad for size, pad in padded_sizes)

    def first_empty_window(self, groups: Mapping[str, int]) -> ir.Node | None:
        """Return the first convolution or pooling that has less than its window, or None.

        ONNX Runtime runs them without elements: the maximum of none is -inf. From 3 samples, with a
        window of 4 and a stride of 2, its pools (1.32.0) make a frame where the standard makes
        none: it rounds (3 - 4) / 2 to 0.
        """
        return self._first_empty_node(groups, _WINDOWS)

    def _first_empty_node(self, groups: Mapping[str, int], kinds: ops.OpSet) -> ir.Node | None:
        windows = self._sliding(kinds)
        sizes = self._signature.symbol_sizes(groups) if windows else {}
        for node, dims in windows:
            if any((size := _eval_dim(dim, sizes)) is not None and size < 1 for dim in dims):
                return node
        return None

    @cached_property
    def _reflected_dims(self) -> list[tuple[Dim, int]]:
        """Return each dim that a Pad reflects, and how much of it."""
        reflected_dims: list[tuple[Dim, int]] = []
        for node in self._signature.model.graph:
            if not is_op(node, "Pad") or pad_mode(node) != "reflect":
                continue
            dims = self._signature.shapes.dims(node.inputs[0])
            if dims is not None:
                pads = pads_by_axis(node, len(dims), self._known_elements) or {}
                reflected_dims += [
                    (dims[axis], pad)
                    for axis, both in pads.items()
                    for pad in both
                    if isinstance(pad, int) and pad > 0
                ]
        return reflected_dims

    def _known_elements(self, value: ir.Value) -> Sequence[Dim] | None:
        return ints_of(value) or self._signature.shapes.known_elements(value)

    def _window_nodes(self, kinds: ops.OpSet) -> list[tuple[ir.Node, Sequence[Dim]]]:
        """Return the nodes that slide a window, with their output dims along the window's axes."""
        nodes = [x for x in self._signature.model.graph if x in kinds]
        nodes_and_dims = [(x, self._signature.shapes.dims(x.outputs[0]) or ()) for x in nodes]
        return [(x, dims[1 if is_op(x, "STFT") else 2 :]) for x, dims in nodes_and_dims]


def _eval_dim(dim: Dim, sizes: Mapping[str, int]) -> int | None:
    """Return the size of a dim at these sizes, or None if it is unknown."""
    size = dim if isinstance(dim, int) else dim.evaluate(sizes)
    return size if isinstance(size, int) else None
