"""Words for what is told to people, and the lines and rows they are put in, wherever it is told."""

import difflib
import html
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

K = TypeVar("K")
V = TypeVar("V")
# Called with a short text at each step.
Tell = Callable[[str], None]

# Operators that are spelled out begin with the sound of their first letter: an LSTM, a GRU.
_LETTERS = re.compile(r"[AEFHILMNORSX][A-Z]")
_VOWEL = re.compile(r"[AEIOaeio]|[Uu](?!ni)")
# No name that a person gives is as long as this.
_KEPT = 200
_ENDLESS = re.compile(r"\S{2000,}")
_LABEL = 10
_WIDEST = 100
ALIASES: dict[str, str] = {}
"""What is said instead of a path that the user did not give."""
# They are read on light and on dark; all else has the colours of the notebook.
_COLOURS = {"green": "#2e9e5b", "red": "#d9534f", "yellow": "#b8860b", "cyan": "#2f86c6"}


def kebab_case(name: str) -> str:
    """``FuseNorm`` as ``fuse-norm``."""
    return re.sub("(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()


class Row(NamedTuple):
    """One answer of a result: what it is about, and what was found."""

    label: str
    text: str
    colour: str = ""
    """Of the label: green is good, red is bad, yellow is worth a look."""


class Shown:
    """A result as a person looks at it: a line, the rows of a terminal, a table in a notebook."""

    @property
    def line(self) -> str:
        """All of it in a line."""
        return str(self)

    @property
    def headline(self) -> str:
        """What stands above the rows in a notebook."""
        return self.line

    def rows(self, *, verbose: bool = False) -> list[Row]:
        """The answers, the first one first; ``verbose`` as on the command line."""
        return []

    def __str__(self) -> str:
        return "\n".join(line for row in self.rows() for line in row_lines(row))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.line}>"

    def _repr_html_(self) -> str:
        cell, cells = '<td style="text-align:left;vertical-align:top;white-space:pre-wrap', ""
        for label, text, colour in self.rows():
            tone = _COLOURS.get(colour, "inherit")
            cells += f'<tr>{cell};color:{tone}">{html.escape(label)}</td>'
            cells += f'{cell}">{html.escape(clean(text))}</td></tr>'
        return f"<div><b>{html.escape(clean(self.headline))}</b><table>{cells}</table></div>"


class Proof(Shown):
    """What was found, true if it is good."""

    def __bool__(self) -> bool:
        return bool(self.ok)  # type: ignore[attr-defined]  # each has it, as a field or not


def number(value: float | str) -> str:
    """A difference in three digits; NaN and infinity are text in the JSON."""
    return value if isinstance(value, str) else f"{value:.3g}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """``1 repair``, ``2 repairs``."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The end of a sentence that says there is no ``name``: a period, or the closest known one.

    ``cutoff`` is how alike they have to be, as in ``difflib.get_close_matches``.
    """
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {close[0]!r}?" if close else "."


def a_or_an(word: str) -> str:
    """``an Add``, ``a Mul``, ``an LSTM``, ``a Unique``."""
    return f"{'an' if (_LETTERS if word[:2].isupper() else _VOWEL).match(word) else 'a'} {word}"


def one_line(text: str) -> str:
    """Text from a model as one line: a name with a newline in it forges none."""
    return clean(text).replace("\n", "\\n")


def clean(text: str) -> str:
    """Text from a model without control characters: a node's name may hold any, and a million."""
    for path, name in ALIASES.items():
        text = text.replace(path, name)
    text = _ENDLESS.sub(lambda x: f"{x[0][:_KEPT]}… ({len(x[0]):,} letters)", text)
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def width() -> int:
    """How many columns there are; 80 where nobody says."""
    return min(shutil.get_terminal_size((80, 24)).columns, _WIDEST)


def wrapped(text: str, indent: str = "", later: str | None = None) -> list[str]:
    """Text wrapped at the terminal's width, all lines indented, or those after the first more."""
    # A path or a tensor's name is never broken: it is there to be copied.
    return textwrap.wrap(
        clean(text),
        max(width(), 40),
        initial_indent=indent,
        subsequent_indent=indent if later is None else later,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [indent]


def row_lines(row: Row) -> list[str]:
    """``label     text`` with the text wrapped under itself."""
    lines = wrapped(row.text, "  " + " " * _LABEL)
    return [f"  {row.label:<{_LABEL}}{lines[0].lstrip()}", *lines[1:]]


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """(reason, place) pairs, or others, as each reason with its places."""
    found: dict[K, list[V]] = {}
    for reason, place in pairs:
        found.setdefault(reason, []).append(place)
    return found


def reasons(
    pairs: Iterable[tuple[str, str]],
    *,
    every: bool,
    indent: str,
    most: int | None = None,
    alike: bool = False,
) -> Iterator[str]:
    """Lines of (place, reason) pairs with each reason once, its count, and the first two places.

    Unless ``every``, no more than ``most`` reasons are shown, the commonest; and if ``alike``, of
    those that differ in their numbers only the first.
    """
    first: dict[str, str] = {}

    def told(reason: str) -> str:
        same = re.sub(r"\d+", "0", reason) if alike and not every else reason
        return first.setdefault(same, reason)

    order = list(grouped((told(reason), place) for place, reason in pairs).items())
    shortened = most is not None and not every and len(order) > most
    if shortened:
        order.sort(key=lambda item: -len(item[1]))
    for reason, places in order[:most] if shortened else order:
        yield from wrapped(f"{len(places)} x {reason}", indent, indent + "    ")
        shown = places if every else places[:2]
        rest = len(places) - len(shown)
        more = f" and {rest} more (-v)" if rest else ""
        if any(shown):  # a model that does not load has no place
            yield from wrapped(f"at {', '.join(shown)}{more}", indent + "    ", indent + "       ")
    if shortened:
        rest = sum(len(places) for _, places in order[most:])
        yield from wrapped(
            f"{rest} x for {len(order) - (most or 0)} more reasons (-v lists them)", indent
        )
