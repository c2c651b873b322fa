"""What graphs put together at random have found: each was wrong once, and said to be right."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.facts.shapes import infer
from tests.lengths.padding import hold, session

_HEAD = """<ir_version: 8, opset_import: ["" : {opset}]>
    m (float[{batch}, T, 4] x) => (y)
    <int64[1] i0 = {{0}}, int64[1] i1 = {{1}}, int64[1] i2 = {{2}}, int64[1] i3 = {{3}},
     int64[1] less = {{-1}}, int64[1] far = {{9223372036854775807}}>
    {{ s = Shape (x)  t = Gather <axis = 0> (s, i1)
       {body} }}"""


def graph(body: str, batch: object = 1, opset: int = 17) -> onnx.ModelProto:
    return onnx.parser.parse_model(_HEAD.format(opset=opset, batch=batch, body=body))


def outcome(model: onnx.ModelProto, batch: object = 1) -> str:
    """What came of it, for several clips, containers and kinds of padding."""
    found = [hold(model, seed, batch) for seed in range(6)]
    assert not [x.what for x in found if x.kind == "leaks"]
    kinds = {x.kind for x in found} - {"not run"}
    assert len(kinds) == 1, found
    return kinds.pop()


def test_a_length_that_is_below_0_as_a_number_stays_so() -> None:
    body = """less3 = Sub (t, i3)  f = Sub (less3, i3)  n = Cast <to = 1> (f)
        y = Mul (x, n)"""
    model = graph(body, "B")
    assert outcome(model, "B") == "repaired"
    after = ir.from_proto(model)
    graphfix.run(after, "ilens-mask:axis=x.1")
    x = np.full((2, 9, 4), np.nan, np.float32)
    x[0, :7], x[1, :2] = 1, 1
    y = session(ir.to_proto(after)).run(None, {"x": x, "ilens": np.array([7, 2])})[0]
    np.testing.assert_array_equal(y[0, :7], np.full((7, 4), 1.0))
    np.testing.assert_array_equal(y[1, :2], np.full((2, 4), -4.0))


def test_a_quotient_below_0_rounds_as_the_graph_does() -> None:
    body = """few = Sub (t, i3)  f = Div (few, i2)  n = Cast <to = 1> (f)  y = Add (x, n)"""
    after = ir.from_proto(graph(body, "B"))
    graphfix.run(after, "ilens-mask:axis=x.1")
    x = np.zeros((2, 9, 4), np.float32)
    y = session(ir.to_proto(after)).run(None, {"x": x, "ilens": np.array([9, 2])})[0]
    np.testing.assert_array_equal(y[0], np.full((9, 4), 3.0))
    np.testing.assert_array_equal(y[1, :2], np.zeros((2, 4)))


def test_a_clip_that_is_repeated_as_often_as_it_is_long_is_refused() -> None:
    body = """n = Div (t, i3)  often = Concat <axis = 0> (i1, n, i1)  y = Tile (x, often)"""
    assert outcome(graph(body)) == "refused"


@pytest.mark.parametrize("end", ["i1", "i2"])
def test_frames_of_a_clip_that_is_repeated_are_refused(end: str) -> None:
    """A clip of one frame, three times, has a second; in a container that is padding."""
    body = f"""often = Concat <axis = 0> (i1, i3, i1)  v = Tile (x, often)
        y = Slice (v, i0, {end}, i1)"""
    assert outcome(graph(body)) == "refused"


def test_what_is_summed_over_a_clip_that_is_repeated_has_its_padding_in_it() -> None:
    """No axis of the sum is as long as the clip, and still it is another in a container."""
    body = """often = Concat <axis = 0> (i1, i3, i1)  v = Tile (x, often)
        vt = Transpose <perm = [0, 2, 1]> (v)  m = MatMul (vt, v)  y = Relu (m)"""
    assert outcome(graph(body)) == "refused"


def test_a_length_among_several_numbers_is_that_of_no_row() -> None:
    """The largest of [T, 3] would be the largest of all rows of the batch, and of 3."""
    body = """both = Concat <axis = 0> (t, i3)  n = ReduceMax <axes = [0]> (both)
        f = Cast <to = 1> (n)  y = Mul (x, f)"""
    assert outcome(graph(body, "B"), "B") == "refused"


def test_windows_over_two_axes_count_the_padding_of_the_other_axis() -> None:
    def pool(strides: str, pads: str = "1, 0, 1, 0") -> str:
        return f"""xt = Transpose <perm = [0, 2, 1]> (x)  x4 = Unsqueeze (xt, i1)
            p = AveragePool <kernel_shape = [2, 3], strides = [{strides}], pads = [{pads}],
                ceil_mode = 1, count_include_pad = 1> (x4)
            y = Squeeze (p, i1)"""

    # With a stride of 1 no window hangs over the end.
    assert outcome(graph(pool("1, 1"))) == "safe"
    assert outcome(graph(pool("1, 2"))) == "refused"
    assert outcome(graph(pool("1, 2", "0, 0, 0, 0"))) == "refused"


@pytest.mark.parametrize("start", [-1, -2, -5, 0, 5])
def test_a_slice_backwards_that_begins_before_the_first_begins_there(start: int) -> None:
    """As the standard has it, and ONNX Runtime; Python has nothing there."""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[1, 2] x) => (y)
        <int64[1] from = {{{start}}}, int64[1] far = {{-9223372036854775807}}, int64[1] one = {{1}},
         int64[1] back = {{-1}}> {{ y = Slice (x, from, far, one, back) }}""")
    seen = session(model).run(None, {"x": np.zeros((1, 2), np.float32)})[0]
    read = ir.from_proto(model)
    assert infer(read).dims(read.graph.outputs[0]) == seen.shape


