"""Which arithmetic is a LayerNorm or an RMSNorm without scale and bias, and of what."""

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.core import Skip
from graphfix.facts.view import View
from graphfix.passes.common.norm_site import NormCore, fits_scale, norm_cores_of, square_of
from tests.passes.models import model

CONSTANTS = """<float two = {2}, float three = {3}, float one = {1}, float half = {0.5},
    float minus = {-0.5}, float eps = {0.25}, float below = {-0.25}, int64[1] last = {-1},
    int64[1] middle = {1}, int64[1] first = {0}, int64[2] both = {1, 2}, int64[2] outer = {0, 2}>"""

CENTRE = "mu = ReduceMean (x, last) c = Sub (x, mu)"
VARIANCE = "p = Pow (c, two) v = ReduceMean (p, last) e = Add (v, eps) s = Sqrt (e)"
LAYER = f"{CENTRE} {VARIANCE} y = Div (c, s)"
RMS = "p = Mul (x, x) v = ReduceMean (p, last) e = Add (v, eps) s = Sqrt (e) y = Div (x, s)"


def cores_at(steps: str, dims: str = "B, 4, 8") -> tuple[ir.Model, list[NormCore] | Skip]:
    """The norms that may end at y."""
    m = model(f"m (float[{dims}] x, float[{dims}] fed) => (float y) {CONSTANTS} {{ {steps} }}")
    m.graph.outputs[0].shape = None
    node = m.graph.outputs[0].producer()
    assert node is not None
    return m, norm_cores_of(node, View(m))


@pytest.mark.parametrize(
    "steps",
    [
        LAYER,
        LAYER.replace("Pow (c, two)", "Mul (c, c)"),
        LAYER.replace("Add (v, eps)", "Add (eps, v)"),
        LAYER.replace("y = Div (c, s)", "r = Reciprocal (s) y = Mul (c, r)"),
        LAYER.replace("y = Div (c, s)", "r = Div (one, s) y = Mul (r, c)"),
        # The difference twice, as TorchScript writes it
        f"{CENTRE} d = Sub (x, mu) {VARIANCE} y = Div (d, s)",
    ],
)
def test_layer_norm(steps: str) -> None:
    m, cores = cores_at(steps)
    assert isinstance(cores, list)
    core, inner = (*cores, None)[:2]
    assert core is not None
    assert (core.centred, core.data, core.epsilon) == (True, m.graph.inputs[0], 0.25)
    assert (core.axes, core.trailing_axes, core.gain) == ((-1,), 0, None)
    assert core.last is m.graph.outputs[0].producer()
    assert core.nodes == {*m.graph} - {core.last}
    if inner is not None:  # it is an RMSNorm of the difference as well
        assert not inner.centred
        assert inner.data.name == "c"


@pytest.mark.parametrize(
    "steps",
    [
        RMS,
        RMS.replace("Sqrt (e)", "Pow (e, half)"),
        RMS.replace("s = Sqrt (e) y = Div (x, s)", "s = Pow (e, minus) y = Mul (x, s)"),
        RMS.replace("s = Sqrt (e) y = Div (x, s)", "s = Pow (e, minus) y = Mul (s, x)"),
        RMS.replace("s = Sqrt (e)", "q = Sqrt (e) r = Reciprocal (q) s = Reciprocal (r)"),
    ],
)
def test_rms_norm(steps: str) -> None:
    m, cores = cores_at(steps)
    assert isinstance(cores, list)
    (core,) = cores
    assert (core.centred, core.data, core.epsilon) == (False, m.graph.inputs[0], 0.25)
    assert core.nodes == {*m.graph} - {core.last}


