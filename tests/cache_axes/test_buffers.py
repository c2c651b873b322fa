"""Caches in buffers of one size: what of them is valid, a count of a mask says."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.cache_axes.buffers import buffer_size, lengths_in_sums
from graphfix.cache_axes.growth import unify_dims
from graphfix.feeds.signature import Signature

HEADER = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> '


def counted(past: str, attributes: str = "", mask: str = "mask") -> ir.Model:
    """A GroupQueryAttention whose caches have a size, and a mask that is counted."""
    return ir.from_onnx_text(
        f"""{HEADER} m (float[B, S, 64] q, float[B, S, 32] k, int64[B, T] mask, int64[B] other,
            float[B, 2, {past}, 16] pk, float[B, 2, {past}, 16] pv, int32 total) => (y, nk, nv)
        <int64[1] one = {{1}}> {{
            ones = ReduceSum (mask, one) more = Add ({"other" if mask == "other" else "ones"}, one)
            last = Cast <to = 6> (more)
            y, nk, nv = com.microsoft.GroupQueryAttention
                <num_heads = 4, kv_num_heads = 2{attributes}> (q, k, k, pk, pv, last, total) }}"""
    )


WINDOW = ", sliding_window_cache = 1, local_window_size = 6"


@pytest.mark.parametrize(
    ("model", "mask", "room"),
    [
        (counted("9"), "S + entries", 9),
        (counted("W", WINDOW), "S + entries", None),
        (counted("8", WINDOW), "S + entries", None),
        # A dim of the caches says how many there are; another input does.
        (counted("P"), "P + S", None),
        (counted("9", mask="other"), "S", 9),
    ],
)
def test_how_long_a_mask_is_that_is_counted(model: ir.Model, mask: str, room: int | None) -> None:
    unify_dims(model)
    dims = {x.name: [str(y) for y in x.shape or ()] for x in model.graph.inputs}
    assert dims["mask"] == ["B", mask]
    assert buffer_size(model) == room
    assert lengths_in_sums(Signature(model)) == (("entries",) if "entries" in mask else ())


@pytest.mark.parametrize(("past", "size"), [("W", "6"), ("8", "8")])
def test_caches_of_a_window_have_its_size(past: str, size: str) -> None:
    model = counted(past, WINDOW)
    unify_dims(model)
    (pk,) = [x for x in model.graph.inputs if x.name == "pk"]
    assert [str(x) for x in pk.shape or ()] == ["B", "2", size, "16"]


def test_another_tie_leaves_the_mask_as_long_as_the_tokens() -> None:
    model = counted("9")
    unify_dims(model, "graph")
    assert not lengths_in_sums(Signature(model))
