"""On the real DirectML: attention over a whole sequence, and in windows as window-3d writes it."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.engine import registry
from graphfix.runtime.local_session import Session
from graphfix.spec.manual import manual_of

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
