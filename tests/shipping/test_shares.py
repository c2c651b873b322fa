"""A shipped model that is told lengths as a share of the longest row: users feed what they fed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

import graphfix
from graphfix.shipped.manifest_file import read_manifest
from graphfix.shipping.build import ship_file
from graphfix.shipping.container_spec import parse_containers
from tests.lengths.padding import session
from tests.shares import SHARES, model

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("name", SHARES)
def test_a_session_gives_what_the_original_gives(name: str, rows: int, tmp_path: Path) -> None:
    onnx.save(model(name), tmp_path / "m.onnx")
    sizes = ["T=24,60", f"B={rows}"]
    done = ship_file(tmp_path / "m.onnx", tmp_path / "out", parse_containers(sizes))
    assert done.ok, [str(x) for x in done.padding]
    assert [x.kind for x in read_manifest(tmp_path / "out").inputs] == ["data", "data"]
    alone = session(model(name))
    shipped = graphfix.Session(tmp_path / "out", ["CPUExecutionProvider"])
    rng = np.random.default_rng(5)
    for length in (5, 23, 24, 41):
        for count in (1, 2, 3):
            x = rng.standard_normal((count, length, 4)).astype(np.float32)
            shares = np.array([1.0, 0.6, 0.81][:count], np.float32)
            feeds = {"x": x, "wav_lens": shares}
            found = shipped.run(None, feeds)[0]
            np.testing.assert_allclose(found, alone.run(None, feeds)[0], rtol=1e-5, atol=1e-6)
