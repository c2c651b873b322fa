"""fix-input: which values fit, what goes from the interface, what the original is fed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.engine import pipeline
from graphfix.errors import FeedError, UsageError
from graphfix.facts import fixed_inputs
from graphfix.probing.padded import padded
from graphfix.shipped.session import Session
from graphfix.shipping.build import ship_file
from graphfix.shipping.container_spec import parse_containers
from tests.passes.models import execute

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'

# Two rates, each with its own arithmetic: 16000 doubles, any other triples.
VAD = """vad (float[N, T] x, int64 sr) => (float[N, T] y)
    <int64 rate = {16000}, float two = {2.0}, float three = {3.0}>
    {
        wide = Equal (sr, rate)
        y = If (wide) <
            then_branch = a () => (float[N, T] p) { p = Mul (x, two) },
            else_branch = b () => (float[N, T] q) { q = Mul (x, three) }
        >
    }"""

TYPES = """m (float[2] f, int8 i, uint8[2, 2] u, bool flag, float16[1] h, int64[B] lens, float[B] x)
    => (float[2] y0, int8 y1, uint8[2, 2] y2, bool y3, float16[1] y4, int64[B] y5, float[B] y6)
    { y0 = Identity (f) y1 = Identity (i) y2 = Identity (u) y3 = Identity (flag)
      y4 = Identity (h) y5 = Identity (lens) y6 = Identity (x) }"""


def model(text: str) -> ir.Model:
    return ir.from_onnx_text(HEAD + text)


def fixed(m: ir.Model, given: str) -> ir.Model:
    pipeline.run(m, f"fix-input:{given}")
    return m


def saved(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "model.onnx"
    ir.save(model(text), path)
    return path


def run(m: ir.Model, **feeds: np.ndarray) -> list[np.ndarray]:
    return execute(m, feeds)


@pytest.mark.parametrize(("sr", "factor"), [("16000", 2), ("8000", 3)])
def test_an_input_that_selects_is_gone_and_so_is_the_if(sr: str, factor: int):
    after = model(VAD)
    pipeline.run(after, f"fix-input:sr={sr},fold")
    assert [x.name for x in after.graph.inputs] == ["x"]
    assert "If" not in [node.op_type for node in after.graph]
    x = np.ones((1, 3), np.float32)
    np.testing.assert_array_equal(run(after, x=x)[0], factor * x)


def test_the_original_is_fed_the_value_and_the_repaired_model_nothing(tmp_path):
    path = saved(tmp_path, VAD)
    report = graphfix.repair_file(path, tmp_path / "o.onnx", "fix-input:sr=16000,fold")
    assert report.output is not None
    assert report.verdict is not None
    assert report.verdict.ok
    # The branch that the value decides against is no part of what was to be tried.
    assert not any("branch" in x for x in report.verdict.not_tried)
    assert graphfix.verify(path, tmp_path / "o.onnx").ok


def test_a_wrong_constant_is_seen(tmp_path):
    wrong = fixed(model(VAD), "sr=8000")
    fixed_inputs.record_fixed_inputs(wrong, {"sr": "16000"})
    verdict = graphfix.verify(saved(tmp_path, VAD), wrong)
    assert not verdict.ok
    assert "differs" in str(verdict)


def test_an_input_that_goes_without_a_word_is_a_change_of_the_interface(tmp_path):
    after = fixed(model(VAD), "sr=8000")
    del after.metadata_props[fixed_inputs.METADATA_KEY]
    verdict = graphfix.verify(saved(tmp_path, VAD), after, cases=None)
    assert not verdict.ok


def test_nothing_else_of_the_interface_may_change(tmp_path):
    after = fixed(model(VAD), "sr=8000")
    after.graph.inputs[0].shape = ir.Shape([1, "T"])
    verdict = graphfix.verify(saved(tmp_path, VAD), after)
    assert "has axis 0 of the input 'x' fixed at 1 instead of N" in str(verdict)


def test_values_of_every_type():
    after = fixed(model(TYPES), "f=0.5+-1e+2:i=-128:u=7:flag=true:h=65504")
    got = {x.name: x.const_value.numpy() for x in after.graph.initializers.values()}
    assert got["f"].tolist() == [0.5, -100.0]
    assert (got["i"].dtype, got["i"].tolist()) == (np.int8, -128)
    assert got["u"].tolist() == [[7, 7], [7, 7]]
    assert got["flag"].tolist() is True
    assert got["h"].tolist() == [65504.0]
    assert [x.name for x in after.graph.inputs] == ["lens", "x"]
    x = np.zeros(2, np.float32)
    outputs = run(after, lens=np.array([1, 2]), x=x)
    assert outputs[0].tolist() == [0.5, -100.0]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("i=128", "the input 'i' is int8, from -128 to 127, and 128 is not among them"),
        ("lens=1", "axis 0 of the input 'lens' has no size.*fix-dims:lens.0=SIZE"),
        ("xx=1", "there is no input 'xx'; did you mean 'x'"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(given: str, reason: str):
    before = model(TYPES)
    with pytest.raises(UsageError, match=reason):
        fixed(before, given)
    assert len(before.graph.inputs) == 7


def test_a_dim_gets_its_size_first(tmp_path):
    after = model(TYPES)
    pipeline.run(after, "fix-dims:lens.0=2,fix-input:lens=3,4")
    assert after.graph.initializers["lens"].const_value.numpy().tolist() == [3, 4]


def test_lists_and_several_inputs_are_read_as_they_are_written():
    (one,) = pipeline.parse_passes("fix-input:sr=16000,is_last=1,lens=3,-4,1e-3,name=true")
    assert one.spec() == "fix-input:sr=16000:is_last=1:lens=3+-4+1e-3:name=true"
    assert pipeline.parse_passes(one.spec()) == [one]


def test_again_is_nothing_and_another_value_is_an_error():
    after = fixed(model(VAD), "sr=16000")
    before = ir.to_proto(after).SerializeToString(deterministic=True)
    fixed(after, "sr=16000")
    assert ir.to_proto(after).SerializeToString(deterministic=True) == before
    with pytest.raises(UsageError, match="sr is 16000 already"):
        fixed(after, "sr=8000")


def test_a_default_is_replaced():
    after = model(VAD)
    sr = after.graph.inputs[1]
    sr.const_value = ir.tensor(np.array(8000), name="sr")
    after.graph.register_initializer(sr)
    fixed(after, "sr=16000")
    x = np.ones((1, 2), np.float32)
    np.testing.assert_array_equal(run(after, x=x)[0], 2 * x)


def test_an_unused_input_goes_and_leaves_nothing_behind():
    after = fixed(model("m (float[N] x, int64 z) => (float[N] y) { y = Neg (x) }"), "z=3")
    assert [x.name for x in after.graph.inputs] == ["x"]
    assert not after.graph.initializers


def test_a_length_that_is_a_constant_tells_nobody_a_length():
    after = model("m (float[1, T] x) => (float[1] y) { y = ReduceMean <axes=[1], keepdims=0> (x) }")
    pipeline.run(after, "ilens-mask")
    assert graphfix.lengths.length_input.LengthInput.from_metadata(after) is not None
    fixed(after, "ilens=3")
    assert graphfix.lengths.length_input.LengthInput.from_metadata(after) is None
    assert run(after, x=np.array([[1, 2, 3, 9]], np.float32))[0].tolist() == [2.0]


def test_given_feeds_may_leave_it_out_and_may_not_contradict(tmp_path):
    path = saved(tmp_path, VAD)
    x = np.ones((1, 2), np.float32)
    np.savez(tmp_path / "ok.npz", x=x)
    np.savez(tmp_path / "bad.npz", x=x, sr=np.array(8000))
    fine = graphfix.repair_file(
        path, tmp_path / "o.onnx", "fix-input:sr=16000", feeds=tmp_path / "ok.npz"
    )
    assert fine.output is not None
    with pytest.raises(FeedError, match=r"the given 'sr' is \[8000\].*the constant \[16000\]"):
        graphfix.repair_file(
            path, tmp_path / "p.onnx", "fix-input:sr=16000", feeds=tmp_path / "bad.npz"
        )


def test_padded_feeds_the_original_the_value(tmp_path):
    path = saved(tmp_path, VAD)
    after = fixed(model(VAD), "sr=16000")
    assert padded(after, original=path, axis="T").ok


def test_ship_makes_containers_without_it(tmp_path):
    path = saved(tmp_path, VAD)
    shipped = ship_file(
        path,
        tmp_path / "out",
        parse_containers(["T=8"]),
        passes="fix-input:sr=16000,directml",
    )
    assert shipped.ok
    session = Session(tmp_path / "out", providers=["CPUExecutionProvider"])
    assert [x.name for x in session.get_inputs()] == ["x"]
    x = np.ones((1, 5), np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], 2 * x)
    session.close()
