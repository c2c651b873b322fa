"""Faults of the second sort: one small thing in the graph is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from graphfix.graph.constants import scalar_of
from graphfix.graph.nodes import is_op

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# kind, the name of what is made wrong, what makes it wrong in a copy: from the node of that copy
Fault = tuple[str, str, "Callable[[ir.Node], bool]"]

_INDEXED = {"Gather": (1,), "Slice": (1, 2), "Range": (0, 1), "CumSum": (1,), "Pad": (1,)}
_SWAPPED = {"Sub", "Div", "MatMul", "Less", "Greater", "Pow", "GreaterOrEqual", "LessOrEqual"}


def plant(model: ir.Model, place: int, change: Callable[[ir.Node], bool]) -> ir.Model | None:
    """A copy with the node at ``place`` made wrong; None if it could not be."""
    copy = model.clone()
    nodes = list(copy.graph)
    return copy if change(nodes[place]) else None


def graph_faults(model: ir.Model) -> Iterator[tuple[str, int, Callable[[ir.Node], bool]]]:
    """Every kind at every node of the main graph that allows it."""
    for place, node in enumerate(model.graph):
        for kind, change in _faults(node):
            yield kind, place, change


def _faults(node: ir.Node) -> Iterator[tuple[str, Callable[[ir.Node], bool]]]:
    axis = node.attributes.get("axis")
    if axis is not None and node.op_type not in ("LayerNormalization", "Concat"):
        yield "an axis", _other_axis
    if is_op(node, "Transpose"):
        yield "an axis", _other_perm
    for index in _INDEXED.get(node.op_type, ()):
        if _is_constant(node, index):
            yield "an index off by one", lambda n, i=index: _shift(n, i)
    if node.op_type in ("Add", "Sub") and any(_whole_scalar(x) for x in node.inputs):
        at = next(i for i, x in enumerate(node.inputs) if _whole_scalar(x))
        yield "an index off by one", lambda n, i=at: _shift(n, i)
    if node.op_type in _SWAPPED:
        yield "a swapped pair", lambda n: _swap(n, 0, 1)
    if is_op(node, "Where"):
        yield "a swapped pair", lambda n: _swap(n, 1, 2)
    if is_op(node, "Concat") and len(node.inputs) > 1:
        yield "a swapped pair", lambda n: _swap(n, 0, 1)
    if is_op(node, "Mul", "Div") and (at := _scale_at(node)) is not None:
        yield "a lost scale", lambda n, i=1 - at: _bypass(n, i)
    for index, value in enumerate(node.inputs):
        number = scalar_of(value) if value is not None else None
        if number is not None and float(number) <= -1e3 and is_op(node, "Where", "Add", "Mul"):
            yield "a wrong fill", lambda n, i=index: _set(n, i, 0.0)
    if is_op(node, "Not"):
        yield "a dropped Not", lambda n: _bypass(n, 0)


def _is_constant(node: ir.Node, index: int) -> bool:
    value = node.inputs[index] if index < len(node.inputs) else None
    tensor = ir.convenience.get_const_tensor(value) if value is not None else None
    if tensor is None or not tensor.dtype.is_integer():
        return False
    return tensor.size <= 64 and bool((np.abs(tensor.numpy()) < 1 << 31).all())


def _whole_scalar(value: ir.Value | None) -> bool:
    number = scalar_of(value) if value is not None else None
    return (
        number is not None and value is not None and bool(value.dtype and value.dtype.is_integer())
    )


def _scale_at(node: ir.Node) -> int | None:
    for index in (1, 0) if node.op_type == "Mul" else (1,):
        value = node.inputs[index]
        number = scalar_of(value) if value is not None else None
        if number is not None and 1e-3 < abs(float(number)) < 1e3 and float(number) != 1:
            return index
    return None


def _other_axis(node: ir.Node) -> bool:
    axis = node.attributes["axis"].as_int()
    node.attributes["axis"] = ir.AttrInt64("axis", axis - 1 if axis not in (0,) else 1)
    return True


def _other_perm(node: ir.Node) -> bool:
    perm = list(node.attributes["perm"].as_ints()) if "perm" in node.attributes else []
    if len(perm) < 2:
        return False
    perm[-1], perm[-2] = perm[-2], perm[-1]
    node.attributes["perm"] = ir.AttrInt64s("perm", perm)
    return True


def _new_constant(node: ir.Node, index: int, array: np.ndarray) -> bool:
    graph, name = node.graph, f"planted_{index}"
    assert isinstance(graph, ir.Graph)
    value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
    value.type, value.shape = ir.TensorType(ir.tensor(array).dtype), ir.Shape(array.shape)
    graph.register_initializer(value)
    node.replace_input_with(index, value)
    return True


def _shift(node: ir.Node, index: int) -> bool:
    value = node.inputs[index]
    tensor = ir.convenience.get_const_tensor(value) if value is not None else None
    assert tensor is not None
    return _new_constant(node, index, tensor.numpy() + np.array(1, tensor.numpy().dtype))


def _set(node: ir.Node, index: int, number: float) -> bool:
    value = node.inputs[index]
    tensor = ir.convenience.get_const_tensor(value) if value is not None else None
    if tensor is None:
        return False
    return _new_constant(node, index, np.full(tensor.numpy().shape, number, tensor.numpy().dtype))


def _swap(node: ir.Node, one: int, two: int) -> bool:
    a, b = node.inputs[one], node.inputs[two]
    node.replace_input_with(one, b)
    node.replace_input_with(two, a)
    return a is not b


def _bypass(node: ir.Node, index: int) -> bool:
    value = node.inputs[index]
    assert value is not None
    new = ir.Node("", "Identity", [value])
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    graph.insert_before(node, new)
    ir.convenience.replace_nodes_and_values(
        graph, node, [node], [], [node.outputs[0]], [new.outputs[0]]
    )
    return True


def sample(
    faults: Sequence[tuple[str, int, Callable[[ir.Node], bool]]], each: int
) -> list[tuple[str, int, Callable[[ir.Node], bool]]]:
    """At most ``each`` of a kind, spread evenly over the graph."""
    by_kind: dict[str, list[tuple[str, int, Callable[[ir.Node], bool]]]] = {}
    for fault in faults:
        by_kind.setdefault(fault[0], []).append(fault)
    found = []
    for known in by_kind.values():
        picked = {round(i) for i in np.linspace(0, len(known) - 1, min(each, len(known)))}
        found += [known[i] for i in sorted(picked)]
    return found
