"""Every hazard of a model at once: what the passes would repair, and what the rules flag."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from graphfix import rules
from graphfix.core import Check, Finding, Match, Pass
from graphfix.engine import pipeline
from graphfix.errors import ModelError
from graphfix.model.prepare import one_name
from graphfix.model.text import path_of
from graphfix.model.view import View, forget_index, index
from graphfix.probing.padded import padded
from graphfix.proof.verify import verify
from graphfix.rules import pass_severity as judged
from graphfix.rules.rule import Provider, Rule

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    import onnx_ir as ir

    from graphfix.runtime.provider import Ep

    StrPath = str | os.PathLike[str]

PASSES = f"thaw,{pipeline.DEFAULT}"
"""The passes that are asked by default. thaw is in no profile, since it may cost lengths."""
ORDER = ("error", "warning", "note")
PADDING = "ilens-mask"
"""The pass that sees leaks."""
RAN = "runs"
"""The rule of what came of running the model."""


def everything(ep: Provider = "dml") -> list[Check]:
    """What ``check`` asks by default: the passes, then the rules that hold on a provider."""
    passes = [x for x in pipeline.parse(PASSES) if ep in judged.providers(x.name)]
    return [*passes, *(cls() for cls in rules.rules().values() if ep in cls.providers)]


def check(
    model: ir.Model,
    checks: str | Check | Sequence[Check] | None = None,
    *,
    ep: Provider = "dml",
) -> list[Finding]:
    """Every hazard of ``model`` on an execution provider; nothing is run or edited.

    Args:
        model: The model.
        checks: Names of passes, profiles and rules as ``-p`` takes them, or objects; by default
            the rules that hold on ``ep``, and what matters there of the profile ``directml``,
            ``thaw``.
        ep: Where the model is to run. On ``cpu`` what a pass finds is a note, unless
            it matters on every provider.

    Returns:
        The findings, by pass and rule, each in the order of the graph.
    """
    asked = everything(ep) if checks is None else pipeline.resolve(checks)
    view = View(model)
    index(model)  # nothing is edited
    try:
        with one_name(model):
            found = [finding for one in asked for finding in _findings(one, model, view, ep)]
    finally:
        forget_index(model)
    # What a rule says of a node in its own words, naming the pass, the pass does not say again.
    by = {x.name: x.repaired_by or x.matched_by for x in asked if isinstance(x, Rule)}
    told = {(x.fix, x.at) for x in found if x.fix is not None and x.fix == by.get(x.rule)}
    return [x for x in found if (x.rule, x.at) not in told]


def _findings(one: Check, model: ir.Model, view: View, ep: Provider) -> Iterator[Finding]:
    if isinstance(one, Rule) and ep not in one.providers:
        return
    if not isinstance(one, Rule) and type(one).findings is not Check.findings:
        yield from one.findings(model)  # it has its own mind of how bad it is
        return
    matched = _matched(one, model)
    for site in one.hazards(view) if isinstance(one, Rule) else one.sites(model):
        finding = one.finding(site)
        if finding.fix is None and finding.at in matched:
            finding = dataclasses.replace(finding, fix=matched[finding.at])
        if isinstance(one, Pass) and isinstance(site, Match):
            severity = judged.severity(one.name, site, view, ep)
            finding = dataclasses.replace(finding, severity=severity)
        yield finding


def _matched(one: Check, model: ir.Model) -> Mapping[str, str]:
    """The pass that repairs what a rule flags, by the places where it would: rules know no pass."""
    if not isinstance(one, Rule) or one.matched_by is None:
        return {}
    (made,) = pipeline.parse(one.matched_by)
    return {path_of(x.node): made.name for x in made.sites(model) if isinstance(x, Match)}


def repairs(asked: Sequence[Check], found: Sequence[Finding]) -> list[Pass]:
    """The passes that repair what was found, in the order in which they run.

    All that were asked, since one repair can open the way for the next; but of those in no profile
    only the ones that found something. Then those that only a rule has named.
    """
    usual = {x.name for x in pipeline.parse(pipeline.DEFAULT)}
    finders = {x.rule for x in found if x.fix is not None}
    passes = [x for x in asked if isinstance(x, Pass)]
    named = {x.fix for x in found if x.fix is not None} - {x.spec() for x in passes}
    ordered = [x for x in pipeline.parse(PASSES) if isinstance(x, Pass) and x.spec() in named]
    rest = sorted(named - {x.spec() for x in ordered})
    return [
        *(x for x in passes if x.name in usual or x.name in finders),
        *ordered,
        *(x for spec in rest for x in pipeline.parse(spec) if isinstance(x, Pass)),
    ]


def ran(
    source: StrPath,
    *,
    ep: Ep = "dml",
    dims: Mapping[str, Sequence[int]] | None = None,
    feeds: StrPath | None = None,
) -> list[Finding]:
    """Run a model file on a provider, at several lengths, and say what came of it.

    Returns:
        Nothing if it runs and agrees with the CPU; else one error: it does not load, it crashes,
        or it computes something else.

    Raises:
        FeedError: No inputs could be made that the model runs with on the CPU.
        UsageError: DirectML is asked for and not to be had.
    """
    try:
        verdict = verify(source, source, dims=dims, feeds=feeds, ep=ep)
    except ModelError as error:
        return [Finding(RAN, "error", "", f"the model does not load: {error}", None)]
    if verdict.ok:
        return []
    text = str(verdict).replace("the repaired model", "the model")  # it is held against itself
    named = re.search(r"node '([^']+)'", text)
    first = verdict.first_divergence
    at = named[1] if named else first.node if first is not None else ""
    return [Finding(RAN, "error", at or "", text, None)]


def measured(
    found: Sequence[Finding],
    source: StrPath,
    *,
    ep: Ep = "dml",
    dims: Mapping[str, Sequence[int]] | None = None,
    axis: str = "",
) -> list[Finding]:
    """Leaks that are seen in a graph, held against clips that are run in containers.

    What the analysis sees holds for any size and any weights. Where no valid number changes in the
    containers, each leak is a note that says so.

    Raises:
        FeedError: No clip or container runs.
        UsageError: DirectML is asked for and not to be had.
    """
    leaks = [x for x in found if x.rule == PADDING]
    if not leaks:
        return list(found)
    verdict = padded(source, dims=dims, axis=axis, ep=ep)
    if not verdict.ok:
        return list(found)
    clips = [x.clip for x in verdict.checks]
    most = max(x.container for x in verdict.checks)
    said = f"measured as safe with clips of {min(clips)} to {max(clips)} in containers up to {most}"
    return [
        dataclasses.replace(x, severity="note", message=f"{x.message} ({said})")
        if x.rule == PADDING
        else x
        for x in found
    ]
