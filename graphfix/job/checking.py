"""Every hazard of a model at once: what the passes would repair, and what the rules flag."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from graphfix import rules
from graphfix.core import Check, Finding, Findings, Match, Pass, Skip
from graphfix.engine import pipeline
from graphfix.errors import UsageError
from graphfix.facts.view import View, drop_node_index, index_nodes
from graphfix.feeds.roles import LENGTH_KINDS, Role, roles_of
from graphfix.files.model_input import ModelLike, as_model
from graphfix.files.prepare import normalized_domain
from graphfix.graph.text import node_label
from graphfix.lengths.length_input import LengthInput
from graphfix.lengths.length_source import find_length_source
from graphfix.providers.directml.repaired import repaired_in, wrong_versions
from graphfix.providers.table import Ep
from graphfix.providers.versions import named_label, parse_name
from graphfix.rules import pass_severity
from graphfix.rules.rule import Rule
from graphfix.runtime.own_errors import raises_own_errors
from graphfix.runtime.python import versions_in_force
from graphfix.spec.quoting import quote_name
from graphfix.wording import plural

PASSES = f"thaw,{pipeline.DEFAULT}"
"""The passes that are asked by default. thaw is in no profile, since it may cost lengths."""


def default_checks(ep: Ep = "dml") -> list[Check]:
    """Return the default checks: the passes, then the rules that hold on a provider."""
    passes = [
        x for x in pipeline.parse_passes(PASSES) if ep in pass_severity.providers_of_pass(x.name)
    ]
    return [*passes, *(cls() for cls in rules.rules().values() if ep in cls.providers)]


@raises_own_errors
def check(
    model: ModelLike,
    checks: str | Check | Sequence[str | Check] | None = None,
    *,
    ep: str = "dml",
) -> Findings:
    """Find every hazard of ``model`` on an execution provider; nothing is run or edited.

    Args:
        model: The model, or its file.
        checks: Names of passes, profiles and rules as ``-p`` takes them, or objects; by default
            the rules that hold on ``ep``, and what matters there of the profile ``directml``,
            ``thaw``.
        ep: Where the model is to run. On ``cpu`` what a pass finds is a note, unless
            it matters on every provider. ``dml@1.24.4`` or ``windowsml`` is one version; without
            one a finding holds for all that are known, or says for which.

    Returns:
        The findings, a list, by pass and rule, each in the order of the graph.
    """
    provider, named = parse_name(ep)
    versions = versions_in_force(provider, named)
    model = as_model(model)
    selected = default_checks(provider) if checks is None else pipeline.resolve_passes(checks)
    view = View(model)
    index_nodes(model)  # nothing is edited
    try:
        with normalized_domain(model):
            findings = [
                _of_versions(finding, provider, versions)
                for pass_or_rule in selected
                for finding in _findings_of(pass_or_rule, model, view, provider)
            ]
    finally:
        drop_node_index(model)
    # What a rule says of a node in its own words, naming the pass, the pass does not say again.
    repairs = {x.name: (x.repaired_by, *x.matched_by) for x in selected if isinstance(x, Rule)}
    reported = {
        (x.fix, x.at) for x in findings if x.fix is not None and x.fix in repairs.get(x.rule, ())
    }
    return Findings(x for x in findings if (x.rule, x.at) not in reported)


def padding_check(model: ir.Model) -> Check:
    """Return ``ilens-mask``, with the model's own mask or lengths if it has exactly one of them.

    So ``check --padding`` looks at the model as it is fed, as ``padded`` does.
    """
    name = _own_lengths(model)
    spec = f"ilens-mask:from={quote_name(name)}" if name else "ilens-mask"
    (padding_pass,) = pipeline.parse_passes(spec)
    return padding_pass


def _own_lengths(model: ir.Model) -> str:
    """Return the only input that says where content ends, as ilens-mask takes it; or ""."""
    if LengthInput.from_metadata(model) is not None:
        return ""  # ilens-mask finds it by itself
    roles = roles_of(model)
    names = [name for name, role in roles.items() if role.kind in LENGTH_KINDS]
    if len(names) != 1 or not _counts_from_front(roles[names[0]]):
        return ""
    try:
        find_length_source(model, source=names[0])
    except UsageError:
        return ""
    return names[0]


def _counts_from_front(role: Role) -> bool:
    """Return whether an input holds lengths, or a mask that is 1 for what is valid, then 0."""
    is_mask = role.kind == "mask" and (role.valid, role.padded) == (1.0, 0.0)
    return is_mask or role.kind == "lengths"


def _of_versions(finding: Finding, ep: Ep, versions: tuple[str, ...]) -> Finding:
    """Return a finding with the versions of DirectML that it holds for, if not for all."""
    version = repaired_in(finding.rule) if ep == "dml" else None
    wrong = wrong_versions(finding.rule, versions)
    if version is None or finding.severity == "note" or wrong == versions:
        return finding
    message = f"{finding.message} (right from onnxruntime {version} on)"
    severity = finding.severity if wrong else "note"
    return dataclasses.replace(finding, message=message, severity=severity, versions=wrong)


def answer_of(findings: Findings, ep: Ep) -> str:
    """Return what is wrong and what ``run`` repairs, as one sentence.

    Example: ``no error on DirectML; 69 warnings, 37 of them repaired by graphfix run``.
    """
    where = named_label(ep)
    counted = findings.counted
    if not counted["error"] and not counted["warning"]:
        return f"no error and no warning on {where}"
    clauses = [f"no error on {where}"] if not counted["error"] else []
    for severity in ("error", "warning"):
        found = [x for x in findings if x.severity == severity]
        if found:
            place = f" on {where}" if severity == "error" else ""
            clauses.append(f"{plural(len(found), severity)}{place}{_repaired_share(found)}")
    return "; ".join(clauses)


def _repaired_share(findings: Sequence[Finding]) -> str:
    """Return how many of the findings ``graphfix run`` repairs, and how many other passes do."""
    profile = {x.name for x in pipeline.parse_passes(pipeline.DEFAULT)}
    by_command: dict[str, int] = {}
    for finding in findings:
        if finding.fix is not None:
            is_default = finding.fix.partition(":")[0] in profile
            command = "graphfix run" if is_default else f"graphfix run -p {finding.fix}"
            by_command[command] = by_command.get(command, 0) + 1
    if not by_command:
        return ", no automatic repair"
    return "".join(
        f", {_share_text(count, len(findings))}repaired by {command}"
        for command, count in by_command.items()
    )


def _share_text(count: int, total: int) -> str:
    if count < total:
        return f"{count} of them "
    return "all " if total > 1 else ""


def _findings_of(pass_or_rule: Check, model: ir.Model, view: View, ep: Ep) -> Iterator[Finding]:
    if isinstance(pass_or_rule, Rule) and ep not in pass_or_rule.providers:
        return
    if not isinstance(pass_or_rule, Rule) and type(pass_or_rule).findings is not Check.findings:
        yield from pass_or_rule.findings(model)  # it has its own mind of how bad it is
        return
    matched = _repairs_by_place(pass_or_rule, model)
    for site in (
        pass_or_rule.find_hazards_on(view, ep)
        if isinstance(pass_or_rule, Rule)
        else pass_or_rule.sites(model)
    ):
        finding = pass_or_rule.finding(site)
        if finding.fix is None and finding.at in matched:
            finding = dataclasses.replace(finding, fix=matched[finding.at])
        if isinstance(site, Skip) and ep != "dml":
            finding = dataclasses.replace(finding, severity="note")
        if isinstance(pass_or_rule, Pass) and isinstance(site, Match):
            severity = pass_severity.site_severity(pass_or_rule.name, site, view, ep)
            finding = dataclasses.replace(finding, severity=severity)
        yield finding


def _repairs_by_place(rule: Check, model: ir.Model) -> Mapping[str, str]:
    """Return the passes that repair what a rule flags, by the places where it would."""
    if not isinstance(rule, Rule) or not rule.matched_by:
        return {}
    return {
        node_label(x.node): matching_pass.name
        for matching_pass in pipeline.parse_passes(",".join(rule.matched_by))
        for x in matching_pass.sites(model)
        if isinstance(x, Match)
    }
