"""A field of a JSON document that anybody may have written: what it is, and where it stands."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NoReturn


@dataclass(frozen=True)
class JsonField:
    """A value of a document; each method returns it as one type, or raises ValueError.

    Attributes:
        value: What the document has there.
        where: Where that is, such as ``inputs[0].dims[2]``; "" for the document.
    """

    value: object
    where: str = ""

    @classmethod
    def parse(cls, text: str) -> JsonField:
        """Parse a document.

        Raises:
            ValueError: It is no JSON, has a key twice, or a number that JSON has not.
            RecursionError: It is nested too deeply.
        """
        return cls(
            json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
        )

    def refuse(self, wanted: str) -> NoReturn:
        """Raise ValueError: this is not what is wanted."""
        raise ValueError(f"{self.where or 'it'} is {self.value!r:.80}, which is {wanted}")

    @property
    def is_null(self) -> bool:
        """Return whether it is null."""
        return self.value is None

    def __getitem__(self, key: str) -> JsonField:
        """Return the value of a key that has to be there."""
        entries = self._entries()
        if key not in entries:
            raise ValueError(f"{self._at(key)} is missing")
        return JsonField(entries[key], self._at(key))

    def entries(self) -> dict[str, JsonField]:
        """Return the values by key."""
        return {k: JsonField(x, self._at(k)) for k, x in self._entries().items()}

    def items(self) -> Iterator[JsonField]:
        """Yield the values of a list."""
        if not isinstance(self.value, list):
            self.refuse("no list")
        for index, value in enumerate(self.value):
            yield JsonField(value, f"{self.where}[{index}]")

    def text(self) -> str:
        """Return a text, as UTF-8 has it."""
        if not isinstance(self.value, str):
            self.refuse("no text")
        if any("\ud800" <= x <= "\udfff" for x in self.value):
            self.refuse("no text that UTF-8 has")
        return self.value

    def name_of(self, names: Collection[str], wanted: str) -> str:
        """Return a text that is one of these."""
        name = self.text()
        if name not in names:
            self.refuse(wanted)
        return name

    def whole(self, least: int, most: int) -> int:
        """Return a whole number within these bounds."""
        number = self.value
        if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
            self.refuse(f"no whole number from {least} to {most}")
        return number

    def number(self) -> float:
        """Return a finite number."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse("no number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            self.refuse("no finite number")
        return number

    def flag(self) -> bool:
        """Return true or false."""
        if not isinstance(self.value, bool):
            self.refuse("neither true nor false")
        return self.value

    def _entries(self) -> dict[str, object]:
        if not isinstance(self.value, dict):
            self.refuse("no object")
        return self.value

    def _at(self, key: str) -> str:
        return f"{self.where}.{key:.80}" if self.where else f"{key:.80}"


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise ValueError(f"the key {counts.most_common(1)[0][0]!r:.80} is there twice")
    return entries


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")
