"""What every rule of ``check`` owes, found by folder, and what a finding of a pass means where."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

import graphfix
from graphfix.core import Finding
from graphfix.engine import registry
from graphfix.errors import UsageError
from graphfix.job import checking, planning
from graphfix.rules import PROVIDERS, Provider, rules
from graphfix.spec.manual import rule_manual_of

NAMES = list(rules())
# ONNX Runtime refuses the model: that is the rule.
UNLOADABLE = {"type-conflict": "Type Error"}


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def found(text: str, checks: str | None = None, ep: str = "dml") -> list[Finding]:
    return graphfix.check(ir.from_onnx_text(text), checks, ep=ep)


def severities(text: str, check: str, ep: str = "dml") -> list[str]:
    return [x.severity for x in found(text, check, ep)]


def loads(text: str) -> None:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    data = onnx.parser.parse_model(text).SerializeToString()
    ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def graph(body: str, opset: int = 18) -> str:
    return f'<ir_version: 8, opset_import: ["" : {opset}]> m {body}'


class TestEveryRule:
    def test_its_flagged_model_is_flagged(self, name: str) -> None:
        manual = rule_manual_of(rules()[name])
        ep = rules()[name].providers[0]
        got = [x for x in found(manual.flagged, ep=ep) if x.rule == name]
        assert got
        assert all(x.message and x.at for x in got)

    def test_its_clean_model_is_not(self, name: str) -> None:
        manual = rule_manual_of(rules()[name])
        for ep in rules()[name].providers:
            assert not [x for x in found(manual.clean, ep=ep) if x.rule == name]

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
        assert any(x in why for x in ("ORT", "onnxruntime-directml 1.24.4", "ONNX Runtime")), why

    def test_it_is_no_pass_and_its_providers_are_known(self, name: str) -> None:
        assert name not in registry.pass_names()
        assert set(rules()[name].providers) <= set(PROVIDERS)
        assert registry.pass_class(name) is rules()[name]

    def test_looking_does_not_edit(self, name: str) -> None:
        text = rule_manual_of(rules()[name]).flagged
        model = ir.from_onnx_text(text)
        graphfix.check(model, name)
        assert ir.to_proto(model) == ir.to_proto(ir.from_onnx_text(text))

    def test_where_it_does_not_matter_it_is_silent(self, name: str) -> None:
        manual, providers = rule_manual_of(rules()[name]), rules()[name].providers
        for ep in PROVIDERS:
            assert bool(severities(manual.flagged, name, ep)) == (ep in providers)


RESHAPE = """(float[B, T, 64] x) => (float[P, Q] y) <int64[2] s = {%s}>
    { y = Reshape <allowzero = 1> (x, s) }"""


class TestPasses:
    """How bad a site of a pass is, by provider."""

    @pytest.mark.parametrize(("shape", "severity"), [("-1, 64", "error"), ("21, 64", "note")])
    def test_allowzero_crashes_with_minus_one_alone(self, shape: str, severity: str) -> None:
        text = graph(RESHAPE % shape)
        assert severities(text, "reshape-allowzero") == [severity]
        assert severities(text, "reshape-allowzero", "cpu") == ["note"]

    def test_the_cpu_reads_a_minus_one_rightly(self) -> None:
        # Run: a Whisper encoder at opset 23, for which DirectML has no Reshape, runs as exported.
        assert severities(graph(RESHAPE % "-1, 64", 22), "reshape-allowzero") == ["error"]
        assert severities(graph(RESHAPE % "-1, 64", 23), "reshape-allowzero") == ["note"]

    @pytest.mark.parametrize(("part", "severity"), [("minus", "error"), ("rows", "note")])
    def test_the_minus_one_may_be_in_a_part(self, part: str, severity: str) -> None:
        text = graph(
            """(float[B, 8] x) => (float[P, Q] y) <int64[1] minus = {-1}, int64[1] four = {4}>
            { rows = Shape <start = 0, end = 1> (x)  s = Concat <axis = 0> (%s, four)
              y = Reshape <allowzero = 1> (x, s) }"""
        ).replace("%s", part)
        assert severities(text, "reshape-allowzero") == [severity]

    def test_a_folded_reshape_never_runs_there(self) -> None:
        text = graph(
            """(float[N] x) => (float[N] y) <float[2, 2] w = {1, 2, 3, 4}, int64[1] s = {-1}>
            { flat = Reshape <allowzero = 1> (w, s)  top = ReduceMax <keepdims = 0> (flat)
              y = Add (x, top) }"""
        )
        assert severities(text, "reshape-allowzero") == ["note"]

    def test_a_mask_of_zeros_and_ones_survives_a_cast_to_bool(self) -> None:
        given = graph(
            """(int64[B, T] mask, float[B, T] x) => (float[B, T] y)
            <float one = {1.0}, float low = {-1e4}>
            { m = Cast <to = 1> (mask)  h = Sub (one, m)  b = Cast <to = 9> (h)
              y = Where (b, low, x) }"""
        )
        assert severities(given, "bool-cast") == ["warning"]
        low = given.replace("Cast <to = 9> (h)", "Mul (h, low)  q = Cast <to = 9> (b)")
        assert severities(low.replace("Where (b", "Where (q"), "bool-cast") == ["error"]

    def test_a_stale_length_crashes_and_a_stale_width_does_not(self) -> None:
        text = """(float[B, T, 8] x) => (float[B, T, 8] y) <float[B, %s] r>
            { r = Relu (x)  y = Neg (r) }"""
        assert severities(graph(text % "100, 8"), "fresh-shapes") == ["error"]
        assert severities(graph(text % "T, 16"), "fresh-shapes") == ["warning"]

    def test_a_near_miss_is_a_note(self) -> None:
        text = graph("(float[N, 4] t, int32[M] i) => (float[M, 4] y) { y = Gather (t, i) }")
        assert severities(text, "gather-int64") == ["note"]


class TestKernels:
    def test_the_opset_to_use_is_said(self) -> None:
        text = graph("(float[N] x) => (float[N] y) { y = Sin (x) }", 22)
        (hit,) = found(text, "no-kernel")
        assert "the newest opset with one is 21" in hit.message
        assert hit.fix == "opset-ceiling"

    def test_an_operator_without_any(self) -> None:
        text = graph("(float[N] x) => (float[N] y) { y = HardSwish (x) }", 18)
        (hit,) = found(text, "no-kernel")
        assert "in any version" in hit.message
        assert hit.fix is None

    def test_what_nobody_knows_is_not_said_to_run_on_the_cpu(self) -> None:
        custom = """<ir_version: 8, opset_import: ["" : 18, "my.ops" : 1]>
            m (float[N] x) => (float[N] y) { y = my.ops.Magic (x) }"""
        (hit,) = found(custom, "no-kernel")
        assert "its library of custom operators runs it" in hit.message
        (hit,) = found(custom.replace("my.ops.Magic", "Magic"), "no-kernel")
        assert "ONNX has no such operator" in hit.message
        (hit,) = found(custom.replace("my.ops.Magic", "NonMaxSuppression"), "no-kernel")
        assert "it runs on the CPU" in hit.message

    def test_a_local_function_and_what_is_folded_need_none(self) -> None:
        text = """<ir_version: 8, opset_import: ["" : 18, "f" : 1]>
            m (float[N] x) => (float[N] y) <float[2] w = {1, 2}>
            { h = HardSwish (w)  s = ReduceMax <keepdims = 0> (h)  t = f.twice (x)
              y = Add (t, s) }
            <domain: "f", opset_import: ["" : 18]> twice (a) => (b) { b = Add (a, a) }"""
        assert not found(text, "no-kernel")

    def test_integers_that_compute_shapes_are_left_out(self) -> None:
        text = graph(
            """(float[B, T] x) => (float[P] y) <int64[1] four = {4}>
            { t = Shape <start = 1, end = 2> (x)  r = Mod (t, four)  z = ConstantOfShape (r)
              y = Neg (z) }"""
        )
        assert not found(text, "type-without-kernel")

    @pytest.mark.parametrize(
        ("node", "why"),
        [
            ("y = Resize <mode = \"cubic\"> (x, , s)", "mode=cubic"),
            ("y = ScatterElements <reduction = \"add\"> (x, i, x)", "reduction=add"),
        ],
    )  # fmt: skip
    def test_what_a_query_function_refuses(self, node: str, why: str) -> None:
        text = graph(
            f"""(float[1, 1, 4, 4] x, int64[1, 1, 4, 4] i) => (float[1, 1, H, W] y)
            <float[4] s = {{1, 1, 2, 2}}> {{ {node} }}""",
            16,
        )
        (hit,) = found(text, "refused-by-kernel")
        assert why in hit.message


class TestFusion:
    def test_a_dim_is_told_with_its_inputs_and_how_much_follows_it(self) -> None:
        text = graph(
            """(float[B, T] x, float[B, 4] z) => (float[B, T] y, float[4, 4] c)
            <float[4, 4] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}>
            { y = Relu (x)  q = MatMul (z, w)  c = Neg (w) s = Neg (q) }"""
        )
        (told,) = found(text, "dynamic-dims")
        assert told.at == "'B' of input 'x', 'z'; 'T' of input 'x'"
        assert "of 3 nodes, 3 follow 'B', 1 follow 'T'" in told.message
        assert "graphfix run -p fix-dims:B=SIZE,T=SIZE" in told.message
        spec = "fix-dims:B=SIZE,T=SIZE".replace("SIZE", "4")
        fixed = ir.from_onnx_text(text)
        graphfix.run(fixed, spec)
        assert not [*checking.check(fixed, "dynamic-dims")]

    def test_control_flow_is_found_in_a_function(self) -> None:
        text = """<ir_version: 8, opset_import: ["" : 18, "f" : 1]>
            m (float[N] x, bool b) => (float[N] y) { y = f.pick (x, b) }
            <domain: "f", opset_import: ["" : 18]> pick (a, c) => (d)
            { d = If (c) < then_branch = t () => (float[N] p) { p = Neg (a) },
                           else_branch = e () => (float[N] q) { q = Relu (a) } > }"""
        assert severities(text, "control-flow") == ["warning"]

    @pytest.mark.parametrize(
        ("condition", "severity", "fix"),
        [
            ("c = Constant <value = bool {1}> ()", "note", "fold"),
            # ONNX Runtime works out no Shape of which it knows one dim only
            ("s = Shape <end = 1> (x) n = Squeeze (s) c = Equal (n, one)", "warning", "fold"),
            ("s = Shape <start = 1> (x) n = Squeeze (s) c = Equal (n, one)", "warning", None),
            ("s = Shape (x) n = Size (s) c = Equal (n, one)", "warning", "fold"),
            ("c = Identity (b)", "warning", None),
        ],
    )
    def test_an_if_that_is_decided(self, condition: str, severity: str, fix: str | None) -> None:
        text = graph(
            f"""(float[1, N] x, bool b) => (float[1, N] y) <int64 one = {{1}}> {{
            {condition} y = If (c) <
                then_branch = t () => (float[1, N] p) {{ p = Neg (x) }},
                else_branch = e () => (float[1, N] q) {{ q = Relu (x) }} > }}"""
        )
        flagged = found(text, "control-flow")
        assert [(x.severity, x.fix) for x in flagged] == [(severity, fix)]
        folded = ir.from_onnx_text(text)
        graphfix.run(folded, "fold")
        assert bool([*checking.check(folded, "control-flow")]) == (fix is None)
        steps = [x.name for x in planning.plan(ir.from_onnx_text(text)).steps]
        assert any(x.startswith("If") for x in steps) == (severity == "warning")

    def test_a_slice_by_the_shape_is_no_matter_of_data(self) -> None:
        text = graph(
            """(float[B, T] x, int64[1] n) => (float[P] a, float[Q, R] b)
            <int64[1] z = {0}, int64[1] one = {1}>
            { t = Shape <start = 1, end = 2> (x)  r = Sub (t, one)  b = Slice (x, z, r, one)
              a = %s }"""
        )
        assert not found(text.replace("float[P] a", "float[B, T] a") % "Neg (x)", "data-dependent")
        cut = text.replace("float[P] a", "float[P, T] a") % "Slice (x, z, n, z)"
        assert len(found(cut, "data-dependent")) == 1


class TestKernelRank:
    @pytest.mark.parametrize(
        ("dims", "node", "flagged"),
        [
            ("A, B, C, D, E", "Trilu (x)", True),
            ("A, B, C, D", "Trilu (x)", False),
            ("A, B, C, D, E", "Relu (x)", False),
            ("1, 3, 2, 4, 5", 'Resize <mode = "nearest"> (x, , scales)', False),
            ("B, 3, 2, 4, 5", 'Resize <mode = "nearest"> (x, , scales)', True),
            ("1, 3, 2, 4, 5", 'Resize <mode = "nearest"> (x, , grown)', True),
            ("1, 2, 4, 4, 4", "Conv (x, deep)", False),
        ],
    )
    def test_dims(self, dims: str, node: str, flagged: bool) -> None:
        text = f"""(float[{dims}] x) => (float[V, W, X, Y, Z] y)
            <float[5] scales = {{1, 1, 1, 1, 2}}, float[5] grown = {{2, 1, 1, 1, 1}},
            float[1, 2, 1, 1, 1] deep = {{1, 2}}> {{ y = {node} }}"""
        if dims.count(",") == 3:
            text = text.replace("V, W", "V")
        assert severities(graph(text), "kernel-rank") == ["error"] * flagged

    @pytest.mark.parametrize(
        ("first", "node"),
        [
            ("uint8[A, B]", "QLinearMatMul (x, s, z, w, s, z, s, z)"),
            ("float[B]", "MatMul (x, w)"),  # of which comes one of four
        ],
    )
    def test_the_dims_of_either_factor(self, first: str, node: str) -> None:
        second = first.partition("[")[0] + "[C, D, E, B, F]"
        text = f"""({first} x, {second} w) => ({second.replace("E, B", "E, A")} y)
            <float s = {{1}}, uint8 z = {{0}}> {{ y = {node} }}"""
        if first == "float[B]":
            text = text.replace("E, A, F", "E, F")
        (hazard,) = found(graph(text), "kernel-rank")
        assert "of 5 dims" in hazard.message

    def test_more_than_three_axes_of_a_picture(self) -> None:
        text = """(float[1, 1, A, B, C, D] x, float[1, 1, 1, 1, 1, 1] w)
            => (float[1, 1, A, B, C, D] y) { y = Conv (x, w) }"""
        (hazard,) = found(graph(text), "kernel-rank")
        assert "Conv of 6 dims" in hazard.message

    def test_what_drops_dims_of_1_says_so(self) -> None:
        text = """(float[B, 3, 2, 4, 5] x) => (float[V, W, X, Y, Z] y)
            <float[5] scales = {1, 1, 1, 1, 2}> { y = Resize (x, , scales) }"""
        (hazard,) = found(graph(text), "kernel-rank")
        assert "5 dims that are not 1" in hazard.message


class TestResize:
    @pytest.mark.parametrize(
        ("attributes", "dims", "flagged"),
        [
            ('mode = "linear"', "1, 3, 8, 8", False),
            ('mode = "linear", antialias = 1', "1, 3, 8, 8", True),
            ('mode = "cubic", antialias = 1', "1, 3, 8, 8", False),  # it runs on the CPU
            ('mode = "nearest", keep_aspect_ratio_policy = "not_larger"', "1, 3, 8, 8", True),
            ('coordinate_transformation_mode = "pytorch_half_pixel"', "1, 3, 2, 8", True),
            ('coordinate_transformation_mode = "pytorch_half_pixel"', "1, 3, 4, 8", False),
        ],
    )
    def test_what_is_read_otherwise(self, attributes: str, dims: str, flagged: bool) -> None:
        text = f"""(float[{dims}] x) => (float[P, Q, R, S] y)
            <float[4] scales = {{1, 1, 0.5, 0.5}}> {{ y = Resize <{attributes}> (x, , scales) }}"""
        assert severities(graph(text, 18), "resize-mode") == ["error"] * flagged

    def test_a_constant_is_none_of_a_run(self) -> None:
        text = """(float[N] x) => (float[P, Q, R, S] y, float[N] z)
            <float[4] s = {1, 1, 1, 0.5}, float[1, 1, 1, 4] k = {1, 2, 3, 4}>
            { y = Resize <mode = "linear", antialias = 1> (k, , s)  z = Neg (x) }"""
        assert not severities(graph(text, 18), "resize-mode")

    def test_a_side_that_stays_as_it_is(self) -> None:
        text = """(float[1, 3, H, 8] x) => (float[P, Q, R, S] y) <int64[1] i0 = {0},
            int64[1] i3 = {3}, int64[1] wide = {16}> { all = Shape (x)  h = Slice (all, i0, i3)
            sizes = Concat <axis = 0> (h, wide)
            y = Resize <mode = "linear", antialias = 1> (x, , , sizes) }"""
        assert not severities(graph(text, 18), "resize-mode")

    def test_a_part_that_is_cut_out(self) -> None:
        text = """(float[1, 3, 8, 8] x, float[8] part) => (float[P, Q, R, S] y)
            <int64[4] sizes = {1, 3, 4, 4}> { y = Resize <mode = "linear",
                coordinate_transformation_mode = "tf_crop_and_resize"> (x, part, , sizes) }"""
        assert severities(graph(text, 18), "resize-mode") == ["error"]

    @pytest.mark.parametrize(
        ("how", "flagged"),
        [("(x, , twice)", False), ("(x, , , wide)", False), ("(x, , , narrow)", True)],
    )
    def test_antialias_is_for_what_becomes_shorter(self, how: str, flagged: bool) -> None:
        text = f"""(float[1, 3, 8, 8] x) => (float[P, Q, R, S] y)
            <float[4] twice = {{1, 1, 2, 1}}, int64[4] wide = {{1, 3, 16, 8}},
             int64[4] narrow = {{1, 3, 16, 4}}>
            {{ y = Resize <mode = "linear", antialias = 1> {how} }}"""
        assert severities(graph(text, 18), "resize-mode") == ["error"] * flagged


class TestFourBits:
    @pytest.mark.parametrize(
        ("opset", "body", "flagged"),
        [
            (21, "y = DequantizeLinear (w, s)", True),
            (21, "y = DequantizeLinear <axis = 1> (w, each)", True),
            (21, "y = DequantizeLinear <axis = 0, block_size = 2> (w, row)", False),
            (21, "q = QuantizeLinear (x, s, z) y = DequantizeLinear (q, s, z)", False),
            (23, "y = DequantizeLinear (w, s)", False),  # on the CPU
        ],
    )
    def test_constants_without_blocks(self, opset: int, body: str, flagged: bool) -> None:
        text = f"""(float[B, 2] x) => (float[P, Q] y) <uint4[2, 2] w = {{33, 67}}, float s = {{1}},
            float[2] each = {{1, 2}}, float[1, 2] row = {{1, 2}}, uint4 z = {{0}}> {{ {body} }}"""
        text = f'<ir_version: 10, opset_import: ["" : {opset}]> m {text}'
        assert severities(text, "four-bits") == ["error"] * flagged


class TestEdges:
    @pytest.mark.parametrize("kind", ["Max", "Min", "Prod", "Sum", "LogSum", "LogSumExp", "Mean"])
    def test_reductions_of_nothing(self, kind: str) -> None:
        text = f"(float[2, 0] x) => (float[2, 1] y) {{ y = Reduce{kind} <axes = [1]> (x) }}"
        # A mean of nothing is no number anywhere.
        assert severities(graph(text, 12), "empty-reduction") == ["error"] * (kind != "Mean")

    @pytest.mark.parametrize(
        ("kind", "dims", "made", "flagged"),
        [
            ("float", "0, 3", "1, 3", True),
            ("float", "0, 3, 0", "1, 3, 0", False),  # of nothing it makes nothing
            ("double", "0, 3", "1, 3", False),  # on the CPU
        ],
    )
    def test_what_comes_of_nothing(self, kind: str, dims: str, made: str, flagged: bool) -> None:
        text = f"({kind}[{dims}] x) => ({kind}[{made}] y) {{ y = ReduceSum <axes = [0]> (x) }}"
        assert severities(graph(text, 12), "empty-reduction") == ["error"] * flagged

    def test_a_constant_of_nothing_is_folded(self) -> None:
        text = """(float[N] x) => (float[1, 1] y, float[N] z) <int64[2] none = {0, 3}>
            { e = ConstantOfShape (none)  y = ReduceSum (e)  z = Neg (x) }"""
        assert not severities(graph(text, 12), "empty-reduction")

    @pytest.mark.parametrize(
        ("check", "node"),
        [
            ("matmul-vector", "MatMul (k, v)"),
            ("reverse-2d", "ReverseSequence (k3, n)"),
            ("matmul-4d", "MatMul (k5, k5)"),
        ],
    )
    def test_constants_are_computed_before_anything_runs(self, check: str, node: str) -> None:
        text = f"""(float[N] x) => (float[P] y, float[N] z) <float[1, 2] k = {{1, 2}},
            float[2] v = {{1, 2}}, float[1, 1, 2] k3 = {{1, 2}}, int64[1] n = {{1}},
            float[1, 1, 1, 1, 1] k5 = {{1}}> {{ y = {node}  z = Neg (x) }}"""
        assert severities(graph(text), check) == ["note"]

    def test_an_old_pad_runs_on_the_cpu(self) -> None:
        body = "(float[1, 8] x) => (float[1, 6] y) { y = Pad <pads = [0, -1, 0, -1]> (x) }"
        assert severities(graph(body, 10), "negative-pads") == ["warning"]

    def test_a_size_that_only_a_run_tells_has_no_name(self) -> None:
        """Shape inference has a symbol for it, which nobody has ever seen."""
        text = graph(
            """(float[N] x) => (float[M] y) <int64[1] five = {5}, int64[1] none = {0}>
            { u = NonZero (x)  s = Shape <start = 1> (u)  c = Sub (s, five)
              pads = Concat <axis = 0> (none, c)  y = Pad (x, pads) }"""
        )
        (hazard,) = found(text, "negative-pads")
        assert "negative pads where a size known only at run time is below 0" in hazard.message

    def test_an_infinity_in_float32_is_not_lost(self) -> None:
        text = graph(
            """(float[N, 4] x, float[4, 4] w) => (bool[N, 4] y)
            { s = MatMul (x, w)  h = Cast <to = 10> (s)  y = IsInf (s) }"""
        )
        assert not severities(text, "lost-infinity")


class TestLibrary:
    @pytest.mark.parametrize("ep", PROVIDERS)
    def test_what_holds_on_the_provider_is_asked_by_default(self, ep: Provider) -> None:
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
        }
        left = {"dml": set(), "cpu": {*only, "opset-ceiling"}}
        assert asked - set(NAMES) == passes - left[ep]

    def test_a_rule_stands_among_passes(self) -> None:
        text = graph("(float[N] x) => (float[N] y) { y = Sin (x) }", 22)
        assert {x.rule for x in found(text, "no-kernel,opset-ceiling")} == {
            "no-kernel",
            "opset-ceiling",
        }

    def test_a_rule_misspelt_is_suggested(self) -> None:
        with pytest.raises(UsageError, match="did you mean 'no-kernel'"):
            found(graph("(float[N] x) => (float[N] y) { y = Sin (x) }"), "no-kernle")

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
    assert {x.rule for x in graphfix.check(m)} == {"dynamic-dims"}
