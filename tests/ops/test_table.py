"""The table has every operator of ONNX, no word that nobody knows, and costs nothing to import."""

import csv
import re
import subprocess
import sys
from pathlib import Path

import onnx.defs
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as state

from graphfix import ops
from graphfix.ops import table, traits
from graphfix.ops.table import operators_with, row_of, rows, rows_by_operator

FOLDER = Path(table.__file__).parent
NAMES = {x.name for x in onnx.defs.get_all_schemas_with_history() if not x.domain}
NAMES |= {f"{x.domain}.{x.name}" for x in state.get_all_operator_schema() if x.domain}
NAMES |= {"SimplifiedLayerNormalization"}  # ONNX Runtime has it in ONNX's domain
# They exist in old opsets only.
GONE = {"Scatter", "Upsample", "SimplifiedLayerNormalization"}


def test_every_operator_of_the_latest_opset_has_a_row() -> None:
    latest = {x.name for x in onnx.defs.get_all_schemas() if not x.domain and not x.deprecated}
    table_names = {x for x in rows_by_operator() if "." not in x}
    assert latest - table_names == set()
    assert table_names - latest <= GONE


def test_every_row_is_of_an_operator_that_exists() -> None:
    assert rows_by_operator().keys() <= NAMES


def test_rows_of_an_operator_do_not_overlap() -> None:
    for operator, found in rows_by_operator().items():
        covered = [opset for row in found for opset in row.opsets if opset < 60]
        assert len({*covered}) == len(covered), operator


def test_every_word_of_the_table_is_read() -> None:
    text = (FOLDER / "traits.py").read_text(encoding="utf-8")
    read = {*re.findall(r'operators_with\("(\w+)"\)', text)}
    written = {x for row in rows() for x in row.traits}
    assert written == read


