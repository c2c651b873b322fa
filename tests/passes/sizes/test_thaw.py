"""thaw: which frozen Reshape follows its input again, what is left and why, equal numbers."""

from __future__ import annotations

import importlib
import math
import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfix
from graphfix.facts import view
from tests.passes.models import data, execute, model

ZOO = Path(os.environ.get("GRAPHFIX_ZOO", Path(__file__).parents[4] / "shared" / "zoo")) / "models"
frozen = importlib.import_module("graphfix.passes.sizes.dims.frozen")


def test_the_inputs_are_asked_for_their_dims_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # For each node again, a decoder of 27,000 nodes and 400 caches took minutes to check.
    asked: list[ir.Model] = []
    symbols = view.input_dim_symbols
    monkeypatch.setattr(view, "input_dim_symbols", lambda x: asked.append(x) or symbols(x))
    nodes = "\n".join(f"y{i + 1} = Add (y{i}, w)" for i in range(20))
    given = model(f"m (float[B, T, 4] y0, float[T, 4] w) => (float[B, T, 4] y20) {{ {nodes} }}")
    assert list(graphfix.get_pass("thaw").sites(given)) == []
    assert len(asked) == 1


def reshape(data: str, target: list[int], attributes: str = "") -> ir.Model:
    rank = len(target)
    return model(f"""m (float[{data}] x) => (float[{", ".join("PQRSU"[:rank])}] y)
    <int64[{rank}] to = {{{", ".join(map(str, target))}}}>
    {{ y = Reshape {attributes} (x, to) }}""")


def targets(m: ir.Model) -> list[list[int]]:
    return [
        node.inputs[1].const_value.numpy().tolist()
        for node in m.graph.all_nodes()
        if node.op_type == "Reshape"
    ]


def thaw(m: ir.Model) -> tuple[ir.Model, graphfix.PassReport]:
    after = m.clone()
    report = graphfix.run(after, "thaw").passes[0]
    saved = data(after)
    again = graphfix.run(after, "thaw").passes[0]
    assert not again.changes
    assert again.skips == report.skips
    assert data(after) == saved
    return after, report


# The dims of the data, the frozen target, what it becomes, the size that it was frozen at.
FROZEN = {
    "heads": ("1, T, 512", [1, 200, 8, 64], [1, 0, 8, 64], 200),
    "heads of a batch that copies": ("B, T, 512", [0, 200, 8, 64], [0, 0, 8, 64], 200),
    "merged heads": ("1, T, 8, 64", [1, 200, 512], [1, 0, 512], 200),
    "no batch": ("T, 12", [25, 3, 4], [0, 3, 4], 25),
    "another place": ("T, 6", [2, 35, 3], [2, -1, 3], 35),
    "folded into another": ("1, T, 6", [210, 2], [-1, 2], 70),
    "a multiple of the length": ("T, 4", [1, 1, 44], [1, 1, -1], 11),
    "flat": ("T, 3", [15], [-1], 5),
    "a length beside itself": ("T, T", [11, 11], [0, 0], 11),
    "a square": ("T, T, 2", [2, 121], [2, -1], 11),
    "a square with heads": ("4, T, T", [1, 4, 11, 11], [1, 4, 0, -1], 11),
}


@pytest.mark.parametrize(("dims", "target", "wanted", "size"), FROZEN.values(), ids=FROZEN)
def test_a_frozen_target_follows_its_input(
    dims: str, target: list[int], wanted: list[int], size: int
) -> None:
    before = reshape(dims, target)
    after, report = thaw(before)
    assert not report.skips
    assert len(report.changes) == 1
    assert targets(after) == [wanted]
    onnx.checker.check_model(ir.to_proto(after), full_check=True)
    given = [int(d) if d.isdigit() else {"T": size, "B": 2}[d] for d in dims.split(", ")]
    x = np.arange(math.prod(given), dtype=np.float32).reshape(given)
    np.testing.assert_array_equal(execute(before, {"x": x})[0], execute(after, {"x": x})[0])
    longer = [size + 3 if d == "T" else n for d, n in zip(dims.split(", "), given, strict=True)]
    [y] = execute(after, {"x": np.zeros(longer, np.float32)})
    assert y.size == math.prod(longer)
    with pytest.raises(Exception, match="Reshape"):
        execute(before, {"x": np.zeros(longer, np.float32)})


