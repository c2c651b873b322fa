"""What is remembered changes no answer: each graph once with a memory, once by the library alone.

Not even the names of sizes that nobody knows may be others.
"""

from __future__ import annotations

import os
import zlib

import numpy as np
import onnx_ir as ir
import pytest
from onnx_shape_inference import registry

from graphfix.facts.shapes import infer
from graphfix.facts.symbolic import inference, rule_cache
from tests.facts.sizes import SIZES
from tests.lengths.graphs import Graph
from tests.lengths.steps import STEPS

COUNT = int(os.environ.get("GRAPHFIX_GRAPHS", "0"))
QUICK = 2
HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'


def said(model: ir.Model, *, usual: bool = False) -> list[str]:
    """Type, dims and contents of every value, as text."""
    shapes = infer(model, usual=usual)
    graph = model.graph
    values = [*graph.inputs, *graph.initializers.values(), *(x for n in graph for x in n.outputs)]
    told = []
    for value in values:
        dims, data = shapes.dims(value), shapes.known_elements(value)
        items = ["?" if x is None else [str(d) for d in x] for x in (dims, data)]
        told.append(f"{value.name} {shapes.dtype(value)} {items[0]} = {items[1]}")
    return told


@pytest.fixture
def differing(monkeypatch: pytest.MonkeyPatch) -> object:
    def compare(model: ir.Model) -> list[str]:
        found = []
        for usual in (False, True):
            with monkeypatch.context() as patch:
                patch.setattr(inference, "_rules_by_operator", lambda model: None)
                plain = said(model, usual=usual)
            kept = said(model, usual=usual)
            found += [f"{a} instead of {b}" for a, b in zip(kept, plain, strict=True) if a != b]
        return found

    return compare


