"""Options of a pass: typed fields on one side, ``floor=-1000:style=unsqueeze`` on the other."""

import dataclasses
import functools
import re
import types
from collections.abc import Callable, Mapping
from typing import Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from graphfix.errors import UsageError
from graphfix.spec.quoting import quoted
from graphfix.wording import did_you_mean

P = TypeVar("P")

Sizes = tuple[tuple[str, int], ...]
"""The type of a field that takes every option which is no other field: ``T=500:B=1``."""

Texts = tuple[tuple[str, str], ...]
"""The same for values that are no sizes, as text: ``sr=16000:is_last=true``."""

_hints: Callable[[type], dict[str, object]] = functools.cache(get_type_hints)
"""The types of a class's fields; they take 2 ms, and every pipeline asks for them."""


def to_text(instance: object) -> str:
    """The options of a dataclass instance that differ from their defaults, ``k=v:k=v``."""
    if not dataclasses.is_dataclass(instance):
        return ""
    values = {x: getattr(instance, x.name) for x in dataclasses.fields(instance)}
    given = {field: value for field, value in values.items() if value != field.default}
    if not given:
        return ""
    hints = _hints(type(instance))
    pairs = []
    for field, value in given.items():
        if _is_open(hints[field.name]):
            pairs += [f"{quoted(key)}={size}" for key, size in value]
        else:
            pairs.append(f"{option_name(field.name)}={_print(value)}")
    return ":".join(pairs)


def make(cls: type[P], name: str, given: Mapping[str, str]) -> P:
    """An instance of the dataclass ``cls`` with the options ``given`` as text.

    Raises:
        UsageError: An option is unknown or its value does not fit; the message lists what would.
    """
    hints = _hints(cls)
    own = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    fields = {option_name(f.name): f for f in own}
    takes_rest = next((f for f in fields.values() if _is_open(hints[f.name])), None)
    if takes_rest is not None:
        del fields[option_name(takes_rest.name)]
    values: dict[str, object] = {}
    rest: list[tuple[str, object]] = []
    for key, text in given.items():
        field = fields.get(key.replace("_", "-"))
        if field is None and takes_rest is not None:
            kind = int if hints[takes_rest.name] == Sizes else str
            rest.append((key, _parse(name, key, text, kind)))
            continue
        if field is None:
            raise UsageError(_unknown(name, key, list(fields)))
        values[field.name] = _parse(name, key, text, hints[field.name])
    if takes_rest is not None:
        values[takes_rest.name] = tuple(rest)
    try:
        return cls(**values)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from error


def option_name(field: str) -> str:
    """The option that a field holds: ``from_`` holds ``from``, which Python keeps for itself."""
    return field.rstrip("_").replace("_", "-")


def _is_open(hint: object) -> bool:
    return hint in (Sizes, Texts)


def _unknown(name: str, key: str, known: list[str]) -> str:
    if not known:
        return f"{name} has no options, but {key!r} was given"
    return f"{name} has no option {key!r}{did_you_mean(key, known)} Its options: {', '.join(known)}"


def _print(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return re.sub(r"e([+-])0*", lambda found: f"e{found[1].strip('+')}", f"{value:g}")
    if isinstance(value, tuple):
        return "+".join(map(_print, value))
    return quoted(value) if isinstance(value, str) and value else str(value)


def _parse(name: str, key: str, text: str, hint: object) -> object:
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
            return _parse(name, key, text, arg)
        except UsageError as error:
            failures.append(error)
    raise failures[0]
