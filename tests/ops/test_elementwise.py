"""What works element by element, and the laws of arithmetic, on ONNX Runtime."""

from collections.abc import Callable, Iterator

import numpy as np
import onnx.defs
import pytest

from graphfix import ops
from graphfix.ops.laws import BINARY_LAWS, UNARY_LAWS
from graphfix.ops.table import operators_with
from tests.ops.samples import UNTESTED, Array, Sample, samples_of

ELEMENTWISE = sorted(ops.ELEMENTWISE)
INTEGERS_ONLY = ops.named("BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor")
NUMBERS = ops.ELEMENTWISE - ops.LOGIC - INTEGERS_ONLY
GRID = np.concatenate([np.linspace(-5, 5, 101), [-1e4, -300, 300, 1e4]]).astype(np.float32)


def _shaped(array: Array, like: Array) -> Array:
    """Return numbers in the shape and the type of an input."""
    return np.resize(array, like.shape).astype(like.dtype)


def _float_samples(operator: str) -> list[Sample]:
    """Return the samples of floats, each once for each opset and attributes, of rank 1 or more."""
    return [
        x
        for x in samples_of(operator)
        if all(x.inputs[i].dtype == np.float32 or i == 0 == (operator != "Where") for i in x.data)
        and x.inputs[x.data[-1]].ndim
        and x.inputs[x.data[-1]].dtype == np.float32
    ]


def _grids(sample: Sample, numbers: Array) -> Iterator[Sample]:
    """Yield a sample with every pair of numbers as its data, one tensor for each input."""
    count = len([i for i in sample.data if sample.inputs[i].dtype == np.float32])
    axes = np.meshgrid(*[numbers] * min(count, 2))
    columns = [x.reshape(-1).astype(np.float32) for x in axes]
    feeds, taken = {}, 0
    for i in sample.data:
        if sample.inputs[i].dtype != np.float32:
            feeds[i] = np.resize([True, False], columns[0].shape)
        else:
            feeds[i] = columns[min(taken, len(columns) - 1)]
            taken += 1
    arrays = tuple(feeds.get(i, x) for i, x in enumerate(sample.inputs))
    yield Sample(sample.operator, sample.opset, arrays, sample.attributes, sample.data)


def _holds(operator: str, law: Callable[[Sample], bool], numbers: Array) -> bool:
    """Return whether a law holds of an operator for all pairs of these numbers."""
    found = [x for sample in _unique(operator) for x in _grids(sample, numbers)]
    assert found, operator
    return all(law(x) for x in found)


def _unique(operator: str) -> list[Sample]:
    chosen: dict[str, Sample] = {}
    for sample in _float_samples(operator):
        count = len(sample.data)
        bias = operator == "com.microsoft.BiasGelu"
        if not bias:
            chosen.setdefault(
                f"{sample.opset} {sample.attributes} {count} {len(sample.inputs)}", sample
            )
    return list(chosen.values())


@pytest.mark.parametrize("operator", ELEMENTWISE)
def test_each_element_follows_from_those_at_its_place(operator: str) -> None:
    assert samples_of(operator)
    for sample in samples_of(operator):
        whole = sample.first()
        data = {i: sample.inputs[i] for i in sample.data}
        wide = dict(zip(data, np.broadcast_arrays(*data.values()), strict=True))
        assert whole.shape == next(iter(wide.values())).shape, sample
        for place in np.ndindex(whole.shape):
            one = {i: x[place].reshape((1,) * data[i].ndim) for i, x in wide.items()}
            alone = sample.with_inputs(one).first().reshape(-1)[0]
            np.testing.assert_allclose(alone, whole[place], rtol=1e-5, err_msg=str(sample))


@pytest.mark.parametrize("operator", sorted(ops.BROADCASTS))
def test_broadcasting_goes_both_ways(operator: str) -> None:
    shapes = {tuple(x.inputs[i].shape for i in x.data[-2:]) for x in samples_of(operator)}
    assert any(a != b and np.broadcast_shapes(a, b) not in (a, b) for a, b in shapes)


