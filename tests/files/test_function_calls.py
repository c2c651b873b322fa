"""Calls of local functions come to an end."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

from graphfix.files import function_calls
from graphfix.files.function_calls import callees_first, require_finite_calls
from graphfix.files.malformed import MalformedError


def test_callees_come_first() -> None:
    assert [*callees_first({1: [2, 3], 2: [3], 3: [], 4: [9, 1]})] == [3, 2, 1, 4]
    assert sorted(callees_first({1: [2], 2: [1]})) == [1, 2]
    assert [*callees_first({1: [1]})] == [1]
    assert [*callees_first({})] == []
    deep = {i: [i + 1] for i in range(5000)}
    assert [*callees_first(deep)] == [*range(4999, -1, -1)]


def model(
    *bodies: str, main: str = "f0"
) -> tuple[onnx.ModelProto, dict[tuple, onnx.FunctionProto]]:
    functions = {}
    for i, body in enumerate(bodies):
        nodes = [
            helper.make_node(op, ["a"], ["b"], domain="own" if op[0] == "f" else "")
            for op in body.split()
        ]
        proto = helper.make_function("own", f"f{i}", ["a"], ["b"], nodes, [])
        functions["own", f"f{i}", ""] = proto
    node = helper.make_node(main, ["x"], ["y"], domain="own" if main[0] == "f" else "")
    return helper.make_model(helper.make_graph([node], "m", [], [])), functions


@pytest.mark.parametrize(
    ("bodies", "endless"),
    [
        (["Neg f1", "Abs"], False),
        (["f1 f1", "f2 f2", "Abs"], False),
        (["f0"], True),
        (["f1", "f0"], True),
        (["Neg", "f1"], True),
    ],
)
def test_a_function_does_not_call_itself(bodies: list[str], *, endless: bool) -> None:
    proto, functions = model(*bodies)
    if endless:
        with pytest.raises(MalformedError, match="calls itself"):
            require_finite_calls(proto, functions)
    else:
        require_finite_calls(proto, functions)


@pytest.mark.parametrize(("most", "fits"), [(10, True), (9, False)])
def test_calls_do_not_come_to_too_many_nodes(
    most: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each f2 is 2 nodes, f1 is 2 calls of it, 4 and 2; f0 is a call of f1 and 3 more.
    proto, functions = model("f1 Neg Neg Neg", "f2 f2", "Neg Abs")
    monkeypatch.setattr(function_calls, "_MAX_NODES", most)
    if fits:
        require_finite_calls(proto, functions)
    else:
        with pytest.raises(MalformedError, match="more than 9 nodes"):
            require_finite_calls(proto, functions)
    require_finite_calls(proto, {})


def test_calls_in_bodies_count() -> None:
    proto, functions = model("Neg", "f1", main="If")
    inner = helper.make_graph([helper.make_node("f1", ["x"], ["z"], domain="own")], "t", [], [])
    functions["own", "f0", ""].node[0].attribute.append(helper.make_attribute("then", inner))
    functions["own", "f1", ""].node[0].op_type = "f0"
    with pytest.raises(MalformedError, match="calls itself"):
        require_finite_calls(proto, functions)
    attribute = functions["own", "f0", ""].node[0].attribute[0]
    attribute.CopyFrom(helper.make_attribute("bodies", [inner]))
    with pytest.raises(MalformedError, match="calls itself"):
        require_finite_calls(proto, functions)
