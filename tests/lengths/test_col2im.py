"""Col2Im: frames added where they overlap, as F.fold is exported."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.errors import PaddingError
from tests.lengths.padding import hold

# Frames of 4 features; blocks of three, two frames apart.
_FOLD = """<ir_version: 8, opset_import: ["" : 18]>
    m (float[{batch}, T, 4] x) => (y)
    <int64[1] i0 = {{0}}, int64[1] i1 = {{1}}, int64[1] i2 = {{2}}, int64[1] i3 = {{3}},
     int64[1] i4 = {{4}}, int64[2] block = {{1, 3}}, int64[2] square = {{2, 2}},
     float[1, 12, 1] bias = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}>
    {{ xt = Transpose <perm = [0, 2, 1]> (x)  s = Shape (x)  t = Gather <axis = 0> (s, i1)
       b = Gather <axis = 0> (s, i0)  less = Sub (t, i1)
       three = Concat <axis = 1> (xt, xt, xt)  blocks = Add (three, bias)
       {body} }}"""


def outcome(body: str, batch: object = "B") -> tuple[str, str]:
    model = onnx.parser.parse_model(_FOLD.format(batch=batch, body=body))
    found = [hold(model, seed, batch) for seed in range(4)]
    leaks = [x.what for x in found if x.kind == "leaks"]
    assert not leaks
    return found[0].kind, found[0].what


def folded(size: str, attributes: str, shape: str = "i1, n") -> str:
    return f"""n = {size}  image = Concat <axis = 0> ({shape})
        f = Col2Im <{attributes}> (blocks, image, block)  y = Neg (f)"""


@pytest.mark.parametrize("batch", ["B", 1])
@pytest.mark.parametrize(
    ("size", "attributes"),
    [
        ("Add (t, i2)", "strides = [1, 1]"),
        ("Add (twice, i3)", "strides = [1, 2]"),
        ("Add (times, i3)", "strides = [1, 3]"),
        ("Identity (t)", "strides = [1, 1], pads = [0, 1, 0, 1]"),
        ("Add (t, i4)", "strides = [1, 1], dilations = [1, 2]"),
        ("Add (twice, i4)", "strides = [1, 2]"),  # what is left over stays empty
    ],
    ids=["by one", "by two", "side by side", "cut", "with gaps", "with a rest"],
)
def test_the_last_blocks_reach_what_is_valid(size: str, attributes: str, batch: object) -> None:
    body = f"twice = Mul (less, i2)  times = Mul (less, i3)  {folded(size, attributes)}"
    assert outcome(body, batch)[0] == "repaired"


FOUR = "four = Concat <axis = 1> (blocks, xt)  f = Col2Im (four, image, square)  y = Neg (f)"


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [("i2, n", ""), ("n, i2", ""), ("i3, n", "<dilations = [2, 1]>")],
    ids=["high", "wide", "with gaps"],
)
def test_blocks_may_be_as_high_as_the_image(shape: str, attributes: str) -> None:
    body = f"n = Add (t, i1)  image = Concat <axis = 0> ({shape})  {FOUR}"
    assert outcome(body.replace("Col2Im", f"Col2Im {attributes}"))[0] == "repaired"


def test_pads_make_room_for_a_second_row_of_blocks() -> None:
    body = f"n = Add (t, i1)  image = Concat <axis = 0> (i1, n)  {FOUR}"
    body = body.replace("Col2Im", "Col2Im <pads = [1, 0, 1, 0]>")
    model = onnx.parser.parse_model(_FOLD.format(batch="B", body=body))
    with pytest.raises(PaddingError, match="another"):
        graphfix.run(ir.from_proto(model), "ilens-mask:axis=x.1")


@pytest.mark.parametrize(
    ("image", "why"),
    [
        ("half = Div (t, i2)  n = Add (half, i1)  image = Concat <axis = 0> (i3, n)", "another"),
        ("image = Constant <value = int64[2] {2, 9}> ()", "along time alone"),
        ("n = Add (b, i1)  image = Concat <axis = 0> (n, t)", "another"),
    ],
    ids=["two rows of blocks", "as many blocks as there are", "as high as there are rows"],
)
def test_blocks_that_time_does_not_deal_out_are_refused(image: str, why: str) -> None:
    model = onnx.parser.parse_model(_FOLD.format(batch="B", body=f"{image}  {FOUR}"))
    with pytest.raises(PaddingError, match=why):
        graphfix.run(ir.from_proto(model), "ilens-mask:axis=x.1")
