"""Sets of operators by what they do, from ``table.csv``.

Each set states a law, and ``tests/ops`` runs every operator of it on ONNX Runtime to hold it to
that. A law is about the first output, and about data: an input that is a parameter (a shape,
indices, bounds, a scale) stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphfix.ops.op_set import OpSet, qualified_name
from graphfix.ops.table import operators_of_kind, operators_with, row_of, rows

if TYPE_CHECKING:
    import onnx_ir as ir

# --- Operators that move elements -----------------------------------------------------------------

RESHAPES = operators_of_kind("view") - {"Identity"}
"""A Reshape could do it: all elements stay, in their order, under another shape."""
VIEWS = operators_of_kind("view")
"""All elements stay, in their order: the reshapes, and Identity."""
PERMUTES = operators_of_kind("permute")
"""Each element occurs once in the result, in another order."""
REPEATS = operators_of_kind("repeat")
"""Each element occurs at least once in the result."""
TAKES_PART = operators_of_kind("select")
"""Elements are taken from the first input by place; some may be left out."""
KEEPS_EVERY_ELEMENT = VIEWS | PERMUTES | REPEATS
"""Each element occurs in the result, and nothing else does."""
MOVES_FIRST_INPUT = KEEPS_EVERY_ELEMENT | TAKES_PART
"""Each element of the result is an element of the first input, by its place alone."""
MOVES_ELEMENTS = MOVES_FIRST_INPUT | operators_of_kind("join")
"""Each element of the result is an element of a data input, by its place alone.

Places follow from shapes, attributes and the other inputs, never from the data, so an element-wise
function can be applied before or after. Of Concat every input is data, of the others the first.
"""

# --- Operators that compute element by element ----------------------------------------------------

UNARY = operators_of_kind("unary")
"""Each element follows from the one at the same place of the first input; others are parameters."""
MAPS_ELEMENTS = (UNARY - {"Dropout"}) | {"Identity"}
"""Equal elements of the first input give equal results; a Dropout in training draws numbers."""
BROADCASTS = operators_of_kind("broadcast")
"""Each element follows from those at the same place of all inputs, which broadcast both ways.

Since opset 7 or 8 for the oldest of them: ask ``BROADCASTS.at(opset)``.
"""
ELEMENTWISE = UNARY | BROADCASTS | operators_of_kind("one_way") | {"Identity"}
"""Each element follows from the elements at the same place; PRelu's slope broadcasts one way."""
ARITHMETIC = (BROADCASTS & operators_with("keeps_type")) - operators_with("logic")
"""They broadcast, and the result has the type of the first input."""

# --- The type of the result -----------------------------------------------------------------------

MAKES_BOOL = operators_with("boolean")
"""The result is a boolean that follows from elements: comparisons, logic, IsNaN, IsInf."""
COMPARISONS = operators_with("comparison")
"""They compare two tensors: Equal and the four that order."""
ORDER_COMPARISONS = operators_with("order")
"""They ask which of two numbers is less."""
LOGIC = operators_with("logic")
"""They combine booleans: And, Or, Xor, Not."""
KEEPS_TYPE = operators_with("keeps_type")
"""The result has the type of the first input."""
CASTS = operators_with("casts")
"""They change the type of elements and nothing else."""

# --- Laws of arithmetic ---------------------------------------------------------------------------

COMMUTES = operators_with("commutes")
"""``f(a, b) = f(b, a)``."""
ASSOCIATIVE = operators_with("associative")
"""``f(f(a, b), c) = f(a, f(b, c))``, exactly in integers and booleans."""
ZERO_TO_ZERO = operators_with("zero")
"""Zeros in all data inputs, without a bias, give zeros; for the first output alone."""
ZERO_ABSORBS = operators_with("absorbs")
"""A zero in any input gives a zero, where the others are finite."""
NEVER_NEGATIVE = operators_with("nonnegative")
"""No element of the result is below zero, whatever the inputs."""
KEEPS_NONNEGATIVE = operators_with("nonnegative_in") | operators_with("nonnegative")
"""Data of which nothing is below zero gives a result of which nothing is."""
KEEPS_POSITIVE = operators_with("positive")
"""Data of which all is above zero, however little, gives a result of which all is."""
MONOTONE = operators_with("monotone")
"""A greater element gives no lesser result; with the usual attributes."""
BOUNDED_BY_ONE = operators_with("bounded")
"""All results lie between -1 and 1."""
KEEPS_FINITE = operators_with("finite")
"""Finite elements of up to 10,000 give finite results."""
SCALES_ALONG = operators_with("homogeneous")
"""``f(c * x) = c * f(x)`` for ``c > 0``, all data inputs scaled alike."""
KEEPS_NAN = operators_with("nan")
"""A NaN among the elements that a result follows from makes it NaN on ONNX Runtime's CPU."""
MAKES_WHOLE_NUMBERS = operators_with("whole")
"""The result holds whole numbers, in the type of the input."""
EXACT = operators_with("exact")
"""The result needs no rounding, so every runtime computes the same bits."""
CORRECTLY_ROUNDED = EXACT | operators_with("rounded")
"""The same, or rounded once as IEEE 754 says: Add, Sub, Mul, Div, Sqrt of float32."""
IDLE = operators_with("idle")
"""The result is the input: Identity, and Dropout in inference."""

