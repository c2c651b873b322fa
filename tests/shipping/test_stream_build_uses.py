"""How a stream may use its containers: filled up, in parts, or one container for a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import graphfix
from graphfix.errors import FeedError
from graphfix.shipped.manifest import Manifest, Streaming
from graphfix.shipping.build import ship_file
from graphfix.shipping.container_spec import parse_containers
from tests.passes.cached import CAUSAL, WIDTH, step
from tests.passes.models import model, opened
from tests.shipping.conftest import saved

if TYPE_CHECKING:
    from pathlib import Path

    from graphfix.shipping.result import Shipped

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
# The new entries of a step are averaged, so the average of a part is another.
POOLED = step(mask=CAUSAL, after="y = ReduceMean <axes = [1], keepdims = 1> (inner)").replace(
    f"float[B, S, {WIDTH}] y", f"float[B, 1, {WIDTH}] y"
)
# All new entries of a step are rounded by the largest of them.
ROUNDED = step(
    before="q, scale, zero = DynamicQuantizeLinear (x) h = DequantizeLinear (q, scale, zero)",
    mask=CAUSAL,
    after="y, ys, yz = DynamicQuantizeLinear (inner)",
)
# Each new entry sees those behind it too, where the mask lets it.
SEEN = step(mask="hidden = Add (scores, mask)", inputs=", float[B, S, total] mask")


def shipped(text: str, folder: Path, sizes: str) -> Shipped:
    source = saved(HEADER + text, folder / "decoder.onnx")
    spec = parse_containers([sizes])
    done = ship_file(source, folder / "out", spec, cache=16)
    assert done.ok, str(done.whole)
    return done


def streaming_of(done: Shipped) -> Streaming:
    assert done.manifest.stream is not None
    return done.manifest.stream


@pytest.mark.parametrize("text", [POOLED, SEEN])
def test_whole_containers_are_tried_where_parts_give_something_else(
    text: str, tmp_path: Path
) -> None:
    stream = streaming_of(shipped(text, tmp_path, "S=1,4"))
    assert (stream.joins, stream.partial) == (False, False)
    x = np.ones((1, 3, WIDTH), np.float32)
    feeds = {"x": x, "mask": np.zeros((1, 3, 3), np.float32)} if text is SEEN else {"x": x}
    with pytest.raises(FeedError, match=r"3 new entries: .* as a container has \(1, 4\)"):
        graphfix.Session(tmp_path / "out").stream().run(None, feeds)


def test_prompts_are_sums_of_containers_where_none_is_of_one(tmp_path: Path) -> None:
    text = step(mask=CAUSAL)
    assert streaming_of(shipped(text, tmp_path, "S=2,4")).joins
    stream = graphfix.Session(tmp_path / "out").stream()
    x = np.random.default_rng(0).standard_normal((1, 6, WIDTH)).astype(np.float32)
    empty = np.zeros((1, 0, WIDTH), np.float32)
    original = opened(model(text, 17))
    wanted = original.run(["y"], {"x": x, "past_key": empty, "past_value": empty})[0]
    np.testing.assert_allclose(stream.run(None, {"x": x})[0], wanted, rtol=0, atol=1e-5)
    with pytest.raises(FeedError, match=r"3 new entries are no sum of the sizes .* \(2, 4\)"):
        stream.run(None, {"x": x[:, :3]})


def test_what_rounds_together_is_run_together_and_held_to_its_own_rounding(
    tmp_path: Path,
) -> None:
    done = shipped(ROUNDED.replace("float[B, S, 4] y", "uint8[B, S, 4] y"), tmp_path, "S=1,4")
    assert not streaming_of(done).joins
    assert Manifest.read(tmp_path / "out").stream == streaming_of(done)
