"""Models that are told how much of each row is content as a share of the longest, as SpeechBrain's.

``wav_lens`` is float [B], 1 for the longest row; the graph multiplies it with a size of the time
axis, and compares positions with the product.
"""

import onnx

_HEAD = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, T, 4] x, float[B] wav_lens) => (float[B, 4] y)
    <int64 zero = {0}, int64 one = {1}, int64[1] i1 = {1}, int64[1] i2 = {2},
     float[4, 4, 2] deep = {0.5, -0.3, 0.2, 0.8, -0.6, 0.1, 0.7, 0.4, -0.2, 0.9, 0.3, -0.5, 0.6,
         -0.1, 0.2, 0.4, 0.8, -0.7, 0.1, 0.5, -0.4, 0.3, 0.9, 0.2, -0.8, 0.6, 0.7, -0.3, 0.1, 0.5,
         -0.9, 0.4}>
    { c = Transpose <perm = [0, 2, 1]> (x)
      %s
      size = Shape <start = 1, end = 2> (h)  count = Squeeze (size)  long = Cast <to = 1> (count)
      n = Mul (wav_lens, long)  r = Range (zero, count, one)
      %s
      k = Cast <to = 1> (keep)  kept = Unsqueeze (k, i2)  own = Mul (h, kept)
      sum = ReduceSum <keepdims = 0> (own, i1)  many = ReduceSum <keepdims = 0> (kept, i1)
      y = Div (sum, many) }"""
_PLAIN = "h = Transpose <perm = [0, 2, 1]> (c)"
_STRIDED = """d = Conv <strides = [2], pads = [0, 1], kernel_shape = [2]> (c, deep)
    h = Transpose <perm = [0, 2, 1]> (d)"""
_ROUNDED = """near = Round (n)  whole = Cast <to = 7> (near)  u = Unsqueeze (whole, i1)
    keep = Less (r, u)"""
_EXPANDED = """at = Cast <to = 1> (r)  rows = Shape <start = 0, end = 1> (wav_lens)
    both = Concat <axis = 0> (rows, size)  wide = Expand (at, both)  u = Unsqueeze (n, i1)
    keep = Less (wide, u)"""
SHARES = {
    "rounded": _HEAD % (_PLAIN, _ROUNDED),
    "expanded": _HEAD % (_PLAIN, _EXPANDED),
    "strided": _HEAD % (_STRIDED, _ROUNDED),
}
# One row at a time, as a normalization of features cuts it: x[:, : round(share * T)].
CUT = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[1, T, 4] x, float[1] wav_lens) => (float[1, 1, 4] y)
    <int64[1] i0 = {0}, int64[1] i1 = {1}>
    { size = Shape <start = 1, end = 2> (x)  long = Cast <to = 1> (size)
      n = Mul (wav_lens, long)  near = Round (n)  end = Cast <to = 7> (near)
      own = Slice (x, i0, end, i1)  y = ReduceMean <axes = [1]> (own) }"""


def model(name: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(SHARES[name])
