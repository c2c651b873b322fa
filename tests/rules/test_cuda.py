"""``check --ep cuda``: the table of CUDA's kernels, and what is left to the CPU for what it is."""

from __future__ import annotations

import csv
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.core import Finding
from graphfix.cuda import facts
from graphfix.directml.facts import schema_of

RNN = "(float[T, B, 4] x, float[1, {n}, 4] w, float[1, {n}, 2] r) => (float[T, 1, B, 2] y)"


def found(body: str, check: str, opset: int = 17) -> list[Finding]:
    text = f'<ir_version: 10, opset_import: ["" : {opset}]> m {body}'
    return graphfix.check(ir.from_onnx_text(text), check, ep="cuda")


def rows() -> list[dict[str, str]]:
    table = Path(graphfix.__file__).parent / "cuda" / "ops.csv"
    return list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))


class TestTable:
    def test_a_version_is_there_once_and_is_one_of_the_operator(self) -> None:
        """A range begins where ONNX revised the operator; some begin at 1 before it was there."""
        known = {(x.name, x.since_version) for x in onnx.defs.get_all_schemas_with_history()}
        for row in rows():
            if row["domain"] == "" and row["first"] != "1" and schema_of(row["op"], "", 25):
                assert (row["op"], int(row["first"])) in known, row
        seen = [(x["op"], x["domain"], x["first"]) for x in rows()]
        assert len(seen) == len(set(seen)) > 350

    @pytest.mark.parametrize(
        ("op", "since", "there"),
        [
            ("Conv", 11, True),
            ("Conv", 22, True),
            ("AveragePool", 19, True),
            ("ReduceMean", 13, True),  # one kernel is for 1 to 17
            ("LSTM", 14, True),
            ("LSTM", 22, False),  # without a last version it is for 14 alone
            ("Pad", 19, False),
            ("Where", 16, True),
            ("NonMaxSuppression", 11, False),
        ],
    )
    def test_what_a_kernel_matches(self, op: str, since: int, there: bool) -> None:
        assert (facts.kernel_for(op, "", since) is not None) == there

    def test_its_operators_of_onnx_runtime(self) -> None:
        kernel = facts.kernel_for("SkipLayerNormalization", "com.microsoft", 1)
        assert kernel is not None
        assert kernel.takes("T", ir.DataType.FLOAT16)
        assert not kernel.takes("T", ir.DataType.DOUBLE)


class TestKernels:
    def test_the_opset_to_use_is_said(self) -> None:
        body = "(float[1, 2, N] x) => (float[1, 2, M] y) { y = MaxPool <kernel_shape = [2]> (x) }"
        (hit,) = found(body, "cuda-no-kernel", 22)
        assert "the newest opset with one is 21" in hit.message
        assert (hit.severity, hit.fix) == ("warning", "opset-ceiling")

    def test_a_gap_below_the_ceiling_has_no_repair(self) -> None:
        body = "(float[N, 2] x, int64[4] p) => (float[M, K] y) { y = Pad (x, p) }"
        (hit,) = found(body, "cuda-no-kernel", 19)
        assert "the newest opset with one is 18" in hit.message
        assert hit.fix is None

    def test_shapes_are_worked_out_on_the_cpu_anyway(self) -> None:
        body = """(float[B, T] x) => (float[P] y) <int64[1] zero = {0}, int64[1] most = {9}>
            { t = Shape <start = 1, end = 2> (x)  i = Identity (t)  y = ConstantOfShape (i) }"""
        assert {x.at for x in found(body, "cuda-no-kernel", 21)} == {"ConstantOfShape of y"}

    def test_a_type_is_told_with_the_tensor(self) -> None:
        body = "(uint8[2, 4] a, uint8[4, 2] b) => (int32[2, 2] y) { y = MatMulInteger (a, b) }"
        (hit,) = found(body, "cuda-type")
        assert "takes no uint8, as 'a' is" in hit.message


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("LSTM <hidden_size = 2, clip = 1.0>", "clip"),
        ("LSTM <hidden_size = 2, input_forget = 1>", "input_forget=1"),
        ('RNN <hidden_size = 2, activations = ["Relu"]>', "activations=Relu"),
        ("GRU <hidden_size = 2, linear_before_reset = 0>", "linear_before_reset=0"),
        ("LSTM <hidden_size = 2>", None),
        ('LSTM <hidden_size = 2, activations = ["Sigmoid", "Tanh", "Tanh"]>', None),
        ("GRU <hidden_size = 2, linear_before_reset = 1>", None),
        ("GRU <hidden_size = 2>", None),
    ],
)
def test_what_cudnn_cannot_recur(node: str, why: str | None) -> None:
    gates = {"LSTM": 8, "GRU": 6, "RNN": 2}[node.split()[0]]
    hits = found(f"{RNN.format(n=gates)} {{ y = {node} (x, w, r) }}", "cuda-refuses")
    assert [why in x.message for x in hits if why] == ([True] if why else [])
    assert bool(hits) == (why is not None)


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("y = ConvTranspose <strides = [2], auto_pad = \"SAME_UPPER\"> (x, w)", "SAME_UPPER"),
        ("y = ConvTranspose <pads = [1, 0]> (x, w)", "pads=[1, 0]"),
        ("i = ArgMax <axis = 2, select_last_index = 1> (x) y = Cast <to = 1> (i)", "select_last"),
        ("y = ConvTranspose <pads = [1, 1]> (x, w)", None),
        ("i = ArgMax <axis = 2> (x) y = Cast <to = 1> (i)", None),
    ],
)  # fmt: skip
def test_what_else_is_refused(node: str, why: str | None) -> None:
    body = f"(float[1, 4, N] x, float[4, 4, 3] w) => (float[1, C, M] y) {{ {node} }}"
    assert [why in x.message for x in found(body, "cuda-refuses") if why] == [True] * bool(why)
    assert bool(found(body, "cuda-refuses")) == (why is not None)


BRANCH = """then_branch = yes () => (float[N] a) { a = Relu (x) },
            else_branch = no () => (float[N] b) { b = Neg (x) }"""


@pytest.mark.parametrize(
    ("flag", "waits"),
    [
        ("t = ReduceMax <keepdims = 0> (x) f = Greater (t, zero)", True),
        ("n = Size (x) f = Equal (n, two)", False),  # the CPU knows it
        ("f = Identity (given)", True),
    ],
)
def test_an_if_waits_for_what_is_computed(flag: str, waits: bool) -> None:
    body = f"""(float[N] x, bool given) => (float[N] y) <float zero = {{0}}, int64 two = {{2}}>
        {{ {flag}  y = If (f) < {BRANCH} > }}"""
    assert bool(found(body, "cuda-branch")) == waits


def test_a_condition_that_is_given_waits_for_nothing() -> None:
    body = f"(float[N] x, bool f) => (float[N] y) {{ y = If (f) < {BRANCH} > }}"
    assert not found(body, "cuda-branch")


def test_directml_s_own_crashes_are_not_told_unless_asked_for() -> None:
    text = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 18]> m (float[T, 8] x) => (float[N, 4] y)
        <int64[2] s = {-1, 4}> { y = Reshape <allowzero = 1> (x, s) }"""
    )
    for ep in ("cpu", "cuda"):
        assert not graphfix.check(text, ep=ep)
        assert [x.severity for x in graphfix.check(text, "reshape-allowzero", ep=ep)] == ["note"]