def test_the_file_is_a_table() -> None:
    with (FOLDER / "table.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    assert {len(x) for x in lines} == {8}


def test_every_set_has_operators_and_a_law_in_words() -> None:
    sets = {x: getattr(traits, x) for x in ops.__all__ if x.isupper()}
    text = (FOLDER / "traits.py").read_text(encoding="utf-8")
    for name, found in sets.items():
        assert isinstance(found, ops.OpSet)
        assert len(found) > 1
        assert re.search(rf"^{name} = .*\n\"\"\"[A-Z`]", text, re.M), name


def test_a_row_is_found_by_opset() -> None:
    old, new = row_of("Softmax", 12), row_of("Softmax", 13)
    assert old is not None
    assert new is not None
    assert (old.mixes, new.mixes) == ("axis_to_end", "axis")
    assert row_of("Softmax") == new
    assert row_of("Unheard") is None
    assert row_of("Scatter", 18) is None


# What a kind is a matter of, as ONNX's documentation groups it: no law tells these apart.
_NUMBERS = "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Cast CastLike Ceil Celu Clip Cos Cosh"
_KINDS = {
    "attention": "Attention LinearAttention",
    "broadcast": "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual"
    " Less LessOrEqual Max Mean Min Mod Mul Or Pow Sub Sum Where Xor",
    "convolve": "CausalConvWithState Conv ConvInteger ConvTranspose DeformConv QLinearConv",
    "global_pool": "GlobalAveragePool GlobalLpPool GlobalMaxPool",
    "join": "Concat",
    "norm": "GroupNormalization InstanceNormalization LayerNormalization LpNormalization"
    " MeanVarianceNormalization RMSNormalization SimplifiedLayerNormalization",
    "one_way": "PRelu",
    "permute": "DepthToSpace ReverseSequence SpaceToDepth Transpose",
    "pool": "AveragePool LpPool MaxPool",
    "product": "Einsum Gemm MatMul MatMulInteger QLinearMatMul",
    "random": "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
    "rank": "ArgMax ArgMin TopK",
    "recurrent": "GRU LSTM RNN",
    "reduce": "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin"
    " ReduceProd ReduceSum ReduceSumSquare",
    "repeat": "Expand Tile",
    "resample": "GridSample",
    "resize": "Resize Upsample",
    "scatter": "Scatter ScatterElements ScatterND TensorScatter",
    "select": "Compress Gather GatherElements GatherND Slice Split",
    "shape": "Shape Size",
    "softmax": "Hardmax LogSoftmax Softmax",
    "unary": f"{_NUMBERS} Dropout Elu Erf Exp Floor Gelu HardSigmoid HardSwish IsInf IsNaN"
    " LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus"
    " Softsign Sqrt Swish Tan Tanh ThresholdedRelu",
    "view": "Flatten Identity Reshape Squeeze Unsqueeze",
}


@pytest.mark.parametrize("kind", sorted(_KINDS))
def test_a_kind_has_these_operators_of_onnx(kind: str) -> None:
    assert {x for x in table.operators_of_kind(kind) if "." not in x} == {*_KINDS[kind].split()}


_SHAPE_OF = {"broadcast": "all", "one_way": "0", "unary": "0", "norm": "0", "softmax": "0"}
_SHAPE_OF |= {"quantize": "0", "rotary": "0", "scale": "0", "scan": "0", "scatter": "0"}


def test_a_kind_says_whose_shape_the_result_has() -> None:
    others = {"com.microsoft.EmbedLayerNormalization"}  # of ids
    for row in rows():
        if row.kind in _SHAPE_OF and row.operator not in others:
            assert row.shape_of == _SHAPE_OF[row.kind], row


_WHERE = {
    "absorbs": ops.BROADCASTS,
    "associative": ops.BROADCASTS,
    "commutes": ops.BROADCASTS,
    "comparison": ops.BROADCASTS,
    "order": ops.BROADCASTS,
    "boolean": ops.ELEMENTWISE,
    "casts": ops.UNARY,
    "exact": ops.ELEMENTWISE,
    "homogeneous": ops.ELEMENTWISE,
    "idle": ops.ELEMENTWISE,
    "logic": ops.ELEMENTWISE,
    "monotone": ops.ELEMENTWISE,
    "positive": ops.ELEMENTWISE,
    "rounded": ops.ELEMENTWISE,
    "whole": ops.UNARY,
    "bounded": ops.ELEMENTWISE | ops.SOFTMAXES,
    "finite": ops.ELEMENTWISE | ops.SOFTMAXES,
    "nan": ops.ELEMENTWISE | ops.SOFTMAXES | ops.REDUCES,
}


@pytest.mark.parametrize("trait", sorted(_WHERE))
def test_a_law_is_of_operators_that_can_have_it(trait: str) -> None:
    """Of others no test asks for it."""
    assert operators_with(trait) <= _WHERE[trait]


def test_a_trait_of_the_kind_is_of_the_operator() -> None:
    """The operators that have a trait by what they are, not by a law of numbers."""
    quantized = "ConvInteger MatMulInteger QLinearConv QLinearMatMul"
    assert {x for x in ops.COMPUTES_QUANTIZED if "." not in x} == {*quantized.split()}
    theirs = {x.rpartition(".")[2] for x in ops.COMPUTES_QUANTIZED if "." in x}
    assert all(re.match(r"Q|DynamicQuantize|MatMulInteger", x) for x in theirs)
    assert {"Cast", "CastLike"} == ops.CASTS
    assert table.operators_of_kind("sequence") == ops.SEQUENCES
    assert ops.MEASURES | ops.named("ArgMax ArgMin") <= ops.NEVER_NEGATIVE
    no_group = ops.COMPARISONS | ops.named("BitShift Div Mod Pow Sub Where")
    assert not no_group & ops.ASSOCIATIVE
    likes = ops.named("EyeLike RandomNormalLike RandomUniformLike")
    assert ops.MEASURES | likes == ops.READS_ONLY_SHAPE
    assert {x for x in rows_by_operator() if "Random" in x} < ops.RANDOM


def test_named_operators_exist() -> None:
    """What sites add to a set is in their own text; each name must be an operator's."""
    root = FOLDER.parents[1]
    for folder in (root / "graphfix", root / "passes"):
        for path in folder.rglob("*.py"):
            if path.parent == FOLDER:
                continue
            for names in re.findall(r'\bnamed\(\s*"([^"]*)"', path.read_text(encoding="utf-8")):
                assert {*names.split()} <= NAMES, path


def test_importing_is_cheap() -> None:
    code = (
        "import sys; from graphfix import ops; ops.VIEWS;"
        "print(*({'onnx', 'onnx_ir', 'sympy', 'numpy'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("trait", ["zero", "nan", "exact"])
def test_a_trait_that_nothing_has_is_empty(trait: str) -> None:
    assert operators_with(trait)
    assert not operators_with(f"no {trait}")
