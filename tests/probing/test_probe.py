"""Where two runs part: the right node, the right suspicion, and nothing held that need not be."""

from __future__ import annotations

import itertools
import json
import signal
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.cli import main
from graphfix.errors import FeedError
from graphfix.lengths.length_input import KEY as LENGTHS_KEY
from graphfix.model.text import module_path
from graphfix.probing.content_values import carrying
from graphfix.probing.divergence import _commutes
from graphfix.probing.probe import Probe, probe_padded
from graphfix.proof.inner_tensors import Run, Stream

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
LAYERS = """m (float[B, T, 4] x) => (float[B, T, 4] y)
    <float[4] w = {1, 2, 3, 4}, float half = {0.5}>
    { a = Mul (x, w)  b = Tanh (a)  c = Mul (b, half)  d = Add (c, a)  e = Exp (c)
      y = Mul (d, e) }"""
ROOT = Path(__file__).parents[2]
EVIL = "</script><img src=x onerror=alert(1)>&<!--"


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(signal, "signal", lambda *_: None)


def model(text: str) -> ir.Model:
    return ir.from_onnx_text(HEAD + text)


def leak(text: str, **more: object) -> Probe:
    found = probe_padded(model(text), dims={"T": 6}, container=15, **more)  # type: ignore[arg-type]
    assert not found.ok
    assert found.first is not None
    return found


def at(found: Probe) -> list[str]:
    return [site.tensor for site in found.sites]


# Two models


def test_a_repaired_model_is_told_that_all_is_content():
    text = "m (float[B, T, 4] x) => (float[B, T, 4] y) { y = Relu (x) }"
    after = model(
        """m (float[B, T, 4] x, int64[B] ilens) => (float[B, T, 4] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] ax1 = {1}, int64[1] ax2 = {2}, float nil = {0}>
        { r = Relu (x)  s = Shape <start = 1, end = 2> (x)  k = Squeeze (s)
          i = Range (zero, k, one)  u = Unsqueeze (ilens, ax1)  l = Less (i, u)
          m = Unsqueeze (l, ax2)  y = Where (m, r, nil) }"""
    )
    after.metadata_props[LENGTHS_KEY] = '{"input": "ilens", "axis": "x.1", "kind": "lengths"}'
    assert probe_padded(after, original=model(text), dims={"T": 6}, container=15).ok


# One model, a clip alone and in a container

ATTEND = (
    "t = Transpose <perm = [0, 2, 1]> (x)  s = MatMul (x, t)  p = Softmax (s)  y = MatMul (p, x)"
)


@pytest.mark.parametrize(
    ("body", "tensor"),
    [
        ("m = ReduceMean <axes = [1]> (x)  y = Sub (x, m)", "m"),
        ("m = ReduceMax <axes = [1]> (x)  y = Sub (x, m)", "m"),
        ("n = CumSum <reverse = 1> (x, one)  y = Tanh (n)", "n"),
        (ATTEND, "p"),
        ("p = Pad (x, ends)  y = AveragePool <kernel_shape = [3]> (p)", "p"),
        ('p = Pad <mode = "edge"> (x, ends)  y = Tanh (p)', "p"),
        ('p = Pad <mode = "reflect"> (x, ends)  y = Tanh (p)', "p"),
        ("c = Slice (x, last, all, one1)  y = Sub (x, c)", "c"),
        (
            "n = Shape <start = 1, end = 2> (x)  l = Sub (n, one1)  c = Gather <axis = 1> (x, l) "
            "y = Sub (x, c)",
            "c",
        ),
        (
            "s = Shape <start = 1, end = 2> (x)  f = Cast <to = 1> (s)  d = Div (x, f) "
            "y = Tanh (d)",
            "d",
        ),
    ],
)
def test_the_leak(body: str, tensor: str):
    text = """m (float[1, T, 4] x) => (float[P, Q, R] y)
        <int64 one = {1}, int64[6] ends = {0, 0, 0, 0, 2, 0}, int64[1] last = {-1},
         int64[1] all = {9223372036854775807}, int64[1] one1 = {1}> { %s }"""
    found = leak(text % body)
    assert at(found)[0] == tensor


