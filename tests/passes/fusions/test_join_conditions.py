"""join-conditions: what one vector conditions is made by one product, with equal numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import execute, model, ops

# Of {n}g, a Gemm [B, 8], what conditions a block x [B, 4, T]: {n}s is the scale and {n}b the shift.
ADAIN = "{n}w = Unsqueeze ({n}g, last) {n}p, {n}b = Split <axis = 1> ({n}w) {n}s = Add ({n}p, one)"
SLICED = """{n}w = Reshape ({n}g, wide) {n}p = Slice ({n}w, zero, four, axis)
    {n}b = Slice ({n}w, four, end, axis) {n}s = Add (one, {n}p)"""
PARTS_FIRST = """{n}f, {n}l = Split <axis = -1> ({n}g) {n}p = Unsqueeze ({n}f, last)
    {n}b = Unsqueeze ({n}l, last) {n}s = Add ({n}p, one)"""
# As of tensors with time first, [T, B, C].
TIME_FIRST = """{n}u = Unsqueeze ({n}g, zero) {n}f, {n}l = Split <axis = 2> ({n}u)
    {n}s = Transpose <perm = [1, 2, 0]> ({n}f) {n}b = Transpose <perm = [1, 2, 0]> ({n}l)"""
BLOCK = "{n}m = Mul ({x}, {n}s) {n}t = Add ({n}m, {n}b) {n}y = Relu ({n}t)"


def blocks(
    parts: list[str], gemm: str = "transB = 1", more: str = "", outputs: str = ""
) -> ir.Model:
    """Blocks one after the other, each conditioned by the style, as ``parts`` say."""
    rng = np.random.default_rng(0)

    def numbers(count: int) -> str:
        return ", ".join(f"{x:.3f}" for x in rng.standard_normal(count))

    given, body, x = [], [], "x"
    dims = "8, 3" if "transB = 1" in gemm else "3, 8"
    for n, part in zip("abcd", parts, strict=False):
        given += [f"float[{dims}] {n}v = {{{numbers(24)}}}, float[8] {n}c = {{{numbers(8)}}}"]
        body.append(f"{n}g = Gemm <{gemm}> (style, {n}v, {n}c)")
        body += [part.format(n=n), BLOCK.format(n=n, x=x)]
        x = f"{n}y"
    return model(
        f"""m (float[B, 4, T] x, float[B, 3] style) => (float[B, 4, T] {x}{outputs})
        <float one = {{1}}, int64[1] last = {{2}}, int64[3] wide = {{-1, 8, 1}},
         int64[1] axis = {{1}}, int64[1] zero = {{0}}, int64[1] four = {{4}}, int64[1] end = {{8}},
         int64[3] two = {{0, 4, 2}}, float[1, 1, 1, 1] deep = {{1}}, {", ".join(given)}>
        {{ {" ".join(body)} {more} }}""",
        17,
    )


def run_both(before: ir.Model, after: ir.Model, style: int | None = None) -> None:
    for batch, length in ((2, 5), (1, 1), (3, 0)):
        rng = np.random.default_rng(1)
        feeds = {
            "x": rng.standard_normal((batch, 4, length), np.float32),
            "style": rng.standard_normal((style or batch, 3), np.float32),
        }
        for a, b in zip(execute(before, feeds), execute(after, feeds), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("gemm", ["transB = 1", "transB = 0, alpha = 1.0"])
@pytest.mark.parametrize(
    "parts",
    [
        [ADAIN] * 3,
        [SLICED] * 2,
        [PARTS_FIRST] * 3,
        [PARTS_FIRST, ADAIN, SLICED],
        [PARTS_FIRST],
    ],
)
def test_what_one_vector_conditions_is_one_product(parts: list[str], gemm: str) -> None:
    before, after = blocks(parts, gemm), blocks(parts, gemm)
    result = graphfix.run(after, "join-conditions")
    assert result.changed
    assert not graphfix.run(after, "join-conditions").changed
    start = ["Concat", "Concat", "Add", "Gemm", "Unsqueeze", "Split"]
    assert ops(after) == [*start, *["Mul", "Add", "Relu"] * len(parts)]
    run_both(before, after)


def test_parts_that_lie_in_the_middle_or_last_are_joined_each_with_their_own() -> None:
    middle = "{n}u = Unsqueeze ({n}g, axis) {n}w = Transpose <perm = [0, 2, 1]> ({n}u)"
    middle += " {n}s, {n}b = Split <axis = 1> ({n}w)"
    before, after = (blocks([ADAIN, middle, ADAIN]) for _ in range(2))
    graphfix.run(after, "join-conditions")
    assert ops(after).count("Gemm") == 2
    run_both(before, after)
    before, after = (blocks([middle] * 3) for _ in range(2))
    graphfix.run(after, "join-conditions")
    assert ops(after)[:5] == ["Concat", "Concat", "Gemm", "Unsqueeze", "Split"]
    assert ops(after).count("Gemm") == 1
    run_both(before, after)


@pytest.mark.parametrize("batch", ["B", 1])
def test_a_batch_behind_the_frames_or_of_one(batch: str | int) -> None:
    for part, turned in ((TIME_FIRST, 6), (ADAIN, 0)):
        before, after = (blocks([part] * 3) for _ in range(2))
        for m in (before, after):
            m.graph.inputs[1].shape = ir.Shape([batch, 3])
        graphfix.run(after, "join-conditions")
        assert [ops(after).count(x) for x in ("Gemm", "Split", "Transpose")] == [1, 1, turned]
        run_both(before, after, style=1 if batch == 1 else None)


TWICE = """{n}w = Unsqueeze ({n}g, last) {n}s = Slice ({n}w, zero, four, axis)
    {n}k = Slice ({n}w, four, end, axis) {n}h = Slice ({n}w, zero, end, axis)
    {n}b = ReduceMean <axes = [1]> ({n}h) {n}z = Relu ({n}k)"""
ACTIVE = "{n}a = Relu ({n}g) {n}w = Unsqueeze ({n}a, last) {n}s, {n}b = Split <axis = 1> ({n}w)"
STRIDED = SLICED.replace("zero, four, axis)", "zero, end, axis, last)")
MIXED = """{n}f, {n}l = Split <axis = 1> ({n}g) {n}s = Unsqueeze ({n}f, last)
    {n}k = Unsqueeze ({n}l, axis) {n}b = Transpose <perm = [0, 2, 1]> ({n}k)"""
BARE = """{n}r = Relu ({n}g) {n}w = Unsqueeze ({n}r, last) {n}s = Slice ({n}w, zero, four, axis)
    {n}b = Slice ({n}w, four, end, axis)"""
HEADS = "{n}h = Reshape ({n}g, two) {n}s, {n}b = Split <axis = 2> ({n}h)"


@pytest.mark.parametrize(
    ("parts", "gemm"),
    [
        ([TWICE] * 3, "transB = 1"),
        ([ACTIVE] * 3, "transB = 1"),
        ([HEADS] * 3, "transB = 1"),
        ([MIXED] * 3, "transB = 1"),
        ([BARE] * 4, "transB = 1"),
        ([ADAIN] * 3, "transA = 1, transB = 1"),
        ([ADAIN] * 3, "transB = 1, beta = 0.5"),
    ],
)
def test_what_is_not_read_whole_or_is_no_plain_product_stays(parts: list[str], gemm: str) -> None:
    after = blocks(parts, gemm)
    assert not graphfix.run(after, "join-conditions").changed


def test_weights_together_are_no_larger_than_a_file_may_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "graphfix.passes.fusions.join_conditions._MAX_WEIGHT_SIZE", 50
    )  # two of three
    before, after = (blocks([ADAIN] * 3) for _ in range(2))
    graphfix.run(after, "join-conditions")
    assert ops(after).count("Gemm") == 2
    run_both(before, after)
    monkeypatch.setattr("graphfix.passes.fusions.join_conditions._MAX_WEIGHT_SIZE", 10)
    assert not graphfix.run(blocks([ADAIN] * 3), "join-conditions").changed


def test_what_is_cut_in_steps_is_cut_as_before() -> None:
    before, after = (blocks([STRIDED] * 3) for _ in range(2))
    graphfix.run(after, "join-conditions")
    assert ops(after)[:6] == ["Concat", "Concat", "Gemm", "Unsqueeze", "Split", "Slice"]
    run_both(before, after)


def test_a_number_that_makes_it_deeper_is_added_as_before() -> None:
    deep = ADAIN.replace(
        "{n}s = Add ({n}p, one)", "{n}e = Add ({n}p, deep) {n}s = Squeeze ({n}e, zero)"
    )
    before, after = (blocks([deep] * 3) for _ in range(2))
    graphfix.run(after, "join-conditions")
    assert ops(after)[:4] == ["Concat", "Concat", "Gemm", "Unsqueeze"]
    assert ops(after).count("Squeeze") == 3
    run_both(before, after)


def test_a_part_that_a_branch_reads_stays_whole() -> None:
    branch = "() => (float[B, 8, 1] o) { o = %s (aw) }"
    more = f"""sum = ReduceSum <keepdims = 0> (x) yes = Cast <to = 9> (sum)
        z = If (yes) <then_branch = t {branch % "Neg"}, else_branch = e {branch % "Relu"}>"""
    before, after = (blocks([ADAIN] * 3, more=more, outputs=", float[B, 8, 1] z") for _ in range(2))
    graphfix.run(after, "join-conditions")
    assert ops(after).count("Split") == 2
    run_both(before, after)


def test_a_part_that_is_an_output_stays() -> None:
    after = blocks([ADAIN] * 3, outputs=", float[B, 4, 1] as")
    graphfix.run(after, "join-conditions")
    assert ops(after).count("Gemm") == 2


def test_a_weight_that_is_read_elsewhere_stays() -> None:
    after = blocks([ADAIN] * 3, more="z = Gemm <transB = 1> (av, style)", outputs=", float[8, B] z")
    graphfix.run(after, "join-conditions")
    assert ops(after).count("Gemm") == 3


@pytest.mark.parametrize(("opset", "joined"), [(12, False), (13, True)])
def test_a_split_takes_its_sizes_as_an_input_from_opset_13_on(opset: int, joined: bool) -> None:
    m = blocks([SLICED] * 2)
    m.graph.opset_imports[""] = opset
    result = graphfix.run(m, "join-conditions")
    assert result.changed == joined
