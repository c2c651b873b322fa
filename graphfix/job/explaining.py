"""``graphfix.explain``: the manual of a pass or rule, or the meaning and causes of an error."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import onnx_ir as ir

from graphfix.core import Findings
from graphfix.engine import registry
from graphfix.errors import PluginError, UsageError
from graphfix.files.model_input import ModelLike, as_model
from graphfix.graph.text import module_path, node_text
from graphfix.job.checking import check
from graphfix.providers.directml import hresult
from graphfix.providers.directml.hresult import ErrorCode
from graphfix.rules import Rule
from graphfix.runtime.own_errors import raises_own_errors
from graphfix.spec.manual import Manual, RuleManual, manual_of, rule_manual_of
from graphfix.wording import Displayable, Row, clean_text, one_line, wrap_text

Style = Callable[[str], str]


_CODE = ("before", "after", "flagged", "clean")


class Section(NamedTuple):
    """A section of an explanation; ``code`` keeps its lines, each line of a ``list`` is an item."""

    title: str
    text: str
    kind: str = "prose"


@dataclass(frozen=True, repr=False)
class Explanation(Displayable):
    """What :func:`explain` returns; its text is what ``graphfix explain`` prints.

    Attributes:
        title: The name, and its kind.
        summary: The meaning.
        sections: The rest, in order.
        findings: The nodes of the model that cause it, or that the pass repairs, or None.
        hint: What to do next.
        data: The same as plain data.
    """

    title: str
    summary: str
    sections: tuple[Section, ...] = ()
    findings: Findings | None = None
    hint: str = ""
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """Return the title."""
        return self.title

    def rows(self, *, verbose: bool = False) -> list[Row]:
        """Return the sections as rows."""
        finding_rows = () if self.findings is None else self.findings.rows()
        return [
            Row("", self.summary),
            *(Row(x.title, x.text) for x in self.sections),
            *finding_rows,
        ]

    def lines(self, bold: Style = str, code: Style = str) -> Iterator[str]:
        """Yield all but the findings as lines; ``bold`` and ``code`` style text."""
        name, space, about = self.title.partition(" ")
        yield f"{bold(name)}{space}{about}"
        yield from _wrap_prose(self.summary, "")
        for title, text, kind in self.sections:
            yield from ("", bold(title))
            if kind == "code":  # not wrapped: it is there to be copied
                yield from (code(f"  {x}") for x in clean_text(text).splitlines())
            elif kind == "list":
                for item in text.splitlines():
                    yield from wrap_text(item, "  ", "    " if item[0] == "-" else "      ")
            else:
                yield from _wrap_prose(text, "  ")
        if self.hint:
            yield from ("", clean_text(self.hint))

    def __str__(self) -> str:
        finding_lines = [] if self.findings is None else ["", "In this model", str(self.findings)]
        return "\n".join([*self.lines(), *finding_lines])

    def to_json(self) -> dict[str, Any]:
        """Return the manual, or what is known of the error, and the findings as plain data."""
        findings = [] if self.findings is None else [x.to_json() for x in self.findings]
        return {"schema": 1, **self.data, "findings": findings}


@raises_own_errors
def explain(name: str, model: ModelLike | None = None, *, ep: str = "dml") -> Explanation:
    """Explain a pass, a profile, a rule or an error.

    Args:
        name: A name, a code such as ``8007023E``, or the line that was printed.
        model: A model, to find the nodes in it that cause the error, or that the pass repairs.
        ep: Where the model is to run, as :func:`graphfix.check` takes it.

    Raises:
        UsageError: Nothing is known of that.
        ModelError: The model cannot be read.
    """
    if not isinstance(name, str):
        raise UsageError(f"{name!r}: give the name of a pass or a rule, or an error, as text")
    if (code := hresult.find_code(name)) is not None:
        return _explain_code(code, name, None if model is None else as_model(model), ep)
    if hresult.is_error_text(name):
        known_codes = ", ".join(x.key for x in hresult.CODES)
        raise UsageError(
            f"nothing is known of the error {one_line(name)}; known are {known_codes}. graphfix "
            f"check MODEL --ep {ep} says what is known to fail, graphfix verify MODEL MODEL "
            f"--ep {ep} runs it"
        )
    explanation = _explain_name(name)
    return (
        explanation if model is None else replace(explanation, findings=check(model, name, ep=ep))
    )


def _explain_name(name: str) -> Explanation:
    if (passes := registry.PROFILES.get(name)) is not None:
        about = "A named list of passes, in this order."
        section = Section("Passes", "\n".join(passes), "list")
        data = {"name": name, "passes": list(passes)}
        hint = "More about one: graphfix explain NAME"
        return Explanation(f"{name} (profile)", about, (section,), hint=hint, data=data)
    try:
        cls = registry.pass_class(name)
    except UsageError as error:
        raise UsageError(f"{error}, and an error is a code such as 8007023E") from error
    try:
        if not issubclass(cls, Rule):
            manual = manual_of(cls)
            return _explain_manual(manual, manual.promise)
        about = f"rule of check, holds on {', '.join(cls.providers)}"
        return _explain_manual(rule_manual_of(cls), about)
    except PluginError as error:
        # Only built-in passes must have a manual; of a plugin, the docstring is shown.
        logging.getLogger("graphfix").warning(str(error))
        return Explanation(name, (cls.__doc__ or "").strip())


def _explain_manual(manual: Manual | RuleManual, about: str) -> Explanation:
    data = asdict(manual)
    sections = [
        Section("Run as", f"-p {text}")
        if name == "spec"
        else Section(name.capitalize(), text, "code" if name in _CODE else "prose")
        for name, text in [(x, str(data.get(x) or "")) for x in ("why", "spec", *_CODE, "safety")]
        if text
    ]
    sections += [
        Section(f"Left alone. {x['why'].removesuffix(':')}", x["model"], "code")
        for x in data.get("left_alone", ())
    ]
    options = ["{name}={default} ({type})\n    {text}".format(**x) for x in data.get("options", ())]
    if options:
        sections.append(Section("Options", "\n".join(options), "list"))
    summary = "\n\n".join(filter(None, (manual.summary, manual.body)))
    return Explanation(f"{manual.name} ({about})", summary, tuple(sections), data=data)


def _explain_code(code: ErrorCode, text: str, model: ir.Model | None, ep: str) -> Explanation:
    node_name = hresult.node_named_in(text)
    found_by = (f" Found by: {', '.join(x.rules)}." if x.rules else "" for x in code.causes)
    causes = [f"- {x.text} ({x.source}).{y}" for x, y in zip(code.causes, found_by, strict=True)]
    sections = [Section("Known causes", "\n".join(causes), "list")]
    sections += [Section("What to do", code.advice)] if code.advice else []
    findings, hint = None, f"What it is in a model: graphfix explain {code.key!r} MODEL"
    if model is not None:
        sections += _sections_about(model, code, node_name)
        findings, hint = None if code.at_fault else _find_causes(model, code, ep), ""
    data = {**asdict(code), "node": node_name}
    title = f"{code.key} ({code.title})"
    return Explanation(title, code.meaning, tuple(sections), findings, hint, data)


def _sections_about(model: ir.Model, code: ErrorCode, node_name: str | None) -> Iterator[Section]:
    """Yield what there is to say of a model without looking for causes in its graph."""
    if node_name is not None:
        yield Section("The node that it names", _node_text(model, node_name), "list")
    if code.at_fault == "array":
        ports = "\n".join(map(_input_text, model.graph.inputs))
        yield Section("The inputs of this model", ports, "list")
    if code.at_fault:
        yield Section("In this model", f"Nothing: the {code.at_fault} is at fault.")


def _find_causes(model: ir.Model, code: ErrorCode, ep: str) -> Findings:
    """Return what the rules of an error find in a model on a provider, errors first."""
    names = dict.fromkeys(name for cause in code.causes for name in cause.rules)
    looked = check(model, ",".join(names), ep=ep) if names else Findings()
    findings = Findings(x for x in looked if x.fix is not None or x.severity == "error")
    findings.sort(key=lambda x: x.severity != "error")
    return findings


def _input_text(value: ir.Value) -> str:
    """Return an input as text: its type as ONNX Runtime writes it, and its shape."""
    name = value.dtype.name.lower() if value.dtype is not None else "?"
    return one_line(f"{value.name}: tensor({name}), shape {value.shape}")


def _node_text(model: ir.Model, name: str) -> str:
    for node in model.graph.all_nodes():
        if node.name == name:
            module = ".".join(module_path(node))
            return node_text(node) + (f"  (of the module {module})" if module else "")
    return f"this model has no node {name!r}: ONNX Runtime may have made it of others"


def _wrap_prose(text: str, indent: str) -> Iterator[str]:
    """Yield the lines of paragraphs, wrapped again; indented lines and lists are kept."""
    # A terminal needs no markup to show what is code.
    for number, paragraph in enumerate(text.replace("``", "`").split("\n\n")):
        if number:
            yield ""
        lines = paragraph.splitlines()
        if any(line.startswith((" ", "-", "*")) for line in lines):
            yield from (indent + one_line(line) for line in lines)
        else:
            yield from wrap_text(" ".join(lines), indent)
