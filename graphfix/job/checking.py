"""Every hazard of a model at once: what the passes would repair, and what the rules flag."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

import onnx_ir as ir

from graphfix import rules
from graphfix.core import Check, Finding, Findings, Match, Pass
from graphfix.engine import pipeline
from graphfix.facts.view import View, forget_index, index
from graphfix.files.given import Given, loaded, require_known
from graphfix.files.prepare import one_name
from graphfix.graph.text import path_of
from graphfix.rules import pass_severity as judged
from graphfix.rules.rule import Provider, Rule

PASSES = f"thaw,{pipeline.DEFAULT}"
"""The passes that are asked by default. thaw is in no profile, since it may cost lengths."""


def everything(ep: Provider = "dml") -> list[Check]:
    """What ``check`` asks by default: the passes, then the rules that hold on a provider."""
    passes = [x for x in pipeline.parse(PASSES) if ep in judged.providers(x.name)]
    return [*passes, *(cls() for cls in rules.rules().values() if ep in cls.providers)]


def check(
    model: Given, checks: str | Check | Sequence[str | Check] | None = None, *, ep: Provider = "dml"
) -> Findings:
    """Every hazard of ``model`` on an execution provider; nothing is run or edited.

    Args:
        model: The model, or its file.
        checks: Names of passes, profiles and rules as ``-p`` takes them, or objects; by default
            the rules that hold on ``ep``, and what matters there of the profile ``directml``,
            ``thaw``.
        ep: Where the model is to run. On ``cpu`` what a pass finds is a note, unless
            it matters on every provider.

    Returns:
        The findings, a list, by pass and rule, each in the order of the graph.
    """
    require_known(ep=(ep, get_args(Provider)))
    model = loaded(model)
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
    return Findings(x for x in found if (x.rule, x.at) not in told)


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
