"""Quoted names in texts such as ``fix-dims:"input:0.0"=1``.

A model's names hold any characters, TensorFlow's a colon, and colons, commas and equals signs
divide such texts. A double-quoted section is a JSON string and is never divided; quotes may be
around all of a name or around a part of it.
"""

import json
import re

from graphfix.errors import UsageError

_DIVIDERS = frozenset(':,="')
_SECTION = r'"(?:[^"\\]|\\.)*"?'  # one that is not closed goes to the end


def quote_name(name: str) -> str:
    """Return ``name`` for use in such a text, in quotes only where it needs them."""
    if name.isprintable() and name == name.strip() and name and not _DIVIDERS & set(name):
        return name
    # What a terminal does not show is spelled out, so that it can be copied from one.
    inside = (c if c.isprintable() and c not in '"\\' else json.dumps(c)[1:-1] for c in name)
    return f'"{"".join(inside)}"'


def unquote_name(text: str) -> str:
    """Return the name that ``text`` means; without quotes, that is ``text``.

    Raises:
        UsageError: A quote is not closed, or what is in it is no JSON string.
    """
    return re.sub(_SECTION, _decode_section, text, flags=re.DOTALL)


def split_outside_quotes(text: str, mark: str) -> list[str]:
    """Split ``text`` at each ``mark`` that is not quoted; quotes are kept."""
    parts, start = [], 0
    for token in re.finditer(f"{_SECTION}|{re.escape(mark)}", text, re.DOTALL):
        if token[0] == mark:
            parts.append(text[start : token.start()])
            start = token.end()
    return [*parts, text[start:]]


def partition_outside_quotes(text: str, mark: str) -> tuple[str, str, str]:
    """Return what is before the first unquoted ``mark``, the mark, and what is behind it."""
    first, *tail = split_outside_quotes(text, mark)
    return (first, mark, mark.join(tail)) if tail else (first, "", "")


def _decode_section(section: re.Match[str]) -> str:
    try:
        return str(json.loads(section[0], strict=False))
    except ValueError:
        text = section.string
        raise UsageError(
            f"{text}: what begins with {section[0]} is no name in quotes; close the quotes, and "
            'write \\" for a quote and \\\\ for a backslash in them'
        ) from None
