"""After a profile, none of its passes has anything left: what one makes, one before it repairs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from graphfix.core import Match, NodePass
from graphfix.engine import pipeline, registry
from graphfix.engine.report import ROUNDS
from graphfix.facts import shapes
from graphfix.spec.manual import manual_of

if TYPE_CHECKING:
    from graphfix.editing.builder import Builder
    from graphfix.facts.view import View

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
# A start that is the lowest integer only once it is computed: fold runs behind slice-start.
COMPUTED = f"""{HEAD} m (float[B, T, 4] x) => (float[B, U, 4] y)
    <int64[1] low = {{-9223372036854775807}}, int64[1] one = {{1}}, int64[1] end = {{-2}},
     int64[1] axis = {{1}}>
    {{ start = Sub (low, one) s = Slice (x, start, end, axis) y = Relu (s) }}"""


def left_for(profile: str, model: ir.Model) -> list[str]:
    """The passes of a profile that have a site, with shapes inferred again."""
    fresh = ir.from_proto(ir.to_proto(model))
    passes = pipeline.parse_passes(profile)
    return [x.name for x in passes if any(isinstance(y, Match) for y in x.sites(fresh))]


def test_what_a_later_pass_makes_an_earlier_one_repairs() -> None:
    model = ir.from_proto(onnx.parser.parse_model(COMPUTED))
    report = graphfix.run(model)
    by = {done.name: len(done.changes) for done in report.passes if done.changes}
    assert by == {"slice-start": 1, "fold": 1}
    assert not [x for x in graphfix.check(model) if x.severity == "error"]
    assert report.spec == ",".join(registry.PROFILES["directml"])


def test_before_a_pass_that_rounds_the_others_have_their_turns() -> None:
    text = COMPUTED.replace("y = Relu (s)", "r = MatMul (s, w) y = Relu (r)")
    text = text.replace(
        "int64[1] axis", f"float[4, 4] w = {{{', '.join(['0.5'] * 16)}}}, int64[1] axis"
    )
    model = ir.from_proto(onnx.parser.parse_model(text))
    report = graphfix.run(model, "slice-start,fold,float16")
    assert [bool(done.changes) for done in report.passes] == [True, True, True]
    assert not left_for("slice-start,fold", model)
    starts = [x for x in model.graph if x.op_type == "Slice"]
    assert [node.inputs[1].const_value.numpy().tolist() for node in starts] == [[0]]


def test_what_a_pass_that_rounds_leaves_over_is_folded() -> None:
    """An Identity stays where it makes an output; behind it, float16 puts a Cast."""
    text = f"""{HEAD} m (float[B, 2] x) => (float[B, 2] y) <float[2, 2] w = {{0.5, 1, 2, 4}}>
        {{ h = MatMul (x, w) t = Tanh (h) y = Identity (t) }}"""
    model = ir.from_onnx_text(text)
    graphfix.run(model, "fold,float16")
    assert [x.op_type for x in model.graph] == ["Cast", "MatMul", "Tanh", "Cast"]
    assert not graphfix.run(model, "fold,float16").changed


def test_what_becomes_one_lets_what_is_made_of_it_become_one() -> None:
    """Their sizes were of two names as long as they were made by two NonZeros."""
    side = " ".join(
        f"n{i + 1} = NonZero (r{i}) r{i + 1} = Reshape (n{i + 1}, all)" for i in range(3)
    )
    sides = [re.sub(r"\b([nr]\d)", rf"{x}_\1", side).replace(f"{x}_r0", "x") for x in "ab"]
    text = f"""{HEAD} m (float[B, T] x) => (int64[N] y) <int64[1] all = {{-1}}>
        {{ {" ".join(sides)} y = Add (a_r3, b_r3) }}"""
    model = ir.from_onnx_text(text)
    graphfix.run(model, "fold")
    assert [x.op_type for x in model.graph] == [*["NonZero", "Reshape"] * 3, "Add"]
    assert not left_for("fold", model)


def test_shapes_that_are_not_all_known_are_inferred_anew() -> None:
    known = ir.from_proto(onnx.parser.parse_model(COMPUTED))
    text = COMPUTED.replace(
        "start = Sub (low, one)",
        "n = NonZero (x) start = ReduceMax <axes = [0, 1], keepdims = 0> (n)",
    )
    unknown = ir.from_proto(
        onnx.parser.parse_model(text.replace("float[B, U, 4] y", "float[P, Q, R] y"))
    )
    assert [shapes.drop_incomplete_shapes(model) for model in (known, unknown)] == [False, False]
    for model in (known, unknown):
        shapes.shapes_of(model)
    assert not shapes.drop_incomplete_shapes(known)
    assert shapes.drop_incomplete_shapes(unknown)


@dataclass(frozen=True)
class Swaps(NodePass[Match]):
    """Turns one operator into another; a pair of them would take turns forever."""

    name: ClassVar[str] = "swaps"

    one: str = "Relu"
    other: str = "Abs"
    anchors: ClassVar[tuple[str, ...]] = ("Relu", "Abs")

    def match(self, node: ir.Node, view: View) -> Match | None:
        return Match(node) if node.op_type == self.one else None

    def rewrite(self, match: Match, op: Builder) -> ir.Value:
        return op.make(self.other, match.node.inputs[0])


def test_passes_that_undo_each_other_end() -> None:
    model = ir.from_proto(onnx.parser.parse_model(COMPUTED))
    report = graphfix.run(model, [Swaps(), Swaps("Abs", "Relu"), registry.get_pass("slice-start")])
    assert 1 < len(report.passes[0].changes) < 20
    assert report.endless == ("swaps", "swaps:one=Abs:other=Relu")


def test_passes_that_come_to_an_end_are_not_called_endless() -> None:
    model = ir.from_proto(onnx.parser.parse_model(COMPUTED))
    assert graphfix.run(model).endless == ()


@dataclass(frozen=True)
class SwapsAWhile(Swaps):
    """The same, so many times."""

    name: ClassVar[str] = "swaps-a-while"
    left: ClassVar[dict[str, int]] = {}

    def match(self, node: ir.Node, view: View) -> Match | None:
        return super().match(node, view) if self.left[self.one] else None

    def rewrite(self, match: Match, op: Builder) -> ir.Value:
        self.left[self.one] -= 1
        return super().rewrite(match, op)


@pytest.mark.parametrize("more", [0, 1])
def test_passes_that_end_in_the_last_round_are_not_called_endless(more: int) -> None:
    times = 1 + ROUNDS + more
    SwapsAWhile.left.update({"Relu": times, "Abs": times})
    model = ir.from_proto(onnx.parser.parse_model(COMPUTED))
    report = graphfix.run(model, [SwapsAWhile(), SwapsAWhile("Abs", "Relu")])
    assert len(report.passes[0].changes) == 1 + ROUNDS
    assert bool(report.endless) == bool(more)


@dataclass(frozen=True)
class Uncasts(Swaps):
    """Finds what float16 makes."""

    name: ClassVar[str] = "uncasts"
    anchors: ClassVar[tuple[str, ...]] = ("Cast",)
    one: str = "Cast"
    other: str = "Identity"


@dataclass(frozen=True)
class UncastsLoosely(Uncasts):
    """The same, of a pass that keeps numbers under a condition only."""

    safety: ClassVar[str] = "conditional"  # type: ignore[assignment]


@pytest.mark.parametrize(("one", "has_more"), [(Uncasts(), True), (UncastsLoosely(), False)])
def test_behind_a_pass_that_rounds_only_exact_ones_have_turns(
    one: Uncasts, *, has_more: bool
) -> None:
    text = f"""{HEAD} m (float[B, 2] x) => (float[B, 2] y) <float[2, 2] w = {{0.5, 1, 2, 4}}>
        {{ y = MatMul (x, w) }}"""
    report = graphfix.run(ir.from_onnx_text(text), [one, registry.get_pass("float16")])
    assert [bool(done.changes) for done in report.passes] == [has_more, True]


# Each manual of a pass shows a graph with a site. Its constants are computed here, so that what
# makes it a site is there only when another pass has run.


def computed(value: ir.Value) -> ir.Node | None:
    """A node that makes a constant of another; None if it is of no type that this is done for."""
    assert value.const_value is not None
    array = value.const_value.numpy()
    if array.dtype.kind == "i":
        one = np.ones_like(array)
        down = bool((array > 0).all())
        other = ir.tensor(array - one if down else array + one, name=f"{value.name}_other")
        operands, op = [other, ir.tensor(one, name=f"{value.name}_one")], "Add" if down else "Sub"
    elif array.dtype == np.bool_:
        operands, op = [ir.tensor(~array, name=f"{value.name}_other")], "Not"
    elif array.dtype == np.float32:
        operands, op = [ir.tensor(-array, name=f"{value.name}_other")], "Neg"
    else:
        return None
    graph = value.graph
    assert graph is not None
    made = []
    for tensor in operands:
        one_value = ir.Value(
            name=tensor.name, shape=ir.Shape(tensor.shape), type=ir.TensorType(tensor.dtype)
        )
        one_value.const_value = tensor
        graph.register_initializer(one_value)
        made.append(one_value)
    return ir.node(op, made, num_outputs=1)


def hide(model: ir.Model, names: set[str]) -> None:
    """Let these constants of the graph be computed."""
    for value in [x for x in model.graph.initializers.values() if x.name in names]:
        node = computed(value)
        if node is None:
            continue
        name = value.name
        model.graph.initializers.pop(name or "")
        value.replace_all_uses_with(node.outputs[0])
        node.outputs[0].name = name
        model.graph.insert_before(model.graph[0], node)


SHOWN = [
    (profile, name)
    for profile in ("directml", "fast")
    for name in dict.fromkeys(x.partition(":")[0] for x in registry.PROFILES[profile])
    if name != "fresh-shapes"  # its sites are shapes
]


@pytest.mark.parametrize(("profile", "name"), SHOWN)
@settings(max_examples=3)
@given(data=st.data())
def test_nothing_is_left_of_what_only_folding_shows(
    profile: str, name: str, data: st.DataObject
) -> None:
    manual = manual_of(registry.pass_class(name))
    model = ir.from_onnx_text(manual.before)
    constants = sorted(model.graph.initializers)
    hide(model, data.draw(st.sets(st.sampled_from(constants or ["none"]))))
    report = graphfix.run(model, profile)
    assert report.changed or manual.spec  # some show what their options do
    assert not left_for(profile, model)
