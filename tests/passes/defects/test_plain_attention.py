"""plain-attention: equal numbers and caches for each operator, and what is left and why."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import graphfix
from tests.passes.models import model, opened, ops, refusals

CONTRIB = ', "com.microsoft" : 1'
COS = np.cos(np.outer(np.arange(32), np.arange(1, 9) / 7)).astype(np.float32)
TABLES = ", ".join(
    f"float[32, 8] {name} = {{{', '.join(map(str, table.reshape(-1).tolist()))}}}"
    for name, table in (("cos", COS), ("sin", np.sqrt(1 - COS**2)))
)


def grouped(
    attributes: str = "",
    inputs: str = "",
    operands: str = "q, k, v",
    size: int = 0,
    opset: int = 17,
) -> ir.Model:
    """A GroupQueryAttention of 4 heads of 16 features, whose keys have 2; of caches of a size."""
    more = f", {attributes}" if attributes else ""
    cache, room = f"float[B, 2, {size or 'P'}, 16]", size or "Q"
    return model(
        f"""m (float[B, S, 64] q, float[B, S, 32] k, float[B, S, 32] v, {cache} pk, {cache} pv,
            int32[B] last, int32 total{inputs}) => (float[B, S, 64] y,
            float[B, 2, {room}, 16] nk, float[B, 2, {room}, 16] nv) <{TABLES}>
        {{ y, nk, nv = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2{more}>
            ({operands}, pk, pv, last, total, cos, sin{"" if not inputs else ", , , sink"}) }}""",
        opset,
        CONTRIB,
    )


def fed(m: ir.Model, new: int, past: int, room: int = 0) -> dict[str, Any]:
    """Arrays for each input: so many new tokens behind so many in the caches."""
    random = np.random.default_rng([new, past])
    # ONNX Runtime's GroupQueryAttention takes several new tokens behind others in one row only.
    rows = 1 if new > 1 and past and "last" in [x.name for x in m.graph.inputs] else 2
    sizes = {"B": rows, "S": new, "P": room or past, "T": new + past}
    arrays: dict[str, Any] = {}
    for value in m.graph.inputs:
        shape = [x if isinstance(x, int) else sizes[str(x)] for x in value.shape or ()]
        if value.name in ("last", "total"):
            count = new + past - (value.name == "last")
            arrays[value.name] = np.full(shape, count, np.int32)
        elif value.name == "mask":
            arrays[value.name] = (random.random(shape) > 0.3).astype(np.int32)
            arrays[value.name][:, -1] = 1
        else:
            arrays[str(value.name)] = random.standard_normal(shape).astype(np.float32)
            if room and value.name in ("pk", "pv"):
                arrays[value.name][:, :, past:] = 0
    return arrays


def assert_same(m: ir.Model, *sizes: tuple[int, int], room: int = 0) -> None:
    """Run the model and its parts on the same arrays."""
    before = opened(m)
    report = graphfix.run(m, "plain-attention")
    assert report.changed
    assert not {"GroupQueryAttention", "MultiHeadAttention", "Attention"} & {*ops(m)}
    after = opened(m)
    for new, past in sizes:
        arrays = fed(m, new, past, room)
        for wanted, made in zip(before.run(None, arrays), after.run(None, arrays), strict=True):
            np.testing.assert_allclose(made, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("attributes", "inputs"),
    [
        ("", ""),
        ("scale = 0.3", ""),
        ("do_rotary = 1", ""),
        ("do_rotary = 1, rotary_interleaved = 1", ""),
        ("local_window_size = 3", ""),
        ("softcap = 2.0", ""),
        ("smooth_softmax = 1", ""),
        ("local_window_size = 3", ", float[4] sink"),
    ],
)
def test_grouped_queries(attributes: str, inputs: str) -> None:
    assert_same(grouped(attributes, inputs), (1, 6), (3, 5), (4, 0))


def test_packed_inputs_are_cut_apart() -> None:
    m = grouped("do_rotary = 1", operands="q, , ")
    m.graph.inputs[0].shape = ir.Shape(["B", "S", 128])
    assert_same(m, (1, 6), (3, 5))


@pytest.mark.parametrize("opset", [14, 17, 18, 21])
@pytest.mark.parametrize("attributes", ["", "do_rotary = 1, local_window_size = 3"])
def test_new_entries_are_written_into_a_buffer(attributes: str, opset: int) -> None:
    """Past and present are declared as one size: what lies behind what is valid stays."""
    m = grouped(attributes, size=9, opset=opset)
    assert_same(m, (1, 6), (3, 5), (4, 0), room=9)


@pytest.mark.parametrize(("size", "window"), [(4, 4), (7, 4), (5, 2)])
@pytest.mark.parametrize("more", ["do_rotary = 1", "smooth_softmax = 1, softcap = 2.0"])
def test_a_cache_that_holds_a_window_drops_what_falls_out(
    size: int, window: int, more: str
) -> None:
    """The rows are those of the library, which drops several at once where it has room for them."""
    m = grouped(f"sliding_window_cache = 1, local_window_size = {window}, {more}", size=size)
    before = opened(m)
    assert graphfix.run(m, "plain-attention").changed
    assert "GroupQueryAttention" not in ops(m)
    after, total = opened(m), 0
    states = dict.fromkeys(("pk", "pv"), np.zeros((1, 2, size, 16), np.float32))
    for new in (1, 2, 1, 3, 1, 1, 9, 1, 1, 1, 2, 1):
        arrays = {k: x[:1] for k, x in fed(m, new, total).items() if k not in ("pk", "pv", "total")}
        arrays |= {**states, "total": np.array(total + new, np.int32)}
        total += new
        arrays["last"] = np.array([total - 1], np.int32)
        wanted, made = before.run(None, arrays), after.run(None, arrays)
        np.testing.assert_allclose(made[0], wanted[0], rtol=0, atol=1e-5)
        spare = size - window + 1
        kept = total - spare * -(-max(0, total - size) // spare)
        for x, y in zip(wanted[1:], made[1:], strict=True):
            np.testing.assert_allclose(y[:, :, :kept], x[:, :, :kept], rtol=0, atol=1e-5)
        states = {"pk": made[1], "pv": made[2]}


def test_a_past_of_a_fixed_size_grows_where_the_present_is_declared_longer() -> None:
    m = grouped(size=9)
    for value in m.graph.outputs[1:]:
        value.shape = ir.Shape(["B", 2, 10, 16])
    assert_same(m, (1, 9), room=9)


def cached(operator: str, attributes: str, operands: str, inputs: str) -> ir.Model:
    return model(
        f"""m (float[B, S, 8] q, float[B, S, 8] k, float[B, S, 8] v, float[B, 2, P, 4] pk,
            float[B, 2, P, 4] pv{inputs}) => (float[B, S, 8] y, float[B, 2, Q, 4] nk,
            float[B, 2, Q, 4] nv)
        {{ y, nk, nv = com.microsoft.{operator} <num_heads = 2{attributes}> ({operands}) }}""",
        17,
        CONTRIB,
    )


@pytest.mark.parametrize(
    ("attributes", "operands", "inputs"),
    [
        ("", "q, k, v, , , , pk, pv", ""),
        (", scale = 0.3", "q, k, v, bias, , , pk, pv", ", float[24] bias"),
        (", unidirectional = 1", "q, k, v, , , , pk, pv", ""),
        ("", "q, k, v, , mask, , pk, pv", ", int32[B, T] mask"),
        ("", "q, k, v, , mask, more, pk, pv", ", int32[B, T] mask, float[B, 2, S, T] more"),
    ],
)
def test_heads_of_one_number(attributes: str, operands: str, inputs: str) -> None:
    assert_same(cached("MultiHeadAttention", attributes, operands, inputs), (1, 6), (3, 5))


@pytest.mark.parametrize(
    ("attributes", "mask", "inputs"),
    [("unidirectional = 1", "", ""), ("scale = 0.3", "mask", ", int32[B, T] mask")],
)
def test_projections_and_a_cache_of_both(attributes: str, mask: str, inputs: str) -> None:
    m = model(
        f"""m (float[B, S, 6] x, float[6, 24] w, float[24] b, float[2, B, 2, P, 4] past{inputs})
            => (float[B, S, 8] y, float[2, B, 2, Q, 4] present)
        {{ y, present = com.microsoft.Attention <num_heads = 2, {attributes}>
            (x, w, b, {mask}, past) }}""",
        17,
        CONTRIB,
    )
    assert_same(m, (1, 6), (3, 5))


@pytest.mark.parametrize(
    ("m", "why"),
    [
        (grouped("sliding_window_cache = 1, local_window_size = 3"), "size is not fixed"),
        (grouped("sliding_window_cache = 1, local_window_size = 3", size=2), "less than its"),
        (grouped().graph and cached("MultiHeadAttention", "", "q, k, v, , , , pk, pv, n",
                                    ", int32[1] n"), "an input that this pass does not know: 8"),
        (cached("MultiHeadAttention", "", "q, k, v, , mask, , pk, pv", ", int32[B] mask"),
         "its mask counts keys"),
    ],
)  # fmt: skip
def test_what_is_left(m: ir.Model, why: str) -> None:
    (reason,) = refusals(m, "plain-attention")
    assert why in reason


def test_what_has_no_cache_is_none_of_it() -> None:
    assert not refusals(cached("MultiHeadAttention", "", "q, k, v", ""), "plain-attention")


def test_what_is_fused_here_is_left() -> None:
    """fuse-attention takes the caches into one node again."""
    m = cached("MultiHeadAttention", "", "q, k, v, , , , pk, pv", "")
    graphfix.run(m, "plain-attention,fuse-attention")
    assert "MultiHeadAttention" in ops(m)
    assert not graphfix.run(m, "plain-attention").changed
