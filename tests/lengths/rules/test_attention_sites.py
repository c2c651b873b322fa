"""Rules for attention in one node: each input by itself."""

from __future__ import annotations

from typing import Any

import pytest

from graphfix.lengths.joint_axes import RefusedError
from graphfix.lengths.rule_site import RuleSite
from graphfix.lengths.rules.attention import RULES
from graphfix.lengths.tail_state import ANY, FINITE, HIDDEN, ONE, ZERO, Tail, TensorState
from graphfix.ops import qualified_name
from tests.lengths.sites import site_of

INPUTS = (
    "float[B, T, 8] x, float[B, T, 8] k, float[B, T, 8] v, float[B, S, 8] q, float[24] bias, "
    "float[T] wide, int32[B, T] mask, float[B, 2, T, T] addend, float[B, 2, T, 4] past, "
    "float[8, 24] w, float[T, 24] tw, float[B, 8, T] turned, float[B, 2, T, 4] heads, "
    "int64[1] places, float[T, 2] table, float[9, 2] fixed, float[1, 2, T, 1] same, "
    "float[1, T, T, 1] odd, int64[B, T] ids, float[B, T, 2] rows, float[B, 2, 4, T] across, "
    "float[1, 1, 1, T] hides, int32[B, 1, T] deep"
)
MHA = "com.microsoft.MultiHeadAttention <num_heads = 2>"
ROTARY = "com.microsoft.RotaryEmbedding"


def infer(
    node: str,
    *,
    opset: int = 23,
    constants: str = "int64[1] zero = {0}, int64[1] one = {1}",
    **facts: Tail | dict[str, Any],
) -> tuple[RuleSite, TensorState]:
    """Return the site of a node, and the state of its first result."""
    site = site_of(f"y = {node}", inputs=INPUTS, opset=opset, constants=constants, **facts)
    states = RULES[qualified_name(site.node)].infer_states(site)
    first = states if isinstance(states, TensorState) else states[0]
    assert first is not None
    return site, first


def repairs(site: RuleSite) -> list[tuple[str, int | None]]:
    return [(type(x).__name__, getattr(x, "index", None)) for x in site.repairs]


@pytest.mark.parametrize(
    ("node", "facts", "asked"),
    [
        (f"{MHA} (x, k, v)", {}, [("HideKeys", None)]),
        (f"{MHA} (x, k, v)", {"k": ANY}, [("ZeroTail", 1), ("HideKeys", None)]),
        (f"{MHA} (x, k, v)", {"v": ANY}, [("ZeroTail", 2), ("HideKeys", None)]),
        (f"{MHA} (q, k, v)", {}, [("HideKeys", None)]),
        (f"{MHA} (x, q, q)", {}, []),
        (f"{MHA} (x, k, v, , mask)", {}, [("HideKeys", None)]),
        (f"{MHA} (x, k, v, , mask)", {"mask": {"tails": (None, ZERO)}}, [("HideKeys", None)]),
        (f"{MHA} (x, k, v, , mask)", {"mask": {"tails": (None, ZERO), "valid_fill": 1.0}}, []),
        (f"{MHA} (x, k, v, , , addend)", {}, [("HideTail", 5)]),
        (f"{MHA} (x, k, v, , , addend)", {"addend": HIDDEN}, []),
        (
            "com.microsoft.MultiHeadAttention <num_heads = 2, unidirectional = 1> (x, k, v)",
            {},
            [],
        ),
        (
            "com.microsoft.MultiHeadAttention <num_heads = 2, unidirectional = 1> (q, k, v)",
            {},
            [("HideKeys", None)],
        ),
        ("com.microsoft.Attention <num_heads = 2> (x, w, bias)", {}, [("HideKeys", None)]),
        (
            "com.microsoft.Attention <num_heads = 2> (x, w, bias)",
            {"x": ANY},
            [("ZeroTail", 0), ("HideKeys", None)],
        ),
        ("Attention (heads, heads, heads)", {}, [("MaskKeys", None)]),
        ("Attention <is_causal = 1> (heads, heads, heads)", {}, []),
        ("Attention <q_num_heads = 2, kv_num_heads = 2> (x, k, v)", {}, [("MaskKeys", None)]),
        ("Attention (heads, heads, heads, hides)", {}, [("HideTail", 3)]),
        ("Attention (heads, heads, heads, hides)", {"hides": HIDDEN}, []),
    ],
)
def test_keys_are_hidden_and_finite(
    node: str, facts: dict[str, Any], asked: list[tuple[str, int | None]]
) -> None:
    site, _ = infer(node, **facts)
    assert repairs(site) == asked


@pytest.mark.parametrize(
    ("facts", "kept"), [({"valid_fill": 1.0}, False), ({"valid_fill": 0.0}, True), ({}, True)]
)
def test_a_mask_of_ones_is_not_kept(facts: dict[str, Any], kept: bool) -> None:
    site, _ = infer(f"{MHA} (x, k, v, , mask)", mask=facts)
    assert site.repairs[-1].keeps_mask == kept


