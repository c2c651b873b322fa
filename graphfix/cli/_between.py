"""How a model changed between two files, as the later file's metadata says."""

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
    """Return the passes that ``after``, of file ``name``, went through since ``before``."""
    from graphfix.core import Pass
    from graphfix.engine import pipeline

    earlier_spec, spec = (x.metadata_props.get(pipeline.PIPELINE_KEY) for x in (before, after))
    if spec is None or spec == earlier_spec:
        return []
    try:
        return [step for step in pipeline.parse_passes(spec) if isinstance(step, Pass)]
    except GraphfixError as error:
        _terminal.print_remark(f"{name} went through {spec}, which is unknown here: {error}")
        return []


def tolerance_between(passes: Sequence[Pass], after: ir.Model) -> Tolerance | None:
    """Return the tolerance of the passes that ``after`` went through; None for the default."""
    from graphfix.job.rounding_search import rounding_tolerance
    from graphfix.proof.compare import computes_in_half

    return rounding_tolerance(passes) if computes_in_half(after) else None


def rounding_advice(before: ir.Model, after: ir.Model) -> str:
    """Return how to allow the rounding of another tool, or ""."""
    from graphfix.proof.compare import computes_in_half

    if computes_in_half(before) or not computes_in_half(after):
        return ""
    return "; it computes in float16: --rtol 0.01 allows what that rounds"
