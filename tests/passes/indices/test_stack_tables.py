"""stack-tables: which lookups become one, with equal rows, and what only looks so."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import execute, model, ops

ROWS, WIDTH = 5, 2
IDS = {0: "4, B, T", 1: "B, 4, T", 2: "B, T, 4"}


def lookups(
    end: str,
    *,
    axis: int = 2,
    places: tuple[int, ...] = (0, 1, 2, 3),
    kind: str = "int64",
    made: str = "float[B, T, 2] y",
    rows: tuple[int, ...] = (ROWS,) * 16,
    opset: int = 17,
) -> ir.Model:
    """``r0`` to ``r3``: the rows of tables ``t0`` to ``t3`` by the ids along an axis."""
    random = np.random.default_rng(0)
    tables = "".join(
        f"float[{rows[i]}, {WIDTH}] t{i} = {{"
        f"{', '.join(map(str, random.integers(-9, 9, rows[i] * WIDTH)))}}}, "
        f"int64 c{i} = {{{place}}}, "
        for i, place in enumerate(places)
    )
    each = " ".join(
        f"i{i} = Gather <axis = {axis}> (ids, c{i}) r{i} = Gather (t{i}, i{i})"
        for i in range(len(places))
    )
    return model(
        f"m ({kind}[{IDS[axis]}] ids, float[B, T, 2] x) => ({made}) "
        f"<{tables}float[7, 2] other = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, 6, 5, 4}}> "
        f"{{ {each} {end} }}",
        opset,
    )


SUM = "a = Add (r0, r1) b = Add (a, r2) y = Add (b, r3)"
BESIDE = "y = Concat <axis = -1> (r0, r1, r2, r3)"


def same(before: ir.Model, after: ir.Model, axis: int) -> None:
    random = np.random.default_rng(1)
    sizes = {"B": 2, "T": 3, "4": 4}
    shape = [sizes[x] for x in IDS[axis].split(", ")]
    dtype = before.graph.inputs[0].dtype
    assert dtype is not None
    ids = random.integers(-ROWS, ROWS, shape).astype(dtype.numpy())
    feeds = {"ids": ids, "x": random.standard_normal((2, 3, 2)).astype(np.float32)}
    for a, b in zip(execute(before, feeds), execute(after, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("kind", ["int64", "int32"])
@pytest.mark.parametrize("axis", IDS)
@pytest.mark.parametrize(("end", "made"), [(SUM, "float[B, T, 2] y"), (BESIDE, "float[B, T, W] y")])
def test_all_rows_are_looked_up_at_once(end: str, made: str, axis: int, kind: str) -> None:
    before, after = (lookups(end, axis=axis, kind=kind, made=made) for _ in range(2))
    assert graphfix.run(after, "stack-tables").changed
    assert not graphfix.run(after, "stack-tables").changed
    assert ops(after).count("GatherND") == 1
    assert "Gather" not in ops(after)
    same(before, after, axis)


@pytest.mark.parametrize("places", [(3, 1, 0), (0, 1, 2), (2, 2, 2), (0, -1, -2)])
def test_some_of_the_ids_in_any_order(places: tuple[int, ...]) -> None:
    end = "a = Add (r2, r0) y = Add (r1, a)"
    before, after = (lookups(end, places=places) for _ in range(2))
    assert graphfix.run(after, "stack-tables").changed
    assert ops(after).count("Gather") == 1
    same(before, after, 2)


@pytest.mark.parametrize(
    "end",
    [
        "a = Add (x, r0) b = Add (a, r1) c = Add (r2, r3) y = Add (b, c)",
        "z = Gather (other, i0) a = Add (r0, r1) b = Add (a, z) c = Add (b, r2) y = Add (c, r3)",
        # A sum that something else reads stays, and is a part of what remains.
        "a = Add (x, r3) o = Neg (a) b = Add (r0, a) c = Add (b, r1) d = Add (c, r2) "
        "y = Add (d, o)",
    ],
)
def test_what_else_is_summed_stays(end: str) -> None:
    before, after = (lookups(end) for _ in range(2))
    assert graphfix.run(after, "stack-tables").changed
    same(before, after, 2)


@pytest.mark.parametrize(
    ("end", "made"),
    [
        ("a = Add (r0, r1) y = Add (a, x)", "float[B, T, 2] y"),  # two are no fewer kernels
        ("a = Add (r0, r1) b = Mul (a, r2) y = Add (b, r3)", "float[B, T, 2] y"),
        ("y = Concat <axis = 1> (r0, r1, r2, r3)", "float[B, U, 2] y"),
        ("y = Concat <axis = -1> (r0, r1, r2, x)", "float[B, T, 8] y"),
        ("a = Add (r0, r0) b = Add (a, r1) y = Add (b, r2)", "float[B, T, 2] y"),
        (f"{SUM} z = Neg (r0) v = Neg (r1)", "float[B, T, 2] y, float[N, M, 2] z, "
         "float[N, M, 2] v"),
        (SUM, "float[B, T, 2] y, float[B, T, 2] r0, float[B, T, 2] r1"),
    ],
)  # fmt: skip
def test_what_only_looks_so_stays(end: str, made: str) -> None:
    assert not graphfix.run(lookups(end, made=made), "stack-tables").changed


def test_tables_of_several_sizes_are_not_stacked() -> None:
    assert not graphfix.run(lookups(SUM, rows=(5, 6, 5, 6)), "stack-tables").changed  # two and two
    before, after = (lookups(SUM, rows=(5, 6, 5, 5)) for _ in range(2))
    assert graphfix.run(after, "stack-tables").changed
    same(before, after, 2)


def test_a_codec_of_sixteen_books_takes_five_kernels() -> None:
    places = tuple(range(4)) * 4
    end = "s0 = Identity (r0) " + " ".join(f"s{i} = Add (s{i - 1}, r{i})" for i in range(1, 16))
    m = lookups(f"{end} y = Identity (s15)", places=places)
    graphfix.run(m, "fast")
    assert ops(m) == ["Gather", "Transpose", "Unsqueeze", "GatherND", "ReduceSum"]


def test_a_sum_of_thousands_is_walked_without_recursion() -> None:
    chain = " ".join(f"s{i} = Add (s{i - 1}, x)" for i in range(1, 3000))
    after = lookups(f"s0 = Add (r0, r1) {chain} t = Add (s2999, r2) y = Add (t, r3)")
    assert graphfix.run(after, "stack-tables").changed
    assert ops(after).count("GatherND") == 1
