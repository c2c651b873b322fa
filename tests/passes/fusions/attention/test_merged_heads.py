"""Layouts that become [B, T, H * D], and how: a Transpose, a Reshape, a repetition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from graphfix.editing.builder import Builder
from graphfix.facts.shapes import Dim
from graphfix.facts.view import View
from graphfix.passes.fusions.attention.axis_layout import Atom, operand_layout
from graphfix.passes.fusions.attention.merged_heads import (
    HeadGroups,
    MergePlan,
    cheapest_plan,
    constant_shape,
    heads_start,
    invert_plan,
    merge_plans,
)
from graphfix.passes.fusions.attention.operand_path import Past, Shift, TracedTensor
from tests.passes.models import execute, model

ROLES = {"b": "batch", "h": "batch", "t": "query", "s": "key", "d": "feature"}


def dims_of(text: str) -> list[Dim]:
    return [int(x) if x.isdigit() else ir.SymbolicDim(x) for x in text.split()]


@dataclass
class Operand:
    """A tensor of a graph that a Relu returns, so that something may be built of it."""

    tensor: TracedTensor
    view: View

    def plan(self, heads: int, *, grouped: bool = False) -> MergePlan | None:
        return next(merge_plans([self.tensor], heads, self.view, grouped=grouped), None)


def operand(dims: str, roles: str, batch: str = "", **facts: Any) -> Operand:
    """Return a tensor whose axes have these dims and roles; ``batch`` as the product has it."""
    shape = ", ".join(dims.split())
    m = model(f"m (float[{shape}] x) => (float[{shape}] y) {{ y = Relu (x) }}", 17)
    layout = operand_layout(dims_of(dims), [ROLES[x] for x in roles], batch_dims=dims_of(batch))
    return Operand(TracedTensor(m.graph.inputs[0], layout, **facts), View(m))


def shown(dims: tuple[Dim, ...]) -> str:
    return " ".join(map(str, dims))


@pytest.mark.parametrize(
    ("dims", "roles", "heads", "merged", "perm", "shape", "cost"),
    [
        ("B 2 T 8", "bhtd", 2, "B T 16", (0, 2, 1, 3), (0, 0, 16), 2),
        ("B 2 8 T", "bhdt", 2, "B T 16", (0, 3, 1, 2), (0, 0, 16), 2),
        ("B T 2 8", "bthd", 2, "B T 16", None, (0, 0, 16), 1),
        ("B T 16", "btd", 1, "B T 16", None, None, 0),
        ("T B 16", "tbd", 1, "B T 16", (1, 0, 2), None, 1),
        # One head, whose axis of 1 goes with a Reshape.
        ("3 1 T 8", "bhtd", 1, "3 T 8", None, (3, -1, 8), 1),
        ("2 T 8", "htd", 2, "1 T 16", (1, 0, 2), (1, -1, 16), 2),
    ],
)
def test_a_tensor_becomes_rows(
    dims: str,
    roles: str,
    heads: int,
    merged: str,
    perm: tuple[int, ...] | None,
    shape: tuple[int, ...] | None,
    cost: int,
) -> None:
    plan = operand(dims, roles).plan(heads)
    assert plan is not None
    assert shown(plan.dims) == merged
    assert (plan.perm, plan.shape, plan.cost) == (perm, shape, cost)
    assert (plan.repeats, plan.bias, plan.saved_kernels) == (None, None, 0)


@pytest.mark.parametrize(
    ("dims", "roles", "heads"),
    [
        ("B 2 T 8", "bhtd", 3),  # not so many heads
        ("B H T 8", "bhtd", 2),
        ("2 B T 8", "hbtd", 2),  # the batch comes behind the heads
        ("B 2 T E", "bhtd", 2),  # nor a number of features to write
    ],
)
def test_a_tensor_that_does_not(dims: str, roles: str, heads: int) -> None:
    assert operand(dims, roles).plan(heads) is None


@pytest.mark.parametrize(("dims", "is_known"), [("4 2 5 8", True), ("4 2 5 E", False)])
def test_a_rotation_is_of_a_known_number_of_features(dims: str, is_known: bool) -> None:
    assert operand(dims, "bhtd").plan(2) is not None
    assert (operand(dims, "bhtd", rotation=object()).plan(2) is not None) == is_known


def test_grouped_heads_are_repeated() -> None:
    shared = operand("B 2 1 S 8", "bhhsd", "B 2 3")
    plan = shared.plan(6)
    assert plan is not None
    assert shown(plan.dims) == "B S 16"
    assert plan.repeats == ((0, 0, 2, 1, 8), (1, 1, 1, 3, 1), (0, 0, 48))
    assert plan.cost == 2 + 3
    grouped = shared.plan(6, grouped=True)
    assert grouped is not None
    assert grouped.repeats is None
    assert shown(grouped.dims) == "B S 16"
    assert grouped.cost == 2


def test_heads_are_grouped_where_the_shared_ones_come_first() -> None:
    assert operand("B 2 T 8", "bhtd").plan(2, grouped=True) is None  # none is shared
    assert operand("4 1 2 5 8", "bhhsd", "4 3 2").plan(6, grouped=True) is None
    assert operand("4 1 2 5 8", "bhhsd", "4 3 2").plan(6) is not None
    # The batch is repeated, not the heads.
    assert operand("1 2 S 8", "bhsd", "B 2").plan(2) is None


def test_a_repetition_has_numbers_alone() -> None:
    assert operand("4 2 1 5 E", "bhhsd", "4 2 3").plan(6) is None
    assert operand("4 2 1 5 E", "bhhsd", "4 2 3").plan(6, grouped=True) is not None


def test_a_past_has_the_heads_that_the_operator_sees() -> None:
    value = ir.Value(name="past")
    node = ir.node("Concat", [value])

    def plan(heads: int, *, grouped: bool) -> MergePlan | None:
        past = Past(value, node, node, (), heads)
        return operand("B 2 1 S 8", "bhhsd", "B 2 3", past=past).plan(6, grouped=grouped)

    assert plan(6, grouped=False) is not None
    assert plan(2, grouped=False) is None
    assert plan(2, grouped=True) is not None
    assert plan(6, grouped=True) is None


def test_constants_on_the_path_are_a_row() -> None:
    base = operand("B 2 T 4", "bhtd")
    heads, features = base.tensor.layout.order[1], base.tensor.layout.order[3]
    first = Shift(np.arange(8.0).reshape(2, 4), (heads, features), 1.0)
    second = Shift(np.arange(4.0), (features,), 3.0)
    made = operand("B 2 T 4", "bhtd")
    tensor = TracedTensor(
        base.tensor.value, base.tensor.layout, factor=2.0, shifts=(first, second), freed=3
    )
    made = Operand(tensor, base.view)
    plan = made.plan(2)
    assert plan is not None
    assert plan.bias is not None
    np.testing.assert_array_equal(plan.bias, np.arange(8) / 2 + np.tile(np.arange(4), 2) * 3 / 2)
    assert plan.saved_kernels == 3
    # What differs along time is no row.
    time = base.tensor.layout.order[2]
    bad = TracedTensor(
        base.tensor.value,
        base.tensor.layout,
        shifts=(first, Shift(np.arange(3.0), (time,), 1.0)),
    )
    assert Operand(bad, base.view).plan(2) is None


def test_a_row_is_not_added_to_heads_that_are_repeated() -> None:
    base = operand("B 2 1 S 4", "bhhsd", "B 2 3")
    shift = Shift(np.arange(4.0), (base.tensor.layout.order[-1],), 1.0)
    tensor = TracedTensor(base.tensor.value, base.tensor.layout, shifts=(shift,))
    assert Operand(tensor, base.view).plan(6) is None
    assert Operand(tensor, base.view).plan(6, grouped=True) is not None


@pytest.mark.parametrize(
    ("sizes", "heads", "start"),
    [
        ("B 8", 8, 1),
        ("B 2 4", 8, 1),
        ("B 2 4", 4, 2),
        ("B 2 4", 1, 3),
        ("8", 8, 0),
        ("2 4", 16, None),
        ("B 2 4", 3, None),
        ("B 6", 4, None),
        ("B", 2, None),
    ],
)
def test_where_heads_start(sizes: str, heads: int, start: int | None) -> None:
    batch = [Atom("batch", size) for size in dims_of(sizes)]
    assert heads_start(batch, heads) == start


@pytest.mark.parametrize(
    ("source", "target", "shape"),
    [
        ("B T 2 8", "B T 16", (0, 0, 16)),
        ("B T 16", "B T 2 8", (0, 0, 2, 8)),
        ("B T 16", "T B 16", None),
        ("8 2", "2 8", (2, 8)),
        ("4", "4 B", (4, -1)),
        # What is copied may be empty, and beside it -1 is no size.
        ("B 2 T 8", "B T 16", None),
        ("X Y 4", "X Z 4", None),
    ],
)
def test_a_constant_shape(source: str, target: str, shape: tuple[int, ...] | None) -> None:
    view = View(model("m (float[B, T, 4] x) => (y) { y = MatMul (x, x) }", 17))
    assert constant_shape(dims_of(source), dims_of(target), view) == shape


def test_what_is_copied_is_beside_an_unknown_size_if_it_is_never_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = View(model("m (float[B, T, 4] x) => (y) { y = MatMul (x, x) }", 17))
    monkeypatch.setattr(view.shapes, "is_never_empty", lambda dim: str(dim) == "B")
    assert constant_shape(dims_of("B 2 T 8"), dims_of("B T 16"), view) == (0, -1, 16)
    assert constant_shape(dims_of("T 2 B 8"), dims_of("T B 16"), view) is None


def test_the_cheapest_plan_saves_most_and_is_the_last_of_equals() -> None:
    dear, free = operand("B 2 T 8", "bhtd").plan(2), operand("B T 16", "btd").plan(1)
    saved = operand("B 2 T 8", "bhtd", freed=4).plan(2)
    assert dear is not None
    assert free is not None
    assert saved is not None
    assert cheapest_plan([dear, free]) is free
    assert cheapest_plan([dear, free, saved]) is saved
    twin = operand("B 2 T 8", "bhtd").plan(2)
    assert cheapest_plan([dear, twin]) is twin
    assert cheapest_plan([]) is None


def test_a_plan_backwards() -> None:
    made = operand("B 2 T 8", "bhtd")
    plan = made.plan(2)
    assert plan is not None
    back = invert_plan(plan, made.view)
    assert back is not None
    assert (back.shape, back.perm, back.cost) == ((0, 0, 2, 8), (0, 2, 1, 3), 2)
    plain = operand("B T 16", "btd")
    plan = plain.plan(1)
    assert plan is not None
    back = invert_plan(plan, plain.view)
    assert back is not None
    assert (back.shape, back.perm, back.cost) == (None, None, 0)
    turned = operand("T B 16", "tbd", freed=2)
    plan = turned.plan(1)
    assert plan is not None
    back = invert_plan(plan, turned.view)
    assert back is not None
    assert (back.shape, back.perm, back.cost, back.saved_kernels) == (None, (1, 0, 2), 1, 2)
    repeated = operand("B 2 1 S 8", "bhhsd", "B 2 3")
    plan = repeated.plan(6)
    assert plan is not None
    assert invert_plan(plan, repeated.view) is None


def built(made: Operand, build: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return an input, and what is built of it in place of the output."""
    m = made.view.model
    op = Builder("some-pass", made.view)
    op.start_site(m.graph[0])
    result = build(made.tensor.value, op)
    op.replace_site_as_text(result)
    m.graph.outputs[0].shape = None
    sizes = {"B": 2, "T": 3, "S": 3}
    shape = [sizes.get(str(d), d) for d in made.tensor.value.shape or ()]
    x = np.arange(np.prod([int(str(d)) for d in shape])).reshape([int(str(d)) for d in shape])
    x = x.astype(np.float32)
    return x, execute(m, {"x": x})[0]


