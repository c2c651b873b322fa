"""bool-cast: the manual is the docstring of the class."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graphfix.core import Match, NodePass, Skip
from graphfix.editing.builder import Builder
from graphfix.facts.large_integers import WIDE_TYPES, has_wide_constant
from graphfix.facts.view import View
from graphfix.facts.zero_one import zero_one_sources
from graphfix.graph.constants import const_of
from graphfix.graph.nodes import attr_int, is_op

_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)


@dataclass(frozen=True)
class TruthSite(Match):
    """A Cast to bool, its input and the type of that."""

    data: ir.Value
    dtype: ir.DataType


@dataclass(frozen=True)
class BoolCast(NodePass[TruthSite]):
    """Replaces a Cast from float, float16 or double to bool with a comparison with 0.

    Also a CastLike whose model tensor is bool, and a Cast of what a constant has made wider than 32
    bits. Other integers are cast rightly and stay as they are.

    Why:
        ONNX says that every number but 0 is True. DirectML cuts the fraction off and stops at 0
        first, in silence. Run on onnxruntime-directml 1.24.4, with Cast and CastLike, from float,
        float16 and double: -inf, -3.4e38, -1, -0.5, 0.25, 0.5, 0.999 and NaN become False, while
        Not(Equal(x, 0)) is right for each of them, and for -0.0 and denormal numbers. BLOOM casts a
        mask of -3.4e38 so: it loses its causal mask and is wrong by 1.2 on every row. Of int64 and
        uint64 only the lower 32 bits are looked at: 4294967296 becomes False.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        masked (float[B, 1, 1, T] addend, float[B, 4, T, T] scores, float low)
            => (float[B, 4, T, T] y)
        {
            hidden = Cast <to = 9> (addend)
            y = Where (hidden, low, scores)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        masked (float[B, 1, 1, T] addend, float[B, 4, T, T] scores, float low)
            => (float[B, 4, T, T] y)
        <float zero = {0.0}>
        {
            is_zero = Equal (addend, zero)
            hidden = Not (is_zero)
            y = Where (hidden, low, scores)
        }

    Left alone:
        An operand whose type only the call of a local function tells, "the type of 'x' is not
        known":
        <
            ir_version: 8,
            opset_import: ["" : 17, "f" : 1]
        >
        call (float[N] x) => (bool[N] y)
        {
            y = f.truth (x)
        }
        <domain: "f", opset_import: ["" : 17]>
        truth (x) => (y)
        {
            y = Cast <to = 9> (x)
        }

    Safety:
        Exact, for NaN (True), -0.0 (False) and infinities too. A Cast whose input was a bool
        before, or is 1 minus one, the product of two, or another layout of one, holds only 0 and 1,
        which DirectML casts rightly: it is skipped. So is a Cast of a constant, which is folded
        on the CPU, and one of integers, unless a constant of more than 32 bits is added to them,
        multiplied with them or chosen instead. Refused: opsets before 11, in which Equal takes no
        floats, and inputs of local functions whose type only their calls tell. bfloat16 and float8
        have no kernel on DirectML and are cast by the CPU.
    """

    anchors = ("Cast", "CastLike")

    def match(self, node: ir.Node, view: View) -> TruthSite | Skip | None:
        """Return the site if a float, or an integer beyond 32 bits, is cast to bool."""
        data = node.inputs[0]
        if data is None or not _makes_bool(node, view) or const_of(data) is not None:
            return None
        dtype = view.shapes.dtype(data)
        if zero_one_sources(data, view) == []:
            return None
        if dtype is None:
            return Skip(node, f"the type of {data.name!r} is not known")
        if dtype not in _FLOATS and not (dtype in WIDE_TYPES and has_wide_constant(data, view)):
            return None
        if view.opset_of_node(node) < (7 if dtype == ir.DataType.INT64 else 11):
            return Skip(
                node, f"in opset {view.opset_of_node(node)} Equal takes no {dtype.name.lower()}"
            )
        return TruthSite(node, data, dtype)

    def message(self, site: Match) -> str:
        """Describe what DirectML gets wrong."""
        if isinstance(site, TruthSite) and site.dtype in WIDE_TYPES:
            return (
                "an integer beyond 32 bits is cast to bool: on DirectML only its lower half counts"
            )
        return "a float is cast to bool: on DirectML 0.5, -1 and -3.4e38 become False"

    def rewrite(self, match: TruthSite, op: Builder) -> ir.Value:
        """Build ``x != 0``."""
        return op.Not(op.Equal(match.data, np.zeros((), match.dtype.numpy())))


def _makes_bool(node: ir.Node, view: View) -> bool:
    """Return whether a Cast or CastLike has a bool result."""
    if is_op(node, "CastLike"):
        return view.shapes.dtype(node.inputs[1]) == ir.DataType.BOOL
    return attr_int(node, "to", 0) == ir.DataType.BOOL
