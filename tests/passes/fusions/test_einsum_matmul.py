"""einsum-matmul: which Einsums become a MatMul, with equal numbers, and which stay."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from tests.passes.models import execute, model, ops

SIZES = {"b": 2, "i": 5, "l": 5, "t": 7, "r": 5, "s": 2, "h": 6, "n": 3, "d": 4, "k": 4}
OPEN = "bilt"


def einsum(equation: str, weight: bool = True) -> ir.Model:
    """With open sizes for what is no head and no feature; the second operand is a weight or not."""
    left, right, out = equation.replace("->", ",").split(",")
    dims = {x: x.upper() if x in OPEN else str(SIZES[x]) for x in equation if x.isalpha()}
    x, w, y = (", ".join(dims[a] for a in axes) for axes in (left, right, out))
    fixed = [str(SIZES[a]) for a in right]
    count = int(np.prod([SIZES[a] for a in right]))
    numbers = ", ".join(str(i % 7 - 3) for i in range(count))
    second, init = (f", float[{w}] w", "")
    if weight:
        second, init = "", f"<float[{', '.join(fixed)}] w = {{{numbers}}}>"
    return model(f"""m (float[{x}] x{second}) => (float[{y}] y) {init} {{
        y = Einsum <equation = "{equation}"> (x, w) }}""")


def feeds(equation: str, weight: bool) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    left, right, _ = equation.replace("->", ",").split(",")
    found = {"x": left} if weight else {"x": left, "w": right}
    return {
        name: random.standard_normal([SIZES[a] for a in axes], np.float32)
        for name, axes in found.items()
    }


@pytest.mark.parametrize(
    ("equation", "weight", "kinds"),
    [
        ("ibh,hnd->ibnd", True, ["Reshape", "MatMul", "Reshape"]),
        ("ibnd,hnd->ibh", True, ["Transpose", "Reshape", "Reshape", "MatMul"]),
        ("ibh,hn->ibn", True, ["MatMul"]),
        ("ibh,hn->nib", True, ["MatMul", "Transpose"]),
        ("hn,ibh->ibn", False, ["MatMul"]),
        ("td,dnk->tnk", True, ["Reshape", "MatMul", "Reshape"]),
        ("binh,tnh->bnit", False, ["Transpose", "Transpose", "MatMul"]),
        ("bind,snd->bnis", True, ["Transpose", "Transpose", "MatMul"]),
        ("bnld,lrd->bnlr", False, ["Transpose", "Transpose", "MatMul", "Transpose"]),
    ],
)
def test_an_einsum_with_more_axes_is_a_matmul(
    equation: str, weight: bool, kinds: list[str]
) -> None:
    before, after = (einsum(equation, weight) for _ in range(2))
    assert graphfix.run(after, "einsum-matmul").changed
    assert sorted(ops(after)) == sorted(kinds)
    given_ = feeds(equation, weight)
    np.testing.assert_allclose(
        execute(after, given_)[0], execute(before, given_)[0], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    "equation",
    [
        "bind,btnd->bnit",  # a GEMM on DirectML, as are the next
        "ih,hn->in",
        "ibnd,tbnd->bnit",
        "bih,iht->bit",
        "ibh,ibh->ibh",  # no sum
        "ibh,h->ib",  # no columns
        "ibh,hn->in",  # a sum over an axis of one operand
        "ibth,bhnk->ibtnk",  # five dims
        "ibh,hlt->iblt",  # columns to be merged, of open sizes
    ],
)
def test_another_einsum_stays(equation: str) -> None:
    assert not graphfix.run(einsum(equation, weight=False), "einsum-matmul").changed


@given(st.permutations("bin"), st.permutations("dnk"), st.permutations("bink"))
@settings(max_examples=40, deadline=None)
def test_any_order_of_axes_gives_the_same(
    left: list[str], right: list[str], out: list[str]
) -> None:
    equation = f"{''.join(left)}d,{''.join(right)}->{''.join(out)}"
    before, after = (einsum(equation, weight=False) for _ in range(2))
    graphfix.run(after, "einsum-matmul")
    assert "Einsum" not in ops(after)
    given_ = feeds(equation, weight=False)
    np.testing.assert_allclose(
        execute(after, given_)[0], execute(before, given_)[0], rtol=1e-4, atol=1e-5
    )
