"""Convolutions and pools: every auto_pad, stride, dilation and group, in one to three dims."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.survey.case import FLOATS, Case, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.survey.case import Kernels

_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
_POOLS = ("AveragePool", "MaxPool", "LpPool")
_OPSET = 21


def cases(_: Kernels) -> Iterator[Case]:
    """Convolutions, pools, and pools over everything."""
    for rank, auto, stride, dilation in itertools.product((1, 2, 3), _PADS, (1, 2), (1, 2)):
        if auto.startswith("SAME") and stride * dilation == 4:
            continue
        given: dict[str, Any] = {"auto_pad": auto, "strides": [stride] * rank}
        given["dilations"] = [dilation] * rank
        kind = f"{rank} dims, {auto}, stride {stride}, dilation {dilation}"
        x, w = numbers("float32", 2, 4, *[7] * rank), numbers("float32", 4, 2, *[3] * rank)
        yield Case("Conv", kind, (x, w, numbers("float32", 4)), {**given, "group": 2})
        w = numbers("float32", 4, 1, *[4] * rank)
        yield Case("ConvTranspose", kind, (x, w), {**given, "group": 2})
        w = numbers("float32", 4, 4, *[3] * rank)
        yield Case("Conv", f"{kind}, one group", (x, w), given)
        yield Case("ConvTranspose", f"{kind}, one group", (x, w), given)
        for op in _POOLS:
            pool = {k: v for k, v in given.items() if op != "LpPool" or k != "dilations"}
            if op == "LpPool" and dilation > 1:
                continue
            yield Case(op, kind, (x,), {**pool, "kernel_shape": [3] * rank})
    for rank, op, ceil in itertools.product((1, 2), _POOLS, (0, 1)):
        given = {"kernel_shape": [3] * rank, "strides": [2] * rank, "ceil_mode": ceil}
        for pads in ([0, 0], [1, 1], [0, 1]):
            more = {**given, "pads": [pads[0]] * rank + [pads[1]] * rank}
            for size in (6, 7, 8):
                x = numbers("float32", 2, 3, *[size] * rank)
                yield Case(op, f"ceil_mode {ceil}, pads {pads}", (x,), more)
                if op == "AveragePool":
                    counted = {**more, "count_include_pad": 1}
                    yield Case(op, f"ceil_mode {ceil}, counted pads {pads}", (x,), counted)
    for dtype in FLOATS:
        x, w = numbers(dtype, 2, 4, 9), numbers(dtype, 4, 4, 3)
        yield Case("Conv", "type", (x, w))
        yield Case("ConvTranspose", "type", (x, w))
        yield Case("ConvTranspose", "output_padding, 1 dim", (x, w), _more(1))
        yield Case(
            "ConvTranspose", "output_padding, 2 dims", (x[..., None], w[..., None]), _more(2)
        )
        yield Case("Conv", "under a window, padded", (x[..., :1], w), {"pads": [1, 1]})
        yield Case("Conv", "empty, padded", (x[..., :0], w), {"pads": [2, 2]})
        for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
            yield Case(op, "type", (x,))
            yield Case(op, "value 1000", (np.abs(x) * np.asarray(1000, dtype),))
            yield Case(op, "one element", (x[..., :1],))
        for op in _POOLS:
            yield Case(op, "type", (x,), {"kernel_shape": [3]})
            large = np.abs(x) * np.asarray(1000, dtype)
            yield Case(op, "value 1000", (large,), {"kernel_shape": [3]})


def _more(rank: int) -> dict[str, Any]:
    pads = [1, *[0] * (rank - 1)]
    return {"strides": [2, *[1] * (rank - 1)], "output_padding": pads}