def asked(text: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first outputs of the nodes whose rules are asked."""
    names: list[str] = []
    plain = inference._rules_by_operator

    def rules(model: ir.Model) -> object:
        def noted(rule: rule_cache.Rule) -> rule_cache.Rule:
            def call(ctx: rule_cache.CachingContext, node: ir.Node) -> None:
                names.append(node.outputs[0].name or "")
                rule(ctx, node)

            return call

        return {kind: noted(rule) for kind, rule in (plain(model) or {}).items()}

    monkeypatch.setattr(inference, "_rules_by_operator", rules)
    infer(ir.from_onnx_text(text))
    return names


# Two nodes of which one answer is wrong for the other -------------------------------------------

PAIRS = {
    "operator": "a = Add (x, x)  b = Equal (x, x)",
    "attribute": (
        "a = Softmax <axis = 1> (x)  a2 = Flatten <axis = 1> (x)  b = Flatten <axis = 2> (x)"
    ),
    "list": "a = Transpose <perm = [1, 0, 2]> (x)  b = Transpose <perm = [2, 1, 0]> (x)",
    "name of an attribute": "a = Shape <start = 1> (x)  b = Shape <end = 1> (x)",
    "attribute or none": "a = Transpose (x)  b = Transpose <perm = [0, 2, 1]> (x)",
    "text": (
        'a = AveragePool <kernel_shape = [3], auto_pad = "SAME_UPPER"> (x)'
        'b = AveragePool <kernel_shape = [3], auto_pad = "VALID"> (x)'
    ),
    "tensor": (
        "n = Shape <start = 2> (x)"
        "a = ConstantOfShape <value = int64[1] {1}> (n)  "
        "b = ConstantOfShape <value = int64[1] {2}> (n)"
        "c = ConstantOfShape <value = float[1] {2.0}> (n)"
    ),
    "dims": "a = Relu (x)  b = Relu (other)",
    "rank": "a = Shape (x)  b = Shape (flat)",
    "names of dims": "a = Shape (x)  b = Shape (y)  c = Add (a, one)  d = Add (b, one)",
    "type": "n = Cast <to = 7> (mask)  a = Add (x, x)  b = Add (n, n)",
    "claimed type": (
        "a = Relu (x)  claimed = Relu (x)  b = Relu (x)  c = Relu (a)  d = Relu (claimed)"
    ),
    "floats that are sizes": (
        "z = Constant <value = float {0.0}> ()  u = Constant <value = float {1.0}> ()"
        "p = Constant <value = float {3.0}> ()  q = Constant <value = float {4.0}> ()"
        "a = Range (z, p, u)  b = Range (z, q, u)"
    ),
    "floats that sizes are multiplied with": (
        "p = Constant <value = float[3] {1.0, 2.0, 1.0}> ()"
        "q = Constant <value = float[3] {1.0, 1.0, 2.0}> ()"
        "a = Resize (x, , p)  b = Resize (x, , q)"
    ),
    "floats of sizes": (
        "s = Shape (x)  n = Gather (s, one)  f = Cast <to = 1> (n)"
        "p = Constant <value = float[1] {2.0}> ()  q = Constant <value = float[1] {4.0}> ()"
        "g = Mul (f, p)  h = Mul (f, q)  a = Cast <to = 7> (g)  b = Cast <to = 7> (h)"
        "c = Add (a, one)  d = Add (b, one)"
    ),
    "absent input": "a = Clip (x, , high)  b = Clip (x, low)",
    "order": "a = MatMul (square, wide)  b = MatMul (wide, tall)  c = MatMul (tall, wide)",
    "how many outputs": "a, b = Split <axis = 2> (x)  c, d, e, f = Split <axis = 2> (x)",
    "constant": (
        "i = Constant <value = int64[1] {0}> ()  j = Constant <value = int64[1] {1}> ()"
        "a = Unsqueeze (x, i)  b = Unsqueeze (x, j)"
    ),
    "constant by another attribute": (
        "i = Constant <value_ints = [0]> ()  j = Constant <value_ints = [1]> ()"
        "a = Unsqueeze (x, i)  b = Unsqueeze (x, j)"
    ),
    "rank of a constant": (
        "n = Shape (x)  i = Constant <value = int64 {1}> ()  "
        "j = Constant <value = int64[1] {1}> ()"
        "a = Gather (n, i)  b = Gather (n, j)"
    ),
    "initializer": "a = Unsqueeze (x, first)  b = Unsqueeze (x, second)",
    "long list": "a = Gather (long1, one)  b = Gather (long2, one)  c = Gather (x, long1)",
    "computed contents": (
        "n = Shape (x)  i = Gather (n, zero)  j = Gather (n, one)"
        "c = Concat <axis = 0> (i, j, minus)  d = Concat <axis = 0> (j, i, minus)"
        "e = Reshape (x, c)  f = Reshape (x, d)"
    ),
    "fill": (
        "n = Shape (x)  i = ConstantOfShape <value = int64[1] {1}> (one)"
        "j = ConstantOfShape <value = int64[1] {0}> (one)"
        "a = Add (n, i)  b = Add (n, j)"
    ),
    "truth": (
        "n = Shape (x)  i = Equal (n, minus)  j = Greater (n, minus)"
        "a = Where (i, minus, n)  b = Where (j, minus, n)"
    ),
    "what a choice is made by": (
        "s = Shape (x)  n = Gather (s, one)  p = Sub (n, five)  over = Greater (p, zero)"
        "none = Constant <value = int64[1] {0}> ()  high5 = Greater (p, five)"
        "a = Where (over, p, none)  b = Where (high5, p, none)"
    ),
    "unknown sizes": (
        "i = NonZero (mask)  a = Shape (i)  j = NonZero (mask)  b = Shape (j)  c = Relu (x)"
        "k = Slice (x, length, far, one)  l = Slice (x, length, far, one)  "
        "d = Concat <axis = 1> (k, l)"
    ),
    "unknown numbers": (
        "a = Reshape (x, length)  b = Reshape (x, length)  c = Add (length, length)"
        "d = Concat <axis = 0> (length, one)  e = Concat <axis = 0> (length, one)"
        "f = Reshape (x, d)  g = Reshape (x, e)"
    ),
    "two dims without a name": (
        "a = Relu (bare)  b = Relu (bald)  c = Shape (a)  d = Shape (b)  "
        "e = Concat <axis = 0> (a, b)"
        "f = Shape (bare)  g = Shape (bald)"
    ),
    "a quotient rounded down": (
        "s = Shape (x)  n = Gather (s, one)  m = Sub (n, five)  "
        "two = Constant <value = int64[1] {2}> ()"
        "q = Div (m, two)  r = Mod (m, two)  z = Constant <value = int64[1] {0}> ()"
        "t = Less (r, z)  w = Cast <to = 7> (t)  u = Sub (q, z)  v = Sub (q, w)"
        "r2 = Mod <fmod = 1> (m, two)  t2 = Less (r2, z)  w2 = Cast <to = 7> (t2)  "
        "v2 = Sub (q, w2)"
    ),
    "a quotient rounded down, or nearly": (
        "s = Shape (x)  n = Gather (s, one)  m = Sub (n, five)  "
        "two = Constant <value = int64[1] {2}> ()"
        "z = Constant <value = int64[1] {0}> ()  q = Div (m, two)  r = Mod (m, two)  "
        "o = Cast <to = 9> (r)"
        "l = Less (m, z)  both = And (o, l)  i = Cast <to = 7> (both)  j = Cast <to = 7> (l)"
        "k = Sign (i)  k2 = Sign (j)  a = Sub (q, k)  b = Sub (q, k2)"
    ),
    "computed constants": (
        "c = Add (one, zero)  d = Add (one, zero)  a = Unsqueeze (x, c)"
        "b = ReduceSum <keepdims = 0> (x, d)"
    ),
    "floats made whole": (
        "s = Shape (x)  n = Gather (s, one)  f = Cast <to = 1> (n)  "
        "three = Constant <value = float[1] {3.0}> ()"
        "seven = Constant <value = float[1] {7.0}> ()  g = Div (f, three)  h = Div (f, seven)"
        "i = Ceil (g)  j = Ceil (h)  a = Cast <to = 7> (i)  b = Cast <to = 7> (j)  "
        "a2 = Cast <to = 7> (i)"
        "k = Floor (g)  l = Floor (h)  c = Cast <to = 7> (k)  d = Cast <to = 7> (l)"
        "e = Concat <axis = 0> (a, b, c, d, a2)  whole1 = Cast <to = 7> (i)  "
        "whole2 = Cast <to = 7> (j)"
    ),
    "known only later": (
        "s = Shape (x)  n = Gather (s, one)  m = Sub (n, five)  p = Sub (m, five)"
        "a = Max (p, zero)  b = Max (p, zero)"
        "short = Slice (x, five, far, one)  shorter = Slice (short, five, far, one)"
        "conv = Transpose <perm = [0, 2, 1]> (shorter)  "
        "pooled = Conv <kernel_shape = [1]> (conv, kernel)"
        "c = Max (p, zero)  d = Max (p, zero)  e = Slice (x, p, far, one)  "
        "f = Slice (x, p, far, one)"
    ),
    "which is a size": (
        "eight = Constant <value = int64[1] {8}> ()  n = Concat <axis = 0> (length, eight)"
        "g = Gather (n, zero)  a = Reshape (x, n)  z = ConstantOfShape (g)  s = Shape (z)"
        "b = Reshape (x, n)"
    ),
}
INPUTS = (
    ""
    "(float[B, T, 8] x, float[B, S, 8] y, float[B, 4, 8] other, float[B, 8] flat, bool[B, T] mask,"
    "float[4, 4] square, float[4, 6] wide, float[6, 4] tall, int64[1] length, float[N, ?] bare,"
    "float[N, ?] bald, float low, float high, float[8, 8, 1] kernel)"
)
WEIGHTS = (
    "<int64[1] zero = {0}, int64[1] one = {1}, int64[1] five = {5}, int64[1] minus = {-1},"
    "int64[1] first = {0}, int64[1] second = {2}, int64[1] far = {9223372036854775807},"
    f"int64[70] long1 = {{{', '.join(map(str, range(70)))}}},"
    f"int64[70] long2 = {{{', '.join(map(str, range(7, 77)))}}}, double[B, T, 8] claimed,"
    "int64[1] whole1, int64[1] whole2>"
)


def pair(body: str) -> ir.Model:
    nodes = "".join(f"{x}\n" for x in body.replace(")  ", ")\n").splitlines())
    return ir.from_onnx_text(f"{HEAD} m {INPUTS} => () {WEIGHTS} {{ {nodes} }}")


@pytest.mark.parametrize("which", sorted(PAIRS))
def test_one_answer_is_not_given_for_another_question(
    which: str, differing, caplog: pytest.LogCaptureFixture
) -> None:
    model = pair(PAIRS[which])
    assert not differing(model)
    assert not caplog.records  # of what is malformed nothing would be held


@pytest.mark.parametrize("step", sorted({*STEPS, *SIZES}))
def test_layers_that_repeat_have_the_shapes_of_the_first(step: str, differing) -> None:
    start = zlib.crc32(step.encode())
    for seed in range(start, start + max(QUICK, COUNT // len({*STEPS, *SIZES}))):
        rng = np.random.default_rng(seed)
        g = Graph(rng, int(rng.choice([11, 12, 13, 17, 18, 20])))
        other, more = (str(x) for x in rng.choice(sorted({*STEPS, *SIZES}), 2))
        x = "x"
        for layer, name in enumerate([step, other, step, other, step, more]):
            # The first and the third layer are alike, and so are the second and the fourth.
            g.rng = np.random.default_rng(seed + layer % 2 + 2 * (layer // 4))
            x = {**STEPS, **SIZES}[name](g, x)
        g.outputs.append(g.op("Identity", x))
        found = differing(ir.from_proto(g.model("B" if seed % 4 else 1)))
        assert not found, f"seed {seed} ({step}, {other}, {more}): " + "\n".join(found[:5])


def test_an_operator_of_another_domain_is_another(differing) -> None:
    @registry.register("test.memory", "Relu", since_version=1)
    def relu(ctx: rule_cache.CachingContext, node: ir.Node) -> None:
        ctx.set_shape_and_dtype(node.outputs[0], ir.Shape([7]), ir.DataType.INT8)

    head = HEAD.replace("]", ', "test.memory" : 1]')
    text = "m (float[B] x) => () { a = Relu (x)\n b = test.memory.Relu (x)\n c = Relu (x) }"
    model = ir.from_onnx_text(head + text)
    assert not differing(model)
    assert said(model)[2:3] == ["b INT8 ['7'] = ?"]


def test_each_layer_after_the_second_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = """
        s{0} = Shape (x{0})  n{0} = Gather <axis = 0> (s{0}, one)  w{0} = Unsqueeze (n{0}, zero)
        v{0} = Concat <axis = 0> (zero, w{0}, four, two)  h{0} = Reshape (x{0}, v{0})
        t{0} = Transpose <perm = [0, 2, 3, 1]> (h{0})  b{0} = Transpose <perm = [0, 3, 1, 2]> (t{0})
        y{0} = Reshape (b{0}, flat)  x{1} = Add (y{0}, x{0})
    """.replace(")  ", ")\n")
    names = asked(
        f"{HEAD} m (float[B, T, 8] x0) => (float[B, T, 8] x4)"
        "<int64 one = {1}, int64[1] zero = {0}, int64[1] four = {4}, int64[1] two = {2},"
        "int64[3] flat = {0, 0, 8}> {" + "".join(layer.format(i, i + 1) for i in range(4)) + "}",
        monkeypatch,
    )
    assert names[:2] == ["s0", "n0"]
    assert not [x for x in names if x[-1] in "23" and not x.startswith("x")]


def test_a_constant_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        f"{HEAD} m (float[B, T, 8] x) => (y) {{ c = Constant <value = int64[3] {{0, 4, -1}}> ()\n"
    )
    model = ir.from_onnx_text(text + "a = Reshape (x, c)\n b = Reshape (x, c)\n y = Add (a, b) }")
    tensor = next(iter(model.graph)).attributes["value"].as_tensor()
    reads: list[None] = []
    plain = type(tensor).numpy

    def numpy(self: ir.TensorProtocol) -> object:
        reads.append(None)
        return plain(self)

    monkeypatch.setattr(type(tensor), "numpy", numpy)
    shapes = infer(model)
    made = {x.name: x for node in model.graph for x in node.outputs}
    assert [str(x) for x in shapes.known_elements(made["c"]) or ()] == ["0", "4", "-1"]
    assert [str(x) for x in shapes.dims(made["y"]) or ()] == ["B", "4", "2*T"]
    # By the memory, and by the rule of the first Reshape.
    assert len(reads) <= 2