# The dims of the data, the target, what the reason holds (None: nothing is said).
LEFT = {
    "two entries that could be the length": (
        "T, 8",
        [8, 8],
        "runs only where T is 8: more than one entry may stand for it",
    ),
    "a width that holds the length": ("1, T, 400", [1, 200, 400], "more than one entry"),
    "a width that holds it in part": ("1, T, 14", [1, 98], "more than one entry"),
    "a batch and a length": (
        "B, T, 8",
        [1, 200, 8],
        "B*T is 200; fix-dims of all but one of them tells them apart",
    ),
    "a rest beside a frozen length": (
        "1, T, 32",
        [1, 19, -1, 16],
        "[1, T, 32] is reshaped to [1, 19, -1, 16], which runs only where T is a multiple of 19",
    ),
    "a rest for the batch": ("B, T, 8", [-1, 200, 8], "B*T is a multiple of 200"),
    "two lengths at other places": ("T, T, 2, 2", [4, 1, 11, 11], "it needs more than one -1"),
    "half of the length": ("T, 2", [4, 4], "runs only where T is 8: no entry holds it"),
    "a number that fits at no size": ("T, 8", [3, 5], None),
    "no whole size": ("T, T", [2, 3], None),
    "a rest for the length": ("1, T, 8", [1, -1, 2, 4], None),
    "copies": ("B, T, 8", [0, 0, 2, 4], None),
    "a rest for all": ("B, T, 8", [-1], None),
    "a rest and a width": ("B, T, 8", [-1, 8], None),
    "a rest that is half a width": ("B, T, 8", [0, -1, 4], None),
    "fixed to fixed": ("2, 6", [3, 4], None),
    "a zero where the data have no dim": ("T", [5, 0], None),
}


@pytest.mark.parametrize(("dims", "target", "reason"), LEFT.values(), ids=LEFT)
def test_what_is_left_and_why(dims: str, target: list[int], reason: str | None) -> None:
    before = reshape(dims, target)
    after, report = thaw(before)
    assert not report.changes
    assert data(after) == data(before)
    assert [reason in why for _, why in report.skips] == ([True] if reason else [])


MEETS = {
    "an Expand": (
        """m (float[1, 1, T] x) => (float[A, B, C] y) <int64[3] to = {1, 4, 20}>
        { y = Expand (x, to) }""",
        "'to' [1, 4, 20] meets 'x' [1, 1, T], which runs only where T is 20 or 1",
    ),
    "positions": (
        """m (float[B, T, 2] x) => (float[B, T, 2] y)
        <float[1, 3, 2] pos = {1, 2, 3, 4, 5, 6}> { y = Add (x, pos) }""",
        "'pos' [1, 3, 2] meets 'x' [B, T, 2], which runs only where T is 3 or 1",
    ),
    "a mask": (
        """m (float[T, T] x) => (float[T, T] y)
        <bool[3, 3] mask = {1, 0, 0, 1, 1, 0, 1, 1, 1}, float low = {-10000.0}>
        { y = Where (mask, x, low) }""",
        "'mask' [3, 3] meets 'x' [T, T], which runs only where T is 3 or 1",
    ),
    "bounds": (
        """m (float[B, T] x) => (float[B, T] y) <float[3] low = {1, 2, 3}> { y = Max (x, low) }""",
        "'low' [3] meets 'x' [B, T], which runs only where T is 3 or 1",
    ),
    "a mask that is computed from a frozen index": (
        """m (float[T] x, int64[1] n) => (float[T] y) <int64[3] index = {0, 1, 2}, float z = {0.0}>
        { mask = Less (index, n) y = Where (mask, x, z) }""",
        "'mask' [3] meets 'x' [T], which runs only where T is 3 or 1",
    ),
}


@pytest.mark.parametrize(("text", "reason"), MEETS.values(), ids=MEETS)
def test_fixed_sizes_that_a_dim_meets_are_findings(text: str, reason: str) -> None:
    before = model(text)
    after, report = thaw(before)
    assert not report.changes
    assert data(after) == data(before)
    assert [why for _, why in report.skips] == [reason]


FLAT = """m (float[N, 2, 3] x) => (float[%s, 4] y)
    <float[6, 4] w = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2},
     int64[%d] flat = {%s}> { f = Reshape (x, flat) y = MatMul (f, w) }"""


def test_a_batch_of_1_follows_the_batch_that_an_output_declares() -> None:
    after, report = thaw(model(FLAT % ("N", 2, "1, 6")))
    assert targets(after) == [[0, 6]]
    assert not report.skips
    [y] = execute(after, {"x": np.ones((3, 2, 3), np.float32)})
    assert y.tolist() == [[4, 4, 4, 4]] * 3
    assert str(after.graph.outputs[0].shape) == "[N,4]"


@pytest.mark.parametrize(
    ("batch", "rank", "target"),
    [("1", 2, "1, 6"), ("M", 2, "1, 6"), ("B", 3, "1, 1, 6")],
)
def test_a_batch_of_1_stays_where_it_may_be_meant(batch: str, rank: int, target: str) -> None:
    before = model(FLAT % (batch, rank, target))
    after, report = thaw(before)
    assert data(after) == data(before)
    [(_, reason)] = report.skips
    assert "runs only where N is 1; fix-dims:N=1 says so" in reason


