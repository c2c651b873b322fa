"""Along axes: first, last and negative ones, kept dims or not, every type and rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.survey.case import FLOATS, NEWEST, Case, numbers, shapes_of_rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.survey.case import Kernels

_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
_ROWS = ("Softmax", "LogSoftmax", "Hardmax", "LpNormalization")
_AXES_ARE_AN_INPUT = 18


def cases(kernels: Kernels) -> Iterator[Case]:
    """Reductions, what works along one axis, sorting and sums."""
    for name in _REDUCTIONS:
        yield from _reductions(f"Reduce{name}", kernels)
    for op in _ROWS:
        for shape in list(shapes_of_rank())[1:]:
            for axis, where in ((0, "first"), (len(shape) - 1, "last"), (-1, "negative")):
                yield Case(op, f"axis {where}", (numbers("float32", *shape),), {"axis": axis})
        for dtype in kernels.types(op):
            yield Case(op, "type", (numbers(dtype, 2, 3),), {"axis": -1})
            for size, what in ((1e-4, "small"), (1000, "large"), (0, "zeros")):
                x = numbers("float64", 2, 3) * size
                yield Case(op, f"value {what}", (x.astype(dtype),), {"axis": -1})
    for op in ("ArgMax", "ArgMin"):
        for dtype in kernels.types(op):
            for last in (0, 1):
                x = np.asarray([[1, 3, 3, 1], [2, 2, 2, 2]], dtype)
                given = {"axis": 1, "select_last_index": last}
                yield Case(op, "ties", (x,), given)
        for keep in (0, 1):
            for axis in (0, -1):
                x = numbers("float32", 2, 3, 4)
                yield Case(op, "axes", (x,), {"axis": axis, "keepdims": keep})
    for dtype in kernels.types("CumSum"):
        for exclusive in (0, 1):
            for reverse in (0, 1):
                x = abs(numbers(dtype, 2, 5)).astype(dtype)
                given = {"exclusive": exclusive, "reverse": reverse}
                yield Case("CumSum", "ways", (x, np.array(-1)), given, frozenset({1}))
    for dtype in kernels.types("TopK"):
        for largest in (0, 1):
            for axis in (0, -1):
                x = np.random.default_rng(0).permutation(12).reshape(3, 4).astype(dtype)
                given = {"largest": largest, "axis": axis}
                yield Case("TopK", "ways", (x, np.array([2])), given, frozenset({1}), 2)


def _reductions(op: str, kernels: Kernels) -> Iterator[Case]:
    for opset in (11, 13, NEWEST):
        for dtype in kernels.types(op, opset):
            x = np.asarray(abs(numbers(dtype, 2, 3, 4)) + 1, dtype)
            for axes, where in (((0,), "first"), ((2,), "last"), ((-2,), "negative")):
                for keep in (0, 1):
                    yield _reduction(op, x, axes, {"keepdims": keep}, f"axes {where}", opset)
            yield _reduction(op, x, (0, 2), {}, "axes of two", opset)
            yield _reduction(op, x, (), {}, "axes absent", opset)
    noop = {"noop_with_empty_axes": 1}
    yield _reduction(op, numbers("float32", 2, 3), (), noop, "axes absent, noop", NEWEST)
    for shape in list(shapes_of_rank())[1:]:
        yield _reduction(op, abs(numbers("float32", *shape)), (-1,), {}, "ranks", NEWEST)
    for dtype in FLOATS:
        for size, what in ((200.0, "200"), (3e4, "30000"), (1e-4, "small"), (-200.0, "-200")):
            if dtype in kernels.types(op):
                x = np.asarray([[1, 0.5, 0.25, 0.75]], np.float64) * size
                x = abs(x) if op == "ReduceLogSum" else x
                yield _reduction(op, x.astype(dtype), (1,), {}, f"value {what}", NEWEST)
        yield _reduction(op, np.zeros((2, 0), dtype), (1,), {}, "empty", NEWEST)


def _reduction(
    op: str, x: np.ndarray, axes: tuple[int, ...], given: dict[str, int], kind: str, opset: int
) -> Case:
    as_input = opset >= _AXES_ARE_AN_INPUT or (op == "ReduceSum" and opset >= 13)
    if axes and as_input:
        return Case(op, kind, (x, np.array(axes)), given, frozenset({1}), opset=opset)
    return Case(op, kind, (x,), {**given, **({"axes": axes} if axes else {})}, opset=opset)
