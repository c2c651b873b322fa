"""``additive-mask:floor=-1000,cumsum-index`` to passes and back, and running them."""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import TYPE_CHECKING

from graphfix import registry
from graphfix.core import Check, Pass, Result
from graphfix.errors import GraphfixError, UsageError
from graphfix.model.values import nodes_of
from graphfix.report import PassReport, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import onnx_ir as ir

    Progress = Callable[[str], None]
    Settle = Callable[[Check, ir.Model, tuple[PassReport, ...]], Check]

PIPELINE_KEY = "graphfix.pipeline"
DEFAULT = "directml"

# Options that take names.
_NAMES = ("keep", "only")
_SIZE = re.compile(r"\d+(\.\d+)?s?|[-+]?(\d*\.)?\d+([eE][-+]?\d+)?|true|false", re.IGNORECASE)


def parse(spec: str) -> list[Check]:
    """The passes that a text such as ``additive-mask:floor=-1000,cumsum-index`` names.

    Passes are separated by commas, options by colons. The name of a profile stands for its passes.
    What follows a comma and is an option, as in ``fix-dims:T=500,B=1``, belongs to the pass before.

    Raises:
        UsageError: A pass or an option is unknown, or a value does not fit.
    """
    passes: list[Check] = []
    for name, *given in split(spec):
        if name in registry.PROFILES:
            if given:
                raise UsageError(f"{name} is a profile and takes no options; name its passes")
            passes += [registry.make(member) for member in registry.PROFILES[name]]
            continue
        pairs = {}
        for text in given:
            key, equals, value = text.partition("=")
            if not equals:
                raise UsageError(f"{name}: {text!r} is no option; write {text}=VALUE")
            pairs[key] = value
        passes.append(registry.make(name, pairs))
    return passes


def split(spec: str) -> list[list[str]]:
    """The passes that ``spec`` names, each with the texts of its options.

    A size that follows one, as in ``fix-dims:T=500,3000``, is another value of the same option,
    and is put to it with a plus; so is what follows a name, as in ``float16:keep=Softmax,Pow``, and
    is no pass.
    """
    items: list[list[str]] = []
    for item in spec.split(","):
        parts = [part.strip() for part in item.split(":")]
        if "=" in parts[0] and items:
            items[-1] += parts
        elif items and "=" in items[-1][-1] and _is_value(parts[0], items[-1][-1]):
            items[-1][-1] += f"+{parts[0]}"
            items[-1] += parts[1:]
        else:
            items.append(parts)
    return items


def _is_value(text: str, option: str) -> bool:
    """Whether ``text`` is another value of what ``option`` says, and not the next pass."""
    if _SIZE.fullmatch(text):
        return True
    named = option.partition("=")[0] in _NAMES
    return named and text not in registry.PROFILES and text not in registry.names()


def spec_of(passes: Iterable[Check]) -> str:
    """The text that :func:`parse` turns into these passes."""
    return ",".join(p.spec() if isinstance(p, Pass) else p.name for p in passes)


def resolve(passes: str | Check | Sequence[Check]) -> list[Check]:
    """Passes given as text, as one object or as several."""
    if isinstance(passes, str):
        return parse(passes)
    return [passes] if isinstance(passes, Check) else list(passes)


def run(
    model: ir.Model,
    passes: str | Check | Sequence[Check] = DEFAULT,
    *,
    progress: Progress | None = None,
    settle: Settle | None = None,
) -> Report:
    """Run passes over ``model``, in place and in order, and say what they did.

    Args:
        model: The model; if no pass matches it is left as it is, to the byte.
        passes: Text as ``-p`` takes it, a pass, or several.
        progress: Called with the name of each pass before it runs.
        settle: Called with each pass before it runs, and with the model as it then is; what it
            gives back is run instead.

    Returns:
        The report, as yet without a verdict: see :func:`graphfix.verify`.
    """
    chosen = resolve(passes)
    before = count_ops(model)
    ran, settled = list[PassReport](), list[Check]()
    for given in chosen:
        if progress is not None:
            progress(given.name)
        check = given if settle is None else settle(given, model, tuple(ran))
        settled.append(check)
        ran.append(_run_one(check, model))
    spec = spec_of(settled)
    if any(p.changes for p in ran):
        model.metadata_props[PIPELINE_KEY] = spec
    return Report(spec=spec, passes=tuple(ran), ops_before=before, ops_after=count_ops(model))


def _run_one(check: Check, model: ir.Model) -> PassReport:
    start = time.perf_counter()
    if not isinstance(check, Pass):
        found = tuple(check.findings(model))
        return PassReport(
            check.name, check.name, "exact", findings=found, seconds=time.perf_counter() - start
        )
    result = check(model)
    if not isinstance(result, Result):
        raise GraphfixError(f"the pass {check.name} did not return a graphfix.Result")
    return PassReport(
        name=check.name,
        spec=check.spec(),
        safety=check.safety,
        changes=result.changes,
        skips=result.skips,
        seconds=time.perf_counter() - start,
        advice=check.advice if result.changes else "",
    )


def count_ops(model: ir.Model) -> dict[str, int]:
    """Nodes by operator: the graph, the graphs inside it, and the local functions."""
    counts: Counter[str] = Counter()
    for graph in (model.graph, *(f.graph for f in model.functions.values())):
        counts.update(node.op_type for node in nodes_of(graph))
    return dict(sorted(counts.items()))
