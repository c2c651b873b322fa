"""Groups of names."""

from graphfix.feeds.name_groups import NameGroups


def test_the_first_name_represents_those_that_are_joined_to_it() -> None:
    groups = NameGroups()
    assert not groups
    assert groups.of("t") == "t"
    groups.join("b", "a")
    groups.join("c", "a")
    assert [groups.of(name) for name in "abcd"] == ["c", "c", "c", "d"]
    assert groups


def test_a_name_joined_to_its_own_group_changes_nothing() -> None:
    groups = NameGroups()
    groups.join("a", "a")
    assert not groups
    groups.join("a", "b")
    groups.join("b", "a")
    assert [groups.of(name) for name in "ab"] == ["a", "a"]
