"""Bytes that are no model: refused in little memory and time, whatever they look like."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from graphfix.errors import ModelError
from graphfix.files import io, wire
from tests.links import symlink

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'

BODY = "If (c) <then_branch = t () => (float[N] o) { o = "


@pytest.mark.parametrize("start", [b"a" * 4096, b"", b"\x0a" * 4096], ids=["text", "holes", "tags"])
def test_three_gigabytes_that_are_no_model_are_not_read(tmp_path: Path, start: bytes) -> None:
    path = tmp_path / "big.onnx"
    with path.open("wb") as file:
        file.write(start)
        file.truncate(3 << 30)
    resident = _resident()
    with pytest.raises(ModelError, match="not an ONNX file"):
        io.load(path)
    assert _resident() - resident < 200 << 20


def _resident() -> int:
    """The most memory that this process has held; 0 where that is not told."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next(int(x.split()[1]) << 10 for x in lines if x.startswith("VmHWM"))


def test_letters_that_can_be_read_as_fields_end_the_walk() -> None:
    with pytest.raises(wire.NotUnderstoodError):
        wire.strip_weights(memoryview(b"a" * 9_000_000), "file")


def test_a_model_as_text_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "m.onnxtxt"
    path.write_text(f"{HEAD} m (float[N] x) => (float[N] y) {{ y = Relu (x) }}")
    with pytest.raises(ModelError, match=r"a model as text; .*onnx.save\(onnx.load"):
        io.load(path)


WEIGHT = np.arange(1, 5, dtype=np.float32)


def outside(path: Path, location: str, offset: int | None = None, length: int | None = 16) -> None:
    """A model at ``path`` that adds a weight which it says is elsewhere."""
    proto = onnx.parser.parse_model(
        f"{HEAD} m (float[N, 4] x) => (float[N, 4] y) {{ y = Add (x, w) }}"
    )
    tensor = proto.graph.initializer.add(name="w", data_type=1, dims=[4], data_location=1)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    path.write_bytes(proto.SerializeToString())


