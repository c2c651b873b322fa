"""Where the weights of a model go when it is saved."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto

from graphfix.errors import ModelError
from graphfix.files import weights
from graphfix.files.half_weights import FLOAT16_MARK, NarrowedTensor
from graphfix.files.weights import (
    WeightStore,
    external_tensors,
    files_by_location,
    model_tensors,
    plan_weights,
    weight_bytes,
)
from graphfix.files.wire import BIG, Float16Span, Span


def outside(
    location: str, name: str = "w", dims: tuple[int, ...] = (4,), **entries: str
) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def inside(size: int) -> TensorProto:
    tensor = TensorProto(name="i", data_type=TensorProto.UINT8, dims=[size])
    tensor.raw_data = bytes(size)
    return tensor


def plan(
    folder: Path,
    *tensors: TensorProto,
    placement: weights.Placement = "auto",
    room: int = 1000,
    target: str = "out.onnx",
    files: dict[str, Path] | None = None,
) -> tuple[list[TensorProto], weights.WeightPlan, WeightStore]:
    """Plan a model that was loaded from m.onnx, beside w.bin; return its tensors then."""
    proto = onnx.ModelProto()
    proto.graph.initializer.extend(tensors)
    store = WeightStore("out.data")
    files = files or {name: folder / name for name in ("m.onnx", "w.bin")}
    made = plan_weights(proto, files, folder / "m.onnx", folder / target, placement, room, store)
    return list(proto.graph.initializer), made, store


def reference(tensor: TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def test_weights_beside_the_model_stay_there(tmp_path: Path) -> None:
    tensor = outside("w.bin", offset="8")
    (after,), made, store = plan(tmp_path, tensor)
    assert after == tensor
    assert (made.inline, made.size, store.data) == ({}, 0, [])


def test_weights_that_another_folder_would_not_find_go_into_a_new_file(tmp_path: Path) -> None:
    (after,), made, store = plan(tmp_path, outside("w.bin", offset="8"), target="sub/out.onnx")
    assert reference(after) == {"location": "out.data", "offset": "0", "length": "16"}
    assert store.data == [b"", Span(str(tmp_path / "w.bin"), 8, 16)]
    assert (made.inline, store.size) == ({}, 16)


@pytest.mark.parametrize(("room", "is_inline"), [(16, True), (15, False)])
def test_weights_in_the_model_file_stay_there_while_there_is_room(
    tmp_path: Path, room: int, is_inline: bool
) -> None:
    (after,), made, store = plan(tmp_path, outside("m.onnx", offset="8"), room=room)
    span = Span(str(tmp_path / "m.onnx"), 8, 16)
    if is_inline:
        assert made.inline == {("m.onnx", "8", "16"): span}
        assert (made.size, store.data) == (16, [])
        assert reference(after) == {"location": "m.onnx", "offset": "8", "length": "16"}
    else:
        assert (made.inline, made.size, store.data) == ({}, 0, [b"", span])
        assert reference(after)["location"] == "out.data"


def test_without_room_no_weights_stay_at_all(tmp_path: Path) -> None:
    tensors, _, _ = plan(tmp_path, outside("w.bin"), outside("m.onnx", "v"), room=0)
    assert [reference(x)["location"] for x in tensors] == ["out.data", "out.data"]
    tensors, _, _ = plan(tmp_path, outside("w.bin"), room=0)
    assert reference(tensors[0])["location"] == "w.bin"


def test_what_is_to_be_kept_is_kept_without_room(tmp_path: Path) -> None:
    tensors, made, store = plan(
        tmp_path, outside("w.bin"), outside("m.onnx"), placement="keep", room=0
    )
    assert [reference(x)["location"] for x in tensors] == ["w.bin", "m.onnx"]
    assert (made.size, store.data) == (16, [])


def test_all_weights_go_into_the_model_file(tmp_path: Path) -> None:
    _, made, store = plan(
        tmp_path, outside("w.bin"), outside("m.onnx", "v"), placement="inline", room=0
    )
    assert (len(made.inline), made.size, store.data) == (2, 32, [])


@pytest.mark.parametrize(("size", "is_separate"), [(BIG, True), (BIG - 1, False)])
def test_what_is_small_and_in_the_model_stays_in_it(
    tmp_path: Path, size: int, is_separate: bool
) -> None:
    (after,), _, store = plan(tmp_path, inside(size), placement="separate")
    assert (after.data_location == TensorProto.EXTERNAL) is is_separate
    assert after.HasField("raw_data") is not is_separate
    assert store.size == (size if is_separate else 0)


def test_a_small_weight_in_a_file_is_separated(tmp_path: Path) -> None:
    (after,), _, store = plan(tmp_path, outside("w.bin"), placement="separate")
    assert (reference(after)["location"], store.size) == ("out.data", 16)


def test_beside_converted_weights_none_stay_in_the_old_file(tmp_path: Path) -> None:
    marked = f"w.bin{FLOAT16_MARK}"
    half = outside(marked, "h")
    half.data_type = TensorProto.FLOAT16
    files = {"w.bin": tmp_path / "w.bin", marked: tmp_path / "w.bin"}
    tensors, _, store = plan(tmp_path, outside("w.bin"), half, files=files)
    assert [reference(x)["location"] for x in tensors] == ["out.data", "out.data"]
    file = str(tmp_path / "w.bin")
    assert [x for x in store.data if isinstance(x, Span)] == [
        *(Span(file, 0, 16), Float16Span(file, 0, 8))
    ]


def test_large_weights_begin_at_pages_and_others_at_64_bytes() -> None:
    store = WeightStore("out.data")
    page, large = 1 << 16, 1 << 20
    offsets = [store.add_weight(bytes(size), size) for size in (3, 64, large - 1, large, 1)]
    assert offsets == [0, 64, 128, 17 * page, 17 * page + large]
    assert store.size == offsets[-1] + 1
    assert sum(len(x) for x in store.data if isinstance(x, bytes)) == store.size


def test_a_range_of_a_file_is_stored_once_and_bytes_each_time() -> None:
    store, span = WeightStore("out.data"), Span("w.bin", 0, 8)
    assert [store.add_weight(x, 8) for x in (span, b"8 bytes.", span, b"8 bytes.")] == [
        *(0, 64, 0, 128)
    ]


TEXT = """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
    m (bool c) => (float[1] y) <float[1] w = {1}> {
        y = If (c) <
            then_branch = a () => (float[1] p) <float[1] u = {2}> { p = Identity (u) },
            else_branch = b () => (float[1] q) { q = Constant <value = float[1] v {3}> () }> }
    <domain: "f", opset_import: ["" : 17]>
    g (x) => (z) { k = Constant <value = float[1] t {4}> ()  z = Add (x, k) }"""


def test_tensors_are_found_in_bodies_and_functions() -> None:
    model = ir.from_onnx_text(TEXT)
    assert sorted(float(x.numpy()[0]) for x in model_tensors(model)) == [1, 2, 3, 4]
    assert not list(external_tensors(model))


def external(folder: Path, name: str = "w.bin") -> ir.ExternalTensor:
    shape = ir.Shape([3])
    return ir.ExternalTensor(
        name, 0, 12, ir.DataType.FLOAT, shape=shape, name="w", base_dir=str(folder)
    )


def with_tensors(*tensors: ir.ExternalTensor) -> ir.Model:
    model = ir.from_onnx_text(TEXT)
    for i, tensor in enumerate(tensors):
        model.graph.initializers[f"e{i}"] = ir.Value(name=f"e{i}", const_value=tensor)
    return model


def test_the_weights_of_a_model_are_those_in_files_and_its_initializers(tmp_path: Path) -> None:
    model = with_tensors(external(tmp_path))
    assert [x.name for x in external_tensors(model)] == ["w"]
    assert weight_bytes(model) == 12 + 4 + 4


def test_a_location_stands_for_one_file(tmp_path: Path) -> None:
    tensor = external(tmp_path)
    marked = f"w.bin{FLOAT16_MARK}"
    model = with_tensors(tensor, external(tmp_path), NarrowedTensor(tensor))
    file = tmp_path / "w.bin"
    assert files_by_location(model) == {"w.bin": file, marked: file}
    with pytest.raises(ModelError, match="weights from several files of one name"):
        files_by_location(with_tensors(tensor, external(tmp_path / "other")))
