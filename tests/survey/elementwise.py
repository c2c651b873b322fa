"""Element by element: every type, every rank, every opset, and numbers at the edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphfix.ops.table import rows
from tests.survey.case import Case, fractions, numbers, shapes_of_rank
from tests.survey.edge_cases import values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.survey.case import Kernels

# Their other inputs or attributes make them cases of other modules.
_NOT_HERE = ("Cast", "CastLike", "Clip", "Dropout", "Identity")
_COMPARES = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Mod", "Pow", "PRelu", "Mean", "Sum")
_BITS = ("And", "Or", "Xor", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
_EDGES = ("negative", "fractional", "large", "nan", "inf", "tiny", "over32")


def cases(kernels: Kernels) -> Iterator[Case]:
    """Unary and binary operators, and numbers by scales."""
    for op in sorted({x.operator for x in rows() if x.kind == "unary"}):
        if "." not in op and op not in _NOT_HERE:
            yield from _unary(op, kernels)
    for op in (*_ARITHMETIC, *_COMPARES, *_BITS):
        yield from _binary(op, kernels)
    for dtype in ("int8", "uint8", "int32"):
        yield from _scaled(dtype)


def _unary(op: str, kernels: Kernels) -> Iterator[Case]:
    for opset in kernels.versions(op):
        for dtype in kernels.types(op, opset) or kernels.types(op, opset, "T1"):
            x = fractions(dtype, 2, 3) if "float" in dtype else numbers(dtype, 2, 3)
            yield Case(op, "type", (x + (op == "Acosh"),), opset=opset)
    for dtype in kernels.types(op) or kernels.types(op, constraint="T1"):
        for edge, x in _edges(dtype):
            yield Case(op, f"value {edge}", (x,))
    for shape in shapes_of_rank():
        for dtype in (kernels.types(op) or ["float32"])[:1]:
            x = fractions(dtype, *shape) if "float" in dtype else numbers(dtype, *shape)
            yield Case(op, f"rank {len(shape)}", (x + (op == "Acosh") if "float" in dtype else x,))


def _binary(op: str, kernels: Kernels) -> Iterator[Case]:
    attributes = {"direction": "LEFT"} if op == "BitShift" else {}
    for opset in kernels.versions(op):
        for dtype in kernels.types(op, opset):
            given = {**attributes, **({"fmod": 1} if op == "Mod" and "float" in dtype else {})}
            a, b = numbers(dtype, 2, 3), numbers(dtype, 2, 3, seed=1)
            if dtype != "bool":
                a, b = abs(a) + 1, abs(b) % 3 + 1
            a, b = np.asarray(a, dtype), np.asarray(b, dtype)
            yield Case(op, "type", (a, b), given, opset=opset)
    dtype = (kernels.types(op) or ["float32"])[0]
    given = {**attributes, **({"fmod": 1} if op == "Mod" and "float" in dtype else {})}
    for shape in shapes_of_rank():
        a, b = (abs(numbers(dtype, *shape)) + 1 if dtype != "bool" else numbers(dtype, *shape),) * 2
        a, b = np.asarray(a, dtype), np.asarray(b, dtype)
        yield Case(op, f"rank {len(shape)}", (a, b), given)
        if shape:
            yield Case(op, "broadcast to the right", (a, b[:1]), given)
            if op != "PRelu":
                yield Case(op, "broadcast to the left", (a[..., :1], b), given)
                yield Case(op, "broadcast of fewer dims", (a[0], b), given)


def _scaled(dtype: str) -> Iterator[Case]:
    """Scales: one, by an axis, by blocks; with zero points and without."""
    x = np.random.default_rng(0).integers(0, 120, (2, 4, 16)).astype(dtype)
    for kind, shape, given in (
        ("one scale", (), {}), ("by axis", (4,), {"axis": 1}), ("by last axis", (16,), {"axis": 2}),
        ("by blocks", (2, 4, 4), {"axis": 2, "block_size": 4}),
    ):  # fmt: skip
        for to in ("float32", "float16"):
            scale = np.asarray(fractions(to, *shape) / 4, to)
            zero = np.random.default_rng(1).integers(0, 9, shape).astype(dtype)
            wires = (x, scale, zero) if dtype != "int32" else (x, scale)
            yield Case("DequantizeLinear", f"{dtype}, {kind}, {to}", wires, given)
            yield Case("DequantizeLinear", f"{dtype}, {kind}, {to}, no zero", (x, scale), given)
            if dtype != "int32":
                rows = numbers(to, 2, 4, 16) * np.asarray(9, to)
                yield Case("QuantizeLinear", f"{dtype}, {kind}, {to}", (rows, scale, zero), given)


def _edges(dtype: str) -> Iterator[tuple[str, np.ndarray]]:
    if dtype in ("float32", "float16", "int64"):
        yield from ((k, x) for k, x in values(np.dtype(dtype).type).items() if k in _EDGES)
