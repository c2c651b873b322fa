"""What graphfix plan predicts, one graph for each reason; tests/dml/test_plan.py asks DirectML."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from graphfix.cli import main
from graphfix.errors import FeedError, ModelError, UsageError
from graphfix.files import stand_in
from graphfix.job import planning
from graphfix.providers import node_tracing
from graphfix.providers.plan import NodePlacement, ProviderPlan, Step

MODELS = Path(__file__).parents[3] / "models"


@dataclass(frozen=True)
class Case:
    """A graph, and what is predicted for it."""

    text: str
    where: str
    """Where each node runs, in order: f(used), d(ml), c(pu), g(one)."""
    why: str = ""
    """Part of the reason of some node."""
    graphs: int = 0
    copies: int = 0
    opset: int = 18

    def model(self) -> ir.Model:
        head = f'<ir_version: 8, opset_import: ["": {self.opset}, "com.microsoft": 1]>\n'
        text = self.text if self.text.startswith("<") else head + self.text
        return ir.from_proto(onnx.parser.parse_model(text))


CASES = {
    # What is gone before a provider is asked.
    "a constant": Case(
        "g (float[2, 4] x) => (float[2, 4] y) { c = Constant <value = float {2.0}> () "
        "y = Mul (x, c) }",
        "gf", "a constant", graphs=1,
    ),
    "folded": Case(
        "g (float[2, 4] x) => (float[2, 4] y) <float[4] w = {1, 2, 3, 4}> "
        "{ e = Exp (w)  y = Mul (x, e) }",
        "gf", "computed from constants", graphs=1,
    ),
    "a static Shape": Case(
        "g (float[2, 4] x) => (float[2, 4] y) { s = Shape (x)  r = Relu (x)  "
        "y = Reshape (r, s) }",
        "gff", "computed from constants", graphs=1,
    ),
    "the same twice": Case(
        "g (float[T, 4] x) => (float[T, 4] y) { a = Exp (x)  b = Exp (x)  y = Add (a, b) }",
        "gdd", "the same as another",
    ),
    # What ONNX Runtime has in ONNX's domain, or in its own.
    "LayerNormalization before ONNX had it": Case(
        "g (float[T, 4] x, float[4] s) => (float[T, 4] y) { a = LayerNormalization (x, s)  "
        "y = SimplifiedLayerNormalization (a, s) }",
        "dd", opset=14,
    ),
    "a norm with the sum before it": Case(
        "g (float[B, T, 4] x, float[B, T, 4] r, float[4] s) => (float[B, T, 4] y, "
        "float[B, T, 4] h) { y, , , h = com.microsoft.SkipLayerNormalization (x, r, s, s, s) }",
        "d",
    ),
    "a norm with outputs that its kernel has not": Case(
        "g (float[B, T, 4] x, float[B, T, 4] r, float[4] s) => (float[B, T, 4] y, "
        "float[B, T, 4] h) { y, m, v, h = com.microsoft.SkipLayerNormalization (x, r, s, s, s) }",
        "c", "refuses outputs for the mean or the deviation",
    ),
    "a product that turns": Case(
        "g (float[M, B, K] x, float[B, N, K] w) => (float[B, M, N] y) { "
        "y = com.microsoft.FusedMatMul <transBatchA = 1, transB = 1, alpha = 0.5> (x, w) }",
        "d",
    ),
    # What stays on the CPU.
    "no kernel": Case(
        "g (float[T, 4] x) => (float[T, 4] y) "
        "{ a = Relu (x)  b = RandomNormalLike (a)  y = Neg (b) }",
        "dcd", "no kernel for RandomNormalLike", copies=2,
    ),
    "no kernel of this version": Case(
        "g (float[2, 4] x) => (float[2, 4] y) { a = Relu (x)  y = Sin (a) }",
        "fc", "no kernel for Sin-22, the last is of opset 21", graphs=1, copies=1, opset=22,
    ),
    "no kernel for this type": Case(
        "g (int64[T] x) => (int64[T] y) <int64 n = {4}> { a = Abs (x)  b = Mod (a, n)  "
        "y = Neg (b) }",
        "dcd", "no kernel for Mod of int64", copies=2,
    ),
    "a refusal": Case(
        "g (float[1, 1, 4, 4] x) => (float[1, 1, 8, 8] y) <float[4] scales = {1, 1, 2, 2}> "
        '{ y = Resize <mode = "cubic"> (x, , scales) }',
        "c", "refuses mode=cubic",
    ),
    "an output that is refused": Case(
        "g (float[4, 2] x, float[2] s) => (float[4, 2] y, float[4, 1] m) "
        "{ y, m = LayerNormalization <axis = -1> (x, s) }",
        "c", "refuses outputs for the mean",
    ),
    "an attribute that is refused": Case(
        "g (float[1, 1, 4, 4] x) => (float[1, 1, 2, 2] y, int64[1, 1, 2, 2] i) "
        "{ y, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2], storage_order = 1> (x) }",
        "c", "refuses storage_order=1",
    ),
    "an equation that is refused": Case(
        "g (float[2, 3] a, float[3, 4] b, float[4, 5] c) => (float[2, 5] y) "
        '{ y = Einsum <equation = "ij,jk,kl->il"> (a, b, c) }',
        "c", "refuses the equation",
    ),
    "an equation that is not": Case(
        "g (float[2, 3, 2, 4] a, float[2, 5, 2, 4] b) => (float[2, 2, 3, 5] y) "
        '{ y = Einsum <equation = "bqhd,bkhd->bhqk"> (a, b) }',
        "f", graphs=1,
    ),
    "a diagonal": Case(
        "g (float[3, 3] a) => (float[3] y) "
        '{ y = Einsum <equation = "ii->i"> (a) }',
        "f", graphs=1,
    ),
    "negative pads, when they were an attribute": Case(
        "g (float[4] x) => (float[2] y) { y = Pad <pads = [-1, -1]> (x) }",
        "c", "refuses negative pads", opset=10,
    ),
    "an operator that DirectML only has as a contrib one": Case(
        "g (float[T, 3] x, float[3, 4] w) => (float[T, 4] y) { a = MatMul (x, w)  "
        "y = Gelu (a) }",
        "dc", "no kernel for Gelu", copies=1, opset=20,
    ),
    "float64": Case(
        "g (double[4] x, double[4] z) => (double[4] y) { y = Add (x, z) }",
        "c", "no kernel for Add of double",
    ),
    "shape arithmetic": Case(
        "g (float[B, T, 8] x) => (float[B, T, 4, 2] y) <int64[2] head = {4, 2}> "
        "{ s = Shape <start = 0, end = 2> (x)  c = Concat <axis = 0> (s, head)  "
        "r = Relu (x)  y = Reshape (r, c) }",
        "dcdd", "computes a shape",
    ),
    "an index stays on DirectML": Case(
        "g (float[T, 4] x) => (int64[T, 1] y) <int64 zero = {0}, int64 one = {1}, "
        "int64[1] last = {1}> { s = Shape <start = 0, end = 1> (x)  t = Squeeze (s)  "
        "r = Range (zero, t, one)  y = Unsqueeze (r, last) }",
        "dcdd", "computes a shape",
    ),
    # What fuses.
    "all static": Case(
        "g (float[2, 4] x) => (float[2, 4] y) { a = Exp (x)  b = Neg (a)  y = Add (a, b) }",
        "fff", graphs=1,
    ),
    "a dim is symbolic": Case(
        "g (float[T, 4] x) => (float[T, 4] y) { a = Exp (x)  y = Neg (a) }",
        "dd", "a dim is symbolic",
    ),
    "a length from data": Case(
        "g (float[2, 4] x, int64[2] s) => (float[N, M] y) { a = Exp (x)  y = Reshape (a, s) }",
        "fd", "computed, not constant", graphs=1,
    ),
    "no form for a graph": Case(
        "g (float[3, 1, 4] x, float[1, 12, 4] w, float[1, 12, 4] r) => (float[3, 1, 1, 4] y) "
        "{ a = Exp (x)  h = GRU <hidden_size = 4> (a, w, r)  y = Neg (h) }",
        "fdf", "GRU cannot be part", graphs=2,
    ),
    "three operands": Case(
        "g (float[4] x, float[4] z) => (float[4] y) { a = Exp (x)  b = Neg (z)  "
        "c = Sum (a, b, x)  y = Sqrt (c) }",
        "ffdf", "Sum has 3 inputs", graphs=3,
    ),
    "the CPU between": Case(
        "g (float[2, 4] x) => (float[2, 4] y) "
        "{ a = Exp (x)  b = RandomNormalLike (a)  c = Neg (b)  "
        "y = Add (a, c) }",
        "fcff", "no kernel for RandomNormalLike", graphs=2, copies=2,
    ),
    "a graph is closed once the CPU has used it, not before": Case(
        "g (float[2, 4] x) => (float[2, 4] y, float[2, 4] z) "
        "{ a = Exp (x)  b = RandomNormalLike (a)  "
        "y = Neg (b)  z = Sqrt (a) }",
        "fcff", "no kernel for RandomNormalLike", graphs=2, copies=2,
    ),
    "two that meet": Case(
        "g (float[4] x, float[4] z) => (float[4] y) { a = Exp (x)  b = Neg (z)  "
        "y = Add (a, b) }",
        "fff", graphs=1,
    ),
    "two apart": Case(
        "g (float[4] x, float[4] z) => (float[4] y, float[4] w) { y = Exp (x)  w = Neg (z) }",
        "ff", graphs=2,
    ),
    "an activation of a Gemm": Case(
        "g (float[T, 3] x, float[3, 4] w, float[4] b) => (float[T, 4] y) "
        "{ a = Gemm (x, w, b)  y = Sigmoid (a) }",
        "dd", "a dim is symbolic",
    ),
    "an activation with a second input": Case(
        "g (float[1, 3, T] x, float[4, 3, 3] w, float[4, 1] p) => (float[1, 4, U] y) "
        "{ a = Conv (x, w)  y = PRelu (a, p) }",
        "dd", "a size is",
    ),
    "an activation": Case(
        "g (float[T, 4] x, float[T, 4] z) => (float[T, 4] y) { a = Add (x, z)  y = Relu (a) }",
        "dd", "a dim is symbolic",
    ),
    # Control flow.
    "an If": Case(
        "g (float[2, 4] x, bool c) => (float[2, 4] y) { b = Exp (x)  y = If (c) "
        "<then_branch = t () => (float[2, 4] p) { p = Neg (b) }, "
        "else_branch = e () => (float[2, 4] q) { q = Sqrt (b) }> }",
        "ddff", "with If in the graph", graphs=2,
    ),
    "an If that is decided": Case(
        "g (float[2, 4] x) => (float[2, 4] y) <bool c = {1}> { b = Exp (x)  y = If (c) "
        "<then_branch = t () => (float[2, 4] p) { r = Neg (b)  p = Exp (r) }, "
        "else_branch = e () => (float[2, 4] q) { q = Sqrt (b) }> }",
        "fgffg", "one branch stands in its place", graphs=1,
    ),
    "a Loop": Case(
        "g (float[2, 4] x, int64 n) => (float[2, 4] y) <bool go = {1}> { b = Exp (x)  "
        "y = Loop (n, go, b) <body = l (int64 i, bool k, float[2, 4] p) => "
        "(bool k2, float[2, 4] q) { k2 = Identity (k)  q = Neg (p) }> }",
        "dcff", "no kernel for Loop", graphs=2, copies=1,
    ),
    # Types and domains.
    "float16": Case(
        "g (float16[2, 4] x, float16[4, 4] w) => (float[2, 4] y) { a = MatMul (x, w)  "
        "b = Softmax (a)  y = Cast <to = 1> (b) }",
        "fff", graphs=1,
    ),
    "a contrib operator": Case(
        "g (float[2, 4] x) => (float[2, 4] y) { a = Exp (x)  y = com.microsoft.Gelu (a) }",
        "ff", graphs=1,
    ),
    "a pattern": Case(
        "g (float[2, 4] x, float[4] w, float[4] b) => (float[2, 4] y) <int64[1] last = {-1}, "
        "float two = {2.0}, float eps = {0.00001}> { m = ReduceMean (x, last)  d = Sub (x, m)  "
        "p = Pow (d, two)  v = ReduceMean (p, last)  e = Add (v, eps)  s = Sqrt (e)  "
        "n = Div (d, s)  k = Mul (n, w)  y = Add (k, b) }",
        "fffffffff", "part of LayerNormalization", graphs=1,
    ),
    "a local function": Case(
        '<ir_version: 8, opset_import: ["": 18, "l": 1]>\n'
        "g (float[2, 4] x) => (float[2, 4] y) { a = l.f (x)  y = Neg (a) }\n"
        '<domain: "l", opset_import: ["": 18]> f (x) => (y) { b = Neg (x)  y = Exp (b) }',
        "ff", graphs=1,
    ),
}  # fmt: skip


BROKEN = """g (float[T, 4] x, float[T, 4] z) => (float[T, 4] y, float[T, 4] a) {
    a = Add (x, z)  y = Relu (a) }"""


@pytest.mark.parametrize("name", CASES)
def test_each_node_is_foreseen(name: str) -> None:
    case = CASES[name]
    plan = planning.plan(case.model())
    assert "".join(x.where[0] for x in plan.places) == case.where, plan.places
    assert not case.why or any(case.why in x.why for x in plan.places), plan.places
    assert plan.steps_on("graph") == case.graphs, plan.steps
    assert plan.steps_on("copy") == case.copies, plan.steps
    assert {x.nodes for x in plan.steps if x.on == "copy"} <= {0}


def test_an_output_that_directml_loses_is_told() -> None:
    plan = planning.plan(Case(BROKEN, "dd").model())
    assert any("'a' is an output and feeds a Relu" in x for x in plan.notes)


def test_a_size_makes_it_one_graph() -> None:
    model = CASES["a dim is symbolic"].model()
    before, after = planning.plan(model), planning.plan(model, dims={"T": 7})
    assert (before.steps_on("dml"), before.recompiled, before.dims) == (2, 2, ("T",))
    assert (after.steps_on("graph"), after.recompiled, after.dims) == (1, 0, ())
    assert after.steps_on("dml") == 0


def test_a_size_that_a_weight_dictates_is_filled_in() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[F, T] x) => (float[2, T] y) <float[2, 3] w = {1, 2, 3, 4, 5, 6}>
    { y = MatMul (w, x) }"""
    model = ir.from_onnx_text(text)
    assert "open: F, T (--dims F=3)" in str(graphfix.plan(model)).replace("\n" + " " * 12, " ")
    assert graphfix.plan(model, dims={"T": 5}).sizes == {"F": 3, "T": 5}
    assert graphfix.plan(model, dims={"F": 3}).dims == ("T",)
    with pytest.raises(FeedError, match="F is 3, as w wants it"):
        graphfix.plan(model, dims={"F": 4})


