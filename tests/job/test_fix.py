"""graphfix.fix takes a model in any form, gives back the same form, and raises if it is wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_overloads, get_type_hints

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix import testing
from graphfix.errors import ModelError, UsageError, VerificationError
from graphfix.job.fix import HasModelProto, fix
from graphfix.paths import StrPath
from tests.passes.models import opened

if TYPE_CHECKING:
    from pathlib import Path

MASKED = """<ir_version: 8, opset_import: ["" : 17]>
m (float[B, T, T] scores, bool[B, 1, T] hidden) => (float[B, T, T] y)
<float low = {-3.4028234663852886e38}> { a = Where (hidden, low, scores) y = Softmax (a) }"""
OTHER = MASKED.replace("Softmax (a)", "Sigmoid (a)")


def ops(model: Any) -> list[str]:
    nodes = model.graph.node if isinstance(model, onnx.ModelProto) else model.graph
    return [x.op_type for x in nodes]


@pytest.fixture
def proto() -> onnx.ModelProto:
    return onnx.parser.parse_model(MASKED)


def test_a_proto_comes_back_as_one_and_is_not_changed(proto: onnx.ModelProto) -> None:
    before = proto.SerializeToString(deterministic=True)
    fixed = graphfix.fix(proto, "additive-mask")
    assert isinstance(fixed, onnx.ModelProto)
    assert "Where" not in ops(fixed)
    assert proto.SerializeToString(deterministic=True) == before
    assert graphfix.verify(proto, fixed)


def test_a_program_of_torch_becomes_a_proto(proto: onnx.ModelProto) -> None:
    program = SimpleNamespace(model_proto=proto)
    assert "Where" not in ops(graphfix.fix(program, "additive-mask"))


def test_the_bytes_of_a_model_become_bytes(proto: onnx.ModelProto) -> None:
    fixed = graphfix.fix(proto.SerializeToString(), "additive-mask")
    assert "Where" not in ops(onnx.load_model_from_string(fixed))


def test_without_a_repair_no_byte_changes() -> None:
    text = MASKED.replace("Where (hidden, low, scores)", "Add (scores, low)")
    proto = onnx.parser.parse_model(text.replace(", bool[B, 1, T] hidden", ""))
    proto.graph.node[0].doc_string, proto.producer_name = "unknown to nobody", "an exporter"
    usual = proto.SerializeToString(deterministic=True)
    # As exporters write: numbers one by one, not as raw bytes.
    assert proto.graph.initializer[0].float_data
    given = (proto, SimpleNamespace(model_proto=proto))
    for fixed in [graphfix.fix(x, "additive-mask") for x in given]:
        assert fixed is not proto
        assert fixed.SerializeToString(deterministic=True) == usual
    assert graphfix.fix(usual, "additive-mask") == usual
    model = ir.from_proto(proto)
    fixed = graphfix.fix(model, "additive-mask")
    assert fixed is not model
    before, after = (ir.to_proto(x).SerializeToString(deterministic=True) for x in (model, fixed))
    assert before == after


def test_bytes_of_something_else_are_refused() -> None:
    with pytest.raises(ModelError, match="the 11 bytes given are no ONNX model"):
        graphfix.fix(b"no protobuf")


def test_weights_of_a_model_in_memory_are_there_when_the_scratch_files_are_gone() -> None:
    weight = np.arange(400_000, dtype=np.float32).reshape(1, 400_000)
    text = MASKED.replace("float low", "float[1, 400000] w, float low")
    text = text.replace("y = Softmax (a)", "y = Softmax (a) z = Identity (w)")
    text = text.replace("(float[B, T, T] y)", "(float[B, T, T] y, float[1, 400000] z)")
    model = ir.from_onnx_text(
        text.replace(" w,", " w = {0.0},").replace("[1, 400000] w", "[1, 1] w")
    )
    model.graph.initializers["w"].const_value = ir.tensor(weight, name="w")
    fixed = graphfix.fix(model)
    assert isinstance(fixed, ir.Model)
    feeds = {"scores": np.zeros((1, 1, 1), np.float32), "hidden": np.zeros((1, 1, 1), bool)}
    assert (opened(fixed).run(["z"], feeds)[0] == weight).all()


def test_a_path_is_written_beside_itself(proto: onnx.ModelProto, tmp_path: Path) -> None:
    onnx.save(proto, tmp_path / "a.onnx")
    report = graphfix.fix(tmp_path / "a.onnx")
    assert report
    assert report.output == str(tmp_path / "a.fixed.onnx")
    assert repr(report).startswith("<Report: ")
    assert "\n" not in repr(report)
    assert len(repr(report)) < 300


class Wrong(graphfix.NodePass):
    """A Softmax becomes a Sigmoid."""

    name = "wrong"
    anchors = ("Softmax",)

    def match(self, node: ir.Node, view: graphfix.View) -> graphfix.Match:
        return graphfix.Match(node)

    def rewrite(self, match: graphfix.Match, op: graphfix.Builder) -> ir.Value:
        return op.Sigmoid(match.node.inputs[0])


def test_what_is_not_proved_raises_and_is_not_written(
    proto: onnx.ModelProto, tmp_path: Path
) -> None:
    onnx.save(proto, tmp_path / "a.onnx")
    with pytest.raises(VerificationError, match="not proved: output 'y' differs") as raised:
        graphfix.fix(tmp_path / "a.onnx", Wrong(), strict=True)
    assert not raised.value.report
    assert [x.name for x in tmp_path.iterdir()] == ["a.onnx"]
    with pytest.raises(VerificationError):
        graphfix.fix(proto, [Wrong()], strict=True)


def test_what_is_for_a_path_is_refused_of_a_model_in_memory(proto: onnx.ModelProto) -> None:
    for option in ({"output": "a.onnx"}, {"dry_run": True}):
        with pytest.raises(UsageError, match="output= and dry_run= are for a path"):
            graphfix.fix(proto, **option)


def test_a_list_of_names_and_passes_is_a_pipeline(proto: onnx.ModelProto) -> None:
    report = graphfix.run(proto, ["fold", graphfix.get_pass("additive-mask")])
    assert [x.name for x in report.passes] == ["fold", "additive-mask"]
    assert "Where" not in ops(proto)  # in place


def test_every_form_is_taken_by_what_only_reads(proto: onnx.ModelProto, tmp_path: Path) -> None:
    onnx.save(proto, tmp_path / "a.onnx")
    forms = [proto, tmp_path / "a.onnx", str(tmp_path / "a.onnx"), ir.from_proto(proto)]
    assert len({str(graphfix.check(x)) for x in forms}) == 1
    assert len({repr(graphfix.plan(x)) for x in forms}) == 1
    assert all(graphfix.verify(x, forms[0], dims={"T": 3}) for x in forms)
    for verb in (graphfix.check, graphfix.plan, graphfix.run, graphfix.fix):
        with pytest.raises(UsageError, match="int is no model"):
            verb(3)


def test_a_bad_verdict_is_false(proto: onnx.ModelProto) -> None:
    other = onnx.parser.parse_model(OTHER)
    verdict = graphfix.verify(proto, other)
    assert not verdict
    assert repr(verdict).startswith("<Verdict: output 'y' differs")
    with pytest.raises(AssertionError, match="output 'y' differs"):
        testing.assert_same(proto, other)
    testing.assert_same(proto, graphfix.fix(proto))


def test_what_is_wrong_on_directml_fails_a_test(proto: onnx.ModelProto) -> None:
    smaller = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        smaller (float[1, 3, 64, 64] x) => (float[1, 3, 32, 32] y)
        <float[4] scales = {1, 1, 0.5, 0.5}>
        { y = Resize <mode = "linear", antialias = 1> (x, , scales) }"""
    )
    with pytest.raises(AssertionError, match="antialias=1, which DirectML leaves out"):
        testing.assert_runs_on_directml(smaller)
    testing.assert_runs_on_directml(graphfix.fix(proto))


def test_the_overloads_say_what_comes_back(proto: onnx.ModelProto, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    by_type = {get_type_hints(x)["model"]: get_type_hints(x)["return"] for x in get_overloads(fix)}
    models = {StrPath: path, ir.Model: ir.from_proto(proto), onnx.ModelProto | HasModelProto: proto}
    models[bytes] = proto.SerializeToString()
    assert by_type.keys() == models.keys()
    for kind, model in models.items():
        assert type(graphfix.fix(model)) is by_type[kind]
