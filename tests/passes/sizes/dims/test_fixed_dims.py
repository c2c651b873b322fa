"""Sizes in place of dims: by which names, in which shapes, and the nodes that must fail then."""

from __future__ import annotations

import importlib
import re

import onnx_ir as ir
import pytest

from graphfix.errors import UsageError
from graphfix.facts.view import View
from graphfix.graph.dim_spelling import DimSpelling
from tests.passes.models import model

fixed_dims = importlib.import_module("graphfix.passes.sizes.dims.fixed_dims")
INPUTS = "float[2, 3] x, float[2, 4] z, float[0, 3] e"
CONSTANTS = """int64[2] six = {6, 1}, int64[2] five = {5, 1}, int64[2] rest = {-1, 4},
    int64[2] copied = {0, -1}, int64[2] empty = {0, 3}, int64[3] beyond = {2, 3, 0},
    int64[2] wide = {4, 3}"""


@pytest.mark.parametrize(
    ("node", "opset", "reason"),
    [
        ("Reshape (x, six)", 17, None),
        ("Reshape (x, five)", 17, "[2, 3] has 6 elements and is reshaped to [5, 1]"),
        ("Reshape (x, rest)", 17, "[2, 3] has 6 elements and is reshaped to [-1, 4]"),
        ("Reshape (x, copied)", 17, None),
        (
            "Reshape <allowzero = 1> (x, empty)",
            17,
            "[2, 3] has 6 elements and is reshaped to [0, 3]",
        ),
        ("Reshape (x, beyond)", 17, "[2, 3] has 6 elements and is reshaped to [2, 3, 0]"),
        ("Reshape (e, five)", 17, None),  # nothing is known to fail where nothing is
        ("Add (x, z)", 17, "[2, 3] and [2, 4] do not go together"),
        ("Max (x, z)", 8, "[2, 3] and [2, 4] do not go together"),
        ("Expand (x, wide)", 17, "[2, 3] and [4, 3] do not go together"),
        ("MatMul (x, z)", 17, "[2, 3] is multiplied by [2, 4]"),
        ("Concat <axis = -1> (x, z)", 17, None),
        ("Concat <axis = 0> (x, z)", 17, "[2, 3] and [2, 4] are joined on axis 0"),
        ("Concat <axis = -2> (x, z)", 17, "[2, 3] and [2, 4] are joined on axis 0"),
    ],
)
def test_conflicts(node: str, opset: int, reason: str | None) -> None:
    m = model(f"m ({INPUTS}) => (y) <{CONSTANTS}> {{ y = {node} }}", opset)
    reasons = [skip.reason for skip in fixed_dims.find_conflicts(View(m))]
    assert [x.partition("sizes: ")[2] for x in reasons] == ([reason] if reason else [])


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ("Add (x, one)", None),
        ("Add (x, row)", None),
        ("Add (row, x)", None),
        ("Add (x, column)", None),
        ("Add (open, x)", None),  # of one size only nothing is known to fail
        ("Max (x, open, z)", "[2, 3] and [2, 4] do not go together"),
        ("Max (x, row, row)", None),
        ("Expand (x, likely)", None),
        ("Expand (x, fed)", None),
        ("Expand (open, wide)", None),
        ("MatMul (x, three)", None),
        ("MatMul (x, vector)", None),
        ("MatMul (vector, three)", None),
        ("MatMul (vector, x)", "[3] is multiplied by [2, 3]"),
        ("MatMul (x, open)", None),
        ("MatMul (open, x)", None),
        ("MatMul (batch, three)", None),
        ("MatMul (batch, x)", "[5, 2, 3] is multiplied by [2, 3]"),
        ("Concat <axis = 1> (x, z, open)", None),
        ("Concat <axis = 0> (open, open)", None),
        ("Concat <axis = 1> (x, three)", "[2, 3] and [3, 4] are joined on axis 1"),
        ("Reshape (open, five)", None),
        ("Reshape (x, fed)", None),
        ("Reshape (x, copied5)", "[2, 3] has 6 elements and is reshaped to [2, 5]"),
        ("Reshape <allowzero = 1> (x, copied5)", "[2, 3] has 6 elements and is reshaped to [0, 5]"),
        ("Conv (x, z)", None),
    ],
)
def test_what_goes_together(node: str, reason: str | None) -> None:
    inputs = f"{INPUTS}, float[T, 3] open, int64[2] fed, float[5, 2, 3] batch"
    constants = f"""{CONSTANTS}, float one = {{1}}, float[3] row = {{1, 1, 1}},
        float[2, 1] column = {{1, 1}}, int64[3] likely = {{5, 2, 1}},
        float[3, 4] three = {{{", ".join("1" * 12)}}}, float[3] vector = {{1, 1, 1}},
        int64[2] copied5 = {{0, 5}}"""
    m = model(f"m ({inputs}) => (y) <{constants}> {{ y = {node} }}", 17)
    reasons = [skip.reason for skip in fixed_dims.find_conflicts(View(m))]
    assert [x.partition("sizes: ")[2] for x in reasons] == ([reason] if reason else [])


