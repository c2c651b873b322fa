"""loadable: names of nodes, and sizes in external data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx.external_data_helper import convert_model_to_external_data

import graphfix
from graphfix import job

if TYPE_CHECKING:
    from pathlib import Path

HEAD = '<ir_version: 8, opset_import: ["" : 17]> m'
SHARED = (
    f"{HEAD} (float[N] x) => (float[N] y) {{ [a] h = Relu (x) [a] g = Abs (h) [a_1] y = Neg (g) }}"
)
RESHAPED = (
    f"{HEAD} (float[N, 4] x) => (float[N, 2, 2] y) <int64[3] s = {{0, 2, 2}}, float[4] w = "
    "{1, 2, 3, 4}> { h = Mul (x, w)  y = Reshape (h, s) }"
)
RESIZED = (
    f"{HEAD} (float[1, 1, 4, 4] x) => (float[1, 1, 8, 8] y) <float[4] s = {{1, 1, 2, 2}}> "
    "{ y = Resize (x, , s) }"
)


def loads(path: Path) -> bool:
    try:
        ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception:
        return False
    return True


def outside(text: str, folder: Path) -> Path:
    """A file of the model, with every initializer in another."""
    proto, path = onnx.parser.parse_model(text), folder / "m.onnx"
    for tensor in proto.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    convert_model_to_external_data(proto, location="m.data", size_threshold=0)
    onnx.save(proto, path)
    return path


class TestNames:
    def test_they_differ_from_those_that_are_there(self) -> None:
        model = ir.from_onnx_text(SHARED)
        graphfix.run(model, "loadable")
        assert [x.name for x in model.graph] == ["a", "a_2", "a_1"]

    def test_a_body_may_repeat_those_around_it(self, tmp_path: Path) -> None:
        text = f"""{HEAD} (bool c, float[N] x) => (float[N] y) {{ [a] y = If (c) <
            then_branch = t () => (float[N] p) {{ [a] p = Relu (x) }},
            else_branch = e () => (float[N] q) {{ [a] q = Neg (x) }}> }}"""
        onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
        assert loads(tmp_path / "m.onnx")
        assert not graphfix.run(ir.from_onnx_text(text), "loadable").changed

    def test_in_functions_too(self) -> None:
        text = """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
            m (float[N] x) => (float[N] y) { y = f.g (x) }
            <domain: "f", opset_import: ["" : 17]>
            g (a) => (c) { [k] b = Relu (a) [k] c = Neg (b) }"""
        assert [x.at for x in graphfix.check(ir.from_onnx_text(text), "loadable")] == ["k"]


@pytest.mark.parametrize("ep", ["dml", "cpu"])
def test_it_is_an_error_everywhere(ep: str) -> None:
    found = graphfix.check(ir.from_onnx_text(SHARED), ep=ep)
    assert [(x.rule, x.fix) for x in found if x.severity == "error"] == [("loadable", "loadable")]


class TestFiles:
    @pytest.mark.parametrize("text", [RESHAPED, RESIZED], ids=["Reshape", "Resize"])
    def test_sizes_in_another_file_are_taken_in(self, text: str, tmp_path: Path) -> None:
        path, fixed = outside(text, tmp_path), tmp_path / "fixed.onnx"
        assert not loads(path)
        report = job.repair_file(path, fixed, "loadable")
        assert report.ok
        assert loads(fixed)
        assert any("does not load the original" in x for x in report.verdict.notes)

    def test_weights_stay_outside(self, tmp_path: Path) -> None:
        path, fixed = outside(RESHAPED, tmp_path), tmp_path / "fixed.onnx"
        job.repair_file(path, fixed, "loadable")
        proto = onnx.load(fixed, load_external_data=False)
        assert {x.name: x.data_location for x in proto.graph.initializer} == {"s": 0, "w": 1}

    def test_without_the_pass_nothing_is_written_that_does_not_load(self, tmp_path: Path) -> None:
        onnx.save(onnx.parser.parse_model(SHARED), tmp_path / "m.onnx")
        report = job.repair_file(tmp_path / "m.onnx", tmp_path / "f.onnx", "fold")
        assert not report.ok
        assert "does not load" in report.verdict.reason
        assert not (tmp_path / "f.onnx").exists()

    def test_its_numbers_are_those_of_the_original(self, tmp_path: Path) -> None:
        onnx.save(onnx.parser.parse_model(SHARED), tmp_path / "m.onnx")
        assert job.repair_file(tmp_path / "m.onnx", tmp_path / "f.onnx").ok
        session = ort.InferenceSession(tmp_path / "f.onnx", providers=["CPUExecutionProvider"])
        x = np.array([-1, 2], np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], [0, -2])