def test_a_convolution_that_reaches_beyond_the_end():
    text = """m (float[1, {c}, T] x) => (float[1, N, F] y) <float[1, {c}, {k}] w = {{{ones}}}>
        {{ c = Conv <kernel_shape = [{k}], pads = [{p}, {p}]> (x, w)  y = Tanh (c) }}"""
    layer = model(text.format(c=2, k=3, p=1, ones=", ".join("1" * 6)))
    found = probe_padded(layer, dims={"T": 6}, container=15)
    assert at(found) == ["c"]
    assert probe_padded(layer, dims={"T": 6}, container=15, fill="zero").ok
    frame = model(text.format(c=1, k=64, p=32, ones=", ".join("1" * 64)))
    found = probe_padded(frame, dims={"T": 80}, container=200)
    assert at(found) == ["c"]


def test_a_mask_that_is_not_carried_to_a_later_layer():
    text = """m (float[B, T, 4] x, int64[B, T] mask) => (float[B, T, 4] y)
        <int64[1] ax = {1}, int64 zero = {0}, float fill = {-10000.0}>
        { t = Transpose <perm = [0, 2, 1]> (x)  s = MatMul (x, t)
          e = Equal (mask, zero)  u = Unsqueeze (e, ax)  m = Where (u, fill, s)
          p = Softmax (m)  h = MatMul (p, x)
          t2 = Transpose <perm = [0, 2, 1]> (h)  s2 = MatMul (h, t2)
          p2 = Softmax (s2)  y = MatMul (p2, h) }"""
    found = leak(text)
    assert at(found) == ["p2"]


def test_every_independent_leak_is_a_site():
    text = """m (float[1, T, 4] x) => (float[1, T, 4] y)
        { m = ReduceMean <axes = [1]> (x)  a = Sub (x, m)
          n = ReduceMax <axes = [1]> (x)  b = Sub (x, n)  k = ReduceMin <axes = [1]> (b)
          c = Add (a, b)  y = Sub (c, k) }"""
    found = leak(text)
    assert at(found) == ["m", "n"]


@pytest.mark.parametrize(("rows", "told"), [(40, "in 36"), (16, "in 14"), (9, None)])
def test_a_container_that_the_model_takes_is_found(rows: int, told: str | None):
    text = f"""m (float[1, T, 1] x) => (float[1, T, 1] y) <int64 zero = {{0}}, int64 one = {{1}},
        float[{rows}, 1] table = {{{", ".join("1" * rows)}}}>
        {{ s = Shape <start = 1, end = 2> (x)  t = Squeeze (s)  i = Range (zero, t, one)
          p = Gather (table, i)  y = Add (x, p) }}"""
    if told is None:
        with pytest.raises(FeedError, match=r"T=9 alone and in 36, .*; name another container$"):
            probe_padded(model(text), dims={"T": 9})
    else:
        found = probe_padded(model(text), dims={"T": 9})
        assert found.ok
        assert f"T=9 alone and {told}, " in found.case


def test_where_no_container_runs_the_error_of_the_first_is_told():
    text = """m (float[1, T, 1] x) => (float[1, T, 1] y) <float[1, 9, 1] k = {1,1,1,1,1,1,1,1,1}>
        { y = Add (x, k) }"""
    with pytest.raises(FeedError, match=r"alone and in 36, .*9 by 36; name another container$"):
        probe_padded(model(text), dims={"T": 9})


def test_what_is_computed_from_sizes_alone_is_no_leak():
    """Positions counted from the end differ, and only their differences are used."""
    text = """m (float[1, T, 4] x) => (float[1, T, 4] y)
        <int64 zero = {0}, int64 one = {1}, int64[2] cut = {-1, 1}>
        { s = Shape <start = 1, end = 2> (x)  k = Squeeze (s)  r = Range (zero, k, one)
          back = Sub (k, r)  f = Cast <to = 1> (back)  g = Reshape (f, cut)
          a = Add (x, g)  y = Tanh (%s) }"""
    assert at(leak(text % "a")) == ["a"]
    assert probe_padded(model(text % "x"), dims={"T": 6}, container=15).ok


