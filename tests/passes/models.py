"""What the tests of passes share: a model out of text, its operators, its bytes, its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir
import onnxruntime as ort

import graphfix

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np


def model(text: str, opset: int = 18, more: str = "") -> ir.Model:
    return ir.from_onnx_text(f'<ir_version: 8, opset_import: ["" : {opset}{more}]>\n{text}')


def ops(m: ir.Model) -> list[str]:
    """The operators, those in bodies and functions among them."""
    graphs = [m.graph, *(f.graph for f in m.functions.values())]
    return [node.op_type for graph in graphs for node in graph.all_nodes()]


def data(m: ir.Model) -> bytes:
    return ir.to_proto(m).SerializeToString(deterministic=True)


def refusals(m: ir.Model, spec: str) -> list[str]:
    """Why a pass leaves a model as it is, to the byte: what it says of all that it nearly took."""
    before, report = data(m), graphfix.run(m, spec)
    assert not report.changed
    assert data(m) == before
    return [why for _, why in report.passes[0].skips]


def opened(m: ir.Model, *, optimized: bool = True) -> ort.InferenceSession:
    """A session on the CPU that says nothing."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(data(m), options, providers=["CPUExecutionProvider"])


def execute(
    m: ir.Model, feeds: Mapping[str, np.ndarray], *, optimized: bool = True
) -> list[np.ndarray]:
    """The outputs; a feed of what a caller cannot give is left out."""
    session = opened(m, optimized=optimized)
    known = {x.name for x in (*session.get_inputs(), *session.get_overridable_initializers())}
    return session.run(None, {name: array for name, array in feeds.items() if name in known})
