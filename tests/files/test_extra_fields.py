"""What onnx-ir does not know of a file, and what is left of it beside an edit."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnx_ir as ir
import pytest

from graphfix.files.extra_fields import OriginalFile

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { h = Add (x, w)  y = Relu (h) }"""
# A length-delimited field that no ONNX has: number 1000.
UNKNOWN = b"\xc2\x3e\x03new"


def restored(
    file: onnx.ModelProto, edit: Callable[[ir.Model], object] = lambda _: None
) -> tuple[onnx.ModelProto, bool]:
    """Edit a file's model and write it; return the file then, and whether it is the same."""
    model = ir.from_proto(file)
    edit(model)
    new = ir.to_proto(model)
    is_same = OriginalFile(file, ir.from_proto).restore(new)
    return new, is_same


def add_training(file: onnx.ModelProto) -> None:
    file.training_info.add().algorithm.name = "step"


def add_unknown_fields(file: onnx.ModelProto) -> None:
    file.MergeFromString(UNKNOWN)
    file.graph.node[0].MergeFromString(UNKNOWN)


def add_checksum(file: onnx.ModelProto) -> None:
    tensor = file.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": "w.bin", "checksum": "0123"}.items():
        tensor.external_data.add(key=key, value=value)


def spell_domain(file: onnx.ModelProto) -> None:
    file.opset_import[0].domain = "ai.onnx"
    file.graph.node[0].domain = "ai.onnx"


def declare_initializer(file: onnx.ModelProto) -> None:
    file.graph.value_info.append(
        onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [2])
    )


def set_empty_fields(file: onnx.ModelProto) -> None:
    file.producer_name = ""
    file.model_version = 0
    file.graph.doc_string = ""


def repeat_metadata(file: onnx.ModelProto) -> None:
    for value in ("1", "2"):
        file.metadata_props.add(key="k", value=value)


def add_sparse(file: onnx.ModelProto) -> None:
    file.graph.sparse_initializer.add().dims.append(3)


PECULIAR = [
    *(add_training, add_unknown_fields, add_checksum, spell_domain, declare_initializer),
    *(set_empty_fields, add_sparse),
]


def peculiar_file(*changes: Callable[[onnx.ModelProto], None]) -> onnx.ModelProto:
    file = onnx.parser.parse_model(TEXT)
    for change in changes:
        change(file)
    return file


@pytest.mark.parametrize("change", [lambda _: None, *PECULIAR, repeat_metadata])
def test_a_file_that_is_not_edited_is_written_as_it_was(
    change: Callable[[onnx.ModelProto], None],
) -> None:
    file = peculiar_file(change)
    new, is_same = restored(file)
    assert is_same
    assert new == file


def name_other_producer(model: ir.Model) -> None:
    model.producer_name = "other"


@pytest.mark.parametrize("change", PECULIAR)
def test_beside_an_edit_elsewhere_it_is_kept(change: Callable[[onnx.ModelProto], None]) -> None:
    file = peculiar_file(change)
    new, is_same = restored(file, name_other_producer)
    assert not is_same
    file.producer_name = "other"
    assert new == file


def remove_relu(model: ir.Model) -> None:
    relu = model.graph[1]
    model.graph.outputs[0] = relu.inputs[0]
    model.graph.remove(relu)


def test_an_edited_graph_keeps_the_fields_of_the_nodes_that_stay() -> None:
    file = peculiar_file(add_unknown_fields)
    new, is_same = restored(file, remove_relu)
    assert not is_same
    assert list(new.graph.node) == [file.graph.node[0]]
    assert new.SerializeToString().count(UNKNOWN) == 2


def test_a_node_in_the_place_of_another_has_none_of_its_fields() -> None:
    file = peculiar_file(add_unknown_fields)
    new, _ = restored(file, lambda model: setattr(model.graph[0], "op_type", "Sub"))
    assert new.graph.node[0].op_type == "Sub"
    assert UNKNOWN not in new.graph.node[0].SerializeToString()
    assert UNKNOWN in new.SerializeToString()


def test_the_order_of_nodes_is_that_of_the_edit_and_of_metadata_that_of_the_file() -> None:
    text = TEXT.replace("y = Relu (h)", "a = Relu (x)  y = Add (h, a)")
    file = onnx.parser.parse_model(text)
    for key in ("b", "a"):
        file.metadata_props.add(key=key, value="1")

    def reorder(model: ir.Model) -> None:
        first = model.graph[0]
        model.graph.remove(first)
        model.graph.insert_after(model.graph[0], first)
        model.metadata_props.clear()
        model.metadata_props.update({"new": "1", "a": "2", "b": "1"})

    new, _ = restored(file, reorder)
    assert [node.output[0] for node in new.graph.node] == ["a", "h", "y"]
    entries = [(entry.key, entry.value) for entry in new.metadata_props]
    assert entries == [("b", "1"), ("a", "2"), ("new", "1")]


def test_what_an_edit_removes_does_not_come_back() -> None:
    file = peculiar_file(declare_initializer)
    file.metadata_props.add(key="k", value="1")
    new, _ = restored(file, lambda model: model.metadata_props.clear())
    assert not new.metadata_props


def test_metadata_without_keys_that_differ_is_that_of_the_edit() -> None:
    file = peculiar_file(repeat_metadata)
    new, _ = restored(file, lambda model: model.metadata_props.update({"k": "3"}))
    assert [(entry.key, entry.value) for entry in new.metadata_props] == [("k", "3")]


def test_a_text_that_is_edited_is_not_the_one_of_the_file() -> None:
    file = peculiar_file()
    file.graph.name = "old"
    file.producer_version = "1"
    new, _ = restored(file, lambda model: setattr(model.graph, "name", "edited"))
    assert (new.graph.name, new.producer_version) == ("edited", "1")


def test_a_type_that_an_edit_adds_stays() -> None:
    file = onnx.parser.parse_model(TEXT)
    file.graph.output[0].ClearField("type")

    def add_type(model: ir.Model) -> None:
        model.graph.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)

    new, is_same = restored(file, add_type)
    assert new.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert not is_same
    new, is_same = restored(file)
    assert not new.graph.output[0].HasField("type")
    assert is_same
