"""Which PyTorch module a node is in, as the exporters write it."""

from __future__ import annotations

import onnx_ir as ir

from graphfix.graph.text import module_path


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
