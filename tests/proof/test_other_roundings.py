"""What differs in the last bits only: weights, inputs and results of a copy."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from graphfix.proof.other_roundings import change_last_bits, change_results, change_weights
from graphfix.runtime.local_session import Session

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, 4] x, int64[B] lengths) => (float[B, 4] y, int64 n)
    <float hundred = {100}, float[4] w = {0.3, 0.7, 1, 0}>
    { a = Add (x, hundred) d = Sub (a, hundred) s = Mul (d, w) y = Relu (s)
      f = Cast <to = 1> (lengths) m = ReduceMax <keepdims = 0> (f) n = Cast <to = 7> (m) }"""
FEEDS = {
    "x": np.random.default_rng(0).random((3, 4)).astype(np.float32),
    "lengths": np.array([3, 5, 4]),
}


def run(model: ir.Model) -> dict[str, np.ndarray]:
    with Session(model, optimize=False) as session:
        return dict(session.run(FEEDS))


def test_whole_numbers_and_fills_stay() -> None:
    rng = np.random.default_rng(0)
    array = np.array([0.0, 1.0, -3.0, 0.3, 1e5 + 0.5], np.float32)
    changed = np.stack([change_last_bits(array, rng) for _ in range(20)])
    assert (changed[:, :3] == array[:3]).all()
    assert (changed[:, 3:] != array[3:]).any(axis=0).all()
    assert np.allclose(changed, array, rtol=1e-6)
    halves = np.stack([change_last_bits(array, rng, in_half=True) for _ in range(20)])
    assert np.allclose(halves, array, rtol=1.1e-3)
    assert not np.allclose(halves, array, rtol=1e-4)
    fill = np.array([0.3, -3e38], np.float32)
    assert change_last_bits(fill, rng) is fill


def test_weights_of_a_copy_are_changed() -> None:
    model = ir.from_onnx_text(MODEL)
    before = model.graph.initializers["w"].const_value
    assert before is not None
    changed = np.zeros(4, np.bool_)
    for seed in range(10):
        after = change_weights(model, np.random.default_rng(seed)).graph.initializers["w"]
        assert after.const_value is not None
        changed |= before.numpy() != after.const_value.numpy()
    assert list(changed) == [True, True, False, False]


def test_a_result_that_cancels_is_off_by_what_it_was_made_of() -> None:
    model = ir.from_onnx_text(MODEL)
    copy = model.clone()
    change_results(model, copy, np.random.default_rng(1))
    assert [x.name for x in copy.graph.outputs] == ["y", "n"]
    before, after = run(model), run(copy)
    assert before["n"] == after["n"]
    gap = np.abs(before["y"] - after["y"])
    assert 1e-6 < gap.max() < 1e-4, "100 units in the last place of 1"
    # What is exact, counts or computes sizes is not multiplied.
    names = [x.inputs[0].name for x in copy.graph if x.op_type == "Mul" and x.name]
    assert names == ["graphfix.proof.a.raw", "graphfix.proof.d.raw", "graphfix.proof.s.raw"]


def test_the_last_bits_of_float16_are_changed_without_a_warning() -> None:
    array = np.full(64, 0.3, np.float16)  # tests fail where numpy warns
    changed = change_last_bits(array, np.random.default_rng(0))
    assert changed.dtype == np.float16
    assert 0 < np.abs(changed - array).max() < 0.01
