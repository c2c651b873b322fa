"""What a file says is ready to be worked on wherever it stands: main graph, bodies, functions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from graphfix.files import io
from graphfix.files.external_files import Weight
from graphfix.files.weights import model_tensors
from graphfix.graph.small_constants import CachedTensor

TEXT = """<ir_version: 9, opset_import: ["" : 17, "own" : 1]>
m (float[unk, 4] x, bool c) => (float[N, 4] y)
<float[4] inner = {1, 2, 3, 4}, float[N, 4] a> {
  a = own.F (x)
  b = If (c) <
    then_branch = t () => (float[N, 4] o) { s = Constant <value = float {2.0}> () o = Mul (a, s) },
    else_branch = e () => (float[N, 4] p) { p = Add (a, inner) }
  >
  y = Relu (b)
}
<domain: "own", opset_import: ["" : 17]>
F (v) => (w) { k = Constant <value = float {3.0}> () w = Add (v, k) }
"""


@pytest.fixture
def proto() -> onnx.ModelProto:
    return onnx.parser.parse_model(TEXT)


def test_small_tensors_keep_what_they_are_asked_for(proto: onnx.ModelProto, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    tensors = list(model_tensors(io.load(path)))
    assert [type(x) for x in tensors] == [CachedTensor] * 3
    assert all(x.numpy() is x.numpy() and x.shape is x.shape for x in tensors)
    assert [x.shape.numpy() for x in tensors] == [(4,), (), ()]


def test_weights_in_other_files_are_found(proto: onnx.ModelProto, tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(np.arange(8, dtype=np.float32).tobytes())
    body = proto.graph.node[1].attribute[0].g
    for at, tensor in enumerate((proto.graph.initializer[0], body.node[0].attribute[0].t)):
        tensor.Clear()
        tensor.data_type, tensor.dims[:] = onnx.TensorProto.FLOAT, [4]
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", "w"), ("offset", str(16 * at)), ("length", "16")):
            tensor.external_data.add(key=key, value=value)
    proto.graph.initializer[0].name = "inner"
    several = (
        proto.functions[0].node[0].attribute.add(name="more", type=onnx.AttributeProto.TENSORS)
    )
    several.tensors.add().CopyFrom(body.node[0].attribute[0].t)
    several.tensors.add().CopyFrom(numpy_helper.from_array(np.float32([5])))
    proto.functions[0].node[0].op_type = proto.functions[0].node[0].domain = "own"
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    outer, inner, _, first, second = model_tensors(io.load(path))
    assert {type(x) for x in (outer, inner, first)} == {Weight}
    assert outer.numpy().tolist() == [0, 1, 2, 3]
    assert inner.numpy().tolist() == first.numpy().tolist() == [4, 5, 6, 7]
    assert second.numpy().tolist() == [5]


def test_what_is_no_name_of_a_dim_is_none_but_names_stay(
    proto: onnx.ModelProto, tmp_path: Path
) -> None:
    path = tmp_path / "m.onnx"
    proto.graph.value_info[0].type.tensor_type.shape.dim[0].dim_param = "?"
    onnx.save(proto, path)
    model = io.load(path)
    shapes = [model.graph.inputs[0].shape, model.graph.node(0).outputs[0].shape]
    assert [x[0] for x in shapes if x is not None] == [ir.SymbolicDim(None)] * 2
    assert model.graph.outputs[0].shape == ir.Shape(["N", 4])


def test_the_default_domain_has_two_names(proto: onnx.ModelProto, tmp_path: Path) -> None:
    for one in (proto, *proto.functions):
        one.opset_import[0].domain = "ai.onnx"
    onnx.save(proto, tmp_path / "m.onnx")
    model = io.load(tmp_path / "m.onnx")
    assert model.opset_imports == {"": 17, "own": 1}
    assert [dict(x.opset_imports) for x in model.functions.values()] == [{"": 17}]
    model.graph[-1].name = "changed"
    io.save(model, tmp_path / "n.onnx")
    saved = onnx.load(tmp_path / "n.onnx")
    assert saved.graph.node[-1].name == "changed"
    assert saved.opset_import == proto.opset_import
    assert saved.functions[0].opset_import == proto.functions[0].opset_import
