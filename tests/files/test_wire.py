"""Weights of a serialized model left where they lie, and filled in again."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from graphfix.files import wire
from graphfix.files.wire import (
    BIG,
    BrokenMessageError,
    NotUnderstoodError,
    Span,
    fill_weights,
    strip_weights,
    total_size,
)


def weight(name: str, size: int = BIG, **fields: int) -> onnx.TensorProto:
    tensor = numpy_helper.from_array(np.arange(size, dtype=np.uint8), name)
    for field, value in fields.items():
        setattr(tensor, field, value)
    return tensor


def model(*weights: onnx.TensorProto, nodes: list[onnx.NodeProto] | None = None) -> onnx.ModelProto:
    nodes = nodes or [helper.make_node("Neg", ["x"], ["y"])]
    return helper.make_model(helper.make_graph(nodes, "m", [], [], [*weights]))


def stripped(proto: onnx.ModelProto) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(strip_weights(memoryview(proto.SerializeToString()), "file"))


def filled(proto: onnx.ModelProto, source: bytes) -> onnx.ModelProto:
    """Return the model with each reference into ``source`` filled in."""

    def resolve(entries: dict[str, str]) -> Span | None:
        if entries["location"] != "file":
            return None
        return Span("file", int(entries["offset"]), int(entries["length"]))

    chunks = fill_weights(proto.SerializeToString(), resolve)
    data = b"".join(
        source[x.offset : x.offset + x.length] if isinstance(x, Span) else bytes(x) for x in chunks
    )
    assert total_size(chunks) == len(data)
    return onnx.ModelProto.FromString(data)


def entries(tensor: onnx.TensorProto) -> dict[str, str]:
    return {x.key: x.value for x in tensor.external_data}


def test_big_weights_become_references() -> None:
    proto = model(weight("small", BIG - 1), weight("big"), weight("bigger", BIG + 300))
    data = proto.SerializeToString()
    calls: list[None] = []
    text = strip_weights(memoryview(data), "file", lambda: calls.append(None))
    slim = onnx.ModelProto.FromString(text)
    small, *big = slim.graph.initializer
    assert small.raw_data == proto.graph.initializer[0].raw_data
    for tensor, original in zip(big, proto.graph.initializer[1:], strict=True):
        assert not tensor.HasField("raw_data")
        assert tensor.data_location == onnx.TensorProto.EXTERNAL
        place = entries(tensor)
        start, length = int(place["offset"]), int(place["length"])
        assert data[start : start + length] == original.raw_data
        assert (tensor.name, tensor.dims) == (original.name, original.dims)
    assert len(calls) == 2
    assert filled(slim, data) == proto


def test_weights_anywhere_in_the_model() -> None:
    constant = helper.make_node("Constant", [], ["k"], value=weight("k"))
    body = helper.make_graph([constant], "b", [], [], [weight("inner")])
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=body)]
    nodes.append(helper.make_node("Odd", ["x"], ["z"], tensors=[weight("l")], graphs=[body]))
    proto = model(weight("w"), nodes=nodes)
    function = helper.make_function("own", "f", ["a"], ["b"], [constant], [])
    function.attribute_proto.append(helper.make_attribute("default", weight("d")))
    proto.functions.append(function)
    data = proto.SerializeToString()
    slim = stripped(proto)
    assert len(slim.SerializeToString()) < BIG
    assert filled(slim, data) == proto


def test_a_default_place_that_was_said_is_said_again() -> None:
    proto = model(weight("w", data_location=onnx.TensorProto.DEFAULT), weight("v"))
    slim = stripped(proto)
    again = filled(slim, proto.SerializeToString())
    assert again == proto
    assert again.graph.initializer[0].HasField("data_location")
    assert not again.graph.initializer[1].HasField("data_location")


def test_a_reference_may_stay() -> None:
    tensor = onnx.TensorProto(name="w", dims=[4], data_type=1, data_location=1)
    for key, value in (("location", "other"), ("offset", "0"), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    proto = model(tensor)
    assert filled(proto, b"") == proto
    tensor.external_data[0].value = "file"
    proto = model(tensor)
    result = filled(proto, bytes(range(16)))
    assert result.graph.initializer[0].raw_data == bytes(range(16))
    assert not result.graph.initializer[0].external_data


def test_weights_of_training_are_filled_and_not_stripped() -> None:
    proto = model(weight("w"))
    graph = helper.make_graph([], "t", [], [], [weight("t")])
    proto.training_info.add(algorithm=graph, initialization=graph)
    slim = stripped(proto)
    assert len(slim.SerializeToString()) > 2 * BIG
    for inner in (slim.training_info[0].algorithm, slim.training_info[0].initialization):
        tensor = inner.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", "file"), ("offset", "0"), ("length", "16")):
            tensor.external_data.add(key=key, value=value)
    training = filled(slim, proto.SerializeToString()).training_info[0]
    for inner in (training.algorithm, training.initialization):
        assert len(inner.initializer[0].raw_data) == 16


def test_what_is_not_understood() -> None:
    both = weight("w")
    both.external_data.add(key="location", value="file")
    with pytest.raises(NotUnderstoodError, match="two places"):
        stripped(model(both))
    data = model(weight("w")).SerializeToString()
    with pytest.raises(NotUnderstoodError, match="one graph"):
        strip_weights(memoryview(data + data), "file")
    with pytest.raises(NotUnderstoodError, match="one graph"):
        strip_weights(memoryview(onnx.ModelProto(ir_version=9).SerializeToString()), "file")
    with pytest.raises(NotUnderstoodError, match="wire type 3"):
        strip_weights(memoryview(b"\x0b"), "file")


@pytest.mark.parametrize(
    "data", [b"\x3a\x05ab", b"\x3a\x80", b"\x02\x00", b"\x09abc", b"\x0dabc", b"\x80\x80", b"\x08"]
)
def test_what_is_no_message(data: bytes) -> None:
    with pytest.raises(BrokenMessageError):
        strip_weights(memoryview(data), "file")


def test_fields_of_every_kind_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    data = model().SerializeToString()
    # Field 1000, two bytes of tag: a number, eight bytes, four bytes and a text.
    unknown = b"\xc0\x3e\x80\x80\x01" + b"\xc1\x3e12345678" + b"\xc5\x3e1234" + b"\xc2\x3e\x02hi"
    for number in (0, 127, 128, 300, 2**63):
        unknown += b"\xc0\x3e" + wire._encode_varint(number)
    assert strip_weights(memoryview(data + unknown), "file") == data + unknown
    count = len([*wire._iterate_fields(memoryview(data + unknown), 0, len(data + unknown))])
    monkeypatch.setattr(wire, "_MOST_FIELDS", count - 1)
    strip_weights(memoryview(data + unknown), "file")
    monkeypatch.setattr(wire, "_MOST_FIELDS", count - 2)
    with pytest.raises(NotUnderstoodError, match="too many"):
        strip_weights(memoryview(data + unknown), "file")
