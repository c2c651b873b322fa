"""Shape rules of what joins, rearranges, cuts and fills up tensors, each alone."""

from __future__ import annotations

import pytest

from graphfix.facts.symbolic import layout
from tests.facts.symbolic.bodies import apply_rule, keys, size_of

INPUTS = """float[B, T, 4] x, float[T, 4] two, float[1, T, 4] one, float[] any, float[6] six,
    float[B, 8] wide, int64[1] u, int64[3] target, int64[N] some, int64 n, float[B, 1, 1, 4] thin,
    float[2, 1, 3] fixed, float[0, 4] none, float[P, T] cache"""
OPEN = 2**31 - 1


def ints(name: str, *numbers: int) -> str:
    return f"{name} = Constant <value_ints = [{', '.join(map(str, numbers))}]> ()"


def scalar(name: str, number: int) -> str:
    return f"{name} = Constant <value_int = {number}> ()"


def wanted(dims: list[int | str | None] | None) -> list[int | str | None] | None:
    return None if dims is None else keys(*dims)


@pytest.mark.parametrize(
    ("body", "dims"),
    [
        ("y = Add (x, two)", ["B", "T", 4]),
        ("y = Add (two, x)", ["B", "T", 4]),
        ("y = Add (x, any)", None),
        ("y = Add (any, x)", None),
        ("y = Sum (x, one, two)", ["B", "T", 4]),
        ("y = Clip (x, , two)", ["B", "T", 4]),
    ],
)
def test_a_broadcast(body: str, dims: list[int | str | None] | None) -> None:
    assert apply_rule(layout.infer_broadcast, body, INPUTS)[0] == wanted(dims)


@pytest.mark.parametrize(
    ("body", "dims"),
    [
        (f"{ints('t', 2, 1, 1, 1)} y = Expand (x, t)", [2, "B", "T", 4]),
        ("y = Expand (any, target)", None),
        ("y = Expand (x, some)", None),
        ("y = Expand (six, target)", [None, None, 6]),
    ],
)
def test_an_expand(body: str, dims: list[int | str | None] | None) -> None:
    assert apply_rule(layout.infer_expand, body, INPUTS)[0] == wanted(dims)


@pytest.mark.parametrize(
    ("data", "target", "attributes", "dims", "positive"),
    [
        ("x", (0, 0, 4), "", ["B", "T", 4], []),
        ("x", (0, 0, 2, -1), "", ["B", "T", 2, 2], ["2*B*T"]),
        ("x", (-1,), "", ["4*B*T"], ["1"]),
        ("x", (2, 3, -1), "", [2, 3, None], ["6"]),
        ("x", (-1, 4), "", ["B*T", 4], ["4"]),
        ("any", (0, 4), "", [None, 4], []),
        ("any", (-1, 4), "", [None, 4], []),
        ("six", (0, 5), "<allowzero = 1>", [0, 5], []),
        ("six", (2, -1), "", [2, 3], ["2"]),
        ("fixed", (0, 0, 0), "", [2, 1, 3], []),
        ("fixed", (0, -1), "", [2, 3], ["2"]),
        ("six", (0, 0), "", [6, None], ["0"]),
    ],
)
def test_a_reshape(
    data: str,
    target: tuple[int, ...],
    attributes: str,
    dims: list[int | str | None] | None,
    positive: list[str],
) -> None:
    body = f"{ints('t', *target)} y = Reshape {attributes} ({data}, t)"
    found, facts = apply_rule(layout.infer_reshape, body, INPUTS)
    if dims == [2, 3, None]:
        assert found is not None
        assert found[:2] == [2, 3]
    else:
        assert found == wanted(dims)
    assert facts.positive == positive


def test_a_reshape_keeps_the_number_of_elements() -> None:
    _, facts = apply_rule(layout.infer_reshape, f"{ints('t', 2, 3)} y = Reshape (six, t)", INPUTS)
    assert facts.equal == [("6", "6")]
    _, facts = apply_rule(layout.infer_reshape, f"{ints('t', 5, -1)} y = Reshape (x, t)", INPUTS)
    assert facts.positive == ["5"]
    assert len(facts.equal) == 1
    dims, facts = apply_rule(layout.infer_reshape, "y = Reshape (x, target)", INPUTS)
    assert dims == [None] * 3
    assert len(facts.equal) == 1
    assert apply_rule(layout.infer_reshape, "y = Reshape (x, some)", INPUTS)[0] is None
    assert apply_rule(layout.infer_reshape, "y = Reshape <shape = [2, 3]> (x)", INPUTS)[0] is None


