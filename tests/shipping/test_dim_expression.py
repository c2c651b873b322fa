"""Sizes as the manifest writes them, against sympy."""

import math

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from graphfix.shipping.dim_expression import names_in, size_of


def dim_texts() -> st.SearchStrategy[str]:
    leaves = st.one_of(st.just("T"), st.just("B"), st.integers(0, 500).map(str))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from("+-*"), inner).map(
                lambda x: f"({x[0]} {x[1]} {x[2]})"
            ),
            st.tuples(inner, st.integers(1, 40)).map(lambda x: f"({x[0]}/{x[1]})"),
            st.tuples(st.sampled_from(["floor", "ceiling"]), inner).map(
                lambda x: f"{x[0]}({x[1]})"
            ),
            st.tuples(st.sampled_from(["Max", "Min"]), inner, inner).map(
                lambda x: f"{x[0]}({x[1]}, {x[2]})"
            ),
            st.tuples(inner, st.integers(1, 40)).map(lambda x: f"Mod({x[0]}, {x[1]})"),
        ),
        max_leaves=6,
    )


@given(dim_texts(), st.integers(1, 500_000), st.integers(1, 8))
def test_it_is_what_sympy_computes(text: str, t: int, b: int) -> None:
    wanted = sympy.sympify(text).subs({"T": t, "B": b})
    if wanted.is_integer and wanted >= 0:
        assert size_of(text, {"T": t, "B": b}) == int(wanted)
    else:
        with pytest.raises(ValueError, match="is no size"):
            size_of(text, {"T": t, "B": b})


def test_a_number_is_itself() -> None:
    assert size_of(7, {}) == 7
    assert names_in(7) == frozenset()


def test_large_sizes_are_exact() -> None:
    size = 2**53 + 1  # no float64 holds it
    assert size_of("floor(T/2 + 1/2)", {"T": size}) == math.floor(size / 2) + 1


def test_names_are_dims_not_functions() -> None:
    assert names_in("floor((T - 400)/160) + Max(B, 1)") == {"T", "B"}


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "T.real",
        "T**9**9**9",
        "open(T)",
        "[T]",
        "'T'",
        "1.5",
        "T if T else 1",
        "floor(x=T)",
        "T/0",
        "(" * 500,
        "+".join(["T"] * 5000),
        "",
        "S",
    ],
)
def test_nothing_else_is_computed(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        size_of(text, {"T": 7})
