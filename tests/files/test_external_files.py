"""What a reference to another file may be, and how the weights behind it are read."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from graphfix.errors import ModelError
from graphfix.files import external_files
from graphfix.files.byte_ranges import FileStamp
from graphfix.files.external_files import (
    Weight,
    find_external_files,
    proto_tensors,
    rebase_references,
    resolves_to,
)

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def reference(
    location: str = "w.bin", dtype: int = TensorProto.FLOAT, **entries: str
) -> TensorProto:
    """Return two elements that are said to be in another file."""
    tensor = TensorProto(name="w", data_type=dtype, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def find(folder: Path, *tensors: TensorProto) -> external_files.ExternalFiles:
    return find_external_files(folder / "m.onnx", tensors, None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "w.bin").write_bytes(np.arange(3, dtype="<f4").tobytes())
    return tmp_path


@pytest.mark.parametrize(
    "entries",
    [{}, {"offset": "4"}, {"length": "8"}, {"length": "0"}, {"offset": "4", "length": "8"}],
)
def test_a_range_that_ends_with_the_file_is_in_it(folder: Path, entries: dict[str, str]) -> None:
    assert find(folder, reference(**entries)).files == {"w.bin": folder / "w.bin"}


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"offset": "5"}, "up to byte 13, but that file has 12"),
        ({"length": "7"}, "7 bytes, but such a tensor has 8"),
        ({"length": "9"}, "9 bytes, but such a tensor has 8"),
        ({"offset": "-1"}, "offset '-1', which is no number of bytes"),
        ({"offset": " 1"}, "offset ' 1', which is no number of bytes"),
        ({"offset": "٣"}, "which is no number of bytes"),
        ({"length": "1" * 20}, "which is no number of bytes"),
        ({"location": ""}, "which names no file"),
        ({"location": "."}, "which is a folder"),
        ({"location": "none.bin"}, "there is no such file"),
        ({"location": "../w.bin"}, "outside the model's folder"),
        ({"location": "/w.bin"}, "outside the model's folder"),
        ({"location": "C:\\w.bin"}, "outside the model's folder"),
        ({"location": "\\\\host\\share\\w.bin"}, "outside the model's folder"),
        ({"location": "w\0.bin"}, "cannot be read"),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused(
    folder: Path, entries: dict[str, str], reason: str
) -> None:
    with pytest.raises(ModelError, match="the weights of 'w'") as caught:
        find(folder, reference(**entries))
    assert reason in str(caught.value)


def test_a_tensor_without_a_size_is_refused(folder: Path) -> None:
    with pytest.raises(ModelError, match="tensors of type 99 cannot be"):
        find(folder, reference(dtype=99))
    negative = reference()
    negative.dims[:] = [-1]
    with pytest.raises(ModelError, match=r"its shape \[-1\] is none"):
        find(folder, negative)


def test_half_a_byte_too_many_is_a_whole_one(folder: Path) -> None:
    packed = reference(dtype=TensorProto.INT4, offset="10")
    packed.dims[:] = [3]  # 12 bits
    find(folder, packed)
    packed.dims[:] = [5]
    with pytest.raises(ModelError, match="up to byte 13, but that file has 12"):
        find(folder, packed)


def test_a_tensor_in_the_model_names_no_file(folder: Path) -> None:
    inside = reference("none.bin")
    inside.data_location = TensorProto.DEFAULT
    external = find(folder, inside)
    assert external.files == {}
    assert external.input_files == [folder / "m.onnx"]


def test_a_file_of_two_weights_is_one_input(folder: Path) -> None:
    external = find(folder, reference(), reference("./w.bin"))
    assert external.input_files == [folder / "m.onnx", folder / "w.bin"]


def test_a_link_of_the_model_leads_to_weights_a_link_of_weights_does_not(tmp_path: Path) -> None:
    real, named = tmp_path / "real", tmp_path / "named"
    real.mkdir()
    named.mkdir()
    (real / "w.bin").write_bytes(bytes(8))
    (real / "m.onnx").touch()
    (named / "w.bin").symlink_to(real / "w.bin")
    with pytest.raises(ModelError, match="outside the model's folder"):
        find(named, reference())
    (named / "m.onnx").symlink_to(real / "m.onnx")
    assert find(named, reference()).files == {"w.bin": real / "w.bin"}
    assert resolves_to(real, "w.bin", real / "w.bin")
    assert not resolves_to(named, "w.bin", real / "w.bin")
    assert not resolves_to(real, "other.bin", real / "w.bin")


def test_a_file_that_changed_since_is_told(folder: Path) -> None:
    (folder / "m.onnx").write_bytes(b"m")
    stamp = FileStamp.of_file(folder / "m.onnx")
    external = find_external_files(folder / "m.onnx", [reference()], stamp)
    external.require_unchanged()
    (folder / "w.bin").write_bytes(bytes(16))
    with pytest.raises(ModelError, match=r"w\.bin: has changed since it was read"):
        external.require_unchanged()


def test_references_start_from_the_folder_that_all_share(tmp_path: Path) -> None:
    files = {"a": tmp_path / "x" / "a.bin", "b": tmp_path / "y" / "b.bin"}
    proto = onnx.ModelProto()
    proto.graph.initializer.extend([reference("a"), reference("b"), reference("c")])
    assert rebase_references(proto, files) == tmp_path
    entries = [tensor.external_data[0].value for tensor in proto.graph.initializer]
    assert entries == ["x/a.bin", "y/b.bin", "c"]
    assert rebase_references(proto, {}) is None


def test_tensors_are_found_wherever_a_model_has_them() -> None:
    proto = onnx.parser.parse_model(
        HEAD
        + """m (bool c) => (float[1] y) <float[1] w = {1}> {
            y = If (c) <
                then_branch = a () => (float[1] p) <float[1] u = {2}> { p = Identity (u) },
                else_branch = b () => (float[1] q) {
                    q = Constant <value = float[1] v {3}> () }> }"""
    )
    node = helper.make_node("Op", [], ["n"])
    node.attribute.append(
        helper.make_attribute("many", [TensorProto(name="t1"), TensorProto(name="t2")])
    )
    graph = onnx.GraphProto(name="g", initializer=[TensorProto(name="deep")])
    node.attribute.append(helper.make_attribute("graphs", [graph]))
    function = onnx.FunctionProto(name="f", node=[node])
    function.attribute_proto.append(helper.make_attribute("default", TensorProto(name="given")))
    proto.functions.append(function)
    training = proto.training_info.add()
    training.initialization.initializer.append(TensorProto(name="first"))
    training.algorithm.initializer.append(TensorProto(name="step"))
    names = {tensor.name for tensor in proto_tensors(proto)}
    assert names == {"w", "u", "v", "t1", "t2", "deep", "given", "first", "step"}


def weight_in(folder: Path, **entries: str) -> Weight:
    proto = reference(**entries)
    external = find(folder, proto)
    return external.as_weight(ir.from_proto(proto))  # type: ignore[arg-type]


def test_a_weight_is_read_from_its_offset(folder: Path) -> None:
    weight, out = weight_in(folder, offset="4"), io.BytesIO()
    weight.tofile(out)
    assert out.getvalue() == weight.tobytes() == np.array([1, 2], "<f4").tobytes()
    assert weight.numpy().tolist() == [1, 2]
    assert np.asarray(weight).dtype == np.float32
    assert np.asarray(weight, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        weight.numpy()[0] = 5


def test_packed_weights_are_read_as_elements(folder: Path) -> None:
    (folder / "w.bin").write_bytes(bytes([0x2E]))
    assert weight_in(folder, dtype=TensorProto.INT4).numpy().tolist() == [-2, 2]


@pytest.mark.parametrize(("most", "is_kept"), [(8, True), (7, False)])
def test_only_a_small_weight_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch, most: int, is_kept: bool
) -> None:
    monkeypatch.setattr(external_files, "_MAX_CACHED_BYTES", most)
    weight = weight_in(folder)
    assert weight.numpy().tolist() == [0, 1]
    (folder / "w.bin").write_bytes(np.array([7, 8], "<f4").tobytes())
    assert weight.numpy().tolist() == ([0, 1] if is_kept else [7, 8])
    weight.release()
    assert weight.numpy().tolist() == [7, 8]


def test_a_big_weight_is_read_once_while_it_is_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_files, "_MAX_CACHED_BYTES", 0)
    weight = weight_in(folder)
    array = weight.numpy()
    assert weight.numpy() is array


def test_a_weight_whose_file_became_shorter_is_told(folder: Path) -> None:
    weight = weight_in(folder)
    (folder / "w.bin").write_bytes(bytes(7))
    with pytest.raises(ModelError, match="has become shorter while it was read"):
        weight.numpy()
    with pytest.raises(ModelError, match="has become shorter while it was read"):
        weight.tofile(io.BytesIO())
    (folder / "w.bin").unlink()
    with pytest.raises(ModelError, match="cannot be read"):
        weight.numpy()
