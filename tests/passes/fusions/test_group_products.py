"""group-products: heads that share keys and values are multiplied with them at once."""

from __future__ import annotations

import onnx_ir as ir
import pytest

import graphfix
from graphfix.proof.verify import verify
from tests.passes.models import ops

REPEATED = (
    "apart = Unsqueeze (k, two) repeated = Expand (apart, twice) each = Reshape (repeated, all)"
)
VALUES = f"{REPEATED} y = MatMul (w, each)"
KEYS = f"{REPEATED} y = com.microsoft.FusedMatMul <transB = 1, alpha = 0.5> (w, each)"


def model(body: str, left: str = "T", out: str = "") -> ir.Model:
    return ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        m (float[B, 6, S, {left}] w, float[B, 2, T, 8] k) => (float[B, 6, S, N] y{out})
        <int64[1] two = {{2}}, int64[1] one = {{1}}, int64[5] twice = {{1, 1, 3, 1, 1}},
         int64[5] thrice = {{1, 3, 1, 1, 1}}, int64[4] all = {{0, 6, -1, 8}}> {{ {body} }}"""
    )


@pytest.mark.parametrize(("body", "left"), [(VALUES, "T"), (KEYS, "8")])
def test_nothing_is_repeated(body: str, left: str) -> None:
    before, after = model(body, left), model(body, left)
    assert graphfix.run(after, "group-products").changed
    assert ops(after) == ["Reshape", "FusedMatMul" if body is KEYS else "MatMul", "Reshape"]
    verdict = verify(before, after)
    assert verdict.ok, verdict.reason or verdict.failed
    assert not graphfix.run(after, "group-products").changed


STAYS = {
    "the heads are repeated one behind the other": (
        VALUES.replace("(k, two)", "(k, one)").replace("twice", "thrice"),
        "",
    ),
    "what is repeated goes elsewhere": (f"{VALUES} z = Relu (each)", ", float[B, 6, T, 8] z"),
    "its batch is laid out otherwise": (
        KEYS.replace("transB = 1,", "transB = 1, transBatchA = 1,"),
        "",
    ),
    "nothing is repeated": ("each = Concat <axis = 1> (k, k, k) y = MatMul (w, each)", ""),
}


@pytest.mark.parametrize("case", STAYS)
def test_what_stays(case: str) -> None:
    body, out = STAYS[case]
    assert not graphfix.run(model(body, out=out), "group-products").changed