@pytest.mark.parametrize(
    ("data", "cut", "axis", "length"),
    [
        ("x", (0, 3, 1), 2, 3),
        ("x", (1, OPEN, 2), 2, 2),
        ("x", (3, 0, -1), 2, 3),
        ("x", (-1, -OPEN, -1), 1, "T"),
        ("x", (-1, -OPEN, -2), 1, None),
        ("x", (0, 2, 0), 1, None),
        ("x", (0, 2, 0), 2, None),
        ("x", (OPEN, -OPEN, -1), 1, "T"),
        ("x", (0, 5, 1), 1, "Min(5, T)"),
        ("x", (2, OPEN, 1), 1, "Max(0, T - 2)"),
        ("x", (1, OPEN, 1), 1, "T - 1"),
        ("x", (0, -1, 1), 1, "T - 1"),
        ("x", (-2, OPEN, 1), 1, None),
    ],
)
def test_a_slice(data: str, cut: tuple[int, int, int], axis: int, length: int | str | None) -> None:
    start, end, step = cut
    body = f"{ints('s', start)} {ints('e', end)} {ints('a', axis)} {ints('k', step)}"
    dims, _ = apply_rule(layout.infer_slice, f"{body} y = Slice ({data}, s, e, a, k)", INPUTS)
    assert dims is not None
    if cut != (-2, OPEN, 1):
        assert dims[axis] == keys(length)[0]
    assert [d for i, d in enumerate(dims) if i != axis] == [
        d for i, d in enumerate(keys("B", "T", 4)) if i != axis
    ]


def test_what_is_not_known_of_a_slice() -> None:
    begin = f"{ints('s', 0)} {ints('e', 2)} {ints('a', 1)}"
    slice_rule = layout.infer_slice
    assert apply_rule(slice_rule, f"{begin} y = Slice (any, s, e, a)", INPUTS)[0] is None
    assert apply_rule(slice_rule, f"{begin} y = Slice (x, u, e, a)", INPUTS)[0] == keys(
        "B", None, 4
    )
    assert apply_rule(slice_rule, f"{begin} y = Slice (x, s, e, u)", INPUTS)[0] == [None] * 3
    assert apply_rule(slice_rule, f"{begin} y = Slice (x, s, e, a, u)", INPUTS)[0] == keys(
        "B", None, 4
    )


@pytest.mark.parametrize(("usual", "positive"), [(True, ["T"]), (False, [])])
def test_a_usual_run_has_something_to_cut(usual: bool, positive: list[str]) -> None:
    body = f"{ints('s', 0)} {ints('e', 2)} {ints('a', 1)} y = Slice (x, s, e, a)"
    _, facts = apply_rule(layout.infer_slice, body, INPUTS, usual=usual)
    assert facts.positive == positive


@pytest.mark.parametrize(
    ("body", "dims"),
    [
        (f"{ints('p', 0, 1, 0, 0, 2, 0)} y = Pad (x, p)", ["B", "T + 3", 4]),
        (f"{ints('p', 0, 1, 0, 0, 2, 0)} y = Pad (any, p)", None),
        ("y = Pad (x, some)", None),
        (f"{ints('p', 1, 2)} {ints('a', -1)} y = Pad (x, p, , a)", ["B", "T", 7]),
    ],
)
def test_a_pad(body: str, dims: list[int | str | None] | None) -> None:
    assert apply_rule(layout.infer_pad, body, INPUTS, 19)[0] == wanted(dims)


@pytest.mark.parametrize(
    ("body", "dims"),
    [
        ("y = Squeeze (any)", None),
        ("y = Squeeze (fixed)", None),  # the library knows it
        ("y = Squeeze (one)", None),
        ("y = Squeeze <axes = [0]> (one)", None),
        (f"{ints('a', 0)} y = Squeeze (one, a)", ["T", 4]),
        (f"{ints('a', 1, 2)} y = Squeeze (thin, a)", ["B", 4]),
        (f"{ints('a', -3)} y = Squeeze (thin, a)", ["B", 1, 4]),
        ("y = Squeeze (thin, u)", None),
        (f"{ints('a', 4)} y = Squeeze (thin, a)", None),
    ],
)
def test_a_squeeze(body: str, dims: list[int | str | None] | None) -> None:
    assert apply_rule(layout.infer_squeeze, body, INPUTS)[0] == wanted(dims)


def test_an_unknown_squeeze_takes_back_what_the_library_says() -> None:
    def rule(facts: layout.Facts, ctx: layout.Context, node: layout.ir.Node) -> None:
        node.outputs[0].shape = layout.ir.Shape([7])
        layout.infer_squeeze(facts, ctx, node)

    assert apply_rule(rule, "y = Squeeze (one)", INPUTS)[0] is None
    assert apply_rule(rule, "y = Squeeze (fixed)", INPUTS)[0] == [7]
    assert apply_rule(rule, "y = Squeeze (any)", INPUTS)[0] == [7]
    assert apply_rule(rule, "y = Squeeze <axes = [0]> (one)", INPUTS)[0] == [7]


