"""The table of the CPU provider's kernels against ONNX Runtime itself."""

from __future__ import annotations

from importlib import resources

import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from graphfix.facts.view import View
from graphfix.providers.directml import cpu_kernels
from tests.conformance.cases import Case, cases
from tests.providers.directml import cpu_table

TYPES = [1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13]


def test_it_is_what_onnxruntime_lists() -> None:
    if ort.__version__ != cpu_kernels.version():
        pytest.skip(f"the table is of onnxruntime {cpu_kernels.version()}")
    file = resources.files("graphfix.providers.directml") / cpu_table.FILE
    assert file.read_text(encoding="utf-8") == cpu_table.table()


def of_one_node() -> list[Case]:
    """A test of each operator: every seventh, from which every operator has one in some years."""
    by_operator = {
        x.model.graph.node[0].op_type: x
        for x in cases()
        if x.kind == "node" and len(x.model.graph.node) == 1
    }
    return list(by_operator.values())


@pytest.mark.skipif(
    ort.__version__ != cpu_kernels.version(), reason="the table is of another version"
)
def test_it_says_what_a_session_says() -> None:
    """Each operator with each type, as far as ONNX Runtime gets to looking for a kernel."""
    wrong, judged = [], 0
    for case in of_one_node():
        ports = (*case.model.graph.input, *case.model.graph.output)
        for old in {x.type.tensor_type.elem_type for x in ports}:
            for new in TYPES:
                proto = _retyped(case.model, old, new)
                expected = _has_kernel(proto)
                if expected is None:
                    continue
                model = ir.from_proto(proto)
                view = View(model)
                node = model.graph[0]
                said = cpu_kernels.runs_on_cpu(node, view.opset_of_node(node), view.shapes.dtype)
                judged += said is not None
                if said not in (None, expected):
                    wrong.append((case.name, old, new, expected))
    assert not wrong
    assert judged > 400


def _retyped(model: onnx.ModelProto, old: int, new: int) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    for value in (*proto.graph.input, *proto.graph.output):
        if value.type.tensor_type.elem_type == old:
            value.type.tensor_type.elem_type = new
    return proto


def _has_kernel(proto: onnx.ModelProto) -> bool | None:
    """Whether the CPU has a kernel for the one node; None if the types do not fit the operator."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        ort.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    except Exception as error:
        return False if "Could not find an implementation" in str(error) else None
    return True
