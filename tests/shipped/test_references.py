"""A container may refer to weights of its folder, and to nothing else."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import onnx
import pytest

import graphfix
from graphfix.errors import ModelError
from graphfix.shipped.manifest import NAME
from graphfix.shipped.references import locations_in
from tests.shipped.test_session import CPU
from tests.shipping.conftest import write_manifest

if TYPE_CHECKING:
    from pathlib import Path


def external(location: str, name: str = "w") -> onnx.TensorProto:
    tensor = onnx.TensorProto(name=name, data_type=1, dims=[2])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="offset", value="0")
    tensor.external_data.add(key="location", value=location)
    return tensor


def constant(tensor: onnx.TensorProto) -> onnx.NodeProto:
    return onnx.helper.make_node("Constant", [], ["c"], value=tensor)


def graph(*nodes: onnx.NodeProto) -> onnx.GraphProto:
    return onnx.helper.make_graph(nodes, "g", [], [])


def test_each_place_of_a_tensor_is_read() -> None:
    model = onnx.ModelProto(ir_version=8, producer_name="location")
    model.graph.CopyFrom(graph(constant(external("node"))))
    model.graph.initializer.append(external("initializer"))
    sparse = model.graph.sparse_initializer.add()
    sparse.values.CopyFrom(external("sparse"))
    sparse.indices.CopyFrom(external("indices"))
    inner = graph(constant(external("branch")))
    model.graph.node.append(
        onnx.helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=graph())
    )
    listed = onnx.helper.make_node("Custom", [], ["z"])
    listed.attribute.add(name="a", type=9).tensors.append(external("listed"))
    listed.attribute.add(name="b", type=10).graphs.append(graph(constant(external("graphs"))))
    model.graph.node.append(listed)
    function = model.functions.add(name="f", domain="d")
    function.node.append(constant(external("function")))
    training = model.training_info.add()
    training.algorithm.CopyFrom(graph(constant(external("training"))))
    assert locations_in(model.SerializeToString()) == {
        *("node", "initializer", "sparse", "indices", "branch", "listed", "graphs", "function"),
        "training",
    }
    assert locations_in(onnx.ModelProto(producer_name="location").SerializeToString()) == set()
    assert locations_in(b"") == set()


@pytest.mark.parametrize("before", [b"\x08\x08", b"\x09" + bytes(8), b"\x0d" + bytes(4)])
def test_fields_of_numbers_are_passed(before: bytes) -> None:
    model = onnx.ModelProto()
    model.graph.initializer.append(external("behind"))
    assert locations_in(before + model.SerializeToString()) == {"behind"}


@pytest.mark.parametrize(
    "content",
    [
        b"location\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x3a\x7flocation",
        b"\x3b" + b"location",
    ],
)
def test_what_is_no_message(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"field|number"):
        locations_in(content)


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "C:\\a", "other.bin", "./m.data"])
def test_a_container_that_leads_elsewhere(large: Path, tmp_path: Path, location: str) -> None:
    folder = tmp_path / "out"
    shutil.copytree(large, folder)
    (folder / "other.bin").write_bytes(bytes(1 << 20))
    data = json.loads((folder / NAME).read_text(encoding="utf-8"))
    path = folder / data["containers"][0]["file"]
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    path.write_bytes(model.SerializeToString())
    write_manifest(folder, data)
    with pytest.raises(ModelError, match="for weights, which is none of the files that graphfix"):
        graphfix.Session(folder, CPU).get_providers()
