"""What the graph needs of the sizes of its inputs: equations that a run fails without.

A Gemm behind a Flatten takes one number of features, a skip connection one length, a Reshape to
``[-1, 160]`` a multiple of 160. Each is told from symbolic shapes; what these do not know is none.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Literal

import onnx_ir as ir

from graphfix.model.broadcast import BROADCAST
from graphfix.model.pads import pads_of
from graphfix.model.symbolic import replaced, symbols_of, times
from graphfix.model.values import attr_int, is_op
from graphfix.model.view import View

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from graphfix.model.shapes import Dim, Shapes

Kind = Literal["equal", "broadcast", "divides", "some", "reflects"]

_TOGETHER = frozenset({*BROADCAST, "PRelu"})
WINDOWS = ("Conv", "MaxPool", "AveragePool", "LpPool", "STFT")
_RECURRENT = ("LSTM", "GRU", "RNN")


@dataclass(frozen=True)
class Need:
    """Something that must hold of two sizes.

    Attributes:
        kind: That they are equal; equal, or one of them 1; that the first can be divided by the
            second; that the first is at least the second; the same of what a Pad reflects, which
            not every ONNX Runtime refuses (1.24.1 runs it, and fills in nothing there).
        a: The first.
        b: The second.
    """

    kind: Kind
    a: Dim
    b: Dim


def needs_of(model: ir.Model, shapes: Shapes) -> list[Need]:
    """What the nodes of the main graph need, each once; a branch might not be run at all."""
    found: dict[tuple[Kind, str, str], Need] = {}
    view, own = (
        View(model),
        {s for x in model.graph.inputs for d in x.shape or () for s in symbols_of(d)},
    )
    joins: dict[str, Dim] = {}
    for node in model.graph:
        for need in _of(node, shapes, view):
            a, b = replaced(need.a, joins), replaced(need.b, joins)
            if (isinstance(a, int) and isinstance(b, int)) or a == b:
                continue
            kind: Kind = "equal" if need.kind == "broadcast" and _are_one(a, b) else need.kind
            found.setdefault((kind, str(a), str(b)), Need(kind, a, b))
        if node.op_type in _TOGETHER and is_op(node, node.op_type):
            joins |= _joined(node, shapes, own, joins)
    return list(found.values())


def _are_one(a: Dim, b: Dim) -> bool:
    """Whether two dims that go together are one size, and neither is made for being 1."""
    first, second = sorted((a, b), key=lambda x: isinstance(x, int))
    plain = isinstance(first, ir.SymbolicDim) and str(first).isidentifier()
    if isinstance(second, int):
        return second > 1 and not plain
    return bool(symbols_of(a) & symbols_of(b))


def _joined(
    node: ir.Node, shapes: Shapes, own: set[str], joins: Mapping[str, Dim]
) -> dict[str, Dim]:
    """What two dims that go together make, which has a name of its own, as one of the two."""
    found: dict[str, Dim] = {}
    made = shapes.dims(node.outputs[0]) or ()
    for dims in filter(None, map(shapes.dims, node.inputs)):
        for out, dim in zip(made[::-1], dims[::-1], strict=False):
            name = str(out)
            if isinstance(out, ir.SymbolicDim) and name.isidentifier() and name not in own:
                given = replaced(dim, joins)
                if symbols_of(given) and symbols_of(given) <= own:
                    found.setdefault(name, given)
    return found


def _of(node: ir.Node, shapes: Shapes, view: View) -> Iterator[Need]:
    given = [shapes.dims(x) for x in node.inputs]
    known = [x for x in given if x is not None]
    if not is_op(node, node.op_type):
        return
    if node.op_type in _TOGETHER:
        for a, b in itertools.combinations(known, 2):
            yield from _pairs("broadcast", a[::-1], b[::-1])
    elif is_op(node, "MatMul") and len(known) == 2 and all(len(x) > 1 for x in known):
        a, b = known
        yield Need("equal", a[-1], b[-2])
        yield from _pairs("broadcast", a[-3::-1], b[-3::-1])
    elif is_op(node, "Gemm") and len(known) > 1 and len(known[0]) == len(known[1]) == 2:
        inner = known[0][0 if attr_int(node, "transA", 0) else 1]
        yield Need("equal", inner, known[1][1 if attr_int(node, "transB", 0) else 0])
    elif is_op(node, "Concat") and len({len(x) for x in known}) == 1 and known[0]:
        axis = attr_int(node, "axis", 0) % len(known[0])
        for a, b in itertools.pairwise(known):
            yield from _pairs("equal", _without(a, axis), _without(b, axis))
    elif is_op(node, "Reshape") and len(given) > 1 and given[0] is not None:
        yield from _reshape(node, given[0], shapes)
    elif is_op(node, *WINDOWS):
        yield from _window(node, known, shapes)
    elif is_op(node, *_RECURRENT) and len(known) > 1:
        yield Need("equal", known[0][-1], known[1][-1])
        for state in given[5:7]:
            if state is not None and len(state) == len(known[0]) == 3:
                yield Need("equal", state[1], known[0][1])
    elif is_op(node, "Pad") and given[0] is not None:
        yield from _pad(node, given[0], view)
    elif is_op(node, "TopK") and given[0] and len(given) > 1:
        for count in shapes.data(node.inputs[1]) or ():
            yield Need("some", given[0][attr_int(node, "axis", -1)], count)


def _window(node: ir.Node, known: Sequence[Sequence[Dim]], shapes: Shapes) -> Iterator[Need]:
    made = shapes.dims(node.outputs[0])
    for dim in (made or ())[1 if is_op(node, "STFT") else 2 :]:
        yield Need("some", dim, 1)
    if is_op(node, "Conv") and len(known) > 1 and len(known[0]) > 2 and len(known[1]) > 2:
        yield Need("equal", known[0][1], times(known[1][1], attr_int(node, "group", 1)))


def _reshape(node: ir.Node, given: Sequence[Dim], shapes: Shapes) -> Iterator[Need]:
    target = shapes.data(node.inputs[1])
    if target is None:
        return
    copies = attr_int(node, "allowzero", 0) == 0
    pairs = list(zip(given, target, strict=False))
    # What both have at the same place, or copies, cancels.
    same = {i for i, (a, b) in enumerate(pairs) if a == b or (copies and b == 0)}
    left = [x for i, x in enumerate(given) if i not in same]
    made = [x for i, x in enumerate(target) if i not in same and x != -1]
    if any(isinstance(x, int) and x < 1 for x in made):
        return
    one: Dim = 1
    whole, parts = reduce(times, left, one), reduce(times, made, one)
    yield Need("divides" if -1 in target else "equal", whole, parts)


def _pad(node: ir.Node, given: Sequence[Dim], view: View) -> Iterator[Need]:
    mode = node.attributes.get("mode")
    pads = pads_of(node, view)
    if mode is None or mode.as_string() != "reflect" or pads is None or len(node.inputs) > 3:
        return
    for i, pad in enumerate(pads):
        if isinstance(pad, int) and pad > 0:
            yield Need("reflects", given[i % len(given)], pad + 1)


def _pairs(kind: Kind, a: Sequence[Dim], b: Sequence[Dim]) -> Iterator[Need]:
    for first, second in zip(a, b, strict=False):
        yield Need(kind, first, second)


def _without(dims: Sequence[Dim], axis: int) -> list[Dim]:
    return [x for i, x in enumerate(dims) if i != axis]
