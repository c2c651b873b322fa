"""Options of a pass: typed fields as text, such as ``floor=-1000:style=unsqueeze``, and back."""

import dataclasses
import functools
import re
import types
from collections.abc import Callable, Mapping
from typing import Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from graphfix.errors import UsageError
from graphfix.spec.quoting import quote_name
from graphfix.wording import did_you_mean

P = TypeVar("P")

Sizes = tuple[tuple[str, int], ...]
"""The type of a field that takes every option which is no other field: ``T=500:B=1``."""

Texts = tuple[tuple[str, str], ...]
"""The same for values that are no sizes, as text: ``sr=16000:is_last=true``."""

_hints: Callable[[type], dict[str, object]] = functools.cache(get_type_hints)
"""The types of a class's fields; they take 2 ms, and every pipeline asks for them."""


def options_to_text(instance: object) -> str:
    """Return the options of a dataclass instance that differ from their defaults, ``k=v:k=v``."""
    if not dataclasses.is_dataclass(instance):
        return ""
    values = {x: getattr(instance, x.name) for x in dataclasses.fields(instance)}
    changed = {field: value for field, value in values.items() if value != field.default}
    if not changed:
        return ""
    hints = _hints(type(instance))
    pairs = []
    for field, value in changed.items():
        if _is_open(hints[field.name]):
            pairs += [f"{quote_name(key)}={size}" for key, size in value]
        else:
            pairs.append(f"{option_name(field.name)}={_value_to_text(value)}")
    return ":".join(pairs)


def make_instance(cls: type[P], name: str, texts: Mapping[str, str]) -> P:
    """Make an instance of the dataclass ``cls`` from options given as text.

    Raises:
        UsageError: An option is unknown or its value does not fit; the message lists what would.
    """
    hints = _hints(cls)
    own = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    fields = {option_name(f.name): f for f in own}
    open_field = next((f for f in fields.values() if _is_open(hints[f.name])), None)
    if open_field is not None:
        del fields[option_name(open_field.name)]
    values: dict[str, object] = {}
    open_values: list[tuple[str, object]] = []
    for key, text in texts.items():
        field = fields.get(key.replace("_", "-"))
        if field is None and open_field is not None:
            kind = int if hints[open_field.name] == Sizes else str
            open_values.append((key, _parse_value(name, key, text, kind)))
            continue
        if field is None:
            raise UsageError(_unknown_option_message(name, key, list(fields)))
        values[field.name] = _parse_value(name, key, text, hints[field.name])
    if open_field is not None:
        values[open_field.name] = tuple(open_values)
    try:
        return cls(**values)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from error


def option_name(field: str) -> str:
    """Return the option that a field holds: ``from`` for ``from_``, a keyword of Python."""
    return field.rstrip("_").replace("_", "-")


def _is_open(hint: object) -> bool:
    return hint in (Sizes, Texts)


def _unknown_option_message(name: str, key: str, option_names: list[str]) -> str:
    if not option_names:
        return f"{name} has no options, but {key!r} was given"
    return (
        f"{name} has no option {key!r}{did_you_mean(key, option_names)} Its options: "
        f"{', '.join(option_names)}"
    )


def _value_to_text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return re.sub(r"e([+-])0*", lambda exponent: f"e{exponent[1].strip('+')}", f"{value:g}")
    if isinstance(value, tuple):
        return "+".join(map(_value_to_text, value))
    return quote_name(value) if isinstance(value, str) and value else str(value)


def _parse_value(name: str, key: str, text: str, hint: object) -> object:
    origin, args = get_origin(hint), get_args(hint)
    if origin is types.UnionType or origin is Union:
        return _parse_union(name, key, text, args)
    if origin is Literal:
        if text in args:
            return text
        raise UsageError(f"{name}: {key}={text} is none of {', '.join(map(str, args))}")
    if hint is bool:
        words = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
        if text.lower() in words:
            return words[text.lower()]
        raise UsageError(f"{name}: {key}={text} is neither yes nor no")
    if hint is int and "+" in text:
        raise UsageError(
            f"{name}: {key}={text.replace('+', ',')} are several sizes, and one model has one; "
            "graphfix ship --container makes a model of each"
        )
    if hint is int or hint is float:
        try:
            return hint(text)
        except ValueError:
            kind = "a whole number" if hint is int else "a number"
            raise UsageError(f"{name}: {key}={text} is not {kind}") from None
    return text


def _parse_union(name: str, key: str, text: str, args: tuple[object, ...]) -> object:
    failures = []
    for arg in args:
        if arg is type(None):
            if text.lower() == "none":
                return None
            continue
        try:
            return _parse_value(name, key, text, arg)
        except UsageError as error:
            failures.append(error)
    raise failures[0]
