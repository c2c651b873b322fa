"""Arithmetic of sizes: one form for equal ones, and what is seen of two of them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
import sympy

from graphfix.facts.symbolic.expressions import (
    Dim,
    array_of_exprs,
    bool_expr,
    compile_dim,
    dim_key,
    dim_of,
    divide_dims,
    equal_dims,
    expr_of,
    integers_in,
    is_capped_by_number,
    is_min_with,
    is_positive,
    is_rest_of_table,
    items_of,
    linear_solution,
    multiply_dims,
    normal_form,
    positive_parts,
    product_of_dims,
    replace_symbols,
    rounded_down,
    symbols_of,
    with_zero_sizes,
    without_common_factors,
)

NO_EXPRESSION = ir.SymbolicDim("batch size")
UNKNOWN = ir.SymbolicDim(None)


def dim(text: str | int) -> Dim:
    return text if isinstance(text, int) else ir.SymbolicDim(text)


def symbolic(text: str) -> ir.SymbolicDim:
    return ir.SymbolicDim(text)


def name(text: Dim | None) -> str | int | None:
    return text if isinstance(text, int) or text is None else str(text)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("floor((x - 1)/2) + 1", "floor(x/2 + 1/2)"),
        ("floor((x + 5)/2)", "floor(x/2 + 1/2) + 2"),
        ("floor((x - 5)/2)", "floor(x/2 + 1/2) - 3"),
        ("floor(-x/2)", "-floor(x/2 + 1/2)"),
        ("floor((3 - x)/2)", "-floor(x/2) + 1"),
        ("ceiling(x/4)", "floor(x/4 + 3/4)"),
        ("ceiling(ceiling(x/2)/2)", "floor(x/4 + 3/4)"),
        ("x + Mod(-x, 4)", "4*floor(x/4 + 3/4)"),
        ("Mod(x, 4)", "x - 4*floor(x/4)"),
        ("Mod(3*x, 4)", "-x + 4*floor(x/4 + 3/4)"),
        ("Mod(2*x, 4)", "2*x - 4*floor(x/2)"),
        ("Mod(x, y)", "Mod(x, y)"),
        ("Mod(x + y, 1)", "0"),
        ("Mod(x, 2)", "x - 2*floor(x/2)"),
        ("floor((floor(x/y) + 1)/3)", "floor(floor(x/y)/3 + 1/3)"),
        ("floor(floor(x/2)/y)", "floor(floor(x/2)/y)"),
        ("Max(x, y, x - 1)", "Max(x, y)"),
        ("Min(x, y, x + 1)", "Min(x, y)"),
        ("Max(1 - x, 0, y)", "Max(y, 1 - x)"),
        ("floor(floor(x/2)/3)", "floor(x/6)"),
        ("floor((floor(x/2) + 1)/3)", "floor(x/6 + 1/3)"),
        ("Max(x, 1)", "x"),
        ("Max(x, 2)", "Max(2, x)"),
        ("Min(x, 1)", "1"),
        ("Min(x, x + y)", "x"),
        ("Max(x, y)", "Max(x, y)"),
        ("Max(0, 5 - x)", "-x + Max(0, x - 5) + 5"),
        ("Max(0, x - 5)", "Max(0, x - 5)"),
        ("Min(0, x - 5)", "x - Max(0, x - 5) - 5"),
        ("Min(0, 5 - x)", "-Max(0, x - 5)"),
        ("floor(x/y)", "floor(x/y)"),
    ],
)
def test_equal_sizes_have_one_form(text: str, form: str) -> None:
    expr = normal_form(expr_of(symbolic(text)))
    assert sympy.sstr(expr).replace(" ", "") in {
        form.replace(" ", ""),
        sympy.sstr(sympy.sympify(form)).replace(" ", ""),
        sympy.sstr(expr_of(symbolic(form))).replace(" ", ""),
    }
    for x in (*range(1, 14), 100):
        values = {"x": x, "y": 3}
        assert expr.subs({s: values[s.name] for s in expr.free_symbols}) == sympy.sympify(
            text, locals={"floor": sympy.floor}
        ).subs(values)


def test_a_form_has_nothing_that_has_another() -> None:
    for text in ("floor((x - 5)/2)", "Mod(3*x, 4)", "x + Mod(-x, 4)", "Max(0, 5 - x)"):
        expr = normal_form(expr_of(symbolic(text)))
        assert not expr.has(sympy.Mod)
        assert normal_form(expr) == expr
    assert equal_dims(symbolic("Mod(3*x, 4)"), symbolic("Mod(-x, 4)"))
    assert not equal_dims(symbolic("Mod(x, 4)"), symbolic("Mod(-x, 4)"))


def test_dims_are_numbers_or_share_an_object() -> None:
    assert dim_of(sympy.Integer(3)) == 3
    x = sympy.Symbol("x", integer=True, positive=True)
    assert dim_of(2 * x) is dim_of(x + x)
    assert str(dim_of(-(x**2))) == "-1*x**2"
    assert str(dim_of(-2 * x)) == "-2*x"
    assert str(dim_of(-x)) == "-1*x"
    assert expr_of(dim_of(-(x**2))) == -(x**2)
    assert expr_of(7) == 7


def test_the_names_in_a_dim() -> None:
    assert symbols_of(4) == frozenset()
    assert symbols_of(UNKNOWN) == frozenset()
    assert symbols_of(symbolic("a + ceiling(b/2)")) == {"a", "b"}
    assert symbols_of(NO_EXPRESSION) == {"batch size"}


def test_symbols_are_replaced() -> None:
    assert name(with_zero_sizes(symbolic("a + b"), ["a"])) == "b"
    assert with_zero_sizes(symbolic("2*a"), ["a"]) == 0
    same = symbolic("a + b")
    assert with_zero_sizes(same, ["c"]) is same
    assert replace_symbols(same, {"c": 3}) is same
    assert name(replace_symbols(same, {"a": symbolic("2*b")})) == "3*b"
    assert replace_symbols(same, {"a": 3, "b": 4, "c": 5}) == 7
    assert replace_symbols(4, {"a": 3}) == 4


@pytest.mark.parametrize(
    ("text", "known", "positive"),
    [
        (1, "", True),
        (0, "", False),
        (-1, "", False),
        ("a", "a", True),
        ("a", "b", False),
        ("2*a*b", "a b", True),
        ("2*a*b", "a", False),
        ("-2*a", "a", False),
        ("a + b", "a", True),
        ("a + b", "c", False),
        ("8*a + 8*b", "b", True),
        ("a - b", "a b", False),
        ("a*b + c", "a b", True),
        ("a*b + c", "a", False),
        ("a*b + c", "c", True),
        ("a + floor(b/2)", "a b", False),
        ("floor(a/2)", "a", False),
    ],
)
def test_what_is_positive(text: str | int, known: str, *, positive: bool) -> None:
    assert is_positive(dim(text), frozenset(known.split())) is positive


def test_a_sum_that_is_known_to_be_positive() -> None:
    difference = symbolic("2*a - 2*b")
    assert is_positive(difference, positive_parts(expr_of(symbolic("a - b"))))
    assert not is_positive(difference, frozenset(["a", "b"]))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a", {"a"}),
        ("4*a*b", {"a", "b"}),
        ("a*(b + c)", {"a", "b + c"}),
        ("a*(b + c)*(b + d)", {"a"}),
    ],
)
def test_parts_of_a_positive_product(text: str, parts: set[str]) -> None:
    assert positive_parts(expr_of(symbolic(text))) == parts


def test_products() -> None:
    assert multiply_dims(3, 4) == 12
    a, b = symbolic("a"), symbolic("b")
    assert multiply_dims(1, a) is a
    assert multiply_dims(a, 1) is a
    assert name(multiply_dims(a, 2)) == "2*a"
    assert multiply_dims(a, b) is multiply_dims(b, a)
    assert name(multiply_dims(a, 0)) == 0
    assert multiply_dims(2, NO_EXPRESSION) == UNKNOWN
    assert multiply_dims(2, UNKNOWN) == multiply_dims(UNKNOWN, a) == UNKNOWN
    assert not equal_dims(product_of_dims([UNKNOWN, 2]), product_of_dims([UNKNOWN, 2]))
    assert product_of_dims([]) == 1
    assert product_of_dims([2, 3]) == 6
    assert name(product_of_dims([2, a, 3])) == "6*a"


@pytest.mark.parametrize(
    ("a", "b", "quotient"),
    [
        (6, 3, 2),
        (6, 4, None),
        (0, 3, 0),
        (6, 0, None),
        ("a", "a", 1),
        ("2*a", 2, "a"),
        ("3*a", 2, None),
        ("2*a*b", "a", "2*b"),
        ("a", "b", None),
        ("batch size", 2, None),
        ("batch size", "batch size", 1),
    ],
)
def test_quotients(a: str | int, b: str | int, quotient: str | int | None) -> None:
    assert name(divide_dims(dim(a), dim(b))) == quotient


def test_what_is_not_known_has_no_quotient() -> None:
    assert divide_dims(UNKNOWN, UNKNOWN) is None
    assert divide_dims(UNKNOWN, symbolic("a")) is None
    assert divide_dims(symbolic("a"), UNKNOWN) is None


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (3, 3, True),
        (3, 4, False),
        (3, "a", False),
        ("a", 3, False),
        ("a", "a", True),
        ("a", "b", False),
        ("a + b", "b + a", True),
        ("a*(b + 1)", "a*b + a", True),
        ("a*(b + 1)", "a*b + b", False),
        ("a + b", "a", False),
        ("floor((a + 2)/2)", "floor(a/2) + 1", True),
        ("floor((a + 1)/2)", "floor(a/2) + 1", False),
        ("floor(a/3 + b/3)", "floor(a/3) + floor(b/3)", False),
        ("Max(a, 2000)", "2000 + 0*a", False),
        ("batch size", "batch size", True),
        ("batch size", "a", False),
        # Of quotients that no expansion makes alike.
        ("(a**2 - 4)/(a - 2)", "a + 2", True),
        ("(a**2 - 4)/(a - 2)", "a + 3", False),
    ],
)
def test_equality(a: str | int, b: str | int, *, same: bool) -> None:
    assert equal_dims(dim(a), dim(b)) is same


def test_an_unknown_dim_equals_nothing() -> None:
    assert not equal_dims(UNKNOWN, UNKNOWN)
    assert not equal_dims(symbolic("a"), UNKNOWN)
    assert not equal_dims(UNKNOWN, symbolic("a"))


def test_sizes_are_computed_for_many_lengths_at_once() -> None:
    lengths = np.array([1, 2, 3, 100, 101, 102])
    thirds = compile_dim(symbolic("floor(T/3 + 2/3)"))({"T": lengths})
    assert thirds.tolist() == [1, 1, 1, 34, 34, 34]
    assert thirds.dtype == np.int64
    assert compile_dim(symbolic("T - S"))({"S": np.array(2), "T": np.array(7)}) == 5
    assert compile_dim(symbolic("Max(T, 5)"))({"T": lengths}).tolist()[:3] == [5, 5, 5]


def test_keys_are_shared_by_equal_dims() -> None:
    assert dim_key(3) == 3
    assert dim_key(UNKNOWN) is None
    assert dim_key(symbolic("a")) == "a"
    assert dim_key(symbolic("a*(b + 1)")) == dim_key(symbolic("a*b + a"))
    assert dim_key(symbolic("a - a + 4")) == 4
    assert dim_key(NO_EXPRESSION) == "batch size"
    assert dim_key(symbolic("a + b")) != dim_key(symbolic("a + 2*b"))


@pytest.mark.parametrize(
    ("a", "capped"),
    [
        ("Min(b, 2)", True),
        ("Min(b, 5)", True),
        ("Min(c, 5)", False),
        ("Max(b, 5)", False),
        ("b", False),
        ("Min(b, c)", False),
        ("Min(b, 1)", False),
        ("Max(0, Min(b - 9, 5))", False),
        ("Max(0, Min(b, 5))", True),
        ("Max(2, Min(b, 5))", False),
        ("Max(0, b)", False),
        ("Max(0, c, Min(b, 5))", False),
    ],
)
def test_what_is_capped_by_a_number(a: str, *, capped: bool) -> None:
    assert is_capped_by_number(symbolic(a), symbolic("b")) is capped


def test_a_rest_is_capped_if_it_may_be_nothing() -> None:
    rest = symbolic("T - 9")
    assert is_capped_by_number(symbolic("Max(0, Min(5, T - 9))"), rest)
    assert not is_capped_by_number(symbolic("Max(2, Min(5, T - 9))"), rest)
    assert not is_capped_by_number(symbolic("Max(0, S - 9, Min(5, T - 9))"), rest)


def test_what_is_the_least_of_a_size_and_others() -> None:
    assert is_min_with(symbolic("Min(b, c)"), symbolic("b"))
    assert not is_min_with(symbolic("Min(a, c)"), symbolic("b"))
    assert not is_min_with(symbolic("Max(b, c)"), symbolic("b"))
    assert not is_min_with(symbolic("b"), symbolic("b"))


@pytest.mark.parametrize(
    ("a", "rest"),
    [
        ("Min(50, s + b) - s", True),
        ("Min(3, s + b) - s", True),
        ("Max(0, Min(50, s + b) - s)", True),
        ("Min(50, s + c) - s", False),
        ("Min(50, s + b) + s", False),
        ("Max(50, s + b) - s", False),
        ("Min(t, s + b) - s", False),
        ("b", False),
        ("Min(1, s + b) - s", False),
        ("Min(50, b)", True),
        ("Min(50, s + b) - s - 1", False),
        ("Min(50, s + b) + Min(50, b) - s", False),
        ("Max(1, Min(50, s + b) - s)", False),
        ("Min(50, t, s + b) - s", False),
    ],
)
def test_rows_of_a_table_behind_a_start(a: str, *, rest: bool) -> None:
    assert is_rest_of_table(symbolic(a), symbolic("b")) is rest


def test_arrays_hold_expressions() -> None:
    a = sympy.Symbol("a")
    array = array_of_exprs([a, sympy.Integer(2)], [2, 1])
    assert array.shape == (2, 1)
    assert items_of(array) == [a, 2]
    assert integers_in(array) is None
    assert integers_in(None) is None
    assert integers_in(array[1:]) == [2]
    assert (bool_expr(True), bool_expr(False)) == (1, 0)


@pytest.mark.parametrize(
    ("a", "b", "size"),
    [
        ("2*T", 10, 5),
        (10, "2*T", 5),
        ("2*T", 9, -1),
        ("T + 3", 3, 0),
        ("T + 3", 2, -1),
        ("3*T", "T + 8", 4),
        ("T", "T", None),
        ("T", "T + 1", None),
        ("T + S", 4, None),
        ("T**2", 4, None),
        ("floor(T/2)", 4, None),
        (3, 4, None),
    ],
)
def test_where_two_lines_meet(a: str | int, b: str | int, size: int | None) -> None:
    assert linear_solution(dim(a), dim(b)) == size


@pytest.mark.parametrize(
    ("a", "b", "parts"),
    [
        (6, 4, (6, 4)),
        ("2*a", 4, ("2*a", 4)),
        (4, "2*a", (4, "2*a")),
        ("2*a*b", "4*b*c", ("a", "2*c")),
        ("a", "b", ("a", "b")),
        ("a*b + a", "a*c", ("b + 1", "c")),
        ("a", "a", (1, 1)),
    ],
)
def test_common_factors_go(a: str | int, b: str | int, parts: tuple[str | int, str | int]) -> None:
    assert tuple(map(name, without_common_factors(dim(a), dim(b)))) == parts


def test_multiples_are_rounded_down() -> None:
    assert rounded_down(11, 4) == 8
    assert rounded_down(12, 4) == 12
    assert name(rounded_down(symbolic("4*a + 3"), 4)) == "4*a"
    assert name(rounded_down(symbolic("a"), 4)) == "4*floor(a/4)"


def test_ceilings_are_read_inside_each_other() -> None:
    assert equal_dims(symbolic("ceiling((a + ceiling(b/2))/3) + 1"), symbolic(
        "floor((a + floor((b + 1)/2) + 2)/3) + 1"
    ))  # fmt: skip
    assert symbols_of(symbolic("ceiling(a/2) + ceiling(b/2)")) == {"a", "b"}


def test_of_sizes_that_were_rounded_no_list_is_of_numbers() -> None:
    a = sympy.Symbol("a")
    assert integers_in(array_of_exprs([sympy.Integer(1), a], [2])) is None
    assert integers_in(array_of_exprs([], [0])) == []
