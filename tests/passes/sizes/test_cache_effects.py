"""What each node needs where a cache gets a fixed size, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.core import Skip
from graphfix.facts import shapes
from graphfix.passes.sizes.cache.cache_effects import CacheEffects
from graphfix.passes.sizes.cache.length_dependence import CacheAxis, LengthDependence
from tests.passes.models import model

# A cache of P entries and S new ones; of N there may be any number.
INPUTS = """m (float[B, P, 4] past, float[B, S, 4] x, float[B, P] padded, int64[B, S] ids,
    int64[1] fed, int64[2] fed2, float[B, N] any, bool go, float[4, 4, 3] kernel,
    int64[B, M] rows, int64 axis, float[B, P, P, 4] square) => (float y)
    <int64 nil = {0}, int64 one = {1}, int64 minus = {-1}, int64[1] nil1 = {0}, int64[1] one1 = {1},
     int64[1] two1 = {2}, int64[1] three1 = {3}, int64[1] minus1 = {-1}, int64[1] minus2 = {-2},
     int64[1, 2] back2 = {-1, -2}, int64[1, 2] mixed2 = {0, -1},
     int64[2] back = {-1, -2}, int64[2] mixed = {-1, 0}, int64[2] both = {1, 2},
     int64[1] end = {9223372036854775807}, int64[1] end32 = {2147483647},
     int64[1] less = {2147483646}, int64[2] flat = {0, -1}, int64[3] same = {0, 0, 4},
     int64[4] split = {0, 0, 2, 2}, int64[3] halves = {0, -1, 8}, float[12, 4] table = {TABLE},
     float[1, 1, 12] lines = {LINE}, float low = {-9}, float zero = {0}, float unit = {1},
     float[4] gain = {1, 1, 1, 1}, int64[6] pads = {0, 0, 1, 0, 0, 1},
     int64[6] front = {0, 1, 0, 0, 0, 0},
     int64[6] behind = {0, 0, 0, 0, 1, 0}, int64 five = {5}, int64[2] none2 = {0, 0}>"""
INPUTS = INPUTS.replace("TABLE", ", ".join("1" * 48)).replace("LINE", ", ".join("1" * 12))
# The keys are [B, P + S, 4]; t and t1 are P + S, p and p1 are P.
KEYS = """keys = Concat <axis = 1> (past, x) k = Shape (keys) t = Gather (k, one)
    t1 = Unsqueeze (t, nil1) q = Shape (past) p = Gather (q, one) p1 = Unsqueeze (p, nil1)
    turned = Transpose <perm = [0, 2, 1]> (keys)"""
SCORES = "scores = MatMul (x, turned)"
WEIGHTS = f"{SCORES} w = Softmax <axis = -1> (scores)"
COUNT = "r = Range (nil, t, one)"
PLACES = f"{COUNT} places = Cast <to = 1> (r)"
SQUARED = "twice = MatMul (keys, turned)"


class Recorder:
    """Builds nothing: each call is its text."""

    def __getattr__(self, name: str) -> Callable[..., str]:
        return lambda *given: f"{name}({', '.join(map(show, given))})"


def show(thing: object) -> str:
    if isinstance(thing, ir.Value):
        return thing.name or ""
    if isinstance(thing, ir.Node):
        return thing.outputs[0].name or ""
    if isinstance(thing, CacheAxis):
        return f"<{thing.extra}>" if thing.window is None else f"<{thing.extra} of {thing.window}>"
    if isinstance(thing, float | np.floating):
        return f"{thing:.2g}"
    if isinstance(thing, list | tuple):
        return f"[{', '.join(map(show, thing))}]"
    return str(thing)


def effects(body: str, opset: int = 17, keys: str = KEYS) -> list[str]:
    """Return each edit as ``y.0 = call``, or ``y = call`` of an output, or ``y: reason``."""
    m = model(f"{INPUTS} {{ {keys} {body} }}", opset)
    m.graph.outputs[0].shape = None
    values = {x.name: x for x in m.graph.inputs}
    lengths = LengthDependence(shapes.infer(m, usual=True), "P")
    recorder, lines = Recorder(), []
    for site in CacheEffects(m, lengths, [values["past"]], [values["padded"]]).sites():
        name = site.node.outputs[0].name
        if isinstance(site, Skip):
            lines.append(f"{name}: {site.reason}")
            continue
        assert site.effect
        lines += [
            f"{name}.{i} = {show(make(recorder, site.node.inputs[i]))}"  # type: ignore[arg-type]
            for i, make in site.inputs.items()
        ]
        if site.output is not None:
            lines.append(f"{name} = {show(site.output(recorder, site.node.outputs[0]))}")  # type: ignore[arg-type]
    return lines


END = "r = add_invalid_count(rebuild_node(r), [-1])"
FROM_FIRST = "y: it takes entries by their number from the first on"
ONE_FROM_FIRST = "y: it takes an entry by its number from the first on"
IN_FRONT = "y: it joins something in front of the entries of a cache"
CUT_TABLE = "y: it cuts a table where that depends on the length of a cache"
SUMMED = "y.0 = zero_invalid(keys, <S>, P + S, 1)"
NOT_ZERO = "y.0 = zero_invalid(d, <S>, P + S, 0)"
HIDDEN = "w.0 = hide_invalid(scores, <S>, P + S, 0, FLOAT)"

CASES = {
    # Sizes need nothing, what is counted of them does.
    "y = Relu (x)": [],
    "y = Relu (keys)": [],
    "y = Add (ids, t)": ["y.1 = add_invalid_count(t, [-1])"],
    "y = Add (t, ids)": ["y.0 = add_invalid_count(t, [-1])"],
    "n = Neg (t) y = Add (n, ids)": ["y.0 = add_invalid_count(n, [1])"],
    "n = Add (t, p) y = Add (n, ids)": ["y.0 = add_invalid_count(n, [-2])"],
    "n = Sub (t, p) y = Add (n, ids)": [],
    "n = Concat <axis = 0> (t1, one1) u = Unsqueeze (n, nil1) y = Add (u, fed)": [
        "u.0 = add_invalid_count(n, [-1, 0])"
    ],
    "n = Mul (t, t) y = Add (n, ids)": ["y: (P + S)**2 is no sum of the length P"],
    "f = Cast <to = 1> (t) y = Div (x, f)": ["y.1 = add_invalid_count(f, [-1])"],
    "f = Cast <to = 1> (t) g = Cast <to = 10> (f) h = Cast <to = 1> (g) y = Div (x, h)": [
        "y.1 = add_invalid_count(h, [-1])"
    ],
    "s = Sub (t, p) f = Cast <to = 1> (s) y = Div (x, f)": [],
    # What is computed of a count in another way is no size.
    "f = Cast <to = 1> (t) n = Sqrt (f) y = Div (x, n)": ["n.0 = add_invalid_count(f, [-1])"],
    "f = Cast <to = 1> (t) n = Neg (f) y = Div (x, n)": ["n.0 = add_invalid_count(f, [-1])"],
    "f = Cast <to = 1> (t) n = Floor (f) i = Cast <to = 7> (n) y = Add (ids, i)": [
        "n.0 = add_invalid_count(f, [-1])"
    ],
    "n = Concat <axis = 0> (t1, fed) g = Gather (n, one) y = Add (ids, g)": [],
    "y = Expand (unit, t1)": [],
    "n = Concat <axis = 0> (one1, t1) y = Expand (unit, n)": [],
    "y = Range (nil, five, one)": [],
    # The numbers of a Range are no sizes any more.
    "y = Range (nil, t, one)": ["y = add_invalid_count(rebuild_node(y), [-1])"],
    "y = Range (p, t, one)": ["y = add_invalid_count(rebuild_node(y), [-1])"],
    "n = Neg (p) y = Range (n, nil, one)": [],
    "n = Add (t, p) y = Range (nil, n, one)": ["y = add_invalid_count(rebuild_node(y), [-2])"],
    f"{COUNT} m = ReduceMax <keepdims = 0> (r) y = Range (nil, m, one)": [
        END,
        "m.0 = fill_invalid(r, <S>, P + S, 0, -9223372036854775808)",
        "y: where it ends is not known as a sum of sizes",
    ],
    f"{COUNT} m = Gather (r, nil1) y = Expand (unit, m)": [
        END,
        "m: it takes an entry by its number from the first on",
    ],
    f"{COUNT} m = Add (r, fed) y = Expand (unit, m)": [END, "y: a size is computed from positions"],
    f"{COUNT} m = Gather (r, minus) y = Range (m, t, one)": [
        END,
        "y: where it ends is not known as a sum of sizes",
    ],
    # What reads caches in a body, or may mix their entries.
    "y = If (go) <then_branch = a () => (b) { b = Relu (keys) }, "
    "else_branch = c () => (d) { d = Relu (x) }>": [
        "y: a graph inside it reads what depends on the length of a cache"
    ],
    "z = If (go) <then_branch = a () => (b) { b = Relu (x) }, "
    "else_branch = c () => (d) { d = Neg (x) }> y = Identity (z)": [],
    "y = Conv <pads = [1, 1]> (turned, kernel)": ["y: Conv may mix the entries of a cache"],
    "y = LayerNormalization (keys, gain)": [],
    "y = LayerNormalization <axis = 1> (keys, gain)": [
        "y: LayerNormalization may mix the entries of a cache"
    ],
    "y = Reshape (keys, same)": [],
    "y = Reshape (keys, split)": [],
    "b1 = Shape <end = 1> (x) n = Concat <axis = 0> (t1, b1, minus1) y = Reshape (keys, n)": [
        "y: [B, P + S, 4] becomes [P + S, B, 4], which mixes the entries of a cache"
    ],
    "y = Reshape (keys, flat)": [
        "y: an axis of 4*P + 4*S entries has those of a cache more than once"
    ],
    "y = Flatten <axis = 2> (keys)": ["y: B*(P + S) is no sum of the length P"],
    "y = NonZero (keys)": ["y: NonZero may mix the entries of a cache"],
    "n = Unique <axis = 1> (keys) y = Shape (n)": [
        "n: Unique may mix the entries of a cache",
        "y: its input has a shape that is not known",
    ],
    "n = Unique <axis = 1> (keys) a = Relu (n) y = Size (a)": [
        "n: Unique may mix the entries of a cache",
        "y: its input has a shape that is not known",
    ],
    "n = Unique <axis = 0> (any) y = Shape (n)": [],
    "n = Unique <axis = 0> (any) a = Reshape (n, fed2) y = Shape (a)": [],
    # Sums take the valid entries.
    "y = ReduceSum (keys, one1)": [SUMMED],
    "y = ReduceSum (keys, minus2)": [SUMMED],
    "y = ReduceSum (keys, both)": [SUMMED],
    "y = ReduceSum (keys)": [SUMMED],
    "y = ReduceSum (keys, two1)": [],
    "y = ReduceSum (keys, fed)": ["y: which axes it reduces is not known"],
    "y = ReduceSum (x, fed)": [],
    f"{SQUARED} y = ReduceSum (twice, both)": [
        "y: it sums over the entries of a cache twice"
    ],
    "y = ReduceSum (turned, two1)": ["y.0 = zero_invalid(turned, <S>, P + S, 0)"],
    "y = ReduceSum (past, one1)": ["y.0 = zero_invalid(past, <0>, P, 1)"],
    "y = ReduceMax <axes = [1]> (keys)": ["y.0 = fill_invalid(keys, <S>, P + S, 1, -3.4e+38)"],
    "y = ReduceMin <axes = [1]> (keys)": ["y.0 = fill_invalid(keys, <S>, P + S, 1, 3.4e+38)"],
    "y = ReduceMax <axes = [2]> (keys)": [],
    f"{SQUARED} y = ReduceMax <axes = [1, 2]> (twice)": [
        "y: it goes over the entries of a cache twice"
    ],
    "y = ReduceMean <axes = [1]> (keys)": ["y: ReduceMean goes over the entries of a cache"],
    "y = ArgMax <axis = 1> (keys)": ["y: ArgMax goes over the entries of a cache"],
    "y = ArgMax <axis = 2> (keys)": [],
    "n = ReduceSum <keepdims = 0> (keys, two1) y = CumSum (n, one)": [
        "y.0 = zero_invalid(n, <S>, P + S, 0)"
    ],
    "n = ReduceSum <keepdims = 0> (keys, two1) y = CumSum (n, minus)": [
        "y.0 = zero_invalid(n, <S>, P + S, 0)"
    ],
    "n = ReduceSum <keepdims = 0> (keys, two1) y = CumSum (n, nil)": [],
    "n = ReduceSum <keepdims = 0> (keys, two1) y = CumSum (n, axis)": ["y: its axis is not known"],
    "o = ConstantOfShape <value = int64[1] {1}> (t1) y = CumSum (o, nil)": [
        "y = cumsum_positions(y, zero_invalid(o, <S>, P + S, 0))"
    ],
    "o = ConstantOfShape <value = int64[1] {2}> (t1) y = CumSum (o, nil)": [
        "y.0 = zero_invalid(o, <S>, P + S, 0)"
    ],
    'y = Einsum <equation = "bnd->bd"> (keys)': [SUMMED],
    'y = Einsum <equation = "bnd->bn"> (keys)': [],
    'y = Einsum <equation = "bsd,bnd->bsn"> (x, keys)': [],
    'y = Einsum <equation = "bnd,bnd->bd"> (keys, keys)': [SUMMED],
    'y = Einsum <equation = "bsd,bnd->bs"> (x, keys)': ["y.1 = zero_invalid(keys, <S>, P + S, 1)"],
    f'{SQUARED} y = Einsum <equation = "bnn->b"> (twice)': [
        "y: it takes the diagonal of the entries of a cache"
    ],
    f'{SQUARED} y = Einsum <equation = "bnm->b"> (twice)': [
        "y: it sums over the entries of a cache twice"
    ],
    'y = Einsum <equation = "bn,bnd->bd"> (padded, past)': [],
    'y = Einsum <equation = "bnd,bn->bd"> (past, padded)': [],
    'u = Unique <axis = 0> (x) y = Einsum <equation = "bsd,bnd->bsn"> (u, keys)': [
        "y: which axes it sums over is not known"
    ],
    f'{WEIGHTS} y = Einsum <equation = "bsn,bnd->bsd"> (w, keys)': [HIDDEN],
    "y = MatMul (turned, keys)": ["y.0 = zero_invalid(turned, <S>, P + S, 0)"],
    "y = MatMul (x, turned)": [],
    "u = Unsqueeze (padded, one1) y = MatMul (u, past)": [],
    "u = Unsqueeze (padded, two1) h = Transpose <perm = [0, 2, 1]> (past) y = MatMul (h, u)": [],
    # A Softmax hides what is not valid, where it is, or in a mask that it shares.
    f"{SCORES} y = Softmax <axis = -1> (scores)": [HIDDEN.replace("w.0", "y.0")],
    f"{SCORES} y = Softmax <axis = 2> (scores)": [HIDDEN.replace("w.0", "y.0")],
    f"{SCORES} y = Softmax <axis = 1> (scores)": [],
    "y = Softmax <axis = 1> (keys)": ["y.0 = hide_invalid(keys, <S>, P + S, 1, FLOAT)"],
    "y = Softmax <axis = -2> (keys)": ["y.0 = hide_invalid(keys, <S>, P + S, 1, FLOAT)"],
    "y = Softmax <axis = 2> (keys)": [],
    f"{SCORES} h = Cast <to = 10> (scores) y = Softmax <axis = -1> (h)": [
        "y.0 = hide_invalid(h, <S>, P + S, 0, FLOAT16)"
    ],
    f"{SCORES} {PLACES} a = Add (scores, places) y = Softmax <axis = -1> (a)": [
        END,
        "a.1 = hide_invalid(places, <S>, P + S, 0, FLOAT)",
    ],
    f"{SCORES} {PLACES} a = Add (places, scores) y = Softmax <axis = -1> (a)": [
        END,
        "a.0 = hide_invalid(places, <S>, P + S, 0, FLOAT)",
    ],
    # The same Add is changed once.
    f"{SCORES} {PLACES} a = Add (scores, places) v = Softmax (a) y = Softmax <axis = -1> (a)": [
        END,
        "a.1 = hide_invalid(places, <S>, P + S, 0, FLOAT)",
    ],
    f"{SCORES} {PLACES} a = Add (scores, places) i = Identity (a) c = Cast <to = 1> (i) "
    "u = Unsqueeze (a, one1) y = Softmax <axis = -1> (c)": [
        END,
        "a.1 = hide_invalid(places, <S>, P + S, 0, FLOAT)",
    ],
    # Both come of the cache; and behind something else it is another mask.
    f"{SCORES} a = Add (scores, scores) y = Softmax (a)": [
        "y.0 = hide_invalid(a, <S>, P + S, 0, FLOAT)"
    ],
    f"{SCORES} a = Add (scores, low) y = Softmax (a)": [
        "y.0 = hide_invalid(a, <S>, P + S, 0, FLOAT)"
    ],
    f"{SCORES} {PLACES} a = Add (scores, places) m = Relu (a) y = Softmax (m)": [
        END,
        "y.0 = hide_invalid(m, <S>, P + S, 0, FLOAT)",
    ],
    f"{SCORES} {PLACES} a = Sub (scores, places) y = Softmax (a)": [
        END,
        "y.0 = hide_invalid(a, <S>, P + S, 0, FLOAT)",
    ],
    # What is 0 where an entry is not valid is not made 0 again.
    f"{WEIGHTS} y = MatMul (w, keys)": [HIDDEN],
    f"{WEIGHTS} y = ReduceSum (w, two1)": [HIDDEN],
    f"{WEIGHTS} d = Mul (w, low) y = MatMul (d, keys)": [HIDDEN],
    f"{WEIGHTS} d = Mul (scores, w) y = MatMul (d, keys)": [HIDDEN],
    f"{WEIGHTS} d = Add (w, w) y = MatMul (d, keys)": [HIDDEN],
    f"{WEIGHTS} d = Add (w, zero) y = MatMul (d, keys)": [HIDDEN],
    f"{WEIGHTS} d = Add (w, unit) y = MatMul (d, keys)": [
        HIDDEN,
        NOT_ZERO,
    ],
    f"{WEIGHTS} d = Add (w, scores) y = MatMul (d, keys)": [
        HIDDEN,
        NOT_ZERO,
    ],
    f"{WEIGHTS} d = Relu (w) y = MatMul (d, keys)": [HIDDEN],
    f"{WEIGHTS} d = Exp (w) y = MatMul (d, keys)": [HIDDEN, NOT_ZERO],
    f"{WEIGHTS} d = Div (w, low) y = MatMul (d, keys)": [HIDDEN],
    f"{WEIGHTS} d = Div (scores, w) y = MatMul (d, keys)": [
        HIDDEN,
        NOT_ZERO,
    ],
    f"{WEIGHTS} d = Where (go, w, zero) y = MatMul (d, keys)": [HIDDEN],
    f"{WEIGHTS} d = Where (go, zero, w) y = MatMul (d, keys)": [HIDDEN],
    f"{WEIGHTS} d = Where (go, w, scores) y = MatMul (d, keys)": [
        HIDDEN,
        NOT_ZERO,
    ],
    f"{WEIGHTS} c = Cast <to = 9> (w) d = Where (c, scores, zero) y = MatMul (d, keys)": [HIDDEN],
    f"{WEIGHTS} c = Cast <to = 9> (w) d = Where (c, scores, low) y = MatMul (d, keys)": [
        HIDDEN,
        NOT_ZERO,
    ],
    f"{WEIGHTS} d = Where (go, zero, zero) e = Add (d, scores) y = MatMul (e, keys)": [
        HIDDEN,
        "y.0 = zero_invalid(e, <S>, P + S, 0)",
    ],
    # Entries are joined behind those of a cache, and counts with what else there is.
    "y = Concat <axis = 1> (x, keys)": [IN_FRONT],
    "y = Concat <axis = -2> (x, keys)": [IN_FRONT],
    "y = Concat <axis = 1> (keys, x)": [],
    "y = Concat <axis = 2> (keys, keys)": [],
    "y = Concat <axis = 0> (t1, fed)": [],
    f"{COUNT} y = Concat <axis = 0> (r, t1)": [END, "y.1 = add_invalid_count(t1, [-1])"],
    f"{COUNT} y = Concat <axis = 0> (t1, r)": [
        END,
        IN_FRONT,
    ],
    "y = Concat <axis = 0> (fed, one1)": [],
    # Entries are taken by their place, and by the last of them.
    "y = Gather <axis = 1> (keys, minus)": [],
    "y = Gather <axis = 1> (keys, back)": [],
    "y = Gather <axis = 1> (keys, nil)": [ONE_FROM_FIRST],
    "y = Gather <axis = 1> (keys, mixed)": [ONE_FROM_FIRST],
    "y = Gather <axis = 1> (keys, back2)": [],
    "y = Gather <axis = 1> (keys, mixed2)": [ONE_FROM_FIRST],
    "n = Sub (t, one) y = Gather <axis = 1> (keys, n)": [],
    "n = Concat <axis = 0> (p1, minus1) y = Gather <axis = 1> (keys, n)": [],
    "n = Concat <axis = 0> (p1, nil1) y = Gather <axis = 1> (keys, n)": [
        ONE_FROM_FIRST
    ],
    "y = Gather <axis = 1> (keys, fed)": ["y.1 = entries_to_positions(fed, <S>)"],
    "y = Gather <axis = -2> (keys, fed)": ["y.1 = entries_to_positions(fed, <S>)"],
    "y = Gather <axis = 2> (keys, fed)": [],
    "y = Gather (keys, fed)": [],
    f"{COUNT} y = Gather <axis = 1> (keys, r)": [END, "y.1 = entries_to_positions(r, <S>)"],
    "e = Expand (fed, k) y = GatherElements <axis = 1> (keys, e)": [
        "y.1 = entries_to_positions(e, <S>)"
    ],
    # Rows of a table, by the number of entries.
    "y = Gather (table, t)": ["y.1 = clamp_at_zero(add_invalid_count(t, [-1]))"],
    f"{COUNT} y = Gather (table, r)": [END, "y.1 = clamp_at_zero(r)"],
    f"{COUNT} n = Add (r, one) y = Gather (table, n)": [END, "y.1 = clamp_at_zero(n)"],
    "y = Gather (table, ids)": [],
    "y = Gather (k, fed)": ["y.0 = add_invalid_count(k, [0, -1, 0])"],
    "n = Concat <axis = 0> (p1, t1) y = Gather (n, fed)": ["y.0 = add_invalid_count(n, [-1, -1])"],
    "i = Unsqueeze (fed2, nil1) y = GatherND (keys, i)": [
        "y.1 = entries_to_positions(i, <S>, [0, 1])"
    ],
    "i = Unsqueeze (fed, nil1) j = Expand (i, none2) y = GatherND <batch_dims = 1> (keys, rows)": [
        "y: how many axes it looks up is not known"
    ],
    "i = Unsqueeze (fed, nil1) y = GatherND (keys, i)": [],
    "i = Unsqueeze (fed2, nil1) y = GatherND <batch_dims = 1> (square, i)": [
        "y: it looks up entries of a cache along two axes"
    ],
    # The last entries, and rows of a table that follow from their number.
    "y = Slice (keys, minus2, end, one1)": [],
    "y = Slice (keys, minus2, end32, one1)": [],
    "y = Slice (keys, minus2, less, one1)": [FROM_FIRST],
    "y = Slice (keys, minus2, t1, one1)": [],
    "y = Slice (keys, minus2, minus1, one1)": [],
    "y = Slice (keys, p1, end, one1)": [],
    "y = Slice (keys, p1, t1, one1)": [],
    "y = Slice (keys, p1, minus1, one1)": [],
    "y = Slice (keys, minus2, p1, one1)": [],
    "y = Slice (keys, one1, end, one1)": [FROM_FIRST],
    "y = Slice (keys, nil1, minus1, one1)": [],  # all but the last
    "y = Slice (keys, minus2, nil1, one1)": [FROM_FIRST],
    "y = Slice (keys, nil1, one1, one1)": [FROM_FIRST],
    "y = Slice (keys, p1, one1, one1)": [FROM_FIRST],
    "y = Slice (keys, fed, end, one1)": ["y: where it cuts is not known"],
    "y = Slice (keys, minus2, end, fed)": ["y: where it cuts is not known"],
    "y = Slice (keys, minus2, end, one1, two1)": ["y: it takes every other entry of a cache"],
    "y = Slice (keys, nil1, two1, two1)": [],
    "y = Slice (table, nil1, t1, nil1)": ["y = take_rows(y, [], 0, 0, P + S, 0)"],
    "y = Slice (table, p1, t1, nil1)": ["y = take_rows(y, [], 0, 0, S, 1)"],
    "y = Slice (table, two1, t1, nil1)": ["y = take_rows(y, [], 0, 2, P + S - 2, 0)"],
    "n = Add (p1, two1) o = Add (t1, two1) y = Slice (table, n, o, nil1)": [
        "y = take_rows(y, [], 0, 2, S, 1)"
    ],
    "n = Concat <axis = 0> (p1, one1) o = Concat <axis = 0> (t1, two1) "
    "a = Concat <axis = 0> (nil1, one1) y = Slice (table, n, o, a)": [
        "y = take_rows(y, [[1, 1, 2]], 0, 0, S, 1)"
    ],
    "n = Concat <axis = 0> (p1, p1) o = Concat <axis = 0> (t1, t1) "
    "a = Concat <axis = 0> (nil1, one1) y = Slice (table, n, o, a)": [
        CUT_TABLE
    ],
    "n = Neg (t1) y = Slice (table, n, end, nil1)": [],
    "n = Neg (t1) y = Slice (table, n, minus1, nil1)": [
        CUT_TABLE
    ],
    "y = Slice (table, p1, end, nil1)": [
        CUT_TABLE
    ],
    "n = Add (t1, p1) y = Slice (table, p1, n, nil1)": [
        CUT_TABLE
    ],
    "y = Slice (table, nil1, two1, nil1)": [],
    # What is put around entries, and triangles of them.
    "y = Pad (keys, pads)": [],
    "y = Pad (keys, front)": ["y: it pads the entries of a cache"],
    "y = Pad (keys, behind)": ["y: it pads the entries of a cache"],
    "f6 = Unique (fed) y = Pad (keys, f6)": [
        "y: which axes it pads is not known"
    ],
    f"{SCORES} y = Trilu (scores)": ["y: it counts diagonals from the first entry"],
    f"{SCORES} y = Trilu (scores, nil)": [
        "y = keep_above_diagonal(rebuild_node(y), 0, S, P + S)"
    ],
    f"{SCORES} y = Trilu (scores, five)": [
        "y = keep_above_diagonal(rebuild_node(y), 5, S, P + S)"
    ],
    f"{SCORES} y = Trilu <upper = 0> (scores, nil)": ["y.1 = add_invalid_count(nil, [1])"],
    f"{SCORES} y = Trilu (scores, p)": [],
    f"{SCORES} n = Add (p, t) y = Trilu (scores, n)": ["y.1 = add_invalid_count(n, [-1])"],
    f"{SCORES} n = Squeeze (fed) y = Trilu (scores, n)": [
        "y: which diagonal it takes is not known"
    ],
    f"{SCORES} s = Transpose <perm = [0, 2, 1]> (scores) y = Trilu (s, nil)": [
        "y.1 = add_invalid_count(nil, [-1])"
    ],
    f"{SQUARED} y = Trilu (twice)": [],
    f"{SQUARED} y = Trilu (twice, t)": ["y.1 = add_invalid_count(t, [-1])"],
    "y = Trilu (x)": [],
}  # fmt: skip


@pytest.mark.parametrize("body", CASES)
def test_what_a_node_needs(body: str) -> None:
    assert effects(body) == CASES[body]


@pytest.mark.parametrize(
    ("softmax", "lines"),
    [
        ("Softmax <axis = 2> (scores)", ["y.0 = hide_invalid(scores, <S>, P + S, 0, FLOAT)"]),
        ("Softmax (scores)", ["y.0 = hide_invalid(scores, <S>, P + S, 0, FLOAT)"]),
        ("Softmax <axis = 2> (keys)", []),
        ("Softmax <axis = 1> (twice)", ["y: it normalizes the entries of a cache along two axes"]),
    ],
)
def test_before_opset_13_a_softmax_normalizes_all_axes_behind(
    softmax: str, lines: list[str]
) -> None:
    keys = KEYS.replace("Unsqueeze (t, nil1)", "Reshape (t, minus1)")
    keys = keys.replace("Unsqueeze (p, nil1)", "Reshape (p, minus1)")
    assert effects(f"{SCORES} {SQUARED} y = {softmax}", 12, keys) == lines
