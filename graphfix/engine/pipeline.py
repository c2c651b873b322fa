"""``additive-mask:floor=-1000,cumsum-index`` to passes and back, and running them."""

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
from graphfix.engine.fixpoint import Turns, name_of
from graphfix.engine.report import Left, PassReport, Report
from graphfix.errors import GraphfixError, PassError, UsageError
from graphfix.facts.view import forget_index
from graphfix.files.given import Given, loaded
from graphfix.files.prepare import one_name
from graphfix.graph import names
from graphfix.graph.walks import all_nodes
from graphfix.spec.quoting import divided, halves, unquoted

Progress = Callable[[str], None]
Settle = Callable[[Check, ir.Model, tuple[PassReport, ...]], Check]

PIPELINE_KEY = "graphfix.pipeline"
DEFAULT = "directml"

# Options that take names.
_NAMES = ("keep", "only", "store")
_SIZE = re.compile(r"\d+(\.\d+)?s?|[-+]?(\d*\.)?\d+([eE][-+]?\d+)?|true|false", re.IGNORECASE)


def parse(spec: str) -> list[Check]:
    """The passes that a text such as ``additive-mask:floor=-1000,cumsum-index`` names.

    Passes are separated by commas, options by colons. The name of a profile stands for its passes.
    What follows a comma and is an option, as in ``fix-dims:T=500,B=1``, belongs to the pass before.
    A name that holds what a text is divided by is quoted, as in ``fix-dims:"input:0.0"=1``; a colon
    before the equals sign does without, since the shell takes such quotes away.

    Raises:
        UsageError: A pass or an option is unknown, or a value does not fit.
    """
    passes: list[Check] = []
    for name, *given in split(spec):
        if name in registry.PROFILES:
            if given:
                raise UsageError(f"{name} is a profile and takes no options; name its passes")
            passes += parse(",".join(registry.PROFILES[name]))
            continue
        pairs = {}
        for text in given:
            key, equals, value = halves(text, "=")
            key = unquoted(key)
            if not equals:
                raise UsageError(f"{name}: {text!r} is no option; write {text}=VALUE")
            pairs[key] = unquoted(value)
        passes.append(registry.make(name, pairs))
    return passes


def split(spec: str) -> list[list[str]]:
    """The passes that ``spec`` names, each with the texts of its options, quotes and all.

    A size that follows one, as in ``fix-dims:T=500,3000``, is another value of the same option,
    and is put to it with a plus; so is what follows a name, as in ``float16:keep=Softmax,Pow``, and
    is no pass.
    """
    items: list[list[str]] = []
    for item in divided(spec, ","):
        first, *rest = (part.strip() for part in divided(item, ":"))
        if _is_option(first) and items:
            items[-1] += _options([first, *rest])
        elif items and _is_option(items[-1][-1]) and _is_value(first, items[-1][-1]):
            items[-1][-1] += f"+{first}"
            items[-1] += _options(rest)
        else:
            items.append([first, *_options(rest)])
    return items


def _options(parts: Iterable[str]) -> list[str]:
    """Options from what is between colons: one before an equals sign is part of a name."""
    found, name = list[str](), ""
    for part in parts:
        if _is_option(part):
            found.append(name + part)
            name = ""
        else:
            name += f"{part}:"
    return [*found, name[:-1]] if name else found


def _is_option(text: str) -> bool:
    return bool(halves(text, "=")[1])


def _is_value(text: str, option: str) -> bool:
    """Whether ``text`` is another value of what ``option`` says, and not the next pass."""
    if _SIZE.fullmatch(text):
        return True
    named = halves(option, "=")[0] in _NAMES
    return named and text not in registry.PROFILES and text not in registry.names()


def spec_of(passes: Iterable[Check]) -> str:
    """The text that :func:`parse` turns into these passes."""
    return ",".join(map(name_of, passes))


def resolve(passes: str | Check | Sequence[str | Check]) -> list[Check]:
    """Passes given as text, as one object or as several names and objects."""
    if isinstance(passes, str):
        return parse(passes)
    if isinstance(passes, Check):
        return [passes]
    given: Any = passes
    found: list[Check] = []
    for x in given if isinstance(given, Iterable) else [given]:
        if not isinstance(x, (str, Check)):
            raise UsageError(f"{x!r} is no pass; give names, as -p takes them, or passes")
        found += parse(x) if isinstance(x, str) else [x]
    return found


