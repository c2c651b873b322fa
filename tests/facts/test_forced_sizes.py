"""Sizes that relations dictate, solved before any size is tried."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts.forced_sizes import (
    ForcedSize,
    SizeRules,
    Wishes,
    forced_row,
    forced_sizes_of,
    forced_texts,
    solve_sizes,
)
from graphfix.facts.size_relations import GraphRelations, SizeRelation
from graphfix.wording import Row

NODE = ir.Node("", "Add", [], name="add")
SOURCE = "Add 'add'"


def dim(text: str | int) -> int | ir.SymbolicDim:
    return text if isinstance(text, int) else ir.SymbolicDim(text)


def relation(a: str | int, b: str | int, *, broadcasts: bool = False) -> SizeRelation:
    return SizeRelation(dim(a), dim(b), NODE, broadcasts)


def graph(
    *always: SizeRelation,
    wishes: tuple[SizeRelation, ...] = (),
    branches: tuple[tuple[GraphRelations, ...], ...] = (),
) -> GraphRelations:
    return GraphRelations(always, wishes, branches)


def rules_of(
    *always: SizeRelation, symbols: str = "abc", granted: Wishes = "usual", **more: object
) -> SizeRules:
    return solve_sizes(graph(*always, **more), [*symbols], granted)  # type: ignore[arg-type]


def forced(rules: SizeRules) -> dict[str, tuple[int, bool]]:
    return {name: (x.size, x.sure) for name, x in rules.forced.items()}


# In words


def test_forced_sizes_in_words() -> None:
    assert str(ForcedSize(5, "w")) == "5, from w"
    assert str(ForcedSize(5, "w", sure=False)) == "5, from w; others may run"
    sizes = {name: ForcedSize(n, "w") for n, name in enumerate(["a", "b,c", "d", "e"])}
    texts = forced_texts(sizes)
    assert texts == ["a = 0, from w", '"b,c" = 1, from w', "d = 2, from w", "e = 3, from w"]
    assert forced_row({}) == []
    assert forced_row(sizes) == [Row("forced", "; ".join(texts))]


def test_a_short_row_says_how_many_more_there_are() -> None:
    sizes = {name: ForcedSize(5, "w") for name in "abcd"}
    (row,) = forced_row(sizes, verbose=False)
    assert "; 1 more (-v)" in str(row)
    assert "d = 5" not in str(row)
    (row,) = forced_row({name: sizes[name] for name in "abc"}, verbose=False)
    assert "more" not in str(row)
    assert "c = 5" in str(row)


# Of one symbol


@pytest.mark.parametrize(
    ("a", "b", "size"),
    [
        ("a", 5, 5),
        ("2*a + 1", 7, 3),
        ("floor(a/4) + 1", 1, None),  # 0, 1, 2 or 3
        ("Mod(a, 2)", 0, None),
        ("a", "a", None),
        ("a", 0, None),  # nothing is of size 0
        ("d", 5, None),  # of a symbol that no input has
        ("a*b", "a*c", None),
    ],
)
def test_one_size_is_forced(a: str, b: str | int, size: int | None) -> None:
    assert forced(rules_of(relation(a, b))) == ({} if size is None else {"a": (size, True)})


def test_relations_together_leave_one_size() -> None:
    rules = rules_of(relation("floor(a/4)", 1), relation("floor(a/5)", 1), relation("Mod(a, 7)", 6))
    assert forced(rules) == {"a": (6, True)}
    # What one symbol is goes into the relations of others.
    rules = rules_of(relation("a", 5), relation("a*b", 20), relation("b + c", 10))
    assert forced(rules) == {"a": (5, True), "b": (4, True), "c": (6, True)}
    assert rules.coupled == ()


def test_the_source_is_the_narrowest_wish() -> None:
    other = SizeRelation(dim("a"), 6, ir.Node("", "Mul", [], name="mul"))
    rules = rules_of(relation("floor(a/4)", 1), other)
    assert rules.forced["a"].source == "Mul 'mul'"


@pytest.mark.parametrize(
    ("relations", "said"),
    [
        ([("a", 5), ("a", 6)], f"it has to be 5 for {SOURCE}, and 6 for {SOURCE}"),
        ([("2*a", 5)], f"none suits {SOURCE}"),
        ([("a + 5", 3)], f"none suits {SOURCE}"),
        (
            [("floor(a/2)", 1), ("floor(a/9)", 1)],
            f"it has to be 2 or 3 for {SOURCE}, and another size for {SOURCE}",
        ),
        (
            [("floor(a/3)", 1), ("a", 7)],
            f"it has to be 3 or 4 or 5 for {SOURCE}, and 7 for {SOURCE}",
        ),
        (
            [("floor(a/2)", 1), ("floor((a + 1)/2)", 2), ("floor((a + 2)/2)", 2)],
            None,
        ),
    ],
)
def test_wishes_that_contradict_each_other_are_told(
    relations: list[tuple[str, int]], said: str | None
) -> None:
    rules = rules_of(*(relation(a, b) for a, b in relations))
    assert rules.contradictions == ({} if said is None else {"a": said})
    assert ("a" in rules.forced) == (said is None)


def test_a_small_size_is_found_among_many() -> None:
    assert forced(rules_of(relation("floor(a/2000) + Mod(a, 2)", 100))) == {}
    assert rules_of(relation("floor(a/200000)", 2)).contradictions == {}
    assert rules_of(relation("floor(a/2000000)", 2)).contradictions == {"a": f"none suits {SOURCE}"}


# What broadcasts


def test_what_broadcasts_is_a_wish() -> None:
    wish = relation("a", 5, broadcasts=True)
    assert forced(rules_of(wish)) == {"a": (5, False)}
    assert forced(rules_of(wish, granted="none")) == {}
    assert rules_of(wish, granted="none").fit({"a": 3}) == {"a": 5}
    assert rules_of(wish, granted="none").fit({"a": 1}) == {"a": 1}
    # Beside a 1 any size is right.
    assert rules_of(relation("a", 1, broadcasts=True)) == SizeRules()
    assert forced(rules_of(relation("a", 1))) == {"a": (1, True)}
    assert forced(rules_of(wish, relation("a", 5))) == {"a": (5, True)}


def test_a_wish_that_contradicts_what_holds_is_lost() -> None:
    rules = rules_of(relation("a", 5, broadcasts=True), relation("a", 6, broadcasts=True))
    assert rules.contradictions == {}
    assert forced(rules) == {"a": (1, True)}
    rules = rules_of(relation("a", 5), wishes=(relation("a", 6), relation("b", 7)))
    assert rules.contradictions == {}
    assert forced(rules) == {"a": (5, True), "b": (7, False)}
    assert forced(rules_of(wishes=(relation("b", 7),), granted="none")) == {}


# Branches


def test_what_each_branch_wants_holds() -> None:
    five, six = graph(relation("a", 5)), graph(relation("a", 6))
    assert forced(rules_of(branches=((five, five),))) == {"a": (5, True)}
    rules = rules_of(branches=((five, six),))
    assert forced(rules) == {}
    assert rules.fit({"a": 9}) == {"a": 6}
    # One that wants nothing leaves all sizes, one that no size suits is never taken.
    assert forced(rules_of(branches=((five, graph()),))) == {}
    never = graph(relation("a", 5), relation("a", 6))
    assert forced(rules_of(branches=((five, never),))) == {"a": (5, True)}
    assert forced(rules_of(branches=((never, never),))) == {}
    # If each shall be taken, so shall one alone.
    assert forced(rules_of(branches=((five, graph()),), granted="branches")) == {"a": (5, False)}
    both = graph(relation("a", "b"))
    assert forced(rules_of(branches=((both, graph()),), granted="branches")) == {}
    assert rules_of(branches=((both, graph()),), granted="branches").coupled == ()


# Of several symbols


def test_sizes_are_fitted_near_what_is_wanted() -> None:
    rules = rules_of(relation("a*b", 64))
    assert rules.fit({"a": 8, "b": 3}) == {"a": 8, "b": 8}
    # Of a size that fits nothing 1 is tried before others.
    assert rules.fit({"b": 3, "a": 8}) == {"b": 1, "a": 64}
    # One that is kept decides, and one that nothing mentions stays.
    assert rules.fit({"b": 3, "a": 16, "c": 9}, keep=["a"]) == {"b": 4, "a": 16, "c": 9}
    # Where no size fits, or nothing is asked, they stay as they are.
    assert rules.fit({"a": 7, "b": 3}, keep=["a"]) == {"a": 7, "b": 3}
    assert rules.fit({}) == {}
    assert rules.fit({"a": 7}) == {"a": 7}
    assert SizeRules().fit({"a": 7}) == {"a": 7}


def test_an_allowed_size_is_the_nearest_above_else_below() -> None:
    rules = rules_of(relation("Mod(a, 4)", 0))
    assert rules.fit({"a": 5}) == {"a": 8}
    assert rules.fit({"a": 8}) == {"a": 8}
    assert rules.fit({"a": 0}) == {"a": 0}
    assert rules.fit({"a": 1}) == {"a": 4}
    few = rules_of(relation("floor(a/4)", 1))
    assert few.fit({"a": 20}) == {"a": 7}
    assert few.allows_more("a", 6)
    assert not few.allows_more("a", 7)
    assert few.allows_more("b", 10**9)
    assert rules_of(relation("2*a", 5)).allows_more("a", 3)


def test_equal_sizes_are_tried_where_symbols_share_a_relation() -> None:
    square = rules_of(relation("a*b", 64))
    assert square.equal_sizes({"a": 3, "b": 9, "c": 5}) == {"a": 8, "b": 8, "c": 5}
    assert rules_of(relation("a*b", 63)).equal_sizes({"a": 3, "b": 9}) is None
    assert rules_of(relation("a", 5)).equal_sizes({"a": 3}) is None
    even = rules_of(relation("Mod(a + b, 4)", 0))
    # The least that is large enough for the smaller of them.
    assert even.equal_sizes({"a": 5, "b": 9}) == {"a": 6, "b": 6}
    assert even.equal_sizes({"a": 6, "b": 9}) == {"a": 6, "b": 6}
    assert square.equal_sizes({"a": 20, "b": 30}) == {"a": 8, "b": 8}
    assert square.equal_sizes({}) == {}
    # What is equal at any size says no size.
    assert rules_of(relation("a - b", 0)).equal_sizes({"a": 5, "b": 9}) is None


def test_rules_go_on_under_other_names() -> None:
    rules = rules_of(relation("a*b", 64), relation("floor(c/4)", 1))
    renamed = rules.rename({"a": dim("x"), "c": dim("y")})
    assert [x.symbols for x in renamed.coupled] == [{"x", "b"}]
    assert renamed.fit({"y": 20}) == {"y": 7}
    assert renamed.fit({"c": 20}) == {"c": 20}
    # A number, or an expression, is no symbol that a rule could be of.
    assert rules.rename({"c": 5}).fit({"c": 20}) == {"c": 20}
    assert rules.rename({"c": dim("2*y")}).fit({"y": 20}) == {"y": 20}
    assert forced(rules.rename({"a": 4})) == {"b": (16, True)}
    # Two that become one obey the rules of both.
    both = rules_of(relation("floor(a/4)", 1), relation("floor(b/5)", 1), relation("a*c", "b*c"))
    assert both.rename({"b": dim("a")}).fit({"a": 1}) == {"a": 5}
    assert both.rename({"b": dim("a")}).coupled == ()


def test_the_sizes_of_a_file_have_its_names() -> None:
    numbers = ", ".join("1" * 15)
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float["frame count", C] x) => (y) <float[3, 5] w = {{{numbers}}}> {{
        y = MatMul (x, w) }}"""
    found = forced_sizes_of(ir.from_onnx_text(text))
    assert {name: (x.size, x.source) for name, x in found.items()} == {"C": (3, "w")}
    fixed = text.replace('"frame count", C', "2, 3")
    assert forced_sizes_of(ir.from_onnx_text(fixed)) == {}
