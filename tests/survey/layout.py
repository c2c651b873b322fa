"""What moves, cuts, joins and makes elements: every type, mode and rank, and empty inputs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.survey.case import Array, Case, numbers, shapes_of_rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.survey.case import Kernels

_TYPES = ("float32", "float16", "int64", "int8", "uint8", "bool")
_COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel",
                "half_pixel_symmetric")  # fmt: skip
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_SECOND = frozenset({1})


def cases(kernels: Kernels) -> Iterator[Case]:
    """All of them."""
    for dtype in _TYPES:
        yield from _moves(dtype)
        yield from _picks(dtype)
    for shape in shapes_of_rank():
        yield from _of_rank(numbers("float32", *shape))
    yield from _pads()
    yield from _resizes()
    yield from _makers(kernels)
    yield from _regions()
    yield from _empty()


def _ints(*values: int) -> Array:
    return np.array(values, np.int64)


def _moves(dtype: str) -> Iterator[Case]:
    x = numbers(dtype, 2, 3, 4)
    yield Case("Transpose", "type", (x,), {"perm": [2, 0, 1]})
    yield Case("Reshape", "type", (x, _ints(0, -1)), {}, _SECOND)
    yield Case("Squeeze", "type", (x[:, :1], _ints(-2)), {}, _SECOND)
    yield Case("Squeeze", "no axes", (x[:, :1],))
    yield Case("Unsqueeze", "type", (x, _ints(0, -1)), {}, _SECOND)
    yield Case("Shape", "type", (x,))
    yield Case("Shape", "start and end", (x,), {"start": -2, "end": 9})
    yield Case("Flatten", "type", (x,), {"axis": 2})
    yield Case("Concat", "type", (x, x), {"axis": -1})
    yield Case("Concat", "an empty one", (x, x[:, :, :0]), {"axis": 2})
    yield Case("Split", "type", (x, _ints(1, 3)), {"axis": -1}, _SECOND, 2)
    yield Case("Tile", "type", (x, _ints(1, 2, 2)), {}, _SECOND)
    yield Case("Expand", "type", (x[:, :1], _ints(2, 3, 4)), {}, _SECOND)
    yield Case("Slice", "type", (x, _ints(-1), _ints(-9), _ints(2), _ints(-2)))
    yield Case("Slice", "nothing", (x, _ints(2), _ints(2), _ints(1)))
    yield Case("Where", "type", (numbers("bool", 2, 3, 4), x, numbers(dtype, 2, 3, 4, seed=1)))
    yield Case("Where", "broadcast", (numbers("bool", 3, 1), x, numbers(dtype, 4, seed=1)))
    if "float" in dtype or dtype == "int64":
        for upper, k in itertools.product((0, 1), (-1, 0, 1, 9)):
            yield Case("Trilu", "ways", (x, np.array(k)), {"upper": upper}, _SECOND)
    wide = numbers(dtype, 1, 8, 2, 2)
    for mode in ("DCR", "CRD"):
        yield Case("DepthToSpace", mode, (wide,), {"blocksize": 2, "mode": mode})
    yield Case("SpaceToDepth", "type", (numbers(dtype, 1, 2, 4, 4),), {"blocksize": 2})


def _picks(dtype: str) -> Iterator[Case]:
    x = numbers(dtype, 3, 4)
    for index in ("int32", "int64"):
        rows = np.array([[0, -1], [2, 1]], index)
        yield Case("Gather", f"{index}", (x, rows), {"axis": 0})
        yield Case("Gather", f"{index}, last axis", (x, rows), {"axis": -1})
        yield Case("Gather", f"{index}, one", (x, np.array(-1, index)))
        yield Case("GatherElements", f"{index}", (x, rows), {"axis": 1})
        updates = numbers(dtype, 2, 2, seed=1)
        yield Case("ScatterElements", f"{index}", (x, rows, updates), {"axis": 1})
    places = np.array([[0, 1], [-1, 2]])
    yield Case("GatherND", "type", (x, places))
    yield Case("GatherND", "batch_dims", (numbers(dtype, 2, 3, 4), places[:, :1] + 1),
               {"batch_dims": 1})  # fmt: skip
    yield Case("ScatterND", "type", (x, places, numbers(dtype, 2, seed=1)))
    yield Case("ScatterND", "nothing", (x, places[:0], numbers(dtype, 0)))
    if dtype != "bool":
        for pads in ([0, 1, 0, 2], [1, 0, 0, 0]):
            yield Case("Pad", "type", (x, _ints(*pads)), {}, _SECOND)
    order = _ints(2, 1, 3)
    given = {"batch_axis": 0, "time_axis": 1}
    yield Case("ReverseSequence", "two dims", (x, order), given)
    yield Case("ReverseSequence", "three dims", (numbers(dtype, 3, 4, 2), order), given)


def _of_rank(x: Array) -> Iterator[Case]:
    rank = x.ndim
    yield Case("Identity", f"rank {rank}", (x,))
    yield Case("Transpose", f"rank {rank}", (x,))
    yield Case("Cast", f"rank {rank}", (x,), {"to": 10})
    if rank:
        yield Case("Concat", f"rank {rank}", (x, x), {"axis": -1})
        yield Case("Slice", f"rank {rank}", (x, _ints(1), _ints(2), _ints(rank - 1)))
        yield Case("Gather", f"rank {rank}", (x, _ints(1, 0)), {"axis": -1})
        yield Case("Pad", f"rank {rank}", (x, _ints(*[1] * (2 * rank))), {}, _SECOND)
        yield Case("Tile", f"rank {rank}", (x, _ints(*[2] * rank)), {}, _SECOND)
        yield Case("Expand", f"rank {rank}", (x[:1], _ints(*x.shape)), {}, _SECOND)
    if rank > 1:
        yield Case("MatMul", f"rank {rank}", (x, np.swapaxes(x, -1, -2).copy()))
        yield Case("Trilu", f"rank {rank}", (x,))
    scale = numbers("float32", x.shape[-1]) if rank else None
    if rank and scale is not None:
        yield Case("LayerNormalization", f"rank {rank}", (x, scale, scale), {"axis": -1})
    if rank > 2:
        wide = numbers("float32", x.shape[1])
        yield Case("InstanceNormalization", f"rank {rank}", (x, wide, wide))
        moments = (wide, wide, wide, abs(wide) + 1)
        yield Case("BatchNormalization", f"rank {rank}", (x, *moments))


def _pads() -> Iterator[Case]:
    x = numbers("float32", 3, 5)
    for mode in ("constant", "reflect", "edge", "wrap"):
        for pads in ([1, 2, 1, 2], [0, 4, 0, 0], [0, -1, 0, 0], [0, 0, 0, -1], [0, 2, 0, -1]):
            signs = "negative " if min(pads) < 0 else ""
            wires = (x, _ints(*pads))
            yield Case("Pad", f"{mode}, {signs}pads", wires, {"mode": mode}, _SECOND)
        wires = (x, _ints(1, 2), None, _ints(-1))
        yield Case("Pad", f"{mode}, axes", wires, {"mode": mode}, frozenset({1, 3}))


def _resizes() -> Iterator[Case]:
    for coordinates, mode in itertools.product(_COORDINATES, ("nearest", "linear")):
        for factor in (2.0, 0.5, 1.5):
            for nearest in _NEAREST if mode == "nearest" else _NEAREST[:1]:
                x = numbers("float32", 2, 3, 4, 6)
                given: dict[str, Any] = {"coordinate_transformation_mode": coordinates}
                given |= {"mode": mode, "nearest_mode": nearest}
                scales = np.array([1, 1, factor, factor], np.float32)
                kind = f"{mode}, {coordinates}" + (f", {nearest}" if mode == "nearest" else "")
                yield Case("Resize", kind, (x, None, scales), given, frozenset({2}))
    for rank, batch in itertools.product((3, 4, 5), (1, 2)):
        x = numbers("float32", batch, 2, *[4] * (rank - 2))
        sizes = _ints(batch, 2, *[6] * (rank - 2))
        for mode in ("nearest", "linear"):
            kind = f"{rank} dims, batch {batch}, {mode}"
            wires = (x, None, None, sizes)
            yield Case("Resize", kind, wires, {"mode": mode}, frozenset({3}))
    x = numbers("float32", 1, 1, 4, 4)
    for policy in ("not_larger", "not_smaller"):
        given = {"keep_aspect_ratio_policy": policy, "axes": [2, 3]}
        yield Case("Resize", policy, (x, None, None, _ints(8, 6)), given, frozenset({3}))
    scales = np.array([1, 1, 0.5, 0.5], np.float32)
    given = {"mode": "linear", "antialias": 1}
    yield Case("Resize", "antialias", (x, None, scales), given, frozenset({2}))


def _makers(kernels: Kernels) -> Iterator[Case]:
    x = numbers("float32", 3, 5)
    for dtype in (1, 6, 7):
        for k in (-1, 0, 2):
            yield Case("EyeLike", "ways", (x,), {"dtype": dtype, "k": k})
    for dtype in kernels.types("Range"):
        wires = tuple(np.array(v, dtype) for v in (1, 9, 2))
        yield Case("Range", "type", wires)
        yield Case("Range", "nothing", tuple(np.array(v, dtype) for v in (9, 1, 2)))
    for index in ("int32", "int64", "float32"):
        for axis in (-1, 0):
            wires = (np.array([0, 2, -1], index), np.array(4), np.array([0, 1], np.float32))
            yield Case("OneHot", f"{index}", wires, {"axis": axis}, _SECOND)
    yield Case("NonZero", "type", (numbers("bool", 3, 4),))
    for inputs in ((0.2, 0.7), (3.0, -2.0)):
        wires = (x, *(np.array(v, np.float32) for v in inputs))
        kind = "limits crossed" if inputs[0] > inputs[1] else "limits"
        yield Case("Clip", kind, wires, {}, frozenset({1, 2}))
    yield Case("Clip", "no least", (x, None, np.array(0.5, np.float32)), {}, frozenset({2}))
    spectrum = numbers("float32", 1, 8, 1)
    yield Case("DFT", "real", (spectrum,), {"axis": 1}, opset=17)
    yield Case("DFT", "one element", (spectrum[:, :1],), {"axis": 1}, opset=17)
    yield Case("DFT", "onesided", (spectrum,), {"axis": 1, "onesided": 1}, opset=17)
    for mode, align in itertools.product(("linear", "nearest"), (0, 1)):
        for padding in ("zeros", "border", "reflection"):
            grid = numbers("float32", 2, 3, 4, 2)
            given = {"mode": mode, "align_corners": align, "padding_mode": padding}
            wires = (numbers("float32", 2, 3, 5, 6), grid)
            yield Case("GridSample", f"{mode}, {padding}, align_corners {align}", wires, given)
    x = numbers("float32", 2, 3, 4, 4)
    yield Case("MeanVarianceNormalization", "type", (x,))
    yield Case("MeanVarianceNormalization", "value small", (x * np.float32(1e-3),))
    yield Case("LRN", "type", (x,), {"size": 3})
    for equation, second in (("ab,bc->ac", (4, 5)), ("ab,cb->ac", (5, 4)), ("ab,ab->a", (3, 4))):
        wires = (numbers("float32", 3, 4), numbers("float32", *second))
        yield Case("Einsum", equation, wires, {"equation": equation})


def _regions() -> Iterator[Case]:
    x, batch = numbers("float32", 2, 2, 8, 8), np.array([0, 1])
    for opset, half, mode, ratio in itertools.product(
        (10, 16), ("half_pixel", "output_half_pixel"), ("avg", "max"), (0, 2)
    ):
        given: dict[str, Any] = {"mode": mode, "sampling_ratio": ratio}
        given |= {"output_height": 3, "output_width": 3}
        if opset == 16:
            given["coordinate_transformation_mode"] = half
        elif half == "half_pixel":
            continue
        for name, box in (("boxes", [1, 1, 6, 5]), ("small boxes", [2, 2, 2.4, 2.3]),
                          ("boxes of no area", [2, 2, 2, 2])):  # fmt: skip
            wires = (x, np.array([box, box], np.float32), batch)
            sampling = "any" if ratio else "0"
            kind = f"opset {opset}, {half}, {mode}, sampling {sampling}, {name}"
            yield Case("RoiAlign", kind, wires, given, opset=opset)


def _empty() -> Iterator[Case]:
    x = numbers("float32", 0, 4)
    yield Case("Pad", "empty", (x, _ints(2, 0, 1, 0)), {}, _SECOND)
    yield Case("MatMul", "of nothing", (x.T.copy(), x))
    yield Case("Gemm", "of nothing", (x.T.copy(), x, numbers("float32", 4)))
    yield Case("Einsum", "of nothing", (x.T.copy(), x), {"equation": "ab,bc->ac"})
    yield Case("Concat", "all empty", (x, x), {"axis": 0})
    yield Case("Gather", "nothing", (numbers("float32", 3, 4), _ints()), {"axis": 0})
    yield Case("Expand", "to nothing", (numbers("float32", 1, 4), _ints(0, 4)), {}, _SECOND)
    yield Case("Add", "nothing and something", (x, numbers("float32", 1, 4)))
    yield Case("Softmax", "of nothing", (x,), {"axis": 0})
    yield Case("CumSum", "of nothing", (x, np.array(0)), {}, _SECOND)