def test_time_that_is_merged_with_another_axis_is_skipped_and_counted():
    """[4, T] as one axis: its prefix is no prefix; taken apart again, it is."""
    text = """m (float[1, T, 4] x) => (float[1, T, 4] y)
        <int64[1] flat = {-1}, int64[3] cut = {1, 4, -1}>
        { t = Transpose <perm = [0, 2, 1]> (x)  f = Reshape (t, flat)  g = Tanh (f)
          a = Reshape (g, cut)  y = Transpose <perm = [0, 2, 1]> (a) }"""
    found = probe_padded(model(text), dims={"T": 6}, container=15)
    assert found.ok
    assert sum(found.skipped.values()) == 2
    assert "its axes mix time with others" in found.skipped
    text = text.replace("g = Tanh (f)", "q = ReduceMax <keepdims = 0> (f)  g = Sub (f, q)")
    assert at(leak(text, fill="large")) == ["q"]


@pytest.mark.parametrize(
    ("source", "longer", "made", "other", "same"),
    [
        ((1, 6, 4), (1, 15, 4), (1, 6, 2, 2), (1, 15, 2, 2), True),
        ((1, 6, 4), (1, 15, 4), (6, 4), (15, 4), True),
        ((6, 4), (15, 4), (24,), (60,), True),
        ((4, 6), (4, 15), (24,), (60,), False),
        ((2, 6), (2, 15), (6, 2), (15, 2), False),
        ((1, 8), (1, 16), (2, 4), (4, 4), True),
        ((3, 2, 6), (3, 2, 15), (6, 6), (6, 15), True),
        ((0, 4), (3, 4), (0, 2, 2), (3, 2, 2), True),
    ],
)
def test_whether_a_reshape_commutes_with_cropping(
    source: tuple[int, ...],
    longer: tuple[int, ...],
    made: tuple[int, ...],
    other: tuple[int, ...],
    same: bool,
):
    assert _commutes(source, longer, made, other) is same
    index = np.arange(np.prod(longer)).reshape(longer)
    inner = index[tuple(slice(n) for n in source)].reshape(made)
    outer = index.reshape(other)[tuple(slice(n) for n in made)]
    assert np.array_equal(inner, outer) is same


def test_what_is_content_and_what_is_size():
    made = model(
        """m (float[T] x, float[B] share) => (float[T] y)
        { s = Shape (x)  c = ConstantOfShape (s)  a = Add (x, c)  b = Neg (share)  y = Neg (a) }"""
    )
    content = carrying(made, frozenset({"share"}))
    assert {v.name for v in content} == {"x", "a", "y"}


def test_a_loop_that_takes_from_outside():
    text = """m (float[1, T] x, bool c) => (float[1, T] y)
        { m = ReduceMean <axes = [1]> (x)
          y = If (c) <then_branch = a () => (float[1, T] p) { p = Sub (x, m) },
                      else_branch = b () => (float[1, T] q) { q = Add (x, m) }> }"""
    assert at(leak(text)) == ["m"]


def test_float16_may_round_more():
    text = """m (float[1, T, 4] x) => (float[1, T, 4] y) <float k = {%s}>
        { h = Cast <to = 10> (x)  m = ReduceMean <axes = [1]> (h)  f = Cast <to = 1> (m)
          s = Mul (f, k)  y = Sub (x, s) }"""
    assert probe_padded(model(text % "0.0001"), dims={"T": 9}, container=10).ok
    assert at(leak(text % "1.0"))[0] == "m"


def test_what_cannot_be_run_is_said():
    with pytest.raises(FeedError, match="no input has a dim named 'S'"):
        probe_padded(model(LAYERS), dims={"S": 3})
    with pytest.raises(FeedError, match="does not hold a clip"):
        probe_padded(model(LAYERS), dims={"T": 9}, container=5)


# Streaming


def long_chain(count: int) -> ir.Model:
    names = ["x", *(f"t{i}" for i in range(count)), "y"]
    body = " ".join(f"{b} = Neg ({a})" for a, b in itertools.pairwise(names))
    return model(f"m (float[T] x) => (float[T] y) {{ {body} }}")


