"""Constants that are read once, and only where their contents are needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.files import io
from graphfix.files.external_files import Weight
from graphfix.graph.constants import const_of, const_tensor
from graphfix.graph.nodes import use_count

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def test_a_small_one_in_a_file_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _saved(tmp_path)
    read = _reads(monkeypatch)
    assert not graphfix.run(model, "finite-mask").changed
    assert read == ["near"]


def test_users_are_counted_by_input() -> None:
    model = ir.from_onnx_text(HEAD + "m (float[N] x) => (float[N] y) { y = Add (x, x) }")
    assert [use_count(x) for x in (*model.graph.inputs, *model.graph.outputs)] == [2, 0]


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
