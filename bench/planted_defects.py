"""Known defects of providers, and exports with one of them in their middle.

A defect is a node with inputs at which a provider computes something else than the CPU, or fails:
a case of the surveys of DirectML (``tests/dml``) that their tables list as such.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

import graphfix
from graphfix.errors import GraphfixError
from graphfix.facts.shapes import shapes_of
from graphfix.graph.nodes import is_op
from graphfix.providers.table import Ep
from graphfix.runtime.local_session import Session
from tests.mutants.ingraph import graph_faults, plant
from tests.survey import along_axes, contrib, elementwise, layout, windows
from tests.survey.case import Array, Case, model_of, numbers
from tests.survey.edge_cases import OPSET, Graph, graphs

TABLES = Path(__file__).resolve().parents[1] / "graphfix" / "providers" / "directml"
NODE = "the_defect"
# Numbers of at most this size are told apart in one vector with those of the model.
_MODERATE = 1e3
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)
# What WebGPU computes with; for the others, nodes around the defect fail as well.
_SHADER_TYPES = ("float32", "float16", "int32")


def defects_to_plant(ep: Ep, seed: int) -> list[Case]:
    """Return defects to try on a provider, in an order in which operators alternate."""
    cases = [*_defects_of_edges(), *_defects_of_survey()]
    if ep == "webgpu":  # has no table of its own: which of DirectML's cases fail there is tried
        cases = [*_attention_on_webgpu(), *_survey_cases(), *cases]
        cases = [x for x in cases if x.dtype in _SHADER_TYPES]
    cases = [x for x in cases if all(y is None or y.size for y in x.inputs)]
    if ep == "dml":
        random.Random(seed).shuffle(cases)
    by_op: dict[str, list[Case]] = {}
    for case in cases:
        by_op.setdefault(case.op, []).append(case)
    rounds = max(len(x) for x in by_op.values())
    return [x[i] for i in range(rounds) for x in by_op.values() if i < len(x)]


def name_of(case: Case) -> str:
    """Return what a defect is called."""
    return f"{case.op} {case.dtype} {case.kind}"


def _defects_of_edges() -> Iterator[Case]:
    graph_of = {(x.op, x.dtype): x for x in graphs()}
    for row in _wrong_rows("edges.csv"):
        graph, edge = graph_of[row["op"], row["dtype"]], row["edge"]
        if graph.edges[edge]:
            yield _as_case(graph, edge)


def _as_case(graph: Graph, edge: str) -> Case:
    arrays = graph.edges[edge] | graph.constants
    wires = graph.wires or [*graph.edges[edge]]
    constants = frozenset(i for i, x in enumerate(wires) if x in graph.constants)
    inputs = tuple(arrays[x] if x else None for x in wires)
    return Case(graph.op, edge, inputs, graph.attributes, constants, graph.outputs, OPSET)


def _defects_of_survey() -> Iterator[Case]:
    rows = [x for x in _wrong_rows("survey.csv") if "1.24.4" in x["versions"]]
    dtypes = {(x["op"], x["kind"]): x["dtype"].split()[0] for x in rows}
    for case in _survey_cases():
        if dtypes.get((case.op, case.kind)) == case.dtype:
            del dtypes[case.op, case.kind]  # one case a row
            yield case


def _survey_cases() -> Iterator[Case]:
    for module in (elementwise, along_axes, windows, layout, contrib):
        yield from module.cases()


def _wrong_rows(table: str) -> list[dict[str, str]]:
    with (TABLES / table).open(encoding="utf-8", newline="") as file:
        return [x for x in csv.DictReader(file) if x["verdict"] in ("differs", "fails", "dies")]


def _attention_on_webgpu() -> Iterator[Case]:
    """Yield attention over more keys than a subgroup of WebGPU has lanes."""
    for keys in (40, 17, 100):
        wires = tuple(numbers("float32", 1, keys, 32, seed=i) for i in range(3))
        op = "com.microsoft.MultiHeadAttention"
        yield Case(op, f"{keys} keys", wires, {"num_heads": 2}, opset=17)


def shows_alone(case: Case, ep: Ep) -> bool:
    """Return whether a node fails on a provider as a model of its own."""
    proto, feeds = model_of([case])
    try:
        with Session(proto.SerializeToString(), optimize=False) as session:
            expected = session.run(feeds)
    except GraphfixError:
        return False
    try:
        with Session(proto.SerializeToString(), ep=ep) as session:
            outputs = session.run(feeds)
    except GraphfixError:
        return True
    return any(_differs(x, outputs[name]) for name, x in expected.items())


def _differs(expected: Array, got: Array) -> bool:
    if expected.shape != got.shape or expected.dtype.kind not in "f":
        return not np.array_equal(expected, got)
    close = 1e-2 if expected.dtype == np.float16 else 1e-3
    return not np.allclose(expected, got, rtol=close, atol=close, equal_nan=True)


def plant_defect(path: Path, case: Case) -> onnx.ModelProto:
    """Return an export, repaired so that nothing else fails, with a defect in its middle.

    What the node reads depends on a tensor in the middle of the export. What it computes becomes a
    part of the last output where that is a vector of floats of moderate size; else it is an output.

    Raises:
        GraphfixError: The export cannot be repaired.
        ValueError: It has no version in the opset of the defect.
    """
    export = ir.from_proto(onnx.load(path))  # with its weights
    graphfix.run(export, "directml")
    middle = _middle_of(export)
    planted = _in_opset_of(ir.to_proto(export), case)
    body = planted.graph
    place = 1 + next(i for i, x in enumerate(body.node) if middle in x.output)
    # Numbers, not a shape: what depends on shapes alone runs on the CPU.
    nodes = [
        helper.make_node("ReduceMax", [middle], ["defect.most"], keepdims=0),
        helper.make_node("Greater", ["defect.most", "defect.limit"], ["defect.true"]),
    ]
    constants: dict[str, Array] = {"defect.limit": np.array(-1e30, np.float32)}
    wires = []
    for i, array in enumerate(case.inputs):
        name = "" if array is None else f"defect.in{i}"
        wires.append(name)
        if array is None:
            continue
        if i in case.constants:
            constants[name] = array
            continue
        constants |= {f"{name}.edge": array, f"{name}.plain": np.ones_like(array)}
        reads = ["defect.true", f"{name}.edge", f"{name}.plain"]
        nodes.append(helper.make_node("Where", reads, [name]))
    domain, _, op = case.op.rpartition(".")
    outputs = [f"defect.out{i}" for i in range(case.outputs)]
    nodes.append(helper.make_node(op, wires, outputs, NODE, domain=domain, **case.attributes))
    before, after = body.node[:place], body.node[place:]
    del body.node[:]
    body.node.extend([*before, *nodes, *after])
    _lead_out(planted, case, outputs[0])
    constants["defect.flat"] = np.array([-1], np.int64)
    body.initializer.extend(numpy_helper.from_array(x, name) for name, x in constants.items())
    return planted


def _in_opset_of(proto: onnx.ModelProto, case: Case) -> onnx.ModelProto:
    """Return a model in whose opset the operator is what it is in that of the case."""
    domain, _, op = case.op.rpartition(".")
    own = next(x.version for x in proto.opset_import if x.domain in ("", "ai.onnx"))
    if domain:
        if domain not in {x.domain for x in proto.opset_import}:
            proto.opset_import.append(helper.make_opsetid(domain, 1))
        return proto
    versions = [onnx.defs.get_schema(op, x).since_version for x in (own, case.opset)]
    if versions[0] == versions[1]:
        return proto
    try:
        return onnx.version_converter.convert_version(proto, case.opset)
    except RuntimeError as error:
        raise ValueError(f"no opset {case.opset}: {error}") from error


def _middle_of(model: ir.Model) -> str:
    """Return a tensor of float32 in the middle of a model.

    Raises:
        ValueError: There is none.
    """
    shapes = shapes_of(model)
    values = (x for node in model.graph for x in node.outputs if not is_op(node, "Constant"))
    names = [x.name or "" for x in values if shapes.dtype(x) == ir.DataType.FLOAT]
    if not names:
        raise ValueError("it has no tensor of float32")
    return names[len(names) // 2]


def _lead_out(planted: onnx.ModelProto, case: Case, output: str) -> None:
    """Lead what a defect computes into the last output of floats, or out on its own."""
    body = planted.graph
    body.node.append(helper.make_node("Reshape", [output, "defect.flat"], ["defect.row"]))
    dtype, moderate = _result_of(case)
    ends = [x.name for x in body.output if x.type.tensor_type.elem_type == TensorProto.FLOAT]
    if dtype not in _FLOATS or not moderate or not ends:
        body.output.append(helper.make_tensor_value_info("defect.row", dtype, ["n"]))
        return
    body.node.extend(
        [
            helper.make_node("Cast", ["defect.row"], ["defect.float"], to=TensorProto.FLOAT),
            helper.make_node("Reshape", [ends[-1], "defect.flat"], ["defect.end"]),
            helper.make_node("Concat", ["defect.float", "defect.end"], ["defect.result"], axis=0),
        ]
    )
    del body.output[:]
    body.output.append(helper.make_tensor_value_info("defect.result", TensorProto.FLOAT, ["n"]))


def _result_of(case: Case) -> tuple[int, bool]:
    """Return the element type of what a node computes, and whether it is finite and not large.

    Raises:
        ValueError: The CPU does not run it.
    """
    proto, feeds = model_of([case])
    try:
        with Session(proto.SerializeToString(), optimize=False) as session:
            array = session.run(feeds)["c0o0"]
    except GraphfixError as error:
        raise ValueError(f"the CPU does not run it: {error}") from error
    with np.errstate(invalid="ignore"):
        moderate = array.dtype.kind == "f" and bool((np.abs(array) < _MODERATE).all())
    return helper.np_dtype_to_tensor_dtype(array.dtype), moderate


def moderate_exports(folders: Sequence[Path], seed: int) -> list[Path]:
    """Return exports in an order drawn at random, without those that other tools have changed."""
    files = sorted(x for folder in folders for x in folder.rglob("*.onnx"))
    random.Random(seed).shuffle(files)
    return [x for x in files if "+" not in x.name]


def broken_repairs(path: Path, seed: int) -> Iterator[tuple[str, str, ir.Model]]:
    """Yield repaired models of an export with one node broken: how, one of its outputs, the model.

    Args:
        path: The export.
        seed: Decides on the nodes, of which those of one kind are tried once.
    """
    repaired = graphfix.load(path)
    graphfix.run(repaired, "directml")
    faults = list(graph_faults(repaired))
    random.Random(seed).shuffle(faults)
    for kind, place, change in {kind: fault for fault in faults for kind in fault[:1]}.values():
        broken = plant(repaired, place, change)
        if broken is not None:
            yield kind, repaired.graph[place].outputs[0].name or "", broken
