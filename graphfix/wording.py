"""Words for what is told to people, wherever it is told."""

import difflib
import re
from collections.abc import Iterable

# Operators that are spelled out begin with the sound of their first letter: an LSTM, a GRU.
_LETTERS = re.compile(r"[AEFHILMNORSX][A-Z]")
_VOWEL = re.compile(r"[AEIOaeio]|[Uu](?!ni)")


class Proof:
    """What was found, true if it is good; a line of it where a result would be pages."""

    def __bool__(self) -> bool:
        return bool(self.ok)  # type: ignore[attr-defined]  # each has it, as a field or not

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self}>"


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
    spelled = word[:2].isupper()
    found = (_LETTERS if spelled else _VOWEL).match(word)
    return f"{'an' if found else 'a'} {word}"
