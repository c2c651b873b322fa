"""Models in text that several tests of made-up inputs share."""

from __future__ import annotations

import onnx_ir as ir

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def model(text: str) -> ir.Model:
    return ir.from_onnx_text(HEAD + text)


TOKENS = """m (int64[B, T] a) => (float[B, T, 2] y)
    <float[5, 2] table = {0,1, 2,3, 4,5, 6,7, 8,9}> { y = Gather (table, a) }"""


ADDITIVE = """m (float[B, T, T] s, int64[B, T] a) => (float[B, T, T] y)
    <int64[1] ax = {1}, float one = {1.0}, float big = {-10000.0}>
    { f = Cast <to = 1> (a)  u = Unsqueeze (f, ax)  i = Sub (one, u)  d = Mul (i, big)
      t = Add (s, d)  y = Softmax (t) }"""


LENGTHS = """m (float[B, T, 2] s, %s[B] a) => (float[B, T, 2] y)
    <int64 zero = {0}, int64 one = {1}, int64[1] ax1 = {1}, int64[1] ax2 = {2}, int64 four = {4}>
    { n = Shape <start = 1, end = 2> (s)  k = Squeeze (n)  m = Add (k, four)
      r = Range (zero, m, one)  q = Cast <to = %d> (r)  f = Cast <to = %d> (four)
      b = Add (a, f)  c = Unsqueeze (b, ax1)  l = Less (q, c)
      w = Cast <to = 1> (l)  five = Constant <value_ints = [4]> ()
      end = Constant <value_ints = [9999]> ()  v = Slice (w, five, end, ax1)
      x = Unsqueeze (v, ax2)  y = Mul (s, x) }"""


CONV = """m (float[B, 1, N] x) => (float[B, 1, F] y)
    <float[1, 1, 3] w = {1, 2, 3}> { y = Conv <kernel_shape = [3], strides = [2]> (x, w) }"""