def test_a_dim_without_a_name_is_told() -> None:
    text = "g (float[?, 4] x) => (float[?, 4] y) { y = Exp (x) }"
    plan = planning.plan(Case(text, "").model())
    assert plan.notes == ("the input 'x' has a dim without a name, so no size can be given to it",)


def test_an_unknown_dim_is_an_error_that_names_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"no input has a dim 'S'; there are: T"):
        planning.plan(CASES["a dim is symbolic"].model(), dims={"S": 7})


def test_what_onnx_runtime_rejects_is_an_error() -> None:
    text = "g (float[2] x) => (float[2] y) { y = NoSuchOperator (x) }"
    with pytest.raises(ModelError, match="NoSuchOperator"):
        planning.plan(Case(text, "").model())


def test_what_only_directml_runs_is_planned_without_the_optimizer() -> None:
    text = """g (float16[2, 8, 4, 4] x, float[8] w, float[8] b) => (float16[2, 8, 4, 4] y) {
        c = Constant <value = float {2.0}> ()
        d = Cast <to = 10> (c)
        a = Mul (x, d)
        y = com.microsoft.GroupNorm <activation = 0, groups = 2, channels_last = 1> (a, w, b) }"""
    plan = planning.plan(Case(text, "").model())
    assert [x.where for x in plan.places] == ["gone", "fused", "fused", "fused"]
    assert "cannot show here what its optimizer does" in plan.notes[0]


