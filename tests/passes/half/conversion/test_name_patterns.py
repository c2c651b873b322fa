"""Many patterns at once match as one after another does."""

from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from graphfix.passes.half.conversion.name_patterns import NamePatterns

TEXTS = st.text("ab.?*[]!-\n", max_size=4)


@given(st.lists(TEXTS, max_size=6), st.lists(TEXTS, max_size=3))
def test_the_first_pattern_that_matches_counts(patterns: list[str], names: list[str]) -> None:
    matching = (x for x in patterns if any(fnmatchcase(name, x) for name in names))
    assert NamePatterns(patterns).first_match(names) == next(matching, "")


def test_hundreds_of_names_match_themselves() -> None:
    names = [f"onnx??MatMul_{i}" for i in range(500)]
    patterns = NamePatterns([*names, "*Mul_7*"])
    assert patterns.first_match(["onnx::MatMul_499"]) == names[499]
    assert patterns.first_match(["/block/Mul_77"]) == "*Mul_7*"
    assert patterns.first_match(["onnx::MatMul_500"]) == ""
    assert NamePatterns().first_match(["x", ""]) == ""