@pytest.mark.parametrize(
    ("start", "limit", "delta", "length"),
    [
        (0, 5, 2, 3),
        (0, 6, 2, 3),
        (5, 0, -2, 3),
        (0, 5, -1, 0),
        (0, 0, 1, 0),
        (0, 5, 0, None),
    ],
)
def test_a_range(start: int, limit: int, delta: int, length: int | None) -> None:
    body = f"{scalar('a', start)} {scalar('b', limit)} {scalar('c', delta)} y = Range (a, b, c)"
    assert apply_rule(layout.infer_range, body, INPUTS)[0] == [length]
    assert apply_rule(layout.infer_range, f"{scalar('a', 0)} y = Range (a, n, a)", INPUTS)[0] == [
        None
    ]


@pytest.mark.parametrize(
    ("body", "dims"),
    [
        ("y = ConstantOfShape (target)", [None] * 3),
        ("y = ConstantOfShape (some)", None),
        (f"{ints('s', 2, 0)} y = ConstantOfShape (s)", [2, 0]),
    ],
)
def test_a_constant_of_a_shape(body: str, dims: list[int | None] | None) -> None:
    assert apply_rule(layout.infer_constant_of_shape, body, INPUTS)[0] == dims


@pytest.mark.parametrize(("attributes", "kept"), [("<axis = 0>", False), ("", True)])
def test_a_unique_along_an_axis_has_no_shape(attributes: str, kept: bool) -> None:
    def rule(facts: layout.Facts, ctx: layout.Context, node: layout.ir.Node) -> None:
        node.outputs[0].shape = layout.ir.Shape([7])
        layout.infer_unique(facts, ctx, node)

    dims, _ = apply_rule(rule, f"y = Unique {attributes} (six)", INPUTS)
    assert dims == ([7] if kept else None)


@pytest.mark.parametrize(
    ("split", "at", "dims"),
    [
        ("s = SplitToSequence <axis = 2> (x)", 1, ["B", "T", 1]),
        ("s = SplitToSequence <axis = 2, keepdims = 0> (x)", 1, ["B", "T"]),
        ("s = SplitToSequence (any)", 1, None),
        ("s = SequenceConstruct (x, x)", 1, None),
        ("s = SplitToSequence <axis = 2> (x)", 4, None),
    ],
)
def test_a_part_of_a_sequence(split: str, at: int, dims: list[int | str] | None) -> None:
    body = f"{split} {scalar('j', at)} y = SequenceAt (s, j)"
    assert apply_rule(layout.infer_sequence_at, body, INPUTS)[0] == wanted(dims)


@pytest.mark.parametrize(
    ("bound", "size", "clamped", "holds"),
    [
        ("P + T", 8, "Min(8, P + T)", True),
        ("T - 2 + P", 8, "Min(8, P + T - 2)", False),
        ("T - 2 + P", "N", "P + T - 2", True),  # of an axis that is not fixed nothing is asked
        ("2*T", 8, "Min(8, 2*T)", True),
        ("T - 1", 8, "Min(8, T - 1)", False),
    ],
)
def test_a_bound_where_a_size_is_0(bound: str, size: int | str, clamped: str, holds: bool) -> None:
    _, facts = apply_rule(layout.infer_broadcast, "y = Add (x, two)", INPUTS)
    axis = size_of(size)
    assert layout._holds_where_empty(facts, size_of(bound), axis, size_of(clamped)) is holds
    facts.never_empty |= {"T", "P"}
    assert layout._holds_where_empty(facts, size_of(bound), axis, size_of(clamped))
    _, usual = apply_rule(layout.infer_broadcast, "y = Add (x, two)", INPUTS, usual=True)
    assert layout._holds_where_empty(usual, size_of(bound), axis, size_of(clamped))


@pytest.mark.parametrize(
    ("target", "inferred", "remaining"),
    [
        (["B", None], True, "4*T"),
        (["B", None], False, None),
        ([2, None], False, "2*B*T"),
        ([0, None], True, None),
        ([3, None], True, "floor(4*B*T/3)"),
        ([1, None], False, "4*B*T"),
        (["N", None], True, None),
    ],
)
def test_the_dim_that_is_left_over(
    target: list[int | str | None], inferred: bool, remaining: str | None
) -> None:
    exprs = [None if x is None else size_of(x) for x in target]
    dims = [size_of("B"), size_of("T"), size_of(4)]
    found = layout._remaining_dim(dims, exprs, inferred=inferred)
    assert found == (None if remaining is None else size_of(remaining))
