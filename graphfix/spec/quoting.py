"""Names inside texts such as ``fix-dims:"input:0.0"=1``: what is quoted means itself.

A model's names hold any characters, TensorFlow's a colon, and colons, commas and equals signs are
what such texts are divided by. Between two double quotes stands a JSON string, of which nothing is
divided; quotes may be around all of a name or around a part of it.
"""

import json
import re

from graphfix.errors import UsageError

_DIVIDERS = frozenset(':,="')
_SECTION = r'"(?:[^"\\]|\\.)*"?'  # one that is not closed goes to the end


def quoted(name: str) -> str:
    """``name`` as such a text takes it: in quotes only where it cannot do without."""
    if name.isprintable() and name == name.strip() and name and not _DIVIDERS & set(name):
        return name
    # What a terminal does not show is spelled out, so that it can be copied from one.
    inside = (c if c.isprintable() and c not in '"\\' else json.dumps(c)[1:-1] for c in name)
    return f'"{"".join(inside)}"'


def unquoted(text: str) -> str:
    """The name that ``text`` stands for; without quotes, that is ``text``.

    Raises:
        UsageError: A quote is not closed, or what is in it is no JSON string.
    """
    return re.sub(_SECTION, _meant, text, flags=re.DOTALL)


def divided(text: str, mark: str) -> list[str]:
    """The parts of ``text`` between each ``mark`` that is not quoted, quotes and all."""
    parts, start = [], 0
    for found in re.finditer(f"{_SECTION}|{re.escape(mark)}", text, re.DOTALL):
        if found[0] == mark:
            parts.append(text[start : found.start()])
            start = found.end()
    return [*parts, text[start:]]


def halves(text: str, mark: str) -> tuple[str, str, str]:
    """What is before the first ``mark`` that is not quoted, the mark, and what is behind it."""
    first, *rest = divided(text, mark)
    return (first, mark, mark.join(rest)) if rest else (first, "", "")


def _meant(section: re.Match[str]) -> str:
    try:
        return str(json.loads(section[0], strict=False))
    except ValueError:
        whole = section.string
        raise UsageError(
            f"{whole}: what begins with {section[0]} is no name in quotes; close the quotes, and "
            'write \\" for a quote and \\\\ for a backslash in them'
        ) from None
