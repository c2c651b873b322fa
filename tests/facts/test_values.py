"""What a value holds: numbers of equal values, and constants that are read once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

import graphfix
from graphfix.facts.numbering import ValueNumbering
from graphfix.files import io
from graphfix.files.external_files import Weight
from graphfix.graph.constants import const_of, const_tensor
from graphfix.graph.nodes import use_count

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def values(text: str) -> dict[str, ir.Value]:
    model = ir.from_onnx_text(HEAD + text)
    made = {x.name or "": x for node in model.graph for x in node.outputs}
    return {**made, **{x.name or "": x for x in model.graph.inputs}}


class TestNumbering:
    def test_masks_of_layers_are_one_however_long_and_weights_are_not_read(self) -> None:
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

    def test_what_is_computed_from_another_tensor_now_is_another_number(self) -> None:
        of = values("""m (float[N] x, float[N] z) => (float[N] e) {
            a = Relu (x) b = Relu (x) c = Relu (z) d = Neg (a) d2 = Neg (b) e = Abs (d2) }""")
        numbers = ValueNumbering(lambda _: None)
        before = {name: numbers.number_of(x) for name, x in of.items()}
        assert before["d"] == before["d2"] != before["c"]
        node = of["d2"].producer()
        assert node is not None
        node.replace_input_with(0, of["c"])
        after = {
            name: numbers.update_after_edit(lambda _: None).number_of(x) for name, x in of.items()
        }
        assert after["d2"] != after["d"] == before["d"]
        assert after["e"] != before["e"]
        assert [after[x] for x in "abcdxz"] == [before[x] for x in "abcdxz"]
        node.replace_input_with(0, of["a"])
        assert numbers.update_after_edit(lambda _: None).number_of(of["d2"]) == before["d"]

    def test_what_follows_from_it_is_found_behind_what_has_no_number(self) -> None:
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


class TestConstants:
    def test_a_small_one_in_a_file_is_read_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = _saved(tmp_path)
        read = _reads(monkeypatch)
        bias = model.graph.initializers["bias"]
        assert const_tensor(bias) is bias.const_value
        assert const_tensor(bias, limit=3) is None
        assert read == []
        for _ in range(3):
            np.testing.assert_array_equal(const_of(bias), np.arange(4))
        assert read == ["bias"]

    def test_a_sum_that_leads_to_no_softmax_is_no_mask_and_is_not_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = _saved(tmp_path)
        read = _reads(monkeypatch)
        assert not graphfix.run(model, "finite-mask").changed
        assert read == ["near"]

    def test_users_are_counted_by_input(self) -> None:
        of = values("m (float[N] x) => (float[N] y) { y = Add (x, x) }")
        assert (use_count(of["x"]), use_count(of["y"])) == (2, 0)


def _saved(folder: Path) -> ir.Model:
    """A model with a bias before a MatMul and another before a Softmax, in a file beside it."""
    model = ir.from_onnx_text(
        HEAD
        + """m (float[N, 4] x, float[4, 4] w) => (float[N, 4] y)
        <float[4] bias = {0, 1, 2, 3}, float[4] near = {0, 0, 0, 1}> {
            a = Add (x, bias) p = MatMul (a, w) s = Add (p, near) t = Sub (s, x) y = Softmax (t)
        }"""
    )
    ir.save(model, folder / "m.onnx", external_data="m.data", size_threshold_bytes=0)
    return io.load(folder / "m.onnx")


def _reads(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The names of the weights that are read from here on."""
    read: list[str | None] = []
    values = Weight._read_values

    def noted(self: Weight) -> np.ndarray:
        read.append(self.name)
        return values(self)

    monkeypatch.setattr(Weight, "_read_values", noted)
    return read
