"""Models in ONNX text, and what their analysis knows of each tensor."""

from __future__ import annotations

import onnx_ir as ir

from graphfix.lengths.analysis import Analysis, analyse
from graphfix.lengths.length_source import find_length_source
from graphfix.lengths.tail_state import TensorState


def analysis_of(
    body: str,
    *,
    inputs: str = "float[B, T, 4] x",
    output: str = "y",
    constants: str = "",
    opset: int = 17,
) -> Analysis:
    """Analyse a model whose time is axis 1 of ``x``."""
    values = f"<{constants}>" if constants else ""
    imports = f'["" : {opset}, "com.microsoft" : 1]'
    model = ir.from_onnx_text(
        f"<ir_version: 8, opset_import: {imports}> g ({inputs}) => ({output}) {values} {{ {body} }}"
    )
    return analyse(model, find_length_source(model, "x.1"))


def state_of(analysis: Analysis, name: str) -> TensorState | None:
    """Return what is known of the tensor of that name."""
    return next(state for value, state in analysis.states.items() if value.name == name)


def reasons(analysis: Analysis) -> list[str]:
    """Return why nodes are refused."""
    return [refusal.reason for refusal in analysis.refusals]


def leaks(analysis: Analysis) -> list[str]:
    """Return the leaks that are repaired."""
    return [repair.leak for repair in analysis.repairs]
