"""Parameters that are computed when a model is loaded: which are read, and as what."""

from __future__ import annotations

import numpy as np
import pytest

from graphfix.facts.view import View
from graphfix.passes.common.parameters import parameter_of
from tests.passes.models import model

HEAD = "m (float[1, 2, T] x) => (float[1, 2, T] y) <float[2] a = {0, 1}, float tiny = {0.5}>"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("p = Identity (a)", [0, 1]),
        ("e = Exp (a) p = Reciprocal (e)", [1, np.exp(-1)]),
        ("s = Add (a, tiny) p = Reciprocal (s)", [2, 2 / 3]),
        ("axis = Constant <value_ints = [1]> () p = Unsqueeze (a, axis)", [[0], [1]]),
    ],
)
def test_a_parameter_is_computed_element_by_element(body: str, expected: list[float]) -> None:
    parameter = _read_parameter(body)
    np.testing.assert_allclose(parameter, np.array(expected, np.float32), rtol=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        "p = Exp (x)",
        "p = RandomNormalLike (a)",
        "p = Softmax (a)",
        "".join(f"p{i} = Exp ({f'p{i - 1}' if i else 'a'}) " for i in range(9)) + "p = Exp (p8)",
        "n = Constant <value_ints = [16385]> () p = Expand (tiny, n)",
    ],
)
def test_other_tensors_are_not_read(body: str) -> None:
    assert _read_parameter(body) is None


def _read_parameter(body: str) -> object:
    graph = model(f"{HEAD} {{ {body} y = Mul (x, p) }}")
    return parameter_of(next(x for x in graph.graph if x.op_type == "Mul").inputs[1], View(graph))