def test_a_size_that_pads_hold_is_told_with_the_node_and_the_way_out() -> None:
    """As of relative positions that Python padded and cut for one length: T * 10 is 2 * T * T."""
    before = model("""m (float[1, 1, T, 4] x) => (float[1, N, M] y)
    <float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}, int64[1] one = {1},
     int64[8] one_more = {0, 0, 0, 0, 0, 0, 0, 7}, int64[1] two = {2}, int64[1] three = {3}> {
        scores = MatMul (x, w)
        padded = Pad (scores, one_more)
        shape = Shape (x)
        t = Slice (shape, two, three)
        double = Mul (t, two)
        target = Concat <axis = 0> (one, double, t)
        y = Reshape (padded, target)
    }""")
    before.graph[-1].name = "skew"
    after, report = thaw(before)
    assert data(after) == data(before)
    [(at, reason)] = report.skips
    assert at == "skew"
    assert "runs only where T is 5" in reason
    assert "run fix-dims:T=5" in reason
    assert [x.message for x in graphfix.check(before, "thaw")] == [reason]


def test_what_a_weight_wants_is_no_frozen_size() -> None:
    before = model("""m (float[B, F] x) => (float[B, 2] y)
        <float[3, 2] w = {1, 2, 3, 4, 5, 6}> { y = MatMul (x, w) }""")
    assert not thaw(before)[1].skips


QUIET = {
    "a bias": "m (float[B, T] x) => (float[B, T] y) <float[1] b = {2}> { y = Add (x, b) }",
    "a width": "m (float[T, 2] x) => (float[T, 2] y) <float[2] b = {2, 3}> { y = Mul (x, b) }",
    "an outer sum": """m (float[T, 1] x) => (float[T, 3] y) <float[3] b = {1, 2, 3}>
        { y = Add (x, b) }""",
    "two dims": "m (float[T] x, float[S] k) => (float[T] y) { y = Add (x, k) }",
    "a Slice, which may be meant": """m (float[T] x) => (float[S] y)
        <int64[1] zero = {0}, int64[1] end = {200}> { y = Slice (x, zero, end) }""",
    "a target that is computed": """m (float[T, 4] x) => (float[P, Q] y) {
        s = Shape (x) y = Reshape (x, s) }""",
    "an Expand that is computed": """m (float[1, T] x, float[B, T, 3] k) => (float[P, Q, R] y) {
        s = Shape (k) u = Transpose (x) y = Expand (u, s) }""",
    "a length that is data": """m (float[N] x) => (float[P, Q] y) <int64[2] to = {1, 5}> {
        i = NonZero (x) f = Cast <to = 1> (i) y = Reshape (f, to) }""",
    "a zero that is meant": """m (float[T, 4] x) => (float[P, Q] y) <int64[2] to = {0, 4}>
        { y = Reshape <allowzero = 1> (x, to) }""",
}


@pytest.mark.parametrize("text", QUIET.values(), ids=QUIET)
def test_what_is_not_frozen_keeps_every_byte(text: str) -> None:
    before = model(text)
    after, report = thaw(before)
    assert not report.changes
    assert not report.skips
    assert data(after) == data(before)


CHAIN = """m (float[1, T, 8] x) => (float[1, 7, 8] y)
<int64[4] split = {1, 7, 2, 4}, int64[3] merge = {1, 7, 8}, float[1, 7, 2, 4] s> {
    s = Reshape (x, split)
    t = Transpose <perm = [0, 2, 1, 3]> (s)
    u = Transpose <perm = [0, 2, 1, 3]> (t)
    m = Reshape (u, merge)
    a = Add (m, x)
    s2 = Reshape (a, split)
    y = Reshape (s2, merge)
}"""


def test_what_a_frozen_reshape_hides_is_thawed_too() -> None:
    before = model(CHAIN)
    after, report = thaw(before)
    assert targets(after) == [[1, 0, 2, 4], [1, 0, 8], [1, 0, 2, 4], [1, 0, 8]]
    assert len(report.changes) == 4
    assert not report.skips
    for n in (7, 1, 12):
        x = np.arange(n * 8, dtype=np.float32).reshape(1, n, 8)
        np.testing.assert_array_equal(execute(after, {"x": x})[0], 2 * x)


def test_declared_shapes_follow() -> None:
    after, _ = thaw(model(CHAIN))
    made = {v.name: str(v.shape) for node in after.graph for v in node.outputs}
    assert made["s"] == "[1,T,2,4]"
    assert made["y"] == "[1,T,8]"


