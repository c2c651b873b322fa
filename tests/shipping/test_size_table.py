"""What a host computes from the table is what the expression is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphfix.errors import ModelError
from graphfix.shipped.derived_size import with_derived_sizes
from graphfix.shipped.manifest import Port
from graphfix.shipping.dim_expression import size_of
from graphfix.shipping.size_table import derive_sizes
from tests.shipping.test_dim_expression import dim_texts

SIZES = {"T": 16, "B": 2, "S": 1}


def port(*dims: str) -> Port:
    return Port("y", "tensor(float)", dims, None)


@given(dim_texts(), st.integers(0, 500_000), st.integers(1, 8))
def test_it_is_what_the_expression_is(text: str, t: int, b: int) -> None:
    sizes = {"T": t, "B": b}
    try:
        derived = derive_sizes([port(text)], [{"T": 16, "B": 2}], ["T", "B"])
    except ModelError:
        assert text.count("T") + text.count("B") > 1  # it multiplies them
        return
    try:
        wanted = size_of(text, sizes)
    except ValueError:  # it is below 0, or no whole number
        try:
            assert with_derived_sizes(derived, sizes).get(text, -1) < 0
        except ValueError:
            return
    else:
        assert with_derived_sizes(derived, sizes).get(text, sizes.get(text)) == wanted


@pytest.mark.parametrize(
    ("text", "of", "add", "divide"),
    [
        ("floor((T - 400)/160) + 1", {"T": 1}, -240, 160),
        ("floor(T/2 - 1/2) + 1", {"T": 1}, 1, 2),
        ("ceiling(T/8)", {"T": 1}, 7, 8),
        ("floor(T/2 + 1/3)", {"T": 3}, 2, 6),
        ("floor(T/4) + S", {"T": 1, "S": 4}, 0, 4),
        ("floor(floor(T/2)/3)", {"floor(T / 2)": 1}, 0, 3),
        ("T + S", {"T": 1, "S": 1}, 0, 1),
        ("floor(S*T/16)", {"T": 1}, 0, 16),
        ("T//2", {"T": 1}, 0, 2),
    ],
)
def test_one_rounding_is_one_entry(text: str, of: dict[str, int], add: int, divide: int) -> None:
    entry = derive_sizes([port(text)], [SIZES], ["T"])[-1]
    assert (entry.name, entry.of, entry.add, entry.divide) == (text, of, add, divide)
    assert (entry.least, entry.most, entry.exact) == (None, None, False)


def test_each_is_behind_what_it_follows_from_and_there_once() -> None:
    texts = ("160*floor(T/160) + 400", "Max(0, T - 3)", "Mod(T, 160)", "T", "Max(0, T - 3)", "T/2")
    derived = derive_sizes([port(*texts), port(*texts)], [SIZES], ["T"])
    names = [x.name for x in derived]
    assert len({*names}) == len(names)
    assert {*texts} - {"T"} <= {*names}
    assert sum(x.of == {"T": 1} and x.divide == 160 for x in derived) == 1
    for index, entry in enumerate(derived):
        assert entry.of.keys() <= {*SIZES, *names[:index]}


def test_a_half_is_whole_or_an_error() -> None:
    derived = derive_sizes([port("T/2")], [SIZES], ["T"])
    assert with_derived_sizes(derived, {"T": 6})["T/2"] == 3
    with pytest.raises(ValueError, match="T/2 is 7/2, which is no whole number"):
        with_derived_sizes(derived, {"T": 7})


@pytest.mark.parametrize("text", ["T*S", "T/S", "Mod(T, S)", "T*T"])
def test_a_product_of_what_varies_is_refused(text: str) -> None:
    with pytest.raises(ModelError, match=r"none that a host can compute: .* size"):
        derive_sizes([port(text)], [SIZES], ["T", "S"])
    if text != "T*T":  # all containers have the same S
        assert derive_sizes([port(text)], [SIZES], ["T"])
