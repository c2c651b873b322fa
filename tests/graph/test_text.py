"""Which PyTorch module a node is in, as the exporters write it."""

from __future__ import annotations

import onnx_ir as ir

from graphfix.graph.text import describe_node, module_path


def scoped(name: str, **metadata: str) -> tuple[str, ...]:
    node = ir.Node("", "Relu", [None], name=name, metadata_props=metadata)
    return module_path(node)


def test_modules_are_told_by_metadata_or_by_the_name():
    assert scoped("/enc/layers.0/attn/MatMul_1") == ("enc", "layers.0", "attn")
    assert scoped("MatMul_1") == ()
    scopes = {
        "pkg.torch.onnx.name_scopes": "['', 'm', 'm.enc.layers.0', 'm.enc.layers.0.f', 'add']"
    }
    assert scoped("node_add", **scopes) == ("m", "enc", "layers.0", "f")
    spaces = {"namespace": ": a.W/m: a.M/m.layers.1: b.Layer/add: aten.add"}
    assert scoped("node_add", **spaces) == ("m", "layers.1")


def graph_of(body: str) -> ir.Graph:
    text = '<ir_version: 8, opset_import: ["" : 17]>'
    return ir.from_onnx_text(f"{text} m (float[N] x) => (float[N] y) {{ {body} }}").graph


def written(node: ir.Node) -> ir.Node:
    node.metadata_props["graphfix.pass"] = "fold"
    return node


def test_a_node_of_the_model_is_described_by_its_name() -> None:
    graph = graph_of("[add_3] a = Add (x, x)  y = Relu (a)")
    assert describe_node(graph[0]) == "Add 'add_3'"


def test_a_node_of_a_pass_is_described_by_what_it_makes() -> None:
    graph = graph_of("a = Add (x, x)  y = Relu (a)")
    assert describe_node(written(graph[0])) == "the Add that makes 'a' (fold wrote it)"
    graph = graph_of("gf_fold_1 = Add (x, x)  [last] y = Relu (gf_fold_1)")
    assert describe_node(written(graph[0])) == "the Add before Relu 'last' (fold wrote it)"
    # A second output may have a name of the user's.
    graph = graph_of("gf_fold_1, b = Split (x)  y = Add (gf_fold_1, b)")
    assert describe_node(written(graph[0])) == "the Split that makes 'b' (fold wrote it)"
