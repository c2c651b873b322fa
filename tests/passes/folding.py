"""What the tests of fold share: a model is folded and run beside itself."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

import graphfix
from tests.passes.models import data, execute

SIZES = (1, 2, 5)


def feeds_of(m: ir.Model, size: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Numbers for every input; symbols get ``size``, and one more each in their order."""
    random, sizes, found = np.random.default_rng(seed), {}, {}
    for value in m.graph.inputs:
        dims = [x if isinstance(x, int) else sizes.setdefault(str(x), size) for x in value.shape]
        array = random.integers(-3, 4, dims) if size or 0 not in dims else np.zeros(dims)
        found[value.name] = np.asarray(array).astype(value.dtype.numpy())
    return found


def fold(m: ir.Model, *sizes: int, spec: str = "fold") -> ir.Model:
    """The folded model: it computes the same, keeps its signature, and is folded already."""
    after = m.clone()
    report = graphfix.run(after, spec)
    saved = data(after)
    again = graphfix.run(after, spec)
    assert not again.changed, again.passes[0].changes
    assert data(after) == saved
    if not report.changed:
        assert saved == data(m)
    for graph in ("inputs", "outputs"):
        before, now = getattr(m.graph, graph), getattr(after.graph, graph)
        assert [(x.name, x.dtype) for x in before] == [(x.name, x.dtype) for x in now]
    for size in sizes or SIZES:
        feeds = feeds_of(m, size)
        for old, new in zip(execute(m, feeds), execute(after, feeds), strict=True):
            assert (old.dtype, old.shape) == (new.dtype, new.shape)
            np.testing.assert_array_equal(old, new)
    return after
