"""fix-dims: what gets a size, what is folded, what is refused and why, equal numbers."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from graphfix.engine import pipeline
from graphfix.errors import UsageError
from tests.passes.models import data, execute, model, ops

unoptimized = functools.partial(execute, optimized=False)


def model_of(text: str, *dims: list[int | str]) -> ir.Model:
    """A model whose inputs have dims that ONNX text cannot spell."""
    made = model(text)
    for value, sizes in zip(made.graph.inputs, dims, strict=False):
        value.shape = ir.Shape(sizes)
    return made


def shape(value: ir.Value) -> list[int | str | None]:
    return [x if isinstance(x, int) else x.value for x in value.shape or ()]


def feeds_of(m: ir.Model) -> dict[str, np.ndarray]:
    """Inputs for a model whose dims are all fixed; a dim that is not is 3."""
    rng = np.random.default_rng(0)
    return {
        x.name: np.asarray(
            rng.normal(size=[d if isinstance(d, int) else 3 for d in x.shape]) * 4
        ).astype(x.dtype.numpy())
        for x in m.graph.inputs
    }


def same_numbers(old: np.ndarray, new: np.ndarray) -> None:
    """Integers are the same; floats may be what another kernel rounds them to."""
    rounding = 1e-5 if old.dtype.kind == "f" else 0
    np.testing.assert_allclose(new, old, rtol=rounding, atol=rounding)


def check_same(before: ir.Model, after: ir.Model) -> None:
    onnx.checker.check_model(ir.to_proto(after), full_check=True)
    feeds = feeds_of(after)
    for old, new in zip(unoptimized(before, feeds), unoptimized(after, feeds), strict=True):
        assert old.dtype == new.dtype
        same_numbers(old, new)


def fix(m: ir.Model, given: str) -> tuple[ir.Model, graphfix.PassReport]:
    after = m.clone()
    report = graphfix.run(after, f"fix-dims:{given}").passes[0]
    saved = data(after)
    assert not graphfix.run(after, f"fix-dims:{given}").passes[0].changes
    assert data(after) == saved
    return after, report


# The model, the sizes, the operators that are left.
FOLDED = {
    "a head split": (
        """m (float[B, T, 8] x) => (float[B, T, 2, 4] y) <int64[2] heads = {2, 4}> {
            s = Shape <start = 0, end = 2> (x)
            c = Concat <axis = 0> (s, heads)
            y = Reshape (x, c)
        }""",
        "B=2:T=6",
        ["Reshape"],
    ),
    "the chain of TorchScript": (
        """m (float[B, T, 8] x) => (float[B, U, 16] y)
        <int64 one = {1}, int64 two = {2}, int64[1] zero = {0}, int64[1] sixteen = {16},
         int64[1] rest = {-1}> {
            s = Shape (x)
            t = Gather (s, one)
            h = Div (t, two)
            u = Unsqueeze (h, zero)
            c = Concat <axis = 0> (rest, u, sixteen)
            y = Reshape (x, c)
        }""",
        "T=6",
        ["Reshape"],
    ),
    "a position index": (
        """m (float[B, T] x, float[512, 8] table) => (float[T, 8] y)
        <int64 zero = {0}, int64 one = {1}> {
            s = Shape <start = 1, end = 2> (x)
            t = Squeeze (s)
            r = Range (zero, t, one)
            y = Gather (table, r)
        }""",
        "B=2:T=6",
        ["Gather"],
    ),
    "a causal mask": (
        """m (float[T, T] x) => (float[T, T] y) <float low = {-10000.0}> {
            s = Shape (x)
            ones = ConstantOfShape <value = bool[1] {1}> (s)
            n = Cast <to = 1> (ones)
            tri = Trilu <upper = 0> (n)
            keep = Cast <to = 9> (tri)
            y = Where (keep, x, low)
        }""",
        "T=5",
        ["Where"],
    ),
    "a scale": (
        """m (float[B, T] x) => (float[B, T] y) {
            s = Shape <start = 1, end = 2> (x)
            f = Cast <to = 1> (s)
            q = Sqrt (f)
            y = Div (x, q)
        }""",
        "B=1,T=7",
        ["Div"],
    ),
    "a size below zero": (
        """m (float[T, 4] x) => (float[U, 4] y) <int64 zero = {0}, int64 three = {3},
        int64[1] ax = {0}, int64[1] end = {1000}> {
            s = Shape <start = 0, end = 1> (x)
            m7 = Sub (ax, s)
            h = Div (m7, three)
            y = Slice (x, h, end, ax)
        }""",
        "T=7",
        ["Slice"],
    ),
    "a count": (
        """m (float[B, T] x) => (float y) {
            n = Size (x)
            f = Cast <to = 1> (n)
            s = ReduceSum <keepdims = 0> (x)
            y = Div (s, f)
        }""",
        "B=2:T=3",
        ["ReduceSum", "Div"],
    ),
    "what only a Shape used": (
        """m (float[B, T] x) => (float[B, T] y) {
            r = Relu (x)
            s = Shape (r)
            y = Expand (x, s)
        }""",
        "B=2:T=3",
        ["Expand"],
    ),
    "an output that is a size": (
        "m (float[B, T] x) => (int64[2] y) { y = Shape (x) }",
        "B=2:T=3",
        ["Identity"],
    ),
    "a branch": (
        """m (float[B, T] x, bool c) => (float[N] y) <int64[1] flat = {-1}> {
            y = If (c) <
                then_branch = a () => (float[N] p) {
                    s = Shape (x)
                    n = ReduceProd <keepdims = 1> (s)
                    p = Reshape (x, n)
                },
                else_branch = b () => (float[N] q) { q = Reshape (x, flat) }
            >
        }""",
        "B=2:T=3",
        ["If", "Reshape", "Reshape"],
    ),
}


@pytest.mark.parametrize(("text", "sizes", "left"), FOLDED.values(), ids=FOLDED)
def test_what_is_folded(text: str, sizes: str, left: list[str]) -> None:
    before = model(text)
    after, report = fix(before, sizes)
    assert report.changes
    assert not report.skips
    assert ops(after) == left
    check_same(before, after)


# The model, the sizes, the operators that stay although an input of theirs is constant.
COMPUTED = {
    "a sine, which runtimes round differently": (
        """m (float[T] x) => (float[T] y) <int64 zero = {0}, int64 one = {1}> {
            s = Shape (x)
            t = Squeeze (s)
            r = Range (zero, t, one)
            f = Cast <to = 1> (r)
            w = Sin (f)
            y = Add (x, w)
        }""",
        "T=5",
        ["Sin", "Add"],
    ),
    "a large mask": (
        """m (float[T, T] x) => (float[T, T] y) {
            s = Shape (x)
            o = ConstantOfShape <value = float[1] {1}> (s)
            tri = Trilu (o)
            y = Mul (x, tri)
        }""",
        "T=70",
        ["ConstantOfShape", "Trilu", "Mul"],
    ),
    "float16 arithmetic": (
        """m (float16[T] x) => (float16[T] y) {
            s = Shape (x)
            h = Cast <to = 10> (s)
            q = Sqrt (h)
            y = Div (x, q)
        }""",
        "T=5",
        ["Cast", "Sqrt", "Div"],
    ),
    "a float Range": (
        """m (float[T] x) => (float[T] y) <float zero = {0.0}, float step = {0.1}, int64 one = {1}>
        {
            s = Shape (x)
            f = Cast <to = 1> (s)
            t = Squeeze (f)
            e = Mul (t, step)
            r = Range (zero, e, step)
            n = Shape (r)
            o = Slice (x, one_d, n)
            y = Add (o, r)
        }""".replace("one_d", "z").replace("int64 one = {1}", "int64[1] z = {0}"),
        "T=5",
        ["Range", "Shape", "Slice", "Add"],
    ),
    "random numbers": (
        """m (float[T] x) => (float[T] y) {
            s = Shape (x)
            o = ConstantOfShape <value = float[1] {0}> (s)
            r = RandomNormalLike <seed = 1.0> (o)
            y = Mul (x, r)
        }""",
        "T=5",
        ["RandomNormalLike", "Mul"],
    ),
    "lengths that are data": (
        """m (float[T] x, int64[1] n) => (float[U] y) <int64[1] zero = {0}> {
            s = Shape (x)
            e = Min (s, n)
            y = Slice (x, zero, e)
        }""",
        "T=5",
        ["Min", "Slice"],
    ),
    "a constant that a caller may override": (
        """m (float[T] x, int64[1] k) => (float[U] y) <int64[1] k = {2}, int64[1] zero = {0}> {
            s = Shape (x)
            e = Sub (s, k)
            y = Slice (x, zero, e)
        }""",
        "T=5",
        ["Sub", "Slice"],
    ),
    "constants that no size is in": (
        """m (float[T] x) => (float[T] y) <float a = {2.0}, float b = {3.0}> {
            c = Add (a, b)
            y = Mul (x, c)
        }""",
        "T=5",
        ["Add", "Mul"],
    ),
    "dead code that was there before": (
        "m (float[T] x) => (float[T] y) { d = Sin (x) y = Relu (x) }",
        "T=5",
        ["Sin", "Relu"],
    ),
    "a size that stays open": (
        """m (float[B, T] x) => (float[N] y) {
            s = Shape (x)
            n = ReduceProd <keepdims = 1> (s)
            y = Reshape (x, n)
        }""",
        "T=5",
        ["Shape", "ReduceProd", "Reshape"],
    ),
}


@pytest.mark.parametrize(("text", "sizes", "left"), COMPUTED.values(), ids=COMPUTED)
def test_what_stays_computed(text: str, sizes: str, left: list[str]) -> None:
    before = model(text)
    after, report = fix(before, sizes)
    assert report.changes
    assert ops(after) == left
    onnx.checker.check_model(ir.to_proto(after))
    if "RandomNormalLike" not in left:
        feeds = feeds_of(after) | {"n": np.array([3])} if "n)" in text else feeds_of(after)
        feeds = {k: v for k, v in feeds.items() if k in {x.name for x in after.graph.inputs}}
        feeds.pop("k", None)
        for old, new in zip(
            unoptimized(before, feeds),
            unoptimized(after, feeds),
            strict=True,
        ):
            same_numbers(old, new)


def test_every_declared_shape_gets_the_size() -> None:
    text = """m (float[B, T] x, float[K, T] k, bool c) => (float[B, T] y, float[B, U] z)
    <float[B, T] r, float[T] inner> {
        r = Relu (x)
        y = If (c) <
            then_branch = a () => (float[B, T] p) { p = Neg (r) },
            else_branch = b () => (float[B, T] q) { q = Abs (r) }
        >
        t = Transpose (k)
        z = MatMul (r, t)
    }"""
    after, report = fix(model_of(text, ["B", "T"], ["2*T + 1", "T"]), "T=6")
    x, k, _ = after.graph.inputs
    y, z = after.graph.outputs
    assert [shape(v) for v in (x, k, y, z)] == [["B", 6], [13, 6], ["B", 6], ["B", 13]]
    made = {v.name: v for node in after.graph.all_nodes() for v in node.outputs}
    assert [shape(made[n]) for n in "rpq"] == [["B", 6]] * 3
    assert [c.at for c in report.changes] == ["x", "k"]
    assert report.changes[0].removed == ("FLOAT[B,T] x",)
    assert report.changes[0].added == ("FLOAT[B,6] x",)


def test_an_expression_that_stays_open_keeps_the_other_name() -> None:
    text = "m (float[P, 2] x, float[T] t) => (float[N, 2] y) { y = Relu (x) }"
    after, _ = fix(model_of(text, ["past + T", 2]), "T=3")
    assert shape(after.graph.inputs[0]) == ["past + 3", 2]


@pytest.mark.parametrize("dim", ["T+S", "S*2", "batch size", "Dynamic.0", "a-b"])
def test_a_dim_that_is_not_named_keeps_its_spelling(dim: str) -> None:
    text = "m (float[N, 2] x, float[U] u) => (float[N, 2] y) { y = Relu (x) }"
    after, report = fix(model_of(text, [dim, 2]), "U=3")
    assert report.changes
    assert ir.to_proto(after).graph.input[0].type.tensor_type.shape.dim[0].dim_param == dim


def test_a_name_that_is_no_expression_can_be_fixed() -> None:
    text = "m (float[N, 2] x) => (float[N, 2] y) { y = Relu (x) }"
    after, _ = fix(model_of(text, ["batch size", 2]), "batch size=3")
    assert shape(after.graph.inputs[0]) == [3, 2]


# The model, the sizes, the reason.
REFUSED = {
    "a Reshape frozen at another length": (
        """m (float[B, T, 8] x) => (float[B, 20, 2, 4] y) <int64[4] s = {1, 20, 2, 4}>
        { [view] y = Reshape (x, s) }""",
        "B=1:T=6",
        "'view' cannot run at these sizes: [1, 6, 8] has 48 elements and is reshaped to "
        "[1, 20, 2, 4]",
    ),
    "a rest that does not divide": (
        """m (float[T] x) => (float[A, 4] y) <int64[2] s = {-1, 4}> { y = Reshape (x, s) }""",
        "T=6",
        "[6] has 6 elements and is reshaped to [-1, 4]",
    ),
    "a target that is computed": (
        """m (float[T] x) => (float[2, H] y) <int64[1] two = {2}> {
            s = Shape (x)
            h = Div (s, two)
            c = Concat <axis = 0> (two, h)
            y = Reshape (x, c)
        }""",
        "T=7",
        "[7] has 7 elements and is reshaped to [2, 3]",
    ),
    "a frozen table": (
        """m (float[T] x) => (float[T] y) <float[3] t = {1, 2, 3}> { y = Add (x, t) }""",
        "T=5",
        "[5] and [3] do not go together",
    ),
    "a frozen Expand": (
        """m (float[T] x) => (float[2, 3] y) <int64[2] s = {2, 3}> { y = Expand (x, s) }""",
        "T=5",
        "[5] and [2, 3] do not go together",
    ),
    "a frozen MatMul": (
        """m (float[T] x, float[3, 2] w) => (float[2] y) { y = MatMul (x, w) }""",
        "T=5",
        "[5] is multiplied by [3, 2]",
    ),
    "a frozen Concat": (
        """m (float[2, T] x, float[1, 3] w) => (float[3, T] y) { y = Concat <axis = 0> (x, w) }""",
        "T=5",
        "[2, 5] and [1, 3] are joined on axis 0",
    ),
    "two inputs that must agree": (
        """m (float[T] x, float[S] w) => (float[T] y) { y = Add (x, w) }""",
        "T=5:S=4",
        "[5] and [4] do not go together",
    ),
}


@pytest.mark.parametrize(("text", "sizes", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_and_why(text: str, sizes: str, reason: str) -> None:
    before = model(text)
    after, report = fix(before, sizes)
    assert not report.changes
    assert data(after) == data(before)
    assert reason in report.skips[0][1]


def test_a_branch_that_may_not_run_is_no_conflict() -> None:
    text = """m (float[T] x, bool c) => (float[N] y) <int64[1] four = {4}> {
        y = If (c) <
            then_branch = a () => (float[N] p) { p = Reshape (x, four) },
            else_branch = b () => (float[N] q) { q = Abs (x) }
        >
    }"""
    after, report = fix(model(text), "T=6")
    assert report.changes
    feeds = {"x": np.arange(6, dtype=np.float32), "c": np.array(False)}
    np.testing.assert_array_equal(unoptimized(after, feeds)[0], feeds["x"])


@pytest.mark.parametrize("target", ["{0, -1}", "{2, -1, 3}", "{6, 1}", "{-1}", "{3, 2}"])
def test_a_reshape_that_fits_is_no_conflict(target: str) -> None:
    rank = target.count(",") + 1
    dims = ", ".join("ABC"[:rank])
    _, report = fix(
        model(f"""m (float[T] x) => (float[{dims}] y) <int64[{rank}] s = {target}>
        {{ y = Reshape (x, s) }}"""),
        "T=6",
    )
    assert not report.skips
    assert report.changes


TEXT = "m (float[B, T, 4] x) => (float[B, T, 4] y) { y = Relu (x) }"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("fix-dims:Time=5", r"no input has a dim named 'Time'.*The symbolic dims are: B, T"),
        ("fix-dims:t=5", "no input has a dim named 't'"),
        ("fix-dims:T=0", "T=0 is no size"),
        ("fix-dims:T=-1", "T=-1 is no size"),
        ("fix-dims:T=5s", "T=5s is not a whole number"),
        ("fix-dims:T", "'T' is no option"),
        ("T=5", "no pass 'T=5'"),
        ("additive-mask,T=5", "additive-mask has no option 'T'"),
        ("directml,T=5", "directml is a profile"),
    ],
)
def test_what_is_an_error(spec: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        graphfix.run(model(TEXT), spec)


def test_a_misspelt_name_is_suggested() -> None:
    text = TEXT.replace("T", "frames")
    with pytest.raises(UsageError, match="did you mean 'frames'"):
        graphfix.check(model(text), "fix-dims:frame=5")


def test_without_sizes_it_says_which_there_are() -> None:
    before = model(TEXT)
    after = before.clone()
    report = graphfix.run(after, "fix-dims").passes[0]
    assert data(after) == data(before)
    assert [why for _, why in report.skips] == [
        "no size is given; fix-dims:B=SIZE:T=SIZE would fix them all"
    ]


def test_another_size_later_is_an_error_and_another_dim_is_not() -> None:
    after, _ = fix(model(TEXT), "T=5")
    with pytest.raises(UsageError, match="T is fixed at 5 already"):
        graphfix.run(after, "fix-dims:T=6")
    assert graphfix.run(after, "fix-dims:B=2").changed
    assert after.metadata_props["graphfix.dims"] == "B=2:T=5"
    assert shape(after.graph.inputs[0]) == [2, 5, 4]


def test_both_spellings_are_one_pass() -> None:
    [one] = pipeline.parse_passes("fix-dims:T=500:B=1")
    [two, three] = pipeline.parse_passes("fix-dims:T=500,B=1,cumsum-index")
    assert one == two
    assert three.name == "cumsum-index"
    assert pipeline.spec_of([one]) == "fix-dims:T=500:B=1"
    assert pipeline.parse_passes(pipeline.spec_of([two, three])) == [two, three]


def test_a_comma_continues_the_options_of_any_pass() -> None:
    [one] = pipeline.parse_passes("additive-mask:floor=-2000,floor=-3000")
    assert pipeline.spec_of([one]) == "additive-mask:floor=-3000"


def test_a_dim_may_be_called_dims() -> None:
    after, _ = fix(model(TEXT.replace("T", "dims")), "dims=5")
    assert shape(after.graph.inputs[0]) == ["B", 5, 4]


def test_weights_are_not_read() -> None:
    class Unreadable(ir.Tensor):
        def numpy(self) -> np.ndarray:
            raise AssertionError("a weight was read")

    before = model("m (float[T] x, float[100, 100] w) => (float[T] y) { y = Relu (x) }")
    w = ir.Value(name="big", shape=ir.Shape([100, 100]), type=ir.TensorType(ir.DataType.FLOAT))
    w.const_value = Unreadable(np.zeros((100, 100), np.float32), name="big")
    before.graph.register_initializer(w)
    assert graphfix.run(before, "fix-dims:T=5").changed


def test_check_names_the_inputs() -> None:
    found = graphfix.check(model(TEXT), "fix-dims:T=5")
    assert [(x.message, x.fix) for x in found] == [
        ("input 'x' [B,T,4] would be fixed at T=5", "fix-dims:T=5")
    ]


def test_a_file_is_verified_at_its_sizes(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    ir.save(model(FOLDED["the chain of TorchScript"][0]), file)
    report = graphfix.repair_file(file, passes="fix-dims:T=6")
    assert report.output
    assert report.verdict.ok
    names = list(report.verdict.cases)
    assert names
    assert all("T=6" in name for name in names)
    again = graphfix.repair_file(report.output, tmp_path / "again.onnx", passes="fix-dims:T=6")
    assert not again.changed


ZOO = Path(os.environ.get("GRAPHFIX_ZOO", Path(__file__).parents[4] / "shared" / "zoo")) / "models"


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("bert.hf5.sdpa.ts17", {"batch": 2, "sequence": 9}),
        ("distilbert.hf441.eager.ts14", {"batch": 1, "sequence": 7}),
        ("whisper_like_nomask.hf5.eager.ts17", {"batch": 1, "frames": 30}),
        ("t5_encoder.hf441.eager.ts14", {"batch": 3, "sequence": 12}),
    ],
)
def test_models_of_the_zoo_keep_their_numbers(name: str, sizes: dict[str, int]) -> None:
    file = ZOO / f"{name}.onnx"
    if not file.is_file():
        pytest.skip(f"no zoo at {ZOO}; set GRAPHFIX_ZOO")
    before = graphfix.load(file)
    after, report = fix(before, ":".join(f"{k}={v}" for k, v in sizes.items()))
    assert not report.skips
    assert "Shape" not in ops(after)
    assert len(ops(after)) < 0.8 * len(ops(before))
    assert all(isinstance(d, int) for x in after.graph.outputs for d in x.shape)
    feeds = {
        x.name: np.ones([int(str(d)) for d in x.shape], x.dtype.numpy()) for x in after.graph.inputs
    }
    for old, new in zip(unoptimized(before, feeds), unoptimized(after, feeds), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    b=st.integers(1, 4),
    t=st.integers(1, 40),
    step=st.integers(-5, 5).filter(bool),
    add=st.integers(-50, 50),
)
def test_integer_arithmetic_is_that_of_the_runtime(b: int, t: int, step: int, add: int) -> None:
    before = model(f"""m (float[B, T] x) => (int64[1] q, int64[1] r, int64[2] s, bool[2] l)
    <int64[1] k = {{{step}}}, int64[1] a = {{{add}}}> {{
        n = Shape <start = 1, end = 2> (x)
        d = Add (n, a)
        q = Div (d, k)
        r = Mod (d, k)
        all = Shape (x)
        s = Mul (all, d)
        l = Less (s, all)
    }}""")
    after, _ = fix(before, f"B={b}:T={t}")
    assert set(ops(after)) == {"Identity"}
    check_same(before, after)


def test_short_names_stand_for_the_batch_and_the_time() -> None:
    text = "m (float[batch_size, frames, 8] x) => (float[batch_size, frames, 8] y) {y = Relu (x)}"
    after, _ = fix(model(text), "B=2:T=6")
    assert shape(after.graph.inputs[0]) == [2, 6, 8]


def test_a_dim_that_is_called_t_keeps_its_name() -> None:
    text = "m (float[T, frames, 8] x) => (float[T, frames, 8] y) {y = Relu (x)}"
    after, _ = fix(model(text), "T=6")
    assert shape(after.graph.inputs[0]) == [6, "frames", 8]
