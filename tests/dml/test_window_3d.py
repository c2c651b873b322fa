"""On the real DirectML: attention over a whole sequence, and in windows as window-3d writes it."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix import registry
from graphfix.manual import manual_of
from graphfix.runtime.session import Session
from tests.passes.test_window_chunks import BODIES, ROWS, model, packing

# One window, shorter and whole; the first run's length again; several, the last one short.
LENGTHS = (30, 100, 30, 230, 400)
MANUAL = manual_of(registry.pass_class("window-3d"))


@pytest.mark.parametrize(
    ("spec", "length"),
    [("", None), *itertools.product(("window-3d", "window-3d,fuse-attention"), (None, 230, 400))],
)
def test_windows_compute_what_the_cpu_does(spec: str, length: int | None) -> None:
    before, after = (ir.from_onnx_text(MANUAL.before) for _ in range(2))
    fixed = [] if length is None else [f"fix-dims:B=2,T={length}"]
    for given in [*([spec] if spec else []), *fixed]:
        graphfix.run(after, given)
    random = np.random.default_rng(3)
    with Session(before) as cpu, Session(after, ep="dml") as dml:
        for rows in LENGTHS if length is None else (length,):
            feeds = {"x": random.standard_normal((2, rows, 32)).astype(np.float32)}
            want, got = cpu.run(feeds)["context"], dml.run(feeds)["context"]
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["attention", "a Conv of stride 2"])
def test_a_loop_over_chunks_computes_what_the_cpu_does(name: str) -> None:
    before, after = (ir.from_onnx_text(model(BODIES[name])) for _ in range(2))
    graphfix.run(after, "window-3d")
    random = np.random.default_rng(3)
    with Session(before) as cpu, Session(after, ep="dml") as dml:
        for rows in (3, 9, 3, 16):
            feeds = {"x": random.standard_normal((2, rows, 8)).astype(np.float32)}
            np.testing.assert_allclose(dml.run(feeds)["y"], cpu.run(feeds)["y"], 1e-4, 1e-5)


def test_rows_that_a_mask_picks_are_what_they_are_on_the_cpu() -> None:
    before, after = (ir.from_onnx_text(packing(ROWS["a layer"])) for _ in range(2))
    graphfix.run(after, "window-3d")
    random = np.random.default_rng(3)
    with Session(before) as cpu, Session(after, ep="dml") as dml:
        for rows in (3, 9, 3):
            x = random.standard_normal((2, rows, 8)).astype(np.float32)
            feeds = {"x": x, "seen": random.random((2, rows)) < 0.6}
            np.testing.assert_allclose(dml.run(feeds)["y"], cpu.run(feeds)["y"], 1e-4, 1e-5)
