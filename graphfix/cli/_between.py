"""What happened to a model on its way from one file to another, as the later file says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphfix.cli import _terminal
from graphfix.errors import GraphfixError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from graphfix.core import Pass
    from graphfix.proof.compare import Tolerance


def passes_between(before: ir.Model, after: ir.Model, name: str) -> list[Pass]:
    """The passes that ``after``, of the file ``name``, says it went through; ``before`` did not."""
    from graphfix.core import Pass
    from graphfix.engine import pipeline

    done, spec = (x.metadata_props.get(pipeline.PIPELINE_KEY) for x in (before, after))
    if spec is None or spec == done:
        return []
    try:
        return [one for one in pipeline.parse(spec) if isinstance(one, Pass)]
    except GraphfixError as error:
        _terminal.remark(f"{name} went through {spec}, which is unknown here: {error}")
        return []


def gate_between(passes: Sequence[Pass], after: ir.Model) -> Tolerance | None:
    """What the passes that ``after`` went through promise of its numbers; None for the usual."""
    from graphfix.job.rounding_search import gate
    from graphfix.proof.compare import computes_in_half

    return gate(passes) if computes_in_half(after) else None


def advice(before: ir.Model, after: ir.Model) -> str:
    """What lets numbers that another tool has rounded pass; "" where none are."""
    from graphfix.proof.compare import computes_in_half

    if computes_in_half(before) or not computes_in_half(after):
        return ""
    return "; it computes in float16: --rtol 0.01 allows what that rounds"
