"""Pipelines as text, such as ``additive-mask:floor=-1000,cumsum-index``, and running them."""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import onnx
import onnx_ir as ir

from graphfix.core import Check, Pass
from graphfix.editing import exclusions
from graphfix.editing.snapshot import Snapshot
from graphfix.engine import registry
from graphfix.engine.fixpoint import PassTurns, spec_of_check
from graphfix.engine.report import FailedRepair, PassReport, Report
from graphfix.errors import GraphfixError, PassError, UsageError
from graphfix.facts.view import drop_node_index
from graphfix.files.model_input import ModelLike, as_model
from graphfix.files.prepare import normalized_domain
from graphfix.graph import names
from graphfix.graph.walks import all_nodes
from graphfix.providers.table import DeviceEp, Ep
from graphfix.runtime.own_errors import raises_own_errors
from graphfix.spec.quoting import partition_outside_quotes, split_outside_quotes, unquote_name

Progress = Callable[[str], None]
Settle = Callable[[Check, ir.Model, tuple[PassReport, ...]], Check]

PIPELINE_KEY = "graphfix.pipeline"
DEFAULT = "directml"

# Options that take names.
_NAMES = ("keep", "only", "store")
_SIZE = re.compile(r"\d+(\.\d+)?s?|[-+]?(\d*\.)?\d+([eE][-+]?\d+)?|true|false", re.IGNORECASE)


def parse_passes(spec: str, ep: Ep = "cpu") -> list[Check]:
    """Return the passes that a text such as ``additive-mask:floor=-1000,fold`` names.

    Passes are separated by commas, options by colons. The name of a profile stands for its passes.
    What follows a comma and is an option, as in ``fix-dims:T=500,B=1``, belongs to the pass before.
    A name that holds what a text is divided by is quoted, as in ``fix-dims:"input:0.0"=1``; a colon
    before the equals sign does without, since the shell takes such quotes away.

    Args:
        spec: The text.
        ep: The provider that they are for, see :func:`graphfix.engine.registry.profile_for`.

    Raises:
        UsageError: A pass or an option is unknown, or a value does not fit.
    """
    passes: list[Check] = []
    for name, *option_texts in split_spec(spec):
        if name in registry.PROFILES:
            name = registry.profile_for(name, ep)
            if option_texts:
                raise UsageError(f"{name} is a profile and takes no options; name its passes")
            passes += parse_passes(",".join(registry.PROFILES[name]), ep)
            continue
        pairs = {}
        for text in option_texts:
            key, equals, value = partition_outside_quotes(text, "=")
            key = unquote_name(key)
            if not equals:
                raise UsageError(f"{name}: {text!r} is no option; write {text}=VALUE")
            pairs[key] = unquote_name(value)
        passes.append(registry.make_pass(name, pairs))
    return passes


def split_spec(spec: str) -> list[list[str]]:
    """Return the passes that ``spec`` names, each with the texts of its options, quoted as is.

    A size that follows one, as in ``fix-dims:T=500,3000``, is another value of the same option,
    and is put to it with a plus; so is what follows a name, as in ``float16:keep=Softmax,Pow``, and
    is no pass.
    """
    items: list[list[str]] = []
    for item in split_outside_quotes(spec, ","):
        first, *option_texts = (part.strip() for part in split_outside_quotes(item, ":"))
        if _is_option(first) and items:
            items[-1] += _join_options([first, *option_texts])
        elif items and _is_option(items[-1][-1]) and _is_value(first, items[-1][-1]):
            items[-1][-1] += f"+{first}"
            items[-1] += _join_options(option_texts)
        else:
            items.append([first, *_join_options(option_texts)])
    return items


def _join_options(parts: Iterable[str]) -> list[str]:
    """Join the parts between colons into options; one before an equals sign is part of a name."""
    joined, name = list[str](), ""
    for part in parts:
        if _is_option(part):
            joined.append(name + part)
            name = ""
        else:
            name += f"{part}:"
    return [*joined, name[:-1]] if name else joined


def _is_option(text: str) -> bool:
    return bool(partition_outside_quotes(text, "=")[1])


def _is_value(text: str, option: str) -> bool:
    """Return whether ``text`` is another value of ``option``, and not the next pass."""
    if _SIZE.fullmatch(text):
        return True
    takes_names = partition_outside_quotes(option, "=")[0] in _NAMES
    return takes_names and text not in registry.PROFILES and text not in registry.pass_names()


def spec_of(passes: Iterable[Check]) -> str:
    """Return the text that :func:`parse_passes` turns into these passes."""
    return ",".join(map(spec_of_check, passes))


def resolve_passes(passes: str | Check | Sequence[str | Check], ep: Ep = "cpu") -> list[Check]:
    """Return the passes given as text, as one object or as several names and objects.

    Args:
        passes: The passes.
        ep: The provider that they are for, see :func:`graphfix.engine.registry.profile_for`.
    """
    if isinstance(passes, str):
        return parse_passes(passes, ep)
    if isinstance(passes, Check):
        return [passes]
    items: Any = passes
    checks: list[Check] = []
    for x in items if isinstance(items, Iterable) else [items]:
        if not isinstance(x, (str, Check)):
            raise UsageError(f"{x!r} is no pass; give names, as -p takes them, or passes")
        checks += parse_passes(x, ep) if isinstance(x, str) else [x]
    return checks