B, T, T1, NAMELESS = (ir.SymbolicDim(x) for x in ("B", "T", "T + 1", None))


@pytest.mark.parametrize(
    ("dim", "sizes", "result"),
    [
        (4, {"T": 7}, 4),
        (T, {"T": 7}, 7),
        (T, {"B": 7}, T),
        (T1, {"T": 7}, 8),
        (T1, {"T + 1": 5}, 5),
        (NAMELESS, {"T": 7}, NAMELESS),
        (ir.SymbolicDim("B*T"), {"T": 7}, ir.SymbolicDim("7*B")),
    ],
)
def test_sizes_are_put_in(
    dim: int | ir.SymbolicDim, sizes: dict[str, int], result: int | ir.SymbolicDim
) -> None:
    assert fixed_dims.with_sizes(dim, sizes) == result


NAMED = "m (float[batch, frames, 80] x, float[2, frames] more) => (y) { y = Relu (x) }"


@pytest.mark.parametrize(
    ("sizes", "result"),
    [
        ([("frames", 5)], {"frames": 5}),
        ([("T", 5)], {"frames": 5}),
        ([("B", 5), ("T", 6)], {"batch": 5, "frames": 6}),
        ([("frames", 5), ("T", 5)], {"frames": 5}),
        ([("x.1", 5)], {"frames": 5}),
        ([("x.2", 80)], {}),
        ([("more.1", 5)], {"frames": 5}),
        ([("other", 5)], {"other": 5}),
        ([("frames", 5), ("T", 6)], "by: frames is given two sizes, 5 and 6"),
        ([("frames", 5), ("x.1", 6)], "by: frames is given two sizes, 5 and 6"),
        ([("x.2", 81)], "by: axis 2 of 'x' is 80 already"),
    ],
)
def test_sizes_by_the_names_of_dims(
    sizes: list[tuple[str, int]], result: dict[str, int] | str
) -> None:
    m = model(NAMED)
    if isinstance(result, str):
        with pytest.raises(UsageError, match=re.escape(result)):
            fixed_dims.sizes_by_name(m, sizes, "by")
    else:
        assert fixed_dims.sizes_by_name(m, sizes, "by") == result


def test_a_dim_without_a_name_is_called_by_its_place() -> None:
    m = model("m (float[2, ?] x) => (y) { y = Relu (x) }")
    assert fixed_dims.sizes_by_name(m, [("x.1", 5)], "by") == {"x_1": 5}


def test_a_short_name_is_one_only_where_no_dim_has_or_had_it() -> None:
    m = model(NAMED)
    assert fixed_dims.sizes_by_name(m, [("T", 5)], "by", {"T"}) == {"T": 5}
    m = model("m (float[B, T, N] x) => (y) { y = Relu (x) }")
    assert fixed_dims.sizes_by_name(m, [("T", 5)], "by") == {"T": 5}
    # Of two dims that vary neither is T.
    m = model("m (float[batch, a, b] x) => (y) { y = Relu (x) }")
    assert fixed_dims.sizes_by_name(m, [("T", 5)], "by") == {"T": 5}


