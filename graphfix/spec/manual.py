"""Manuals of passes: their docstrings, parsed into sections."""

import dataclasses
import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphfix.errors import PluginError
from graphfix.spec.options import option_name

REQUIRED = ("Why", "Before", "After", "Safety")
RULE = ("Why", "Flagged", "Clean")
SECTIONS = (*REQUIRED, *RULE, "Left alone", "Options", "Spec")


@dataclass(frozen=True)
class Option:
    """An option of a pass: its spelling, its type and default as text, what it does."""

    name: str
    type: str
    default: str
    text: str


@dataclass(frozen=True)
class LeftAlone:
    """A model that looks like one to repair and is left as it is.

    Attributes:
        why: A sentence; words in double quotes are of the reason that the pass gives.
        model: The model, as ONNX text.
    """

    why: str
    model: str

    @property
    def reason(self) -> str:
        """Return the words of the pass's reason; empty if it is no near miss and gives none."""
        return self.why.partition('"')[2].partition('"')[0]


@dataclass(frozen=True)
class _Head:
    """The beginning of the manual of a pass or a rule.

    Attributes:
        name: The name of the pass, or the id of the rule.
        summary: One sentence.
        body: Paragraphs after it; may be empty.
        why: What the repair is good for, or what goes wrong: measured, cited or marked as
            suspected.
    """

    name: str
    summary: str
    body: str
    why: str


@dataclass(frozen=True)
class Manual(_Head):
    """The manual of a pass.

    Attributes:
        before: A model as ONNX text.
        after: What the pass makes of it.
        safety: What stays the same, and under which condition.
        promise: That in one word, as the class declares it; "check" for what only looks.
        options: The options, in the order of the fields.
        spec: How ``-p`` names the pass for Before to become After; None if the name is enough.
        left_alone: Models that the pass, so named, leaves as they are.
    """

    before: str
    after: str
    safety: str
    promise: str
    options: tuple[Option, ...] = ()
    spec: str | None = None
    left_alone: tuple[LeftAlone, ...] = ()


@dataclass(frozen=True)
class RuleManual(_Head):
    """The manual of a rule of ``check``.

    Attributes:
        flagged: A model as ONNX text that the rule flags.
        clean: A model that does the same job and that no rule calls an error or a warning for it.
        providers: The execution providers on which it holds, as ``--ep`` takes them.
    """

    flagged: str
    clean: str
    providers: tuple[str, ...]


def rule_manual_of(cls: type) -> RuleManual:
    """Return the manual of the class of a rule.

    Raises:
        PluginError: The docstring lacks a section.
    """
    head, sections = _sections_of(cls, RULE)
    providers = tuple(getattr(cls, "providers", ()))
    return RuleManual(*head, sections["Flagged"], sections["Clean"], providers)


def manual_of(cls: type) -> Manual:
    """Return the manual of the class of a pass or a check.

    Raises:
        PluginError: The docstring lacks a section, its Options are not those of the class, or a
            model under Left alone has no sentence before it.
    """
    head, sections = _sections_of(cls, REQUIRED)
    return Manual(
        *head,
        before=sections["Before"],
        after=sections["After"],
        safety=sections["Safety"],
        promise=str(getattr(cls, "safety", "check")),
        options=_describe_options(cls, _parse_entries(sections.get("Options", ""))),
        spec=sections.get("Spec"),
        left_alone=_parse_left_alone(cls, sections.get("Left alone", "")),
    )


def summary_of(cls: type) -> str:
    """Return the first paragraph of a docstring on one line; empty if there is none."""
    head, _ = _split_sections(_docstring_of(cls))
    return _join_lines(head[0]) if head else ""


def _sections_of(
    cls: type, required: Sequence[str]
) -> tuple[tuple[str, str, str, str], dict[str, str]]:
    """Return the fields of :class:`_Head`, and the sections."""
    head, sections = _split_sections(_docstring_of(cls))
    missing = [f"{section}:" for section in required if not sections.get(section)]
    if not head:
        missing.insert(0, "a first sentence")
    if missing:
        required_names = ", ".join(f"{section}:" for section in required)
        options_hint = ", Options:" if "Safety" in required else ""
        raise PluginError(
            f"{_location_of(cls)}: its docstring lacks {', '.join(missing)}; "
            f"a manual has a first sentence, then {required_names}{options_hint}"
        )
    return (_name_of(cls), _join_lines(head[0]), "\n\n".join(head[1:]), sections["Why"]), sections


