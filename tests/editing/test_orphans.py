"""Nodes that nothing reads any more, and what only they used."""

from __future__ import annotations

import onnx_ir as ir

from graphfix.editing.orphans import remove_orphans


def model(body: str, signature: str = "(float[N] x, bool c) => (float[N] y)") -> ir.Model:
    return ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : 17]> m {signature} '
        f"<float[1] w = {{2.0}}, float[1] v = {{3.0}}> {{ {body} }}"
    )


def removed(m: ir.Model, *names: str) -> list[str]:
    values = {x.name: x for node in m.graph for x in node.outputs}
    values |= {x.name: x for x in (*m.graph.inputs, *m.graph.initializers.values())}
    return [line.render() for line in remove_orphans([values[name] for name in names], {})]


def test_a_chain_goes_in_order_with_its_weights() -> None:
    m = model("a = Mul (x, w) b = Neg (a) y = Add (x, v)")
    assert removed(m, "b") == ["a = Mul (x, {2})", "b = Neg (a)"]
    assert [node.op_type for node in m.graph] == ["Add"]
    assert list(m.graph.initializers) == ["v"]


def test_what_is_read_stays() -> None:
    m = model("a = Mul (x, w) b = Neg (a) y = Add (a, w)")
    assert removed(m, "b") == ["b = Neg (a)"]
    assert removed(m, "a", "w", "y", "x") == []
    assert list(m.graph.initializers) == ["w", "v"]
    assert removed(m, "v") == []
    assert list(m.graph.initializers) == ["w"]


def test_a_node_stays_for_another_output() -> None:
    m = model("a, b = Split (x) y = Neg (b)", "(float[N] x) => (float[N] y)")
    assert removed(m, "a") == []
    assert len(m.graph) == 2


def test_a_constant_has_no_line_of_its_own() -> None:
    m = model("k = Constant <value = float {2.0}> () a = Mul (x, k) y = Neg (x)")
    assert removed(m, "a") == ["a = Mul (x, 2)"]
    assert len(m.graph) == 1


def test_what_a_body_reads_goes_too() -> None:
    m = model("""a = Neg (x) b = Abs (x)
        z = If (c) <then_branch = t () => (float[N] p) { p = Exp (a) },
                    else_branch = e () => (float[N] q) { q = Sin (b) }>
        y = Relu (b)""")
    lines = removed(m, "z")
    assert len(lines) == 2
    assert lines[0] == "a = Neg (x)"
    assert [node.op_type for node in m.graph] == ["Abs", "Relu"]


def test_absent_values_are_passed_over() -> None:
    assert remove_orphans([None], {}) == []