def test_a_slope_broadcasts_one_way_only() -> None:
    """ONNX Runtime takes a longer slope all the same; what ONNX says of PRelu does not."""
    assert "PRelu" in ops.ELEMENTWISE - ops.BROADCASTS
    assert "unidirectional broadcast" in onnx.defs.get_schema("PRelu", 16).doc


def test_max_does_not_broadcast_before_opset_8() -> None:
    assert "Max" not in ops.BROADCASTS.at(7)
    assert "Max" in ops.BROADCASTS.at(8)
    with pytest.raises(Exception, match=r"(?i)input|dim|shape"):
        Sample("Max", 7, (np.ones((1, 3), np.float32), np.ones((2, 1), np.float32))).run()


# --- Laws that are tested both ways: an operator without the trait breaks the law ----------------

# Operators of which a law holds on the samples, although some attribute or number breaks it.
UNSAID = {
    "zero": {
        "Clip": "its bounds may leave 0 out",
        "Where": "it has no data alone",
        "Mod": "x mod 0",
    },
}


def _zero(sample: Sample) -> bool:
    data = {i: np.zeros_like(sample.inputs[i]) for i in sample.data}
    return not sample.with_inputs(data).first().any()


@pytest.mark.parametrize("operator", ELEMENTWISE)
def test_zeros_give_zeros(operator: str) -> None:
    if operator in UNSAID["zero"]:
        return
    samples = [x for x in samples_of(operator) if x.inputs[0].size]
    assert all(map(_zero, samples)) == (operator in ops.ZERO_TO_ZERO)


@pytest.mark.parametrize("operator", sorted(NUMBERS))
def test_only_what_is_never_negative_is_never_negative(operator: str) -> None:
    if operator in ("com.microsoft.BiasGelu", "Mod"):
        assert operator not in ops.NEVER_NEGATIVE
        return
    never = _holds(operator, lambda x: not (x.first() < 0).any(), GRID)
    assert never == (operator in ops.NEVER_NEGATIVE)


@pytest.mark.parametrize("operator", sorted(NUMBERS))
def test_only_what_keeps_nonnegative_keeps_it(operator: str) -> None:
    if operator == "com.microsoft.BiasGelu" or operator in ("Where", "Clip"):
        return  # as Gelu; its condition is data too; its bounds
    kept = _holds(operator, lambda x: not (x.first() < 0).any(), np.abs(GRID))
    assert kept == (operator in ops.KEEPS_NONNEGATIVE)


TINY = np.array([1e-45, 1e-38, 1e-20, 1e-3, 0.3, 1, 77, 1e20, 3e38], np.float32)


# Positive for positive numbers, too, but for a parameter, or where a kernel rounds to zero.
MAY_UNDERFLOW = ops.named(
    "Acos Asin Asinh Atan Atanh Erf HardSigmoid Mean Mish PRelu Reciprocal Sin Sinh Softsign"
)


@pytest.mark.parametrize("operator", sorted(NUMBERS - MAY_UNDERFLOW))
def test_only_what_keeps_positive_keeps_the_least_number(operator: str) -> None:
    """A Cast does not: 0.3 becomes the integer 0."""
    if operator in ops.MAKES_BOOL or operator in ("com.microsoft.BiasGelu", "Clip", "Mod", "Where"):
        assert operator not in ops.KEEPS_POSITIVE | MAY_UNDERFLOW
        return
    kept = _holds(operator, lambda x: not (x.first() <= 0).any(), TINY)
    assert kept == (operator in ops.KEEPS_POSITIVE)


