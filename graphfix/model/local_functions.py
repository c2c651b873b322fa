"""Local functions: whether their calls come to an end, and their bodies in the place of calls."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass, inliner

from graphfix.errors import ModelError
from graphfix.model import shapes
from graphfix.model.malformed import MalformedError
from graphfix.model.values import nodes_of

K = TypeVar("K")
Name = ir.OperatorIdentifier
Functions = Mapping[Name, onnx.FunctionProto]

# A graph that gets more than this many nodes as its functions are written out is a trap: some
# kilobytes that take gigabytes. An export with all of its operators as functions gets 20,000.
_MOST_NODES = 300_000


def inline(model: ir.Model) -> None:
    """Put the body of each local function in the place of its calls.

    Raises:
        ModelError: One is written for another opset than the model, which is then half changed.
    """
    try:
        with _counted_names():
            InlinePass()(model)
    except ValueError as error:
        raise ModelError(f"its local functions cannot be put in place: {error}") from error


def inlined(model: ir.Model) -> ir.Model:
    """A copy of a model without its local functions; weights are shared, not copied.

    Raises:
        ModelError: As :func:`inline`.
    """
    copy = model.clone()
    shapes.forget(copy)
    if copy.functions:
        inline(copy)
    return copy


@contextmanager
def _counted_names() -> Iterator[None]:
    """Let onnx-ir find the next free name at once; the names are the same.

    It tries ``name_2``, ``name_3``, ... from the start for each call: 15 s for 2,000 calls of one
    function, and four times that for twice as many (seen in onnx-ir 1.1.0).
    """
    theirs = getattr(inliner, "_make_unique_name", None)
    tried: dict[tuple[int, str], int] = {}

    def unique(name: str, _calls: object, used: set[str]) -> str:
        number = tried.get((id(used), name), 1)
        candidate = name if number == 1 else f"{name}_{number}"
        while candidate in used:
            number += 1
            candidate = f"{name}_{number}"
        tried[id(used), name] = number
        used.add(candidate)
        return candidate

    if theirs is None:  # another version, which may do it in another way
        yield
        return
    inliner._make_unique_name = unique  # type: ignore[assignment]
    try:
        yield
    finally:
        inliner._make_unique_name = theirs


def count(model: ir.Model) -> int:
    """How many nodes there are once all functions are written out, those in bodies among them."""
    made = {key: _operators(function.graph) for key, function in model.functions.items()}
    counts: dict[Name, int] = {}
    for key in _innermost_first(made):
        counts[key] = sum(1 + counts.get(x, 0) for x in made[key])
    return sum(1 + counts.get(x, 0) for x in _operators(model.graph))


def _operators(graph: ir.Graph) -> list[Name]:
    return [node.op_identifier() for node in nodes_of(graph)]


def _innermost_first(calls: Mapping[K, Collection[K]]) -> Iterator[K]:
    """The keys, each behind those that it calls; of a circle, one is behind the rest.

    Args:
        calls: What each calls; what is no key is passed over.
    """
    entered: set[K] = set()
    for root in calls:
        stack = [] if root in entered else [(root, iter(calls[root]))]
        entered.add(root)
        while stack:
            key, called = stack[-1]
            inner = next((x for x in called if x in calls and x not in entered), None)
            if inner is None:
                stack.pop()
                yield key
            else:
                entered.add(inner)
                stack.append((inner, iter(calls[inner])))


def require_end(proto: onnx.ModelProto, functions: Functions) -> None:
    """Raise MalformedError if functions call each other in a circle, or double without end.

    Args:
        proto: The model.
        functions: Its functions, by domain, name and overload.
    """
    if not functions:
        return
    calls = {key: _calls(x.node, functions) for key, x in functions.items()}
    total: dict[Name, int] = {}
    for key in _innermost_first({key: called for key, (_, called) in calls.items()}):
        count, called = calls[key]
        if any(x not in total for x in called):
            raise MalformedError(f"the function {key[1]!r} calls itself")
        total[key] = count + sum(total[x] for x in called)
    _, called = _calls(proto.graph.node, functions)
    if max([sum(total[x] for x in called), *total.values()]) > _MOST_NODES:
        raise MalformedError(
            f"its functions come to more than {_MOST_NODES:,} nodes once they are written out"
        )


def _calls(nodes: Iterable[onnx.NodeProto], functions: Functions) -> tuple[int, list[Name]]:
    """How many nodes there are, with those in their bodies, and which functions they call."""
    count, called = 0, []
    pending = [*nodes]
    while pending:
        node = pending.pop()
        count += 1
        key = node.domain, node.op_type, node.overload
        if key in functions:
            called.append(key)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                pending.extend(attribute.g.node)
            for graph in attribute.graphs:
                pending.extend(graph.node)
    return count, called