def test_what_is_built_of_a_tensor() -> None:
    made = operand("B 2 T 8", "bhtd")
    plan = made.plan(2)
    assert plan is not None
    x, y = built(made, plan.build)
    np.testing.assert_array_equal(y, x.transpose(0, 2, 1, 3).reshape(2, 3, 16))
    shared = operand("B 2 1 S 8", "bhhsd", "B 2 3")
    plan = shared.plan(6)
    assert plan is not None
    x, y = built(shared, plan.build)
    rows = np.repeat(x, 3, axis=2).reshape(2, 6, 3, 8)
    np.testing.assert_array_equal(y, rows.transpose(0, 2, 1, 3).reshape(2, 3, 48))


def test_what_is_built_of_rows() -> None:
    made = operand("B 2 T 8", "bhtd")
    plan = made.plan(2)
    assert plan is not None
    back = invert_plan(plan, made.view)
    assert back is not None
    rows = operand("B T 16", "btd")
    x, y = built(rows, back.build)
    np.testing.assert_array_equal(y, x.reshape(2, 3, 2, 8).transpose(0, 2, 1, 3))


def test_groups_of_queries_and_back() -> None:
    groups = HeadGroups(2, 3, 4)
    assert groups.cost == 6
    x, y = built(operand("B T 24", "btd"), groups.group_queries)
    split = x.reshape(2, 3, 2, 3, 4).transpose(0, 3, 1, 2, 4)
    np.testing.assert_array_equal(y, split.reshape(2, 9, 8))
    x, y = built(
        operand("B T 24", "btd"),
        lambda value, op: groups.ungroup_result(groups.group_queries(value, op), op),
    )
    np.testing.assert_array_equal(y, x)
    x, y = built(operand("B 2 T 8", "bhtd"), groups.repeat_bias)
    np.testing.assert_array_equal(y, np.tile(x, (1, 1, 3, 1)))


def test_as_many_heads_are_no_groups() -> None:
    none = HeadGroups(2)
    assert none.cost == 0
    value = ir.Value(name="x")
    made = operand("B T 16", "btd")
    op = Builder("some-pass", made.view)
    assert none.group_queries(value, op) is value
    assert none.ungroup_result(value, op) is value
    assert none.repeat_bias(value, op) is value
