"""``graphfix.verify``: compares two models by what the later one says it went through."""

import logging
from functools import partial
from typing import Unpack

import onnx_ir as ir

from graphfix.core import Pass, feeds_after, interface_changes_of, weakest_promise
from graphfix.engine import pipeline
from graphfix.errors import GraphfixError
from graphfix.files.model_input import ModelLike, as_model, as_path_or_model, refuse_unknown_options
from graphfix.job.output_changes import output_options
from graphfix.job.rounding_search import rounding_tolerance
from graphfix.proof import verify as proof
from graphfix.proof.compare import Tolerance
from graphfix.proof.half_outputs import computes_in_half
from graphfix.proof.verdict import Verdict
from graphfix.runtime.own_errors import raises_own_errors


@raises_own_errors
def verify(before: ModelLike, after: ModelLike, **options: Unpack[proof.Options]) -> Verdict:
    """Run both models on the same inputs and compare every output.

    Both run on the CPU without ONNX Runtime's own graph optimizations, one after the other, so
    that only one set of weights is in memory; then on two cases with all of them, as users open a
    session. If a mask or length input says what is padding, cases are repeated with garbage there:
    rows that the original keeps clean must stay clean.

    What is not given follows from the passes that ``after`` says it went through since ``before``:
    what they promise, how they change the inputs and outputs, how far they may round.

    Args:
        before: The original: a path, an ``onnx.ModelProto`` or an ``onnx_ir.Model``.
        after: The repaired model.
        options: See :class:`graphfix.proof.verify.Options`.

    Raises:
        ModelError: The original cannot be read, or ONNX Runtime rejects it.
        FeedError: There are no inputs that the original runs.
        UsageError: The provider that is asked for is unavailable.
    """
    refuse_unknown_options(options, proof.Options)
    before, after = as_path_or_model(before), as_path_or_model(after)
    repaired = as_model(after)
    passes = passes_between(as_model(before), repaired)
    return proof.verify(before, after, **with_own_promise(options, passes, repaired))


def with_own_promise(options: proof.Options, passes: list[Pass], after: ir.Model) -> proof.Options:
    """Return the options, completed by the passes that ``after`` went through."""
    completed: proof.Options = {**options}
    completed.setdefault("safety", weakest_promise(x.safety for x in passes))
    if not passes:
        return completed
    if completed.get("map_feeds") is None:
        completed["map_feeds"] = partial(feeds_after, passes)
        if completed.get("may_change") is None:
            completed["may_change"] = interface_changes_of(passes)
        completed = {**output_options(passes), **completed}
    if completed.get("tolerance") is None:
        completed["tolerance"] = tolerance_between(passes, after)
    return completed


def passes_between(before: ir.Model, after: ir.Model) -> list[Pass]:
    """Return the passes that ``after`` says it went through since ``before``."""
    earlier_spec, spec = (x.metadata_props.get(pipeline.PIPELINE_KEY) for x in (before, after))
    if spec is None or spec == earlier_spec:
        return []
    try:
        return [step for step in pipeline.parse_passes(spec) if isinstance(step, Pass)]
    except GraphfixError as error:
        text = "%s went through %s, which is unknown here: %s"
        name = after.graph.name or "the repaired model"
        logging.getLogger("graphfix").warning(text, name, spec, error)
        return []


def tolerance_between(passes: list[Pass], after: ir.Model) -> Tolerance | None:
    """Return the tolerance of the passes that ``after`` went through; None for the default."""
    return rounding_tolerance(passes) if computes_in_half(after) else None
