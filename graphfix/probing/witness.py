"""What is fed to two models whose ways part: the case that shows it best."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import onnx_ir as ir

from graphfix.errors import FeedError
from graphfix.feeds.case import Case
from graphfix.feeds.full_lengths import full_lengths
from graphfix.proof.baseline import Baseline
from graphfix.proof.compare import Tolerance, compare, computes_in_half
from graphfix.runtime.compared_session import open_session
from graphfix.runtime.run_errors import RunError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphfix.feeds.signature import Signature
    from graphfix.proof.compare import Array
    from graphfix.proof.inner_tensors import Run

StrPath = str | os.PathLike[str]


def gate_of(tolerance: Tolerance | None, *models: ir.Model) -> Tolerance:
    """What outputs may differ: a hundred times more if a model computes in float16."""
    gate = tolerance or Tolerance()
    return gate.for_half() if any(map(computes_in_half, models)) else gate


def parting_case(
    before: Run,
    after: Run,
    dims: Mapping[str, int] | None,
    feeds: StrPath | Mapping[str, Array] | None,
    gate: Tolerance,
) -> tuple[Case, Signature]:
    """The smallest case whose outputs part, without ragged rows if one does; else the largest.

    Where none part, one of zeros alone says little: inputs that vary come first.

    Raises:
        FeedError: There is no case that both models run.
    """
    baseline = Baseline(before.source, before.graph, lambda: after.graph, gate, lambda _: None)
    baseline.find(None, {name: [size] for name, size in (dims or {}).items()}, feeds, 0)
    ran: list[Case] = []
    bad: list[Case] = []
    reason = ""
    with open_session(after.source, after.ep) as session:
        for run in baseline.runs:
            case = run.case
            # What is made of padding on the left, of a row of it, or of garbage in it may differ.
            if case.side != "right" or case.empty_rows or case.poison:
                continue
            try:
                theirs = session.run(full_lengths(after.graph, case.feeds))
            except RunError as error:
                reason = str(error)
                continue
            ran.append(case)
            pairs = [(x, a, theirs[x]) for x, a in run.outputs.items() if x in theirs]
            if not all(compare(name, "", a, b, gate).ok for name, a, b in pairs):
                bad.append(case)
    if not ran:
        raise FeedError(f"the second model does not run on the inputs of the first: {reason}")
    if bad:
        return min(bad, key=lambda c: (c.ragged, c.volume)), baseline.signature
    return max(ran, key=lambda c: (c.ragged, _varying(c), c.volume)), baseline.signature


def _varying(case: Case) -> int:
    """How many inputs hold more than one number."""
    return sum(bool((x != x.flat[0]).any()) for x in case.feeds.values() if x.size)
