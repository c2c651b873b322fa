"""Single nodes in ONNX text, as their rule sees them, with what is known of each input."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from graphfix.graph.walks import opset_of
from graphfix.lengths.length_source import find_length_source
from graphfix.lengths.rule_site import PaddingRule, RuleSite
from graphfix.lengths.tail_state import (
    FINITE,
    BatchFactor,
    OtherFactor,
    Tail,
    TensorState,
    TimeFactor,
    size_expr,
    state_with_tail,
)
from graphfix.ops.op_set import qualified_name

size = size_expr
"""A short name for tables of cases."""
ROWS, TIME, FOUR = (BatchFactor(size("B")),), (TimeFactor(size("T")),), (OtherFactor(size("4")),)
"""The axes of ``[B, T, 4]``."""


def site_of(
    node: str,
    *,
    inputs: str = "float[B, T, 4] x",
    constants: str = "",
    opset: int = 17,
    axis: str = "x.1",
    outputs: str = "y",
    **facts: Tail | dict[str, Any],
) -> RuleSite:
    """Return the site of the last node of a model whose time is an axis of ``x``.

    Args:
        node: The node, perhaps behind others.
        inputs: Of the model.
        constants: Of the model.
        opset: Of the model.
        axis: Where time is.
        outputs: Of the model.
        facts: The tail of an input along all its times, finite by default, or other facts.
    """
    values = f"<{constants}>" if constants else ""
    header = f'<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>'
    model = ir.from_onnx_text(f"{header} g ({inputs}) => ({outputs}) {values} {{ {node} }}")
    site = RuleSite(model.graph[-1], [], find_length_source(model, axis), opset_of(model))
    for value in site.node.inputs:
        if value is None:
            site.states.append(None)
            continue
        known = facts.get(value.name or "", FINITE)
        tail, others = (known, {}) if isinstance(known, Tail) else (FINITE, known)
        axes = [site.axis_of_size(x) for x in site.dims_of(value) or ()]
        state = state_with_tail(axes, tail)
        fixed = value.is_initializer()
        site.states.append(dataclasses.replace(state, **{"fixed": fixed, **others}))
    return site


def asked_leaks(site: RuleSite) -> list[str]:
    """Return the leaks whose repairs were asked for."""
    return [x.leak for x in site.repairs]


def result_of(rules: Mapping[str, PaddingRule], site: RuleSite) -> TensorState:
    """Return the state of the one result of a node, by its rule in a table."""
    state = rules[qualified_name(site.node)].infer_states(site)
    assert isinstance(state, TensorState)
    return state


def sizes(state: TensorState | None) -> str:
    """Return the size along each axis, as in ``B T 4``."""
    assert state is not None
    return " ".join(str(state.size_along(i)) for i in range(state.rank))
