"""join-products: which heads are made by one product, with equal numbers, and which are not."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import execute, model, ops

LETTERS = "abcd"
TURNS = {
    "rows": "{o} = Relu ({n}h)",
    "heads": "{n}t = Transpose <perm = [0, 2, 1, 3]> ({n}h) {o} = Relu ({n}t)",
    "keys": "{n}t = Transpose <perm = [0, 2, 3, 1]> ({n}h) {o} = Relu ({n}t)",
}
DIMS = {"rows": "B, T, 2, 3", "heads": "B, 2, T, 3", "keys": "B, 2, 3, T"}


def heads(turns: list[str], biased: str = "") -> ir.Model:
    """Heads of x: each laid out as ``turns`` says, with a bias where its letter is given."""
    rng = np.random.default_rng(0)

    def numbers(count: int) -> str:
        return ", ".join(f"{x:.3f}" for x in rng.standard_normal(count))

    given = [f"float[6, 6] w{n} = {{{numbers(36)}}}" for n in LETTERS[: len(turns)]]
    given += [f"float[6] b{n} = {{{numbers(6)}}}" for n in biased]
    body, made = [], []
    for n, turn in zip(LETTERS, turns, strict=False):
        body.append(f"{n}p = MatMul (x, w{n})")
        body.append(f"{n}r = Add (b{n}, {n}p)" if n in biased else f"{n}r = Identity ({n}p)")
        body.append(f"{n}h = Reshape ({n}r, size) {TURNS[turn].format(n=n, o=f'{n}y')}")
        made.append(f"float[{DIMS[turn]}] {n}y")
    text = f"""m (float[B, T, 6] x) => ({", ".join(made)})
        <int64[4] size = {{0, 0, 2, 3}}, {", ".join(given)}> {{ {" ".join(body)} }}"""
    found = model(text)
    graphfix.run(found, "fold")
    return found


@pytest.mark.parametrize("biased", ["", "a", "abcd"])
@pytest.mark.parametrize(
    ("turns", "kept"),
    [
        (["heads"] * 3, 0),
        (["heads", "keys", "heads"], 1),
        (["keys", "heads", "heads"], 1),
        (["keys"] * 4, 0),
        (["rows"] * 4, 0),
    ],
)
def test_heads_of_one_tensor_are_one_product(turns: list[str], kept: int, biased: str) -> None:
    letters = "".join(x for x in biased if x in LETTERS[: len(turns)])
    before, after = heads(turns, letters), heads(turns, letters)
    assert graphfix.run(after, "join-products").changed
    assert not graphfix.run(after, "join-products").changed
    turned = [] if turns[0] == "rows" else ["Transpose"]
    summed = ["Concat", "Add"] if letters else []
    start = ["Concat", "MatMul", *summed, "Reshape", *turned, "Split", *["Transpose"] * kept]
    assert ops(after) == [*start, *["Relu"] * len(turns)]
    for shape in ((2, 5, 6), (1, 1, 6), (0, 3, 6)):
        x = np.random.default_rng(1).standard_normal(shape, np.float32)
        for a, b in zip(execute(before, {"x": x}), execute(after, {"x": x}), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)


def test_heads_that_are_rows_and_heads_that_are_turned_are_apart() -> None:
    after = heads(["rows", "heads", "rows", "heads"])
    graphfix.run(after, "join-products")
    assert ops(after).count("MatMul") == 3
    assert not graphfix.run(heads(["rows", "heads", "rows"]), "join-products").changed


@pytest.mark.parametrize(
    "text",
    [
        # two, without a bias: five kernels for six
        "p = MatMul (x, a) q = MatMul (x, b) r = MatMul (x, b)",
        # what has no heads
        "p = MatMul (x, a) q = MatMul (x, b) k = Reshape (q, size)",
        # another tensor
        "n = Neg (x) p = MatMul (n, a) q = MatMul (x, b) r = MatMul (x, b)",
    ],
)
def test_what_spares_less_than_two_kernels_stays(text: str) -> None:
    """One weight stands twice in the first and the last: it would be twice in memory."""
    heads = " ".join(f"{n}h = Reshape ({n}, size) {n}y = Relu ({n}h)" for n in "pq")
    after = model(f"""m (float[B, T, 2] x) => (float[B, T, 1, 2] py, float[B, T, 1, 2] qy)
        <float[2, 2] a = {{1, 2, 3, 4}}, float[2, 2] b = {{5, 6, 7, 8}},
         int64[4] size = {{0, 0, 1, 2}}> {{ {text} {heads} }}""")
    assert not graphfix.run(after, "join-products").changed


@pytest.mark.parametrize(("factor", "products"), [("k", 2), ("g", 3)])
def test_a_weight_that_makes_a_constant_as_well_is_no_second_copy(
    factor: str, products: int
) -> None:
    """DeBERTa multiplies constant positions with the weight of its queries: once, when loaded."""
    made = ", ".join(f"float[B, 1, T, 2] {n}y" for n in "abc")
    weights = ", ".join(f"float[2, 2] w{n} = {{1, 2, 3, {i}}}" for i, n in enumerate("abc"))
    body = " ".join(
        f"""{n}p = MatMul (x, w{n}) {n}h = Reshape ({n}p, size)
        {n}t = Transpose <perm = [0, 2, 1, 3]> ({n}h) {n}y = Relu ({n}t)"""
        for n in "abc"
    )
    found = model(f"""m (float[B, T, 2] x, float[2, 2] g) => (float[2, 2] z, {made})
        <int64[4] size = {{0, 0, 1, 2}}, {weights}, float[2, 2] k = {{1, 2, 3, 4}}>
        {{ {body} z = MatMul ({factor}, wa) }}""")
    graphfix.run(found, "join-products")
    assert ops(found).count("MatMul") == products


def test_an_output_stays_what_it_is() -> None:
    after = model("""m (float[B, T, 2] x) => (float[B, 1, T, 2] a, float[B, 1, T, 2] b)
        <float[2, 2] v = {1, 2, 3, 4}, float[2, 2] w = {5, 6, 7, 8}, int64[4] size = {0, 0, 1, 2}>
        {
            p = MatMul (x, v) ph = Reshape (p, size) a = Transpose <perm = [0, 2, 1, 3]> (ph)
            q = MatMul (x, w) qh = Reshape (q, size) b = Transpose <perm = [0, 2, 1, 3]> (qh)
        }""")
    assert not graphfix.run(after, "join-products").changed


@pytest.mark.parametrize(("opset", "joined"), [(12, False), (13, True)])
def test_a_split_takes_its_sizes_as_an_input_from_opset_13_on(opset: int, joined: bool) -> None:
    m = heads(["heads"] * 3)
    m.graph.opset_imports[""] = opset
    said = [x.message for x in graphfix.check(m, "join-products")]
    assert any(x.startswith("3 products of one tensor become heads") for x in said) == joined
    assert graphfix.run(m, "join-products").changed == joined
