"""What carries no time and is made as long as the clip: tables that are padded and cut."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.errors import PaddingError
from tests.lengths.padding import session

FEATURES = 4
CONSTANTS = """int64[1] none = {0}, int64[1] one = {1}, int64[1] two = {2},
    int64[1] far = {1000000}, int64[1] third = {2},
    int64[6] one_behind = {0, 0, 0, 0, 0, 1}, float[4] w = {1.0, 2.0, 3.0, 4.0}"""


def model(body: str, rows: int = 9) -> onnx.ModelProto:
    table = ", ".join(str((i * 11 % 17 - 8) / 8) for i in range(rows * FEATURES))
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        m (float[1, T, {FEATURES}] x) => (float[K, L, M] y)
        <{CONSTANTS}, int64[1] least = {{{(rows + 1) // 2}}}, float[{rows}, 4] table = {{{table}}}>
        {{ t = Shape <start = 1, end = 2> (x) {body} }}""")


def worst(made: onnx.ModelProto, lengths: tuple[int, ...], size: int) -> float:
    repaired = ir.from_proto(made)
    graphfix.run(repaired, "ilens-mask:axis=x.1")
    alone, together = session(made), session(ir.to_proto(repaired))
    names = {x.name for x in together.get_inputs()}
    found = 0.0
    for length in lengths:
        clip = np.random.default_rng(length).standard_normal((1, length, 4)).astype(np.float32)
        x = np.full((1, size, FEATURES), 7, np.float32)
        x[:, :length] = clip
        feeds = {"x": x, "ilens": np.array([length], np.int64)}
        y = together.run(None, {k: v for k, v in feeds.items() if k in names})[0]
        wanted = alone.run(None, {"x": clip})[0]
        valid = y[tuple(slice(0, n) for n in wanted.shape)]
        found = max(found, float(np.abs(valid - wanted).max()))
    return found


def test_a_number_behind_a_table_is_behind_it_in_each_clip() -> None:
    body = "p = Concat <axis = 0> (none, t) q = Pad (w, p) m = ReduceMean <keepdims = 0> (q) "
    assert worst(model(body + "y = Add (x, m)"), (3, 7), 12) <= 1e-6


def test_what_is_put_in_front_of_a_table_moves_it() -> None:
    body = """p = Concat <axis = 0> (t, none) q = Pad (w, p) c = Slice (q, least, far, none)
        u = Unsqueeze (c, one) y = Add (x, u)"""
    with pytest.raises(PaddingError):
        graphfix.run(ir.from_proto(model(body, 7)), "ilens-mask:axis=x.1")


# Relative positions: a table of 9 rows is padded, or cut, to 2 T - 1, and the products with it are
# shifted until (i, j) holds what belongs to j - i.
RELATIVE = """less = Sub (t, least) over = Max (less, none) gap = Sub (least, t)
    begin = Max (gap, none) p = Concat <axis = 0> (over, none, over, none)
    long = Pad (table, p) t2 = Mul (t, two) all2 = Sub (t2, one) end = Add (begin, all2)
    cut = Slice (long, begin, end, none) turned = Transpose <perm = [1, 0]> (cut)
    r = MatMul (x, turned) r1 = Pad (r, one_behind) flat = Mul (t2, t)
    s1 = Concat <axis = 0> (one, flat) f = Reshape (r1, s1) t1 = Sub (t, one)
    p2 = Concat <axis = 0> (none, none, none, t1) f2 = Pad (f, p2) up = Add (t, one)
    s2 = Concat <axis = 0> (one, up, all2) g = Reshape (f2, s2) rows = Slice (g, none, t, one)
    y = Slice (rows, t1, far, third)"""


def test_relative_positions_from_a_table_that_is_padded_or_cut_are_refused() -> None:
    """Of a table that is cut they are seen; in front of one there may be any number of zeros."""
    with pytest.raises(PaddingError, match="how much it puts in front"):
        graphfix.run(ir.from_proto(model(RELATIVE)), "ilens-mask:axis=x.1")


@pytest.mark.parametrize("rows", [60, 500])
def test_a_length_from_which_on_a_table_moves_is_seen(rows: int) -> None:
    body = """less = Sub (t, least) over = Max (less, none)
        p = Concat <axis = 0> (over, none, none, none) long = Pad (table, p)
        cut = Slice (long, none, t, none) y = Add (x, cut)"""
    with pytest.raises(PaddingError):
        graphfix.run(ir.from_proto(model(body, rows)), "ilens-mask:axis=x.1")
