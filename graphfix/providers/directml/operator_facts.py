"""What DirectML does with operators, whatever their version: ``operators.csv``, as sets.

The first two columns are those of ONNX Runtime's OperatorUtility.cpp (in providers/dml); the others
were measured on onnxruntime-directml 1.24.4. An operator of another domain than ONNX's is written
with it. The columns:

takes_activations
    Which activations become part of its kernel: ``simple``, ``relu`` or ``softmax``.
activation
    The kinds of activation that it is itself.
most_dims
    Of how many dims it runs, where other operators take eight.
in_place
    No session is made if it alone reads a Slice of a tensor that nothing else reads.
loses_nan
    It makes a number of NaN; edges.csv has the runs.
saturates
    In float16 a sum beyond 65504 stays 65504, where ONNX says infinity; from edges.csv, too.
overflows
    In float16 it computes squares beyond 65504, so that the result is wrong; from edges.csv, too.
adds_in_float16
    In float16 it adds up in float16, where ONNX Runtime's CPU adds up in float32.
wrong_when_empty
    Where its input is empty and its result is not, it returns what happened to lie in memory; from
    edges.csv, ONNX's own tests and runs of each.
"""

from collections.abc import Mapping
from functools import partial

from graphfix.ops import OpSet
from graphfix.providers.operator_table import operator_rows, operators_with

MAX_DIMS = 8
"""So many dims a tensor of DirectML has (DML_TENSOR_DIMENSION_COUNT_MAX1)."""

MATRIX_DIMS = 4
"""So many dims a product of matrices takes (DML_GEMM_OPERATOR_DESC); more end in 80070057."""


_operators_with = partial(operators_with, __package__)


def _load_activations() -> dict[str, OpSet]:
    kinds = {row["operator"]: row["takes_activations"] for row in operator_rows(__package__)}
    return {op: _operators_with("activation", kind) for op, kind in kinds.items() if kind}


ACTIVATIONS_TAKEN: Mapping[str, OpSet] = _load_activations()
"""The activations that become part of the kernel of each operator that takes any."""

MOST_DIMS: Mapping[str, int] = {
    row["operator"]: int(row["most_dims"]) for row in operator_rows(__package__) if row["most_dims"]
}
"""Of how many dims operators run where others take eight. Of Resize and Upsample, those count that
are not 1 before and behind it."""

COMPUTES_IN_PLACE = _operators_with("in_place")
"""No session is made if one of these alone reads a Slice of a tensor that nothing else reads."""
LOSES_NAN = _operators_with("loses_nan")
"""They make a number of NaN."""
SATURATES_IN_FLOAT16 = _operators_with("saturates")
"""In float16 their sums stop at 65504."""
OVERFLOWS_IN_FLOAT16 = _operators_with("overflows")
"""In float16 their squares pass 65504, and the result is wrong."""
ADDS_IN_FLOAT16 = _operators_with("adds_in_float16")
"""In float16 their sums are of float16, where ONNX Runtime's CPU computes them in float32."""
WRONG_WHEN_EMPTY = _operators_with("wrong_when_empty")
"""Of an empty input they return what happened to lie in memory."""
