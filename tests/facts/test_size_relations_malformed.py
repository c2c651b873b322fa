"""What operators want of sizes; of one that is malformed, or of unknown rank, nothing is known."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts import shapes
from graphfix.facts.size_relations import relations_of

HEAD = '<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>'


def pairs(body: str) -> set[tuple[str, str]]:
    """The sizes that are the same, in a graph of ``x`` [B, C, T] and ``u`` of unknown rank."""
    model = ir.from_onnx_text(
        f"{HEAD} m (float[B, C, T] x, u, float[8, 4, 3] w, float[4] v, float[N] n) => (y) "
        f"{{ {body} }}"
    )
    relations = relations_of(model.graph, shapes.infer(model), 18)
    return {(str(x.a), str(x.b)) for x in relations.always}


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("y = Conv (x, w)", {("C", "4")}),
        ("y = Conv (x, v)", set()),  # a weight of another rank
        ("y = ConvTranspose (x, v)", set()),
        ("y = Conv (u, w)", set()),
        ("y = PRelu (x, v)", {("T", "4")}),
        ("y = PRelu (u, v)", set()),
        ("y = PRelu (x, u)", set()),
        ("y = PRelu (u, u)", set()),
        ("y = com.microsoft.BiasGelu (x, n)", {("T", "N")}),
        ("y = com.microsoft.BiasGelu (u, u)", set()),
    ],
)
def test_sizes_that_operators_want_to_be_the_same(body: str, found: set[tuple[str, str]]) -> None:
    assert pairs(body) == found
