"""Nodes that stand in any order, which ONNX Runtime allows, in the order that ONNX asks for."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import onnx

from graphfix.model.malformed import MalformedError, name_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


def put_in_order(nodes: Sequence[onnx.NodeProto], inner: Mapping[int, Collection[str]]) -> None:
    """Sort nodes in place, so that each comes after those whose outputs it reads.

    Args:
        nodes: Those of one graph.
        inner: By the place of a node, what the graphs in it read from outside.

    Raises:
        MalformedError: They are in a circle.
    """
    maker = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    waits: list[int] = []
    readers: dict[int, list[int]] = {}
    for i, node in enumerate(nodes):
        before = {maker[x] for x in (*node.input, *inner.get(i, ())) if x in maker}
        waits.append(len(before))
        for j in before:
            readers.setdefault(j, []).append(i)
    ready = deque(i for i, count in enumerate(waits) if not count)
    order = []
    while ready:
        i = ready.popleft()
        order.append(i)
        for j in readers.get(i, ()):
            waits[j] -= 1
            if not waits[j]:
                ready.append(j)
    if len(order) < len(waits):
        stuck = next(i for i, count in enumerate(waits) if count)
        raise MalformedError(
            f"{nodes[stuck].op_type} of {name_of(nodes[stuck])!r} waits for its own output: "
            "the nodes are in a circle"
        )
    copies = []
    for i in order:
        copy = onnx.NodeProto()
        copy.CopyFrom(nodes[i])
        copies.append(copy)
    del nodes[:]  # type: ignore[attr-defined]
    nodes.extend(copies)  # type: ignore[attr-defined]
