"""The graphs of edges.py: one node each, with inputs at the edges of their types."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper

if TYPE_CHECKING:
    from collections.abc import Iterator

OPSET = 18
Array = np.ndarray[Any, Any]

F32, F16, F64 = np.float32, np.float16, np.float64
I8, U8, I32, I64, BOOL = np.int8, np.uint8, np.int32, np.int64, np.bool_
FLOATS, INTS = (F32, F16), (I32, I64)
NUMBERS = (F32, F16, I32, I64)
ALL = (F32, F16, I32, I64, U8, I8, BOOL)


@dataclass
class Graph:
    """One node and the inputs to run it with.

    Attributes:
        op: The operator.
        dtype: Its element types, as the table writes them.
        edges: For each kind of edge, an array for each input.
        attributes: Those of the node.
        constants: Initializers, by name.
        wires: The node's inputs, if they are not the graph's in their order.
        outputs: How many outputs it has.
        undefined: The edges at which ONNX promises nothing.
    """

    op: str
    dtype: str
    edges: dict[str, dict[str, Array]]
    attributes: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    wires: list[str] = field(default_factory=list)
    outputs: int = 1
    undefined: frozenset[str] = frozenset()


def values(dtype: type) -> dict[str, Array]:
    """Vectors of 8 numbers at each kind of edge, and an empty one."""
    found: dict[str, list[float]] = {"small": [0, 1, 2, 3, 5, 7, 4, 6]}
    if issubclass(dtype, np.floating):
        big = 3e38 if dtype is F32 else 6e4
        found["negative"] = [-1, -2, -3, -0.0, -7, -100, -5, -1000]
        found["fractional"] = [0.5, -0.5, 1.5, -1.5, 2.5, 0.25, 0.999, -0.75]
        found["large"] = [big, -big, 1e4, -1e4, 300, -300, 256, 65504]
        found["nan"] = [np.nan, 1, -1, np.nan, 0, 2, np.nan, 0.5]
        found["inf"] = [np.inf, -np.inf, 1, -1, 0, np.inf, -np.inf, 2]
        found["tiny"] = [1e-7, -1e-7, 6e-8, 1e-5, -1e-5, 1e-4, 0, -6e-8]
    elif dtype is not BOOL:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        if low < 0:
            found["negative"] = [-1, -2, -3, -7, -100, -5, -9, -128]
        found["large"] = [high, high - 1, low + 1, high // 2, 100, 127, 77, high - 2]
        if dtype is I64:
            big = 2**32
            found["over32"] = [big, big + 1, -big, 2**40 + 3, 2**31, -(2**31) - 1, 2**53 + 1, 5]
    else:
        found = {"small": [0, 1, 1, 0, 0, 1, 0, 1]}
    with np.errstate(all="ignore"):
        made = {edge: np.array(x).astype(dtype) for edge, x in found.items()}
    if dtype is I64:  # not through floats
        made["over32"] = np.array(found["over32"], dtype=I64)
        made["large"] = np.array([int(x) for x in found["large"]], dtype=I64)
    return {**made, "empty": np.zeros(0, dtype)}


def name_of(dtype: type) -> str:
    """float32, int64, bool."""
    return np.dtype(dtype).name


def graphs() -> Iterator[Graph]:
    """Every graph of the table."""
    yield from _unary()
    yield from _binary()
    yield from _casts()
    yield from _rows()
    yield from _layout()
    yield from _lookups()
    yield from _products()
    yield from _makers()


def _unary() -> Iterator[Graph]:
    waves = ("Sqrt", "Erf", "Relu", "Reciprocal", "Cos", "Sin", "Exp", "Sigmoid", "Log", "Tanh")
    ops = {
        **dict.fromkeys((*waves, "Floor", "Ceil", "Round", "Softplus", "IsNaN"), FLOATS),
        **dict.fromkeys(("Neg", "Abs", "Sign"), NUMBERS),
        "IsInf": (F32,),
        "Identity": ALL,
        "Not": (BOOL,),
        "NonZero": (F32, I64, BOOL),
    }
    for op, dtypes in ops.items():
        for dtype in dtypes:
            # The sine of 3e38 has no digit that is right anywhere.
            wild = frozenset({"large"}) if op in ("Sin", "Cos") else frozenset[str]()
            edges = {edge: {"x": x} for edge, x in values(dtype).items()}
            yield Graph(op, name_of(dtype), edges, undefined=wild)


def _binary() -> Iterator[Graph]:
    ops = {
        **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Max", "Min", "Mod"), NUMBERS),
        **dict.fromkeys(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"), NUMBERS),
        "Pow": (F32, F16, I32),
        **dict.fromkeys(("And", "Or", "Xor"), (BOOL,)),
    }
    for op, dtypes in ops.items():
        for dtype in dtypes:
            whole = not issubclass(dtype, np.floating)
            edges, wild = {}, set[str]()
            for edge, x in values(dtype).items():
                y = np.roll(x, 3)
                if whole and op in ("Div", "Mod"):
                    y = np.where(y == 0, dtype(3), y)  # a whole number by 0 ends the process
                if whole and op == "Pow":
                    y = np.abs(y) % dtype(4)
                edges[edge] = {"x": x, "y": y}
                if whole and op in ("Add", "Sub", "Mul", "Pow") and edge in ("large", "over32"):
                    wild.add(edge)
            attributes = {"fmod": 1} if op == "Mod" and not whole else {}
            yield Graph(op, name_of(dtype), edges, attributes, undefined=frozenset(wild))
    for dtype in ALL:
        edges = {
            edge: {"c": np.arange(x.size) % 2 == 0, "x": x, "y": np.roll(x, 1)}
            for edge, x in values(dtype).items()
        }
        yield Graph("Where", name_of(dtype), edges)


def _casts() -> Iterator[Graph]:
    kinds = (F32, F16, F64, I64, I32, U8, I8, BOOL)
    for source in kinds:
        for target in kinds:
            if source is target:
                continue
            wild = set[str]()
            if target not in (BOOL, F32, F64):  # out of range of the target
                wild = {"nan", "inf", "large", "over32"}
                if issubclass(source, np.floating) and target is U8:
                    wild.add("negative")
                    wild.add("fractional")
            if target is U8:
                wild |= {"negative"}
            if target is I8:
                wild |= {"large", "negative"}
            edges = {edge: {"x": x} for edge, x in values(source).items()}
            to = {"to": helper.np_dtype_to_tensor_dtype(np.dtype(target))}
            name = f"{name_of(source)}>{name_of(target)}"
            yield Graph("Cast", name, edges, to, undefined=frozenset(wild))


def _rows() -> Iterator[Graph]:
    """Operators along an axis of a matrix."""
    axes = {"axes": np.array([1], I64)}
    for dtype in FLOATS:
        edges = {edge: {"x": x.reshape(2, -1)} for edge, x in values(dtype).items()}
        yield Graph("Softmax", name_of(dtype), edges, {"axis": 1})
        equal = {"equal": {"x": np.full((2, 4), 3, dtype)}}
        scale = {"s": np.array([1, 1, 2, 1], dtype), "b": np.array([0, 0, 1, 0], dtype)}
        rows = {k: v for k, v in edges.items() if k != "empty"}
        yield Graph("LayerNormalization", name_of(dtype), {**rows, **equal}, {"axis": 1},
                    scale, ["x", "s", "b"])  # fmt: skip
        cubes = {k: {"x": v["x"].reshape(1, 2, 4)} for k, v in {**rows, **equal}.items()}
        two = {"s": np.array([1, 2], dtype), "b": np.array([0, 1], dtype)}
        yield Graph("InstanceNormalization", name_of(dtype), cubes, {}, two, ["x", "s", "b"])
    for op in (
        "ReduceMean",
        "ReduceSum",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceL2",
        "ReduceSumSquare",
    ):
        for dtype in FLOATS if op in ("ReduceMean", "ReduceL2", "ReduceSumSquare") else NUMBERS:
            found = {k: {"x": x.reshape(2, -1)} for k, x in values(dtype).items()}
            if op in ("ReduceMax", "ReduceMin", "ReduceMean"):
                del found["empty"]
            wraps = op in ("ReduceSum", "ReduceProd") and dtype in INTS
            wild = frozenset({"large", "over32"} if wraps else ())
            constants = axes if op == "ReduceSum" else {}
            if op != "ReduceSum":
                constants = axes
            yield Graph(op, name_of(dtype), found, {}, constants, ["x", "axes"], undefined=wild)
    for dtype in NUMBERS:
        for reverse in (0, 1):
            edges = {edge: {"x": x} for edge, x in values(dtype).items()}
            name = f"{name_of(dtype)}{' reverse exclusive' if reverse else ''}"
            wild = frozenset({"large", "over32"} if dtype in INTS else ())
            yield Graph("CumSum", name, edges, {"reverse": reverse, "exclusive": reverse},
                        {"axis": np.array(0, I64)}, ["x", "axis"], undefined=wild)  # fmt: skip
    for op in ("ArgMax", "ArgMin"):
        for dtype in (F32, I64):
            edges = {e: {"x": x.reshape(2, -1)} for e, x in values(dtype).items() if e != "empty"}
            edges["ties"] = {"x": np.array([[1, 3, 3, 1]], dtype)}
            yield Graph(op, name_of(dtype), edges, {"axis": 1}, undefined=frozenset({"nan"}))
    for dtype in (F32, I64):
        edges = {e: {"x": x} for e, x in values(dtype).items() if e != "empty"}
        yield Graph("TopK", name_of(dtype), edges, {}, {"k": np.array([3], I64)}, ["x", "k"],
                    outputs=2, undefined=frozenset({"nan"}))  # fmt: skip


def _layout() -> Iterator[Graph]:
    """Operators that only move numbers: every type keeps every bit."""
    far = np.iinfo(I64)
    for dtype in ALL:
        found = values(dtype)
        square = {e: {"x": x.reshape(2, -1)} for e, x in found.items()}
        plain = {e: {"x": x} for e, x in found.items()}
        name = name_of(dtype)
        yield Graph("Transpose", name, square, {"perm": [1, 0]})
        yield Graph("Concat", name, {e: {"x": x, "y": x} for e, x in found.items()}, {"axis": 0})
        yield Graph("Flatten", name, square, {"axis": 1})
        yield _shaped("Reshape", name, square, "shape", [-1])
        yield _shaped("Unsqueeze", name, plain, "axes", [-1])
        yield _shaped("Expand", name, plain, "shape", [3, 1])
        yield _shaped("Tile", name, square, "repeats", [2, 1])
        yield _shaped("Split", name, {k: v for k, v in plain.items() if k != "empty"}, "split",
                      [3, 5], outputs=2)  # fmt: skip
        for label, ends in {
            "": ([1], [-1], [1]),
            " far ends": ([far.min], [far.max], [1]),
            " reversed": ([-1], [far.min], [-1]),
            " step 3": ([-7], [2**31], [3]),
        }.items():
            names = dict(zip(("s", "e", "st"), (np.array(x, I64) for x in ends), strict=True))
            constants = {
                "s": names["s"],
                "e": names["e"],
                "a": np.array([0], I64),
                "st": names["st"],
            }
            yield Graph("Slice", f"{name}{label}", plain, {}, constants, ["x", "s", "e", "a", "st"])
    for dtype in (F32, I64):
        some = {k: v for k, v in values(dtype).items() if k != "empty"}
        plain = {e: {"x": x} for e, x in some.items()}
        for mode, pads in (
            ("constant", [2, 3]), ("constant", [-1, -2]), ("constant", [-2, 3]),
            ("reflect", [2, 3]), ("edge", [2, 3]), ("edge", [-1, 2]), ("reflect", [-1, 2]),
        ):  # fmt: skip
            name = f"{name_of(dtype)} {mode} {pads[0]},{pads[1]}"
            given = {"p": np.array(pads, I64)}
            yield Graph("Pad", name, plain, {"mode": mode}, given, ["x", "p"])
    for dtype in (F32, F16, I64):
        plain = {e: {"x": x} for e, x in values(dtype).items()}
        limits = {"lo": np.array(-2, dtype), "hi": np.array(3, dtype)}
        yield Graph("Clip", name_of(dtype), plain, {}, limits, ["x", "lo", "hi"])
        yield Graph("Clip", f"{name_of(dtype)} min over max", plain, {},
                    {"lo": limits["hi"], "hi": limits["lo"]}, ["x", "lo", "hi"])  # fmt: skip
        square = {e: {"x": x.reshape(2, -1)} for e, x in values(dtype).items() if e != "empty"}
        yield Graph("Trilu", name_of(dtype), square, {"upper": 1})
        yield Graph("Trilu", f"{name_of(dtype)} k=-5", square, {"upper": 0},
                    {"k": np.array(-5, I64)}, ["x", "k"])  # fmt: skip


def _shaped(
    op: str,
    name: str,
    edges: dict[str, dict[str, Array]],
    wire: str,
    to: list[int],
    outputs: int = 1,
) -> Graph:
    constants = {wire: np.array(to, I64)}
    return Graph(op, name, edges, {}, constants, ["x", wire], outputs=outputs)


def _lookups() -> Iterator[Graph]:
    for dtype in (F32, F16, I64, BOOL):
        table = values(dtype)["small"].reshape(4, 2)
        for kind in INTS:
            name = f"{name_of(dtype)}[{name_of(kind)}]"
            ends = {"negative": [-1, -4, 0], "repeated": [1, 1, 3], "empty": []}
            edges = {e: {"x": table, "i": np.array(x, kind)} for e, x in ends.items()}
            yield Graph("Gather", name, edges, {"axis": 0})
            cells = {
                e: {"x": table, "i": np.array([[-1, 0], [1, -4]], kind)} for e in ("negative",)
            }
            yield Graph("GatherElements", name, cells, {"axis": 0})
        at = {
            "negative": np.array([[-1], [0]], I64),
            "pair": np.array([[0, -1], [-4, 1]], I64),
        }
        yield Graph("GatherND", name_of(dtype), {e: {"x": table, "i": x} for e, x in at.items()})
        new = np.ones((2, 2), dtype)
        rows = {"negative": {"x": table, "i": at["negative"], "u": new}}
        yield Graph("ScatterND", name_of(dtype), rows)
        cells = {"negative": {"x": table, "i": np.array([[-1, 0], [1, -4]], I64), "u": new}}
        yield Graph("ScatterElements", name_of(dtype), cells, {"axis": 0})
    hot = {"negative": [-1, 0, 2], "outside": [5, -7, 1], "empty": []}
    edges = {e: {"x": np.array(x, I64)} for e, x in hot.items()}
    constants = {"d": np.array(3, I64), "v": np.array([0, 1], F32)}
    yield Graph("OneHot", "int64", edges, {}, constants, ["x", "d", "v"])


def _products() -> Iterator[Graph]:
    for dtype in FLOATS:
        found = {e: x.reshape(2, -1) for e, x in values(dtype).items()}
        edges = {e: {"x": x, "y": x.T} for e, x in found.items()}
        yield Graph("MatMul", name_of(dtype), edges)
        yield Graph("Gemm", name_of(dtype), edges, {"alpha": 0.5})
        lines = {e: {"x": x.reshape(1, 2, 4)} for e, x in found.items() if e != "empty"}
        kernel = {"w": np.array([[[1, 0], [0.5, 1]], [[1, 1], [0, -1]]], dtype)}
        yield Graph("Conv", name_of(dtype), lines, {"pads": [1, 0]}, kernel, ["x", "w"])
        yield Graph("ConvTranspose", name_of(dtype), lines, {"strides": [2]}, kernel, ["x", "w"])
        for pad in ("SAME_UPPER", "SAME_LOWER"):
            same = {"strides": [2], "auto_pad": pad}
            yield Graph("Conv", f"{name_of(dtype)} {pad}", lines, same, kernel, ["x", "w"])
    for first in (U8, I8):
        x = {e: v.reshape(2, 4) for e, v in values(first).items() if e != "empty"}
        for second in (U8, I8):
            y = values(second)["large"].reshape(4, 2)
            name = f"{name_of(first)},{name_of(second)}"
            yield Graph("MatMulInteger", name, {e: {"x": v, "y": y} for e, v in x.items()})
            w = y.reshape(2, 2, 2)
            lines = {e: {"x": v.reshape(1, 2, 4)} for e, v in x.items()}
            yield Graph("ConvInteger", name, lines, {}, {"w": w}, ["x", "w"])
        scale = {"s": np.array(0.5, F32), "z": np.array(3, first)}
        plain = {e: {"x": v.reshape(-1)} for e, v in x.items()}
        yield Graph("DequantizeLinear", name_of(first), plain, {}, scale, ["x", "s", "z"])
        many = {e: {"x": v} for e, v in values(F32).items()}
        yield Graph("QuantizeLinear", name_of(first), many, {}, scale, ["x", "s", "z"],
                    undefined=frozenset({"nan"}))  # fmt: skip
    edges = {e: {"x": v} for e, v in values(F32).items() if e != "empty"}
    edges["equal"] = {"x": np.zeros(4, F32)}
    yield Graph("DynamicQuantizeLinear", "float32", edges, outputs=3,
                undefined=frozenset({"nan", "inf", "large"}))  # fmt: skip


def _makers() -> Iterator[Graph]:
    """Operators that make a tensor of numbers or a shape."""
    for dtype in (F32, I32, I64):
        spans = {"small": (0, 5, 1), "negative": (5, -3, -2), "empty": (3, 3, 1), "past": (5, 2, 1)}
        if dtype is F32:
            spans["fractional"] = (0, 1, 0.25)
        if dtype is I64:
            spans["over32"] = (2**33, 2**33 + 3, 1)
        edges = {
            e: dict(zip(("a", "b", "c"), (np.array(x, dtype) for x in span), strict=True))
            for e, span in spans.items()
        }
        yield Graph("Range", name_of(dtype), edges)
    for dtype in ALL:
        fill = values(dtype)["large" if dtype is not BOOL else "small"][:1]
        if dtype is I64:
            fill = np.array([2**40 + 1], I64)
        tensor = helper.make_tensor(
            "v", helper.np_dtype_to_tensor_dtype(fill.dtype), [1], fill.tobytes(), raw=True
        )
        edges = {"small": {"x": np.array([2, 3], I64)}, "empty": {"x": np.array([2, 0], I64)}}
        yield Graph("ConstantOfShape", name_of(dtype), edges, {"value": tensor})
    shapes = {"small": {"x": np.zeros((2, 3), F32)}, "empty": {"x": np.zeros((2, 0), F32)}}
    yield Graph("Shape", "float32", shapes)
    yield Graph("Size", "float32", shapes)