def test_large_weights_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """g (float[T, 256] x, float[T, 128] z) => (float[T, 128] y) {
        t = Transpose <perm = [1, 0]> (w)  m = MatMul (x, t)  y = Add (m, z) }"""
    model = Case(text.replace("(w)", "(x2)").replace("z)", "z, float[128, 256] x2)", 1), "").model()
    weight = model.graph.inputs.pop()

    def read() -> ir.TensorProtocol:
        raise AssertionError("a weight was read")

    shape, dtype = ir.Shape([128, 256]), ir.DataType.FLOAT
    weight.const_value = ir.LazyTensor(read, dtype=dtype, shape=shape, name="x2")
    model.graph.initializers["x2"] = weight
    monkeypatch.setattr(stand_in, "_HEAVY_BYTES", 1000)
    plan = planning.plan(model)
    assert [x.where for x in plan.places] == ["gone", "dml", "dml"]
    assert "not read" in plan.notes[0]


@pytest.mark.parametrize("name", sorted(x.name for x in MODELS.iterdir() if x.is_dir()))
def test_every_node_of_a_model_has_one_place(name: str) -> None:
    model = graphfix.load(MODELS / name / "model.onnx")
    plan = planning.plan(model)
    assert [x.op for x in plan.places] == [x.op_type for x in model.graph.all_nodes()]
    assert all((x.step is None) == (x.where == "gone") for x in plan.places)
    assert all(x.why for x in plan.places if x.where != "fused")


