"""Which input of an attention is what, as ONNX and ONNX Runtime name them."""

from __future__ import annotations

from dataclasses import asdict

import onnx
import onnx_ir as ir
import pytest

from graphfix.ops.attention import AttentionSlots, attention_slots

ROLES = {
    "query": ("query", "input", "Q"),
    "key": ("key", "input", "K"),
    "value": ("value", "input", "V"),
    "weights": ("weights", "weight"),
    "bias": ("bias",),
    "mask": ("mask_index", "key_padding_mask", "seqlens_k"),
    "addend": ("attention_bias", "attn_mask"),
    "past_key": ("past_key",),
    "past_value": ("past_value",),
    "past": ("past",),
}
CONTRIB = (
    *("Attention", "DecoderMaskedMultiHeadAttention", "GroupQueryAttention"),
    *("MultiHeadAttention", "PackedAttention", "PackedMultiHeadAttention", "QAttention"),
)


def slots_of(op: str, domain: str = "com.microsoft") -> AttentionSlots | None:
    return attention_slots(ir.Node(domain, op, []))


def named_roles(names: list[str]) -> dict[str, int | None]:
    """Return the place of each role, by the names of inputs."""
    places = {name: i for i, name in enumerate(names)}
    return {
        role: next((places[x] for x in words if x in places), None) for role, words in ROLES.items()
    }


@pytest.mark.parametrize("op", CONTRIB)
def test_inputs_of_onnx_runtime_are_where_it_says(op: str) -> None:
    pybind = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
    if not hasattr(pybind, "get_all_operator_schema"):
        pytest.skip("this build of ONNX Runtime lists no schemas")
    schemas = pybind.get_all_operator_schema()
    schema = next((x for x in schemas if (x.domain, x.name) == ("com.microsoft", op)), None)
    if schema is None:
        pytest.skip("this version of ONNX Runtime has no such operator")
    roles = named_roles([x.name for x in schema.inputs])
    slots = slots_of(op)
    assert slots is not None
    # Older versions lack inputs at the end.
    assert {k: x for k, x in asdict(slots).items() if roles[k] is not None} == {
        k: x for k, x in roles.items() if x is not None
    }


def test_inputs_of_onnx_are_where_it_says() -> None:
    slots = slots_of("Attention", "")
    assert slots is not None
    assert asdict(slots) == named_roles([x.name for x in onnx.defs.get_schema("Attention").inputs])
    assert slots_of("Softmax", "") is None
    assert slots_of("Attention", "own") is None


def test_pasts_are_those_that_there_are() -> None:
    assert AttentionSlots(0, 1, 2).pasts == ()
    assert AttentionSlots(0, 1, 2, past_key=0, past_value=7).pasts == (0, 7)
    assert AttentionSlots(0, 0, 0, past=4).pasts == (4,)
