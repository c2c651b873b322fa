"""ilens-mask: the clip alone against the clip in a container, in whose padding anything may be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import graphfix
from graphfix.cli import main
from graphfix.errors import PaddingError, UsageError
from graphfix.lengths.length_input import LengthInput
from graphfix.lengths.repairs.fill_tail import HideTail

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]

SPEC = "ilens-mask:axis=x.1"
CLIPS, CONTAINER = (7, 9, 12), 31
FILLS = {"zeros": 0.0, "noise": None, "large": 1e4, "NaN": np.nan}


def model_of(body: str, head: str = "float[B, T, 4] x", out: str = "y") -> ir.Model:
    outputs = ", ".join(f"float[X{i}] {name}" for i, name in enumerate(out.split()))
    imports = '"" : 17, "com.microsoft" : 1'
    text = f"<ir_version: 8, opset_import: [{imports}]> g ({head}) => ({outputs}) {body}"
    model = ir.from_onnx_text(text)
    for value in model.graph.outputs:
        value.shape = None
    return model


def session(model: ir.Model) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(ir.to_proto(model).SerializeToString(), options)


def run(model: ort.InferenceSession, feeds: Mapping[str, Array]) -> dict[str, Array]:
    names = [x.name for x in model.get_outputs()]
    return dict(zip(names, model.run(None, dict(feeds)), strict=True))


def errors(before: ir.Model, after: ir.Model, clips: tuple[int, ...] = CLIPS) -> list[float]:
    """The largest difference on what is valid: rows of several lengths in one container."""
    rng = np.random.default_rng(0)
    alone, together = session(before), session(after)
    lone = [{"x": rng.standard_normal((1, n, 4)).astype(np.float32)} for n in clips]
    wanted = [run(alone, x) for x in lone]
    found: list[float] = []
    for fill in FILLS.values():
        x = rng.standard_normal((len(clips), CONTAINER, 4)).astype(np.float32)
        if fill is not None:
            x[:] = fill
        for row, feeds in enumerate(lone):
            x[row, : clips[row]] = feeds["x"][0]
        feeds = {"x": x, "ilens": np.array(clips, np.int64)}
        taken = {i.name: feeds[i.name] for i in together.get_inputs()}
        outputs = run(together, taken)
        for row, native in enumerate(wanted):
            for name, y in native.items():
                crop = tuple(slice(0, n) for n in y.shape[1:])
                found.append(float(np.abs(outputs[name][row][crop] - y[0]).max()))
    return found


def trembles(m: ir.Model) -> float:
    """How far the outputs move when the last bit of each number of a clip does."""
    rng, opened = np.random.default_rng(0), session(m)
    x = rng.standard_normal((1, max(CLIPS), 4)).astype(np.float32)
    one, other = (
        run(opened, {"x": np.nextafter(x, x * n)}) for n in (np.float32(1), np.float32(2))
    )
    return max(float(np.abs(one[k] - other[k]).max()) for k in one)


C = "float[4, 4, 3] k, float[4] b"
W = "float[4, 4] w"
WEIGHTS = {
    "w": (4, 4),
    "w8": (4, 8),
    "k": (4, 4, 3),
    "kt": (4, 4, 4),
    "b": (4,),
    "table": (64, 4),
    "gru": (1, 12, 4),
    "lstm": (2, 16, 4),
}
BODIES = {
    "a mean over time": "{ y = ReduceMean <axes = [1], keepdims = 0> (x) }",
    "a sum over time": "{ y = ReduceSum <keepdims = 0> (x, one) }",
    "a maximum over time": "{ y = ReduceMax <axes = [1], keepdims = 0> (x) }",
    "the place of the largest": """{ i = ArgMax <axis = 1, keepdims = 0> (x)
        y = Cast <to = 1> (i) }""",
    "a variance over time": """{ m = ReduceMean <axes = [1]> (x) d = Sub (x, m) q = Mul (d, d)
        v = ReduceMean <axes = [1]> (q) e = Add (v, eps) s = Sqrt (e) y = Div (d, s) }""",
    "a division by the length": """{ s = ReduceSum <keepdims = 0> (x, one) size = Shape (x)
        t = Gather <axis = 0> (size, at1) f = Cast <to = 1> (t) y = Div (s, f) }""",
    "a convolution with padding": """{ c = Transpose <perm = [0, 2, 1]> (x)
        y0 = Conv <pads = [1, 1]> (c, k, b) y = Transpose <perm = [0, 2, 1]> (y0) }""",
    "two strided convolutions": """{ c = Transpose <perm = [0, 2, 1]> (x)
        d = Conv <pads = [1, 1], strides = [2]> (c, k, b)
        e = Conv <pads = [2, 2], dilations = [2]> (d, k)
        y = Transpose <perm = [0, 2, 1]> (e) }""",
    "a transposed convolution": """{ c = Transpose <perm = [0, 2, 1]> (x)
        y0 = ConvTranspose <strides = [2], pads = [1, 1]> (c, kt, b)
        y = Transpose <perm = [0, 2, 1]> (y0) }""",
    "pooling": """{ c = Transpose <perm = [0, 2, 1]> (x)
        a = AveragePool <count_include_pad = 1, kernel_shape = [3], pads = [1, 1]> (c)
        m = MaxPool <kernel_shape = [3], pads = [1, 1], strides = [2]> (a)
        y = Transpose <perm = [0, 2, 1]> (m) }""",
    "instance normalization": """{ c = Transpose <perm = [0, 2, 1]> (x)
        y0 = InstanceNormalization (c, b, b) y = Transpose <perm = [0, 2, 1]> (y0) }""",
    "attention": """{ q = MatMul (x, w) t = Transpose <perm = [0, 2, 1]> (x) s = MatMul (q, t)
        p = Softmax <axis = -1> (s) y = MatMul (p, x) }""",
    "attention with heads in the batch": """{ a = Reshape (x, heads)
        h = Transpose <perm = [0, 2, 1, 3]> (a) g = Reshape (h, flat)
        t = Transpose <perm = [0, 2, 1]> (g) s = MatMul (g, t) p = Softmax <axis = -1> (s)
        o = MatMul (p, g) u = Shape (x) n = Slice (u, zero1, one) l = Slice (u, one, two1)
        back = Concat <axis = 0> (n, two1, l, two1) r = Reshape (o, back)
        z = Transpose <perm = [0, 2, 1, 3]> (r) y = Reshape (z, merged) }""",
    "attention with a fused product": """{ q = MatMul (x, w)
        s = com.microsoft.FusedMatMul <transB = 1, alpha = 0.5> (q, x)
        p = Softmax <axis = -1> (s) y = MatMul (p, x) }""",
    "a fused product over time": """{ m = com.microsoft.FusedMatMul <transA = 1> (x, x)
        y = MatMul (x, m) }""",
    "weights times values without a Softmax": """{ t = Transpose <perm = [0, 2, 1]> (x)
        m = MatMul (t, x) y = MatMul (x, m) }""",
    "the last frame": "{ y = Gather <axis = 1> (x, last) }",
    "the last three frames": "{ y = Slice (x, minus3, far, one) }",
    "edges copied": "{ y = Pad <mode = 'edge'> (x, pads) }".replace("'", '"'),
    "edges mirrored": "{ y = Pad <mode = 'reflect'> (x, pads) }".replace("'", '"'),
    "zeros behind the end": """{ p = Pad (x, pads) s = Slice (p, two1, far, one)
        y = ReduceMean <axes = [1], keepdims = 0> (s) }""",
    "a frame stack": """{ p = Pad <mode = "edge"> (x, pads)
        a = Slice (p, zero1, minus2, one) c = Slice (p, two1, far, one)
        y = Concat <axis = 2> (a, c) }""",
    "something appended": """{ size = Shape (x) n = Slice (size, zero1, one)
        s = Concat <axis = 0> (n, one, four1) e = Expand (b, s) c = Concat <axis = 1> (x, e)
        t = Transpose <perm = [0, 2, 1]> (c) g = MatMul (c, t) p = Softmax <axis = -1> (g)
        y = MatMul (p, c) }""",
    "a running sum from behind": "{ y = CumSum <reverse = 1> (x, at1) }",
    "a running sum": "{ y = CumSum (x, at1) }",
    "a GRU": """{ t = Transpose <perm = [1, 0, 2]> (x)
        o, h = GRU <hidden_size = 4> (t, gru, gru) z = Squeeze (o, one)
        f = Transpose <perm = [1, 0, 2]> (z) l = Transpose <perm = [1, 0, 2]> (h)
        y = Add (f, l) }""",
    "an LSTM both ways": """{ t = Transpose <perm = [1, 0, 2]> (x)
        o = LSTM <hidden_size = 4, direction = "bidirectional"> (t, lstm, lstm)
        y = Transpose <perm = [2, 0, 1, 3]> (o) }""",
    "positions from a table": """{ size = Shape (x) t = Slice (size, one, two1)
        p = Slice (table, zero1, t, zero1) y0 = Add (x, p)
        y = ReduceMean <axes = [1], keepdims = 0> (y0) }""",
    "stacked by Reshape": """{ p = Pad (x, pads1) e = Slice (p, zero1, minus1, one)
        y = Softmax <axis = 1> (e) }""",
}
INITIALIZERS = (
    "float eps = {0.00001}, int64[1] one = {1}, int64[1] zero1 = {0}, int64[1] two1 = {2}, "
    "int64[1] four1 = {4}, int64 at1 = {1}, int64 last = {-1}, int64[1] minus3 = {-3}, "
    "int64[1] minus1 = {-1}, int64[1] minus2 = {-2}, int64[1] far = {9223372036854775807}, "
    "int64[6] pads = {0, 2, 0, 0, 2, 0}, int64[6] pads1 = {0, 0, 0, 0, 3, 0}, "
    "int64[4] heads = {0, 0, 2, 2}, int64[3] flat = {-1, 7, 2}, "
    "int64[3] merged = {0, 0, 4}"
)


def weighted(body: str) -> ir.Model:
    """A model of a body, with the weights and constants that it uses."""
    rng = np.random.default_rng(1)
    used = [name for name in WEIGHTS if f"{name})" in body or f"{name}," in body]
    parts = []
    for name in used:
        shape = WEIGHTS[name]
        numbers = ", ".join(f"{x:.4f}" for x in rng.standard_normal(shape).ravel() * 0.4)
        parts.append(f"float[{', '.join(map(str, shape))}] {name} = {{{numbers}}}")
    parts.append(INITIALIZERS)
    return model_of(f"<{', '.join(parts)}> {body}")


@pytest.mark.parametrize("case", BODIES)
def test_a_clip_in_a_container_gives_what_it_gives_alone(case: str) -> None:
    body = BODIES[case]
    if "flat" in body:  # heads in the batch: how many, only the graph knows
        body = body.replace(
            "g = Reshape (h, flat)",
            "hs = Shape (h) ht = Slice (hs, two1, far) "
            "ft = Concat <axis = 0> (minus1, ht) g = Reshape (h, ft)",
        )
    before, after = weighted(body), weighted(body)
    report = graphfix.run(after, SPEC)
    assert max(errors(before, after)) < 1e-5
    if case != "a running sum":
        assert report.changed
        assert max(e if e == e else 1 for e in errors(before, before)) > 1e-3, "it did not leak"


@pytest.mark.parametrize("case", BODIES)
def test_a_second_run_finds_nothing(case: str) -> None:
    body = BODIES[case]
    if "flat" in body:
        pytest.skip("the other test has this one with its own sizes")
    model = weighted(body)
    graphfix.run(model, SPEC)
    text = ir.to_proto(model).SerializeToString(deterministic=True)
    report = graphfix.run(model, "ilens-mask")
    left = [change.note for one in report.passes for change in one.changes]
    assert left == []
    assert ir.to_proto(model).SerializeToString(deterministic=True) == text


def test_the_same_mask_is_made_once() -> None:
    body = """{ q = MatMul (x, w) t = Transpose <perm = [0, 2, 1]> (x) s = MatMul (q, t)
        p = Softmax <axis = -1> (s) v = MatMul (p, x) t2 = Transpose <perm = [0, 2, 1]> (v)
        s2 = MatMul (v, t2) p2 = Softmax <axis = -1> (s2) y = MatMul (p2, v) }"""
    model = weighted(body)
    report = graphfix.run(model, SPEC)
    assert sum(len(one.changes) for one in report.passes) == 3
    assert sum(node.op_type == "CumSum" for node in model.graph) == 1
    assert sum(node.op_type == "Less" for node in model.graph) == 1
    assert sum(node.op_type == "Not" for node in model.graph) == 1


def test_a_mask_that_is_there_already_says_what_is_valid() -> None:
    body = """<float one_f = {1.0}, float low = {-10000.0}, int64[1] m1 = {1}> {
        f = Cast <to = 1> (mask) u = Unsqueeze (f, m1) n = Sub (one_f, u) a = Mul (n, low)
        t = Transpose <perm = [0, 2, 1]> (x) s = MatMul (x, t) sa = Add (s, a)
        p = Softmax <axis = -1> (sa) v = MatMul (p, x) y = ReduceMean <axes = [1]> (v) }"""
    head = "float[B, T, 4] x, int64[B, T] mask"
    before, after = model_of(body, head), model_of(body, head)
    report = graphfix.run(after, f"{SPEC}:from=mask")
    notes = [change.note.split(":")[0] for one in report.passes for change in one.changes]
    assert "attention dilution" not in notes
    assert "mean pollution" in notes
    assert [x.name for x in after.graph.inputs] == ["x", "mask"]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 6, 4)).astype(np.float32)
    alone = run(session(before), {"x": x, "mask": np.ones((1, 6), np.int64)})["y"]
    long = np.full((1, 20, 4), 1e3, np.float32)
    long[:, :6] = x
    mask = (np.arange(20) < 6).astype(np.int64)[None]
    padded = run(session(after), {"x": long, "mask": mask})["y"]
    np.testing.assert_allclose(padded, alone, atol=1e-5)


@pytest.mark.parametrize("dims", ["B, T", "B, 1, T", "B, 1, 1, T", "B, T, 1"])
def test_a_mask_with_dims_of_1_says_what_is_valid(dims: str) -> None:
    weights = ", ".join(str(i % 7 - 3) for i in range(48))
    body = f"""<float[4, 4, 3] w = {{{weights}}}> {{ t = Transpose <perm = [0, 2, 1]> (x)
        c = Conv <pads = [1, 1]> (t, w) y = Transpose <perm = [0, 2, 1]> (c) }}"""
    before, after = (model_of(body, f"float[B, T, 4] x, bool[{dims}] mask") for _ in range(2))
    assert graphfix.run(after, "ilens-mask:from=mask").changed
    x = np.random.default_rng(0).standard_normal((1, 6, 4)).astype(np.float32)
    long = np.full((1, 9, 4), 1e3, np.float32)
    long[:, :6] = x
    shape = [{"B": 1, "T": 9, "1": 1}[d] for d in dims.split(", ")]
    mask = (np.arange(9) < 6).reshape(shape)
    short = mask.take(range(6), dims.split(", ").index("T"))
    alone = run(session(before), {"x": x, "mask": short})["y"]
    padded = run(session(after), {"x": long, "mask": mask})["y"]
    np.testing.assert_allclose(padded[:, :6], alone, atol=1e-5)


def test_a_mask_of_pairs_says_no_length() -> None:
    body = "{ y = Neg (x) }"
    with pytest.raises(UsageError, match="it has 3 dims that are not 1"):
        graphfix.run(model_of(body, "float[B, T, 4] x, bool[B, T, T] mask"), "ilens-mask:from=mask")


# Exporters name the dims of each input again; the sum says that C is B, or 1.
SECOND = """<float one_f = {{1.0}}, float low = {{-10000.0}}, int64[1] m1 = {{1}},
    int64[1] from0 = {{0}}> {{
    f = Cast <to = 1> (mask) {0} u = Unsqueeze (g, m1) n = Sub (one_f, u) a = Mul (n, low)
    t = Transpose <perm = [0, 2, 1]> (x) s = MatMul (x, t) sa = Add (s, a)
    p = Softmax <axis = -1> (sa) v = MatMul (p, x) y = ReduceMean <axes = [1]> (v) }}"""


CUT = "sx = Shape <start = 0, end = 1> (x) g = Slice (f, from0, sx, from0)"  # Min(B, C) rows


@pytest.mark.parametrize(
    ("row", "dims", "spec"),
    [
        ("g = Identity (f)", "C, T", SPEC),
        (CUT, "C, T", SPEC),
        ("g = Identity (f)", "B, S", "ilens-mask"),
        ("g = Identity (f)", "C, S", "ilens-mask"),
    ],
    ids=["the batch", "rows as many as there are", "time", "both"],
)
def test_dims_of_another_input_may_have_other_names(row: str, dims: str, spec: str) -> None:
    head = f"float[B, T, 4] x, int64[{dims}] mask"
    before, after = (model_of(SECOND.format(row), head) for _ in range(2))
    graphfix.run(after, spec)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 20, 4)).astype(np.float32)
    mask = rng.integers(0, 2, (2, 20))
    lengths = np.array([6, 11], np.int64)
    found = run(session(after), {"x": x, "mask": mask, "ilens": lengths})["y"]
    for i, n in enumerate(lengths):
        alone = run(session(before), {"x": x[i : i + 1, :n], "mask": mask[i : i + 1, :n]})["y"]
        np.testing.assert_allclose(found[i : i + 1], alone, atol=1e-5)


def test_what_never_meets_the_batch_is_none() -> None:
    body = "<int64[1] m0 = {0}> { y = ReduceMean <axes = [1]> (x) z = ReduceMean <axes = [1]> (m) }"
    model = model_of(body, "float[B, T, 4] x, float[C, T] m")
    with pytest.raises(PaddingError, match="it has no batch axis"):
        graphfix.run(model, SPEC)


def test_twice_as_much_is_another_size() -> None:
    body = """<int64[1] a1 = {1}> { d = Concat <axis = 1> (m, m) y = Add (x, d)
        z = ReduceMean <axes = [1]> (y) }"""
    with pytest.raises(UsageError, match=r"several dims may be time; .*x\.1 \(T\).*m\.1 \(S\)"):
        graphfix.run(model_of(body, "float[B, T, 4] x, float[B, S, 4] m"), "ilens-mask")


REFUSED = {
    "a batch-wide mean": ("{ y = ReduceMean <axes = [0]> (x) }", "over the batch"),
    "a split of time": ("{ y, z = Split <axis = 1> (x) }", "splits the axis that carries time"),
    "an operator that has no rule": ("{ y = Det (x) }", "no rule that says what padding does"),
    "what stands at the end put first": (
        "{ a = Slice (x, minus3, far, one) f = Slice (x, zero1, minus1, one) "
        "c = Concat <axis = 1> (f, x) y = Relu (c) }",
        "one stretch of time behind another",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_seen_through_is_named(case: str) -> None:
    body, reason = REFUSED[case]
    model = weighted(body)
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    with pytest.raises(PaddingError, match=reason):
        graphfix.run(model, SPEC)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before
    told = [x.message for x in graphfix.check(model, SPEC)]
    assert any(reason in x for x in told)


def test_the_axis_is_found_or_asked_for() -> None:
    body = "{ y = ReduceMean <axes = [1], keepdims = 0> (x) }"
    model = weighted(body)
    graphfix.run(model, "ilens-mask")
    assert LengthInput.from_metadata(model) == LengthInput("ilens", "x.1", "lengths")
    two = model_of("{ y = ReduceMean <axes = [1], keepdims = 0> (x) }", "float[B, T, F] x")
    with pytest.raises(
        UsageError, match=r"-p ilens-mask:axis=x\.1 \(T\), -p ilens-mask:axis=x\.2 \(F\)"
    ):
        graphfix.run(two, "ilens-mask")
    with pytest.raises(UsageError, match="fixed at 4"):
        graphfix.run(weighted(body), "ilens-mask:axis=x.2")
    with pytest.raises(UsageError, match="no such input; it has 'x'"):
        graphfix.run(weighted(body), "ilens-mask:axis=audio.1")


def test_a_name_that_is_taken_is_not_taken_again() -> None:
    body = "{ ilens = Relu (x) y = ReduceMean <axes = [1]> (ilens) }"
    with pytest.raises(UsageError, match="has a tensor 'ilens' already"):
        graphfix.run(weighted(body), SPEC)


# Generated graphs: steps that keep [B, T, 4], in any order; whatever they do, padding stays out.
STEPS = {
    "linear": "{o} = MatMul ({i}, w)",
    "relu": "{o} = Relu ({i})",
    "shift": "{o} = Add ({i}, b)",
    "conv": "{o}a = Transpose <perm = [0, 2, 1]> ({i}) {o}c = Conv <pads = [1, 1]> ({o}a, k, b) "
    "{o} = Transpose <perm = [0, 2, 1]> ({o}c)",
    "centre": "{o}m = ReduceMean <axes = [1]> ({i}) {o} = Sub ({i}, {o}m)",
    "attend": "{o}t = Transpose <perm = [0, 2, 1]> ({i}) {o}s = MatMul ({i}, {o}t) "
    "{o}d = Tanh ({o}s) {o}p = Softmax <axis = -1> ({o}d) {o} = MatMul ({o}p, {i})",
    "norm": "{o} = LayerNormalization ({i}, b, b)",
    "cut": "{o} = Slice ({i}, one, far, one)",
    "edge": '{o} = Pad <mode = "edge"> ({i}, pads)',
    "zeros": "{o} = Pad ({i}, pads)",
    "sum": "{o} = CumSum <reverse = 1> ({i}, at1)",
    "peak": "{o}x = ReduceMax <axes = [1]> ({i}) {o} = Sub ({i}, {o}x)",
    "gate": "{o}g = Sigmoid ({i}) {o} = Mul ({i}, {o}g)",
    "last": "{o}l = Slice ({i}, minus1, far, one) {o} = Add ({i}, {o}l)",
}


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6))
@example(["cut", "last", "conv"])
@example(["attend", "sum", "centre", "sum", "norm"])
def test_padding_stays_out_of_generated_graphs(steps: list[str]) -> None:
    lines, last = [], "x"
    for i, step in enumerate(steps):
        lines.append(STEPS[step].format(i=last, o=f"v{i}"))
        last = f"v{i}"
    body = "{ " + " ".join([*lines, f"y = Tanh ({last})"]) + " }"
    before, after = weighted(body), weighted(body)
    graphfix.run(after, SPEC)
    # A norm behind two cumulative sums: 3e-4, of the last bit alone.
    assert max(errors(before, after)) < max(1e-4, 4 * trembles(before))
    report = graphfix.run(after, "ilens-mask")
    assert [change.note for one in report.passes for change in one.changes] == []


def test_several_inputs_are_cleaned_by_one_mask() -> None:
    body = "{ late = Relu (x) s = Add (late, z) y = ReduceMean <axes = [1], keepdims = 0> (s) }"
    model = model_of(body, "float[B, T, 4] z, float[B, T, 4] x")
    graphfix.run(model, SPEC)
    session(model)
    assert sum(node.op_type == "Less" for node in model.graph) == 1


def saved(path: Path, body: str) -> str:
    graphfix.save(weighted(body), path)
    return str(path)


def test_check_says_each_leak_and_what_will_be_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path / "m.onnx", BODIES["attention"])
    assert main(["check", path, "-p", "ilens-mask:axis=x.1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    kinds = {x["message"].partition(" at ")[0]: x["severity"] for x in found}
    assert kinds == {
        "poisoned input": "note",  # zeros there stop NaN alone
        "attention dilution": "warning",
    }
    assert any("attention dilution at Softmax" in x["message"] for x in found)
    assert {x["fix"] for x in found} == {"ilens-mask:axis=x.1"}
    path = saved(tmp_path / "n.onnx", REFUSED["an operator that has no rule"][0])
    assert main(["check", path, "-p", "ilens-mask:axis=x.1"]) == 0
    assert "Det cannot be analysed" in capsys.readouterr().out
    assert main(["check", path, "--axis", "x.1"]) == 2


def test_run_also_proves_that_clips_may_be_padded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = saved(tmp_path / "m.onnx", BODIES["a variance over time"]), tmp_path / "o.onnx"
    assert main(["run", path, "-p", SPEC, "-o", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"]["ok"]
    assert report["padded"]["ok"]
    assert report["padded"]["checks"]
    assert (
        main(["padded", str(out), "--original", path, "--dim", "T=5,9", "--container", "40"]) == 0
    )
    assert main(["padded", path, "--dim", "T=5,9", "--container", "40"]) == 1


def test_a_model_that_is_not_safe_after_all_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # As if the mask of the scores were forgotten.
    monkeypatch.setattr(HideTail, "rewrite", lambda *_: None)
    path, out = saved(tmp_path / "m.onnx", BODIES["attention"]), tmp_path / "o.onnx"
    assert main(["run", path, "-p", SPEC, "-o", str(out)]) == 1
    assert "not safe to pad" in capsys.readouterr().err
    assert not out.exists()


def test_what_cannot_be_repaired_leaves_nothing_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = saved(tmp_path / "m.onnx", REFUSED["a split of time"][0]), tmp_path / "o.onnx"
    assert main(["run", path, "-p", SPEC, "-o", str(out)]) == 2
    assert "splits the axis that carries time" in capsys.readouterr().err
    assert not out.exists()


def test_a_model_that_leaks_in_spite_of_its_mask_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = """<int64[1] m1 = {1}, float low = {-10000.0}, float one_f = {1.0}, int64[1] two = {2}> {
        c = ReduceMean <axes = [1]> (x) d = Sub (x, c) f = Cast <to = 1> (mask)
        u = Unsqueeze (f, m1) n = Sub (one_f, u) a = Mul (n, low)
        t = Transpose <perm = [0, 2, 1]> (d) s = MatMul (d, t) sa = Add (s, a)
        p = Softmax <axis = -1> (sa) y = MatMul (p, d) }"""
    path, out = tmp_path / "m.onnx", tmp_path / "o.onnx"
    graphfix.save(model_of(body, "float[B, T, 4] x, int64[B, T] mask"), path)
    assert main(["run", str(path), "-p", f"{SPEC}:from=mask", "-o", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["padded"]["ok"]
    assert any("padding is left to graphfix padded" in x for x in report["verdict"]["notes"])
    assert out.exists()
