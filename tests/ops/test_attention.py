"""Which input of an attention is what, as ONNX and ONNX Runtime name them."""

import onnx_ir as ir
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as state

from graphfix import ops
from graphfix.ops.attention import _SLOTS, AttentionSlots, attention_slots

_NAMES = {
    "query": {"query", "input", "Q"},
    "key": {"key", "input", "K"},
    "value": {"value", "input", "V"},
    "weights": {"weights", "weight"},
    "bias": {"bias"},
    "mask": {"mask_index", "key_padding_mask", "seqlens_k"},
    "addend": {"attention_bias", "attn_mask"},
    "past_key": {"past_key"},
    "past_value": {"past_value"},
    "past": {"past"},
}
_SCHEMAS = {
    (f"{x.domain}." if x.domain else "") + x.name: x
    for x in sorted(state.get_all_operator_schema(), key=lambda x: x.since_version)
}


@pytest.mark.parametrize("operator", sorted(_SLOTS))
def test_inputs_of_attention_are_called_so(operator: str) -> None:
    slots, names = _SLOTS[operator], [x.name for x in _SCHEMAS[operator].inputs]
    for role, allowed in _NAMES.items():
        index = getattr(slots, role)
        if index is None:
            assert role in ("query", "key", "value") or not allowed & {*names}, role
        else:
            assert names[index] in allowed
    assert {names[i] for i in slots.pasts} == {x for x in names if x.startswith("past")} - {
        "past_sequence_length"
    }


def test_every_attention_is_read() -> None:
    assert _SLOTS.keys() == ops.ATTENTIONS - {"LinearAttention"}


def test_an_addend_is_found_by_the_operator() -> None:
    values = [ir.Value(name=f"x{i}") for i in range(7)]
    theirs = attention_slots(ir.Node("com.microsoft", "MultiHeadAttention", values))
    own = attention_slots(ir.Node("", "Attention", values[:4]))
    assert theirs is not None
    assert own is not None
    assert (theirs.addend, own.addend) == (5, 3)
    assert attention_slots(ir.Node("", "MatMul", values[:2])) is None


def test_pasts_are_those_that_there_are() -> None:
    assert AttentionSlots(0, 1, 2).pasts == ()
    assert AttentionSlots(0, 1, 2, past_key=0, past_value=7).pasts == (0, 7)
    assert AttentionSlots(0, 0, 0, past=4).pasts == (4,)
