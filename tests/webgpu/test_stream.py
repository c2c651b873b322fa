"""Shipped streams on WebGPU, step by step against the original on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.shipping.streams import STREAMS, prove_on

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["genai with buffers", "sovits", "halved"])
def test_a_stream_gives_there_what_the_original_gives(name: str, tmp_path: Path) -> None:
    proof = prove_on("webgpu", STREAMS[name], tmp_path)
    assert proof.ok, str(proof)
