"""The reader of Einsum's equation takes what ONNX Runtime takes."""

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.ops.einsums import Equation, axes_of_letters, equation_of, parse_equation
from tests.ops.nodes import node_of, nodes_in
from tests.ops.samples import Sample, floats


@pytest.mark.parametrize(
    ("text", "terms", "written", "result"),
    [
        ("ij,jk->ki", ("ij", "jk"), "ki", "ki"),
        (" i j , j k - > k i ", ("ij", "jk"), "ki", "ki"),
        ("kj,ji", ("kj", "ji"), None, "ik"),
        ("ba", ("ba",), None, "ab"),
        ("iij", ("iij",), None, "j"),
        ("b...a,a", ("b...a", "a"), None, "...b"),
        ("ij->", ("ij",), "", ""),
        ("...->...", ("...",), "...", "..."),
        (",i->i", ("", "i"), "i", "i"),
    ],
)
def test_terms_and_result(
    text: str, terms: tuple[str, ...], written: str | None, result: str
) -> None:
    equation = parse_equation(text)
    assert equation == Equation(terms, written)
    assert equation.result == result
    assert parse_equation(equation.text) == equation
    assert " " not in equation.text


@pytest.mark.parametrize(
    "text", ["ij->[", "...i...->", "i.j", "a->b->c", "ab->a,b", "ab\t->ba", "ä->ä", "a1->a"]
)
def test_a_text_that_is_no_equation(text: str) -> None:
    assert parse_equation(text) is None


@pytest.mark.parametrize(
    ("text", "has_ellipsis", "has_distinct_labels"),
    [
        ("ij,ji->ij", False, True),
        ("ii->i", False, False),
        ("ij->ii", False, False),
        ("ij,jj->i", False, False),
        ("ij,ij", False, True),
        ("...i,i->...", True, True),
        ("i,...i->i", True, True),
        ("i->i...", True, True),
        ("...ii", True, False),
    ],
)
def test_what_an_equation_has(text: str, has_ellipsis: bool, has_distinct_labels: bool) -> None:
    equation = parse_equation(text)
    assert equation is not None
    assert equation.has_ellipsis == has_ellipsis
    assert equation.has_distinct_labels == has_distinct_labels


@pytest.mark.parametrize(
    "text", ["ba", "cab,ca", "kj,ji", "b...a", "...ab,...bc", "a b - > b a", "iij", "ab->"]
)
def test_the_result_is_that_of_onnx_runtime(text: str) -> None:
    equation = parse_equation(text)
    assert equation is not None
    sizes = {"a": 2, "b": 3, "c": 4, "i": 2, "j": 3, "k": 4}
    shapes = [
        [s for x in term.replace("...", ".") for s in ([5, 1] if x == "." else [sizes[x]])]
        for term in equation.terms
    ]
    inputs = tuple(floats(*shape) for shape in shapes)
    sample = Sample("Einsum", 12, inputs, {"equation": text}, data=tuple(range(len(inputs))))
    assert equation_of(node_of(sample)) == equation
    expected = np.einsum(f"{','.join(equation.terms)}->{equation.result}", *inputs)
    assert sample.first().shape == expected.shape
    np.testing.assert_allclose(sample.first(), expected, rtol=1e-5, atol=1e-6)


def test_other_terms_keep_the_result_as_it_is_written() -> None:
    assert Equation(("ij", "jk")).with_terms(["ji", "jk"]).text == "ji,jk"
    assert Equation(("ij",), "i").with_terms(["ji"]).text == "ji->i"


def test_an_equation_that_is_not_known() -> None:
    (node,) = nodes_in('<opset_import: ["" : 17]> m (float[2] x) => (float y) { y = Einsum (x) }')
    assert equation_of(node) is None
    node.attributes["equation"] = ir.RefAttr("equation", "e", ir.AttributeType.STRING)
    assert equation_of(node) is None
    node.attributes["equation"] = ir.AttrString("equation", "i->")
    assert equation_of(node) == Equation(("i",), "")


@pytest.mark.parametrize(
    ("term", "rank", "axes"),
    [
        ("bij", 3, [("b", 0), ("i", 1), ("j", 2)]),
        ("b...j", 4, [("b", 0), ("j", 3)]),
        ("...ij", 2, [("i", 0), ("j", 1)]),
        ("i...", 3, [("i", 0)]),
        ("bij", 4, None),
        ("b...ij", 2, None),
    ],
)
def test_letters_name_axes(term: str, rank: int, axes: list[tuple[str, int]] | None) -> None:
    assert axes_of_letters(term, rank) == axes
