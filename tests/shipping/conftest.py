"""Small models, shipped once for all tests of this folder."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from graphfix.shipped.manifest import NAME
from graphfix.shipping.build import ship_file
from graphfix.shipping.container_spec import parse_containers

# A mean over the frames and a convolution along them: both are wrong in a container as it is.
MEAN = """
<
    ir_version: 8,
    opset_import: ["" : 17]
>
encoder (float[B, 4, T] x, int64[B] language) => (float[B, 3] pooled, float[B, 3, F] frames)
<float[3, 4, 3] w = {
    0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2,
    0.3, 0.1, 0.2, 0.6, 0.4, 0.5, 0.9, 0.7, 0.8, 1.2, 1.0, 1.1,
    0.2, 0.3, 0.1, 0.5, 0.6, 0.4, 0.8, 0.9, 0.7, 1.1, 1.2, 1.0},
 float[5, 3] table = {
    1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0},
 int64[1] last = {2}>
{
    h = Conv <pads = [1, 1], strides = [2]> (x, w)
    e = Gather (table, language)
    lifted = Unsqueeze (e, last)
    frames = Add (h, lifted)
    pooled = ReduceMean <axes = [2], keepdims = 0> (frames)
}
"""

# Attention that looks at a mask which the model has.
MASKED = """
<
    ir_version: 8,
    opset_import: ["" : 17]
>
masked (float[B, T, 4] x, int64[B, T] mask) => (float[B, T, 4] y)
<float low = {-10000.0}, float one = {1.0}, int64[1] middle = {1}>
{
    k = Transpose <perm = [0, 2, 1]> (x)
    scores = MatMul (x, k)
    m = Cast <to = 1> (mask)
    rest = Sub (one, m)
    minus = Mul (rest, low)
    addend = Unsqueeze (minus, middle)
    hidden = Add (scores, addend)
    p = Softmax <axis = -1> (hidden)
    y = MatMul (p, x)
}
"""


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions are made by the hundred here, and a process keeps some 500 MB of each on DirectML.

    So it is of ONNX Runtime 1.24.4 in Wine; ``tests/dml`` has a session on DirectML.
    """
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])


def saved(text: str, path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def write_manifest(folder: Path, data: Any) -> None:
    """Write a manifest whose sizes and hashes are those of the files as they are now."""
    for record in data["files"]:
        content = (folder / record["name"]).read_bytes()
        record |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / NAME).write_text(json.dumps(data), encoding="utf-8")


@pytest.fixture(scope="session")
def mean(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model without a mask, and what was shipped of it for 8 and 20 frames, one row."""
    folder = tmp_path_factory.mktemp("mean")
    source = saved(MEAN, folder / "mean.onnx")
    ship_file(source, folder / "out", parse_containers(["T=8,20"]))
    return source, folder / "out"


@pytest.fixture(scope="session")
def masked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model with a mask, and what was shipped of it for 6 and 16 tokens, three rows."""
    folder = tmp_path_factory.mktemp("masked")
    source = saved(MASKED, folder / "masked.onnx")
    ship_file(source, folder / "out", parse_containers(["T=6,16", "B=3"]))
    return source, folder / "out"


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What was shipped, for 2 and 4 frames, of a model with 16 MiB of weights beside it."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    large (float[B, T, 2048] x) => (float[B, T, 2048] y) { y = MatMul (x, w) }"""
    model = onnx.parser.parse_model(text)
    weights = np.random.default_rng(0).standard_normal((2048, 2048)).astype(np.float32) / 64
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    folder = tmp_path_factory.mktemp("large")
    onnx.save(model, folder / "large.onnx", save_as_external_data=True, location="large.data")
    ship_file(folder / "large.onnx", folder / "out", parse_containers(["T=2,4"]))
    return folder / "out"
