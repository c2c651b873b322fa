"""Outputs that may be empty, beside others, on the device."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.facts.view import View
from graphfix.providers.directml.empty_outputs import _is_on_device, find_empty_outputs


def empty(outputs: str, body: str, constants: str = "", functions: str = "") -> list[str | None]:
    values = f"<int64[1] z = {{0}}, int64[1] o = {{1}}, float half = {{0.5}}{constants}>"
    model = ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        m (float[B, T] x, float[B, 4] w, float[B, U] u, int64[1] n, bool flag) => ({outputs})
        {values} {{ {body} }} {functions}"""
    )
    return [x.name for x in find_empty_outputs(View(model))]


KEPT = "g = Greater (x, half) p = NonZero (g)"
CHUNK = """t = Shape <start = 1, end = 2> (x) q = Div (t, four) f = Mul (q, four)
    e = Slice (x, f, t, o) y = Relu (e)"""
FOUR = ", int64[1] four = {4}"


@pytest.mark.parametrize(
    ("outputs", "body", "found"),
    [
        ("float[B, T] a, float[B, T] b", "a = Relu (x) b = Exp (x)", []),
        # What is left over of chunks of four.
        ("float[B, T] a, float[B, R] y", f"a = Relu (x) {CHUNK}", ["y"]),
        # With no other on the device nothing is lost.
        ("float[B, R] y", CHUNK, []),
        ("float[B, R] y, float[B, R] y", CHUNK, []),
        # As many as the contents say.
        ("float[B, T] a, float[R, C] y", f"a = Relu (x) {KEPT} c = Cast <to = 1> (p) "
         "y = Relu (c)", ["y"]),
        ("float[B, T] a, float[R, C] y", "a = Relu (x) c = Slice (x, z, n, o) y = Relu (c)", ["y"]),
        # A window that is longer than its input: only of short ones.
        ("float[B, T] a, float[B, R] y", "a = Relu (x) c = Slice (x, four, far, o) y = Relu (c)",
         []),
        # A size of its own, and the difference of two.
        ("float[B, T] a, float[B, C] y", "a = Relu (x) y = Concat <axis = 1> (x, w)", []),
        ("float[B, T] a, float[B, 0] y", "a = Relu (x) c = Slice (w, z, z, o) y = Relu (c)", ["y"]),
    ],
)  # fmt: skip
def test_what_may_be_empty(outputs: str, body: str, found: list[str]) -> None:
    constants = f"{FOUR}, int64[1] far = {{9223372036854775807}}"
    assert empty(outputs, body, constants) == found


def test_both_branches_of_an_if_are_looked_at() -> None:
    text = """a = Relu (x) y = If (flag) <
        then_branch = t () => (float[B, C] p) {{ p = Relu ({0}) }},
        else_branch = e () => (float[B, C] q) {{ q = Relu ({1}) }}>"""
    outputs, nothing = "float[B, T] a, float[B, C] y", "no = Slice (w, z, z, o) "
    assert empty(outputs, nothing + text.format("x", "x")) == []
    assert empty(outputs, nothing + text.format("x", "no")) == ["y"]
    assert empty(outputs, nothing + text.format("no", "x")) == ["y"]


def test_functions_are_looked_into() -> None:
    body = "a = Relu (x) y = own.Rest (x)"
    function = """<domain: "own", opset_import: ["" : 17]> Rest (v) => (r) {
        c0 = Constant <value_ints = [1]> () c4 = Constant <value_ints = [4]> ()
        t = Shape <start = 1, end = 2> (v) q = Div (t, c4) f = Mul (q, c4)
        e = Slice (v, f, t, c0) r = Relu (e) }"""
    assert empty("float[B, T] a, float[B, R] y", body, functions=function) == ["y"]


def test_what_a_made_optional_holds_stays_on_the_cpu() -> None:
    model = ir.from_onnx_text(
        """<ir_version: 8, opset_import: ["" : 17]> m (float[T] x, optional(float[T]) given) =>
        (float[T] y, float[T] z, float[T] r) {
        r = Relu (x)  o = Optional (r)  y = OptionalGetElement (o)
        z = OptionalGetElement (given) }"""
    )
    values = {x.name: x for node in model.graph for x in node.outputs}
    assert [_is_on_device(values[name], []) for name in "rzy"] == [True, True, False]
    assert not _is_on_device(values["r"], [model.graph[0]])
    assert not _is_on_device(model.graph.inputs[0], [])