UNARY = ["Relu", "Exp", "Identity", "Shape", "Mish", "Det", "RandomNormalLike", "Neg", "Softmax"]


@given(st.lists(st.tuples(st.sampled_from([*UNARY, "Add", "Reshape"]), st.integers(0, 9))))
@settings(max_examples=25, deadline=None)
def test_any_graph_has_one_place_for_each_node(parts: list[tuple[str, int]]) -> None:
    x = ir.Value(
        name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2, ir.SymbolicDim("T")])
    )
    made, shapes, nodes = [x], [], []
    for i, (op, which) in enumerate(parts):
        source = made[which % len(made)]
        inputs = [source]
        if op == "Add":
            inputs.append(made[-1])
        elif op == "Reshape":
            if not shapes:
                continue
            inputs.append(shapes[which % len(shapes)])
        elif op == "Det":
            continue
        node = ir.Node("", op, inputs, name=f"n{i}")
        node.outputs[0].name = f"v{i}"
        nodes.append(node)
        (shapes if op == "Shape" else made).append(node.outputs[0])
    last = made[-1]
    if last is x:
        return
    last.type = x.type
    graph = ir.Graph([x], [last], nodes=nodes, opset_imports={"": 18}, name="g")
    model = ir.Model(graph, ir_version=8)
    plan = planning.plan(model)
    assert [p.at for p in plan.places] == [n.name for n in nodes]
    assert all((p.step is None) == (p.where == "gone") for p in plan.places)
    used = {p.step for p in plan.places} - {None}
    assert used <= set(range(len(plan.steps)))


