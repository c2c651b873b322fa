"""Before a pass that rounds: what it must leave alone, found by running the model."""

import dataclasses
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from graphfix.core import Check, Feeds, Pass, new_feeds, rounding, together
from graphfix.engine import pipeline
from graphfix.engine.report import PassReport, Report
from graphfix.errors import ModelError
from graphfix.files import io
from graphfix.paths import StrPath
from graphfix.proof.verify import Tolerance

# Which share of the gate a pass that rounds may use where it is tried: other inputs do worse. With
# less than half it is tried on as many inputs as it is verified on.
MARGINS = (0.5, 0.4, 0.2)


@dataclasses.dataclass
class Settling:
    """Before a pass that rounds: what it must leave alone, found by running the model.

    Attributes:
        chosen: All passes.
        dims: Sizes to try.
        feeds: The user's inputs.
        tolerance: The gate.
        tell: Called with a short text at each step.
        margin: Which share of the gate may be used.
        met: Whether what it settled on meets its aim.
    """

    chosen: Sequence[Check]
    dims: Mapping[str, Sequence[int]]
    feeds: StrPath | None
    tolerance: Tolerance | None
    tell: pipeline.Progress
    margin: float
    met: bool | None = None

    def __call__(self, check: Check, model: ir.Model, ran: tuple[PassReport, ...]) -> Check:
        """The pass that is to run instead of ``check``."""
        if not isinstance(check, Pass) or not check.measured:
            return check
        from graphfix.feeds.signature import Signature
        from graphfix.feeds.user_feeds import given_case
        from graphfix.half.keep_search import mark, settle
        from graphfix.proof.compare import HALF_GATE
        from graphfix.runtime.compared_session import open_given

        arrays: Feeds | None = None
        if self.feeds is not None:
            before = io.source_of(model)
            original = io.load(before) if before is not None else model
            arrays = given_case(self.feeds, Signature(original)).feeds
            arrays = new_feeds(self.chosen[: len(ran)], arrays)
        try:
            new, found = settle(
                model,
                check,
                tolerance=self.tolerance or HALF_GATE,
                margin=self.margin,
                dims=self.dims,
                feeds=arrays,
                safety=together([check.safety, *(p.safety for p in ran if p.changes)]),
                progress=self.tell,
            )
        except ModelError:
            if (given := io.source_of(model)) is not None:
                open_given(given).close()  # says so if it is the model as given
            raise
        mark(model, found.reasons)
        self.met = found.met
        return new


def is_hopeless(report: Report) -> bool:
    """Whether the search met its aim in no way: then it does not meet a closer one either."""
    return report.met is False


def has_rounded(chosen: Sequence[Check], report: Report) -> bool:
    """Whether a pass that rounds has changed anything."""
    names = {x.name for x in rounding(chosen)}
    return any(x.changes for x in report.passes if x.name in names)


def gate(chosen: Sequence[Check]) -> Tolerance | None:
    """What may differ where a pass rounds to float16; None for the usual."""
    if not rounding(chosen):
        return None
    from graphfix.proof.compare import HALF_GATE

    return HALF_GATE