@pytest.mark.parametrize(
    ("steps", "centred"),
    [
        (RMS.replace("e = Add (v, eps) s = Sqrt (e)", "s = Sqrt (v)"), [False]),
        # Without an epsilon it is 0 / 0 where all elements are the same.
        (LAYER.replace("e = Add (v, eps) s = Sqrt (e)", "s = Sqrt (v)"), [False]),
        (LAYER.replace("Sub (x, mu)", "Sub (mu, x)"), [False]),
        (LAYER.replace("ReduceMean (x, last)", "ReduceMean (x, middle)"), [False]),
        (LAYER.replace("ReduceMean (x, last)", "ReduceMean (fed, last)"), [False]),
        (LAYER.replace("Sub (x, mu)", "Sub (x, one)"), [False]),
        (RMS.replace("y = Div (x, s)", "y = Mul (x, s)"), []),
        (RMS.replace("y = Div (x, s)", "y = Div (s, x)"), []),
        (RMS.replace("y = Div (x, s)", "y = Div (fed, s)"), []),
        (RMS.replace("y = Div (x, s)", "y = Add (x, s)"), []),
        (RMS.replace("Add (v, eps)", "Add (v, below)"), []),
        (RMS.replace("Add (v, eps)", "Mul (v, eps)"), []),
        (RMS.replace("Sqrt (e)", "Pow (e, two)"), []),
        (RMS.replace("Sqrt (e)", "Pow (e, minus)"), []),
        (RMS.replace("Sqrt (e) y = Div", "Pow (e, half) y = Mul"), []),
        (RMS.replace("Sqrt (e)", "Exp (e)"), []),
        (RMS.replace("Mul (x, x)", "Mul (x, fed)"), []),
        (RMS.replace("Mul (x, x)", "Pow (x, three)"), []),
        (RMS.replace("ReduceMean", "ReduceSum"), []),
        (RMS.replace("y = Div (x, s)", "r = Div (two, s) y = Mul (x, r)"), []),
        (RMS.replace("y = Div (x, s)", "z = Abs (s) y = Div (x, z)"), []),
        ("y = Div (x, fed)", []),
        ("y = Mul (x, x)", []),
    ],
)
def test_what_is_left_of_a_norm(steps: str, centred: list[bool]) -> None:
    _, cores = cores_at(steps)
    assert isinstance(cores, list)
    assert [x.centred for x in cores] == centred


@pytest.mark.parametrize(
    ("axes", "expected", "behind"),
    [("last", (-1,), 0), ("middle", (-2,), 1), ("first", (-3,), 2), ("both", (-2, -1), 0)],
)
def test_axes_are_counted_from_the_end(axes: str, expected: tuple[int, ...], behind: int) -> None:
    for steps, centred in ((LAYER, True), (RMS, False)):
        _, cores = cores_at(steps.replace("last", axes))
        assert isinstance(cores, list)
        assert (cores[0].axes, cores[0].trailing_axes) == (expected, behind)
        assert cores[0].centred == centred


def test_a_mean_of_means_is_one_over_both_axes() -> None:
    m, cores = cores_at(
        """p = Mul (x, x) u = ReduceMean (p, last) v = ReduceMean (u, middle) e = Add (v, eps)
        s = Sqrt (e) y = Div (x, s)"""
    )
    assert isinstance(cores, list)
    assert cores[0].axes == (-2, -1)
    assert cores[0].nodes == {*m.graph} - {cores[0].last}


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        (RMS.replace("last", "outer"), "its mean is over [-3, -1]"),
        (RMS.replace("ReduceMean", "ReduceMean <keepdims = 0>"), "loses the axis"),
        (RMS.replace("(p, last)", "(p)"), "are not constant, or are all there are"),
    ],
)
def test_why_a_mean_is_not_usable(steps: str, reason: str) -> None:
    _, skip = cores_at(steps)
    assert isinstance(skip, Skip)
    assert reason in skip.reason


@pytest.mark.parametrize("axes", ["last", "middle"])
def test_axes_from_the_front_need_a_rank(axes: str) -> None:
    m = model(
        f"m (float x) => (float y) {CONSTANTS} {{ {RMS.replace('(p, last)', f'(p, {axes})')} }}"
    )
    m.graph.inputs[0].shape = m.graph.outputs[0].shape = None
    cores = norm_cores_of(m.graph[-1], View(m))
    assert isinstance(cores, list) == (axes == "last")
    assert isinstance(cores, list) or "its rank is not known" in cores.reason


