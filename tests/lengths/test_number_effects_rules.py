"""Signs and numbers of results, operator by operator."""

from __future__ import annotations

import math

import onnx_ir as ir
import pytest

from graphfix.lengths import number_effects
from graphfix.lengths.number_effects import apply_to_numbers, dtype_limit, keeps_finite, result_sign
from graphfix.lengths.tail_state import Sign, TensorState


def state(sign: Sign = 0, fill: float | None = None) -> TensorState:
    return TensorState((), (), sign=sign, fill=fill)


@pytest.mark.parametrize(
    ("operator", "states", "sign"),
    [
        ("Add", [state(2), state(1)], 2),
        ("Add", [state(1), state(1)], 1),
        ("Add", [state(2), state(0)], 0),
        ("Sum", [state(1), state(1), state(2)], 2),
        ("Clip", [state(0), state(), state()], 0),
        ("Clip", [state(0), state(fill=0.0), state()], 1),
        ("Clip", [state(0), state(fill=0.5), state()], 2),
        ("Clip", [state(0), state(fill=-0.5), state()], 0),
        ("Clip", [state(0), state(fill=0.5)], 0),
        ("Cosh", [state(0)], 2),
        ("Div", [state(1), state(2)], 1),
        ("Div", [state(2), state(2)], 1),  # it may underflow
        ("Div", [state(2), state(2, 3.0)], 2),
        ("Div", [state(2), state(1)], 0),
        ("Div", [state(0), state(2)], 0),
        ("Max", [state(0), state(2)], 2),
        ("Max", [state(0), state(1)], 1),
        ("Min", [state(1), state(2)], 1),
        ("Min", [state(0), state(2)], 0),
        ("Mul", [state(2), state(2)], 1),
        ("Mul", [state(2), state(2, 3.0)], 2),
        ("Mul", [state(1), state(2, 3.0)], 1),
        ("Mul", [state(0), state(2)], 0),
        ("Pow", [state(2), state(fill=0.5)], 2),
        ("Pow", [state(2), state(fill=-1.0)], 2),
        ("Pow", [state(2), state(fill=2.0)], 1),
        ("Pow", [state(2), state()], 1),
        ("Pow", [state(0), state()], 0),
        ("Pow", [state(0), state(fill=2.0)], 1),
        ("Pow", [state(0), state(fill=0.0)], 1),
        ("Pow", [state(0), state(fill=3.0)], 0),
        ("Pow", [state(1), state(fill=3.0)], 1),
        ("Pow", [state(0), state(fill=-2.0)], 0),
        ("Where", [state(0), state(2), state(1)], 1),
        ("Where", [state(0), state(2), state(2)], 2),
        ("Relu", [state(0)], 1),
        ("Sqrt", [state(2)], 2),
        ("Sqrt", [state(0)], 1),
        ("Tanh", [state(1)], 1),
        ("Tanh", [state(0)], 0),
        ("Neg", [state(2)], 0),
        ("Exp", [state(0)], 1),
        ("Identity", [state(2)], 2),
    ],
)
def test_the_sign_of_a_result(operator: str, states: list[TensorState], sign: int) -> None:
    assert result_sign(operator, states) == sign


@pytest.mark.parametrize(
    ("operator", "states", "finite"),
    [
        ("Div", [state(), state(2)], True),
        ("Div", [state(), state(1)], False),
        ("Div", [state(), state(0, -3.0)], True),
        ("Div", [state(), state(0, 0.0)], False),
        ("Log", [state(2)], True),
        ("Log", [state(1)], False),
        ("Log", [state(0, 3.0)], False),
        ("Reciprocal", [state(2)], True),
        ("Reciprocal", [state(0, -3.0)], True),
        ("Reciprocal", [state(0, 0.0)], False),
        ("Reciprocal", [state(1)], False),
        ("Sqrt", [state(1)], True),
        ("Sqrt", [state(0)], False),
        ("Pow", [state(0), state(fill=2.0)], True),
        ("Pow", [state(0), state(fill=3.0)], False),
        ("Pow", [state(0), state(fill=1.5)], False),
        ("Pow", [state(1), state(fill=1.5)], True),
        ("Pow", [state(2), state()], False),
        ("Pow", [state(2), state(fill=-1.0)], True),
        ("Pow", [state(2), state(fill=-1.5)], False),
        ("Pow", [state(1), state(fill=-1.0)], False),
        ("Pow", [state(0), state(fill=0.0)], True),
        ("Add", [state(), state()], True),
        ("Exp", [state()], False),
    ],
)
def test_what_stays_finite(operator: str, states: list[TensorState], finite: bool) -> None:
    assert keeps_finite(operator, states) is finite


@pytest.mark.parametrize(
    ("operator", "args", "integral", "to_bool", "result"),
    [
        ("Cast", [2.7], True, False, 2.0),
        ("Cast", [2.7], False, False, 2.7),
        ("Cast", [0.0], False, True, 0.0),
        ("Cast", [-3.0], False, True, 1.0),
        ("Cast", [math.inf], True, False, math.inf),
        ("Identity", [4.0], False, False, 4.0),
        ("Clip", [7.0, 1.0, 5.0], False, False, 5.0),
        ("Clip", [0.0, 1.0, 5.0], False, False, 1.0),
        ("Clip", [3.0, 1.0, 5.0], False, False, 3.0),
        ("Clip", [3.0, 1.0], False, False, None),
        ("Where", [1.0, 3.0, 5.0], False, False, 3.0),
        ("Where", [0.0, 3.0, 5.0], False, False, 5.0),
        ("Neg", [3.0], False, False, -3.0),
        ("Log", [0.0], False, False, -math.inf),
        ("Add", [3.0, 4.0], False, False, 7.0),
        ("Sum", [3.0, 4.0, 5.0], False, False, 12.0),
        ("Div", [7.0, 2.0], False, False, 3.5),
        ("Div", [-7.0, 2.0], True, False, -3.0),
        ("Sub", [7.0, 2.5], True, False, 4.5),
        ("Less", [1.0, 2.0], False, True, 1.0),
        ("PRelu", [0.0, 9.0], False, False, 0.0),
        ("PRelu", [1.0, 9.0], False, False, None),
        ("Acos", [0.0], False, False, None),
        ("Erf", [0.0], False, False, 0.0),
        ("Erf", [1.0], False, False, None),
    ],
)
def test_numbers(
    operator: str, args: list[float], integral: bool, to_bool: bool, result: float | None
) -> None:
    assert apply_to_numbers(operator, args, integral=integral, to_bool=to_bool) == result


def test_the_edges_of_types() -> None:
    assert [dtype_limit(ir.DataType.BOOL, high=x) for x in (False, True)] == [0, 1]
    assert dtype_limit(ir.DataType.FLOAT16, high=True) == 65504.0
    assert dtype_limit(ir.DataType.FLOAT16, high=False) == -65504.0
    assert dtype_limit(ir.DataType.UINT8, high=False) == 0
    assert isinstance(dtype_limit(ir.DataType.UINT8, high=True), int)
    assert isinstance(dtype_limit(ir.DataType.FLOAT, high=True), float)
    assert number_effects._truncate(math.nan) != number_effects._truncate(math.nan)
