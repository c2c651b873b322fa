"""pad-empty: which Pads of what may be empty are guarded, equal numbers, what is left and why."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import execute, model, ops, refusals

KEPT = "found = Compress <axis = 0> (x, keep)"


def padded(
    dims: str = "N, 4", pads: str = "0, 0, 6, 0", kept: str = KEPT, node: str = "Pad (found, pads)",
    kind: str = "float", opset: int = 17,
) -> ir.Model:  # fmt: skip
    out = ", ".join("PQRS"[: dims.count(",") + 1])
    return model(
        f"m ({kind}[{dims}] x, bool[N] keep, {kind} c) => ({kind}[{out}] y) "
        f"<int64[{pads.count(',') + 1}] pads = {{{pads}}}, {kind} five = {{5}}> "
        f"{{ {kept} y = {node} }}",
        opset,
    )


@pytest.mark.parametrize("opset", [11, 13, 18, 21])
@pytest.mark.parametrize("kind", ["float", "int64"])
@pytest.mark.parametrize("node", ["Pad (found, pads)", "Pad (found, pads, five)"])
@pytest.mark.parametrize("pads", ["0, 0, 6, 0", "2, 1, 0, 0", "0, 0, 1, 3"])
def test_the_same_numbers(opset: int, kind: str, node: str, pads: str) -> None:
    before, after = (padded(pads=pads, node=node, kind=kind, opset=opset) for _ in range(2))
    assert graphfix.run(after, "pad-empty").changed
    assert not graphfix.run(after, "pad-empty").changed
    assert not [x for x in graphfix.check(after) if x.rule == "empty-input"]
    x = np.arange(12).reshape(3, 4).astype("float32" if kind == "float" else kind)
    for keep in ([1, 1, 1], [0, 1, 0], [0, 0, 0]):
        feeds = {"x": x, "keep": np.array(keep, bool), "c": np.array(x[0, 0])}
        (old,), (new,) = execute(before, feeds), execute(after, feeds)
        np.testing.assert_array_equal(old, new)


def test_pads_that_follow_how_many_there_are() -> None:
    body = """m (float[N] x, bool[N] keep) => (float[6] y) <int64[1] six = {6}, int64[1] zero = {0},
        float less = {-1}> { found = Compress <axis = 0> (x, keep) n = Shape (found)
        rest = Sub (six, n) pads = Concat <axis = 0> (zero, rest) y = Pad (found, pads, less) }"""
    before, after = (model(body, 17) for _ in range(2))
    assert graphfix.run(after, "directml").changed
    assert "Concat" in ops(after)
    for keep in ([1, 1, 1], [0, 0, 0]):
        feeds = {"x": np.arange(3, dtype=np.float32), "keep": np.array(keep, bool)}
        np.testing.assert_array_equal(execute(before, feeds)[0], execute(after, feeds)[0])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dims": "N, C"}, "the sizes of its other axes are not known"),
        ({"node": "Pad (found, pads, c)"}, "what it pads with is computed in a run"),
        ({"pads": "0, -1, 6, 0"}, "pad-slice comes first"),
        ({"kept": "found = Relu (x)"}, None),
        ({"node": 'Pad <mode = "edge"> (found, pads)'}, None),
        ({"pads": "0, 1, 0, 1"}, None),  # of nothing it makes nothing
    ],
)
def test_what_is_left_alone(options: dict[str, str], reason: str | None) -> None:
    m = padded(**options)
    found = refusals(m, "pad-empty")
    assert found == ([] if reason is None else [reason]) or reason in found[0]
    severities = [x.severity for x in graphfix.check(m, "pad-empty")]
    assert severities == ["warning"] * (reason is not None)