def test_a_node_that_a_transpose_was_moved_past_is_itself() -> None:
    # As ONNX Runtime 1.24.4 leaves it: the node has its name, and what it makes has a new one.
    head = '<ir_version: 8, opset_import: ["" : 17]>'
    before = ir.from_onnx_text(f"""{head} m (float[A, B] x) => (float[B, A] y) {{
        [moved] n = Neg (x) [gone] i = Identity (n) [last] y = Transpose (i) }}""")
    after = ir.from_onnx_text(f"""{head} m (float[A, B] x) => (float[B, A] y) {{
        [pushed] t = Transpose (x) [moved] other = Neg (t) [last] y = Identity (other) }}""")
    fates = node_tracing.trace_fates(before, after)
    found = {node.name: (fate.node.name if fate.node else None) for node, fate in fates.items()}
    assert found == {"moved": "moved", "gone": "last", "last": "last"}


def test_the_page_shows_before_and_after(tmp_path: Path) -> None:
    before, page, after = saved(tmp_path), tmp_path / "page.html", str(tmp_path / "after.onnx")
    words = ["run", before, "-o", after, "-p", "fix-dims:T=7", "--report", str(page)]
    assert main(words) == 0
    text = page.read_text(encoding="utf-8")
    held = json.loads(text.split('id="report">')[1].split("</script>")[0])
    assert held["kernels"]["before"]["directml"] == 2
    assert held["kernels"]["after"]["directml"] == 1


