"""What is shipped of streams as people write them gives what the original gives, run by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import pytest

import graphfix
from graphfix.shipping.build import ship
from graphfix.shipping.container_spec import parse_containers
from tests.shipping.conftest import saved
from tests.shipping.streams import HEADER, STREAMS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_gives_what_the_original_gives(name: str, tmp_path: Path) -> None:
    example = STREAMS[name]
    source = saved(HEADER + example.text, tmp_path / "model.onnx")
    sizes = parse_containers(example.containers)
    result = ship(source, tmp_path / "out", sizes, cache=example.cache, stream=True)
    assert result.ok, str(result.whole)
    links = {} if result.manifest.stream is None else result.manifest.stream.states
    assert {x.input: x.output for x in links} == example.states
    kernels = [x.kernels["after"] for x in result.manifest.containers]
    assert all(x["recompiled"] == x["cpu"] == 0 for x in kernels)
    original = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    outputs = [x.name for x in original.get_outputs()]
    inputs = {x.name: x.shape for x in original.get_inputs()}
    states = {k: np.zeros([_first_size(x) for x in inputs[k]], np.float32) for k in example.states}
    stream, past = graphfix.Session(tmp_path / "out").stream(), 0
    for new in example.counts:
        feeds = example.feed(past, new)
        made = dict(zip(outputs, original.run(None, {**feeds, **states}), strict=True))
        states = {k: made[x] for k, x in example.states.items()}
        for output, array in zip(stream.outputs, stream.run(None, feeds), strict=True):
            most = max(1.0, float(np.abs(made[output]).max()))
            np.testing.assert_allclose(array, made[output], rtol=0, atol=3e-5 * most)
        past += new


def _first_size(dim: int | str) -> int:
    """Return the size of a dim of a state in front of the first step: caches are empty."""
    named = {"P": 0, "past": 0, "D": 16, "W": 8}
    return dim if isinstance(dim, int) else named.get(dim, 1)
