"""Effects of element-wise operators on numbers: where the traits of an operator decide."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.lengths.number_effects import apply_to_numbers, dtype_limit, keeps_finite, result_sign
from graphfix.lengths.tail_state import Sign, TensorState


@pytest.mark.parametrize(
    ("dtype", "edges"),
    [("INT4", (-8, 7)), ("UINT2", (0, 3)), ("INT64", (-(2**63), 2**63 - 1)), ("BOOL", (0, 1))],
)
def test_the_edges_of_a_type(dtype: str, edges: tuple[int, int]) -> None:
    assert tuple(dtype_limit(ir.DataType[dtype], high=high) for high in (False, True)) == edges


@pytest.mark.parametrize(
    ("operator", "args", "result"),
    [
        ("com.microsoft.BiasGelu", [0.0, 1.0], None),
        ("com.microsoft.BiasGelu", [0.0, 0.0], 0.0),
        ("com.microsoft.FastGelu", [0.0, 1.0], None),
        ("com.microsoft.FastGelu", [0.0], 0.0),
        ("PRelu", [0.0, 3.0], 0.0),
        ("PRelu", [1.0, 3.0], None),
        ("Mean", [0.0, 0.0], 0.0),
        ("Cos", [0.0], 1.0),
        ("Acos", [0.0], None),
        ("Clip", [7.0, 1.0, 5.0], 5.0),
        ("Clip", [0.0, 1.0], None),
        ("Where", [0.0, 3.0, 5.0], 5.0),
        ("Max", [1.0, 4.0, 2.0], 4.0),
        ("Dropout", [3.0, 0.5], 3.0),
    ],
)
def test_numbers(operator: str, args: list[float], result: float | None) -> None:
    assert apply_to_numbers(operator, args, integral=False, to_bool=False) == result


def test_a_cast_truncates_or_asks() -> None:
    assert apply_to_numbers("Cast", [-1.5], integral=True, to_bool=False) == -1
    assert apply_to_numbers("CastLike", [-1.5, 0], integral=False, to_bool=True) == 1
    assert apply_to_numbers("Div", [-3, 2], integral=True, to_bool=False) == -1


def _states(*signs: Sign) -> list[TensorState]:
    return [TensorState((), (), sign=sign) for sign in signs]


@pytest.mark.parametrize(
    ("operator", "signs", "sign"),
    [
        ("Sqrt", [0], 1),
        ("Sqrt", [2], 2),
        ("Exp", [0], 1),
        ("Cosh", [0], 2),
        ("IsNaN", [0], 1),
        ("Sign", [2], 2),
        ("Erf", [2], 1),
        ("Cast", [2], 1),
        ("Mean", [2, 1], 1),
        ("Add", [2, 1], 2),
        ("Add", [1, 1], 1),
        ("Add", [2, 0], 0),
        ("Mul", [2, 2], 1),
        ("Max", [0, 2], 2),
        ("Min", [1, 2], 1),
        ("Where", [0, 1, 2], 1),
        ("Mod", [1, 1], 1),
        ("Neg", [2], 0),
        ("Relu", [0], 1),
        ("com.microsoft.FastGelu", [1, 0], 0),
        ("com.microsoft.FastGelu", [1, 1], 1),
        ("PRelu", [1, 0], 0),
    ],
)
def test_signs(operator: str, signs: list[Sign], sign: Sign) -> None:
    assert result_sign(operator, _states(*signs)) == sign


@pytest.mark.parametrize("operator", ["And", "BitwiseOr", "Cast", "Not", "Tan", "Tanh", "Where"])
def test_it_keeps_finite(operator: str) -> None:
    assert keeps_finite(operator, _states(0, 0, 0))


@pytest.mark.parametrize("operator", ["Acos", "Cosh", "Div", "Exp", "Log", "Mod", "Sqrt"])
def test_it_may_make_an_infinity_or_nan(operator: str) -> None:
    assert not keeps_finite(operator, _states(0, 0))


@pytest.mark.parametrize(
    ("exponent", "sign", "finite"),
    [
        (None, 2, False),
        (2.0, 0, True),
        (3.0, 2, False),
        (0.5, 0, False),
        (0.5, 1, True),
        (-1.0, 2, True),
        (-1.0, 1, False),
        (-2.0, 2, False),
    ],
)
def test_powers(exponent: float | None, sign: Sign, finite: bool) -> None:
    power = TensorState((), (), fill=exponent)
    assert keeps_finite("Pow", [TensorState((), (), sign=sign), power]) is finite


@pytest.mark.parametrize(
    ("exponent", "signs"),
    [
        # Of a base that is 0 or anything, not below 0, above 0; numbers may underflow to 0.
        (None, (0, 1, 1)),
        (0.0, (1, 1, 2)),
        (0.5, (0, 1, 2)),
        (1.0, (0, 1, 2)),
        (1.5, (0, 1, 1)),
        (2.0, (1, 1, 1)),
        (3.0, (0, 1, 1)),
        (-1.0, (0, 1, 2)),
        (-1.5, (0, 1, 1)),
        (-2.0, (0, 1, 1)),
    ],
)
def test_the_sign_of_a_power(exponent: float | None, signs: tuple[Sign, Sign, Sign]) -> None:
    power = TensorState((), (), fill=exponent)
    bases: tuple[Sign, Sign, Sign] = (0, 1, 2)
    found = [result_sign("Pow", [TensorState((), (), sign=x), power]) for x in bases]
    assert tuple(found) == signs
