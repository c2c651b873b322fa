"""Patterns: which graphs they match, and which tensors they name."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.passes.common.pattern import Pattern, operand, own, shared
from tests.passes.models import model

HEAD = """m (float[B, 4] x, float[B, 4] z) => (float[B, 4] y) <float two = {2},
    float[1, 1] wide_two = {2}, float[2] twos = {2, 2}, float three = {3}>"""


def names(pattern: Pattern, steps: str, head: str = HEAD, more: str = "") -> list[dict[str, str]]:
    """What each match of a pattern at the last node binds, by name."""
    last = model(f"{head} {{ {steps} }}", more=more).graph[-1]
    return [{name: str(x.name) for name, x in y.items()} for y in pattern.matches(last)]


def test_a_pattern_is_the_graph_that_it_matches() -> None:
    pattern = shared.Div(shared.Sub("x", shared.Mod("x", "k", name="rest")), "k")
    assert names(pattern, "r = Mod (x, z) s = Sub (x, r) y = Div (s, z)") == [
        {"x": "x", "k": "z", "rest": "r"}
    ]


@pytest.mark.parametrize(
    "steps",
    [
        "r = Mod (x, z) s = Sub (x, r) y = Div (s, x)",  # another k
        "r = Mod (x, z) s = Sub (r, x) y = Div (s, z)",  # a Sub does not commute
        "r = Mod (x, z) s = Add (x, r) y = Div (s, z)",
        "s = Sub (x, z) y = Div (s, z)",
    ],
)
def test_another_graph_does_not_match(steps: str) -> None:
    pattern = shared.Div(shared.Sub("x", shared.Mod("x", "k")), "k")
    assert names(pattern, steps) == []


def test_operands_of_what_commutes_fit_in_any_order() -> None:
    pattern = shared.Max("x", shared.Neg("n"), "more")
    steps = "n = Neg (z) y = Max (n, x, z)"
    assert names(pattern, steps) == [
        {"x": "x", "n": "z", "more": "z"},
        {"x": "z", "n": "z", "more": "x"},
    ]
    assert names(shared.Sub("x", shared.Neg("n")), "n = Neg (z) y = Sub (n, x)") == []


def test_the_order_that_is_written_is_tried_first() -> None:
    assert [x["a"] for x in names(shared.Add("a", "b"), "y = Add (x, z)")] == ["x", "z"]


def test_an_earlier_choice_is_taken_back_where_a_later_operand_does_not_fit() -> None:
    pattern = shared.Sub(shared.Mul("a", "b"), shared.Neg("a"))
    assert names(pattern, "p = Mul (x, z) n = Neg (z) y = Sub (p, n)") == [{"a": "z", "b": "x"}]


@pytest.mark.parametrize(
    ("constant", "fits"), [("two", True), ("wide_two", True), ("twos", False), ("three", False)]
)
def test_a_number_is_a_constant_of_one_element(constant: str, fits: bool) -> None:
    assert bool(names(shared.Mul("x", 2), f"y = Mul ({constant}, x)")) is fits


def test_a_number_is_no_tensor_that_is_fed() -> None:
    assert names(shared.Mul("x", 2), "y = Mul (z, x)") == []


@pytest.mark.parametrize(
    ("steps", "fits"),
    [
        ("n = Neg (x) y = Abs (n)", True),
        ("n = Neg (x) s = Sin (n) y = Abs (n)", False),
    ],
)
def test_what_has_another_reader_is_not_its_own(steps: str, fits: bool) -> None:
    assert bool(names(shared.Abs(own.Neg("x")), steps)) is fits
    assert names(shared.Abs(shared.Neg("x")), steps)


def test_an_output_of_the_graph_is_not_its_own() -> None:
    head = "m (float[B, 4] x) => (float[B, 4] y, float[B, 4] n)"
    assert names(shared.Abs(own.Neg("x")), "n = Neg (x) y = Abs (n)", head) == []


def test_either_of_two_patterns_fits() -> None:
    pattern = shared.Sqrt("x") | shared.Pow("x", 2)
    assert names(pattern, "y = Sqrt (x)") == names(pattern, "y = Pow (x, two)") == [{"x": "x"}]
    assert names(pattern, "y = Pow (x, three)") == []


def test_all_inputs_are_matched_unless_more_are_allowed() -> None:
    steps = "y = Clip (x, two, three)"
    assert names(shared.Clip("x"), steps) == []
    assert names(shared.Clip("x", ...), steps) == [{"x": "x"}]
    assert names(shared.Clip("x", "low", "high", "more", ...), steps) == []


def test_an_input_that_is_absent_is_no_operand() -> None:
    assert names(shared.Clip("x", "low", "high"), "y = Clip (x, , three)") == []


def test_a_question_about_a_node_or_an_operand_decides() -> None:
    steps = "n = LeakyRelu <alpha = 0.5> (x) y = Neg (n)"

    def pattern(alpha: float, name: str) -> Pattern:
        source = operand("x", where=lambda value: value.name == name)
        return shared.Neg(
            shared.LeakyRelu(source, where=lambda node: node.attributes["alpha"].value == alpha)
        )

    assert names(pattern(0.5, "x"), steps) == [{"x": "x"}]
    assert names(pattern(0.25, "x"), steps) == names(pattern(0.5, "z"), steps) == []


def test_an_operator_of_another_domain_is_another_operator() -> None:
    more = ', "com.microsoft" : 1'
    assert names(shared.Gelu("x"), "y = com.microsoft.Gelu (x)", more=more) == []


def test_a_tensor_may_be_asked_for_as_well_as_a_node() -> None:
    m = model(f"{HEAD} {{ y = Neg (x) }}")
    (y,), (x, _) = m.graph.outputs, m.graph.inputs
    assert shared.Neg("x").match(y) == {"x": x}
    assert shared.Neg("x").match(x) is None
    assert shared.Neg("x").match(None) is None


def test_an_unnamed_operand_is_not_bound() -> None:
    last: ir.Node = model(f"{HEAD} {{ y = Sub (x, z) }}").graph[-1]
    assert shared.Sub("x", operand()).match(last) == {"x": last.inputs[0]}
