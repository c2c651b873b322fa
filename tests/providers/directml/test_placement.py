"""Which nodes DirectML takes, and why others stay on the CPU."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts.view import View
from graphfix.providers.directml.placement import PlacementRules
from graphfix.providers.placement import SHAPE_WORK


def rules_of(
    body: str, inputs: str = "float[T, 4] x", constants: str = "", opset: int = 17, own: str = ""
) -> tuple[PlacementRules, ir.Graph]:
    imports = f'["{own}" : {opset}, "com.microsoft" : 1, "own" : 1]'
    values = f"<{constants}>" if constants else ""
    model = ir.from_onnx_text(
        f"<ir_version: 8, opset_import: {imports}> m ({inputs}) => (y) {values} {{ {body} }}"
    )
    return PlacementRules(model.graph.opset_imports, View(model).shapes), model.graph


def on_cpu(
    body: str, inputs: str = "float[T, 4] x", constants: str = "", opset: int = 17, own: str = ""
) -> dict[str | None, str]:
    """Return why nodes stay on the CPU, by the name of what they make."""
    rules, graph = rules_of(body, inputs, constants, opset, own)
    reasons = {node.outputs[0].name: why for node, why in rules.cpu_nodes(graph).items()}
    return {name: "shapes" if why == SHAPE_WORK else why for name, why in reasons.items()}


# Kernels


@pytest.mark.parametrize(
    ("body", "inputs", "opset", "why"),
    [
        ("y = Exp (x)", "float[4] x", 17, None),
        ("y = Exp (x)", "int64[4] x", 17, "DirectML has no kernel for Exp of int64"),
        ("y = Cast <to = 16> (x)", "float[4] x", 17, "DirectML has no kernel for Cast of bfloat16"),
        (
            "y = RandomNormalLike (x)",
            "float[4] x",
            17,
            "DirectML has no kernel for RandomNormalLike",
        ),
        # By version: one that is too new, one before the first, one that is in no ONNX.
        ("y = Sin (x)", "float[4] x", 21, None),
        (
            "y = Sin (x)",
            "float[4] x",
            22,
            "DirectML has no kernel for Sin-22, the last is of opset 21",
        ),
        ("y = Gemm (x, x, x)", "float[4, 4] x", 6, "DirectML has no kernel for Gemm-6"),
        ("y = Sin (x)", "float[4] x", 6, "DirectML has no kernel for Sin"),
        ("y = Sin (x)", "float[4] x", 7, None),
        # Of ONNX Runtime, whose operators have no schema here.
        ("y = com.microsoft.FastGelu (x)", "float[4] x", 17, None),
        (
            "y = com.microsoft.FastGelu (x)",
            "double[4] x",
            17,
            "DirectML has no kernel for FastGelu of double",
        ),
        ("y = com.microsoft.No (x)", "float[4] x", 17, "DirectML has no kernel for No"),
        ("y = own.Exp (x)", "float[4] x", 17, "DirectML has no kernel for Exp"),
    ],
)
def test_a_node_needs_a_kernel_of_its_version_and_types(
    body: str, inputs: str, opset: int, why: str | None
) -> None:
    assert on_cpu(body, inputs, opset=opset) == ({} if why is None else {"y": why})
    rules, graph = rules_of(body, inputs, opset=opset)
    assert (rules.kernel_of(graph[0]) is None) == (why is not None)


def test_the_standard_domain_has_two_names() -> None:
    rules, graph = rules_of("y = ai.onnx.Sin (x)", opset=21, own="ai.onnx")
    assert rules.opsets == {"": 21, "com.microsoft": 1, "own": 1}
    kernel = rules.kernel_of(graph[0])
    assert kernel is not None
    assert (kernel.op, kernel.since) == ("Sin", 7)
    assert on_cpu("y = ai.onnx.Sin (x)", opset=22, own="ai.onnx") == {
        "y": "DirectML has no kernel for Sin-22, the last is of opset 21"
    }


def test_a_domain_that_is_not_imported_is_of_version_1() -> None:
    rules, graph = rules_of("a = com.microsoft.FastGelu (x)  b = Identity (a)  y = Pad (b)")
    bare = PlacementRules({}, rules.shapes)
    versions = [kernel.since for x in graph if (kernel := bare.kernel_of(x)) is not None]
    assert versions == [1, 1]
    assert list(bare.cpu_nodes(graph).values()) == ["DirectML has no kernel for Pad-1"]


def test_a_kernel_may_refuse_a_node() -> None:
    body, inputs = "y, m = LayerNormalization (x, s)", "float[4, 4] x, float[4] s"
    (why,) = on_cpu(body, inputs).values()
    assert why.startswith("DirectML's LayerNormalization refuses outputs for the mean")


BRANCHES = (
    "then_branch = t () => (p) { p = Identity (x) }, else_branch = e () => (q) { q = Neg (x) }"
)


def test_a_kernel_of_all_types_takes_those_of_a_tensor_on_the_device() -> None:
    assert on_cpu(f"y = If (c) <{BRANCHES}>", "bool c, float[4] x") == {}
    text = BRANCHES.replace("Neg", "Identity")
    assert on_cpu(f"y = If (c) <{text}>", "bool c, string[4] x") == {
        "y": "DirectML has no tensors of string"
    }


# Shapes


def test_what_computes_with_shapes_stays_on_the_cpu() -> None:
    constants = "int64[1] i = {0}"
    assert on_cpu("y = Shape (x)") == {}
    assert on_cpu("s = Shape (x)  y = Gather (s, i)", constants=constants) == {"y": "shapes"}
    body = "s = Shape (x)  n = Gather (s, i)  m = Neg (n)  y = Concat <axis = 0> (m, i, s)"
    assert on_cpu(body, constants=constants) == dict.fromkeys(("n", "m", "y"), "shapes")
    assert on_cpu("s = Size (x)  y = Neg (s)") == {"y": "shapes"}


def test_every_input_is_on_the_cpu() -> None:
    # An input of the model may be anywhere; what the device makes is there.
    assert on_cpu("s = Shape (x)  y = Add (s, n)", "float[T, 4] x, int64[2] n") == {"y": "shapes"}
    body = "s = Shape (x)  m = Neg (n)  y = Add (s, m)"
    assert on_cpu(body, "float[T, 4] x, int64[2] n") == {}
    assert on_cpu(body.replace("s, m", "m, s"), "float[T, 4] x, int64[2] n") == {}


@pytest.mark.parametrize(("count", "stays"), [(1, True), (100, True), (101, False)])
def test_a_small_constant_may_be_anywhere(count: int, stays: bool) -> None:
    constants = f"int64[{count}] c = {{{', '.join('1' * count)}}}"
    expected = {"y": "shapes"} if stays else {}
    assert on_cpu("s = Size (x)  y = Mul (s, c)", constants=constants) == expected


def test_half_numbers_and_absent_inputs_go_to_the_device() -> None:
    assert on_cpu("s = Shape (x)  h = Cast <to = 10> (s)  y = Neg (h)") == {"h": "shapes"}
    assert on_cpu("s = Shape (x)  h = Cast <to = 1> (s)  y = Neg (h)") == {
        "h": "shapes",
        "y": "shapes",
    }
    constants = "int64 low = {0}"
    assert on_cpu("s = Shape (x)  y = Clip (s, low)", constants=constants) == {"y": "shapes"}
    assert on_cpu("s = Shape (x)  y = Clip (s, , low)", constants=constants) == {}


def test_what_a_kernel_wants_on_the_cpu_does_not_keep_it_there() -> None:
    assert on_cpu("s = Shape (x)  y = Reshape (x, s)") == {}
    assert on_cpu("s = Shape (x)  y = ConstantOfShape (s)") == {}
    assert on_cpu("s = Shape (x)  n = Shape (s)  y = Reshape (s, n)") == {"n": "shapes"}
    # A constant of that input is small anyway.
    constants = "int64[2] one = {1, 2}"
    assert on_cpu("s = Shape (x)  y = Reshape (s, one)", constants=constants) == {"y": "shapes"}


def test_a_node_without_a_kernel_leaves_its_results_on_the_cpu() -> None:
    reason = "DirectML has no kernel for Mod of int64"
    body = "s = Shape (x)  r = Mod (s, s)  y = Neg (r)"
    assert on_cpu(body) == {"r": reason, "y": "shapes"}
    # Whatever else such a node reads.
    body = "s = Shape (x)  d = Neg (n)  r = Mod (s, d)  y = Neg (r)"
    assert on_cpu(body, "float[T, 4] x, int64[2] n") == {"r": reason, "y": "shapes"}


def test_a_body_is_looked_at_by_itself() -> None:
    text = BRANCHES.replace("Identity (x)", "Neg (s)").replace("Neg (x)", "Abs (s)")
    rules, graph = rules_of(f"s = Shape (x)  y = If (c) <{text}>", "bool c, float[4] x")
    assert rules.cpu_nodes(graph) == {}
    body = graph[-1].attributes["then_branch"].as_graph()
    assert rules.cpu_nodes(body) == {}
