"""Division that rounds down is known in every spelling of it, and in no other."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts.shapes import infer

WAYS = {
    "TorchScript": """q = Div (a, by)  low = Less (a, zero)  neg = Less (by, zero)
        apart = Xor (low, neg)  rest = Mod (a, by)  no = Equal (rest, zero)  some = Not (no)
        both = And (apart, some)  off = Cast <to = 7> (both)  n = Sub (q, off)""",
    "TorchScript, a Mul for a Cast": """q = Div (a, by)  low = Less (a, zero)
        neg = Less (by, zero)  apart = Xor (low, neg)  rest = Mod (a, by)
        no = Equal (rest, zero)  some = Not (no)  both = And (some, apart)
        as_number = Cast <to = 7> (both)  off = Mul (as_number, one)  n = Sub (q, off)""",
    "dynamo": """q = Div (a, by)  low = Less (a, zero)  above = Greater (by, zero)
        apart = Equal (low, above)  rest = Mod (a, by)  some = Cast <to = 9> (rest)
        both = And (apart, some)  off = Cast <to = 7> (both)  n = Sub (q, off)""",
    "dynamo, by signs": """q = Div (a, by)  sign = Sign (a)  plus = Sign (by)
        same = Equal (sign, plus)  apart = Not (same)  rest = Mod (a, by)
        some = Cast <to = 9> (rest)  both = And (apart, some)  off = Cast <to = 7> (both)
        n = Sub (q, off)""",
    "a Where": """q = Div (a, by)  low = Less (a, zero)  back = Mul (q, by)
        rest = Sub (a, back)  some = Less (rest, zero)  both = And (low, some)
        off = Where (both, one, zero)  n = Sub (q, off)""",
}
OTHERS = {
    "rounded up": "q = Div (a, by)  rest = Mod (a, by)  some = Cast <to = 9> (rest) "
    "off = Cast <to = 7> (some)  n = Sub (q, off)",
    "another number": "q = Div (a, by)  rest = Mod (b, by)  some = Cast <to = 9> (rest) "
    "low = Less (a, zero) both = And (low, some) off = Cast <to = 7> (both)  n = Sub (q, off)",
    "the fraction's sign": """q = Div (a, by)  low = Less (a, zero)
        rest = Mod <fmod = 1> (a, by)  some = Less (rest, one)  both = And (low, some)
        off = Cast <to = 7> (both)  n = Sub (q, off)""",
}


def size(way: str, less: int) -> str:
    model = ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[T, U] x) => (float[N] y)
        <int64 zero = {{0}}, int64 one = {{1}}, int64 by = {{3}}, int64 less = {{{less}}},
         int64 more = {{9}}, int64[1] list = {{-1}}>
        {{ t1 = Shape <start = 0, end = 1> (x)  t = Squeeze (t1)  a = Sub (t, less)
           u1 = Shape <start = 1, end = 2> (x)  b = Squeeze (u1)
           {way}  m = Add (n, more)  r = Reshape (m, list)  y = ConstantOfShape (r) }}""")
    model.graph.outputs[0].shape = None
    (dim,) = infer(model, usual=True).dims(model.graph.outputs[0]) or ("nothing",)
    return str(dim)


@pytest.mark.parametrize("less", [0, 7])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_quotient_that_is_rounded_down_is_known(way: str, less: int) -> None:
    assert size(way, less) == ("floor(T/3) + 9" if not less else "floor(T/3 - 7/3) + 9")


@pytest.mark.parametrize("way", OTHERS.values(), ids=OTHERS)
def test_what_is_rounded_otherwise_is_not_taken_for_that(way: str) -> None:
    found = size(way, 7)
    assert found == "nothing" or "_d" in found  # a number that nothing is known of


def test_a_fraction_above_minus_one_is_cut_upwards() -> None:
    """Of three frames, a window long, it is -1/2, and a Cast makes 0 of that."""
    model = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 17]>
        m (float[1, 1, T] x) => (float[1, 1, U] c, int64[1] y)
        <float[1, 1, 3] k = {1, 1, 1}, int64[1] i2 = {2}, int64[1] i3 = {3}, float half = {0.5},
         float one = {1}>
        { c = Conv <strides = [2]> (x, k)  s = Shape (x)  t = Slice (s, i2, i3)  h = Div (t, i2)
          f = Cast <to = 1> (h)  g = Mul (f, half)  d = Sub (g, one)  y = Cast <to = 7> (d) }""")
    (held,) = infer(model, usual=True).known_elements(model.graph.outputs[1]) or ("nothing",)
    assert held == "nothing" or "_d" in str(held)


def test_a_divisor_in_a_list_makes_a_list() -> None:
    way = WAYS["TorchScript"].replace("(a, by)", "(a, by1)").replace("zero)", "list0)")
    way = f"by1 = Identity (listed)  list0 = Identity (listed0)  {way}"
    model = ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[T] x) => (float[N] y)
        <int64[1] listed = {{3}}, int64[1] listed0 = {{0}}, int64[1] by = {{3}}>
        {{ t1 = Shape (x)  a = Squeeze (t1)  {way}  y = ConstantOfShape (n) }}""")
    model.graph.outputs[0].shape = None
    (dim,) = infer(model, usual=True).dims(model.graph.outputs[0]) or ("nothing",)
    assert str(dim) == "floor(T/3)"


@pytest.mark.parametrize("stride", [2, 3, 4, 8])
@pytest.mark.parametrize("less", [8, 9])
def test_what_is_a_multiple_of_a_size_is_not_below_0(stride, less):
    """A Conv of 5 makes at least one frame, and a ConvTranspose as many times that, and a few."""
    model = ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[1, 2, T] x, float[2, 2, 5] w, float[2, 2, 8] up) => (int64[1] y)
        <int64[1] seven = {{7}}, int64[1] less = {{{less}}}>
        {{ c = Conv (x, w)  t = ConvTranspose <strides = [{stride}]> (c, up)
          s = Shape <start = 2, end = 3> (t)  rest = Sub (s, less)  y = Div (rest, seven) }}""")
    found = infer(model).known_elements(model.graph.outputs[0])
    assert found is not None
    assert ("Max" in str(found[0])) == (less > 8)  # Div rounds to 0, and 8 - 9 is below


@pytest.mark.parametrize("usual", [True, False])
def test_a_pool_makes_a_frame_in_usual_runs(usual):
    """ONNX Runtime makes none of a clip that is too short, and does not fail."""
    model = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 17]>
        m (float[1, 2, T] x) => (int64[1] y) <int64[1] seven = {7}, int64[1] one = {1}>
        { c = AveragePool <kernel_shape = [5]> (x)
          s = Shape <start = 2, end = 3> (c)  rest = Sub (s, one)  y = Div (rest, seven) }""")
    found = infer(model, usual=usual).known_elements(model.graph.outputs[0])
    assert found is not None
    assert ("Max" in str(found[0])) == (not usual)