@pytest.mark.parametrize(
    ("low", "valid", "hides"),
    [(-1e30, 0.5, True), (-1e29, 0.5, False), (-1e3, 1.0, True), (-999.0, 1.0, False)],
)
def test_a_mask_hides_by_a_low_number(low: float, valid: float, hides: bool) -> None:
    node = f"com.microsoft.MultiHeadAttention <num_heads = 2, mask_filter_value = {low:f}>"
    facts = {"tails": (None, ZERO), "valid_fill": valid}
    site, _ = infer(f"{node} (x, k, v, , mask)", mask=facts)
    assert not site.repairs if hides else repairs(site) == [("HideKeys", None)]


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (f"{MHA} (heads, heads, heads)", r"are not \[batch, time, features\] each"),
        (f"{MHA} (x)", r"are not \[batch, time, features\] each"),
        (f"{MHA} (x, k, v, wide)", "a bias of it carries time"),
        (f"{MHA} (x, k, v, , , , past, past)", "its keys are joined to those of earlier runs"),
        (f"{MHA} (turned, turned, turned)", "time is its feature axis"),
        (f"{MHA} (x, k, turned)", "time is its feature axis"),
        (f"{MHA} (x, k, v, , deep)", "its mask is of rank 3"),
        (f"{MHA} (x, k, v, , , x)", "its attention_bias is not"),
        (f"{MHA} (x, k, v, , , odd)", "its attention_bias is not"),
        (f"{MHA} (x, k, v, , , same)", "its attention_bias is the same for all keys"),
        ("com.microsoft.Attention <num_heads = 2> (heads, w)", r"its input is not \[batch, time"),
        ("com.microsoft.Attention <num_heads = 2> (x, tw)", "its weights carry time"),
        ("Attention (heads, heads, heads, same)", "its mask is not"),
        ("Attention (heads, heads, heads, table)", "its mask is not"),
        ("Attention (x, k, heads)", "its queries, keys and values are not"),
        ("Attention (table, table, table)", "its queries, keys and values are not"),
        ("Attention (heads, heads, heads, , past, past)", "its keys are joined"),
        ("Attention (across, across, across)", "time is its axis of heads or of features"),
        (f"{ROTARY} (across, places, fixed, fixed)", "time is its feature axis"),
        (f"{ROTARY} (table, places, fixed, fixed)", "time is its feature axis, or its rank"),
        (f"{ROTARY} (x, places, table, table)", "it reads rows of a table that carries time"),
        (f"{ROTARY} (x, one, table, table)", "it reads rows of a table that carries time"),
        (f"{ROTARY} (x, ids, table, table)", "it reads rows of a table that carries time"),
        ("RotaryEmbedding (heads, table, table, ids)", "its tables hold padded sizes, or rows"),
        ("RotaryEmbedding (across, rows, rows)", "time is its feature axis"),
    ],
)
def test_refusals(node: str, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        infer(node)


@pytest.mark.parametrize(
    ("node", "name"),
    [
        (f"{ROTARY} (x, places, fixed, fixed)", "places"),
        (f"{ROTARY} (x, places, fixed, fixed)", "fixed"),
        ("RotaryEmbedding (heads, rows, rows)", "rows"),
    ],
)
def test_tables_of_padded_sizes_are_refused(node: str, name: str) -> None:
    with pytest.raises(RefusedError, match="its tables hold padded sizes"):
        infer(node, **{name: {"counts_padding": True}})


@pytest.mark.parametrize(
    ("node", "facts", "tails"),
    [
        (f"{MHA} (x, k, v)", {"x": ONE}, (None, FINITE, None)),
        (f"{MHA} (x, k, v)", {"x": ANY}, (None, ANY, None)),
        (f"{MHA} (q, k, v)", {}, (None, None, None)),
        (f"{MHA} (x, q, q)", {}, (None, FINITE, None)),
        ("Attention (heads, heads, heads)", {}, (None, None, FINITE, None)),
        (f"{ROTARY} (x, zero, table, table)", {"x": ZERO}, (None, FINITE, None)),
        (f"{ROTARY} (x, zero, table, table)", {"table": ANY}, (None, ANY, None)),
        (f"{ROTARY} (heads, places, fixed, fixed)", {}, (None, None, FINITE, None)),
        ("RotaryEmbedding (heads, rows, rows)", {"heads": ANY}, (None, None, ANY, None)),
        ("RotaryEmbedding (heads, fixed, fixed, ids)", {}, (None, None, FINITE, None)),
    ],
)
def test_tails_are_those_of_the_queries(
    node: str, facts: dict[str, Any], tails: tuple[Tail | None, ...]
) -> None:
    _, state = infer(node, **facts)
    assert state.tails == tails


def test_only_the_first_result_is_known() -> None:
    site = site_of(f"y, key, value = {MHA} (x, k, v)", inputs=INPUTS, opset=23)
    states = RULES["com.microsoft.MultiHeadAttention"].infer_states(site)
    assert list(states)[1:] == [None, None]


def test_a_mask_is_of_the_keys() -> None:
    """Queries, keys and values may hold different numbers behind what is valid."""
    site, _ = infer("Attention <q_num_heads = 2, kv_num_heads = 2> (x, k, v)", k=ONE, v=ZERO)
    assert site.repairs[0].state.tails == (None, ONE)
    site, _ = infer(f"{MHA} (x, k, v)", k=ONE, v=ZERO)
    assert site.repairs[0].state.tails == (None, ONE, None)