def run(*words: str) -> int:
    return main(["plan", *words])


def saved(folder: Path, name: str = "a dim is symbolic") -> str:
    path = folder / "model.onnx"
    ir.save(CASES[name].model(), path)
    return str(path)


def test_the_command_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(saved(tmp_path)) == 0
    out = capsys.readouterr().out
    assert "2 x a dim is symbolic" in out
    assert "2 kernels on DirectML; 0 on the CPU; 0 copies between them" in out
    assert "2 of the 2 kernels are recompiled" in out
    assert "open: T (--dims T=SIZE)" in " ".join(out.split())
    assert max(map(len, out.splitlines()[1:])) <= 80


def test_the_command_tells_of_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> m (float[A, B] x, int64[N] a)
        => (float[A, C] y) { w = Exp (x) y = ReduceLogSumExp <axes = [1]> (w) }"""
    path = tmp_path / "m.onnx"
    ir.save(ir.from_onnx_text(text), path)
    assert run(str(path)) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "check finds 1 error, so a run fails or is wrong: ReduceLogSumExp" in told
    assert run(saved(tmp_path)) == 0
    assert "check finds" not in capsys.readouterr().out


def test_the_command_takes_a_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(saved(tmp_path), "--dim", "T=7", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == 1
    assert data["plan"]["sizes"] == {"T": 7}
    assert data["plan"]["run"]["graphs"] == 1
    assert run(saved(tmp_path), "--dim", "T=7") == 0
    assert "fixed at T=7; another length needs another session" in capsys.readouterr().out
    assert [x["where"] for x in data["plan"]["places"]] == ["fused", "fused"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--dim", "S=7"], "no input has a dim 'S'"),
        (["--dim", "T"], "write NAME=SIZE such as T=7"),
        (["--dim", "T=7,8"], "one size is needed here"),
        (["--before-after", "directml"], "plan what run has written"),
    ],
)
def test_bad_input_is_a_sentence(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(saved(tmp_path), *words) == 2
    assert said in capsys.readouterr().err


def test_weights_in_a_constant_node_are_planned_with(tmp_path: Path) -> None:
    weight = onnx.numpy_helper.from_array(np.ones((150, 150), np.float32), "w")  # over 64 KiB
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Constant", [], ["w"], value=weight),
            onnx.helper.make_node("MatMul", ["x", "w"], ["y"]),
        ],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["T", 150])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["T", 150])],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    path = tmp_path / "m.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    found = planning.plan(graphfix.load(path))
    assert [x.where for x in found.places] == ["gone", "dml"]


REJECTED = """<ir_version: 8, opset_import: ["": 18]>
    g (float[2] x, float[3] z) => (float[2] y) { y = Add (x, z) }"""


def test_a_strip_is_where_the_nodes_run_in_order(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    text = """g (float[3, 1, 4] x, float[1, 12, 4] w, float[1, 12, 4] r) => (float[3, 1, 1, 4] y)
        { a = Exp (x)  h = GRU <hidden_size = 4> (a, w, r)  y = Neg (h) }"""
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {text}'), path)
    assert planning.placement_strip(path) == [("fused", 1), ("dml", 1), ("fused", 1)]
    path.write_bytes(onnx.parser.parse_model(REJECTED).SerializeToString())
    assert planning.placement_strip(path) == []


@pytest.mark.parametrize(
    ("graphs", "text"),
    [
        (1, "9 nodes in 1 graph"),
        (2, "9 nodes in 2 graphs of 2, 1"),
        (6, "9 nodes in 6 graphs of 6, 5, 4, 3, 2, 1"),
        (7, "9 nodes in 7 graphs of 7, 6, 5, 4, 3, 2, ..."),
    ],
)
def test_the_largest_graphs_are_listed(graphs: int, text: str) -> None:
    steps = tuple(Step(f"graph {n}", "graph", n, False) for n in range(1, graphs + 1))
    fused = NodePlacement("n", "Relu", "fused", "", 0)
    (row, *_) = ProviderPlan((fused,) * 9, steps).rows()
    assert text in str(row)
