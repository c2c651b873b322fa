"""``graphfix.explain``: the manual of a pass or a rule, or what an error means and comes from."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import onnx_ir as ir

from graphfix.core import Findings
from graphfix.directml import hresult
from graphfix.directml.hresult import Code
from graphfix.engine import registry
from graphfix.errors import PluginError, UsageError
from graphfix.files.given import Given, loaded
from graphfix.graph.text import line_of, module_path
from graphfix.job.checking import check
from graphfix.rules import Rule
from graphfix.spec.manual import Manual, RuleManual, manual_of, rule_manual_of
from graphfix.wording import Row, Shown, clean, one_line, wrapped

Style = Callable[[str], str]


_CODE = ("before", "after", "flagged", "clean")


class Section(NamedTuple):
    """A part of an explanation; ``code`` keeps its lines, and of a list each item is a line."""

    title: str
    text: str
    kind: str = "prose"


@dataclass(frozen=True, repr=False)
class Explanation(Shown):
    """What :func:`explain` says; its text is what ``graphfix explain`` prints.

    Attributes:
        title: The name, and what it is.
        summary: What that means.
        sections: The rest of it, in order.
        findings: The nodes of the model that cause it, or that the pass repairs; None without one.
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
        """The name, and what it is."""
        return self.title

    def rows(self, *, verbose: bool = False) -> list[Row]:
        """The sections."""
        found = () if self.findings is None else self.findings.rows()
        return [Row("", self.summary), *(Row(x.title, x.text) for x in self.sections), *found]

    def lines(self, bold: Style = str, code: Style = str) -> Iterator[str]:
        """All of it but the findings, as lines; ``bold`` and ``code`` make text stand out."""
        name, space, about = self.title.partition(" ")
        yield f"{bold(name)}{space}{about}"
        yield from _prose(self.summary, "")
        for title, text, kind in self.sections:
            yield from ("", bold(title))
            if kind == "code":  # not wrapped: it is there to be copied
                yield from (code(f"  {x}") for x in clean(text).splitlines())
            elif kind == "list":
                for item in text.splitlines():
                    yield from wrapped(item, "  ", "    " if item[0] == "-" else "      ")
            else:
                yield from _prose(text, "  ")
        if self.hint:
            yield from ("", clean(self.hint))

    def __str__(self) -> str:
        found = [] if self.findings is None else ["", "In this model", str(self.findings)]
        return "\n".join([*self.lines(), *found])

    def to_json(self) -> dict[str, Any]:
        """As plain data: a manual, or what is known of an error; and the findings."""
        found = [] if self.findings is None else [x.to_json() for x in self.findings]
        return {"schema": 1, **self.data, "findings": found}


def explain(name: str, model: Given | None = None) -> Explanation:
    """Explain a pass, a profile, a rule or an error.

    Args:
        name: A name, a code such as ``8007023E``, or the line that was printed.
        model: A model, to find the nodes in it that cause the error, or that the pass repairs.

    Raises:
        UsageError: Nothing is known of that.
        ModelError: The model cannot be read.
    """
    if not isinstance(name, str):
        raise UsageError(f"{name!r}: give the name of a pass or a rule, or an error, as text")
    if (code := hresult.find(name)) is not None:
        return _of_code(code, name, None if model is None else loaded(model))
    if hresult.is_number(name):
        known = ", ".join(x.key for x in hresult.CODES)
        raise UsageError(f"nothing is known of the error {name}; known are {known}")
    told = _of_name(name)
    return told if model is None else replace(told, findings=check(model, name))


def _of_name(name: str) -> Explanation:
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
            return _of_manual(manual, manual.promise)
        about = f"rule of check, holds on {', '.join(cls.providers)}"
        return _of_manual(rule_manual_of(cls), about)
    except PluginError as error:
        # Only passes in the folder owe a manual; of others, what there is is shown.
        logging.getLogger("graphfix").warning(str(error))
        return Explanation(name, (cls.__doc__ or "").strip())


def _of_manual(manual: Manual | RuleManual, about: str) -> Explanation:
    data = asdict(manual)
    sections = [
        Section("Run as", f"-p {text}")
        if name == "spec"
        else Section(name.capitalize(), text, "code" if name in _CODE else "prose")
        for name, text in [(x, str(data.get(x) or "")) for x in ("why", "spec", *_CODE, "safety")]
        if text
    ]
    options = ["{name}={default} ({type})\n    {text}".format(**x) for x in data.get("options", ())]
    if options:
        sections.append(Section("Options", "\n".join(options), "list"))
    summary = "\n\n".join(filter(None, (manual.summary, manual.body)))
    return Explanation(f"{manual.name} ({about})", summary, tuple(sections), data=data)


def _of_code(code: Code, text: str, model: ir.Model | None) -> Explanation:
    named, names = hresult.node_in(text), dict.fromkeys(y for x in code.causes for y in x.rules)
    found_by = (f" Found by: {', '.join(x.rules)}." if x.rules else "" for x in code.causes)
    causes = [f"- {x.text} ({x.source}).{y}" for x, y in zip(code.causes, found_by, strict=True)]
    sections = [Section("Known causes", "\n".join(causes), "list")]
    sections += [Section("What to do", code.advice)] if code.advice else []
    found, hint = None, f"What it is in a model: graphfix explain {code.key!r} MODEL"
    if model is not None:
        found, hint = Findings(), ""
        if named is not None:
            sections.append(Section("The node that it names", _line(model, named), "list"))
        if names:
            looked = check(model, ",".join(names))
            found = Findings(x for x in looked if x.fix is not None or x.severity == "error")
            found.sort(key=lambda x: x.severity != "error")
        else:
            ports = "\n".join(map(_port, model.graph.inputs))
            sections.append(Section("The inputs of this model", ports, "list"))
    data = {**asdict(code), "node": named}
    title = f"{code.key} ({code.title})"
    return Explanation(title, code.meaning, tuple(sections), found, hint, data)


def _port(value: ir.Value) -> str:
    """An input, its type as ONNX Runtime writes it in that error, and its shape."""
    name = value.dtype.name.lower() if value.dtype is not None else "?"
    return one_line(f"{value.name}: tensor({name}), shape {value.shape}")


def _line(model: ir.Model, name: str) -> str:
    for node in model.graph.all_nodes():
        if node.name == name:
            module = ".".join(module_path(node))
            return line_of(node) + (f"  (of the module {module})" if module else "")
    return f"this model has no node {name!r}: ONNX Runtime may have made it of others"


def _prose(text: str, indent: str) -> Iterator[str]:
    """Paragraphs, wrapped again; one with indented lines or a list keeps its lines."""
    # A terminal needs no markup to show what is code.
    for number, paragraph in enumerate(text.replace("``", "`").split("\n\n")):
        if number:
            yield ""
        lines = paragraph.splitlines()
        if any(line.startswith((" ", "-", "*")) for line in lines):
            yield from (indent + one_line(line) for line in lines)
        else:
            yield from wrapped(" ".join(lines), indent)
