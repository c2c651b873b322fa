"""What DirectML makes one kernel of: activations into their producers, nodes into graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import onnx_ir as ir
import pytest

from graphfix.facts.view import View
from graphfix.providers.directml.fusing import (
    CONTROL_FLOW,
    OPEN,
    Partition,
    build_partitions,
    control_flow_op,
    find_lost_outputs,
    fused_activations,
    fusion_obstacle,
    gemms_without_bias,
    is_static,
)
from graphfix.providers.directml.kernel_table import Kernel, kernel_for

X = "float[4, 4] x"


def model_of(body: str, outputs: str = "y", inputs: str = X, constants: str = "") -> ir.Model:
    imports = '["" : 17, "com.microsoft" : 1]'
    values = f"<{constants}>" if constants else ""
    return ir.from_onnx_text(
        f"<ir_version: 8, opset_import: {imports}>m ({inputs}) => ({outputs}) {values} {{ {body} }}"
    )


def names(nodes: dict[ir.Node, ir.Node]) -> dict[str | None, str | None]:
    return {after.outputs[0].name: home.outputs[0].name for after, home in nodes.items()}


# Activations into their producers


def fused(body: str, *on_cpu: str, inputs: str = X) -> dict[str | None, str | None]:
    nodes = list(model_of(body, inputs=inputs).graph)
    on_dml = [x for x in nodes if x.outputs[0].name not in on_cpu]
    return names(fused_activations(nodes, on_dml))


def test_an_activation_goes_into_its_producer() -> None:
    assert fused("a = MatMul (x, x)  y = Relu (a)") == {"y": "a"}
    assert fused("a = MatMul (x, x)  y = Sigmoid (a)") == {"y": "a"}
    # Only some go into an Add, and only a Softmax into ONNX Runtime's own product.
    assert fused("a = Add (x, x)  y = Relu (a)") == {"y": "a"}
    assert fused("a = Add (x, x)  y = Sigmoid (a)") == {}
    assert fused("a = com.microsoft.FusedMatMul (x, x)  y = Softmax (a)") == {"y": "a"}
    assert fused("a = com.microsoft.FusedMatMul (x, x)  y = Relu (a)") == {}
    assert fused("a = MatMul (x, x)  y = Softmax (a)") == {}
    assert fused("a = Exp (x)  y = Relu (a)") == {}


@pytest.mark.parametrize("device", ["a", "y"])
def test_both_are_on_the_device(device: str) -> None:
    assert fused("a = MatMul (x, x)  y = Relu (a)", device) == {}


def test_the_activation_is_the_only_reader() -> None:
    assert fused("a = MatMul (x, x)  b = Relu (a)  y = Exp (a)") == {}
    assert fused("a = MatMul (x, x)  b = Relu (a)  y = Relu (a)") == {}
    split = "a, m = BatchNormalization (x, s, s, s, s)  b = Relu (a)"
    inputs = f"{X}, float[4] s"
    assert fused(f"{split}  y = Exp (b)", inputs=inputs) == {"b": "a"}
    assert fused(f"{split}  y = Exp (m)", inputs=inputs) == {}
    assert fused("y = MatMul (x, x)") == {}


def test_a_sum_of_two_takes_an_activation() -> None:
    assert fused("a = Sum (x, x)  y = Relu (a)") == {"y": "a"}
    assert fused("a = Sum (x, x, x)  y = Relu (a)") == {}
    assert fused("a = Sum (x)  y = Relu (a)") == {}


def test_the_activation_reads_nothing_else() -> None:
    assert fused("a = MatMul (x, x)  y = Dropout (a)") == {"y": "a"}
    assert fused("a = MatMul (x, x)  y = Dropout (a, r)", inputs=f"{X}, float r") == {}


def test_an_activation_in_a_body_stays_there() -> None:
    model = model_of(
        """a = MatMul (x, x)  y = If (c) <
        then_branch = t () => (p) { p = Relu (a) }, else_branch = e () => (q) { q = Exp (x) }>""",
        inputs=f"{X}, bool c",
    )
    product, choice = model.graph
    inner = choice.attributes["then_branch"].as_graph()[0]
    assert fused_activations([product, inner], [product, inner]) == {}


# What is lost, or makes no session


def lost(body: str, outputs: str, constants: str = "") -> list[tuple[str | None, ...]]:
    view = View(model_of(body, outputs, constants=constants))
    found = find_lost_outputs(view)
    return [(x.value.name, x.home.op_type, x.after.op_type) for x in found]


def test_an_output_before_an_activation_is_lost() -> None:
    body = "a = MatMul (x, x)  y = Relu (a)"
    assert lost(body, "a, y") == [("a", "MatMul", "Relu")]
    assert lost(body, "y") == []
    # DirectML has no kernel for float64 activations: nothing is fused there.
    double = f"d = Cast <to = 11> (x)  {body.replace('x, x', 'd, d')}"
    assert lost(double, "a, y") == []


def test_an_output_that_is_an_input_is_not_lost() -> None:
    assert lost("y = Relu (x)", "x, y") == []


@pytest.mark.parametrize(
    ("body", "after"),
    [
        # A sum with a constant goes into the Conv, and the activation behind it.
        ("c = Conv (k, k)  a = Add (c, b)  y = Sigmoid (a)", "Sigmoid"),
        ("c = Conv (k, k)  a = Add (b, c)  y = Sigmoid (a)", "Sigmoid"),
        ("c = Conv (k, k)  a = Mul (c, b)  y = Sigmoid (a)", "Sigmoid"),
        ("c = Conv (k, k)  a = Sub (c, b)  y = Sigmoid (a)", None),
        ("c = Conv (k, k)  a = Add (c, k)  y = Sigmoid (a)", None),
        ("c = Conv (k, k)  a = Add (c, b)  z = Exp (c)  y = Sigmoid (a)", None),
        # A sum after a product of matrices is a Gemm.
        ("c = MatMul (x, x)  a = Add (c, x)  y = Sigmoid (a)", "Sigmoid"),
        ("c = MatMul (x, x)  a = Add (x, c)  y = Sigmoid (a)", "Sigmoid"),
        ("c = MatMul (x, x)  a = Mul (c, x)  y = Sigmoid (a)", None),
        ("c = MatMul (x, k)  a = Add (c, x)  y = Sigmoid (a)", None),
        ("c = MatMul (k, x)  a = Add (c, x)  y = Sigmoid (a)", None),
        ("c = Exp (x)  a = Add (c, x)  y = Sigmoid (a)", None),
        # Without them an Add takes a Relu alone.
        ("a = Add (x, x)  y = Relu (a)", "Relu"),
        ("a = Add (x, x)  y = Sigmoid (a)", None),
        ("a = Add (b, x)  y = Sigmoid (a)", None),
    ],
)
def test_what_the_optimizer_makes_of_a_sum_takes_the_activation(
    body: str, after: str | None
) -> None:
    constants = "float[1] b = {2}"
    model = model_of(body, "a, y", f"{X}, float[1, 1, 4, 4] k", constants)
    found = [x.after.op_type for x in find_lost_outputs(View(model))]
    assert found == ([] if after is None else [after])


def test_a_conv_that_is_an_output_keeps_its_sum_apart() -> None:
    body = "c = Conv (k, k)  a = Add (c, b)  y = Sigmoid (a)"
    model = model_of(body, "c, a, y", "float[1, 1, 4, 4] k", "float[1] b = {2}")
    assert list(find_lost_outputs(View(model))) == []


@pytest.mark.parametrize(
    ("body", "bare"),
    [
        ("a = Gemm (x, x)  y = Relu (a)", [("Gemm", "Relu")]),
        ("a = Gemm (x, x, x)  y = Relu (a)", []),
        ("a = Gemm (x, x)  y = Exp (a)", []),
        ("a = MatMul (x, x)  y = Relu (a)", []),
    ],
)
def test_a_gemm_without_a_bias_takes_an_activation(body: str, bare: list[tuple[str, str]]) -> None:
    pairs = gemms_without_bias(View(model_of(body)))
    assert [(home.op_type, after.op_type) for home, after in pairs] == bare


def test_a_gemm_without_a_bias_may_have_a_place_for_it() -> None:
    model = model_of("a = Gemm (x, x, x)  y = Relu (a)")
    model.graph[0].replace_input_with(2, None)
    assert [home.op_type for home, _ in gemms_without_bias(View(model))] == ["Gemm"]


def test_a_gemm_in_a_body_makes_its_session() -> None:
    branches = """then_branch = t () => (p) { g = Gemm (x, x)  p = Relu (g) },
        else_branch = e () => (q) { q = Exp (x) }"""
    view = View(model_of(f"y = If (c) <{branches}>", inputs=f"{X}, bool c"))
    assert list(gemms_without_bias(view)) == []


# Nodes into graphs


def partitions(body: str, *alone: str, outputs: str = "y") -> list[tuple[str, bool]]:
    nodes = list(model_of(body, outputs).graph)
    parts = build_partitions(
        nodes, lambda x: x.outputs[0].name not in alone, lambda node: node.outputs
    )
    return [("".join(x.outputs[0].name or "" for x in part.nodes), part.fuses) for part in parts]


def test_nodes_join_the_graph_of_their_inputs() -> None:
    assert partitions("a = Exp (x)  b = Neg (a)  y = Abs (b)") == [("aby", True)]
    # Two beginnings are two graphs until a node reads both.
    assert partitions("a = Exp (x)  b = Neg (x)") == [("a", True), ("b", True)]
    assert partitions("a = Exp (x)  b = Neg (x)  y = Add (a, b)") == [("bay", True)]
    assert partitions("a = Exp (x)  b = Neg (a)  y = Add (a, b)") == [("aby", True)]
    # What follows goes into the graph that the others went into.
    body = "a = Exp (x)  b = Neg (x)  c = Add (a, b)  y = Abs (b)"
    assert partitions(body) == [("bacy", True)]
    body = "a = Exp (x)  b = Neg (x)  c = Abs (x)  d = Add (b, c)  e = Add (a, d)  y = Neg (c)"
    assert partitions(body) == [("cbdaey", True)]


def test_a_node_by_itself_ends_the_graphs_before_it() -> None:
    body = "a = Exp (x)  b = Neg (a)  y = Abs (b)"
    assert partitions(body, "b") == [("a", True), ("b", False), ("y", True)]
    assert partitions(body, "a", "b", "y") == [("a", False), ("b", False), ("y", False)]
    # The graph that b has used takes no more, whoever reads it; another does.
    body = "a = Exp (x)  b = Neg (a)  c = Abs (a)  y = Add (b, c)"
    assert partitions(body, "b") == [("a", True), ("b", False), ("cy", True)]
    body = "a = Exp (x)  d = Neg (x)  b = Neg (a)  c = Add (a, d)"
    assert partitions(body, "b") == [("a", True), ("dc", True), ("b", False)]


def test_outputs_may_be_those_of_an_activation() -> None:
    product, relu, last = model_of("a = MatMul (x, x)  b = Relu (a)  y = Exp (b)").graph
    outputs = {product: relu.outputs, last: last.outputs}
    (part,) = build_partitions([product, last], lambda _: True, outputs.__getitem__)
    assert part.nodes == [product, last]


def test_the_root_of_a_partition_is_what_it_was_merged_into() -> None:
    first, second, third = (Partition([], fuses=True, final=False) for _ in range(3))
    assert first.root() is first
    first.merged, second.merged = second, third
    assert first.root() is second.root() is third


# Nodes that cannot be in a graph

RESHAPE = kernel_for("Reshape", "", 14)
SUM = kernel_for("Sum", "", 13)
DFT = kernel_for("DFT", "", 17)


def obstacle(
    body: str,
    kernel: Kernel | None,
    inputs: str = X,
    constants: str = "",
    dims: tuple[str, ...] = (),
    spare: Callable[[ir.Model], None] = lambda _: None,
) -> str | None:
    assert kernel is not None
    model = model_of(
        body, f"float[{inputs.partition('[')[2].partition(']')[0]}] y", inputs, constants
    )
    spare(model)
    node = model.graph[-1]
    return fusion_obstacle(node, kernel, node.outputs, dims)


def test_a_static_node_has_no_obstacle() -> None:
    assert obstacle("y = Sum (x, x)", SUM) is None
    assert obstacle("y = Reshape (x, s)", RESHAPE, constants="int64[2] s = {4, 4}") is None


def test_a_kernel_that_is_in_no_graph() -> None:
    assert obstacle("y = DFT (x)", DFT) == "DFT cannot be part of a fused graph"


def test_what_the_cpu_reads_is_constant() -> None:
    why = "an input that the CPU reads is computed, not constant"
    assert obstacle("y = Reshape (x, s)", RESHAPE, f"{X}, int64[2] s") == why
    assert obstacle("s = Shape (x)  y = Reshape (x, s)", RESHAPE) == why
    clip = kernel_for("Clip", "", 13)
    assert clip is not None
    assert clip.cpu_inputs == {1, 2}
    # Absent ones are none.
    assert obstacle("y = Clip (x)", clip) is None
    assert obstacle("y = Clip (x, , h)", clip, constants="float h = {2}") is None
    assert obstacle("y = Clip (x, , h)", clip, f"{X}, float h") == why


def test_sizes_are_known_when_the_session_is_made() -> None:
    assert obstacle("y = Sum (x, x)", SUM, "float[T, 4] x", dims=("T",)) == OPEN
    assert obstacle("y = Sum (x, x)", SUM, "float[T, 4] x") == "a size is known only in a run"

    def forget_shape(model: ir.Model) -> None:
        model.graph.outputs[0].shape = None

    why = "a size is known only in a run"
    assert obstacle("y = Sum (x, x)", SUM, spare=forget_shape) == why


def test_no_tensor_is_empty() -> None:
    assert obstacle("y = Sum (x, x)", SUM, "float[0, 4] x") == "a tensor is empty"
    assert obstacle("y = Sum (x, z)", SUM, f"{X}, float[0, 4] z") == "a tensor is empty"
    # Save what the CPU reads: the shape of a scalar.
    scalar = {"constants": "int64[0] s = {}", "inputs": "float x"}
    model = model_of("y = Reshape (x, s)", "float y", **scalar)
    node = model.graph[-1]
    assert RESHAPE is not None
    assert fusion_obstacle(node, RESHAPE, node.outputs, ()) is None


def test_some_kernels_fuse_with_two_inputs_alone() -> None:
    assert obstacle("y = Sum (x, x, x)", SUM) == "Sum has 3 inputs, not 2"
    assert SUM is not None
    assert obstacle("y = Sum (x, x, x)", replace(SUM, inputs_to_fuse=None)) is None


def test_a_static_value_has_a_number_for_each_size() -> None:
    def value(name: str | None, shape: list[int | str] | None) -> ir.Value:
        return ir.Value(name=name, shape=None if shape is None else ir.Shape(shape))

    assert is_static(None)
    assert is_static(value("", None))
    assert is_static(value("x", []))
    assert is_static(value("x", [2, 3]))
    assert not is_static(value("x", [2, "T"]))
    assert not is_static(value("x", None))


def test_control_flow_is_named() -> None:
    assert control_flow_op(model_of("a = Exp (x)  y = Relu (a)").graph) is None
    branches = (
        "then_branch = t () => (p) { p = Exp (x) }, else_branch = e () => (q) { q = Neg (x) }"
    )
    graph = model_of(f"a = Exp (x)  y = If (c) <{branches}>", inputs=f"{X}, bool c").graph
    assert control_flow_op(graph) == "If"
    assert CONTROL_FLOW.format(op="If") == "with If in the graph, nothing of it is fused"
