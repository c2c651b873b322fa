"""On the real DirectML: parts of tensors that are computed on in place."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from graphfix.errors import ModelError
from graphfix.runtime.local_session import Session
from tests.passes.defects.test_slice_gather import LEFT, SITES, model

X = np.random.default_rng(0).standard_normal((1, 20, 8)).astype(np.float32)


@pytest.mark.parametrize("body", SITES.values(), ids=SITES)
def test_no_session_is_made_of_it_and_one_is_of_a_gather(body: str) -> None:
    before, after = model(body), model(body)
    with pytest.raises(ModelError, match="80070057"):
        Session(before, ep="dml")
    graphfix.run(after, "slice-gather")
    agree(after, before)


@pytest.mark.parametrize("body", LEFT.values(), ids=LEFT)
def test_what_is_left_alone_runs(body: str) -> None:
    agree(model(body), model(body))


@pytest.mark.parametrize("op_type", ["Erf", "Exp", "LeakyRelu", "Neg", "Sqrt"])
def test_other_operators_that_go_by_elements(op_type: str) -> None:
    body = f"z = Mul (x, x) q = Slice (z, s, e, a) y = {op_type} (q)"
    with pytest.raises(ModelError, match="80070057"):
        Session(model(body), ep="dml")


def agree(here: ir.Model, there: ir.Model) -> None:
    with Session(there) as cpu, Session(here, ep="dml") as dml:
        want, got = cpu.run({"x": X})["y"], dml.run({"x": X})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
