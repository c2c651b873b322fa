"""A repair that spoils a container is found, and the rest is shipped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

import graphfix
from graphfix.cli import main
from graphfix.engine import registry
from graphfix.errors import PaddingError, UsageError
from graphfix.proof.compare import Tolerance
from graphfix.shipped.manifest import Axis
from graphfix.shipping.build import ship_file
from graphfix.shipping.container_repair import ShipOrder
from graphfix.shipping.container_spec import parse_containers
from graphfix.shipping.model_facts import ModelFacts

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


SELECTED = """<ir_version: 8, opset_import: ["": 17]>
    m (float[B, T, 4] x, int64 rate) => (float[B, T, 4] y)
    <int64 one = {1}, int64 usual = {16000}>
    {
        is_usual = Equal (rate, usual)
        y = If (is_usual) <
            then_branch = a () => (float[B, T, 4] p) { p = CumSum (x, one) },
            else_branch = b () => (float[B, T, 4] q) { q = Neg (x) }
        >
    }"""


def test_fixed_sizes_come_with_the_selector_that_they_fit(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(SELECTED), tmp_path / "m.onnx")
    with pytest.raises(PaddingError, match=r"-p directml,fix-input:rate=16000,fix-dims:.*T=8$"):
        ship_file(tmp_path / "m.onnx", tmp_path / "out", parse_containers(["T=8"]))


# The passes at the sizes of a container

FACTS = ModelFacts(
    axis=Axis("T", "x", 1),
    batch="B",
    inputs=(),
    outputs=(),
    validity_input="mask",
    names={"B": ("B", "rows"), "T": ("T",)},
    containers=({"B": 1, "T": 8},),
    clips=(),
    dropped=(),
)


def order_of(spec: str = "ilens-mask,fix-dims", **facts: Any) -> ShipOrder:
    usual = Tolerance()
    changed = replace(FACTS, **facts)
    return ShipOrder(Path("m.onnx"), changed, spec, usual, usual, "cpu", lambda _: None)


def fixed(order: ShipOrder, rows: int) -> list[dict[str, int] | str]:
    passes = order.passes_at({"B": rows, "T": 8})
    return [dict(x.dims) if x.name == "fix-dims" else x.name for x in passes]  # type: ignore[attr-defined]


def test_one_row_and_forced_sizes_are_fixed_first() -> None:
    assert fixed(order_of(), 1) == [{"B": 1, "rows": 1}, "ilens-mask", {"T": 8}]
    assert fixed(order_of(), 2) == ["ilens-mask", {"B": 2, "rows": 2, "T": 8}]
    forced = order_of(forced={"C": 3})
    assert fixed(forced, 1) == [{"B": 1, "rows": 1, "C": 3}, "ilens-mask", {"T": 8}]
    assert fixed(forced, 2) == [{"C": 3}, "ilens-mask", {"B": 2, "rows": 2, "T": 8}]


def test_lengths_are_asked_for_at_the_padded_axis() -> None:
    (mask, _) = order_of().passes_at({"B": 2, "T": 8})
    assert (mask.axis, mask.from_) == ("x.1", "mask")  # type: ignore[attr-defined]
    (mask, _) = order_of("ilens-mask:axis=z.2,fix-dims").passes_at({"B": 2, "T": 8})
    assert (mask.axis, mask.from_) == ("z.2", "")  # type: ignore[attr-defined]


def test_sizes_are_those_of_containers() -> None:
    with pytest.raises(UsageError, match="fix-dims gets its sizes from --container"):
        order_of("ilens-mask,fix-dims:T=5").passes_at({"B": 2, "T": 8})


def test_rounding_is_measured_where_the_usual_tolerance_holds() -> None:
    order = order_of()
    assert order.own_rounding() is None
    other = replace(order, allows_own_rounding=True, tolerance=Tolerance(0.5))
    assert other.own_rounding() is None
