"""One fault in a valid model: what a broken exporter, a broken disk or a bad person might make."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from tests.conformance.cases import Case

    Corruption = Callable[[onnx.ModelProto, Random], object]

_INTS = (-(2**63), -(2**31), -100, -7, -2, -1, 0, 1, 2, 5, 99, 2**31, 2**40 + 1, 2**62, 2**63 - 1)
_FLOATS = (float("nan"), float("inf"), -1.0, 0.0, 1e38)
_TEXTS = (b"", b"\xff\xfe", "é".encode(), b"NOTSET", b"\x1b[2Jx", b"bij,bjk->", b"a" * 3000)
_NAMES = ("\x1b]0;owned\x07", "a\nb", "\x00", "", "x" * 5000, "../../etc", "{}%s", "‮abc")
_DIMS = (-1, 0, 2**31, 2**40 + 1, 2**62, 2**63 - 1)
_SYMBOLS = (
    "9**9**9",
    "T//0",
    "(" * 60,
    "-T",
    "T+",
    "é x",
    "1",
    "T*-3",
    "max(T, 5)",
    "0.5*T",
    "inf",
)
_OPSETS = (-1, 0, 1, 5, 12, 99, 2**31, 2**63 - 1)


def base(case: Case, rng: Random) -> onnx.ModelProto:
    """A valid model: a test, perhaps with names for sizes, perhaps with fixed inputs."""
    proto = case.sized(rng.choice(["plain", "named", "apart"]))
    given = {x.name for x in proto.graph.initializer}
    for value in list(proto.graph.input):
        array = case.examples[0].feeds.get(value.name)
        if not isinstance(array, np.ndarray) or array.size > 64 or value.name in given:
            continue
        if rng.random() < (0.8 if array.dtype.kind in "iub" and array.ndim < 2 else 0.2):
            kind = value.type.tensor_type.elem_type
            try:
                tensor = numpy_helper.from_array(array, value.name)
            except (ValueError, TypeError, KeyError, NotImplementedError):
                continue
            if tensor.data_type == kind:
                proto.graph.initializer.append(tensor)
                proto.graph.input.remove(value)
    return proto


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def _node(proto: onnx.ModelProto, rng: Random) -> onnx.NodeProto:
    return rng.choice(list(_nodes(proto.graph)))


def _tensors(proto: onnx.ModelProto) -> list[onnx.TensorProto]:
    found = list(proto.graph.initializer)
    for node in _nodes(proto.graph):
        found += [x.t for x in node.attribute if x.HasField("t")]
    return found


def value_of_attribute(proto: onnx.ModelProto, rng: Random) -> None:
    every = [x for node in _nodes(proto.graph) for x in node.attribute if not x.HasField("g")]
    attribute = rng.choice(every)
    kind = attribute.type
    if kind == onnx.AttributeProto.INT:
        attribute.i = rng.choice(_INTS)
    elif kind == onnx.AttributeProto.FLOAT:
        attribute.f = rng.choice(_FLOATS)
    elif kind == onnx.AttributeProto.STRING:
        attribute.s = rng.choice(_TEXTS)
    elif kind == onnx.AttributeProto.INTS:
        _list(attribute.ints, _INTS, rng)
    elif kind == onnx.AttributeProto.FLOATS:
        _list(attribute.floats, _FLOATS, rng)
    elif kind == onnx.AttributeProto.STRINGS:
        _list(attribute.strings, _TEXTS, rng)


def known_attribute(proto: onnx.ModelProto, rng: Random) -> None:
    """One that the operator has, with a strange value."""
    node = _node(proto, rng)
    schema = onnx.defs.get_schema(node.op_type, domain=node.domain)
    name = rng.choice(sorted(schema.attributes))
    kind = str(schema.attributes[name].type).rpartition(".")[2]
    made: object = {
        "INT": rng.choice(_INTS),
        "FLOAT": rng.choice(_FLOATS),
        "STRING": rng.choice(_TEXTS),
        "INTS": [rng.choice(_INTS) for _ in range(rng.randrange(5))],
        "FLOATS": [rng.choice(_FLOATS) for _ in range(rng.randrange(3))],
        "STRINGS": [rng.choice(_TEXTS) for _ in range(rng.randrange(3))],
        "TENSOR": helper.make_tensor("t", rng.choice([1, 7, 8, 10]), [0], []),
    }[kind]
    for attribute in node.attribute:
        if attribute.name == name:
            node.attribute.remove(attribute)
            break
    number = getattr(onnx.AttributeProto, kind)
    node.attribute.append(helper.make_attribute(name, made, attr_type=number))


def _list(items: object, values: tuple[object, ...], rng: Random) -> None:
    held: list[object] = list(items)  # type: ignore[call-overload]
    how = rng.randrange(5)
    if how == 0 or not held:
        held = [rng.choice(values) for _ in range(rng.randrange(6))]
    elif how == 1:
        held[rng.randrange(len(held))] = rng.choice(values)
    elif how == 2:
        held.append(rng.choice([held[0], rng.choice(values)]))
    elif how == 3:
        held = held[: rng.randrange(len(held))]
    else:
        held = [held[0]] * len(held)
    del items[:]  # type: ignore[attr-defined]
    items.extend(held)  # type: ignore[attr-defined]


def type_of_attribute(proto: onnx.ModelProto, rng: Random) -> None:
    attribute = rng.choice([x for node in _nodes(proto.graph) for x in node.attribute])
    name = attribute.name
    if rng.random() < 0.3:
        attribute.type = rng.choice(range(15))
        return
    made = [1, 1.5, "x", [1, 2], [1.0], ["a"], helper.make_tensor("t", 1, [1], [1.0])]
    attribute.CopyFrom(helper.make_attribute(name, rng.choice(made)))


def attributes_of_another_number(proto: onnx.ModelProto, rng: Random) -> None:
    node = rng.choice([x for x in _nodes(proto.graph) if x.attribute])
    how = rng.randrange(3)
    if how == 0:
        node.attribute.remove(rng.choice(list(node.attribute)))
    elif how == 1:
        node.attribute.append(rng.choice(list(node.attribute)))
    else:
        node.attribute.append(helper.make_attribute("colour", 1))


def content_of_tensor(proto: onnx.ModelProto, rng: Random) -> None:
    """Other numbers, of the same type and shape."""
    whole = [x for x in _tensors(proto) if x.data_type in (1, 6, 7, 9, 10, 11)]
    tensor = rng.choice(whole)
    array = numpy_helper.to_array(tensor).copy()
    values: list[object] = list(_FLOATS if array.dtype.kind == "f" else _INTS)
    if array.dtype.kind == "b":
        values = [False, True]
    if array.dtype == np.int32:
        values = [int(np.clip(x, -(2**31), 2**31 - 1)) for x in _INTS]
    if rng.random() < 0.3:
        array[...] = rng.choice(values)
    elif array.size:
        array.reshape(-1)[rng.randrange(array.size)] = rng.choice(values)
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def shape_of_tensor(proto: onnx.ModelProto, rng: Random) -> None:
    """Another shape or type, with as many bytes as it takes."""
    tensor = rng.choice(_tensors(proto))
    dims = rng.choice([[], [0], [1], [2], [3], [2, 3], [1, 1, 1], [0, 4], [5], [1] * 40])
    kind = rng.choice([1, 2, 6, 7, 9, 10, 11, 16, 22, tensor.data_type])
    if kind == 8:
        return
    bits = {1: 32, 2: 8, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 16: 16, 22: 4}.get(kind, 32)
    count = int(np.prod(dims, dtype=np.int64))
    name = tensor.name
    raw = bytes(rng.choice([0, 1, 1, 255]) for _ in range((count * bits + 7) // 8))
    if kind == 9:
        raw = bytes(x % 2 for x in raw)
    tensor.Clear()
    tensor.name, tensor.data_type, tensor.raw_data = name, kind, raw
    tensor.dims.extend(dims)


def length_of_tensor(proto: onnx.ModelProto, rng: Random) -> None:
    tensor = rng.choice(_tensors(proto))
    how = rng.randrange(4)
    if how == 0:
        tensor.raw_data = bytes(rng.randrange(20))
    elif how == 1:
        del tensor.dims[:]
        tensor.dims.extend(rng.choice(_DIMS) for _ in range(rng.randrange(4)))
    elif how == 2:
        tensor.data_type = rng.choice([0, 1, 8, 9, 14, 20, 23, 99, 2**31 - 1])
    else:
        tensor.dims.extend([1] * 1000)


def inputs_of_node(proto: onnx.ModelProto, rng: Random) -> None:
    node = _node(proto, rng)
    names = [x for other in proto.graph.node for x in (*other.input, *other.output)]
    how = rng.randrange(5)
    if how == 0 or not node.input:
        node.input.append(rng.choice([*names, "", "nowhere"]))
    elif how == 1:
        del node.input[rng.randrange(len(node.input)) :]
    elif how == 2:
        node.input[rng.randrange(len(node.input))] = rng.choice(["", "nowhere"])
    elif how == 3:
        node.input[rng.randrange(len(node.input))] = rng.choice(names)
    else:
        node.input.extend([node.input[0]] * rng.choice([1, 5, 300]))


def outputs_of_node(proto: onnx.ModelProto, rng: Random) -> None:
    node = _node(proto, rng)
    how = rng.randrange(4)
    if how == 0:
        del node.output[:]
    elif how == 1:
        node.output.append(rng.choice(["", "more"]))
    elif how == 2:
        node.output.append(node.output[0])
    else:
        node.output[0] = rng.choice(["", "else", *node.input])


def operator(proto: onnx.ModelProto, rng: Random) -> None:
    """Another operator, of the same inputs and attributes."""
    node = _node(proto, rng)
    how = rng.randrange(6)
    if how == 0:
        node.op_type = rng.choice(["", "Nothing", "a\nb", "If"])
    elif how == 1:
        node.domain = rng.choice(["com.microsoft", "ai.onnx", "ai.onnx.ml", "none", "\x1b[2J"])
        if rng.random() < 0.5:
            proto.opset_import.append(helper.make_opsetid(node.domain, 1))
    else:
        known = sorted({x.name for x in onnx.defs.get_all_schemas() if not x.domain})
        node.op_type = rng.choice(known)
        if rng.random() < 0.7:
            del node.attribute[:]


def name(proto: onnx.ModelProto, rng: Random) -> None:
    new = rng.choice(_NAMES)
    values = [*proto.graph.input, *proto.graph.output]
    old = rng.choice([x.name for x in values] or ["x"])
    how = rng.randrange(4)
    if how == 0:
        _node(proto, rng).name = new
        return
    if how == 1:
        proto.graph.name = new
        return
    if how == 2:
        new = rng.choice([x.name for x in values])  # doubled
    for value in (*values, *proto.graph.initializer):
        if value.name == old:
            value.name = new
    for node in _nodes(proto.graph):
        for names in (node.input, node.output):
            for i, one in enumerate(names):
                if one == old:
                    names[i] = new


def type_of_input(proto: onnx.ModelProto, rng: Random) -> None:
    value = rng.choice([*proto.graph.input, *proto.graph.output])
    how = rng.randrange(9)
    tensor = value.type.tensor_type
    if how == 0:
        value.ClearField("type")
    elif how == 1:
        tensor.elem_type = rng.choice([0, 1, 7, 8, 9, 10, 14, 16, 17, 22, 99])
    elif how == 2:
        tensor.ClearField("shape")
    elif how == 3:
        for _ in range(1000):
            tensor.shape.dim.add(dim_value=1)
    elif how == 4:
        tensor.shape.dim.add(dim_value=3)
    elif how == 5 and len(tensor.shape.dim):
        del tensor.shape.dim[-1]
    elif how == 6:
        value.type.CopyFrom(helper.make_sequence_type_proto(value.type))
    elif len(tensor.shape.dim):
        dim = rng.choice(tensor.shape.dim)
        if rng.random() < 0.5:
            dim.dim_value = rng.choice(_DIMS)
        else:
            dim.dim_param = rng.choice(_SYMBOLS)


def opset(proto: onnx.ModelProto, rng: Random) -> None:
    how = rng.randrange(4)
    if how == 0:
        del proto.opset_import[:]
    elif how == 1:
        proto.opset_import.append(helper.make_opsetid("", rng.choice(_OPSETS)))
    elif how == 2:
        proto.ir_version = rng.choice([0, 1, 3, 99, 2**40])
    else:
        proto.opset_import[0].version = rng.choice(_OPSETS)


def order(proto: onnx.ModelProto, rng: Random) -> None:
    nodes = list(proto.graph.node)
    how = rng.randrange(6)
    if how == 0:
        nodes.reverse()
    elif how == 1:
        nodes[0].input.append(nodes[-1].output[0])  # perhaps a circle
    elif how == 2:
        nodes.append(rng.choice(nodes))
    elif how == 3:
        nodes.remove(rng.choice(nodes))
    elif how == 4:
        nodes = []
    else:
        first = nodes[0].input
        if len(first):
            first[0] = nodes[-1].output[0]
    held = [x.SerializeToString() for x in nodes]
    del proto.graph.node[:]
    proto.graph.node.extend(onnx.NodeProto.FromString(x) for x in held)


def ends_of_graph(proto: onnx.ModelProto, rng: Random) -> None:
    how = rng.randrange(6)
    graph = proto.graph
    if how == 0:
        del graph.output[:]
    elif how == 1:
        graph.output.append(graph.output[0])
    elif how == 2 and graph.input:
        graph.output.append(rng.choice(list(graph.input)))
    elif how == 3 and graph.input:
        graph.input.append(rng.choice(list(graph.input)))
    elif how == 4 and graph.input:
        graph.input.remove(rng.choice(list(graph.input)))
    else:
        graph.output[0].name = "nowhere"


def body(proto: onnx.ModelProto, rng: Random) -> None:
    """The graph in a node."""
    bodies = [x.g for node in _nodes(proto.graph) for x in node.attribute if x.HasField("g")]
    one = rng.choice(bodies)
    values = rng.choice([one.input, one.output])
    how = rng.randrange(4)
    if how == 0:
        del values[:]
    elif how == 1:
        values.append(onnx.ValueInfoProto(name=rng.choice(["more", ""])))
    elif how == 2:
        del one.node[:]
    else:
        for value in values:
            value.ClearField("type")


CORRUPTIONS: tuple[Corruption, ...] = (
    *(value_of_attribute, known_attribute, type_of_attribute, attributes_of_another_number),
    *(content_of_tensor, shape_of_tensor, length_of_tensor, inputs_of_node, outputs_of_node),
    *(operator, name, type_of_input, opset, order, ends_of_graph, body),
)


def corrupted(case: Case, corruption: Corruption, rng: Random) -> bytes | None:
    """The file of a model with one fault; None if it has nothing that could be made so."""
    proto = base(case, rng)
    try:
        corruption(proto, rng)
    except (IndexError, KeyError, onnx.defs.SchemaError):  # nothing to choose from
        return None
    data: bytes = proto.SerializeToString()
    if rng.random() < 0.03:  # a name that is no UTF-8
        old = rng.choice([x.name for x in (*proto.graph.input, *proto.graph.output)] or [""])
        data = data.replace(old.encode(), b"\xff" * len(old.encode())) if old else data
    return data
