"""window-3d and ilens-mask on one model, in either order, and the model shipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.ship.build import ship_file
from graphfix.ship.container_spec import wanted
from tests.lengths.padding import session
from tests.passes.test_window_3d import MASKS, count, encoder

if TYPE_CHECKING:
    from pathlib import Path

WINDOWS = encoder(MASKS["floor division"], 4)


def clips(lengths: list[int], size: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Clips alone, and side by side in a container of NaN."""
    random = np.random.default_rng(sum(lengths))
    alone = [random.standard_normal((1, n, 8)).astype(np.float32) for n in lengths]
    together = np.full((len(lengths), size, 8), np.nan, np.float32)
    for row, clip in zip(together, alone, strict=True):
        row[: clip.shape[1]] = clip[0]
    return alone, together


@pytest.mark.parametrize(
    "spec",
    [
        "window-3d,ilens-mask:axis=x.1",
        "ilens-mask:axis=x.1,window-3d",
        "window-3d,ilens-mask:axis=x.1,fuse-attention",
    ],
    ids=["windows first", "lengths first", "fused behind them"],
)
def test_clips_of_other_lengths_in_one_container(spec: str) -> None:
    before, after = ir.from_onnx_text(WINDOWS), ir.from_onnx_text(WINDOWS)
    graphfix.run(after, spec)
    assert count(after, "Equal") == 0
    native, padded = session(ir.to_proto(before)), session(ir.to_proto(after))
    for lengths in ([3, 7], [8, 12], [1, 13], [16, 4]):
        alone, together = clips(lengths, 17)
        found = padded.run(None, {"x": together, "ilens": np.array(lengths)})[0]
        for row, clip in zip(found, alone, strict=True):
            wanted = native.run(None, {"x": clip})[0][0]
            np.testing.assert_allclose(row[: len(wanted)], wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "passes",
    ["directml,window-3d", "window-3d,ilens-mask,fix-dims,fold,slice-gather"],
    ids=["lengths first", "windows first"],
)
def test_it_is_shipped_in_windows(passes: str, tmp_path: Path) -> None:
    path, folder = tmp_path / "model.onnx", tmp_path / "shipped"
    ir.save(ir.from_onnx_text(WINDOWS), path)
    ship_file(path, folder, wanted(["T=18"]), passes=passes)
    (graph,) = folder.glob("*.onnx")
    kinds = {node.op_type for node in ir.load(graph).graph.all_nodes()}
    assert not {"Range", "Equal", "Shape"} & kinds
    native, shipped = session(ir.to_proto(ir.from_onnx_text(WINDOWS))), graphfix.Session(folder)
    for length in (3, 5, 8, 18):
        (clip,), _ = clips([length], 18)
        (found,) = shipped.run(None, {"x": clip})
        np.testing.assert_allclose(found, native.run(None, {"x": clip})[0], rtol=2e-5, atol=2e-5)
