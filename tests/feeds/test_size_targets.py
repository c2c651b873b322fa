"""Sizes at which a graph decides are fed, whichever of the two models has them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.feeds.case_search import search_cases
from graphfix.feeds.signature import Signature
from graphfix.feeds.size_targets import SizeTarget, _pairs_of, find_size_targets
from graphfix.runtime.local_session import Session

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
PLAIN = ir.from_onnx_text(HEAD + "m (float[B, T] x) => (float[B, T] y) { y = Tanh (x) }")
NUMBERS = ", ".join(f"int64 n{i} = {{{i}}}" for i in (0, 1, 5, 11, 37, 100, 1500))


def deciding(body: str) -> ir.Model:
    """Return a model that computes ``bad`` from the sizes ``b`` and ``t``."""
    return ir.from_onnx_text(f"""{HEAD} m (float[B, T] x) => (float[B, T] y, bool bad)
    <{NUMBERS}, float f11 = {{11}}, int64 last = {{-1}}>
    {{ s = Shape (x) b = Gather (s, n0) t = Gather (s, n1)
       y = Tanh (x) {body} }}""")


def sizes_fed(original: ir.Model, repaired: ir.Model | None = None) -> list[tuple[int, int]]:
    with Session(original, optimize=False) as session:
        cases = search_cases(
            original, lambda x: session.run(x.feeds), cover=True, repaired=repaired
        )
    return [(x.dims["B"], x.dims["T"]) for x in cases]


@pytest.mark.parametrize(
    ("body", "is_bad"),
    [
        ("m = Mod (t, n37) bad = Equal (m, n11)", lambda b, t: t % 37 == 11),
        ("d = Div (t, n11) e = Mul (d, n11) f = Sub (t, e) bad = Equal (f, n5)",
         lambda b, t: t % 11 == 5),
        ("c = Cast <to = 1> (t) d = Div (c, f11) e = Floor (d) g = Mul (e, f11)"
         " h = Sub (c, g) i = Cast <to = 7> (h) bad = Equal (i, n5)", lambda b, t: t % 11 == 5),
        ("r = Range (n0, t, n1) m = Mod (r, n11) l = Gather (m, last)"
         " bad = Equal (l, n5)", lambda b, t: t % 11 == 6),
        ("bad = Equal (t, n100)", lambda b, t: t == 100),
        ("bad = Greater (t, n100)", lambda b, t: t == 101),
        ("p = Equal (b, n5) q = Equal (t, n11) bad = And (p, q)", lambda b, t: (b, t) == (5, 11)),
        ("p = Mul (b, t) bad = Equal (p, n37)", lambda b, t: b * t == 37),
        ("p = Greater (b, t) q = Greater (t, n1) bad = And (p, q)", lambda b, t: b > t > 1),
    ],
)  # fmt: skip
def test_sizes_at_which_either_model_decides_are_fed(body: str, is_bad: object) -> None:
    assert callable(is_bad)
    assert any(is_bad(*x) for x in sizes_fed(PLAIN, deciding(body)))


def test_what_the_original_itself_asks_is_fed_without_another_model() -> None:
    assert any(t % 37 == 36 for _, t in sizes_fed(deciding("m = Mod (t, n37) bad = Equal (m, n0)")))


def test_sizes_compared_with_numbers_are_asked_for_together() -> None:
    a, b, c, d = map(ir.SymbolicDim, "abcd")
    first, second = SizeTarget(a, 5), SizeTarget(b, 7)
    others = [SizeTarget(b, 3, 11), SizeTarget(c, 5, 0, d), SizeTarget(c, 1, 2, d)]
    assert _pairs_of([first, second, *others]) == [(first, second)]
    assert _pairs_of([first, SizeTarget(a, 7), *others]) == []


def test_a_model_that_decides_nothing_has_no_targets() -> None:
    assert find_size_targets(Signature(PLAIN)) == []
    # Numbers of the data are no sizes.
    other = "i = Cast <to = 7> (x) m = Mod (i, n11) e = Equal (m, n5) c = Cast <to = 7> (e)"
    other += " r = ReduceMax <keepdims = 0> (c) bad = Cast <to = 9> (r)"
    assert find_size_targets(Signature(PLAIN), deciding(other)) == []


@pytest.mark.parametrize("number", ["inf", "-inf", "nan", "0.5"])
def test_a_comparison_with_a_number_that_is_not_whole_asks_for_no_size(number: str) -> None:
    """Attention asks which scores are -inf, beside the sizes of its masks."""
    fill = f"fill = Constant <value = float {{{number}}}> () e = Equal (x, fill)"
    assert find_size_targets(Signature(deciding(fill + " bad = Equal (t, n0)")))
    body = f"{fill} c = Cast <to = 7> (e) r = ReduceMax <keepdims = 0> (c) bad = Cast <to = 9> (r)"
    assert find_size_targets(Signature(deciding(body))) == []


def test_what_no_case_can_afford_is_named() -> None:
    with Session(PLAIN, optimize=False) as session:
        cases = search_cases(
            PLAIN,
            lambda x: session.run(x.feeds),
            cover=True,
            repaired=deciding("bad = Equal (t, n1500)"),
        )
    assert "T = 1500" in cases.unmet


def test_what_no_case_can_afford_is_named_as_the_user_does() -> None:
    """With names that no expression can hold, too."""
    model = deciding("bad = Equal (t, n1500)")
    model.graph.inputs[0].shape = ir.Shape(["B", "seq length"])
    with Session(model, optimize=False) as session:
        cases = search_cases(model, lambda x: session.run(x.feeds), cover=True)
    assert "seq length = 1500" in cases.unmet


def test_a_target_says_what_it_wants() -> None:
    a, b = ir.SymbolicDim("a"), ir.SymbolicDim("b")
    names = {"a": "T", "b": "B"}.__getitem__
    assert SizeTarget(a, 5).describe(names) == "T = 5"
    assert SizeTarget(a, 5, 11).describe(names) == "T modulo 11 = 5"
    assert SizeTarget(a, 5, 0, b).describe(names) == "T - B = 5"
    spaced = {"a": "seq length", "b": "batch-size"}.__getitem__
    assert SizeTarget(ir.SymbolicDim("floor(a/2) + b"), 5).describe(spaced) == (
        "floor(seq length/2) + batch-size = 5"
    )
    sizes = {"a": np.array([5, 16, 17]), "b": np.array([6, 6, 18])}
    assert SizeTarget(a, 5, 11).are_met(sizes).tolist() == [True, True, False]
    assert SizeTarget(a, -1, 0, b).are_met(sizes).tolist() == [True, False, True]
