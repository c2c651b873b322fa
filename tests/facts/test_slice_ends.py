"""How much a Slice leaves whose computed end is below 0 where the axis is short, against Python."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
import sympy

from graphfix.facts.shapes import infer
from graphfix.facts.symbolic.expressions import compile_dim, dim_of, expr_of, normal_form
from graphfix.facts.symbolic.slice_ends import symbolic_slice_length

T = expr_of(ir.SymbolicDim("T"))
SIZES = np.arange(1, 300)


def _down(above: sympy.Expr, by: int) -> sympy.Expr:
    """Python's ``//``."""
    return normal_form(sympy.floor(above / by))


def _cut(above: sympy.Expr, by: int) -> sympy.Expr:
    """ONNX's Div, which rounds towards 0."""
    return normal_form(
        sympy.Max(0, sympy.floor(above / by)) - sympy.Max(0, sympy.floor(-above / by))
    )


def _at(expr: sympy.Expr) -> list[int]:
    found = compile_dim(dim_of(expr))({"T": SIZES})
    return [int(x) for x in np.broadcast_to(found, SIZES.shape)]


@pytest.mark.parametrize("step", range(1, 9))
@pytest.mark.parametrize("divide", [_down, _cut])
def test_lengths_are_those_of_python_at_every_size(divide, step):
    rng = np.random.default_rng(step)
    for _ in range(6):
        less, more, start = (int(x) for x in rng.integers(0, [12, 3, 9]))
        size = [T, T + 5, 2 * T, step * sympy.floor((T + step - 1) / step)][rng.integers(4)]
        end = sympy.expand(step * (divide(size - less, step) + more) + start)
        found = symbolic_slice_length(size, sympy.Integer(start), end, step)
        assert found is not None, (size, start, end, step)
        limits = zip(_at(end), _at(size), strict=True)
        wanted = [len(range(*slice(start, e, step).indices(n))) for e, n in limits]
        assert _at(found) == wanted, (size, start, end, step)


@pytest.mark.parametrize("end", [-T, 50 - T, T - 500, sympy.Symbol("n") - T])
def test_what_stays_below_0_or_is_not_of_the_axis_alone_is_not_told(end):
    assert symbolic_slice_length(T, sympy.Integer(0), end, 2) is None


def test_inference_tells_the_length_in_terms_of_the_axis():
    model = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 17]>
        m (float[T, 2] x) => (float[n, 2] y)
        <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] four = {4}>
        { t = Shape <start = 0, end = 1> (x)  less = Sub (t, four)  n = Div (less, two)
          whole = Mul (n, two)  end = Add (whole, one)  y = Slice (x, one, end, zero, two) }""")
    assert str(infer(model).dims(model.graph[-1].outputs[0])[0]) == "Max(0, floor(T/2) - 2)"


@pytest.mark.parametrize("less", [1, 4, 9, 20, 40])
@pytest.mark.parametrize("times", [1, 4])
def test_an_axis_that_there_is_not_at_the_least_sizes(times, less):
    for cut in (1, 4, 7):
        size = times * T - less
        found = symbolic_slice_length(size, sympy.Integer(0), size - cut, 1)
        assert found is not None, (size, cut)
        wanted = [(n, len(range(n)[: n - cut])) for n in _at(size) if n >= 0]
        assert [x for x, n in zip(_at(found), _at(size), strict=True) if n >= 0] == [
            length for _, length in wanted
        ]


def test_inference_goes_on_behind_a_slice_of_such_an_axis():
    model = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 17]>
        m (float[1, 2, T] x, int64[6] amounts, float[2, 2, 7] w, float[2, 2, 8] up)
            => (float[a, 2, n] y, float[T, 2, 1] z)
        <int64[1] zero = {0}, int64[1] two = {2}, int64[1] one = {1}, int64[1] four = {4}>
        { p = Pad (x, amounts)  c = Conv (p, w)  t = ConvTranspose <strides = [4]> (c, up)
          s = Shape <start = 2, end = 3> (t)  end = Sub (s, four)  cut = Slice (t, zero, end, two)
          y = Relu (cut)  z = Transpose <perm = [2, 1, 0]> (x) }""")
    shapes = infer(model)
    assert shapes.dims(model.graph.outputs[0]) is not None
    assert [str(x) for x in shapes.dims(model.graph.outputs[1]) or ()] == ["T", "2", "1"]


