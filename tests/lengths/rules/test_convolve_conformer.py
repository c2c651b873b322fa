"""A conformer's convolutions, as FastSpeech2 has them: over time, over features, over both.

As both exporters write them: TorchScript with every attribute and sizes of its Split, dynamo with
auto_pad, no kernel_shape, and how many parts a Split has.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from tests.lengths.padding import session

CONTENT = np.random.default_rng(8).standard_normal((3, 24, 4)).astype(np.float32)
LENGTHS = (4, 9, 13)

# The convolutions of a module, each as each exporter writes it; {w} its weights, {b} its bias.
TORCHSCRIPT = {
    "conv": "Conv <dilations = [1], group = 1, kernel_shape = [{k}], pads = [{p}, {p}], "
    "strides = [1]>",
    "deep": "Conv <dilations = [1], group = 4, kernel_shape = [3], pads = [1, 1], strides = [1]>",
    "both": "Conv <dilations = [1, 1], group = 1, kernel_shape = [3, 3], pads = [1, 1, 1, 1], "
    "strides = [2, 2]>",
    "split": "Split <axis = 1> (p1, fours)",
    "mean": "y = ReduceMean <axes = [1]> (w)",
}
DYNAMO = {
    "conv": 'Conv <auto_pad = "NOTSET", dilations = [1], group = 1, pads = [{p}, {p}], '
    "strides = [1]>",
    "deep": 'Conv <auto_pad = "NOTSET", dilations = [1], group = 4, pads = [1, 1], strides = [1]>',
    "both": 'Conv <auto_pad = "NOTSET", dilations = [1, 1], group = 1, pads = [1, 1, 1, 1], '
    "strides = [2, 2]>",
    "split": "Split <axis = 1, num_outputs = 2> (p1)",
    "mean": "y = ReduceMean (w, i1)",
}
FORMS = {"TorchScript": (TORCHSCRIPT, 17), "dynamo": (DYNAMO, 18)}
NORM = "LayerNormalization <axis = -1> ({}, scale, shift)"
# Each takes x and makes w.
MODULES = {
    "the module of convolutions": f"""n = {NORM.format("x")}
        xt = Transpose <perm = [0, 2, 1]> (n)  p1 = {{point}} (xt, wide, wide_bias)
        value, gate = {{split}}  open = Sigmoid (gate)  h = Mul (value, open)
        d = {{deep}} (h, depth, shift)
        bn = BatchNormalization <epsilon = 1e-5> (d, scale, shift, shift, scale)
        on = Sigmoid (bn)  act = Mul (bn, on)  p2 = {{point}} (act, narrow, shift)
        back = Transpose <perm = [0, 2, 1]> (p2)  w = Add (x, back)""",
    "convolutions in place of products": f"""n = {NORM.format("x")}
        xt = Transpose <perm = [0, 2, 1]> (n)  c1 = {{conv}} (xt, up, wide_bias)
        r = Relu (c1)  rt = Transpose <perm = [0, 2, 1]> (r)
        rb = Transpose <perm = [0, 2, 1]> (rt)  c2 = {{conv}} (rb, down, shift)
        back = Transpose <perm = [0, 2, 1]> (c2)  half = Mul (back, point_five)
        w = Add (x, half)""",
    "a predictor": f"""xt = Transpose <perm = [0, 2, 1]> (x)  c1 = {{conv}} (xt, full, shift)
        r = Relu (c1)  rt = Transpose <perm = [0, 2, 1]> (r)  n = {NORM.format("rt")}
        nt = Transpose <perm = [0, 2, 1]> (n)  c2 = {{conv}} (nt, full, shift)
        w = Transpose <perm = [0, 2, 1]> (c2)""",
    "over features alone": """s = Shape (x)  flat = Reshape (x, rows)
        c = {conv} (flat, over, one_bias)  r = Relu (c)  w = Reshape (r, s)""",
    "over time and features": """x4 = Unsqueeze (x, i1)  c = {both} (x4, square, shift)
        r = Relu (c)  t = Transpose <perm = [0, 2, 1, 3]> (r)  w = Reshape (t, merge)""",
}
ENDS = {
    "mean": "{mean}",
    "attention": """wt = Transpose <perm = [0, 2, 1]> (w)  sc = MatMul (w, wt)
        pr = Softmax <axis = 2> (sc)  y = MatMul (pr, w)""",
}
SPECS = ("ilens-mask:axis=x.1", "directml,ilens-mask:axis=x.1", "ilens-mask:axis=x.1,fast")


def numbers(count: int) -> str:
    return ", ".join(f"{0.5 * np.sin(7.0 * i):.3f}" for i in range(count))


def model(module: str, form: str, end: str) -> onnx.ModelProto:
    given, opset = FORMS[form]
    parts = {
        **given,
        "conv": given["conv"].format(k=3, p=1),
        "point": given["conv"].format(k=1, p=0),
    }
    body = f"{MODULES[module]}  {ENDS[end]}".format(**parts)
    sizes = {
        "wide": (8, 4, 1),
        "narrow": (4, 4, 1),
        "depth": (4, 1, 3),
        "up": (8, 4, 3),
        "down": (4, 8, 3),
        "full": (4, 4, 3),
        "over": (1, 1, 3),
        "square": (4, 1, 3, 3),
    }
    weights = ", ".join(
        f"float[{', '.join(map(str, x))}] {name} = {{{numbers(int(np.prod(x)))}}}"
        for name, x in sizes.items()
    )
    made = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : {opset}]>
        m (float[B, T, 4] x) => (float[] y)
        <{weights}, float[8] wide_bias = {{{numbers(8)}}}, float[1] one_bias = {{0.25}},
         float[4] scale = {{1, 2, 0.5, 1}}, float[4] shift = {{0.1, -0.2, 0.3, 0.4}},
         float point_five = {{0.5}}, int64[1] i1 = {{1}}, int64[2] fours = {{4, 4}},
         int64[3] rows = {{-1, 1, 4}}, int64[3] merge = {{0, 0, -1}}>
        {{ {body} }}"""
    )
    made.graph.output[0].ClearField("type")
    return made


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("module", MODULES)
def test_it_loads_and_padding_stays_out(module: str, form: str, end: str, spec: str) -> None:
    before = model(module, form, end)
    after = ir.from_proto(before)
    graphfix.run(after, spec)
    alone, together = session(before), session(ir.to_proto(after))
    given = {x.name for x in together.get_inputs()}
    for size in (13, 16, 23):
        x = np.full((3, size, 4), np.nan, np.float32)
        for row, n in enumerate(LENGTHS):
            x[row, :n] = CONTENT[row, :n]
        feeds = {"x": x, "ilens": np.array(LENGTHS)}
        found = together.run(None, {k: v for k, v in feeds.items() if k in given})[0]
        for row, n in enumerate(LENGTHS):
            wanted = alone.run(None, {"x": x[row : row + 1, :n]})[0]
            own = found[row : row + 1, : wanted.shape[1]]
            np.testing.assert_allclose(own, wanted, rtol=1e-5, atol=1e-5, err_msg=f"{n} in {size}")