@pytest.mark.parametrize("operator", sorted(NUMBERS))
def test_only_what_is_bounded_is_bounded(operator: str) -> None:
    if operator in ops.MAKES_BOOL or operator in ("Clip", "com.microsoft.BiasGelu", "Mod"):
        return
    bounded = _holds(operator, lambda x: not (np.abs(x.first()) > 1 + 1e-6).any(), GRID)
    assert bounded == (operator in ops.BOUNDED_BY_ONE)


@pytest.mark.parametrize("operator", sorted(NUMBERS))
def test_only_what_keeps_finite_keeps_it(operator: str) -> None:
    if operator in ("com.microsoft.BiasGelu", "Where", "Cast", "CastLike", "Mod"):
        return
    with np.errstate(all="ignore"):
        kept = _holds(operator, lambda x: bool(np.isfinite(x.first()).all()), GRID)
    assert kept == (operator in ops.KEEPS_FINITE)


def _is_monotone(sample: Sample) -> bool:
    numbers = np.unique(sample.inputs[sample.data[0]])
    inner = numbers[np.abs(numbers) < 0.95] if sample.operator == "Atanh" else numbers
    for which in sample.data:
        for other in numbers if len(sample.data) > 1 else numbers[:1]:
            feeds = {i: np.full_like(inner, other) for i in sample.data} | {which: inner}
            made = sample.with_inputs(feeds).first().astype(np.float64)
            made = made[~np.isnan(made)]
            if (np.diff(made) < -1e-6 * np.maximum(1, np.abs(made[1:]))).any():
                return False
    return True


@pytest.mark.parametrize("operator", sorted(NUMBERS))
def test_only_what_is_monotone_is_monotone(operator: str) -> None:
    if operator in ("com.microsoft.BiasGelu", "Where", "Mod", "Celu", "IsInf", "IsNaN"):
        return
    numbers = np.linspace(-4, 4, 33).astype(np.float32)
    assert _holds(operator, _is_monotone, numbers) == (operator in ops.MONOTONE)


def _scales(sample: Sample) -> bool:
    data = {i: np.float32(3) * sample.inputs[i] for i in sample.data}
    with np.errstate(all="ignore"):
        return np.allclose(sample.with_inputs(data).first(), 3 * sample.first(), rtol=1e-5)


@pytest.mark.parametrize("operator", sorted(NUMBERS))
def test_only_what_scales_along_scales_along(operator: str) -> None:
    if operator in ops.MAKES_BOOL or operator in ("com.microsoft.BiasGelu", "Where", "Mod"):
        return
    if operator in ops.CASTS:
        return  # of integers it does not
    scales = _holds(operator, _scales, GRID[10:90])
    assert scales == (operator in ops.SCALES_ALONG)


@pytest.mark.parametrize("operator", sorted(NUMBERS))
def test_only_what_keeps_nan_keeps_it(operator: str) -> None:
    if operator in ops.MAKES_BOOL or operator in ops.CASTS or operator in ("Mod", "Where"):
        assert operator not in ops.KEEPS_NAN
        return
    if operator == "Pow":
        unknown = np.array([np.nan, 1, np.nan], np.float32)
        made = Sample("Pow", 15, (unknown, unknown[::-1] * 0), data=(0, 1)).first()
        assert "Pow" not in ops.KEEPS_NAN
        assert np.isnan(made).tolist() == [True, False, True]
        return
    samples = _float_samples(operator)
    lost = []
    for sample in samples:
        for i in sample.data:
            broken = sample.with_inputs({i: np.full_like(sample.inputs[i], np.nan)})
            if not np.isnan(broken.first()).all():
                lost.append(str(sample))
    assert (not lost) == (operator in ops.KEEPS_NAN), lost[:1]


INTEGER_MATH = ops.BROADCASTS - ops.COMPARISONS - ops.named("Where Mod Div Pow BitShift")