def computed(path: Path) -> list[float] | None:
    """What ONNX Runtime makes of zeros; None if it does not load the model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(path), options)
    except Exception:
        return None
    return [float(x) for x in session.run(None, {"x": np.zeros((1, 4), np.float32)})[0][0]]


def cache(folder: Path) -> Path:
    """As Hugging Face keeps them: the model and its weights are links into one folder."""
    blobs, snapshot = folder / "blobs", folder / "snapshots" / "abc" / "onnx"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    outside(blobs / "111", "m.onnx_data")
    (blobs / "222").write_bytes(WEIGHT.tobytes())
    symlink(snapshot / "m.onnx", "../../../blobs/111")
    symlink(snapshot / "m.onnx_data", "../../../blobs/222")
    return snapshot / "m.onnx"


def only_weights(folder: Path) -> Path:
    (folder / "blobs").mkdir()
    (folder / "here").mkdir()
    outside(folder / "here" / "m.onnx", "m.data")
    (folder / "blobs" / "w").write_bytes(WEIGHT.tobytes())
    symlink(folder / "here" / "m.data", "../blobs/w")
    return folder / "here" / "m.onnx"


def only_model(folder: Path) -> Path:
    (folder / "here").mkdir()
    outside(folder / "real.onnx", "m.data")
    (folder / "here" / "m.data").write_bytes(WEIGHT.tobytes())
    symlink(folder / "here" / "m.onnx", "../real.onnx")
    return folder / "here" / "m.onnx"


def hard_link(folder: Path) -> Path:
    outside(folder / "m.onnx", "m.data")
    (folder / "other").write_bytes(WEIGHT.tobytes())
    os.link(folder / "other", folder / "m.data")
    return folder / "m.onnx"


def above(folder: Path) -> Path:
    (folder / "here").mkdir()
    outside(folder / "here" / "m.onnx", "../m.data")
    (folder / "m.data").write_bytes(WEIGHT.tobytes())
    return folder / "here" / "m.onnx"


def absolute(folder: Path) -> Path:
    outside(folder / "m.onnx", str(folder / "m.data"))
    (folder / "m.data").write_bytes(WEIGHT.tobytes())
    return folder / "m.onnx"


def beside(offset: int | None, length: int | None, size: int) -> object:
    def make(folder: Path) -> Path:
        outside(folder / "m.onnx", "m.data", offset, length)
        (folder / "m.data").write_bytes((bytes(offset or 0) + WEIGHT.tobytes() + bytes(8))[:size])
        return folder / "m.onnx"

    return make


@pytest.mark.parametrize(
    ("make", "loads"),
    [
        (cache, True),
        (only_weights, False),
        (only_model, True),
        (hard_link, True),
        (above, False),
        (absolute, False),
        (beside(None, None, 16), True),
        (beside(8, None, 32), True),
        (beside(None, 0, 16), True),
        (beside(None, 8, 16), False),
        (beside(None, 32, 16), False),
        (beside(None, None, 12), False),
    ],
    ids=lambda x: getattr(x, "__name__", str(x)),
)
@pytest.mark.parametrize("external_data", ["auto", "inline", "separate"])
def test_weights_are_read_from_where_onnx_runtime_does(
    tmp_path: Path, make: object, loads: bool, external_data: str
) -> None:
    path = make(tmp_path)  # type: ignore[operator]
    # Older ones do not look at where links lead.
    version = tuple(int(x) for x in onnxruntime.__version__.split(".")[:2])
    if version >= (1, 31) and sys.platform != "win32":
        assert computed(path) == ([1, 2, 3, 4] if loads else None)
    if not loads:
        with pytest.raises(ModelError, match="the weights of 'w'"):
            io.load(path)
        return
    for folder in (path.parent, tmp_path / "new"):
        folder.mkdir(exist_ok=True)
        model = io.load(path)
        assert list(model.graph.initializers["w"].const_value.numpy()) == [1, 2, 3, 4]
        model.doc_string = "edited"
        out = folder / "out.onnx"
        io.save(model, out, external_data=external_data)
        assert computed(out) == [1, 2, 3, 4]


def test_constants_of_functions_are_held_to_the_same(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(WEIGHT.tobytes())
    (tmp_path / "model").mkdir()
    path = tmp_path / "model" / "m.onnx"
    proto = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 17, "d" : 1]>
        m (float[4] x) => (float[4] y) { y = d.F (x) }
        <domain: "d", opset_import: ["" : 17]> F (a) => (b)
        { c = Constant <value = float[4] {1, 2, 3, 4}> () b = Add (a, c) }"""
    )
    tensor = proto.functions[0].node[0].attribute[0].t
    tensor.ClearField("float_data")
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    for location in (str(secret), "../secret"):
        del tensor.external_data[:]
        tensor.external_data.add(key="location", value=location)
        path.write_bytes(proto.SerializeToString())
        with pytest.raises(ModelError, match="outside the model's folder"):
            io.load(path)
    del tensor.external_data[:]
    tensor.external_data.add(key="location", value="w.data")
    path.write_bytes(proto.SerializeToString())
    (path.parent / "w.data").write_bytes(WEIGHT.tobytes())
    model = io.load(path)
    model.doc_string = "edited"
    (tmp_path / "new").mkdir()
    io.save(model, tmp_path / "new" / "m.onnx", external_data="inline")
    found = onnx.load(tmp_path / "new" / "m.onnx").functions[0].node[0].attribute[0].t
    assert list(onnx.numpy_helper.to_array(found)) == [1, 2, 3, 4]


@pytest.mark.skipif(sys.platform == "win32", reason="makes a pipe")
def test_weights_in_a_pipe_are_refused_and_not_waited_for(tmp_path: Path) -> None:
    outside(tmp_path / "m.onnx", "m.data")
    os.mkfifo(tmp_path / "m.data")
    with pytest.raises(ModelError, match="is a device or a pipe"):
        io.load(tmp_path / "m.onnx")
