"""Whether the calls of local functions come to an end."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeVar

import onnx
import onnx_ir as ir

from graphfix.files.malformed import MalformedError

K = TypeVar("K")


Name = ir.OperatorIdentifier


Functions = Mapping[Name, onnx.FunctionProto]


# A graph that gets more than this many nodes as its functions are written out is a trap: some
# kilobytes that take gigabytes. An export with all of its operators as functions gets 20,000.
_MAX_NODES = 300_000


def _callees_first(calls: Mapping[K, Collection[K]]) -> Iterator[K]:
    """Yield the keys, each behind those that it calls; of a cycle, one is behind the rest.

    Args:
        calls: What each calls; what is no key is passed over.
    """
    entered: set[K] = set()
    for root in calls:
        stack = [] if root in entered else [(root, iter(calls[root]))]
        entered.add(root)
        while stack:
            key, callees = stack[-1]
            inner = next((x for x in callees if x in calls and x not in entered), None)
            if inner is None:
                stack.pop()
                yield key
            else:
                entered.add(inner)
                stack.append((inner, iter(calls[inner])))


def require_finite_calls(proto: onnx.ModelProto, functions: Functions) -> None:
    """Raise MalformedError if functions call each other in a circle, or double without end.

    Args:
        proto: The model.
        functions: Its functions, by domain, name and overload.
    """
    if not functions:
        return
    calls = {key: _count_nodes_and_calls(x.node, functions) for key, x in functions.items()}
    total: dict[Name, int] = {}
    for key in _callees_first({key: callees for key, (_, callees) in calls.items()}):
        count, callees = calls[key]
        if any(x not in total for x in callees):
            raise MalformedError(f"the function {key[1]!r} calls itself")
        total[key] = count + sum(total[x] for x in callees)
    _, callees = _count_nodes_and_calls(proto.graph.node, functions)
    if max([sum(total[x] for x in callees), *total.values()]) > _MAX_NODES:
        raise MalformedError(
            f"its functions come to more than {_MAX_NODES:,} nodes once they are written out"
        )


def _count_nodes_and_calls(
    nodes: Iterable[onnx.NodeProto], functions: Functions
) -> tuple[int, list[Name]]:
    """Return the number of nodes, bodies included, and the functions that they call."""
    count, callees = 0, []
    pending = [*nodes]
    while pending:
        node = pending.pop()
        count += 1
        key = node.domain, node.op_type, node.overload
        if key in functions:
            callees.append(key)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                pending.extend(attribute.g.node)
            for graph in attribute.graphs:
                pending.extend(graph.node)
    return count, callees