def test_a_branch_is_thawed_too() -> None:
    before = model("""m (float[1, T, 8] x, bool c) => (float[1, N, 2, 4] y)
    <int64[4] split = {1, 7, 2, 4}> {
        y = If (c) <
            then_branch = a () => (float[1, N, 2, 4] p) { p = Reshape (x, split) },
            else_branch = b () => (float[1, N, 2, 4] q) { n = Neg (x) q = Reshape (n, split) }
        >
    }""")
    after, _ = thaw(before)
    assert targets(after) == [[1, 0, 2, 4]] * 2
    for n in (7, 9):
        [y] = execute(after, {"x": np.ones((1, n, 8), np.float32), "c": np.array(False)})
        assert y.shape == (1, n, 2, 4)


def test_a_shared_target_is_not_edited_for_others() -> None:
    before = model("""m (float[1, T, 8] x, float[1, 7, 8] k)
        => (float[P, Q, R, S] y, float[P, Q, R, S] z)
    <int64[4] split = {1, 7, 2, 4}> { y = Reshape (x, split) z = Reshape (k, split) }""")
    after, _ = thaw(before)
    assert targets(after) == [[1, 0, 2, 4], [1, 7, 2, 4]]


def test_other_attributes_and_the_name_stay() -> None:
    before = reshape("1, T, 8", [1, 7, 2, 4], "<allowzero = 1>")
    before.graph[0].name = "view"
    after, _ = thaw(before)
    assert after.graph[0].name == "view"
    x = np.arange(40, dtype=np.float32).reshape(1, 5, 8)
    np.testing.assert_array_equal(execute(after, {"x": x})[0], x.reshape(1, 5, 2, 4))


def test_check_says_what_it_was_frozen_at() -> None:
    found = graphfix.check(reshape("1, T, 8", [1, 7, 2, 4]), "thaw")
    assert [x.message for x in found] == ["its target is frozen at T = 7"]


@pytest.mark.parametrize("name", ["hubert_nomask", "wav2vec2_ln_nomask"])
def test_a_model_of_the_zoo_frozen_and_thawed_is_the_model(name: str) -> None:
    file = ZOO / f"{name}.hf441.eager.ts14.onnx"
    if not file.is_file():
        pytest.skip(f"no zoo at {ZOO}; set GRAPHFIX_ZOO")
    given = graphfix.load(file)
    graphfix.run(given, "fix-dims:batch=1")
    before = given.clone()
    graphfix.run(before, "fix-dims:samples=400")
    for old, new in zip(given.graph.inputs, before.graph.inputs, strict=True):
        new.shape = old.shape  # as a tracer leaves it: the input is open, what follows is not
    after, report = thaw(before)
    assert len(report.changes) == 6
    assert not report.skips
    rng = np.random.default_rng(0)
    x = {given.graph.inputs[0].name: rng.normal(size=(1, 777)).astype(np.float32)}
    with pytest.raises(Exception, match="Reshape"):
        execute(before, x)
    for old, new in zip(execute(given, x), execute(after, x), strict=True):
        np.testing.assert_allclose(old, new, atol=1e-5)


def test_a_file_is_verified_at_the_size_that_it_was_frozen_at(tmp_path: Path) -> None:
    ir.save(reshape("1, T, 8", [1, 213, 2, 4]), tmp_path / "model.onnx")
    report = graphfix.repair_file(tmp_path / "model.onnx", passes="thaw")
    assert report.output
    assert report.verdict.ok


def as_numbers(dims: list[int | str], size: int) -> list[int]:
    return [size if d == "T" else int(d) for d in dims]


@settings(max_examples=400, deadline=None)
@given(
    dims=st.lists(st.sampled_from([1, 2, 3, 4, 6, "T"]), min_size=1, max_size=4),
    truth=st.permutations([1, 2, 3, "T"]),
    size=st.integers(1, 30),
    other=st.integers(1, 30),
)
def test_what_is_thawed_is_the_only_way_to_read_the_target(
    dims: list[int | str], truth: list[int | str], size: int, other: int
) -> None:
    # The target as it was traced from any order of the same factors, so that counts agree.
    if dims.count("T") != 1 or math.prod(int(d) for d in dims if d != "T") != 6:
        return
    symbolic = [ir.SymbolicDim("T") if d == "T" else int(d) for d in dims]
    found = frozen.thaw_target(symbolic, as_numbers(truth, size))
    if not isinstance(found, frozen.ThawedTarget):
        return
    x = np.arange(6 * other).reshape(as_numbers(dims, other))
    target = [x.shape[i] if n == 0 else n for i, n in enumerate(found.target)]
    np.testing.assert_array_equal(x.reshape(target), x.reshape(as_numbers(truth, other)))


def test_a_0_that_means_an_empty_tensor_copies_nothing() -> None:
    after, report = thaw(reshape("T, 0, 4", [7, 0, 4], "<allowzero = 1>"))
    assert targets(after) == [[7, 0, 4]]
    assert not report.changes
    assert not report.skips
