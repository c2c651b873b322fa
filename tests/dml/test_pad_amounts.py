"""On the real DirectML: amounts that go through floats, and numbers and integers in their place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.engine import registry
from graphfix.errors import GraphfixError
from graphfix.runtime.local_session import Session
from tests.passes.sizes.test_pad_amounts import filled, model

# What feeds the first Pad of Qwen3OmniMoeCode2Wav, with one layer of 8 features and random weights:
# transformers 5, torch 2.13.0, dynamo, opset 18, a batch of 1, the sequence of codes dynamic.
CAUSAL = Path(__file__).with_name("causal_pads.onnx")
OTHERS = ",".join(x for x in registry.PROFILES["directml"] if x != "pad-amounts")


def agree(m: ir.Model, feeds: list[dict[str, np.ndarray]]) -> None:
    with Session(m) as cpu, Session(m, ep="dml") as dml:
        for given in feeds:
            want, got = cpu.run(given)["y"], dml.run(given)["y"]
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def codes(*lengths: int) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(0)
    return [{"x": random.integers(0, 10, (1, 2, n))} for n in lengths]


def test_the_decoder_does_not_run_without_it_and_runs_with_it() -> None:
    before, after = ir.load(CAUSAL), ir.load(CAUSAL)
    graphfix.run(before, OTHERS)
    # 80070057; or an empty output, where a fold has taken what stood beside the floats.
    with pytest.raises((GraphfixError, AssertionError), match=r"80070057|\(1, 8, 0\)"):
        agree(before, codes(21))
    graphfix.run(after, "directml")
    agree(after, codes(21, 13, 21, 40))


BEHIND = "none, none, none, none, none, behind"
FRONT = "none, none, behind, none, none, none"


@pytest.mark.parametrize(
    "before",
    [
        model(4, 2),
        model(7, 3, "edge"),
        *(
            ir.from_onnx_text(
                filled(f"amounts = Concat <axis = 0> ({place})", mode=mode, opset=opset)
            )
            for mode, opset in (("constant", 11), ("edge", 13), ("reflect", 18), ("wrap", 19))
            for place in (BEHIND, FRONT)
        ),
        ir.from_onnx_text(
            filled(
                "amounts = Concat <axis = 0> (one, behind, one, behind)",
                "x, amounts, value, middle",
                opset=21,
            )
        ),
    ],
)
def test_amounts_that_follow_the_length_are_what_they_are_on_the_cpu(before: ir.Model) -> None:
    after = ir.from_proto(ir.to_proto(before))
    assert graphfix.run(after, "pad-amounts").changed
    random = np.random.default_rng(0)
    feeds = [{"x": random.standard_normal((2, 2, n)).astype(np.float32)} for n in (9, 4, 9, 30)]
    agree(after, feeds)
