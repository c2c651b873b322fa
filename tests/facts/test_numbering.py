"""Values with the same number hold the same contents."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from graphfix.facts.numbering import ValueNumbering

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def values(text: str) -> dict[str, ir.Value]:
    model = ir.from_onnx_text(HEAD + text)
    made = {x.name or "": x for node in model.graph for x in node.outputs}
    return {**made, **{x.name or "": x for x in model.graph.inputs}}


def test_masks_of_layers_are_one_however_long_and_weights_are_not_read() -> None:
    triangle = np.tri(64, dtype=bool)
    other = triangle.copy()
    other[63, 63] = False
    given = [triangle, triangle.copy(), other, np.ones((64, 64)), np.ones((64, 64))]
    consts = [ir.Value(name=f"c{i}", const_value=ir.tensor(x)) for i, x in enumerate(given)]
    graph = ir.Graph([], [], nodes=[], initializers=consts)
    numbers = ValueNumbering(lambda _: None)
    first, second, third, *weights = map(numbers.number_of, graph.initializers.values())
    assert first == second != third
    assert weights[0] != weights[1]


def test_what_is_computed_from_another_tensor_now_is_another_number() -> None:
    of = values("""m (float[N] x, float[N] z) => (float[N] e) {
        a = Relu (x) b = Relu (x) c = Relu (z) d = Neg (a) d2 = Neg (b) e = Abs (d2) }""")
    numbers = ValueNumbering(lambda _: None)
    before = {name: numbers.number_of(x) for name, x in of.items()}
    assert before["d"] == before["d2"] != before["c"]
    node = of["d2"].producer()
    assert node is not None
    node.replace_input_with(0, of["c"])
    after = {name: numbers.update_after_edit(lambda _: None).number_of(x) for name, x in of.items()}
    assert after["d2"] != after["d"] == before["d"]
    assert after["e"] != before["e"]
    assert [after[x] for x in "abcdxz"] == [before[x] for x in "abcdxz"]
    node.replace_input_with(0, of["a"])
    assert numbers.update_after_edit(lambda _: None).number_of(of["d2"]) == before["d"]


def test_what_follows_from_it_is_found_behind_what_has_no_number() -> None:
    of = values("""m (float[N] x, float[N] z) => (float[N] c) {
        a = Relu (x) b = Neg (a) c = Abs (b) }""")
    numbers = ValueNumbering(lambda value: "said" if value is of["b"] else None)
    asked = {name: numbers.number_of(of[name]) for name in ("c", "a")}
    node = of["a"].producer()
    assert node is not None
    node.replace_input_with(0, of["z"])
    numbers.update_after_edit(lambda _: None)
    assert numbers.number_of(of["a"]) != asked["a"]
    assert numbers.number_of(of["c"]) != asked["c"]
