"""Inferred dims and contents against ONNX Runtime: generated graphs at several sizes.

A dim that has a name is what it is in a run, for every tensor; so is a number in a shape tensor.
``GRAPHFIX_GRAPHS=5000`` (``make graphs``) runs that many.
"""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from graphfix.facts.shapes import Shapes, infer
from graphfix.facts.symbolic.expressions import expr_of
from tests.facts.sizes import SIZES
from tests.lengths.catalogue import ANYWHERE, generated
from tests.lengths.graphs import FEATURES, Graph
from tests.lengths.steps import STEPS

if TYPE_CHECKING:
    from graphfix.facts.symbolic.expressions import Dim

COUNT = int(os.environ.get("GRAPHFIX_GRAPHS", "0"))
QUICK = 3
MOST = 5  # times as many, while none of them runs
RUNS = ((1, 1), (2, 2), (1, 3), (3, 4), (1, 5), (2, 7), (1, 10), (1, 13), (2, 30), (1, 61))
"""Batch and length."""


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model.SerializeToString(), options)


def said(dim: Dim, batch: int, length: int) -> int | None:
    """What a dim is at these sizes; None where it has a symbol of its own."""
    if not isinstance(dim, int) and dim.value is None:
        return None
    size = expr_of(dim)
    sizes = {"B": batch, "T": length}
    if any(x.name not in sizes for x in size.free_symbols):
        return None
    return int(size.subs({x: sizes[x.name] for x in size.free_symbols}))


def wrong(model: onnx.ModelProto, batch: object) -> tuple[list[str], int]:
    """Each dim and each number that is not what a run says, and how many were held."""
    values = [name for node in model.graph.node for name in node.output if name]
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    del whole.graph.output[:]
    whole.graph.output.extend(onnx.ValueInfoProto(name=x) for x in dict.fromkeys(values))
    try:
        run = session(whole)
    except Exception:  # ONNX Runtime's own, of all kinds
        return [], 0
    graph = ir.from_proto(model)
    known = {"any run": infer(graph), "usual runs": infer(graph, usual=True)}
    named = {x.name: x for node in graph.graph for x in node.outputs}
    found: list[str] = []
    held = 0
    for rows, length in RUNS:
        if batch == 1 and rows > 1:
            continue
        x = np.zeros((rows, length, FEATURES), np.float32)
        if empty(known["usual runs"], list(named.values()), rows, length):
            continue  # also no usual run, and some kernels die of it
        try:
            results = run.run(None, {"x": x})
        except Exception:  # too short a clip
            continue
        for name, result in zip([y.name for y in run.get_outputs()], results, strict=True):
            for which, shapes in known.items():
                told = compared(shapes, named[name], result, rows, length)
                held += 1
                if told:
                    found.append(f"{name} at B={rows}, T={length} in {which}: {told}")
    return found, held


def empty(shapes: Shapes, values: list[ir.Value], batch: int, length: int) -> bool:
    dims = {dim for x in values for dim in shapes.dims(x) or ()}
    numbers = [said(dim, batch, length) for dim in dims]
    return any(x is not None and x < 1 for x in numbers)


def compared(
    shapes: Shapes,
    value: ir.Value,
    result: np.ndarray[tuple[int, ...], np.dtype[np.generic]],
    batch: int,
    length: int,
) -> str:
    dims, data = shapes.dims(value), shapes.known_elements(value)
    if dims is not None:
        sizes = [said(x, batch, length) for x in dims]
        if len(sizes) != result.ndim:
            return f"rank {len(sizes)} instead of {result.ndim}"
        pairs = zip(sizes, result.shape, strict=True)
        if any(a is not None and a != b for a, b in pairs):
            return f"{[str(x) for x in dims]} instead of {result.shape}"
    if data is not None and result.dtype.kind in "iub":
        numbers = [said(x, batch, length) for x in data]
        flat = result.reshape(-1)
        if len(numbers) != flat.size:
            return f"{len(numbers)} numbers instead of {flat.size}"
        if any(a is not None and a != int(b) for a, b in zip(numbers, flat, strict=True)):
            return f"{[str(x) for x in data]} instead of {flat.tolist()}"
    return ""


@pytest.mark.parametrize("step", sorted({*ANYWHERE, *SIZES}))
def test_shapes_and_contents_are_those_of_a_run(step: str) -> None:
    held = 0
    start = zlib.crc32(step.encode()) + 1
    count = max(QUICK, COUNT // len({*ANYWHERE, *SIZES}))
    for seed in range(start, start + MOST * count):
        if seed >= start + count and held:
            break
        model, names, batch = generated(seed, step, {**STEPS, **SIZES})
        found, some = wrong(model, batch)
        assert not found, f"seed {seed} ({', '.join(names)}): " + "\n".join(found[:5])
        held += some
    assert held or step in ("lrn",), "nothing was held"


@pytest.mark.parametrize("scale", [1.4, 0.7, 5 / 3, 1 / 3, 2.5, 1.1, 0.3])
def test_a_resized_length_is_computed_in_float32(scale: float) -> None:
    g = Graph(np.random.default_rng(0), 17)
    roi, scales = "", g.const([1.0, 1.0, scale])
    g.outputs.append(g.op("Resize", g.turn("x"), roi, scales, mode="nearest"))
    found, held = wrong(g.model("B"), "B")
    assert held
    assert not found, found[:3]


@pytest.mark.parametrize("pads", [[0, 0], [1, 1], [0, 1], [2, 2]])
@pytest.mark.parametrize("stride", [2, 3, 4])
def test_a_window_that_begins_in_the_padding_is_dropped(pads: list[int], stride: int) -> None:
    g = Graph(np.random.default_rng(0), 17)
    given = {"kernel_shape": [3], "strides": [stride], "pads": pads, "ceil_mode": 1}
    g.outputs.append(g.op("MaxPool", g.turn("x"), **given))
    found, held = wrong(g.model("B"), "B")
    assert held
    assert not found, found[:3]
