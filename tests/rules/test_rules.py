"""What every rule of ``check`` owes, found by folder, and what a finding of a pass means where."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

import graphfix
from graphfix.engine import registry
from graphfix.errors import UsageError
from graphfix.job import checking
from graphfix.providers.table import EVERYWHERE, Ep
from graphfix.rules import rules
from graphfix.spec.manual import rule_manual_of
from tests.rules.checking import findings, graph, severities

NAMES = list(rules())
# ONNX Runtime refuses the model: that is the rule.
UNLOADABLE = {
    "type-conflict": "Type Error",
    "no-cpu-kernel": "Could not find an implementation",
    "does-not-load": "Incompatible dimensions",
}


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def loads(text: str) -> None:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    data = onnx.parser.parse_model(text).SerializeToString()
    ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


class TestEveryRule:
    def test_its_flagged_model_is_flagged(self, name: str) -> None:
        manual = rule_manual_of(rules()[name])
        ep = rules()[name].providers[0]
        got = [x for x in findings(manual.flagged, ep=ep) if x.rule == name]
        assert got
        assert all(x.message and x.at for x in got)

    def test_its_clean_model_is_not(self, name: str) -> None:
        manual = rule_manual_of(rules()[name])
        for ep in rules()[name].providers:
            assert not [x for x in findings(manual.clean, ep=ep) if x.rule == name]

    def test_both_load_in_onnx_runtime(self, name: str) -> None:
        manual = rule_manual_of(rules()[name])
        loads(manual.clean)
        if name in UNLOADABLE:
            with pytest.raises(Exception, match=UNLOADABLE[name]):
                loads(manual.flagged)
        else:
            loads(manual.flagged)

    def test_it_says_where_it_is_known_from(self, name: str) -> None:
        why = rule_manual_of(rules()[name]).why
        versions = ("onnxruntime-directml 1.24.4", "onnxruntime-webgpu 1.27.0")
        assert any(x in why for x in ("ORT", "ONNX Runtime", *versions)), why

    def test_it_is_no_pass_and_its_providers_are_known(self, name: str) -> None:
        assert name not in registry.pass_names()
        assert set(rules()[name].providers) <= set(EVERYWHERE)
        assert registry.pass_class(name) is rules()[name]

    def test_looking_does_not_edit(self, name: str) -> None:
        text = rule_manual_of(rules()[name]).flagged
        model = ir.from_onnx_text(text)
        graphfix.check(model, name)
        assert ir.to_proto(model) == ir.to_proto(ir.from_onnx_text(text))

    def test_where_it_does_not_matter_it_is_silent(self, name: str) -> None:
        manual, providers = rule_manual_of(rules()[name]), rules()[name].providers
        for ep in EVERYWHERE:
            assert bool(severities(manual.flagged, name, ep)) == (ep in providers)


class TestLibrary:
    @pytest.mark.parametrize("ep", EVERYWHERE)
    def test_what_holds_on_the_provider_is_asked_by_default(self, ep: Ep) -> None:
        asked = {x.name for x in checking.default_checks(ep)}
        assert asked & set(NAMES) == {x for x in NAMES if ep in rules()[x].providers}
        passes = {*registry.PROFILES["directml"], "thaw"}
        only = {
            "reshape-allowzero",
            "convtranspose-2d",
            "bool-cast",
            "cumsum-index",
            "gather-int64",
            "slice-gate",
            "slice-gather",
            "slice-start",
            "pad-amounts",
            "pad-slice",
            "clip-minmax",
            "keep-output",
            "host-output",
            "matmul-4d",
            "pool-pads",
            "quantize-axis",
            "matmul-vector",
            "reverse-2d",
            "gemm-bias",
            "nbits-inputs",
            "resize-4d",
            "convtranspose-pads",
            "lp-norm",
            "pad-empty",
            "roi-size",
        }
        left = set() if ep == "dml" else {*only, "opset-ceiling"}
        left |= {"logsumexp-shift"} if ep not in ("dml", "webgpu") else set()
        assert asked - set(NAMES) == passes - left

    def test_a_rule_stands_among_passes(self) -> None:
        text = graph("(float[N] x) => (float[N] y) { y = Sin (x) }", 22)
        assert {x.rule for x in findings(text, "no-kernel,opset-ceiling")} == {
            "no-kernel",
            "opset-ceiling",
        }

    def test_a_rule_misspelt_is_suggested(self) -> None:
        with pytest.raises(UsageError, match="did you mean 'no-kernel'"):
            findings(graph("(float[N] x) => (float[N] y) { y = Sin (x) }"), "no-kernle")

    def test_the_module_is_told(self) -> None:
        model = ir.from_onnx_text(graph("(float[N] x) => (float[N] y) { y = Sin (x) }", 22))
        node = model.graph[0]
        node.name = "/encoder/layer.0/act/Sin"
        assert graphfix.check(model, "no-kernel")[0].module == "encoder.layer.0.act"
        node.metadata_props["pkg.torch.onnx.name_scopes"] = "['', 'm', 'm.act', 'sin']"
        assert graphfix.check(model, "no-kernel")[0].module == "m.act"


@pytest.mark.parametrize("op_type", ["Resize", "Upsample"])
def test_a_node_without_its_inputs_is_gone_through(op_type: str) -> None:
    """ONNX Runtime refuses it, and the gate lets it through: a fuzzer found it."""
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> m (float[B] x) => (float[B] y) { y = Relu (x) }'
    )
    m = ir.from_onnx_text(text)
    m.graph.append(ir.Node("", op_type, []))
    assert {x.rule for x in graphfix.check(m)} == {"does-not-load", "dynamic-dims"}
