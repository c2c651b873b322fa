"""Relative positions that passes of the profile have made of CumSums, sizes and an index."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.runtime.local_session import Session

# Positions from T - 1 down to 1 - T as Parakeet has them, their entries moved into place.
RELATIVE = """
    <ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T, 4] x) => (float[B, T, 4] y)
    <int64 i1 = {{1}}, int64 down = {{-1}}, int64[1] first = {{0}}, int64[1] ones = {{1}},
     int64[1] end = {{9223372036854775807}}, int64[1] last = {{3}}, int64[1] i2 = {{2}},
     int64[8] left = {{0, 0, 0, 1, 0, 0, 0, 0}}, float zero = {{0.0}}, int64[1] all = {{-1}},
     int64[1] head = {{1}}, float[1, 4] w = {{0.31, -0.22, 0.13, 0.4}}>
    {{
        s = Shape (x)  batch = Gather <axis = 0> (s, first)  n = Gather <axis = 0> (s, i1)
        {before}
        pe = Unsqueeze (range, ones)  pf = Cast <to = 1> (pe)  table = MatMul (pf, w)
        p = Sin (table)  pt = Transpose <perm = [1, 0]> (p)
        q = Unsqueeze (x, ones)  bd = MatMul (q, pt)
        {shift}
        k = Transpose <perm = [0, 2, 1]> (x)  k4 = Unsqueeze (k, ones)  ac = MatMul (q, k4)
        scores = Add (ac, moved)  a = Softmax <axis = -1> (scores)  av = MatMul (a, q)
        y = Squeeze (av, ones)
    }}"""
RANGE = "start = Sub (n, i1)  stop = Neg (n)  range = Range (start, stop, down)"
# The same, as cumsum-index writes it: from n - 1 on by a CumSum of -1, 2 n - 1 of them.
COUNTED = """start = Sub (n, i1)  n1 = Unsqueeze (n, first)  two = Add (n1, n1)
    size = Sub (two, ones)  minus = ConstantOfShape <value = int64[1] {-1}> (size)
    zeroth = Squeeze (first)  at = CumSum <exclusive = 1> (minus, zeroth)
    range = Add (at, start)"""
PADDED = """n1v = Unsqueeze (n, first)  twov = Add (n1v, n1v)
    pd = Pad (bd, left, zero)
    sh = Concat <axis = 0> (batch, head, twov, n1v)  v = Reshape (pd, sh)
    rest = Slice (v, ones, end, i2)  wide = Sub (twov, ones)
    back = Concat <axis = 0> (batch, head, n1v, wide)  u = Reshape (rest, back)
    moved = Slice (u, first, n1v, last)"""
# The same where unflatten-heads has lined sizes up by an axis of 1 that goes again.
LINED = PADDED.replace(
    "v = Reshape (pd, sh)",
    "sh5 = Concat <axis = 0> (batch, ones, head, twov, n1v)  v5 = Reshape (pd, sh5)  "
    "v = Squeeze (v5, ones)",
)
# The same, as skew-gather writes it: entry (i, j) is that of j - i + n - 1.
GATHERED = """n1v = Unsqueeze (n, first)  plus = ConstantOfShape <value = int64[1] {1}> (n1v)
    z = Squeeze (first)  j = CumSum <exclusive = 1> (plus, z)  i = Unsqueeze (j, ones)
    apart = Sub (j, i)  middle = Sub (n1v, ones)  here = Add (apart, middle)
    sh = Concat <axis = 0> (batch, head, ones, ones)  index = Expand (here, sh)
    moved = GatherElements <axis = 3> (bd, index)"""


def relative(before: str, shift: str) -> ir.Model:
    return ir.from_onnx_text(RELATIVE.format(before=before, shift=shift))


@pytest.mark.parametrize("shift", [PADDED, LINED, GATHERED], ids=["padded", "lined", "gathered"])
@pytest.mark.parametrize("before", [RANGE, COUNTED], ids=["range", "counted"])
@pytest.mark.parametrize("spec", ["ilens-mask", "directml,ilens-mask"])
def test_a_clip_in_a_container_is_what_it_is_alone(before: str, shift: str, spec: str) -> None:
    model = relative(before, shift)
    made = model.clone()
    graphfix.run(made, spec)
    rng = np.random.default_rng(4)
    x = rng.standard_normal((3, 17, 4)).astype(np.float32)
    lengths = (17, 1, 6)
    ilens = np.array(lengths, np.int64)
    with Session(model, optimize=False) as alone, Session(made, optimize=False) as padded:
        y = padded.run({"x": x, "ilens": ilens})["y"]
        for row, n in enumerate(lengths):
            wanted = alone.run({"x": x[row : row + 1, :n]})["y"]
            np.testing.assert_allclose(y[row : row + 1, :n], wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("old", "new"),
    [("Add (apart, middle)", "Add (j, i)"), ("Sub (n1v, ones)", "Sub (ones, ones)")],
)
def test_an_index_that_leaves_them_out_of_place_is_refused(old: str, new: str) -> None:
    assert old in GATHERED
    model = relative(COUNTED, GATHERED.replace(old, new))
    with pytest.raises(graphfix.GraphfixError, match="cannot see what padding"):
        graphfix.run(model, "ilens-mask")