@pytest.mark.parametrize(("bytes_of", "runs"), [(8000, 5), (100, 2), (None, 6)])
def test_no_more_is_held_than_the_budget_allows(bytes_of: int | None, runs: int):
    made = long_chain(39)
    x = np.ones(1000, np.float32)
    run = Run(made, made, {"x": x})
    stream = Stream(run, run, lambda name: bytes_of, budget=64_000, most=20)
    names = [v.name or "" for node in made.graph for v in node.outputs]
    seen = [name for name, _, _ in stream.pairs(names)]
    assert seen == names
    assert stream.runs == runs
    # The graph's own output is there in each run.
    assert stream.peak <= (64_000 + 8000 if bytes_of != 100 else 21 * 8000)


def test_a_tensor_that_cannot_be_an_output_costs_only_itself():
    text = """m (float[T] x) => (float[T] y)
        { a = Neg (x)  q = SequenceConstruct (a, a)  b = ConcatFromSequence <axis = 0> (q)
          y = Neg (a) }"""
    found = probe_padded(model(text), dims={"T": 4}, container=9)
    assert found.ok
    assert [p.inner.tensor for p in found.places if p.inner.state == "skipped"] == ["q"]


def test_a_small_budget_finds_the_same():
    wide, narrow = (
        probe_padded(model(MEANS), dims={"T": 64}, container=90, budget=n) for n in (1 << 28, 3000)
    )
    assert (wide.runs, narrow.runs > 1) == (1, True)
    assert narrow.sites == wide.sites
    assert [p.inner for p in narrow.places] == [p.inner for p in wide.places]


# The course


def scoped(name: str, **metadata: str) -> tuple[str, ...]:
    node = ir.Node("", "Relu", [None], name=name, metadata_props=metadata)
    return module_path(node)


def test_modules_are_told_by_metadata_or_by_the_name():
    assert scoped("/enc/layers.0/attn/MatMul_1") == ("enc", "layers.0", "attn")
    assert scoped("MatMul_1") == ()
    scopes = {
        "pkg.torch.onnx.name_scopes": "['', 'm', 'm.enc.layers.0', 'm.enc.layers.0.f', 'add']"
    }
    assert scoped("node_add", **scopes) == ("m", "enc", "layers.0", "f")
    spaces = {"namespace": ": a.W/m: a.M/m.layers.1: b.Layer/add: aten.add"}
    assert scoped("node_add", **spaces) == ("m", "layers.1")


# The command line and the page


def saved(made: ir.Model, path: Path) -> str:
    ir.save(made, path)
    return str(path)


MEANS = """m (float[1, T, 4] x) => (float[1, T, 4] y)
    { m = ReduceMean <axes = [1]> (x)  a = Sub (x, m)  y = Tanh (a) }"""


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    bad = saved(model(MEANS), tmp_path / "m.onnx")
    assert main(["probe", "--padded", bad, "--dim", "T=6", "--container", "15"]) == 1
    said = capsys.readouterr()
    assert "with T=6 alone and in 15, padding noise" in said.out
    assert "first     m (ReduceMean" in said.out
    assert all(len(line) <= 80 for line in said.out.replace(bad, "").splitlines())
    assert main(["probe", bad, "--dim", "T=6", "--container", "15", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["first"]["tensor"], data["first"]["op"]) == ("m", "ReduceMean")
    assert {row["tensor"]: row["state"] for row in data["tensors"]}["y"] == "parted"
    assert data["compared"] == 3
    good = saved(model(LAYERS), tmp_path / "a.onnx")
    assert main(["probe", good, "--dim", "T=6"]) == 0
    assert "the outputs agree" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["a.onnx", "b.onnx"], "give one model; graphfix verify names the first tensor"),
        (["a.onnx", "--dim", "T=5,6"], "--dim T: one size, not 2."),
        (["a.onnx", "--container", "5,6"], "--container: one size, not 2."),
        (["a.onnx"], "a.onnx: no such file"),
    ],
)
def test_bad_usage(capsys: pytest.CaptureFixture[str], given: list[str], says: str):
    assert main(["probe", *given]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert says in said.err


def test_it_is_in_the_library():
    assert graphfix.probe_padded is probe_padded
