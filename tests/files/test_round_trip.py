"""Nothing is lost on the way through graphfix: whatever a file says, the file after it says."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import AttributeProto, TensorProto

import graphfix
from graphfix.files import wire

# The fields that hold a tensor's elements where raw_data does not.
TYPED = {
    "float_data": ("FLOAT", "COMPLEX64"),
    "double_data": ("DOUBLE", "COMPLEX128"),
    "int64_data": ("INT64",),
    "uint64_data": ("UINT32", "UINT64"),
    "string_data": ("STRING",),
}
FIELDS = {name: field for field, names in TYPED.items() for name in names}
DTYPES = [name for name in TensorProto.DataType.keys() if name != "UNDEFINED"]  # noqa: SIM118
SMALL_BIG = 100
words = st.text("abcxyz_/.é", min_size=1, max_size=6)
text = st.text(max_size=8)


def elements(dtype: str, count: int) -> dict[str, object]:
    """``count`` elements in the typed field of a tensor."""
    field = FIELDS.get(dtype, "int32_data")
    if dtype in ("COMPLEX64", "COMPLEX128"):
        count *= 2
    if dtype == "STRING":
        return {field: [b"a", b"", b"\xff"][:1] * count}
    if dtype.startswith("FLOAT6"):
        return {field: [1] * size_of(dtype, count)}
    per_item = {"INT4": 2, "UINT4": 2, "FLOAT4E2M1": 2, "INT2": 4, "UINT2": 4}.get(dtype, 1)
    return {field: [1] * -(-count // per_item)}


def size_of(dtype: str, count: int) -> int:
    """The bytes of ``count`` elements in ``raw_data``."""
    probe = onnx.helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(dtype))
    packed = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}
    packed |= {x: 6 for x in DTYPES if x.startswith("FLOAT6")}
    return -(-count * packed.get(dtype, probe.itemsize * 8) // 8)


@st.composite
def tensors(draw: st.DrawFn, name: str, *, outside: bool = True) -> TensorProto:
    dtype = draw(st.sampled_from(DTYPES))
    dims = draw(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=3))
    if draw(st.integers(0, 5)) == 0:
        dims = [SMALL_BIG]
    count = 1
    for dim in dims:
        count *= dim
    tensor = TensorProto(name=name, dims=dims, data_type=TensorProto.DataType.Value(dtype))
    kinds = ["typed"] if dtype == "STRING" else ["raw", "typed", *["external"] * outside]
    kind = draw(st.sampled_from(kinds))
    if kind == "typed":
        for field, values in elements(dtype, count).items():
            getattr(tensor, field).extend(values)
    elif kind == "raw":
        tensor.raw_data = b"\1" * size_of(dtype, count)
        if draw(st.booleans()):
            tensor.data_location = TensorProto.DEFAULT
    else:
        tensor.data_location = TensorProto.EXTERNAL
        length = size_of(dtype, count)
        entries = {"location": "weights.bin", "offset": "64", "length": str(length)}
        if draw(st.booleans()):
            entries["checksum"] = "0123abcd"
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
    draw(notes(tensor))
    return tensor


@st.composite
def notes(draw: st.DrawFn, message: object) -> None:
    """Metadata, a doc string, and a field of an ONNX to come."""
    if draw(st.booleans()):
        message.doc_string = draw(text)
    for key, value in draw(st.dictionaries(words, text, max_size=2)).items():
        message.metadata_props.add(key=key, value=value)
    draw(unknown(message))


@st.composite
def unknown(draw: st.DrawFn, message: object) -> None:
    if draw(st.integers(0, 3)) == 0:
        tag = wire._encode_tag(draw(st.integers(500, 600)), 0)
        message.MergeFromString(tag + wire._encode_varint(draw(st.integers(0, 1000))))


@st.composite
def attributes(draw: st.DrawFn, depth: int) -> AttributeProto:
    """An attribute of any type, lists among them."""
    kind = draw(
        st.sampled_from(
            [
                "f",
                "i",
                "s",
                "t",
                "g",
                "tp",
                "floats",
                "ints",
                "strings",
                "tensors",
                "graphs",
                "type_protos",
            ]
        )
    )
    name, types = draw(words), AttributeProto.AttributeType
    plural = {"type_protos": "TYPE_PROTOS", "tp": "TYPE_PROTO", "f": "FLOAT", "i": "INT"} | {
        "s": "STRING",
        "t": "TENSOR",
        "g": "GRAPH",
    }
    made = AttributeProto(name=name, type=types.Value(plural.get(kind, kind.upper())))
    body = onnx.GraphProto(name="body")
    if depth:
        body = draw(graphs(depth - 1))
    values = {
        "f": 1.5,
        "i": -3,
        "s": b"\xff\0",
        "t": draw(tensors("", outside=False)),
        "g": body,
        "tp": onnx.helper.make_tensor_type_proto(TensorProto.FLOAT, ["N", 3]),
        "floats": [1.0, 2.0],
        "ints": [],
        "strings": [b"a", b""],
        "tensors": [onnx.helper.make_tensor("", TensorProto.INT64, [1], [2])],
        "graphs": [body],
        "type_protos": [onnx.helper.make_tensor_type_proto(1, None)],
    }
    value = values[kind]
    if kind in ("f", "i", "s"):
        setattr(made, kind, value)
    elif kind in ("t", "g", "tp"):
        getattr(made, kind).CopyFrom(value)
    else:
        getattr(made, kind).extend(value)
    if draw(st.booleans()):
        made.doc_string = draw(text)
    return made


@st.composite
def value_infos(draw: st.DrawFn, name: str) -> onnx.ValueInfoProto:
    info = onnx.ValueInfoProto(name=name)
    dims = draw(st.lists(st.sampled_from([1, 0, "N", "2*N + 1", None]), max_size=3))
    kind = draw(st.sampled_from(["tensor", "sequence", "optional", "none", "unranked", "sparse"]))
    tensor = onnx.helper.make_tensor_type_proto(TensorProto.FLOAT, dims)
    if kind == "tensor":
        info.type.CopyFrom(tensor)
        for dim in info.type.tensor_type.shape.dim:
            if draw(st.booleans()):
                dim.denotation = "DATA_BATCH"
    elif kind == "sequence":
        info.type.CopyFrom(onnx.helper.make_sequence_type_proto(tensor))
    elif kind == "optional":
        info.type.CopyFrom(onnx.helper.make_optional_type_proto(tensor))
    elif kind == "sparse":
        info.type.CopyFrom(onnx.helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, [3]))
    elif kind == "unranked":
        info.type.CopyFrom(onnx.helper.make_tensor_type_proto(TensorProto.INT64, None))
    if kind != "none" and draw(st.booleans()):
        info.type.denotation = "TENSOR"
    draw(notes(info))
    return info


@st.composite
def nodes(draw: st.DrawFn, source: str, target: str, depth: int) -> onnx.NodeProto:
    node = onnx.NodeProto(op_type=draw(st.sampled_from(["Relu", "Mine"])), output=[target])
    mine = node.op_type == "Mine"  # of ONNX's own operators the schema says what they take
    node.input.extend([source, ""][: draw(st.integers(1, 2 if mine else 1))])
    node.domain = "my.own" if mine else draw(st.sampled_from(["", "ai.onnx"]))
    if draw(st.booleans()):
        node.name = draw(words)
    if draw(st.booleans()):
        node.overload = draw(words)
    most = 2 if mine else 0
    found = draw(st.lists(attributes(depth), max_size=most, unique_by=lambda x: x.name))
    node.attribute.extend(found)
    if draw(st.integers(0, 3)) == 0:
        node.device_configurations.add(configuration_id="two GPUs")
    draw(notes(node))
    return node


@st.composite
def graphs(draw: st.DrawFn, depth: int) -> onnx.GraphProto:
    prefix = f"d{depth}_"
    graph = onnx.GraphProto(name=draw(text))
    last = f"{prefix}x"
    graph.input.append(draw(value_infos(last)))
    for i in range(draw(st.integers(1, 3))):
        graph.node.append(draw(nodes(last, f"{prefix}{i}", depth)))
        last = f"{prefix}{i}"
        if draw(st.booleans()):
            graph.value_info.insert(0, draw(value_infos(last)))
    graph.output.append(draw(value_infos(last)))
    for i in range(draw(st.integers(0, 3))):
        graph.initializer.append(draw(tensors(f"{prefix}w{i}")))
    if draw(st.booleans()):
        graph.value_info.append(draw(value_infos(f"{prefix}w0")))
    if draw(st.booleans()):
        found = graph.quantization_annotation.add(tensor_name=last)
        found.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value=f"{prefix}w0")
    draw(notes(graph))
    return graph


@st.composite
def functions(draw: st.DrawFn, name: str) -> onnx.FunctionProto:
    made = onnx.FunctionProto(name=name, domain="my.own", input=["d0_x", "more"])
    graph = draw(graphs(0))
    made.node.extend(graph.node)
    made.output.extend(graph.node[-1].output)
    made.opset_import.add(domain="", version=18)
    made.attribute.append("alpha")
    made.attribute_proto.append(onnx.helper.make_attribute("beta", 2.5))
    made.node[0].op_type = "LeakyRelu" if made.node[0].op_type == "Relu" else "Mine"
    made.node[0].attribute.append(
        AttributeProto(name="alpha", ref_attr_name="alpha", type=AttributeProto.FLOAT)
    )
    if draw(st.booleans()):
        made.overload = "second"
    if draw(st.booleans()):
        made.value_info.append(draw(value_infos("d0_0")))
    draw(notes(made))
    return made


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    model = onnx.ModelProto(ir_version=draw(st.integers(8, 11)), graph=draw(graphs(1)))
    model.opset_import.add(domain="", version=draw(st.integers(13, 21)))
    model.opset_import.add(domain="my.own", version=3)
    if draw(st.booleans()):
        model.producer_name, model.producer_version, model.domain = "me", "1", "here"
    if draw(st.booleans()):
        model.model_version = draw(st.integers(-1, 2**40))
    if draw(st.booleans()):
        model.functions.append(draw(functions("f")))
    if draw(st.booleans()):
        training = model.training_info.add()
        training.algorithm.CopyFrom(draw(graphs(0)))
        training.update_binding.add(key="d0_w0", value="d0_w1")
    if draw(st.booleans()):
        model.configuration.add(name="two GPUs", num_devices=2)
    draw(notes(model))
    return model


@pytest.fixture(scope="module")
def folder() -> Path:
    with tempfile.TemporaryDirectory() as made:
        path = Path(made)
        (path / "weights.bin").write_bytes(bytes(1 << 12))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wire, "BIG", SMALL_BIG)  # so that a model of bytes is one of gigabytes
            yield path


thorough = settings(
    max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)


@thorough
@given(models())
def test_saving_gives_the_same_bytes(folder: Path, proto: onnx.ModelProto) -> None:
    before, after = folder / "before.onnx", folder / "after.onnx"
    before.write_bytes(proto.SerializeToString())
    graphfix.save(graphfix.load(before), after)
    assert_equal(onnx.load(after, load_external_data=False), proto)
    assert after.read_bytes() == before.read_bytes()


@thorough
@given(models())
def test_an_edit_changes_nothing_else(folder: Path, proto: onnx.ModelProto) -> None:
    before, after = folder / "before.onnx", folder / "after.onnx"
    before.write_bytes(proto.SerializeToString())
    model = graphfix.load(before)
    node = model.graph[0]
    node.metadata_props["edited"] = "yes"
    node.name = "renamed"
    model.metadata_props["graphfix.pipeline"] = "test"
    graphfix.save(model, after)
    expected = copy.deepcopy(proto)
    expected.graph.node[0].name = "renamed"
    expected.graph.node[0].metadata_props.add(key="edited", value="yes")
    expected.metadata_props.add(key="graphfix.pipeline", value="test")
    assert_equal(onnx.load(after, load_external_data=False), expected)


@thorough
@given(models())
def test_what_goes_takes_only_its_own_along(folder: Path, proto: onnx.ModelProto) -> None:
    before, after = folder / "before.onnx", folder / "after.onnx"
    gone = [x.name for x in proto.graph.initializer][:1]
    before.write_bytes(proto.SerializeToString())
    model = graphfix.load(before)
    for name in gone:
        model.graph.initializers.pop(name)
    graphfix.save(model, after)
    found, expected = onnx.load(after, load_external_data=False), copy.deepcopy(proto)
    assert not {x.name for x in found.graph.initializer}.intersection(gone)
    # What onnx-ir does not know of a tensor, it does not know to be gone.
    for items in (expected.graph.initializer, expected.graph.value_info, found.graph.value_info):
        for place in [i for i, x in enumerate(items) if x.name in gone]:
            del items[place]
    assert_equal(found, expected)


def test_a_file_is_not_written_again_to_be_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "one.onnx"
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) {y = Relu(x)}'
    onnx.save(onnx.parser.parse_model(text), path)
    monkeypatch.delattr(ir, "to_proto")  # as slow as reading; few models are saved
    assert graphfix.load(path).graph.name == "g"


def assert_equal(a: onnx.ModelProto, b: onnx.ModelProto) -> None:
    if a != b:  # pytest's own report of two protobufs of this size is of no use
        lines = [str(x).splitlines() for x in (a, b)]
        for left, right in zip(*lines, strict=False):
            assert left == right
        assert len(lines[0]) == len(lines[1])
    assert a == b