def run(
    model: Given,
    passes: str | Check | Sequence[str | Check] = DEFAULT,
    *,
    progress: Progress | None = None,
    settle: Settle | None = None,
    leave: exclusions.Leaving = exclusions.NOTHING,
) -> Report:
    """Run passes over a model, in place and in order, and say what they did.

    If a pass raises, it is rolled back and skipped; the report says so, and the other passes run.

    Args:
        model: The model, an ``onnx_ir.Model`` or an ``onnx.ModelProto``; if no pass matches it is
            left as it is, to the byte. A file is read, and not written.
        passes: Text as ``-p`` takes it, a pass, or a list of both.
        progress: Called with ``repairing: NAME`` before each pass runs.
        settle: Called with each pass that is measured before it runs, and with the model as it then
            is; what it gives back is run instead.
        leave: What they are to leave alone.

    Returns:
        The report, without a verdict; :func:`graphfix.verify` gives one.

    Raises:
        GraphfixError: A pass refuses the model, or what was asked of it; ``model`` is as it was.
        PassError: A pass raises that the result cannot do without; ``model`` is as it was.
    """
    if not isinstance(model, ir.Model):
        held = loaded(model)
        report = run(held, passes, progress=progress, settle=settle, leave=leave)
        if isinstance(model, onnx.ModelProto) and report.changed:
            model.CopyFrom(ir.to_proto(held))
        return report
    chosen = resolve(passes)
    before, left = Snapshot(model), dict[exclusions.Place, str]()
    while True:
        try:
            now = dataclasses.replace(leave, left={**leave.left, **left}) if left else leave
            report = apply(model, chosen, leave=now, progress=progress, settle=settle)
            break
        except PassError as error:
            before.put_back()
            if not may_go(chosen, error.spec):
                raise
            left[error.spec, exclusions.WHOLE] = str(error)
        except GraphfixError:
            before.put_back()
            raise
    told = tuple(Left(by, (), why, raised=True) for (by, _), why in left.items())
    return dataclasses.replace(report, left=told)


def may_go(chosen: Iterable[Check], spec: str) -> bool:
    """Whether the result is still what was asked for without the pass ``spec``."""
    return all(x.dispensable for x in chosen if isinstance(x, Pass) and x.spec() == spec)


def apply(
    model: ir.Model,
    chosen: Sequence[Check],
    *,
    leave: exclusions.Leaving = exclusions.NOTHING,
    progress: Progress | None = None,
    settle: Settle | None = None,
) -> Report:
    """Run passes as :func:`run` does, but where one raises, ``model`` is left as it then is.

    What one makes another may go on with that ran before it, so those have another turn while they
    find something.

    Args:
        model: The model, which is changed.
        chosen: The passes.
        leave: What they are to leave alone.
        progress: As for :func:`run`.
        settle: As for :func:`run`.

    Raises:
        PassError: A pass raises.
        GraphfixError: A pass refuses the model, or what was asked of it.
    """
    before = count_ops(model)
    exclusions.put(model, leave)
    names.keep(model)
    turns, settled = Turns(model, progress), list[Check]()
    try:
        with one_name(model):
            for given in chosen:
                check = given
                if isinstance(given, Pass) and given.measured:
                    turns.again()  # what is measured is what the others have made, all of it
                    if settle is not None and exclusions.why_pass(model, given.spec()) is None:
                        check = settle(given, model, turns.ran)
                settled.append(check)
                turns.take(check, given)
            turns.again()
    finally:
        forget_index(model)
        names.let_go(model)
    exclusions.put(model, exclusions.NOTHING)
    spec, ran = spec_of(settled), turns.ran
    if any(p.changes for p in ran):
        model.metadata_props[PIPELINE_KEY] = spec
    return Report(spec, ran, ops_before=before, ops_after=count_ops(model), endless=turns.endless)


def count_ops(model: ir.Model) -> dict[str, int]:
    """Nodes by operator: the graph, the graphs inside it, and the local functions."""
    return dict(sorted(Counter(node.op_type for node in all_nodes(model)).items()))