def test_in_usual_runs_a_table_reaches_as_far_as_it_is_read() -> None:
    """dynamo counts the rows of ``table[p : p + s]`` as Min(9, p + s) - Min(9, p)."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[past, 4] kept, float[seq, 4] x, float[9, 4] table) => (float[N, 4] rows, float[M] y)
    <int64[1] nine = {9}, int64[1] nought = {0}>
    {
        p = Shape <start = 0, end = 1> (kept) s = Shape <start = 0, end = 1> (x) t = Add (p, s)
        rows = Slice (table, p, t, nought)
        end = Min (nine, t) start = Min (nine, p) n = Sub (end, start) y = ConstantOfShape (n)
    }"""
    known = {}
    for usual in (True, False):
        model = ir.from_onnx_text(text)
        known[usual] = infer(model, usual=usual).dims(model.graph.outputs[1])
    assert list(map(str, known[True] or ())) == ["seq"]
    assert list(map(str, known[False] or ())) != ["seq"]


@pytest.mark.parametrize("rows", ["nine", "last"])
def test_what_a_table_is_added_to_is_no_longer_than_it(rows: str) -> None:
    """Of more rows than the table has, the Add fails: no run that succeeds has more."""
    model = ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : 17]>
    m (float[past, 4] kept, float[seq, 4] x, float[9, 4] table) => (float[N, 4] sum, float[M] y)
    <int64[1] nine = {{9}}, int64[1] nought = {{0}}, int64[1] last = {{5}}>
    {{
        p = Shape <start = 0, end = 1> (kept) s = Shape <start = 0, end = 1> (x) t = Add (p, s)
        all = Concat <axis = 0> (kept, x) end = Min ({rows}, t)
        first = Slice (table, nought, end, nought) sum = Add (all, first)
        start = Min ({rows}, p) n = Sub (end, start) y = ConstantOfShape (n)
    }}""")
    shapes = infer(model)
    assert str((shapes.dims(model.graph.outputs[1]) or ("nothing",))[0]) == "seq"
    assert [str(x) for x in shapes.dims(model.graph.outputs[0]) or ()] == ["past + seq", "4"]


def test_what_a_branch_says_holds_in_that_branch_alone() -> None:
    model = ir.from_onnx_text("""<ir_version: 8, opset_import: ["" : 17]>
    m (float[past, 4] kept, float[seq, 4] x, float[9, 4] table, bool is_short) => (float[M] y)
    <int64[1] nine = {9}, int64[1] nought = {0}, int64[1] least = {8}>
    {
        p = Shape <start = 0, end = 1> (kept) s = Shape <start = 0, end = 1> (x) t = Add (p, s)
        end = Min (nine, t)
        y = If (is_short) <
            then_branch = then () => (float[M] made) {
                all = Concat <axis = 0> (kept, x) first = Slice (table, nought, end, nought)
                sum = Add (all, first) start = Min (nine, p) n = Sub (end, start)
                made = ConstantOfShape (n) },
            else_branch = other () => (float[M] also) {
                begin = Min (nine, p) left = Sub (end, begin) also = ConstantOfShape (left) }>
    }""")
    shapes = infer(model)
    (choice,) = (x for x in model.graph if x.op_type == "If")
    branches = [choice.attributes[x].as_graph() for x in ("then_branch", "else_branch")]
    inside, other = ([str(x) for x in shapes.dims(g.outputs[0]) or ()] for g in branches)
    assert inside == ["seq"]
    assert other != ["seq"]
    assert [str(x) for x in shapes.dims(choice.outputs[0]) or ()] != ["seq"]
