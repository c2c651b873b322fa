"""What every pass owes, whoever wrote it. Found by folder: a new pass is tested by being there."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import onnx_ir as ir
import pytest

import graphfix
from graphfix.core import Pass, interface_changes_of
from graphfix.engine import pipeline, registry
from graphfix.errors import PaddingError, UsageError
from graphfix.facts import shapes
from graphfix.graph.nodes import is_op
from graphfix.graph.text import node_text, operand_text
from graphfix.spec.manual import manual_of
from tests.passes.models import refusals

NAMES = registry.pass_names()
FOLDER = Path(__file__).parents[2] / "passes"


def repaired(name: str) -> tuple[ir.Model, ir.Model, graphfix.Report]:
    manual = manual_of(registry.pass_class(name))
    before, after = ir.from_onnx_text(manual.before), ir.from_onnx_text(manual.before)
    # A check shows in Before what its fix repairs, so the example runs with that fix.
    return before, after, graphfix.run(after, manual.spec or name)


def canonical(model: ir.Model, known: set[str]) -> str:
    """A model as text that two equal graphs share: signature, then nodes, constants in place.

    Node names, metadata and the names of small constants take no part.

    Args:
        model: The model.
        known: A tensor with another name is called by the order in which it appears, so that a
            manual may give readable names to what a pass names ``gf_...``.
    """
    names: dict[str, str] = {}

    def rename(value: ir.Value | None) -> str:
        name = operand_text(value)
        if value is None or name in known or name != value.name:
            return name
        return names.setdefault(name, f"new_{len(names)}")

    graph = model.graph
    lines = [f"opset {version} {domain}" for domain, version in sorted(model.opset_imports.items())]
    lines += [f"in {x.name}: {x.type} {x.shape}" for x in graph.inputs]
    lines += [f"out {x.name}: {x.type} {x.shape}" for x in graph.outputs]
    for body in (graph, *graph.subgraphs(), *(f.graph for f in model.functions.values())):
        lines += [node_text(node, rename) for node in body if not is_op(node, "Constant")] + [""]
    return "\n".join(lines)


def names_in(model: ir.Model) -> set[str]:
    made = (x.name for node in model.graph.all_nodes() for x in node.outputs)
    return {*made, *(x.name for x in model.graph.inputs)}


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_the_folder_is_the_catalogue() -> None:
    files = {
        f.stem.replace("_", "-") for f in FOLDER.glob("*/[a-z]*.py") if f.parent.name != "common"
    }
    assert files == set(NAMES)


def test_the_file_is_named_after_the_pass(name: str) -> None:
    cls = registry.pass_class(name)
    assert cls.__module__.startswith("graphfix.passes.")
    assert cls.__module__.rpartition(".")[2] == name.replace("-", "_")
    assert cls.name == name


def test_a_pass_is_a_frozen_dataclass_with_a_default_for_each_option(name: str) -> None:
    cls = registry.pass_class(name)
    assert dataclasses.is_dataclass(cls)
    made = cls()
    assert cls() == made
    assert hash(cls()) == hash(made)
    for option in dataclasses.fields(cls):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, option.name, None)


def test_its_spec_goes_both_ways(name: str) -> None:
    made = registry.make_pass(name)
    assert pipeline.parse_passes(pipeline.spec_of([made])) == [made]


def test_before_becomes_after(name: str) -> None:
    before, after, report = repaired(name)
    wanted = ir.from_onnx_text(manual_of(registry.pass_class(name)).after)
    assert report.changed
    assert canonical(after, names_in(before)) == canonical(wanted, names_in(before))


def test_before_and_after_compute_the_same(name: str) -> None:
    before, after, report = repaired(name)
    may_change = interface_changes_of([registry.make_pass(name)])
    verdict = graphfix.verify(before, after, safety=report.safety, may_change=may_change)
    assert verdict.ok, str(verdict)


def test_a_second_run_changes_nothing(name: str) -> None:
    _, after, _ = repaired(name)
    text = ir.to_proto(after).SerializeToString(deterministic=True)
    manual = manual_of(registry.pass_class(name))
    assert not graphfix.run(after, manual.spec or name).changed
    assert ir.to_proto(after).SerializeToString(deterministic=True) == text


def test_what_it_leaves_alone_stays_for_the_reason(name: str) -> None:
    manual = manual_of(registry.pass_class(name))
    for example in manual.left_alone:
        reasons = refusals(ir.from_onnx_text(example.model), manual.spec or name)
        assert bool(reasons) == bool(example.reason), (example.why, reasons)
        assert not reasons or any(example.reason in x for x in reasons), (example.why, reasons)


@pytest.mark.parametrize("known", ["rank", "nothing"])
def test_a_graph_that_says_no_sizes_gives_a_result_or_a_sentence(name: str, known: str) -> None:
    manual = manual_of(registry.pass_class(name))
    for text in (manual.before, *(x.model for x in manual.left_alone)):
        model = ir.from_onnx_text(text)
        for value in (*model.graph.inputs, *model.graph.outputs):
            rank = len(value.shape) if value.shape is not None else 0
            value.shape = ir.Shape([None] * rank) if known == "rank" else None
        with contextlib.suppress(UsageError, PaddingError):
            graphfix.run(model, manual.spec or name)


def test_new_nodes_say_who_made_them(name: str) -> None:
    before, after, _ = repaired(name)
    old = {node.outputs[0].name: node.op_type for node in before.graph.all_nodes()}
    for node in after.graph:
        if old.get(node.outputs[0].name) != node.op_type:
            assert node.metadata_props["graphfix.pass"] == name
    assert name in after.metadata_props["graphfix.pipeline"]


def test_looking_does_not_edit(name: str) -> None:
    before, looked, _ = repaired(name)
    looked = ir.from_onnx_text(manual_of(registry.pass_class(name)).before)
    found = list(registry.make_pass(name).sites(looked))
    assert found
    assert ir.to_proto(looked) == ir.to_proto(before)


def test_it_composes_with_onnx_ir(name: str) -> None:
    made = registry.make_pass(name)
    if not isinstance(made, Pass):
        pytest.skip(f"{name} only looks")
    model = ir.from_onnx_text(manual_of(type(made)).before)
    result = ir.passes.Sequential(made)(model)
    assert result.model is model


def test_a_graph_without_sites_keeps_every_byte(name: str) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        m (float[N, 4] x) => (float[N, 4] z) { y = Relu (x) z = Add (y, x) }"""
    model = ir.from_onnx_text(text)
    refusals(model, name)


def test_shapes_that_are_kept_are_those_of_the_repaired_graph(name: str) -> None:
    manual = manual_of(registry.pass_class(name))
    model = ir.from_onnx_text(manual.before)
    shapes.shapes_of(model)
    graphfix.run(model, manual.spec or name)
    kept, again = shapes.shapes_of(model), shapes.infer(model)
    for graph in (model.graph, *model.graph.subgraphs()):
        for value in (x for node in graph for x in node.outputs):
            inferred = again.dims(value)
            known = kept.dims(value)
            if inferred is None or not all(map(shapes.is_known_dim, inferred)):
                continue
            assert known is not None, value.name
            assert [_at_sizes(x) for x in known] == [_at_sizes(x) for x in inferred], value.name
            assert kept.dtype(value) == again.dtype(value), value.name


def _at_sizes(dim: shapes.Dim) -> int | None:
    """A dim where T is 20 and every other symbol is another number: some sizes may not be 0."""
    if isinstance(dim, int):
        return dim
    return dim.evaluate({name: 11 + ord(name[0]) - ord("K") for name in dim.free_symbols()})