@pytest.mark.parametrize(
    "body",
    [
        # -5 beside each frame, those of the padding too, and a sum over all.
        """around = Constant <value = int64[6] {0, 0, 1, 0, 0, 0}> ()
           low = Constant <value = float {-5.0}> ()  axes = Constant <value = int64[2] {1, 2}> ()
           p = Pad (x, around, low)  y = ReduceSum <keepdims = 1> (p, axes)""",
        # 7 before the first row of [T, T], in each column of the padding.
        """before = Constant <value = int64[6] {0, 1, 0, 0, 0, 0}> ()
           high = Constant <value = float {7.0}> ()
           xt = Transpose <perm = [0, 2, 1]> (x)  m = MatMul (x, xt)
           p = Pad (m, before, high)  y = ReduceSum <keepdims = 0> (p, i2)""",
    ],
    ids=["beside", "before"],
)
def test_numbers_around_features_are_around_those_of_the_padding(body: str) -> None:
    for batch in (1, "B"):
        assert outcome(graph(body, batch), batch) == "repaired"


def test_zeros_with_a_number_beside_them_are_not_all_zeros() -> None:
    body = """around = Constant <value = int64[6] {0, 0, 0, 0, 0, 1}> ()
        row = Constant <value = int64[3] {1, 1, 4}> ()  z = ConstantOfShape (row)
        one = Constant <value = float {1.0}> ()  p = Pad (z, around, one)
        w = Pad (x, around, one)  m = Mul (w, p)  y = ReduceSum <keepdims = 1> (m, i1)"""
    assert outcome(graph(body)) == "repaired"


def test_places_with_one_from_the_end_beside_them_are_not_all_counted_from_the_beginning() -> None:
    body = """first = Constant <value = int64 {0}> ()  end = Constant <value = int64 {3}> ()
        step = Constant <value = int64 {1}> ()  at = Range (first, end, step)
        behind = Constant <value = int64[2] {0, 1}> ()  last = Constant <value = int64 {-1}> ()
        places = Pad (at, behind, last)  y = Gather <axis = 1> (x, places)"""
    assert outcome(graph(body)) == "refused"