def passes_of_profiles(
    passes: str | Check | Sequence[str | Check], ep: Ep = "cpu"
) -> tuple[frozenset[str], DeviceEp | None]:
    """Return the passes that only profiles name, and the provider whose kernels are to be fewer.

    Args:
        passes: The passes, as :func:`resolve_passes` takes them.
        ep: The provider that they are for.
    """
    items = [passes] if isinstance(passes, (str, Check)) else list(passes)
    texts = [item for x in items if isinstance(x, str) for item in split_spec(x)]
    profiles = [registry.profile_for(x[0], ep) for x in texts if x[0] in registry.PROFILES]
    named = [":".join(x) for x in texts if x[0] not in registry.PROFILES]
    own = {spec_of_check(x) for x in items if isinstance(x, Check)}
    own |= {spec_of_check(x) for text in named for x in parse_passes(text)}
    specs = {spec_of_check(x) for name in profiles for x in parse_passes(name)}
    counted = [registry.COUNTED_ON[x] for x in profiles if x in registry.COUNTED_ON]
    provider: DeviceEp | None = "webgpu" if ep == "webgpu" else next(iter(counted), None)
    return frozenset(specs - own), provider


@raises_own_errors
def run(
    model: ModelLike,
    passes: str | Check | Sequence[str | Check] = DEFAULT,
    *,
    progress: Progress | None = None,
    settle: Settle | None = None,
    leave: exclusions.Exclusions = exclusions.NO_EXCLUSIONS,
) -> Report:
    """Run passes over a model, in place and in order, and return a report.

    If a pass raises, it is rolled back and skipped; the report says so, and the other passes run.

    Args:
        model: The model, an ``onnx_ir.Model`` or an ``onnx.ModelProto``; if no pass matches, it
            stays unchanged to the byte. A file is read, and not written.
        passes: Text as ``-p`` takes it, a pass, or a list of both.
        progress: Called with ``repairing: NAME`` before each pass runs.
        settle: Called with each pass that needs calibration before it runs, and with the model as
            it then is; the pass that it returns is run instead.
        leave: The sites and passes to skip.

    Returns:
        The report, without a verdict; :func:`graphfix.verify` gives one.

    Raises:
        GraphfixError: A pass refuses the model or its own options; ``model`` is unchanged.
        PassError: A pass raises that the result cannot do without; ``model`` is unchanged.
    """
    if not isinstance(model, ir.Model):
        loaded_model = as_model(model)
        report = run(loaded_model, passes, progress=progress, settle=settle, leave=leave)
        if isinstance(model, onnx.ModelProto) and report.changed:
            model.CopyFrom(ir.to_proto(loaded_model))
        return report
    chosen = resolve_passes(passes)
    before, excluded = Snapshot(model), dict[exclusions.Place, str]()
    while True:
        try:
            now = (
                dataclasses.replace(leave, reasons={**leave.reasons, **excluded})
                if excluded
                else leave
            )
            report = apply_passes(model, chosen, leave=now, progress=progress, settle=settle)
            break
        except PassError as error:
            before.roll_back()
            if not can_drop_pass(chosen, error.spec):
                raise
            excluded[error.spec, exclusions.WHOLE_PASS] = str(error)
        except GraphfixError:
            before.roll_back()
            raise
    rolled_back = tuple(
        FailedRepair(by, (), reason, raised=True) for (by, _), reason in excluded.items()
    )
    return dataclasses.replace(report, left=rolled_back)


def can_drop_pass(chosen: Iterable[Check], spec: str) -> bool:
    """Return whether the result is still what was asked for without the pass ``spec``."""
    return all(x.is_removable for x in chosen if isinstance(x, Pass) and x.spec() == spec)


def apply_passes(
    model: ir.Model,
    chosen: Sequence[Check],
    *,
    leave: exclusions.Exclusions = exclusions.NO_EXCLUSIONS,
    progress: Progress | None = None,
    settle: Settle | None = None,
) -> Report:
    """Run passes as :func:`run` does; where one raises, ``model`` stays as it then is.

    A pass may create work for an earlier one, so passes have another turn while they find
    something.

    Args:
        model: The model, which is changed.
        chosen: The passes.
        leave: The sites and passes to skip.
        progress: As for :func:`run`.
        settle: As for :func:`run`.

    Raises:
        PassError: A pass raises.
        GraphfixError: A pass refuses the model or its options.
    """
    before = count_ops(model)
    exclusions.attach_exclusions(model, leave)
    names.share_name_maker(model)
    turns, settled = PassTurns(model, progress), list[Check]()
    try:
        with normalized_domain(model):
            for original in chosen:
                check = original
                if isinstance(original, Pass) and original.needs_calibration:
                    turns.run_until_stable()  # calibrate on what all the others have made
                    if (
                        settle is not None
                        and exclusions.pass_exclusion_reason(model, original.spec()) is None
                    ):
                        check = settle(original, model, turns.pass_reports)
                settled.append(check)
                turns.run_first(check, original)
            turns.run_until_stable()
    finally:
        drop_node_index(model)
        names.unshare_name_maker(model)
    exclusions.attach_exclusions(model, exclusions.NO_EXCLUSIONS)
    spec, ran = spec_of(settled), turns.pass_reports
    if any(p.changes for p in ran):
        model.metadata_props[PIPELINE_KEY] = spec
    return Report(spec, ran, ops_before=before, ops_after=count_ops(model), endless=turns.endless)


def count_ops(model: ir.Model) -> dict[str, int]:
    """Count nodes by operator: the graph, the graphs inside it, and the local functions."""
    return dict(sorted(Counter(node.op_type for node in all_nodes(model)).items()))
