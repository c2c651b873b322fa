"""A run over a model in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import graphfix
from graphfix.engine import pipeline, registry
from graphfix.errors import UsageError
from graphfix.feeds.signature import Signature

WHISPER = Path(__file__).parents[2] / "models" / "whisper" / "model.onnx"


@pytest.mark.parametrize("spec", ["fast", "opset-ceiling"])
def test_the_default_domain_has_two_names_in_memory_too(spec: str) -> None:
    usual, spelt = graphfix.load(WHISPER), graphfix.load(WHISPER)
    spelt.opset_imports["own"] = 1
    spelt.opset_imports["ai.onnx"] = spelt.opset_imports.pop("")
    names = list(spelt.opset_imports)
    assert graphfix.check(spelt) == graphfix.check(usual)
    assert list(spelt.opset_imports) == names
    assert graphfix.verify(spelt, usual).covered == graphfix.verify(usual, spelt).covered
    assert Signature(spelt).output_dims() == Signature(usual).output_dims()
    after = graphfix.run(spelt, spec).ops_after
    assert after == graphfix.run(usual, spec).ops_after
    assert [x for x in spelt.opset_imports if x != "com.microsoft"] == names


def unnamed_constants() -> onnx.ModelProto:
    """A model without sites whose Constant nodes, one in a branch, hold tensors without a name."""
    floats, axis = helper.make_tensor("", 1, [2], [1.0, 2.0]), helper.make_tensor("", 7, [1], [0])
    value = helper.make_tensor_value_info
    then = [
        helper.make_node("Constant", [], ["axis"], value=axis),
        helper.make_node("Unsqueeze", ["s", "axis"], ["then"]),
    ]
    other = [
        helper.make_node("Constant", [], ["again"], value=axis),
        helper.make_node("Unsqueeze", ["x", "again"], ["else"]),
    ]
    bodies = {
        f"{name}_branch": helper.make_graph(nodes, name, [], [value(name, 1, [1, "N", 2])])
        for name, nodes in (("then", then), ("else", other))
    }
    nodes = [
        helper.make_node("Constant", [], ["c"], value=floats),
        helper.make_node("Add", ["x", "c"], ["s"]),
        helper.make_node("If", ["k"], ["y"], **bodies),
    ]
    inputs = [value("x", 1, ["N", 2]), value("k", 9, [])]
    graph = helper.make_graph(nodes, "m", inputs, [value("y", 1, [1, "N", 2])])
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


@pytest.mark.parametrize("spec", [*registry.PROFILES, "fold", "skew-gather"])
def test_without_a_site_no_byte_changes_in_memory(spec: str) -> None:
    proto = unnamed_constants()
    wanted = proto.SerializeToString(deterministic=True)
    model = ir.from_proto(unnamed_constants())
    assert not graphfix.run(proto, spec).changed
    assert not graphfix.run(model, spec).changed
    assert proto.SerializeToString(deterministic=True) == wanted
    assert ir.to_proto(model).SerializeToString(deterministic=True) == wanted


def test_no_verb_changes_a_model_that_it_is_given() -> None:
    proto = unnamed_constants()
    wanted = proto.SerializeToString(deterministic=True)
    graphfix.check(proto)
    graphfix.plan(proto)
    assert graphfix.verify(proto, graphfix.fix(proto, "fast"))
    assert proto.SerializeToString(deterministic=True) == wanted


def test_passes_are_given_as_text_as_objects_or_as_several_of_them() -> None:
    made = registry.get_pass("additive-mask", floor=-1e3)
    assert pipeline.resolve_passes("fold,bool-cast") == [
        registry.get_pass("fold"),
        registry.get_pass("bool-cast"),
    ]
    assert pipeline.resolve_passes(made) == [made]
    several = pipeline.resolve_passes(["fold,bool-cast", made])
    assert [x.name for x in several] == ["fold", "bool-cast", "additive-mask"]
    assert several[2] is made
    assert pipeline.resolve_passes([]) == []


@pytest.mark.parametrize("passes", [3, [3], ["fold", None], None])
def test_what_are_no_passes(passes: object) -> None:
    with pytest.raises(UsageError, match="is no pass; give names, as -p takes them, or passes"):
        pipeline.resolve_passes(passes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "specs"),
    [
        ("fix-dims:T=7,B=2", ["fix-dims:T=7:B=2"]),
        ("float16:keep=a,b", ["float16:keep=a+b"]),
        # The next pass, or profile, is no name of a node.
        ("float16:keep=a,fold", ["float16:keep=a", "fold"]),
        ("additive-mask:floor=-1e3,fold", ["additive-mask:floor=-1000", "fold"]),
    ],
)
def test_a_comma_goes_on_with_values_where_an_option_takes_several(
    text: str, specs: list[str]
) -> None:
    assert [x.spec() for x in pipeline.parse_passes(text)] == specs


def test_a_word_behind_an_option_of_one_value_is_a_pass() -> None:
    with pytest.raises(UsageError, match="T=7,40 are several sizes, and one model has one"):
        pipeline.parse_passes("fix-dims:T=7,40")
    with pytest.raises(UsageError, match="there is no pass 'no-such-pass'"):
        pipeline.parse_passes("additive-mask:floor=-1e3,no-such-pass")


@pytest.mark.parametrize(
    ("passes", "ep", "of_profiles", "not_of_profiles", "provider"),
    [
        ("directml", "cpu", {"fold", "additive-mask"}, {"fuse-gelu"}, "dml"),
        ("fast", "cpu", {"fold", "fuse-gelu"}, set(), "dml"),
        ("fast", "webgpu", {"fuse-gelu"}, {"fuse-attention"}, "webgpu"),
        ("fast-webgpu", "cpu", {"fuse-gelu"}, {"fuse-attention"}, "webgpu"),
        ("fast-cpu", "cpu", {"fuse-gelu:approximate=yes"}, {"fuse-gelu"}, None),
        ("directml,fold", "dml", {"additive-mask"}, {"fold"}, "dml"),
        ("fold,float16", "cpu", set(), {"fold"}, None),
        (
            ["directml", "fix-dims:T=5", registry.get_pass("fold")],
            "cpu",
            {"bool-cast"},
            {"fold"},
            "dml",
        ),
    ],
)
def test_passes_that_only_a_profile_names(
    passes: Any, ep: Any, of_profiles: set[str], not_of_profiles: set[str], provider: str | None
) -> None:
    specs, counted_on = pipeline.passes_of_profiles(passes, ep)
    assert of_profiles <= specs
    assert not not_of_profiles & specs
    assert counted_on == provider
