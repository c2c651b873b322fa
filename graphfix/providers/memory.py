"""Estimate of the memory that the tensors of a run take, where all sizes are known."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import onnx_ir as ir

from graphfix.graph.dims import static_dims
from graphfix.graph.nodes import attr_int, input_at
from graphfix.graph.text import node_label
from graphfix.ops.attention import attention_slots

GIB = 1 << 30


@dataclass(frozen=True)
class PeakMemory:
    """The most memory that tensors take at a time.

    Attributes:
        size: All tensors that are needed at that time, in bytes; weights are not counted.
        at: The path of the node that runs then.
        largest: The largest of them, or the scores inside an attention.
        largest_size: Its size in bytes.
    """

    size: int
    at: str
    largest: str
    largest_size: int

    @property
    def note(self) -> str:
        """Return what takes so much, as a sentence."""
        return (
            f"an estimated {self.size / GIB:.1f} GiB of tensors at {self.at!r}, of which "
            f"{self.largest} takes {self.largest_size / GIB:.1f} GiB: one kernel is no promise "
            "that it fits; shorter inputs or a smaller batch take less"
        )


def peak_memory_of(nodes: Sequence[ir.Node], inputs: Sequence[ir.Value]) -> PeakMemory | None:
    """Return the most memory that a graph takes at a time; None if a size is not known.

    A tensor is there from the node that makes it to the last that reads it; a node's own inputs
    and outputs are there together.

    Args:
        nodes: The nodes of the graph, in the order of a run.
        inputs: The inputs of the graph, which are there all the time.
    """
    last_use = {x: i for i, node in enumerate(nodes) for x in node.inputs if x is not None}
    sizes = _byte_sizes([*inputs, *(value for node in nodes for value in node.outputs)])
    if sizes is None:
        return None
    live = {value: sizes[value] for value in inputs}
    peak: PeakMemory | None = None
    for i, node in enumerate(nodes):
        live |= {value: sizes[value] for value in node.outputs if value in sizes}
        parts = {repr(x.name): size for x, size in live.items()}
        parts |= dict(_inner_sizes(node))
        total = sum(parts.values())
        if parts and (peak is None or total > peak.size):
            largest = max(parts, key=lambda x: parts[x])
            peak = PeakMemory(total, node_label(node), largest, parts[largest])
        done = [x for x in live if last_use.get(x, -1) <= i and not x.is_graph_output()]
        for value in {*done} - {*inputs}:
            del live[value]
    return peak


def _byte_sizes(values: Iterable[ir.Value]) -> dict[ir.Value, int] | None:
    """Return the bytes of each tensor that has a name; None if a size is not known."""
    sizes = {value: _byte_size(value) for value in values if value.name}
    known = {value: size for value, size in sizes.items() if size is not None}
    return known if len(known) == len(sizes) else None


def _inner_sizes(node: ir.Node) -> Iterator[tuple[str, int]]:
    """Yield what a node that computes attention makes inside: the scores of each head."""
    slots, heads = attention_slots(node), attr_int(node, "num_heads", 0)
    if slots is None or not heads:
        return
    query, key = _dims_of(node, slots.query), _dims_of(node, slots.key)
    if query is None or key is None or not 3 <= len(query) <= 5:
        return
    length = query[1] if len(query) != 4 else query[2]
    keys = key[1] if len(key) != 4 else key[2]
    for place in slots.pasts[:1]:
        past = _dims_of(node, place)
        keys += past[-2] if past is not None and len(past) >= 4 else 0
    queries = node.inputs[slots.query]
    width = 4 if queries is None or queries.dtype is None else queries.dtype.itemsize
    yield f"the scores of {node.op_type}", int(query[0] * heads * length * keys * width)


def _dims_of(node: ir.Node, index: int) -> list[int] | None:
    value = input_at(node, index)
    return None if value is None else static_dims(value.shape)


def _byte_size(value: ir.Value) -> int | None:
    dims = static_dims(value.shape)
    if dims is None or value.dtype is None:
        return None
    return int(prod(dims) * value.dtype.itemsize)