@pytest.mark.parametrize("product", ["Mul (x, fed)", "Mul (fed, x)"])
def test_a_gain_before_the_division(product: str) -> None:
    m, cores = cores_at(RMS.replace("y = Div (x, s)", f"g = {product} y = Div (g, s)"))
    assert isinstance(cores, list)
    (core,) = cores
    assert (core.gain, core.data) == (m.graph.inputs[1], m.graph.inputs[0])
    assert core.nodes == {*m.graph} - {core.last}


def test_a_gain_of_a_difference_that_is_computed_twice() -> None:
    m, cores = cores_at(f"{CENTRE} d = Sub (x, mu) {VARIANCE} g = Mul (d, fed) y = Div (g, s)")
    assert isinstance(cores, list)
    assert (cores[0].centred, cores[0].gain) == (True, m.graph.inputs[1])


@pytest.mark.parametrize(
    ("step", "is_square"),
    [("Mul (x, x)", True), ("Pow (x, two)", True), ("Mul (x, two)", False), ("Pow (x, x)", False),
     ("Pow (two, two)", True), ("Add (x, x)", False)],
)  # fmt: skip
def test_square(step: str, *, is_square: bool) -> None:
    m, _ = cores_at(f"y = {step}")
    square = square_of(m.graph.outputs[0])
    assert (square is not None) == is_square
    assert square is None or square == (m.graph[0].inputs[0], m.graph[0])
    assert square_of(m.graph.inputs[0]) is None
    assert square_of(None) is None


@pytest.mark.parametrize(
    ("scale", "axes", "fits"),
    [
        ("float[8] w", (-1,), True),
        ("float[1] w", (-1,), False),
        ("float[1, 8] w", (-1,), False),
        ("float[4, 8] w", (-2, -1), True),
        ("float[8] w", (-2, -1), False),
        ("double[8] w", (-1,), False),
        ("float[4] w", (-2,), False),
    ],
)
def test_a_scale_has_the_dims_of_the_axes(scale: str, axes: tuple[int, ...], *, fits: bool) -> None:
    m = model(f"m (float[B, 4, 8] x, {scale}) => (float[B, 4, 8] y) {{ y = Mul (x, w) }}")
    x, w = m.graph.inputs
    assert fits_scale(w, x, axes, View(m)) == fits
    assert not fits_scale(None, x, axes, View(m))


@pytest.mark.parametrize(
    ("dims", "fits"), [("4, 1", True), ("1, 4, 1", True), ("4", False), ("1, 1", False)]
)
def test_a_scale_along_channels_before_frames(dims: str, *, fits: bool) -> None:
    numbers = "1" if dims == "1, 1" else "1, 2, 3, 4"
    m = model(f"""m (float[B, 4, T] x) => (float[B, 4, T] y) <float[{dims}] w = {{{numbers}}}>
        {{ y = Mul (x, w) }}""")
    weight = m.graph.initializers["w"]
    assert fits_scale(weight, m.graph.inputs[0], (-2,), View(m)) == fits


@pytest.mark.parametrize(("width", "fits"), [(8, True), (4, False)])
def test_a_scale_that_was_written_after_shapes_were_inferred(width: int, *, fits: bool) -> None:
    m = model("m (float[B, 4, 8] x) => (float[B, 4, 8] y) { y = Neg (x) }")
    view = View(m)
    assert view.shapes.dims(m.graph.outputs[0])
    ones = ir.Value(name="ones", const_value=ir.tensor(np.ones(width, np.float32)))
    ones.type, ones.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([width])
    m.graph.register_initializer(ones)
    assert fits_scale(ones, m.graph.inputs[0], (-1,), view) == fits