# --- Two inputs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", sorted(ops.BROADCASTS - {"Where", "Mod"}))
def test_only_what_commutes_commutes(operator: str) -> None:
    alike = []
    for sample in samples_of(operator):
        if len(sample.data) == 2 and sample.inputs[0].size > 1:
            a, b = sample.inputs
            turned = Sample(operator, sample.opset, (b, a), sample.attributes, (0, 1))
            alike.append(np.allclose(turned.first(), sample.first(), equal_nan=True))
    assert all(alike) == (operator in ops.COMMUTES)


@pytest.mark.parametrize("operator", sorted(INTEGER_MATH))
def test_only_what_is_associative_is_associative(operator: str) -> None:
    alike = []
    for sample in samples_of(operator):
        if len(sample.data) != 2 or sample.opset < 18:
            continue  # of integers only then
        a, b = sample.inputs
        c = np.roll(a, 1) if a.dtype == bool else (a * 2 + 1).astype(a.dtype)
        if a.dtype == np.float32 and operator not in ("Max", "Min", "Mean", "Sum"):
            a, b, c = ((x * 5).astype(np.int64) for x in (a, b, c))
            b, c = (np.where(x < 1, 2, x) for x in (b, c))
        first = _apply(sample, _apply(sample, a, b), c)
        alike.append(
            np.allclose(first, _apply(sample, a, _apply(sample, b, c)), rtol=1e-4, atol=1e-5)
        )
    if operator == "Sum":
        assert all(alike)  # but it takes many, and rounds
    elif alike:
        assert all(alike) == (operator in ops.ASSOCIATIVE)


def _apply(sample: Sample, *inputs: Array) -> Array:
    return Sample(sample.operator, sample.opset, inputs, sample.attributes, (0, 1)).first()


@pytest.mark.parametrize("operator", sorted(ops.BROADCASTS - {"Where", "BitShift"}))
def test_only_what_absorbs_zeros_absorbs_them(operator: str) -> None:
    absorbed = []
    for sample in samples_of(operator):
        for i in sample.data:
            made = sample.with_inputs({i: np.zeros_like(sample.inputs[i])})
            if operator in ("Div", "Mod", "Pow"):
                continue
            absorbed.append(not made.first().any())
    assert (bool(absorbed) and all(absorbed)) == (operator in ops.ZERO_ABSORBS)


# --- Bits and types -------------------------------------------------------------------------------

_WIDE = np.random.default_rng(3).standard_normal(400).astype(np.float32)
WIDE = _WIDE * np.float32(10) ** np.random.default_rng(4).integers(-6, 6, 400).astype(np.float32)
_MORE_LAWS: dict[str, Callable[..., Array]] = {
    "BitShift": np.left_shift,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseNot": np.bitwise_not,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "Clip": lambda x: np.clip(x, np.float32(-0.5), np.float32(1)),
    "Dropout": lambda x: x,
}
LAWS = {**UNARY_LAWS, **BINARY_LAWS, **_MORE_LAWS}


@pytest.mark.parametrize("operator", sorted(ops.CORRECTLY_ROUNDED))
def test_bits_are_those_of_numpy(operator: str) -> None:
    assert samples_of(operator)
    for sample in samples_of(operator):
        if any(x is None for x in sample.inputs) or len(sample.data) > 2:
            continue
        data = [sample.inputs[i] for i in sample.data]
        if data[0].dtype == np.float32:
            data = [_shaped(WIDE[7 * i :], x) for i, x in enumerate(data)]
        made = sample.with_inputs(dict(zip(sample.data, data, strict=True))).first()
        with np.errstate(all="ignore"):
            expected = np.asarray(LAWS[operator](*data))
        np.testing.assert_array_equal(made, expected, str(sample))


@pytest.mark.parametrize("operator", sorted(UNARY_LAWS.keys() | BINARY_LAWS.keys()))
def test_a_law_is_what_onnx_runtime_computes(operator: str) -> None:
    assert samples_of(operator)
    for sample in samples_of(operator):
        if len(sample.data) <= 2:
            data = [sample.inputs[i] for i in sample.data]
            expected = LAWS[operator](*data)
            np.testing.assert_allclose(sample.first(), expected, 1e-5, 1e-6, err_msg=str(sample))


