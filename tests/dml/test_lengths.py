"""On the real DirectML: what ilens-mask writes into attentions in one node, and behind frames."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graphfix
from graphfix.runtime.local_session import Session
from tests.lengths.rules import test_attention as attention
from tests.lengths.rules import test_concat_pad_stacking as stacking

LENGTHS, SIZE = (3, 7, 11), 13
MODELS = {
    **{
        name: attention.model(attention.BODIES[name])
        for name in (
            *("no mask", "a mask that is an input", "a mask as low as numbers get"),
            *("an addend", "an addend as low as numbers get", "of one tensor, with a mask"),
        )
    },
    "frames in groups": stacking.model(stacking.body(end="attention")),
}


@pytest.mark.parametrize("name", MODELS)
def test_rows_in_a_container_are_what_each_is_alone(name: str) -> None:
    before: onnx.ModelProto = MODELS[name]
    after = ir.from_proto(before)
    graphfix.run(after, "directml,ilens-mask:axis=x.1")
    x = np.full((len(LENGTHS), SIZE, 4), np.nan, np.float32)
    m = np.ones((len(LENGTHS), SIZE), np.int64)
    m[:, 1] = 0
    for row, n in enumerate(LENGTHS):
        x[row, :n] = np.abs(attention.CONTENT[row, :n])
    taken = {value.name for value in after.graph.inputs}
    feeds = {"x": x, "m": m, "ilens": np.array(LENGTHS)}
    with Session(after, ep="dml") as dml:
        found = dml.run({k: v for k, v in feeds.items() if k in taken})["y"]
    with Session(ir.from_proto(before)) as cpu:
        for row, n in enumerate(LENGTHS):
            own = {"x": x[row : row + 1, :n], "m": m[row : row + 1, :n]}
            wanted = cpu.run({k: v for k, v in own.items() if k in taken})["y"]
            got = found[row : row + 1, : wanted.shape[1]]
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
