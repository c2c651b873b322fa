"""What a Loop does to one chunk as a model of its own: held against padding, then put in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.errors import PaddingError, UsageError
from graphfix.lengths.analysis import analyse
from graphfix.lengths.apply import INPUT, apply
from graphfix.lengths.repairs import LastFrames
from graphfix.lengths.source import find
from graphfix.model.shapes import infer
from graphfix.model.values import bodies_of, const_of, is_op, tensor_in

from ._window_alone import mixing
from ._window_loop import dims_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphfix.lengths.analysis import Analysis
    from graphfix.model.shapes import Dim
    from graphfix.model.view import View

    from ._window_loop import Chunks

_ROWS, PLACES = "rows", "places"


@dataclass(frozen=True)
class Body:
    """The body for one chunk, as a model.

    Attributes:
        model: It; its inputs are the chunks, then what is no constant around it.
        outer: The tensors around it, by those that stand for them in the model.
        made: The dims of what it makes, in ``rows`` and ``places``.
    """

    model: ir.Model
    outer: dict[ir.Value, ir.Value]
    made: tuple[Dim, ...]

    def told(self, by: str) -> tuple[ir.Graph, ir.Value | None]:
        """The graph, which now takes chunks that are filled up, and its input of their lengths.

        None if there is nothing to tell: no row looks at another.
        """
        found = _padding(self.model)
        if found.repairs:
            list(apply(self.model, found, by, None, zero=False, olens=False))
        graph = self.model.graph
        return graph, next((x for x in graph.inputs if x.name == INPUT), None)


def body_of(chunks: Chunks, view: View) -> Body | str:
    """The body of a Loop as a model that takes chunks of many rows; or why it takes none."""
    body = _modelled(chunks, view)
    if isinstance(body, str):
        return body
    node = mixing(body.model.graph, _ROWS, infer(body.model, usual=True))
    if node is not None:
        return f"{node.op_type} {node.name} is not seen to compute each row of a batch alone"
    try:
        found = _padding(body.model)
    except (PaddingError, UsageError) as error:
        return f"its last chunk is shorter, and what fills it up cannot be hidden: {error}"
    ends = [x for x in found.repairs if isinstance(x, LastFrames) and is_op(x.node, "Slice")]
    if any(min(x.offsets) < -1 for x in ends):
        return "its last chunk may be shorter than what is read at the end of each"
    if found.refusals:
        first = found.refusals[0]
        return (
            "its last chunk is shorter, and what fills it up cannot be hidden from "
            f"{first.node.op_type} {first.node.name}: {first.reason}"
        )
    return body


def _padding(model: ir.Model) -> Analysis:
    return analyse(model, find(model, f"{model.graph.inputs[0].name}.1"))


def _modelled(chunks: Chunks, view: View) -> Body | str:
    """The body as a model of chunks [rows, places, F]."""
    graph = chunks.body.clone(allow_outer_scope_values=True)
    pairs = zip(chunks.body, graph, strict=True)
    values = {a: b for old, new in pairs for a, b in zip(old.outputs, new.outputs, strict=True)}
    if any(bodies_of(node) for node in graph):
        return "there is a branch or a loop in what it does to a chunk"
    made = values.get(chunks.made)
    if made is None:
        return "what it makes of a chunk is not computed in the Loop"
    graph.outputs[:] = [made]
    graph.inputs.clear()
    model = ir.Model(graph, ir_version=view.model.ir_version)
    graph.opset_imports.update(view.model.graph.opset_imports)
    outer: dict[ir.Value, ir.Value] = {}
    first = graph[0]
    for i, taken in enumerate(chunks.taken):
        dims = dims_of(taken.value, taken.axis, view)
        dtype = view.shapes.dtype(taken.value)
        if dtype is None or dims is None:
            return "the type of what it cuts into chunks is not known"
        chunk = ir.Value(
            name=f"chunk{i}",
            shape=ir.Shape([_ROWS, PLACES, dims[2]]),
            type=ir.TensorType(dtype),
        )
        graph.inputs.append(chunk)
        outer[chunk] = taken.value
        item = chunk
        if taken.axis == 2:
            turn = _turned(chunk)
            graph.insert_before(first, turn)
            item = turn.outputs[0]
        for old in taken.items:
            values[old].replace_all_uses_with(item, replace_graph_outputs=True)
    if chunks.axis == 2:
        turn = _turned(graph.outputs[0])
        graph.append(turn)
        graph.outputs[0] = turn.outputs[0]
    _swept(graph)
    why = _captured(graph, outer, view)
    if why is not None:
        return why
    found = infer(model, usual=True).dims(graph.outputs[0])
    if found is None or len(found) != 3 or str(found[0]) != _ROWS or not isinstance(found[2], int):
        seen = "nothing is known" if found is None else f"it has the dims {[*map(str, found)]}"
        return f"what it makes of a chunk is not seen to be [batch, time, features]: {seen}"
    return Body(model, outer, tuple(found))


def _turned(value: ir.Value) -> ir.Node:
    """[B, F, T] of [B, T, F], or back."""
    node = ir.node("Transpose", [value], attributes={"perm": [0, 2, 1]})
    node.outputs[0].name = node.name = f"{value.name}_turned"
    return node


def _swept(graph: ir.Graph) -> None:
    """Remove what took the chunk from the sequence, and what carried the sequence on."""
    for node in reversed(list(graph)):
        if not any(x.uses() or x.is_graph_output() for x in node.outputs):
            graph.remove(node, safe=True)


def _captured(graph: ir.Graph, outer: dict[ir.Value, ir.Value], view: View) -> str | None:
    """Let tensors around the body be constants and inputs of its model; or why they cannot."""
    own = {*graph.inputs, *graph.initializers.values(), *(x for n in graph for x in n.outputs)}
    used = dict.fromkeys(x for n in graph for x in n.inputs if x is not None and x not in own)
    for value in used:
        tensor = _constant(value)
        dims, dtype = view.usual.dims(value), view.shapes.dtype(value)
        if tensor is None and (dims is None or not all(isinstance(x, int) for x in dims)):
            return f"its chunks are computed with {value.name!r}, whose size is not fixed"
        if dtype is None:
            return f"the type of {value.name!r} is not known"
        sizes: Sequence[Dim] = dims or ()
        if tensor is not None:
            sizes = tensor.shape.numpy()
        new = ir.Value(name=value.name, shape=ir.Shape(sizes), type=ir.TensorType(dtype))
        if tensor is not None:
            new.const_value = tensor
            graph.register_initializer(new)
        else:
            graph.inputs.append(new)
        outer[new] = value
        for use in [x for x in value.uses() if x.node.graph is graph]:
            use.node.replace_input_with(use.idx, new)
    return None


def _constant(value: ir.Value) -> ir.TensorProtocol | None:
    """What a tensor holds, if the file says so; it is not read."""
    node = value.producer()
    if value.is_graph_input():
        return None
    if node is None:
        return value.const_value
    if not is_op(node, "Constant"):
        return None
    if "value" in node.attributes:
        return tensor_in(node.attributes["value"])
    array = const_of(value)
    return None if array is None else ir.tensor(array)
