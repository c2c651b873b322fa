"""A second input whose length follows from that of the first, in containers."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import graphfix
from graphfix.errors import UsageError
from graphfix.shipped.manifest_file import read_manifest

WEIGHT = ", ".join(str(x % 7 / 8) for x in range(48))

# Two frames of z for each of x; a window of z reaches past the end, so padding would leak.
TWICE = f"""<ir_version: 8, opset_import: ["" : 17]>
m (float[B, 4, T] x, float[B, 4, S] z) => (float[B, 4, S] y)
<float[4, 4, 3] w = {{{WEIGHT}}}, float[3] twice = {{1, 1, 2}}>
{{
    long = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric",
        nearest_mode = "floor"> (x, , twice)
    blurred = Conv <pads = [1, 1]> (z, w)
    y = Add (long, blurred)
}}"""

# A frame of x for each two of z, the last of which may have no second.
HALF = f"""<ir_version: 8, opset_import: ["" : 17]>
m (float[B, 4, T] x, float[B, 4, S] z) => (float[B, 4, T] y)
<float[4, 4, 3] w = {{{WEIGHT}}}>
{{
    short = Conv <pads = [1, 1], strides = [2]> (z, w)
    y = Add (x, short)
}}"""


def saved(text: str, folder: Path) -> Path:
    onnx.save(onnx.parser.parse_model(text), folder / "m.onnx")
    return folder / "m.onnx"


def feeds(frames: int, rows: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(frames)
    shapes = {"x": (rows, 4, frames), "z": (rows, 4, 2 * frames)}
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("text", "sizes"),
    [(TWICE, {"T": 9}), (TWICE, {"T": (5, 9), "S": (10, 18)}), (HALF, {"S": 18, "T": 9})],
)
def test_it_has_the_size_that_follows(
    tmp_path: Path, text: str, sizes: dict[str, int | tuple[int, ...]]
) -> None:
    source = saved(text, tmp_path)
    shipped = graphfix.ship(source, tmp_path / "out", sizes)
    assert shipped.ok
    [name] = {"T", "S"} - read_manifest(tmp_path / "out").containers[0].sizes.keys()
    assert name == ("S" if text is TWICE else "T")
    original = onnxruntime.InferenceSession(source)
    session = graphfix.Session(tmp_path / "out")
    for frames in (4, 7, 9):
        clip = feeds(frames)
        [wanted], [result] = original.run(None, clip), session.run(None, clip)
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result, wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "sizes", "told"),
    [
        (TWICE, {"T": 8, "S": 17}, "--container S=17: the graph wants 2*T there, which is 16"),
        (TWICE, {"S": 16}, "it is 2*T in each run, so it needs no size; say --container T=SIZE"),
        (HALF, {"T": 8}, "say --container S=SIZE"),
    ],
)
def test_sizes_that_contradict_are_refused(
    tmp_path: Path, text: str, sizes: dict[str, int], told: str
) -> None:
    with pytest.raises(UsageError) as caught:
        graphfix.ship(saved(text, tmp_path), tmp_path / "out", sizes)
    assert told in str(caught.value)
    assert not (tmp_path / "out").exists()
