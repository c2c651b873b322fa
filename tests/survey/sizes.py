"""Sizes of tiles: below, at and above what a kernel computes at a time, and very many rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.survey.case import FLOATS, Case, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.survey.case import Kernels

_SIZES = (1, 4, 31, 32, 33, 64, 65, 128, 130, 260)
# More groups than a device dispatches in one dim.
_ROWS = 70_000


def cases(_: Kernels) -> Iterator[Case]:
    """Products, convolutions, reductions, norms, and what moves elements."""
    for size in _SIZES:
        for dtype in FLOATS:
            yield from _of_size(size, dtype)
    yield from _of_many_rows()


def _of_size(size: int, dtype: str) -> Iterator[Case]:
    kind = f"size {size}"
    small = np.asarray(0.25, dtype)
    a, b = numbers(dtype, 2, size, size) * small, numbers(dtype, size, size, seed=1) * small
    yield Case("MatMul", kind, (a, b))
    yield Case("MatMul", f"{kind}, one row", (a[:, :1], b))
    yield Case("MatMul", f"{kind}, one column", (a, b[:, :1].copy()))
    yield Case("Gemm", kind, (a[0], b, numbers(dtype, size)), {"transB": 1})
    for op in ("Softmax", "ReduceSum", "ReduceMax", "ReduceMean"):
        yield Case(op, kind, (a,), {"axis": -1} if op == "Softmax" else {})
    scale = numbers(dtype, size)
    yield Case("LayerNormalization", kind, (a, scale, scale), {"axis": -1})
    yield Case("Transpose", kind, (a,), {"perm": [0, 2, 1]})
    yield Case("Add", kind, (a, scale))
    line, w = numbers(dtype, 1, size, 40), numbers(dtype, size, size, 3, seed=1) * small
    yield Case("Conv", f"{kind}, 1 dim", (line * small, w), {"pads": [1, 1]})
    image, w = numbers(dtype, 1, size, 9, 9), numbers(dtype, size, 1, 3, 3, seed=1)
    yield Case("Conv", f"{kind}, depthwise", (image, w), {"group": size})
    w = numbers(dtype, size, size, 1, 1, seed=1) * small
    yield Case("Conv", f"{kind}, of one pixel", (image * small, w))
    heads, width = 2, 16
    q, k, v = (numbers(dtype, 1, size, heads * width, seed=i) for i in range(3))
    op = "com.microsoft.MultiHeadAttention"
    yield Case(op, f"{size} keys", (q, k, v), {"num_heads": heads}, opset=17)
    yield Case(op, f"{size} keys, one query", (q[:, :1], k, v), {"num_heads": heads}, opset=17)
    op, last = "com.microsoft.GroupQueryAttention", np.array([size - 1], np.int32)
    wires = (q, k[..., :width].copy(), v[..., :width].copy(), None, None, last)
    given = {"num_heads": heads, "kv_num_heads": 1}
    total = np.array(size, np.int32)
    yield Case(op, f"{size} keys", (*wires, total), given, frozenset({6}), 3, opset=17)
    op = "com.microsoft.Attention"
    w = numbers(dtype, heads * width, 3 * heads * width, seed=3) * small
    wires = (q, w, numbers(dtype, 3 * heads * width, seed=4))
    yield Case(op, f"{size} keys", wires, {"num_heads": heads}, opset=17)


def _of_many_rows() -> Iterator[Case]:
    kind = f"{_ROWS} rows"
    x = numbers("float32", _ROWS, 4)
    scale = numbers("float32", 4)
    yield Case("Softmax", kind, (x,), {"axis": -1})
    yield Case("ReduceSum", kind, (x, np.array([1])), {}, frozenset({1}))
    yield Case("ArgMax", kind, (x,), {"axis": -1})
    yield Case("LayerNormalization", kind, (x, scale, scale), {"axis": -1})
    yield Case("MatMul", kind, (x[:, None], numbers("float32", 4, 4)))
    yield Case("MatMul", f"{kind} of both", (x[:, None], x[:, :, None]))
    yield Case("Gather", kind, (scale, np.arange(_ROWS) % 4))
    yield Case("Transpose", kind, (x,), {"perm": [1, 0]})
    yield Case("CumSum", kind, (x[:, :1] * np.float32(0.01), np.array(0)), {}, frozenset({1}))
    yield Case("Expand", kind, (scale, np.array([_ROWS, 4])), {}, frozenset({1}))
