"""The core: options, the builder, the registry, the pipeline."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.core import Match, NodePass, Skip, weakest_promise
from graphfix.engine import pipeline, registry
from graphfix.errors import PluginError, UsageError
from graphfix.facts import shapes
from graphfix.facts.numbering import ValueNumbering
from graphfix.graph.constants import const_of, scalar_of
from graphfix.spec import options

if TYPE_CHECKING:
    from pathlib import Path

    from graphfix.core import Safety
    from graphfix.editing.builder import Builder
    from graphfix.facts.view import View


def model(text: str) -> ir.Model:
    return ir.from_onnx_text('<ir_version: 8, opset_import: ["" : 17]>\n' + text)


def lines(m: ir.Model) -> list[str]:
    return [graphfix.graph.text.node_text(node) for node in m.graph]


@dataclass(frozen=True)
class Doubled(NodePass[Match]):
    """Relu(x) becomes x + x: wrong arithmetic, right graph surgery."""

    name: ClassVar[str] = "doubled"
    anchors: ClassVar[tuple[str, ...]] = ("Relu",)

    times: int = 1
    bias: float | None = None
    style: Literal["plain", "existing", "once"] = "plain"
    loud: bool = False

    def match(self, node: ir.Node, view: View) -> Match | Skip | None:
        if node.metadata_props.get("leave"):
            return Skip(node, "it says so")
        return Match(node)

    def rewrite(self, match: Match, op: Builder) -> ir.Value:
        x = match.node.inputs[0]
        assert x is not None
        if self.style == "existing":
            return x
        if self.style == "once":
            return op.Add(x, op.build_once("two", lambda: op.Mul(x, np.float32(2)[None])))
        return op.Add(x, x)


def test_what_a_pass_is_unless_it_says_so() -> None:
    m = model("m (float[N] x) => (float[N] y) { y = Relu (x) }")
    usual = Doubled()
    assert usual.is_removable
    assert not usual.optional
    assert usual.supports_site_exclusion()
    assert usual.exclusion_of(m, m.graph[0]) is None
    assert usual.runs_at(m) == {}


class TestOptions:
    @pytest.mark.parametrize(
        ("text", "want"),
        [
            ({}, Doubled()),
            ({"times": "3"}, Doubled(times=3)),
            ({"bias": "none"}, Doubled()),
            ({"bias": "-1e3"}, Doubled(bias=-1000.0)),
            ({"style": "once", "loud": "yes"}, Doubled(style="once", loud=True)),
        ],
    )
    def test_text_becomes_typed(self, text: dict[str, str], want: Doubled) -> None:
        made = options.make_instance(Doubled, "doubled", text)
        assert made == want
        given = dict(pair.split("=") for pair in made.spec().split(":")[1:])
        assert options.make_instance(Doubled, "doubled", given) == made

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ({"tims": "3"}, "did you mean 'times'"),
            ({"nothing": "3"}, "Its options: times, bias, style, loud"),
            ({"times": "three"}, "not a whole number"),
            ({"bias": "high"}, "not a number"),
            ({"style": "fancy"}, "none of plain, existing, once"),
            ({"loud": "maybe"}, "neither yes nor no"),
        ],
    )
    def test_what_does_not_fit_says_what_would(self, text: dict[str, str], says: str) -> None:
        with pytest.raises(UsageError, match=says):
            options.make_instance(Doubled, "doubled", text)


class TestBuilder:
    def test_a_repaired_tensor_keeps_name_type_shape_and_node_provenance(self) -> None:
        m = model("m (float[N] x) => (float[N] z) { y = Relu (x) z = Neg (y) }")
        m.graph[0].metadata_props["namespace"] = "encoder.act"
        result = Doubled()(m)
        add = m.graph[0]
        assert (add.op_type, add.outputs[0].name) == ("Add", "y")
        assert add.metadata_props == {"namespace": "encoder.act", "graphfix.pass": "doubled"}
        assert result.changes[0].removed == ("y = Relu (x)",)
        assert result.changes[0].added == ("y = Add (x, x)",)

    def test_a_graph_output_keeps_its_name(self) -> None:
        m = model("m (float[N] x) => (float[N] y) { y = Relu (x) }")
        Doubled()(m)
        assert lines(m) == ["y = Add (x, x)"]
        assert m.graph.outputs[0].producer() is m.graph[0]

    def test_an_existing_value_is_not_renamed(self) -> None:
        # onnx-ir's own replace_nodes_and_values would rename the graph input.
        m = model("m (float[N] x) => (float[N] z) { y = Relu (x) z = Neg (y) }")
        Doubled(style="existing")(m)
        assert lines(m) == ["z = Neg (x)"]
        assert m.graph.inputs[0].name == "x"

    def test_an_output_that_becomes_an_input_gets_an_identity(self) -> None:
        m = model("m (float[N] x) => (float[N] y) { y = Relu (x) }")
        Doubled(style="existing")(m)
        assert lines(m) == ["y = Identity (x)"]

    def test_what_only_the_site_used_goes_with_it_and_other_dead_code_stays(self) -> None:
        m = model("""m (float[N] x) => (float[N] y) <float[1] w = {2.0}, float[1] v = {3.0}>
            { dead = Mul (x, v) only = Mul (x, w) y = Relu (only) }""")
        site = m.graph[2]

        class Cut(Doubled):
            def rewrite(self, match: Match, op: Builder) -> ir.Value:
                return op.Neg(m.graph.inputs[0])

        result = Cut()(m)
        assert site.graph is None
        assert lines(m) == ["dead = Mul (x, {3})", "y = Neg (x)"]
        assert list(m.graph.initializers) == ["v"]
        assert result.changes[0].removed == ("only = Mul (x, {2})", "y = Relu (only)")

    def test_a_small_constant_is_told_where_it_was_read_and_has_no_line(self) -> None:
        m = model("""m (float[9] x) => (float[9] y) {
            two = Constant <value = float {2.0}> ()
            many = Constant <value = float[9] {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0}> ()
            twice = Mul (many, two) only = Add (x, twice) y = Relu (only) }""")

        class Cut(Doubled):
            def rewrite(self, match: Match, op: Builder) -> ir.Value:
                one = op.make("Constant", value=ir.tensor(np.float32(1)))
                return op.Sub(m.graph.inputs[0], one)

        change = Cut()(m).changes[0]
        assert change.removed == (
            "many = Constant <value = ...> ()",
            "twice = Mul (many, 2)",
            "only = Add (x, twice)",
            "y = Relu (only)",
        )
        assert change.added == ("y = Sub (x, 1)",)

    def test_the_text_of_a_change_is_of_its_time_whenever_it_is_read(self) -> None:
        texts = []
        for early in (True, False):
            m = model("""m (float[N] x) => (float[N] z) <float[2] w = {2.0, 3.0}>
                { only = Mul (x, w) y = Relu (only) z = Neg (y) }""")
            change = Doubled(style="once")(m).changes[0]
            if early:
                texts.append((change.removed, change.added))
                continue
            for node in m.graph:
                node.outputs[0].name = f"new_{node.outputs[0].name}"
                node.attributes["more"] = ir.AttrInt64("more", 1)
            m.graph.inputs[0].name = "other"
            sent = pickle.dumps(change)
            assert b"onnx_ir" not in sent
            copied, there = copy.copy(change), pickle.loads(sent)
            assert copied == there == change == dataclasses.replace(change)
            texts.append((there.removed, there.added))
            assert dataclasses.asdict(change)["removed"] == change.removed
        assert texts[0] == texts[1]

    def test_what_has_no_change_of_it_has_no_such_text(self) -> None:
        change = Doubled()(model("m (float[N] x) => (float[N] y) { y = Relu (x) }")).changes[0]
        with pytest.raises(AttributeError, match="more"):
            change.more  # noqa: B018

    def test_equal_constants_are_shared(self) -> None:
        m = model("m (float[N] x) => (float[N] b) { a = Relu (x) b = Relu (a) }")

        class Plus(Doubled):
            def rewrite(self, match: Match, op: Builder) -> ir.Value:
                return op.Add(match.node.inputs[0], np.ones((1,), np.float32))

        Plus()(m)
        assert len(m.graph.initializers) == 1

    def test_once_is_built_where_it_dominates(self) -> None:
        m = model("""m (float[N] x, bool c) => (float[N] y) {
            y = If (c) <
              then_branch = t () => (float[N] a) { a = Relu (x) },
              else_branch = e () => (float[N] b) { b = Relu (x) }> }""")

        class Once(Doubled):
            def rewrite(self, match: Match, op: Builder) -> ir.Value:
                x = match.node.inputs[0]
                return op.Sub(x, op.build_once("k", lambda: op.Neg(x), x))

        Once()(m)
        assert [n.op_type for n in m.graph] == ["Neg", "If"]
        assert [n.op_type for n in m.graph.all_nodes()] == ["Neg", "If", "Sub", "Sub"]

    def test_new_names_avoid_those_of_any_scope(self) -> None:
        m = model("""m (float[N] x, bool c) => (float[N] z) {
            y = Relu (x)
            z = If (c) <
              then_branch = t () => (float[N] a) {
                gf_doubled_0 = Neg (y) a = Neg (gf_doubled_0) },
              else_branch = e () => (float[N] b) { b = Neg (y) }> }""")
        Doubled(style="once")(m)
        names = [x.name for n in m.graph.all_nodes() for x in n.outputs]
        assert len(names) == len(set(names))


class TestDriver:
    def test_a_skip_is_reported_and_the_node_stays(self) -> None:
        m = model("m (float[N] x) => (float[N] y) { y = Relu (x) }")
        m.graph[0].metadata_props["leave"] = "yes"
        m.graph[0].name = "act"
        result = Doubled()(m)
        assert result.skips == (("act", "it says so"),)
        assert not result.modified
        assert lines(m) == ["y = Relu (x)"]

    def test_check_finds_what_run_would_repair(self) -> None:
        m = model("m (float[N] x) => (float[N] y) { y = Relu (x) }")
        found = graphfix.check(m, Doubled(times=2))
        assert [(f.rule, f.severity, f.fix) for f in found] == [
            ("doubled", "warning", "doubled:times=2")
        ]
        assert lines(m) == ["y = Relu (x)"]

    def test_the_model_carries_the_pipeline(self) -> None:
        m = model("m (float[N] x) => (float[N] y) { y = Relu (x) }")
        report = graphfix.run(m, Doubled(times=2))
        assert m.metadata_props["graphfix.pipeline"] == report.spec == "doubled:times=2"
        assert (report.ops_before, report.ops_after) == ({"Relu": 1}, {"Add": 1})


class TestPipeline:
    def test_a_profile_may_stand_among_passes(self) -> None:
        names = [p.name for p in pipeline.parse_passes("directml,additive-mask:floor=-2000")]
        assert names == [*registry.PROFILES["directml"], "additive-mask"]

    @pytest.mark.parametrize(
        ("spec", "says"),
        [
            ("aditive-mask", "did you mean 'additive-mask'"),
            ("", "there is no pass ''"),
            ("directml:floor=1", "a profile and takes no options"),
            ("additive-mask:floor", "write floor=VALUE"),
            ("additive-mask:flor=1", "did you mean 'floor'"),
        ],
    )
    def test_a_bad_spec_says_what_would_fit(self, spec: str, says: str) -> None:
        with pytest.raises(UsageError, match=says):
            pipeline.parse_passes(spec)


PLUGIN = '''
from dataclasses import dataclass
from typing import ClassVar
import graphfix

@dataclass(frozen=True)
class Mine(graphfix.NodePass[graphfix.Match]):
    """Relu becomes Abs."""
    name: ClassVar[str] = "{name}"
    anchors: ClassVar[tuple[str, ...]] = ("Relu",)
    def match(self, node, view):
        return graphfix.Match(node)
    def rewrite(self, match, op):
        return op.Abs(match.node.inputs[0])
'''


class TestPlugins:
    @pytest.fixture(autouse=True)
    def forget(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(registry, "_plugins", {})

    def test_a_file_adds_passes(self, tmp_path: Path) -> None:
        file = tmp_path / "mine.py"
        file.write_text(PLUGIN.format(name="relu-abs"))
        assert graphfix.load_plugin(file) == ["relu-abs"]
        m = model("m (float[N] x) => (float[N] y) { y = Relu (x) }")
        graphfix.run(m, "relu-abs")
        assert lines(m) == ["y = Abs (x)"]
        assert "relu-abs" in registry.pass_names()

    def test_one_without_a_name_is_called_after_its_class(self, tmp_path: Path) -> None:
        file = tmp_path / "mine.py"
        nameless = PLUGIN.replace('    name: ClassVar[str] = "{name}"\n', "")
        abstract = "class Base(graphfix.Check):\n    pass\n"
        file.write_text(nameless.replace("Mine", "ReluToAbs2") + abstract)
        assert graphfix.load_plugin(file) == ["relu-to-abs2"]

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("1/0", "division by zero"),
            ("x = 1", "defines no pass"),
            (PLUGIN.format(name="additive-mask"), "exists already"),
        ],
    )
    def test_a_file_that_cannot_be_used_says_why(
        self, tmp_path: Path, text: str, says: str
    ) -> None:
        file = tmp_path / "mine.py"
        file.write_text(text)
        with pytest.raises(PluginError, match=says):
            graphfix.load_plugin(file)

    def test_a_missing_file_says_so(self, tmp_path: Path) -> None:
        with pytest.raises(PluginError, match="not a Python file"):
            graphfix.load_plugin(tmp_path / "none.py")

    def test_an_entry_point_adds_a_pass(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Point:
            name, value = "doubled", "elsewhere:Doubled"

            def load(self) -> type:
                return Doubled

        monkeypatch.setattr(registry.importlib.metadata, "entry_points", lambda group: [Point()])
        assert pipeline.parse_passes("doubled:times=4") == [Doubled(times=4)]
        assert {e.name: e.summary for e in registry.list_entries()}["doubled"].startswith("Relu")


class TestValues:
    def test_an_initializer_that_is_an_input_is_no_constant(self) -> None:
        m = model("""m (float[1] w, float[1] x) => (float[1] y) <float[1] w = {1}>
            { y = Add (w, x) }""")
        assert const_of(m.graph.initializers["w"]) is None

    def test_constants_are_read_through_identity(self) -> None:
        m = model("""m (float[1] x) => (float[1] y)
            { a = Constant <value_float = 2.0> () b = Identity (a) y = Add (b, x) }""")
        assert scalar_of(m.graph[2].inputs[0]) == 2.0

    def test_large_constants_are_not_read(self) -> None:
        m = model("m (float[1] x) => (float[1] y) { y = Neg (x) }")

        class Unread(ir.LazyTensor):
            def numpy(self) -> np.ndarray:
                raise AssertionError("a weight was read")

        value = ir.Value(name="w")
        value.const_value = Unread(
            lambda: ir.tensor(np.zeros(5000, np.float32)),
            dtype=ir.DataType.FLOAT, shape=ir.Shape([5000]), name="w",
        )  # fmt: skip
        m.graph.register_initializer(value)
        assert const_of(value) is None

    def test_equal_computations_have_equal_numbers(self) -> None:
        m = model("""m (int64[N] x) => (int64[N] a, int64[N] b, int64[N] c, float[N] d, float[N] e)
            <int64 one = {1}, int64 uno = {1}, int64 two = {2}>
            { a = Add (x, one) b = Add (x, uno) c = Add (x, two)
              f = Cast <to = 1> (x) g = ConstantOfShape <value = int64[1] {1}> (x)
              h = ConstantOfShape <value = int64[1] {1}> (x)
              i = ConstantOfShape <value = int64[1] {2}> (x)
              d = RandomUniformLike (f) e = RandomUniformLike (f) }""")
        number = ValueNumbering(lambda _: None).number_of
        a, b, c, d, e = m.graph.outputs
        assert number(a) == number(b) != number(c)
        assert number(d) != number(e)
        g, h, i = (node.outputs[0] for node in m.graph if node.op_type == "ConstantOfShape")
        assert number(g) == number(h) != number(i)

    def test_deep_chains_do_not_overflow_the_stack(self) -> None:
        steps = " ".join(f"x{i + 1} = Neg (x{i})" for i in range(3000))
        m = model(f"m (float[N] x0) => (float[N] x3000) {{ {steps} }}")
        assert isinstance(ValueNumbering(lambda _: None).number_of(m.graph.outputs[0]), int)


class TestShapes:
    def test_they_are_kept_beside_the_model(self) -> None:
        m = model("m (float[N, 4] x) => (float[A, B] y) { a = Relu (x) y = Transpose (a) }")
        before = ir.to_proto(m)
        known = shapes.shapes_of(m)
        assert [str(d) for d in known.dims(m.graph.outputs[0])] == ["4", "N"]
        assert ir.to_proto(m) == before
        assert shapes.shapes_of(m) is known

    def test_stale_value_info_is_not_believed(self) -> None:
        m = model("m (float[N, 4] x) => (float[N, 4] y) { a = Relu (x) y = Neg (a) }")
        m.graph[0].outputs[0].shape = ir.Shape([7, 7])
        assert [str(d) for d in shapes.shapes_of(m).dims(m.graph[0].outputs[0])] == ["N", "4"]

    @pytest.mark.parametrize(
        ("a", "b", "equal"),
        [
            (3, 3, True), (3, 4, False), ("N", "N", True), ("N", "M", False), ("N", 3, False),
            ("N + 1", "1 + N", True), ("2*N", "N + N", True), ("N + 1", "N", False),
            (None, None, False),
        ],
    )  # fmt: skip
    def test_same_means_equal_for_every_size(
        self, a: int | str | None, b: int | str | None, equal: bool
    ) -> None:
        x, y = (d if isinstance(d, int) else ir.SymbolicDim(d) for d in (a, b))
        assert shapes.same_dim(x, y) is equal


@pytest.mark.parametrize(
    ("promises", "kept"),
    [
        ([], "exact"),
        (["exact", "conditional"], "conditional"),
        # Not the other way round: rows that one pass gives up must not be compared with another.
        (["conditional", "valid-rows", "exact"], "valid-rows"),
    ],
)
def test_what_passes_promise_together(promises: list[Safety], kept: Safety) -> None:
    assert weakest_promise(promises) == kept