def test_a_name_that_no_dim_has() -> None:
    fixed_dims.require_dims(["a"], ["a", "b c"], "by")
    with pytest.raises(UsageError, match=r"by: no input has a dim named 'd'.* are: a, b c"):
        fixed_dims.require_dims(["a", "d"], ["a", "b c"], "by")
    with pytest.raises(UsageError, match="symbolic dims are: none"):
        fixed_dims.require_dims(["d"], [], "by")


@pytest.mark.parametrize(
    ("declared", "inferred", "result"),
    [
        (["T", 4], None, [5, 4]),
        (["B", "T + 1"], None, ["B", 6]),
        (["B", 4], None, None),
        (["B", "x"], ["B", 7], ["B", 7]),
        (["B", "x"], [7], None),
        (["B", "x"], ["B", "T"], None),
        (["B", 4], ["B", 7], None),
        (["B", "B*T"], None, ["B", "5*B"]),
        (["a-b"], None, [3]),
        (None, ["B"], None),
    ],
)
def test_declared_shapes_get_sizes(
    declared: list[int | str] | None, inferred: list[int | str] | None, result: list[int | str]
) -> None:
    m = model("m (float[B, T] x, float[N] z) => (y) { y = Relu (x) }")
    m.graph.inputs[1].shape = ir.Shape(["a-b"])
    value = ir.Value(name="v", shape=None if declared is None else ir.Shape(declared))
    before = value.shape
    dims = None if inferred is None else ir.Shape(inferred)
    changed = fixed_dims.set_sizes(value, {"T": 5, "a-b": 3}, dims, DimSpelling(m))
    assert changed == (result is not None)
    assert value.shape is before or value.shape == ir.Shape(result)


@pytest.mark.parametrize(
    ("declared", "inferred", "contradicts"),
    [
        (4, 4, False),
        (4, 5, False),  # told apart from one size alone elsewhere
        (T, 5, True),
        (B, 5, True),
        (NAMELESS, 5, False),
        (ir.SymbolicDim("other"), 5, False),
        (4, T, True),
        (4, NAMELESS, False),
        (4, ir.SymbolicDim("unknown"), False),
        (4, ir.SymbolicDim("T - T + 4"), False),
        (4, T1, True),
        (T, B, True),
        (T, T, False),
        (T, T1, False),  # an expression may be written otherwise
        (T1, T, False),
        (ir.SymbolicDim("other"), T, False),
        (NAMELESS, T, False),
    ],
)
def test_a_declared_dim_is_wrong(
    declared: int | ir.SymbolicDim, inferred: int | ir.SymbolicDim, contradicts: bool
) -> None:
    assert fixed_dims.contradicts_dim(declared, inferred, frozenset({"B", "T"})) == contradicts


@pytest.mark.parametrize(
    ("declared", "inferred", "renewed"),
    [
        (["B", 4], ["B", "T"], ["B", "T"]),
        (["B", "x"], ["B", "T"], ["B", "x"]),
        (["T", "T"], ["B", "T"], ["B", "T"]),
        (["B", 4], ["B", 5], ["B", 5]),
        (["B", 4], ["B", 4, "T"], ["B", 4, "T"]),
        (["B", 4], ["B", "hidden"], ["B", 4]),
        (["B", 4, 4], ["B", "T", "hidden"], ["B", "T", 4]),
        (None, ["B", "hidden"], ["B", None]),
        (None, ["a_b"], ["a-b"]),
        (["a-b"], ["a_b"], ["a-b"]),
        (["a-b"], ["T"], ["T"]),
    ],
)
def test_a_wrong_dim_is_renewed(
    declared: list[int | str] | None, inferred: list[int | str], renewed: list[int | str | None]
) -> None:
    m = model("m (float[B, T] x, float[N] z) => (y) { y = Relu (x) }")
    m.graph.inputs[1].shape = ir.Shape(["a-b"])
    spelling, names = DimSpelling(m), frozenset({"B", "T", "a_b"})
    shape = None if declared is None else ir.Shape(declared)
    dims = ir.Shape(inferred)
    assert fixed_dims.renew_shape(shape, dims, names, spelling) == ir.Shape(renewed)
    if shape is not None and len(shape) == len(dims):
        wrong = fixed_dims.contradicts_shape(shape, dims, names, spelling)
        assert wrong == (declared != renewed)
