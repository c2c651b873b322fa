"""Loading and running: where weights may lie, and what is said when something fails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from graphfix.errors import GraphfixError, ModelError
from graphfix.files import io
from graphfix.runtime.local_session import Session
from graphfix.runtime.run_errors import RunError, reason_of

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}>
    { a = Add (x, w) y = Relu (a) }"""
X = np.full((1, 4), -2, np.float32)
Y = [[0, 0, 1, 2]]


@pytest.fixture
def external(tmp_path: Path) -> Path:
    folder = tmp_path / "weights"
    folder.mkdir()
    path = folder / "m.onnx"
    ir.save(ir.from_onnx_text(TEXT), path, external_data="m.data", size_threshold_bytes=0)
    return path


def test_a_path_bytes_and_a_model_in_memory(tmp_path: Path):
    model = ir.from_onnx_text(TEXT)
    data = ir.to_proto(model).SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data)
    for source in (tmp_path / "m.onnx", str(tmp_path / "m.onnx"), data, model):
        with Session(source) as session:
            assert (session.run({"x": X})["y"] == Y).all()


def test_inputs_and_outputs():
    with Session(ir.from_onnx_text(TEXT)) as session:
        (port,) = session.inputs
        assert (port.name, port.type, port.shape) == ("x", "tensor(float)", ("N", 4))
        assert [p.name for p in session.outputs] == ["y"]


@pytest.mark.parametrize("optimize", [True, False])
def test_inner_tensors_can_be_outputs(external: Path, optimize: bool):
    """Also where the graph then has to be handed over without its weights."""
    for source in (external, io.load(external), ir.to_proto(ir.from_onnx_text(TEXT))):
        if isinstance(source, onnx.ModelProto):
            source = source.SerializeToString()
        with Session(source, extra_outputs=["a", "y"], optimize=optimize) as session:
            assert (session.run({"x": X})["a"] == [[-1, 0, 1, 2]]).all()


def test_external_weights_in_a_folder_that_cannot_be_written(external: Path, monkeypatch):
    """Nothing is written beside them, wherever the process stands."""
    model = io.load(external)
    monkeypatch.chdir("/")
    before = sorted(p.name for p in external.parent.iterdir())
    external.parent.chmod(0o555)
    try:
        with Session(model) as session:
            assert (session.run({"x": X})["y"] == Y).all()
    finally:
        external.parent.chmod(0o755)
    assert sorted(p.name for p in external.parent.iterdir()) == before
    assert isinstance(model.graph.initializers["w"].const_value, ir.ExternalTensor)


def test_weights_in_the_file_itself_that_are_only_referred_to(tmp_path: Path):
    """As graphfix.load does for large ones, also for those in a Constant node."""
    weights = {n: np.full((64, 512), i, np.float32) for i, n in enumerate(("w", "c"), start=1)}
    made = {n: onnx.numpy_helper.from_array(w, n) for n, w in weights.items()}
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Constant", [], ["c"], value=made["c"]),
            onnx.helper.make_node("Add", ["w", "c"], ["a"]),
            onnx.helper.make_node("Add", ["a", "x"], ["y"]),
        ],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, [1])],
        [onnx.helper.make_tensor_value_info("y", 1, [64, 512])],
        [made["w"]],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    path = tmp_path / "m.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    model = io.load(path)
    assert isinstance(model.graph.initializers["w"].const_value, ir.ExternalTensor)
    with Session(model, extra_outputs=["a"]) as session:
        found = session.run({"x": np.ones(1, np.float32)})
    assert (found["y"] == 4).all()
    assert (found["a"] == 3).all()


def test_weights_in_two_folders(tmp_path: Path):
    model = ir.from_onnx_text(TEXT.replace("y = Relu (a)", "y = Add (a, v)"))
    model = ir.from_onnx_text(
        TEXT.replace("<float[4] w =", "<float[4] v = {1, 1, 1, 1}, float[4] w =").replace(
            "y = Relu (a)", "y = Add (a, v)"
        )
    )
    for name in ("v", "w"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "data").write_bytes(model.graph.initializers[name].const_value.tobytes())
        model.graph.initializers[name].const_value = ir.ExternalTensor(
            "data", 0, 16, ir.DataType.FLOAT, shape=ir.Shape([4]), name=name, base_dir=folder
        )
    with Session(model, extra_outputs=["a"]) as session:
        scratch = session._scratch.path
        assert (session.run({"x": X})["y"] == [[0, 1, 2, 3]]).all()
    assert not scratch.exists()


def test_a_model_in_memory_is_not_changed():
    model = ir.from_onnx_text(TEXT)
    before = ir.to_text(model) if hasattr(ir, "to_text") else str(model)
    with Session(model, extra_outputs=["a"]) as session:
        session.run({"x": X})
    assert (ir.to_text(model) if hasattr(ir, "to_text") else str(model)) == before


def test_arrays_that_the_model_has_no_input_for_are_ignored():
    with Session(ir.from_onnx_text(TEXT)) as session:
        assert (session.run({"x": X, "other": X})["y"] == Y).all()


def test_a_model_that_is_rejected(capfd: pytest.CaptureFixture[str]):
    model = ir.from_onnx_text(TEXT.replace("Relu", "Frobnicate"))
    with pytest.raises(ModelError, match="Frobnicate") as caught:
        Session(model)
    assert "ONNXRuntimeError" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_a_file_that_is_not_there_and_one_that_is_no_model(tmp_path: Path):
    with pytest.raises(ModelError, match="no such file"):
        Session(tmp_path / "none.onnx")
    (tmp_path / "junk.onnx").write_text("junk")
    with pytest.raises(ModelError, match="Protobuf"):
        Session(tmp_path / "junk.onnx")


@pytest.mark.parametrize(
    ("feeds", "says"),
    [
        ({}, "missing"),
        ({"x": np.zeros((1, 3), np.float32)}, "Expected: 4"),
        ({"x": np.zeros((1, 4))}, "double"),
    ],
)
def test_inputs_that_do_not_fit(feeds: dict[str, np.ndarray], says: str):
    with (
        Session(ir.from_onnx_text(TEXT)) as session,
        pytest.raises(RunError, match=says) as caught,
    ):
        session.run(feeds)
    assert isinstance(caught.value, GraphfixError)


def test_reasons_are_short_and_without_source_paths():
    text = (
        "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Reshape node. "
        "Name:'/m/Reshape_3' Status Message: /onnxruntime_src/core/reshape_helper.h:91 "
        "onnxruntime::ReshapeHelper::ReshapeHelper(const onnxruntime::TensorShape&, bool) "
        "input_shape_size == requested_shape_size was false.\nInput shape:{1,7}"
    )
    assert reason_of(Exception(text)) == (
        "Reshape node '/m/Reshape_3': input_shape_size == requested_shape_size was false. "
        "Input shape:{1,7}"
    )
    on_windows = (
        "Reshape node '': E:\\_work\\1\\s\\onnxruntime\\core\\providers\\cpu\\reshape_helper.h:47 "
        "onnxruntime::ReshapeHelper::ReshapeHelper input_shape_size == size was false. No"
    )
    assert reason_of(Exception(on_windows)) == (
        "Reshape node '': input_shape_size == size was false. No"
    )
    assert len(reason_of(Exception("x" * 9999))) <= 300
    assert reason_of(Exception()) == "Exception"
