"""Which nodes do nothing, and what one operator does for two, rule by rule."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.editing.builder import Builder
from graphfix.facts.view import View
from graphfix.graph.constants import const_of
from graphfix.passes.common.fold_view import FoldView
from graphfix.passes.sizes.fold_rules.chains import CHAIN_OPERATORS, simplify_chain
from tests.passes.models import model

INPUTS = """m (float[B, T, 4] x, float[B, T, 4] z, int64[B] i, int32[B] j, bool[B] b,
    float16[B] h, float[3, 8] t, float[B, 0] none, float[B, 2] some, bool go, uint8[B] u,
    int8[B] e, int64[B, 1] places, int64[B, M] rows, int64[1] k, float[1] f1) => (out)
    <float one = {1}, float[1] one1 = {1}, float two = {2}, float[1, 1, 1, 1] wide = {1},
     int64 nil = {0}, int64 unit = {1}, int64[1] nil1 = {0}, int64[1] unit1 = {1},
     int64[1] two1 = {2}, int64[1] three1 = {3}, int64[1] minus1 = {-1}, int64[1] five1 = {5},
     int64[1] end = {9223372036854775807}, int64[3] ones = {1, 1, 1}, int64[1, 1] row = {2},
     int64[1, 1] lastrow = {-1}, int64[1, 1, 1] deep = {2}, float limit = {20}, float low = {14.5},
     float edge = {15}, float[2] limits = {20, 20}, bool yes = {1}, bool no = {0},
     bool[1] yes1 = {1}, bool[2] both = {1, 1}, bool[1, 1] yes2 = {1}, int64[2] axes = {0, 1}>"""


ONES = "s = ConstantOfShape <value = int64[1] {1}> (k)"


def shown(value: ir.Value | None, new: set[ir.Node]) -> str:
    """Return a value as the nodes that were built for it."""
    node = None if value is None else value.producer()
    if node in new and node is not None:
        attributes = "".join(
            f" {name}={x.value if x.type != ir.AttributeType.TENSOR else x.value.numpy().tolist()}"
            for name, x in node.attributes.items()
        )
        return f"{node.op_type}({', '.join(shown(x, new) for x in node.inputs)}){attributes}"
    array = const_of(value)
    if array is not None and value is not None and str(value.name).startswith("gf_"):
        return str(array.tolist())
    return "" if value is None else value.name or ""


def simplified(body: str, opset: int = 18) -> str | None:
    """Return what takes the place of y, which is no output; None if it stays."""
    m = model(f"{INPUTS} {{ {body} out = Identity (y) }}", opset)
    look, node = FoldView(View(m)), m.graph[-2]
    replacement = simplify_chain(node, look)
    if replacement is None:
        return None
    assert replacement.reason
    before = {*m.graph}
    op = Builder("test", look.view)
    op.start_site(node)
    (value,) = replacement.build(op)
    return shown(value, {*m.graph} - before)


@pytest.mark.parametrize(
    ("body", "result"),
    [
        ("y = Identity (x)", "x"),
        ("y = Relu (x)", None),
        # Casts.
        ("y = Cast <to = 1> (x)", "x"),
        ("y = Cast <to = 7> (i)", "i"),
        ("y = Cast <to = 10> (x)", None),
        ("w = Cast <to = 7> (j) y = Cast <to = 6> (w)", "j"),
        ("w = Cast <to = 1> (h) y = Cast <to = 10> (w)", "h"),
        ("w = Cast <to = 11> (x) y = Cast <to = 1> (w)", "x"),
        ("w = Cast <to = 6> (i) y = Cast <to = 7> (w)", None),
        ("w = Cast <to = 1> (j) y = Cast <to = 6> (w)", None),
        ("w = Cast <to = 7> (j) y = Cast <to = 1> (w)", "Cast(j) to=1"),
        ("w = Cast <to = 7> (j) v = Neg (w) y = Cast <to = 1> (w)", None),
        ("w = Cast <to = 7> (j) v = Neg (w) y = Cast <to = 6> (w)", "j"),
        ("w = Cast <to = 6> (b) y = Cast <to = 1> (w)", "Cast(b) to=1"),
        ("w = Cast <to = 10> (u) y = Cast <to = 1> (w)", "Cast(u) to=1"),
        ("w = Cast <to = 16> (u) y = Cast <to = 1> (w)", None),
        ("w = Cast <to = 2> (e) y = Cast <to = 1> (w)", None),
        ("w = Neg (x) y = Cast <to = 11> (w)", None),
        # Positions that are counted.
        (f"{ONES} c = CumSum (s, nil) y = Cast <to = 1> (c)",
         "CumSum(ConstantOfShape(k) value=[1.0], nil)"),
        (f"{ONES} c = CumSum <exclusive = 1> (s, nil) "
         "y = Cast <to = 1> (c)",
         "CumSum(ConstantOfShape(k) value=[1.0], nil) exclusive=1"),
        (f"{ONES} c = CumSum (s, nil) y = Cast <to = 11> (c)",
         None),
        ("s = ConstantOfShape <value = int64[1] {2}> (k) c = CumSum (s, nil) y = Cast <to = 1> (c)",
         None),
        (f"{ONES} c = CumSum (s, nil) v = Neg (c) "
         "y = Cast <to = 1> (c)", None),
        ("s = ConstantOfShape <value = int64[1] {1}> (k) v = Neg (s) c = CumSum (s, nil) "
         "y = Cast <to = 1> (c)", None),
        ("c = CumSum (i, nil) y = Cast <to = 1> (c)", None),
        ("y = CastLike (x, z)", "x"),
        ("y = CastLike (i, x)", "Cast(i) to=1"),
        ("y = CastLike <saturate = 1> (i, x)", None),
        # Slices of everything, and of a Slice.
        ("y = Slice (x, nil1, end, unit1)", "x"),
        ("y = Slice (t, nil1, five1, nil1)", "t"),
        ("y = Slice (x, nil1, end, unit1, unit1)", "x"),
        ("y = Slice (t, minus1, k, nil1, minus1)", None),
        ("y = Slice (x, unit1, end, unit1)", None),
        ("y = Slice (t, nil1, end, nil1, minus1)", None),
        ("y = Slice (t, nil1, end, nil1, k)", None),
        ("s = Slice (t, unit1, end, nil1) y = Slice (s, unit1, end, nil1)",
         "Slice(t, [2], [9223372036854775807], [0])"),
        ("s = Slice (t, unit1, end, nil1) y = Slice (s, two1, five1, unit1)",
         "Slice(t, [1, 2], [9223372036854775807, 5], [0, 1])"),
        ("s = Slice (t, unit1, end, nil1) v = Neg (s) y = Slice (s, unit1, end, nil1)", None),
        ("s = Slice (t, k, end, nil1) y = Slice (s, unit1, end, nil1)", None),
        ("s = Slice (t, unit1, end, nil1) y = Slice (s, k, end, nil1)", None),
        ("s = Slice (t, minus1, end, nil1) y = Slice (s, minus1, end, nil1)",
         "s"),
        ("s = Neg (t) y = Slice (s, unit1, end, nil1)", None),
        ("y = Expand (x, ones)", "x"),
        ("y = Expand (f1, k)", None),
        # Parts that are empty.
        ("y = Concat <axis = 1> (some, none)", "some"),
        ("y = Concat <axis = 1> (none, some)", "some"),
        ("y = Concat <axis = -1> (none, some, some)", "Concat(some, some) axis=-1"),
        ("y = Concat <axis = 0> (none, none)", None),
        ("y = Concat <axis = 1> (none, none)", "none"),
        ("y = Concat <axis = 1> (some)", "some"),
        ("y = Concat <axis = 1> (some, some)", None),
        ('y = Pad (t, pads, "")', "Pad(t, pads)"),
        ("y = Pad (t, pads)", None),
        ("y = Pad (t, pads, one)", None),
        ('y = Pad (t, pads, "", axes)', None),
        # What every bit outlives.
        ("y = Mul (x, one)", "x"),
        ("y = Mul (one1, x)", "x"),
        ("y = Div (x, one)", "x"),
        ("y = Div (one, x)", None),
        ("y = Mul (x, two)", None),
        ("y = Mul (x, wide)", None),  # it adds a dim
        ("n = Neg (z) y = Add (x, n)", "Sub(x, z)"),
        ("n = Neg (z) y = Add (n, x)", "Sub(x, z)"),
        ("n = Neg (z) y = Sub (x, n)", "Add(x, z)"),
        ("n = Neg (z) y = Sub (n, x)", None),
        ("n = Neg (z) v = Relu (n) y = Add (x, n)", None),
        ("n = Abs (z) y = Add (x, n)", None),
        # Opposites.
        ("n = Not (b) y = Not (n)", "b"),
        ("y = Not (b)", None),
        ("n = Less (i, unit) y = Not (n)", "GreaterOrEqual(i, unit)"),
        ("n = LessOrEqual (i, unit) y = Not (n)", "Greater(i, unit)"),
        ("n = Greater (i, unit) y = Not (n)", "LessOrEqual(i, unit)"),
        ("n = GreaterOrEqual (i, unit) y = Not (n)", "Less(i, unit)"),
        ("n = Less (x, one) y = Not (n)", None),  # a NaN is neither
        ("n = Less (i, unit) v = Not (n) y = Not (n)", None),
        ("n = Equal (i, unit) y = Not (n)", None),
        # Rows by one index each.
        ("p = Unsqueeze (i, minus1) y = GatherND (t, p)", "Gather(t, Squeeze(p, [-1])) axis=0"),
        ("y = GatherND (t, places)", None),
        ("y = GatherND (t, rows)", None),
        ("y = GatherND (t, row)", "Slice(t, [2], [3], [0])"),
        ("y = GatherND (t, lastrow)", "Slice(t, [-1], [9223372036854775807], [0])"),
        ("y = GatherND (t, deep)", None),
        ("s = Transpose <perm = [1, 0]> (t) y = GatherND (s, row)",
         "Transpose(Slice(t, [2], [3], [1])) perm=(1, 0)"),
        ("y = GatherND <batch_dims = 1> (t, row)", None),
        ("n = Shape <start = 1, end = 2> (x) s = Squeeze (n, nil1) r = Range (nil, s, unit) "
         "y = Gather (t, r)", "Slice(t, [0], Reshape(s, [1]), [0])"),
        ("n = Shape <start = 1, end = 2> (x) s = Squeeze (n, nil1) r = Range (nil, s, unit) "
         "y = Gather <axis = 1> (t, r)", "Slice(t, [0], Reshape(s, [1]), [1])"),
        ("n = Shape <start = 1, end = 2> (x) s = Squeeze (n, nil1) r = Range (unit, s, unit) "
         "y = Gather (t, r)", None),
        ("n = Shape <start = 1, end = 2> (x) s = Squeeze (n, nil1) m = Sub (s, unit) "
         "r = Range (nil, m, unit) y = Gather (t, r)", None),
        ("n = Shape <start = 1, end = 2> (x) r = Range (nil, n, unit) y = Gather (t, r)", None),
        ("f = Squeeze (k) r = Range (nil, f, unit) y = Gather (t, r)", None),
        # Booleans beside a constant.
        ("y = Equal (b, yes)", "b"),
        ("y = Equal (yes1, b)", "b"),
        ("y = Equal (b, no)", "Not(b)"),
        ("y = Xor (b, no)", "b"),
        ("y = Xor (b, yes)", "Not(b)"),
        ("y = Equal (b, yes2)", None),
        ("y = Equal (go, both)", None),
        ("y = Equal (i, unit)", None),
        ("y = Equal (b, b)", None),
        # From 15 on a number is its softplus.
        ("s = Softplus (x) g = Greater (x, limit) y = Where (g, x, s)", "s"),
        ("s = Softplus (x) g = Greater (x, edge) y = Where (g, x, s)", "s"),
        ("s = Softplus (x) g = Greater (x, low) y = Where (g, x, s)", None),
        ("s = Softplus (f1) g = Greater (f1, limits) y = Where (g, f1, s)", None),
        ("s = Softplus (z) g = Greater (x, limit) y = Where (g, x, s)", None),
        ("s = Softplus (x) g = Greater (x, limit) y = Where (g, s, x)", None),
        ("s = Softplus (h) l = Cast <to = 10> (limit) g = Greater (h, l) y = Where (g, h, s)",
         None),
        ("a, y = Split <num_outputs = 2> (t)", None),
    ],
)  # fmt: skip
def test_what_takes_the_place_of_a_node(body: str, result: str | None) -> None:
    pads = "pads = Constant <value_ints = [0, 1, 0, 1]> ()" if "pads" in body else ""
    assert simplified(f"{pads} {body}") == result


def test_a_type_that_is_not_known_is_no_cast() -> None:
    either = """w = If (go) <then_branch = a () => (c) { c = Identity (x) },
        else_branch = e () => (f) { f = Identity (i) }>"""
    assert simplified(f"{either} y = CastLike (i, w)") is None


@pytest.mark.parametrize(
    ("body", "opset", "result"),
    [
        ("n = Greater (i, unit) y = Not (n)", 15, None),
        ("n = Greater (i, unit) y = Not (n)", 16, "LessOrEqual(i, unit)"),
        ("n = GreaterOrEqual (i, unit) y = Not (n)", 15, "Less(i, unit)"),
        ("n = Neg (z) y = Add (x, n)", 6, None),
        ("n = Neg (z) y = Add (x, n)", 7, "Sub(x, z)"),
        ("p = Unsqueeze <axes = [1]> (i) y = GatherND (t, p)", 12,
         "Gather(t, Squeeze(p) axes=(-1,)) axis=0"),
        ("s = Slice <starts = [1], ends = [3], axes = [1]> (t) "
         "y = Slice <starts = [1], ends = [2], axes = [1]> (s)", 9,
         "Slice(t) starts=(2,) ends=(3,) axes=(1,)"),
    ],
)  # fmt: skip
def test_what_takes_its_place_at_an_opset(body: str, opset: int, result: str | None) -> None:
    assert simplified(body, opset) == result


def test_each_operator_has_a_rule() -> None:
    assert {"Identity", "Cast", "Slice", "Where", "Reshape"} <= CHAIN_OPERATORS
    assert "Relu" not in CHAIN_OPERATORS