def _name_of(cls: type) -> str:
    return str(getattr(cls, "name", cls.__name__))


def _location_of(cls: type) -> str:
    return f"{_name_of(cls)} ({cls.__module__}.{cls.__qualname__})"


def _docstring_of(cls: type) -> str:
    # Not inspect.getdoc: that of a parent class is no manual of this pass.
    text = inspect.cleandoc(cls.__doc__ or "")
    # A dataclass without a docstring is given its signature as one.
    return "" if text.startswith(f"{cls.__name__}(") else text


def _split_sections(text: str) -> tuple[list[str], dict[str, str]]:
    """Return the paragraphs before the first section, and each section without its indent."""
    parts: dict[str, list[str]] = {"": []}
    current = ""
    for line in text.splitlines():
        if line.endswith(":") and line[:-1] in SECTIONS:
            current = line[:-1]
            parts[current] = []
        else:
            parts[current].append(line)
    paragraphs = "\n".join(parts.pop("")).strip().split("\n\n")
    head = [paragraph.strip() for paragraph in paragraphs if paragraph.strip()]
    # cleandoc leaves the first line alone, and a section has none of its own there.
    return head, {k: inspect.cleandoc("\n" + "\n".join(v)) for k, v in parts.items()}


def _parse_entries(text: str) -> dict[str, str]:
    """Parse ``floor: what it does`` with continuation lines into {floor: what it does}."""
    entries: dict[str, str] = {}
    key = ""
    for line in text.splitlines():
        if line and not line[0].isspace():
            key, _, description = line.partition(":")
            key = key.strip().replace("_", "-")
            entries[key] = description.strip()
        elif key and line.strip():
            entries[key] = f"{entries[key]} {line.strip()}"
    return entries


def _parse_left_alone(cls: type, text: str) -> tuple[LeftAlone, ...]:
    """Parse sentences that end in a colon, each with a model in ONNX text behind it."""
    examples: list[LeftAlone] = []
    for paragraph in text.split("\n\n") if text else ():
        why, start, model = paragraph.partition("\n<")
        if not why.endswith(":") or not start:
            raise PluginError(
                f"{_location_of(cls)}: Left alone: has {paragraph.splitlines()[0]!r}; each model "
                "there is ONNX text that begins with <, right behind a sentence that ends with a "
                "colon, and an empty line is before the next sentence only"
            )
        examples.append(LeftAlone(_join_lines(why), f"<{model}"))
    return tuple(examples)


def _describe_options(cls: type, texts: Mapping[str, str]) -> tuple[Option, ...]:
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    hints = typing.get_type_hints(cls) if fields else {}
    names = [option_name(f.name) for f in fields]
    if undescribed := [x for x in names if not texts.get(x)]:
        raise PluginError(
            f"{_location_of(cls)}: Options: does not describe {', '.join(undescribed)}"
        )
    if unknown := [x for x in texts if x not in names]:
        raise PluginError(
            f"{_location_of(cls)}: Options: describes {', '.join(unknown)}, which is no field"
        )
    pairs = zip(names, fields, strict=True)
    return tuple(
        Option(x, _type_text(hints[f.name]), _default_text(f.default), texts[x]) for x, f in pairs
    )


def _type_text(hint: object) -> str:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType or origin is typing.Union:
        return _join_with_or([_type_text(arg) for arg in args])
    if origin is typing.Literal:
        return _join_with_or([str(arg) for arg in args])
    plain: dict[object, str] = {
        bool: "yes or no",
        int: "whole number",
        float: "number",
        str: "text",
        type(None): "none",
    }
    return plain.get(hint, str(getattr(hint, "__name__", hint)))


def _join_with_or(words: Sequence[str]) -> str:
    return " or ".join(([", ".join(words[:-1])] if words[:-1] else []) + [words[-1]])


def _default_text(default: object) -> str:
    if default is dataclasses.MISSING:
        return ""
    if default is None:
        return "none"
    if isinstance(default, bool):
        return "yes" if default else "no"
    return f"{default:g}" if isinstance(default, float) else str(default)


def _join_lines(paragraph: str) -> str:
    return " ".join(paragraph.split())
