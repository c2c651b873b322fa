"""A repair that spoils a container is found, and the rest is shipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import pytest

import graphfix
from graphfix.cli import main
from graphfix.engine import registry
from graphfix.shipping.build import ship_file
from graphfix.shipping.container_spec import parse_containers

if TYPE_CHECKING:
    from pathlib import Path

LAYERS = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T, 8] x) => (float[B, T, 8] y)
    {
        w0 = Softmax <axis = -1> (x)
        w1 = Softmax <axis = -1> (w0)
        w2 = Softmax <axis = -1> (w1)
        mean = ReduceMean <axes = [1]> (w2)
        y = Add (w2, mean)
    }"""
PLUGIN = '''
import numpy as np
import graphfix


class Shifted(graphfix.NodePass):
    """Softmax(x) becomes Softmax(1 x), and at w1 Softmax(2 x)."""

    name = "shifted"
    anchors = ("Softmax",)

    def match(self, node, view):
        return None if node.metadata_props else graphfix.Match(node)

    def rewrite(self, match, op):
        factor = 2 if match.node.outputs[0].name == "w1" else 1
        return op.Softmax(op.Mul(match.node.inputs[0], np.array(factor, np.float32)), axis=-1)
'''


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(registry, "_plugins", {})
    (tmp_path / "plugin.py").write_text(PLUGIN, encoding="utf-8")
    graphfix.load_plugin(tmp_path / "plugin.py")
    onnx.save(onnx.parser.parse_model(LAYERS), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_what_spoils_a_container_is_left_out_of_all(source: Path) -> None:
    done = ship_file(
        source, source.parent / "out", parse_containers(["T=16,40"]), passes="shifted,directml"
    )
    assert done.ok
    assert done.folder is not None
    assert [(x.by, x.at) for x in done.left] == [("shifted", ("Softmax of w1",))]
    assert done.manifest.provenance["left"][0]["by"] == "shifted"
    assert done.to_json()["left"]
    for container in done.manifest.containers:
        ops = [x.op_type for x in onnx.load(done.folder / container.file).graph.node]
        assert ops.count("Softmax") == 3
    assert graphfix.Session(done.folder)


SIZED = PLUGIN.replace("shifted", "sized").replace(
    'factor = 2 if match.node.outputs[0].name == "w1" else 1',
    """length = op.view.shapes.dims(match.node.outputs[0])[1]
        bad = {16: "w0", 24: "w1", 40: "w2"}.get(length)
        factor = 2 if match.node.outputs[0].name == bad else 1""",
)


def test_what_spoils_each_container_in_another_place_is_left_out_of_all(source: Path) -> None:
    (source.parent / "sized.py").write_text(SIZED, encoding="utf-8")
    graphfix.load_plugin(source.parent / "sized.py")
    passes = "ilens-mask,fix-dims,sized,directml"
    done = ship_file(
        source, source.parent / "out", parse_containers(["T=16,24,32,40"]), passes=passes
    )
    assert done.ok
    left = {(x.by, at) for x in done.left for at in x.at}
    assert left == {("sized", f"Softmax of w{i}") for i in range(3)}
    assert "3 of" in done.searched


def test_with_strict_nothing_is_shipped(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = source.parent / "out"
    given = ["ship", str(source), "--container", "T=16", "-o", str(out), "-p", "shifted,directml"]
    assert main([*given, "--strict"]) == 1
    assert not out.exists()
    assert main(given) == 0
    assert "left out  shifted at Softmax of w1: with it" in capsys.readouterr().out
