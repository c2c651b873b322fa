"""Pictures whose width is padded, at a height that is given."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import graphfix
from graphfix.errors import GraphfixError
from graphfix.shipped.manifest_file import read_manifest

# A recognizer of lines of text, whose Reshape has the height of the pictures that it was traced
# with.
LINES = f"""<ir_version: 8, opset_import: ["" : 17]>
m (float[B, 1, height, width] x) => (float[B, W, U] y)
<float[2, 1, 3, 3] w = {{{", ".join(str(x % 7 / 8) for x in range(18))}}},
 int64[4] rows = {{0, 2, 16, -1}}, int64[3] merged = {{0, 32, -1}}>
{{
    c = Conv <pads = [1, 1, 1, 1]> (x, w)
    r = Reshape (c, rows)
    m = Reshape (r, merged)
    y = Transpose <perm = [0, 2, 1]> (m)
}}"""


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(LINES), tmp_path / "lines.onnx")
    return tmp_path / "lines.onnx"


def test_the_height_is_fixed_and_the_width_padded(lines: Path, tmp_path: Path) -> None:
    sizes = {"height": 16, "width": (8, 20)}  # that with several is padded
    assert graphfix.ship(lines, tmp_path / "out", sizes).ok
    assert read_manifest(tmp_path / "out").axis.dim == "width"
    original = onnxruntime.InferenceSession(lines)
    session = graphfix.Session(tmp_path / "out")
    for width in (5, 8, 17):
        x = np.random.default_rng(width).random((1, 1, 16, width), np.float32)
        [wanted], [result] = original.run(None, {"x": x}), session.run(None, {"x": x})
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result, wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ({"width": 8}, "height has none; say --container height=SIZE"),
        ({"width": 8, "height": 16}, "several dims could be the one that is padded: height, width"),
        ({"width": (8, 10), "height": 24}, "it splits an axis of size 24 into 16 and the rest"),
    ],
)
def test_what_is_wrong_with_the_sizes(
    lines: Path, tmp_path: Path, sizes: dict[str, int], told: str
) -> None:
    with pytest.raises(GraphfixError, match=told):
        graphfix.ship(lines, tmp_path / "out", sizes)


def test_a_size_that_a_trace_fixed_has_a_next_step(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> m (float[N, 4, 4] x) => (float[N, 16] y)
        <int64[2] flat = {1, 16}> { y = Reshape (x, flat) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    for size in (1, 4):
        with pytest.raises(GraphfixError, match="-p thaw frees it or says why not"):
            graphfix.ship(tmp_path / "m.onnx", tmp_path / "out", {"N": size})
