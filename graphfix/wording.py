"""Words for messages to people, and the lines and rows they are printed in."""

import difflib
import html
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

K = TypeVar("K")
V = TypeVar("V")
# Called with a short text at each step.
Tell = Callable[[str], None]

# Operators that are spelled out begin with the sound of their first letter: an LSTM, a GRU.
_LETTERS = re.compile(r"[AEFHILMNORSX][A-Z]")
_VOWEL = re.compile(r"[AEIOaeio]|[Uu](?!ni)")
# No name that a person gives is as long as this.
_LONGEST_NAME = 200
_ENDLESS = re.compile(r"\S{2000,}")
_LABEL = 10
_WIDEST = 100
ALIASES: dict[str, str] = {}
"""What is said instead of a path that the user did not give."""
# They are read on light and on dark; all else has the colours of the notebook.
_COLOURS = {"green": "#2e9e5b", "red": "#d9534f", "yellow": "#b8860b", "cyan": "#2f86c6"}


def kebab_case(name: str) -> str:
    """Return ``FuseNorm`` as ``fuse-norm``."""
    return re.sub("(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()


class Row(NamedTuple):
    """One answer of a result: what it is about, and what was found."""

    label: str
    text: str
    colour: str = ""
    """Of the label: green is good, red is bad, yellow is worth a look."""


class Displayable:
    """A result that can be displayed: a line, rows in a terminal, a table in a notebook."""

    @property
    def line(self) -> str:
        """Return the whole result in one line."""
        return str(self)

    @property
    def headline(self) -> str:
        """Return the line above the rows in a notebook."""
        return self.line

    def rows(self, *, verbose: bool = False) -> list[Row]:
        """Return the answers, the most important first; ``verbose`` as on the command line."""
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
            cells += f'{cell}">{html.escape(clean_text(text))}</td></tr>'
        return f"<div><b>{html.escape(clean_text(self.headline))}</b><table>{cells}</table></div>"


class Proof(Displayable):
    """A result that is true if it is good."""

    def __bool__(self) -> bool:
        return bool(self.ok)  # type: ignore[attr-defined]  # each has it, as a field or not


def format_number(value: float | str) -> str:
    """Return a difference in three digits; NaN and infinity are text in the JSON."""
    return value if isinstance(value, str) else f"{value:.3g}"


def plural(count: int, singular: str, many: str | None = None) -> str:
    """Return a count with its noun: ``1 repair``, ``2 repairs``."""
    return f"{count} {singular if count == 1 else many or singular + 's'}"


KernelCounts = Mapping[str, int]
"""Kernels of one run: on ``directml`` or another provider, on the ``cpu``, those ``recompiled`` at
a new length, and the ``copies``."""

_COUNTED_LAST = {"recompiled": "recompiled per new length", "copies": "copies"}


def kernels_text(
    before: KernelCounts, after: KernelCounts, provider: str = "DirectML", last: str = "recompiled"
) -> str:
    """Return ``225 -> 101 on DirectML, 67 -> 5 on the CPU; 207 -> 99 recompiled per new length``.

    A count that is missing is a question mark. ``last`` is the count behind the semicolon.
    """

    def count_pair(key: str) -> str:
        return f"{before.get(key, '?')} -> {after.get(key, '?')}"

    return (
        f"{count_pair(provider.lower())} on {provider}, {count_pair('cpu')} on the CPU; "
        f"{count_pair(last)} {_COUNTED_LAST[last]}"
    )


def did_you_mean(name: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the end of an error message: a period, or a question with the closest name.

    ``cutoff`` is how alike they have to be, as in ``difflib.get_close_matches``.
    """
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)
    return f"; did you mean {close[0]!r}?" if close else "."


def with_article(word: str) -> str:
    """Return ``an Add``, ``a Mul``, ``an LSTM``, ``a Unique``."""
    return f"{'an' if (_LETTERS if word[:2].isupper() else _VOWEL).match(word) else 'a'} {word}"


def one_line(text: str) -> str:
    """Return text from a model as one line: a name with a newline in it forges none."""
    return clean_text(text).replace("\n", "\\n")


def clean_text(text: str) -> str:
    """Return text from a model without control characters and endless names."""
    for path, name in ALIASES.items():
        text = text.replace(path, name)
    return show_controls(
        _ENDLESS.sub(lambda x: f"{x[0][:_LONGEST_NAME]}… ({len(x[0]):,} letters)", text)
    )


def show_controls(text: str) -> str:
    r"""Return text with control characters and direction marks spelt out, such as ``\u202e``."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def terminal_width() -> int:
    """Return the number of columns; 80 where it is unknown."""
    return min(shutil.get_terminal_size((80, 24)).columns, _WIDEST)


def wrap_text(text: str, indent: str = "", later: str | None = None) -> list[str]:
    """Wrap text at the terminal's width, all lines indented, or later ones more."""
    # A path or a tensor's name is never broken: it is there to be copied.
    return textwrap.wrap(
        clean_text(text),
        max(terminal_width(), 40),
        initial_indent=indent,
        subsequent_indent=indent if later is None else later,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [indent]


def row_lines(row: Row) -> list[str]:
    """Return ``label     text`` as lines, with the text wrapped under itself."""
    lines = wrap_text(row.text, "  " + " " * _LABEL)
    return [f"  {row.label:<{_LABEL}}{lines[0].lstrip()}", *lines[1:]]


def group_pairs(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return (key, value) pairs as each key with its values, such as reason with places."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def reason_lines(
    pairs: Iterable[tuple[str, str]],
    *,
    every: bool,
    indent: str,
    most: int | None = None,
    alike: bool = False,
) -> Iterator[str]:
    """Yield lines of (place, reason) pairs: each reason once, its count and two places.

    Unless ``every``, no more than ``most`` reasons are shown, the commonest; and if ``alike``, of
    those that differ in their numbers only the first.
    """
    first: dict[str, str] = {}

    def shown_reason(reason: str) -> str:
        same = re.sub(r"\d+", "0", reason) if alike and not every else reason
        return first.setdefault(same, reason)

    order = list(group_pairs((shown_reason(reason), place) for place, reason in pairs).items())
    shortened = most is not None and not every and len(order) > most
    if shortened:
        order.sort(key=lambda item: -len(item[1]))
    for reason, places in order[:most] if shortened else order:
        yield from wrap_text(f"{len(places)} x {reason}", indent, indent + "    ")
        shown = places if every else places[:2]
        hidden_count = len(places) - len(shown)
        more = f" and {hidden_count} more (-v)" if hidden_count else ""
        if any(shown):  # a model that does not load has no place
            yield from wrap_text(
                f"at {', '.join(shown)}{more}", indent + "    ", indent + "       "
            )
    if shortened:
        hidden_count = sum(len(places) for _, places in order[most:])
        yield from wrap_text(
            f"{hidden_count} x for {len(order) - (most or 0)} more reasons (-v lists them)", indent
        )