@pytest.mark.parametrize("operator", ELEMENTWISE)
def test_booleans_come_from_comparisons_logic_and_tests(operator: str) -> None:
    made = {x.first().dtype == bool for x in samples_of(operator)}
    assert made == {operator in ops.MAKES_BOOL}
    given = {x.inputs[0].dtype == bool for x in samples_of(operator)}
    assert (given == {True} and operator != "Where") == (operator in ops.LOGIC)
    if operator in ops.BROADCASTS:
        assert (given == {False} and made == {True}) == (operator in ops.COMPARISONS)


def test_what_computes_with_bits_or_answers_is_exact() -> None:
    assert INTEGERS_ONLY | ops.MAKES_BOOL | ops.IDLE | ops.MAKES_WHOLE_NUMBERS <= ops.EXACT
    assert ops.named("Abs Clip Max Min Neg Relu") <= ops.EXACT
    assert ops.named("Add Div Mul Sqrt Sub") <= ops.CORRECTLY_ROUNDED


def test_what_has_no_nan_keeps_none() -> None:
    assert not ops.KEEPS_NAN & (ops.MAKES_BOOL | INTEGERS_ONLY | ops.CASTS)


def test_what_is_exact_is_not_rounded() -> None:
    assert ops.named("Add Div Mul Sqrt Sub") == ops.CORRECTLY_ROUNDED - ops.EXACT
    assert not operators_with("rounded") & ops.EXACT


def test_what_may_underflow_is_not_said_to_stay_positive() -> None:
    assert not MAY_UNDERFLOW & ops.KEEPS_POSITIVE


def test_booleans_are_never_negative() -> None:
    assert ops.MAKES_BOOL <= ops.NEVER_NEGATIVE


def test_the_four_that_order_are_not_the_same_turned_round() -> None:
    assert ops.COMPARISONS - ops.COMMUTES == ops.ORDER_COMPARISONS


@pytest.mark.parametrize("operator", ELEMENTWISE)
def test_the_type_of_the_result(operator: str) -> None:
    alike = {x.first().dtype == x.inputs[0].dtype for x in samples_of(operator)}
    if operator in ops.KEEPS_TYPE:
        assert alike == {True}
    elif operator != "CastLike":
        assert alike == {False}


def test_a_power_has_the_type_of_its_base() -> None:
    power = Sample("Pow", 15, (np.ones(2, np.float32), np.ones(2, np.int64)), data=(0, 1))
    assert power.first().dtype == np.float32
    assert "Pow" in ops.ARITHMETIC


@pytest.mark.parametrize("operator", sorted(NUMBERS))
def test_whole_numbers_are_made_by_rounding_and_signs(operator: str) -> None:
    if operator == "Identity":
        return  # its samples are labels
    samples = [x for x in _float_samples(operator) if x.first().dtype == np.float32]
    whole = [bool((x.first() == np.floor(x.first())).all()) for x in samples]
    assert (bool(whole) and all(whole)) == (operator in ops.MAKES_WHOLE_NUMBERS)


@pytest.mark.parametrize("operator", ELEMENTWISE)
def test_what_is_idle_gives_its_input_back(operator: str) -> None:
    alike = [np.array_equal(x.first(), x.inputs[0]) for x in samples_of(operator)]
    if operator == "Where":
        return
    assert all(alike) == (operator in ops.IDLE)


@pytest.mark.parametrize("operator", sorted(ops.CASTS))
def test_casts_change_the_type_alone(operator: str) -> None:
    for sample in samples_of(operator):
        made = sample.first()
        np.testing.assert_array_equal(made, sample.inputs[0].astype(made.dtype))
        assert made.dtype != sample.inputs[0].dtype


def test_nothing_elementwise_is_untested() -> None:
    assert not UNTESTED & ops.ELEMENTWISE
