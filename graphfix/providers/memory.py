"""Estimate of the memory that the tensors of a run take, where the sizes of the inputs are known.

A tensor is there from the node that makes it to the last that reads it, in a graph inside a node as
well; what only has another shape shares the memory of what it was made of. Weights are not counted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import onnx_ir as ir

from graphfix.graph.dims import static_dims
from graphfix.graph.nodes import attr_int, input_at, is_op
from graphfix.graph.text import node_label
from graphfix.graph.walks import bodies_of, values_read_in_bodies
from graphfix.ops.attention import attention_slots
from graphfix.ops.traits import VIEWS
from graphfix.wording import plural

GIB, _MIB = 1 << 30, 1 << 20


@dataclass(frozen=True)
class PeakMemory:
    """The most memory that tensors take at a time.

    Attributes:
        size: All tensors that are needed at that time, in bytes; weights are not counted.
        at: The path of the node that runs then.
        largest: The largest of them, or the scores inside an attention.
        largest_size: Its size in bytes.
        unknown: How many tensors of the graph have a size that is not known; they count nothing.
    """

    size: int
    at: str
    largest: str
    largest_size: int
    unknown: int = 0

    @property
    def line(self) -> str:
        """Return the estimate in one line."""
        least = f"; {plural(self.unknown, 'tensor')} of unknown size not counted"
        return (
            f"an estimated {_size_text(self.size)} of tensors at {self.at!r}, of which "
            f"{self.largest} takes {_size_text(self.largest_size)}{least if self.unknown else ''}"
        )

    @property
    def note(self) -> str:
        """Return what takes so much, as a sentence."""
        return (
            f"{self.line}: one kernel is no promise that it fits; shorter inputs or a smaller "
            "batch take less"
        )


def _size_text(size: int) -> str:
    unit, name = (GIB, "GiB") if size >= GIB else (_MIB, "MiB")
    return f"{size / unit:.{1 if size >= unit else 2}f} {name}"


def peak_memory_of(nodes: Sequence[ir.Node], inputs: Sequence[ir.Value]) -> PeakMemory | None:
    """Return the most memory that a graph takes at a time; None if an input has no known size.

    Args:
        nodes: The nodes of the graph, in the order of a run.
        inputs: The inputs of the graph, which are there all the time.
    """
    if any(_byte_size(value) is None for value in inputs):
        return None
    return _peak_of(nodes, inputs)


def _peak_of(nodes: Sequence[ir.Node], inputs: Sequence[ir.Value]) -> PeakMemory | None:
    buffers = _buffers_of(nodes)
    values = [*inputs, *(x for node in nodes for x in node.outputs if x.name)]
    sizes = {buffers.get(x, x): size for x in values if (size := _byte_size(x)) is not None}
    unknown = len({buffers.get(x, x) for x in values} - sizes.keys())
    last_use = {
        buffers.get(x, x): i
        for i, node in enumerate(nodes)
        for x in (*node.inputs, *values_read_in_bodies(node))
        if x is not None
    }
    kept = {*inputs, *(buffers.get(x, x) for x in values if x.is_graph_output())}
    live = {x: sizes[x] for x in inputs if x in sizes}
    peak: PeakMemory | None = None
    for i, node in enumerate(nodes):
        made = (buffers.get(x, x) for x in node.outputs)
        live |= {x: sizes[x] for x in made if x in sizes and not x.is_initializer()}
        parts = {repr(x.name): size for x, size in live.items()}
        inner = [x for body in bodies_of(node) if (x := _peak_of([*body], body.inputs))]
        parts |= {f"{x.largest} inside" if n else x.largest: x.size for n, x in enumerate(inner)}
        parts |= dict(_inner_sizes(node))
        total = sum(parts.values())
        if parts and (peak is None or total > peak.size):
            largest = max(parts, key=lambda x: parts[x])
            peak = PeakMemory(total, node_label(node), largest, parts[largest], unknown)
        for value in [x for x in live if last_use.get(x, -1) <= i and x not in kept]:
            del live[value]
    return peak


def _buffers_of(nodes: Sequence[ir.Node]) -> dict[ir.Value, ir.Value]:
    """Return the tensor whose memory another one shares, for each that only has another shape."""
    buffers: dict[ir.Value, ir.Value] = {}
    for node in nodes:
        source = input_at(node, 0)
        if source is not None and is_op(node, *VIEWS):
            buffers[node.outputs[0]] = buffers.get(source, source)
    return buffers


def _inner_sizes(node: ir.Node) -> Iterator[tuple[str, int]]:
    """Yield what a node that computes attention makes inside: the scores of each head."""
    slots = attention_slots(node)
    query = None if slots is None else _dims_of(node, slots.query)
    if slots is None or query is None or not 3 <= len(query) <= 5:
        return
    heads = attr_int(node, "num_heads", 0) or attr_int(node, "q_num_heads", 0)
    heads = heads or (query[1] if len(query) == 4 else 0)
    length = query[1] if len(query) != 4 else query[2]
    keys = length  # where queries, keys and values are one tensor
    if input_at(node, slots.key) is not None:
        key = _dims_of(node, slots.key)
        if key is None or not 3 <= len(key) <= 5:
            return
        keys = key[1] if len(key) != 4 else key[2]
    for place in slots.pasts[:1]:
        past = _dims_of(node, place)
        keys += past[-2] if past is not None and len(past) >= 4 else 0
    queries = node.inputs[slots.query]
    width = 4 if queries is None or queries.dtype is None else queries.dtype.itemsize
    if heads:
        yield f"the scores of {node.op_type}", int(query[0] * heads * length * keys * width)


def _dims_of(node: ir.Node, index: int) -> list[int] | None:
    value = input_at(node, index)
    return None if value is None else static_dims(value.shape)


def _byte_size(value: ir.Value) -> int | None:
    dims = static_dims(value.shape)
    if dims is None or value.dtype is None:
        return None
    return int(prod(dims) * value.dtype.itemsize)