# --- What mixes places ----------------------------------------------------------------------------

REDUCES = operators_of_kind("reduce")
"""They combine all elements along axes into one."""
REDUCES_PAST_ZEROS = REDUCES & operators_with("ignores_zeros")
"""Reductions that zeros along the axis do not change: sums of all kinds."""
REDUCES_TO_EXTREME = REDUCES & operators_with("extreme")
"""Reductions whose result is one of the elements: ReduceMax, ReduceMin."""
RANKS = operators_of_kind("rank")
"""They compare elements along an axis and tell places: ArgMax, ArgMin, TopK."""
SOFTMAXES = operators_of_kind("softmax")
"""They normalize along an axis by the exponentials or the largest; see ``softmax_axis``."""
NORMS = operators_of_kind("norm")
"""They normalize by statistics over axes; see ``mixed_axes``."""
_COUNTS_AXES = ("axis", "axis_to_end", "last")
_ALONG_AXES = (row.operator for row in rows() if row.shape_of == "0" and row.mixes in _COUNTS_AXES)
NORMALIZES_ALONG_AXES = (SOFTMAXES | NORMS) & OpSet(_ALONG_AXES)
"""Softmaxes and norms over axes that an attribute counts; scales and biases lie along these alone.

InstanceNormalization is none of them: each channel has a scale of its own.
"""
PRODUCTS = operators_of_kind("product")
"""Sums of products over an inner axis: MatMul and its relatives."""
CONVOLVES = operators_of_kind("convolve")
"""Sums of products over a window."""
POOLS = operators_of_kind("pool")
"""The mean, the norm or the largest of a window."""
GLOBAL_POOLS = operators_of_kind("global_pool")
"""The same of all spatial places."""
RECURRENT = operators_of_kind("recurrent")
"""They go step by step along time, with a state."""
ATTENTIONS = operators_of_kind("attention")
"""Attention in one node; see ``attention_slots``."""
SCATTERS = operators_of_kind("scatter")
"""They write updates into a copy of the data."""
RESIZES = operators_of_kind("resize")
"""They read between places of a grid that scales or sizes give: Resize and Upsample."""
RESAMPLES = RESIZES | operators_of_kind("resample")
"""They read between places."""

# --- What shapes and runs depend on ---------------------------------------------------------------

READS_ONLY_SHAPE = operators_with("shape_only")
"""The contents of the input do not matter: Shape, Size, EyeLike, RandomNormalLike."""
MEASURES = operators_of_kind("shape")
"""The result is the shape of the input, or its size."""
COUNTS_CONTENTS = operators_with("counts")
"""The shape of the result follows from contents, so that it is known in a run only."""
TAKES_SIZES = OpSet(row.operator for row in rows() if row.sizes)
"""An input says what shape the result has; see ``size_inputs``."""
TAKES_INDICES = OpSet(row.operator for row in rows() if row.indices)
"""An input is of places in another; see ``index_inputs``."""
RANDOM = operators_with("random")
"""They draw random numbers in each run; a Dropout in training does too."""
HAS_BODY = operators_with("body")
"""An attribute is a graph."""
SEQUENCES = operators_with("sequence")
"""An input or output is a sequence or an optional, no tensor."""

# --- Quantization ---------------------------------------------------------------------------------

QUANTIZES = operators_with("quantizes")
"""They convert between real numbers and quantized integers."""
ROUNDS_TO_INTEGERS = operators_with("rounds_to_integers")
"""They round real numbers to quantized integers."""
ROUNDS_DATA = operators_with("rounds_data")
"""They may round the real numbers that they multiply to integers; see ``rounds_data``."""
COMPUTES_QUANTIZED = operators_with("quantized")
"""They multiply quantized integers."""


def named(names: str) -> OpSet:
    """Return the operators of a text, ``"Add Max Clip"``: what a site adds to a set of its own."""
    return OpSet(names.split())


def size_inputs(node: ir.Node, opset: int | None = None) -> tuple[int, ...]:
    """Return the inputs whose contents decide the shape of the result, whether given or not."""
    row = row_of(qualified_name(node), opset)
    return row.sizes if row else ()


def index_inputs(node: ir.Node, opset: int | None = None) -> tuple[int, ...]:
    """Return the inputs that are places in another input, whether given or not."""
    row = row_of(qualified_name(node), opset)
    return row.indices if row else ()


def shape_source(node: ir.Node, opset: int | None = None) -> int | None:
    """Return the input whose shape the first output has; None if it has none's or broadcasts."""
    row = row_of(qualified_name(node), opset)
    return int(row.shape_of) if row and row.shape_of.isdigit() else None
