"""Matrix products of two tensors, and the roles of their axes."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts.view import View
from graphfix.passes.fusions.attention.product import (
    Product,
    einsum_labels,
    product_of,
    why_not_product,
)
from tests.passes.models import model

SHORT = {"batch": "b", "query": "q", "key": "k", "feature": "f"}


def node_of(node: str, left: str, right: str, result: str = "float y") -> tuple[ir.Node, View]:
    m = model(
        f"m (float[{left}] a, float[{right}] b, float any) => ({result}) {{ y = {node} }}", 17
    )
    m.graph.inputs[2].shape = m.graph.outputs[0].shape = None
    return m.graph[0], View(m)


def shown(product: Product | None) -> list[str] | None:
    """Return the roles of the axes of both operands and of the result, such as ``bqf``."""
    if product is None:
        return None
    return [
        "".join(SHORT[axis[0].role] if axis else "1" for axis in tensor.layout.axes)
        for tensor in (product.left, product.right, product.result)
    ]


@pytest.mark.parametrize(
    ("node", "left", "right", "roles"),
    [
        ("MatMul (a, b)", "B, H, T, D", "B, H, D, S", ["bbqf", "bbfk", "bbqk"]),
        ("MatMul (a, b)", "T, D", "D, S", ["qf", "fk", "qk"]),
        ("MatMul (a, b)", "B, H, T, D", "B, 1, D, S", ["bbqf", "b1fk", "bbqk"]),
        ("MatMul (a, b)", "1, H, T, D", "B, H, D, S", ["1bqf", "bbfk", "bbqk"]),
        ("MatMul (a, b)", "B, 1, T, D", "B, 1, D, S", ["b1qf", "b1fk", "b1qk"]),
        ('Einsum <equation = "bhtd,bhsd->bhts"> (a, b)', "B, H, T, D", "B, H, S, D",
         ["bbqf", "bbkf", "bbqk"]),
        ('Einsum <equation = "bthd,bshd->bhts"> (a, b)', "B, T, H, D", "B, S, H, D",
         ["bqbf", "bkbf", "bbqk"]),
        ('Einsum <equation = "bhtd,bhsd->bhst"> (a, b)', "B, H, T, D", "B, H, S, D",
         ["bbqf", "bbkf", "bbkq"]),
        # No products of two batches of matrices.
        ("MatMul (a, b)", "B, H, T, D", "D, S", None),
        ("MatMul (a, b)", "D", "D", None),
        ("MatMul (a, b)", "B, H, T, D", "C, H, D, S", None),
        ("MatMul (a, any)", "B, T, D", "B, D, S", None),
        ('Einsum <equation = "bhtd,bhsd->bts"> (a, b)', "B, H, T, D", "B, H, S, D", None),
        ('Einsum <equation = "btd,bsd->bt"> (a, b)', "B, T, D", "B, S, D", None),
        ('Einsum <equation = "btd,bsd->btsd"> (a, b)', "B, T, D", "B, S, D", None),
        ('Einsum <equation = "...td,...sd->...ts"> (a, b)', "B, T, D", "B, S, D", None),
        ('Einsum <equation = "btt,bst->bts"> (a, b)', "B, T, T", "B, S, T", None),
        ('Einsum <equation = "btd->bdt"> (a)', "B, T, D", "B, S, D", None),
        ("Add (a, b)", "B, T, D", "B, T, D", None),
    ],
)  # fmt: skip
def test_roles_of_queries_and_keys(
    node: str, left: str, right: str, roles: list[str] | None
) -> None:
    made, view = node_of(node, left, right)
    assert shown(product_of(made, view)) == roles


def test_the_operand_with_the_queries_may_be_the_second() -> None:
    node, view = node_of("MatMul (a, b)", "B, T, D", "B, D, S")
    product = product_of(node, view, query_operand=1)
    assert shown(product) == ["bfq", "bkf", "bkq"]
    assert product is not None
    assert product.left.value is node.inputs[1]
    assert product.right.value is node.inputs[0]
    assert product.node is node


def test_weights_are_summed_over_keys() -> None:
    node, view = node_of("MatMul (a, b)", "B, T, S", "B, S, D")
    assert shown(product_of(node, view, inner_role="key")) == ["bqk", "bkf", "bqf"]


def test_a_repeated_batch_is_noted() -> None:
    node, view = node_of("MatMul (a, b)", "B, 8, T, D", "B, 1, D, S")
    product = product_of(node, view)
    assert product is not None
    assert [x.size for x in product.right.layout.repeated] == [8]
    assert not product.left.layout.repeated


@pytest.mark.parametrize(
    ("node", "left", "right", "labels"),
    [
        ("MatMul (a, b)", "B, H, T, D", "B, H, D, S", ("abxy", "abyz", "abxz")),
        ("MatMul (a, b)", "T, D", "D, S", ("xy", "yz", "xz")),
        ("MatMul (a, b)", "D", "D", None),
        ("MatMul (a, b)", "B, T, D", "D, S", None),
        ('Einsum <equation = "btd,bsd->bts"> (a, b)', "B, T, D", "B, S, D", ("btd", "bsd", "bts")),
        ('Einsum <equation = "btd,bsd->bts"> (a, b)', "B, T", "B, S, D", None),
        ('Einsum <equation = "btd,bsd,d->bts"> (a, b, any)', "B, T, D", "B, S, D", None),
        ("Mul (a, b)", "B, T", "B, T", None),
    ],
)
def test_labels(node: str, left: str, right: str, labels: tuple[str, str, str] | None) -> None:
    made, view = node_of(node, left, right)
    assert einsum_labels(made, view) == labels


def test_labels_end_before_those_of_the_matrix() -> None:
    for count, known in ((20, True), (21, False)):
        batch = ", ".join("1" for _ in range(count))
        node, view = node_of("MatMul (a, b)", f"{batch}, T, D", f"{batch}, D, S")
        labels = einsum_labels(node, view)
        assert (labels is not None) == known
        assert labels is None or len({*labels[0]}) == count + 2


def test_why_it_is_none() -> None:
    node, view = node_of("MatMul (a, b)", "B, T, 8", "C, 8, S")
    node.name = "scores"
    assert why_not_product(node, view) == (
        "the operands of 'scores' are [B, T, 8] and [C, 8, S]: not seen to be batches of the same "
        "size"
    )
    node, view = node_of("MatMul (a, any)", "B, T, 8", "C, 8, S")
    assert "[B, T, 8] and of unknown shape:" in why_not_product(node, view)
