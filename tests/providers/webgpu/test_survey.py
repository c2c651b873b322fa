"""Each row that survey.csv and edges.csv of WebGPU have wrong is what a rule is for, or left."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir
import pytest

import graphfix
from graphfix.engine import registry
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int
from graphfix.providers.table import PROVIDERS
from graphfix.providers.webgpu import operator_facts as facts
from graphfix.providers.webgpu.defects import defect_of, load_defects
from graphfix.rules import rules
from tests.survey import sizes
from tests.survey.case import Kernels, model_of
from tests.survey.run import MODULES
from tests.survey.surveyed import SURVEYED
from tests.survey.told import stale, untold

if TYPE_CHECKING:
    from tests.survey.told import Entry

FOLDER = Path(graphfix.__file__).parent / "providers" / "webgpu"
WRONG = ("differs", "fails", "dies")
ROUNDED = "sums of float16 are added up in float16: rounded, by up to 0.02 of the largest number"

# Operator and kind, each a regular expression, and the rules and passes that tell of it.
TOLD: list[tuple[str, str, tuple[str, ...]]] = [
    ("Relu|HardSigmoid", "value nan", ("lost-nan",)),
    ("Asinh|Acosh", "value (negative|large)", ("half-norm",)),
    ("ReduceL2", "value .*", ("half-norm",)),
    ("ReduceLogSumExp", "value .*", ("logsumexp-shift",)),
    ("Reduce(L1|L2|LogSum|SumSquare)", "axes absent, noop", ("unread",)),
    ("Reduce(Max|Min)|Conv", "empty.*", ("empty-input",)),
    ("MatMul|Einsum", "of nothing", ("empty-input",)),
    ("ThresholdedRelu", ".*", ("refused-in-run",)),
    ("Conv(Transpose)?", "3 dims, .*", ("refused-in-run",)),
    ("ConvTranspose", "[12] dims, [^,]*, stride ., dilation .", ("lone-outputs",)),
    ("Resize", "antialias", ("refused-in-run",)),
    ("LSTM", "activations", ("refused-in-run",)),
    (r".*\.MultiHeadAttention", "mask .*", ("refused-in-run",)),
    (r".*\.MatMulNBits", ".*g_idx", ("refused-in-run",)),
    (r".*\.Attention", "without a bias", ("refused-in-run",)),
    (r".*\.QMoE", ".*", ("refused-in-run",)),
    (r".*\.GroupQueryAttention", "softcap", ("unread",)),
    (r".*\.FusedConv", "a sum", ("unread",)),
    (r".*Attention", ".* keys", ("many-keys",)),
]
# What is left, and why.
LEFT: list[tuple[str, str, str]] = [
    ("Asin|Acos", "type|value (fractional|nan)",
     "the device's own function, right to 2e-4, which WGSL allows"),
    ("Cos|Sin|Tan", "value large", "of 3e38, where no digit is right"),
    ("Softmax", "of nothing", "nothing is computed of no rows; a caller can leave them out"),
    ("Pad", "wrap, negative pads", "where an axis is both cut and wrapped, which no export has"),
    ("ReduceProd", "axes absent", "int32 beyond 2**31, which ONNX leaves open"),
    ("ReduceLogSumExp", "axes of two", "of int32, whose result is rounded: 11 for 10"),
    ("ReduceMean|ReduceLogSum", "value 30000", "float16 sums pass 65504"),
    ("(MatMul|Gemm|ReduceSum|LayerNormalization|Conv)", "size .*", ROUNDED),
    (r".*\.Attention", "mask absent", ROUNDED),
    (r".*\.FusedConv", "Relu|LeakyRelu|Clip", ROUNDED),
    (r".*\.MatMulNBits", "4 bits, zero points, odd blocks", ROUNDED),
    (r".*\.MatMulNBits", "8 bits, .*", ROUNDED),
]  # fmt: skip
# The same of edges.csv: operator, and the type and the edge.
EDGES_TOLD: list[tuple[str, str, tuple[str, ...]]] = [
    ("Relu|Clip|Softmax", ".*nan", ("lost-nan",)),
    ("Softmax", ".* inf", ("lost-nan",)),
    ("InstanceNormalization", "float16 equal", ("half-norm",)),
    ("ReduceL2", "float16 .*", ("half-norm",)),
    ("MatMul", ".* empty", ("empty-input",)),
]
EDGES_LEFT: list[tuple[str, str, str]] = [
    ("Softmax", ".* empty", "the process dies of a softmax over no element, which no export has"),
    ("Softplus", "float16 large", "WebGPU is right, and the CPU passes 65504 on its way"),
    ("Pow", ".* (negative|nan|inf)", "0, 1, infinity and NaN as base or exponent, as on DirectML"),
    ("LayerNormalization", "float32 large", "beyond 1e19, whose squares no float32 holds"),
    ("Reduce(Mean|Sum)|MatMul|Gemm", "float16 large", "sums that pass 65504 on their way"),
    ("CumSum", "float16 .* large", "rounded in float16, by 32 of 60000"),
]  # fmt: skip


def rows_of(name: str) -> list[dict[str, str]]:
    text = (FOLDER / f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


SURVEY = sorted({(x["op"], x["kind"]) for x in rows_of("survey") if x["verdict"] in WRONG})
EDGES = sorted(
    {(x["op"], f"{x['dtype']} {x['edge']}") for x in rows_of("edges") if x["verdict"] in WRONG}
)


@pytest.mark.parametrize(
    ("rows", "entries"), [(SURVEY, [*TOLD, *LEFT]), (EDGES, [*EDGES_TOLD, *EDGES_LEFT])]
)
def test_what_is_wrong_is_told_or_left_for_a_reason(
    rows: list[tuple[str, str]], entries: list[Entry]
) -> None:
    assert rows
    assert not untold(rows, entries)
    assert not stale(rows, entries)


def test_the_rules_are_there() -> None:
    named = {name for *_, names in (*TOLD, *EDGES_TOLD) for name in names}
    assert named <= {*rules(), *registry.pass_names()}
    for name in named & {*rules()}:
        assert "webgpu" in rules()[name].providers


@pytest.mark.parametrize("name", ["survey", "edges"])
def test_every_row_has_its_version(name: str) -> None:
    known = {x.version for x in PROVIDERS["webgpu"].distributions}
    assert {x["versions"] for x in rows_of(name)} == known


def test_the_table_of_defects_is_what_the_survey_saw() -> None:
    """Each case that went wrong so is told by its row, and no case that is right is."""
    told = {("refused-in-run",), ("unread",)}
    mine = [x for x in TOLD if x[2] in told]
    verdicts: dict[tuple[str, str, str], set[str]] = {}
    for row in rows_of("survey"):
        for dtype in row["dtype"].split():
            verdicts.setdefault((row["op"], row["kind"], dtype), set()).add(row["verdict"])
    seen = set()
    operators = {x.operator for x in load_defects()}
    kernels = Kernels(SURVEYED["webgpu"].kernels)
    cases = {
        (case.op, case.kind, case.dtype): case
        for module in MODULES
        for case in (() if module is sizes else module.cases(kernels))
        if case.op in operators
    }
    for key, case in cases.items():
        found = verdicts.get(key, set())
        if len(found) != 1 or not found <= {"right", *WRONG}:
            continue
        model = ir.from_proto(model_of([case])[0])
        node, shapes = model.graph[0], View(model).shapes
        defect = defect_of(node, shapes, WRONG)
        wrong = bool(found & {*WRONG}) and not untold([(case.op, case.kind)], mine)
        # A ConvTranspose of one or two dims in groups has a rule of its own.
        assert (defect is not None) is wrong or attr_int(node, "group", 1) != 1, case
        seen.add(defect)
    assert {*load_defects()} <= seen


def test_the_facts_are_what_the_surveys_saw() -> None:
    """Each operator of operators.csv has a row that is wrong in that way."""
    wrong = {*SURVEY, *EDGES}
    for operators, words in (
        (facts.LOSES_NAN, ("nan", "inf")),
        (facts.OVERFLOWS_IN_FLOAT16, ("value", "large", "equal")),
        (facts.FAILS_WHEN_EMPTY, ("empty", "of nothing")),
        (facts.WRONG_OF_MANY_KEYS, ("keys",)),
    ):
        for operator in operators:
            kinds = [kind for op, kind in wrong if op == operator]
            assert any(word in kind for kind in kinds for word in words), operator
